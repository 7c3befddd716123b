//! Graphs as text: printing, the tabular and the lossless form, lint, parsing, and differences.

use corsac_ir::{
    Arg, Aspect, Change, ExternalId, Fault, FaultKind, FunctionId, Graph, GraphDiff, NodeId, Op,
    ParseError, Target,
};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyType};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::allowed_names::AllowedNames;
use crate::callable::CallableNames;
use crate::graph::PyGraph;
use crate::graph::node::PyNode;
use crate::host_text::{ObjectText, with_objects, with_objects_of_both};
use crate::resolve::resolve;

pyo3::create_exception!(
    corsac._core,
    GraphTextError,
    PyValueError,
    "Invalid text of a graph, or a name in it that cannot be found.\n\n\
     Has the attributes `line` and `column`, counted from 1, `expected` and `found`; all are None \
     where a name was not found."
);

#[pymethods]
impl PyGraph {
    /// The graph as torch.fx prints it.
    fn __str__(slf: &Bound<'_, Self>) -> PyResult<String> {
        with_objects(slf, |graph, text| graph.to_text(text))
    }

    /// The table of `print_tabular`.
    fn _table(slf: &Bound<'_, Self>) -> PyResult<String> {
        with_objects(slf, |graph, text| graph.to_table(text))
    }

    /// The graph as text that `Graph.parse` reads back without loss.
    ///
    /// Functions, classes and types are written by name, and are found again under those names when
    /// the text is read. A value without such a name, such as a tensor, is written without one, and
    /// reading such a text is an error. Metadata and attributes are left out.
    fn to_lossless(slf: &Bound<'_, Self>) -> PyResult<String> {
        with_objects(slf, |graph, text| graph.to_lossless_with(text))
    }

    /// Checks that the graph is valid; `_check_targets` checks that its attributes and submodules
    /// exist.
    fn _lint(slf: &Bound<'_, Self>) -> PyResult<()> {
        let Err(report) = slf.try_borrow()?.ir().lint() else {
            return Ok(());
        };
        let listing = with_objects(slf, |graph, text| graph.lint_listing(&report, text))?;
        let headline = report.faults.iter().find(|fault| fault.is_error());
        let headline = headline.and_then(headline_of).unwrap_or_default();
        Err(PyRuntimeError::new_err(format!(
            "{headline}{report}\n\n{listing}"
        )))
    }

