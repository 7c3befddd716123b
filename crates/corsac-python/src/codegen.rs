//! Python source of a graph, the base of `corsac.fx._codegen`.
//!
//! Queries to Python (how a value is written, the metadata) and generation alternate: the values
//! that the graph mentions are collected while it is borrowed, Python is asked when it is not, and
//! the code is written while it is borrowed again, from the answers alone.

use std::sync::Mutex;

use corsac_codegen::{
    Callee, Calling, CodegenError, Expr, Global, GlobalValue, Host, LineMap, Needs, Notes,
    Operator, Options, Piece, PyTree,
};
use corsac_ir::{EntityId, ExternalId, FunctionId, NodeId};
use pyo3::exceptions::{PyAssertionError, PyIndexError, PyRuntimeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::PyGraph;
use crate::graph::node::PyNode;

/// Python's answers about the values in a graph.
#[derive(Default)]
struct Answers {
    callees: Vec<Option<Callee>>,
    values: FxHashMap<ExternalId, Expr>,
    annotations: FxHashMap<ExternalId, Expr>,
    classes: FxHashMap<ExternalId, Expr>,
    builtins: Vec<Global>,
    additional: Vec<Global>,
    wrap: Expr,
    wrapped: FxHashSet<NodeId>,
    boxed: FxHashMap<NodeId, Vec<usize>>,
    notes: FxHashMap<NodeId, Notes>,
}

impl Host for Answers {
    fn callee(&self, function: FunctionId) -> Option<&Callee> {
        self.callees.get(function.index())?.as_ref()
    }

    fn value(&self, external: ExternalId) -> Option<&Expr> {
        self.values.get(&external)
    }

    fn annotation(&self, external: ExternalId) -> Option<&Expr> {
        self.annotations.get(&external)
    }

    fn class(&self, external: ExternalId) -> Option<&Expr> {
        self.classes.get(&external)
    }

    fn builtins(&self) -> &[Global] {
        &self.builtins
    }

    fn additional_globals(&self) -> &[Global] {
        &self.additional
    }

    fn wrap(&self) -> &Expr {
        &self.wrap
    }

    fn is_wrapped(&self, node: NodeId) -> bool {
        !self.wrapped.is_empty() && self.wrapped.contains(&node)
    }

    fn boxed_arguments(&self, node: NodeId) -> &[usize] {
        if self.boxed.is_empty() {
            return &[];
        }
        self.boxed.get(&node).map_or(&[], Vec::as_slice)
    }

    fn notes(&self, node: NodeId) -> Option<&Notes> {
        if self.notes.is_empty() {
            return None;
        }
        self.notes.get(&node)
    }
}

/// Objects among the globals of generated code, numbered. Equal objects share a number, as in
/// torch.fx.
struct Objects<'py> {
    objects: Vec<Bound<'py, PyAny>>,
    numbers: Bound<'py, PyDict>,
}

impl<'py> Objects<'py> {
    fn new(py: Python<'py>) -> Self {
        Self {
            objects: Vec::new(),
            numbers: PyDict::new(py),
        }
    }

    fn number(&mut self, object: &Bound<'py, PyAny>) -> PyResult<u32> {
        // An object that cannot be hashed or compared is equal to itself alone.
        match self.numbers.get_item(object) {
            Ok(Some(known)) => return known.extract(),
            Ok(None) => {}
            Err(_) => {
                if let Some(index) = self.objects.iter().position(|known| known.is(object)) {
                    return Ok(u32::try_from(index)?);
                }
            }
        }
        let number = u32::try_from(self.objects.len())?;
        self.objects.push(object.clone());
        // Not entered if it cannot be hashed: found by identity then.
        let _ = self.numbers.set_item(object, number);
        Ok(number)
    }

    fn global(
        &mut self,
        hint: &Bound<'py, PyAny>,
        object: &Bound<'py, PyAny>,
        is_builtin: bool,
    ) -> PyResult<Global> {
        Ok(Global {
            hint: hint.cast::<PyString>()?.to_string_lossy().into(),
            value: GlobalValue::Held(self.number(object)?),
            is_builtin,
        })
    }

    /// Reads an expression from Python: strings, and tuples (name, object, whether it is the
    /// builtin of that name, whether only the global is wanted).
    fn expr(&mut self, pieces: &Bound<'py, PyAny>) -> PyResult<Expr> {
        let mut expr = Expr::default();
        for piece in pieces.try_iter()? {
            let piece = piece?;
            expr.0.push(match piece.cast::<PyString>() {
                Ok(text) => Piece::Text(text.to_string_lossy().into()),
                Err(_) => {
                    let (hint, object, is_builtin, is_import): (
                        Bound<'py, PyAny>,
                        Bound<'py, PyAny>,
                        bool,
                        bool,
                    ) = piece.extract()?;
                    let global = self.global(&hint, &object, is_builtin)?;
                    if is_import {
                        Piece::Import(global)
                    } else {
                        Piece::Global(global)
                    }
                }
            });
        }
        Ok(expr)
    }