    /// Checks that the attributes and submodules that nodes name are in `module`.
    fn _check_targets(slf: &Bound<'_, Self>, module: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let targets = {
            let borrowed = slf.try_borrow()?;
            if let Some(message) = borrowed.unsettled() {
                return Err(PyValueError::new_err(message));
            }
            let nodes = borrowed.ir().nodes().map(|id| borrowed.ir().node(id));
            let targets: Vec<_> = nodes
                .filter(|node| matches!(node.op(), Op::GetAttr | Op::CallModule))
                .map(|node| {
                    let (name, target) = (node.name().to_owned(), node.target_name().to_owned());
                    (node.op(), name, target)
                })
                .collect();
            targets
        };
        let module_class = py.import(intern!(py, "torch.nn"))?.getattr("Module")?;
        let mut known: FxHashMap<String, Bound<'_, PyAny>> = FxHashMap::default();
        for (op, name, target) in targets {
            let mut at = module.clone();
            let mut end = 0;
            for atom in target.split('.') {
                let prefix = target[..end].trim_end_matches('.');
                end = (end + atom.len() + 1).min(target.len());
                let path = target[..end].trim_end_matches('.');
                let found = match known.get(path) {
                    Some(found) => found.clone(),
                    None => match at.getattr_opt(atom)?.filter(|found| !found.is_none()) {
                        Some(found) => {
                            known.insert(path.to_owned(), found.clone());
                            found
                        }
                        None => {
                            return Err(PyRuntimeError::new_err(format!(
                                "Node {name} target {target} references nonexistent attribute \
                                 {atom} of {prefix}"
                            )));
                        }
                    },
                };
                if op == Op::CallModule && !found.is_instance(&module_class)? {
                    return Err(PyRuntimeError::new_err(format!(
                        "Node {name} target {target} {atom} of {prefix} does not reference an \
                         nn.Module"
                    )));
                }
                at = found;
            }
        }
        Ok(())
    }

    /// Fills this empty graph from `text`, whose names must be allowed by `allow`, a predicate or a
    /// collection of names.
    #[pyo3(signature = (text, allow=None))]
    fn _parse(slf: &Bound<'_, Self>, text: &str, allow: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let py = slf.py();
        let allowed = allow.map(AllowedNames::of).transpose()?;
        let read = match &allowed {
            None => Graph::parse(text),
            Some(allowed) => Graph::parse_allowing(text, &|name| allowed.allows(name)),
        };
        if let Some(allowed) = &allowed {
            allowed.raised()?;
        }
        let mut graph = read.map_err(|error| text_error(py, &error))?;
        let objects = Objects::find(py, &graph, allowed.as_ref())?;
        let mut borrowed = slf.try_borrow_mut()?;
        if !borrowed.ir().is_empty() {
            return Err(PyRuntimeError::new_err(
                "only an empty graph can be filled from text",
            ));
        }
        let callables = attach_functions(&mut graph, objects.functions);
        let (ir, host) = borrowed.parts_mut();
        *ir = graph;
        for (external, object) in &objects.externals {
            host.attach_external(*external, object);
        }
        for (function, external, callable) in &callables {
            host.attach_external(*external, callable);
            host.attach_function(*function, callable);
        }
        Ok(())
    }

    /// The changes that turn this graph into `other`.
    ///
    /// Nodes are matched by their computation before they are matched by name, so that a renamed
    /// node does not make the nodes that use it differ. Print the result to see it.
    fn diff(slf: &Bound<'_, Self>, other: &Bound<'_, Self>) -> PyResult<PyGraphDiff> {
        let diff = with_objects_of_both(slf, other, |left, right| {
            left.0.diff_with(right.0, left.1, right.1)
        })?;
        Ok(PyGraphDiff {
            before: slf.clone().unbind(),
            after: other.clone().unbind(),
            diff,
        })
    }

    /// Orders the nodes so that each comes after all it uses; returns the number of nodes that
    /// moved.
    ///
    /// Nodes that come too early move to just behind the nodes that they wait for, and all others
    /// keep their order. Effects that no argument expresses, such as changes in place, are not
    /// considered.
    ///
    /// Raises `RuntimeError` if nodes use each other in a cycle; the graph is then as it was.
    fn topological_sort(slf: &Bound<'_, Self>) -> PyResult<usize> {
        let mut borrowed = slf.try_borrow_mut()?;
        borrowed
            .ir_mut()
            .topological_sort()
            .map_err(crate::error::graph_error)
    }
}

#[pymethods]
impl PyNode {
    /// A target as the printed graph shows it: a name as it is, a callable by its qualified name.
    #[staticmethod]
    fn _pretty_print_target(target: &Bound<'_, PyAny>) -> PyResult<String> {
        match target.cast::<PyString>() {
            Ok(name) => Ok(name.to_string_lossy().into_owned()),
            Err(_) => Ok(CallableNames::of(target)?.printed),
        }
    }