    fn dict(&self, globals: &[(String, GlobalValue)]) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(self.numbers.py());
        for (name, value) in globals {
            if let GlobalValue::Held(number) = value
                && let Some(object) = self.objects.get(*number as usize)
            {
                dict.set_item(name, object)?;
            }
        }
        Ok(dict)
    }
}

/// Functions that live as long as the process, with their expressions: most graphs call no others.
/// The objects are kept, so that an address stands for one function.
static KNOWN_CALLEES: Mutex<Option<KnownCallees>> = Mutex::new(None);

type KnownCallees = FxHashMap<usize, (Py<PyAny>, Callee)>;

fn known_callee<'py>(
    objects: &mut Objects<'py>,
    function: &Bound<'py, PyAny>,
) -> PyResult<Option<Callee>> {
    let mut callee = {
        let Ok(known) = KNOWN_CALLEES.lock() else {
            return Ok(None);
        };
        let entry = known
            .as_ref()
            .and_then(|k| k.get(&(function.as_ptr() as usize)));
        match entry {
            Some((_, callee)) => callee.clone(),
            None => return Ok(None),
        }
    };
    // Numbers of globals are good for one piece of code.
    for piece in &mut callee.expr.0 {
        if let Piece::Global(global) = piece {
            global.value = GlobalValue::Held(objects.number(function)?);
        }
    }
    Ok(Some(callee))
}

/// Remembers the expression of `function`: text, or a global that is the function itself.
fn remember_callee(function: &Bound<'_, PyAny>, callee: &Callee) {
    if let Ok(mut known) = KNOWN_CALLEES.lock() {
        let known = known.get_or_insert_default();
        known.insert(
            function.as_ptr() as usize,
            (function.clone().unbind(), callee.clone()),
        );
    }
}