    /// The line of the node in the printed graph.
    ///
    /// With a list that is not empty as `placeholder_names`, the description of a placeholder is
    /// appended to it instead, and None returned. `maybe_return_typename[0]` becomes the type of
    /// an output. `include_tensor_metadata` shows type, shape, strides and device of the tensor in
    /// `meta`.
    #[pyo3(signature = (
        placeholder_names = None, maybe_return_typename = None, *, include_tensor_metadata = false
    ))]
    fn format_node(
        slf: &Bound<'_, Self>,
        placeholder_names: Option<&Bound<'_, PyList>>,
        maybe_return_typename: Option<&Bound<'_, PyList>>,
        include_tensor_metadata: bool,
    ) -> PyResult<Option<String>> {
        let py = slf.py();
        let (graph, id) = (slf.get().graph(py), slf.get().id());
        let (op, target, ty) = {
            let borrowed = graph.try_borrow()?;
            let node = borrowed.ir().node(id);
            let ty = node.ty().map(|ty| borrowed.host().external_object(py, ty));
            (node.op(), node.target_name().to_owned(), ty)
        };
        let repr = |ty: &Bound<'_, PyAny>| -> PyResult<String> {
            let repr = py
                .import(intern!(py, "corsac.fx.node"))?
                .getattr(intern!(py, "_type_repr"))?;
            repr.call1((ty,))?.extract()
        };
        match op {
            Op::Placeholder => {
                if let Some(names) = placeholder_names.filter(|names| !names.is_empty()) {
                    // torch.fx repeats the name in front of a type.
                    let described = match &ty {
                        Some(ty) => format!("{target}{target}: {}", repr(ty)?),
                        None => target,
                    };
                    names.append(described)?;
                    return Ok(None);
                }
            }
            Op::Output => {
                if let (Some(ty), Some(typename)) = (&ty, maybe_return_typename)
                    && !typename.is_empty()
                {
                    typename.set_item(0, format!(" -> {}", repr(ty)?))?;
                }
            }
            Op::GetAttr | Op::CallFunction | Op::CallMethod | Op::CallModule => {}
        }
        if include_tensor_metadata && let Some(tensor) = tensor_annotation(slf)? {
            let print = |graph: &Graph, text: &ObjectText| graph.format_node_as(id, &tensor, text);
            return with_objects(graph, print).map(Some);
        }
        with_objects(graph, |graph, text| graph.format_node(id, text)).map(Some)
    }
}

/// `Tensor "f32[2, 3][3, 1]cpu"`, if the node's metadata has a tensor.
fn tensor_annotation(node: &Bound<'_, PyNode>) -> PyResult<Option<String>> {
    let py = node.py();
    let meta = node.getattr(intern!(py, "meta"))?;
    let get = |key: &Bound<'_, PyString>, default: Bound<'_, PyAny>| {
        meta.call_method1(intern!(py, "get"), (key, default))
            .map(Bound::unbind)
    };
    let example = get(intern!(py, "example_value"), py.None().into_bound(py))?;
    let tensor_meta = get(intern!(py, "tensor_meta"), example.into_bound(py))?;
    let value = get(intern!(py, "val"), tensor_meta.into_bound(py))?.into_bound(py);
    let torch = py.import(intern!(py, "torch"))?;
    if !value.is_instance(&torch.getattr(intern!(py, "Tensor"))?)? {
        return Ok(None);
    }
    let describe = py
        .import(intern!(py, "corsac.fx._node_notes"))?
        .getattr(intern!(py, "tensor_annotation"))?;
    describe.call1((value,))?.extract()
}

/// The differences between two graphs. Prints like a unified diff of the two, without the numbers
/// of users; is false if there are none.
#[pyclass(name = "GraphDiff", module = "corsac._core", frozen)]
pub(crate) struct PyGraphDiff {
    before: Py<PyGraph>,
    after: Py<PyGraph>,
    diff: GraphDiff,
}

impl PyGraphDiff {
    fn list(
        graph: &Bound<'_, PyGraph>,
        ids: impl Iterator<Item = Option<NodeId>>,
    ) -> PyResult<Vec<Py<PyNode>>> {
        ids.flatten().map(|id| PyNode::of(graph, id)).collect()
    }
}