/// Objects of a graph that Python has to be asked about.
struct Questions<'py> {
    functions: Vec<(FunctionId, Option<Bound<'py, PyAny>>)>,
    values: Vec<(ExternalId, Bound<'py, PyAny>)>,
    annotations: Vec<(ExternalId, Bound<'py, PyAny>)>,
    classes: Vec<(ExternalId, Bound<'py, PyAny>)>,
    metas: Vec<(NodeId, Py<PyAny>)>,
}

impl<'py> Questions<'py> {
    fn of(graph: &Bound<'py, PyGraph>) -> PyResult<Self> {
        let py = graph.py();
        let borrowed = graph.try_borrow()?;
        if let Some(message) = borrowed.unsettled() {
            // torch.fx asserts it.
            return Err(PyAssertionError::new_err(message));
        }
        let (ir, host) = (borrowed.ir(), borrowed.host());
        let needs = Needs::of(ir);
        let objects = |ids: Vec<ExternalId>| {
            let object = |id| (id, host.external_object(py, id));
            ids.into_iter().map(object).collect::<Vec<_>>()
        };
        let function = |id| (id, host.function_object(id).map(|f| f.bind(py).clone()));
        let metas = host.metas().filter(|(id, _)| ir.contains(*id));
        Ok(Self {
            functions: needs.functions.into_iter().map(function).collect(),
            values: objects(needs.values),
            annotations: objects(needs.annotations),
            classes: objects(needs.classes),
            metas: metas.map(|(id, meta)| (id, meta.clone_ref(py))).collect(),
        })
    }
}

/// Options of code generation, from Python.
#[derive(FromPyObject)]
pub(crate) struct Request<'py> {
    graph: Bound<'py, PyGraph>,
    root_module: String,
    function_name: String,
    calling: Option<Bound<'py, PyTuple>>,
    expanded_def: bool,
    record_func: bool,
    colored: bool,
    reserved: Vec<String>,
    /// The module that describes functions, values, types and classes.
    describe: Bound<'py, PyAny>,
    builtins: Bound<'py, PyAny>,
    additional: Bound<'py, PyAny>,
    notes: Option<Bound<'py, PyList>>,
}

impl<'py> Request<'py> {
    fn options(&self) -> PyResult<Options> {
        let calling = match &self.calling {
            None => Calling::Plain,
            Some(tuple) if tuple.is_empty() => Calling::Boxed,
            Some(tuple) => {
                let (parameters, keywords, has_out_spec) = tuple.extract()?;
                Calling::PyTree(PyTree {
                    parameters,
                    keywords,
                    has_out_spec,
                })
            }
        };
        Ok(Options {
            root_module: self.root_module.clone(),
            function_name: self.function_name.clone(),
            calling,
            expanded_def: self.expanded_def,
            record_func: self.record_func,
            reserved: self.reserved.clone(),
            colored: self.colored,
        })
    }

    /// Collects Python's answers. Nothing is borrowed meanwhile.
    fn answers(&self, objects: &mut Objects<'py>) -> PyResult<Answers> {
        let py = self.graph.py();
        let questions = Questions::of(&self.graph)?;
        let mut answers = Answers {
            wrap: Expr::text("torch.fx._symbolic_trace.wrap"),
            ..Answers::default()
        };
        for entry in self.builtins.try_iter()? {
            let (name, object): (Bound<'py, PyAny>, Bound<'py, PyAny>) = entry?.extract()?;
            answers.builtins.push(objects.global(&name, &object, true)?);
        }
        let mut boxed_by_function: FxHashMap<FunctionId, Vec<usize>> = FxHashMap::default();
        for (id, function) in &questions.functions {
            let Some(function) = function else { continue };
            let callee = match known_callee(objects, function)? {
                Some(callee) => callee,
                None => self.describe_function(objects, function, |positions| {
                    boxed_by_function.insert(*id, positions);
                })?,
            };
            if id.index() >= answers.callees.len() {
                answers.callees.resize(id.index() + 1, None);
            }
            answers.callees[id.index()] = Some(callee);
        }
        let value = self.describe.getattr(intern!(py, "describe_value"))?;
        for (id, object) in &questions.values {
            let pieces = value.call1((object, self.colored))?;
            answers.values.insert(*id, objects.expr(&pieces)?);
        }
        let annotation = self.describe.getattr(intern!(py, "describe_type"))?;
        for (id, object) in &questions.annotations {
            let pieces = annotation.call1((object,))?;
            answers.annotations.insert(*id, objects.expr(&pieces)?);
        }
        let class = self.describe.getattr(intern!(py, "describe_class"))?;
        for (id, object) in &questions.classes {
            let pieces = class.call1((object,))?;
            answers.classes.insert(*id, objects.expr(&pieces)?);
        }
        for entry in self.additional.try_iter()? {
            let (name, object): (Bound<'py, PyAny>, Bound<'py, PyAny>) = entry?.extract()?;
            answers
                .additional
                .push(objects.global(&name, &object, false)?);
        }
        self.read_metas(&questions.metas, &boxed_by_function, &mut answers)?;
        for entry in self.notes.iter().flatten() {
            let (node, comment, annotation, descriptions, metadata) = entry.extract()?;
            let node: Bound<'py, PyNode> = node;
            answers.notes.insert(
                node.get().id(),
                Notes {
                    comment,
                    annotation,
                    descriptions,
                    metadata,
                },
            );
        }
        Ok(answers)
    }

    fn describe_function(
        &self,
        objects: &mut Objects<'py>,
        function: &Bound<'py, PyAny>,
        boxed: impl FnOnce(Vec<usize>),
    ) -> PyResult<Callee> {
        let py = function.py();
        let described = self
            .describe
            .call_method1(intern!(py, "describe_function"), (function,))?;
        let (pieces, operator, positions, is_permanent): (
            Bound<'py, PyAny>,
            Option<String>,
            Option<Vec<usize>>,
            bool,
        ) = described.extract()?;
        let callee = Callee {
            expr: objects.expr(&pieces)?,
            operator: operator.as_deref().and_then(Operator::of_function),
        };
        match positions {
            Some(positions) => boxed(positions),
            None if is_permanent => remember_callee(function, &callee),
            None => {}
        }
        Ok(callee)
    }

    /// Finds the nodes that call wrapped functions, or functions that empty their arguments.
    fn read_metas(
        &self,
        metas: &[(NodeId, Py<PyAny>)],
        boxed_by_function: &FxHashMap<FunctionId, Vec<usize>>,
        answers: &mut Answers,
    ) -> PyResult<()> {
        let py = self.graph.py();
        if !boxed_by_function.is_empty() {
            let borrowed = self.graph.try_borrow()?;
            for id in borrowed.ir().nodes() {
                if let corsac_ir::Target::Function(function) = borrowed.ir().node(id).target()
                    && let Some(positions) = boxed_by_function.get(&function)
                {
                    answers.boxed.insert(id, positions.clone());
                }
            }
        }
        for (id, meta) in metas {
            let meta = meta.bind(py);
            let entry = |key: &Bound<'py, PyString>| match meta.cast::<PyDict>() {
                Ok(dict) => dict.get_item(key),
                Err(_) => Ok(None),
            };
            if meta.len().is_ok_and(|len| len == 0) {
                continue;
            }
            if let Some(wrapped) = entry(intern!(py, "is_wrapped"))?
                && wrapped.is_truthy()?
            {
                answers.wrapped.insert(*id);
            }
            if let Some(positions) = entry(intern!(py, "boxed_arg_indices"))? {
                let positions = positions
                    .try_iter()?
                    .map(|position| position?.extract())
                    .collect::<PyResult<Vec<usize>>>()?;
                answers.boxed.insert(*id, positions);
            }
        }
        Ok(())
    }
}

/// The node of each line of a generated function, converted to a dictionary on demand.
#[pyclass(name = "LineMap", module = "corsac._core", frozen)]
pub(crate) struct PyLineMap(LineMap);

#[pymethods]
impl PyLineMap {
    /// A dictionary from line (the `def` line being 0) to the index of the node, None before the
    /// first.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (line, node) in self.0.iter() {
            dict.set_item(line, node)?;
        }
        Ok(dict)
    }

    /// Copied and pickled as the dictionary.
    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyDict>,))> {
        let class = py.get_type::<PyDict>().into_any();
        Ok((class, (self.to_dict(py)?,)))
    }
}

fn codegen_error(error: CodegenError) -> PyErr {
    let message = error.to_string();
    match error {
        // The exception that torch.fx raises when it looks for the argument.
        CodegenError::MissingArgument { .. } => PyIndexError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}

/// The code of a graph: source, globals, line map, line that the function starts on.
#[pyfunction]
pub(crate) fn generate_code<'py>(
    request: Request<'py>,
) -> PyResult<(Bound<'py, PyString>, Bound<'py, PyDict>, PyLineMap, u32)> {
    let py = request.graph.py();
    let mut objects = Objects::new(py);
    let answers = request.answers(&mut objects)?;
    let options = request.options()?;
    let code = {
        let borrowed = request.graph.try_borrow()?;
        corsac_codegen::python_code(borrowed.ir(), &options, &answers).map_err(codegen_error)?
    };
    Ok((
        PyString::new(py, &code.src),
        objects.dict(&code.globals)?,
        PyLineMap(code.lines),
        code.prologue_start,
    ))
}

/// The parts of the code of a graph, for a code generator that overrides some of them.
#[pyclass(name = "CodeDraft", module = "corsac._core", frozen, get_all)]
pub(crate) struct PyCodeDraft {
    /// The body, in the pieces that transformers of bodies get.
    pieces: Py<PyList>,
    /// Indices of pieces that are left out, each with its output node.
    outputs: Vec<(usize, Py<PyNode>)>,
    /// The inputs, as written between the parentheses of a definition.
    free_vars: Vec<String>,
    /// The type of the result, with its arrow.
    return_annotation: String,
    /// Statements before the function.
    wraps: String,
    /// The globals of the code.
    globals: Py<PyDict>,
    /// Nodes whose variables are not named after them.
    renamed: Vec<(Py<PyNode>, String)>,
    /// Objects in arguments, with their expressions.
    texts: Vec<(Py<PyAny>, String)>,
}

/// The parts of the code of a graph. With `own_output`, the return statement is left out.
#[pyfunction]
pub(crate) fn draft_code(request: Request<'_>, own_output: bool) -> PyResult<PyCodeDraft> {
    let graph = &request.graph;
    let py = graph.py();
    let mut objects = Objects::new(py);
    let answers = request.answers(&mut objects)?;
    let options = request.options()?;
    let borrowed = graph.try_borrow()?;
    let draft = corsac_codegen::draft(borrowed.ir(), &options, &answers, own_output)
        .map_err(codegen_error)?;
    let host = borrowed.host();
    let handle = |id| PyNode::handle(graph, host, id);
    Ok(PyCodeDraft {
        pieces: PyList::new(py, draft.pieces())?.unbind(),
        outputs: draft
            .outputs
            .iter()
            .map(|&(piece, id)| Ok((piece, handle(id)?)))
            .collect::<PyResult<_>>()?,
        free_vars: draft.parameters.iter().map(ToString::to_string).collect(),
        globals: objects.dict(&draft.globals)?.unbind(),
        renamed: draft
            .renamed
            .into_iter()
            .map(|(id, name)| Ok((handle(id)?, name)))
            .collect::<PyResult<_>>()?,
        texts: draft
            .host_texts
            .into_iter()
            .map(|(id, text)| (host.external_object(py, id).unbind(), text))
            .collect(),
        return_annotation: draft.return_annotation,
        wraps: draft.wraps,
    })
}

/// Joins the parts of code: returns source, line map, line that the function starts on.
#[pyfunction]
pub(crate) fn assemble_code(wraps: &str, prologue: &str, body: &str) -> (String, PyLineMap, u32) {
    let (src, lines, start) = corsac_codegen::assemble(wraps, prologue, body);
    (src, PyLineMap(lines), start)
}