/// A node before, the node after, and the aspects in which they differ.
type ChangedNode = (Py<PyNode>, Py<PyNode>, Vec<&'static str>);

#[pymethods]
impl PyGraphDiff {
    /// Nodes of the second graph that are not in the first.
    #[getter]
    fn added(&self, py: Python<'_>) -> PyResult<Vec<Py<PyNode>>> {
        Self::list(self.after.bind(py), self.diff.added().map(|e| e.after))
    }

    /// Nodes of the first graph that are not in the second.
    #[getter]
    fn removed(&self, py: Python<'_>) -> PyResult<Vec<Py<PyNode>>> {
        Self::list(self.before.bind(py), self.diff.removed().map(|e| e.before))
    }

    /// Nodes in both that differ: the node before, the node after, and those of "name", "target",
    /// "args", "kwargs" and "type" that differ.
    #[getter]
    fn changed(&self, py: Python<'_>) -> PyResult<Vec<ChangedNode>> {
        let mut changed = Vec::new();
        for entry in self.diff.changed() {
            let aspects = match &entry.change {
                Change::Changed(aspects) | Change::MovedTo(aspects) => aspects,
                Change::Kept | Change::Added | Change::Removed | Change::MovedFrom => continue,
            };
            if let (Some(before), Some(after)) = (entry.before, entry.after) {
                let before = PyNode::of(self.before.bind(py), before)?;
                let after = PyNode::of(self.after.bind(py), after)?;
                changed.push((before, after, aspects.iter().map(aspect_name).collect()));
            }
        }
        Ok(changed)
    }

    /// Nodes of the second graph that have another position than in the first.
    #[getter]
    fn moved(&self, py: Python<'_>) -> PyResult<Vec<Py<PyNode>>> {
        Self::list(self.after.bind(py), self.diff.moved().map(|e| e.after))
    }

    fn __bool__(&self) -> bool {
        !self.diff.is_empty()
    }

    fn __str__(&self) -> String {
        self.diff.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<GraphDiff: {}>", self.diff.summary())
    }

    fn __traverse__(&self, visit: pyo3::gc::PyVisit<'_>) -> Result<(), pyo3::gc::PyTraverseError> {
        visit.call(&self.before)?;
        visit.call(&self.after)
    }
}

fn aspect_name(aspect: &Aspect) -> &'static str {
    match aspect {
        Aspect::Name => "name",
        Aspect::Target => "target",
        Aspect::Args => "args",
        Aspect::Kwargs => "kwargs",
        Aspect::Annotation => "type",
    }
}

fn text_error(py: Python<'_>, error: &ParseError) -> PyErr {
    let exception = GraphTextError::new_err(error.to_string());
    let value = exception.value(py);
    let attributes: [(&str, PyResult<Bound<'_, PyAny>>); 4] = [
        ("line", error.line.into_bound_py_any(py)),
        ("column", error.column.into_bound_py_any(py)),
        ("expected", error.expected.as_ref().into_bound_py_any(py)),
        ("found", error.found.as_str().into_bound_py_any(py)),
    ];
    for (name, attribute) in attributes {
        if let Err(failed) = attribute.and_then(|attribute| value.setattr(name, attribute)) {
            return failed;
        }
    }
    exception
}

/// Gives functions that are known by name an external id for the callable behind them.
pub(crate) fn attach_functions<'py>(
    graph: &mut Graph,
    functions: Vec<(FunctionId, Bound<'py, PyAny>)>,
) -> Vec<(FunctionId, ExternalId, Bound<'py, PyAny>)> {
    let attach = |(function, callable)| {
        let external = graph.function_info(function).external;
        let external = external.unwrap_or_else(|| {
            let external = graph.add_external(None);
            graph.set_function_external(function, external);
            external
        });
        (function, external, callable)
    };
    functions.into_iter().map(attach).collect()
}

/// The Python objects that a graph read from text refers to.
struct Objects<'py> {
    functions: Vec<(FunctionId, Bound<'py, PyAny>)>,
    externals: FxHashMap<ExternalId, Bound<'py, PyAny>>,
}

impl<'py> Objects<'py> {
    fn find(py: Python<'py>, graph: &Graph, allowed: Option<&AllowedNames<'py>>) -> PyResult<Self> {
        let mut search = Search {
            py,
            graph,
            allowed,
            seen: FxHashSet::default(),
            found: FxHashMap::default(),
        };
        let mut functions = Vec::new();
        let mut seen = FxHashSet::default();
        for id in graph.nodes() {
            let node = graph.node(id);
            if let Target::Function(function) = node.target()
                && seen.insert(function)
            {
                let name = graph.function_name(function);
                let callable = match resolve(py, name, allowed)? {
                    Some(callable) if callable.is_callable() => callable,
                    Some(_) => return Err(search.missing(id, name, "no function")),
                    None => return Err(search.missing(id, name, "not found")),
                };
                functions.push((function, callable));
            }
            if let Some(ty) = node.ty() {
                search.external(id, ty)?;
            }
            let kwargs = node.kwargs().iter().map(|(_, arg)| arg);
            for arg in node.args().iter().chain(kwargs) {
                search.arg(id, arg)?;
            }
            // The origin of a node is a note; names in it that are not found are left out.
            for scope in graph.scope_chain(node.origin().scope) {
                if search.seen.insert(scope.class)
                    && let Some(name) = graph.external_name(scope.class)
                    && let Some(class) = resolve(py, name, allowed)?
                {
                    search.found.insert(scope.class, class);
                }
            }
        }
        Ok(Self {
            functions,
            externals: search.found,
        })
    }
}

struct Search<'g, 'py> {
    py: Python<'py>,
    graph: &'g Graph,
    allowed: Option<&'g AllowedNames<'py>>,
    seen: FxHashSet<ExternalId>,
    found: FxHashMap<ExternalId, Bound<'py, PyAny>>,
}

impl Search<'_, '_> {
    fn external(&mut self, user: NodeId, value: ExternalId) -> PyResult<()> {
        if !self.seen.insert(value) {
            return Ok(());
        }
        let Some(name) = self.graph.external_name(value) else {
            return Err(self.missing(user, &value.to_string(), "a value without a name"));
        };
        match resolve(self.py, name, self.allowed)? {
            Some(object) => {
                self.found.insert(value, object);
            }
            None => return Err(self.missing(user, name, "not found")),
        }
        Ok(())
    }

    fn arg(&mut self, user: NodeId, arg: &Arg) -> PyResult<()> {
        match arg {
            Arg::Opaque(value) => self.external(user, *value)?,
            Arg::NamedTuple(named) => {
                self.external(user, named.0)?;
                let is_class = self
                    .found
                    .iter()
                    .all(|(id, class)| *id != named.0 || class.is_instance_of::<PyType>());
                if !is_class {
                    let name = self.graph.external_name(named.0).unwrap_or_default();
                    return Err(self.missing(user, name, "no class"));
                }
            }
            _ => {}
        }
        let mut outcome = Ok(());
        if arg.depth() > 0 {
            arg.for_each_part(&mut |part| {
                if outcome.is_ok() {
                    outcome = self.arg(user, part);
                }
            });
        }
        outcome
    }

    fn missing(&self, user: NodeId, name: &str, problem: &str) -> PyErr {
        let node = self.graph.node(user).name();
        let and_allowed = match self.allowed {
            Some(_) => ", and must be allowed, as must the names that things have themselves",
            None => "",
        };
        let error = GraphTextError::new_err(format!(
            "node {node} refers to {name}: {problem}; names are looked up in torch, operator, \
             builtins, math and modules that are imported already{and_allowed}"
        ));
        let value = error.value(self.py);
        for attribute in ["line", "column", "expected", "found"] {
            if let Err(failed) = value.setattr(attribute, self.py.None()) {
                return failed;
            }
        }
        error
    }
}

/// Message of torch.fx's `lint` for a fault, as a line of its own; programs look for it in
/// messages.
fn headline_of(fault: &Fault) -> Option<String> {
    let node = &fault.name;
    Some(match &fault.kind {
        FaultKind::UsedBeforeDefinition { argument } | FaultKind::ErasedArgument { argument } => {
            format!(
                "Argument '{argument}' of Node '{node}' was used before it has been defined! Please \
                 check that Nodes in the graph are topologically ordered\n"
            )
        }
        FaultKind::DuplicateName => format!("Node redefined name {node}!\n"),
        _ => return None,
    })
}
