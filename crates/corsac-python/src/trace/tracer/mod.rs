//! `TracerCore`: the native half of `corsac.fx.proxy.TracerBase`.

mod modules;
mod scopes;

use corsac_ir::{Op, Origin, Source};
use pyo3::exceptions::PyAttributeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCode, PyDict, PyString, PyTuple, PyType};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::PyGraph;
use crate::graph::node::{PyNode, parse_op};
use crate::graph::source::{CodeCache, current_source};
use crate::trace::active::{self, AtWork};
use crate::trace::intercept::Interception;
use crate::trace::modules::{Kind, Names, Survey};
use crate::trace::overrides::Overrides;
use crate::trace::predecessor::Predecessor;
use crate::trace::record::{self, Arguments, Call};
use crate::trace::scopes::Scopes;

/// Records operations on proxies. The Python class `corsac.fx.proxy.TracerBase` derives from this
/// one.
#[pyclass(name = "TracerCore", module = "corsac._core", subclass, weakref)]
#[derive(Default)]
pub(crate) struct PyTracer {
    graph: Option<Py<PyAny>>,
    /// Whether nodes may be created in the graph without its class.
    graph_is_plain: bool,
    overrides: Option<Overrides>,
    modules: Option<Names>,
    parameters: Option<Names>,
    buffers: Option<Names>,
    /// Value assigned to `submodule_paths`.
    submodule_paths: Option<Py<PyAny>>,
    /// Proxies of parameters, by qualified name.
    parameter_proxies: Option<Py<PyDict>>,
    pub(in crate::trace) scopes: Scopes,
    /// The node that new nodes replace.
    pub(in crate::trace) predecessor: Predecessor,
    codes: CodeCache,
    /// The code of the traced function: the origin of its inputs and its output.
    root_code: Option<Py<PyCode>>,
    /// Whether instances of a class are leaf modules, by address of the class.
    leaf_classes: FxHashMap<usize, (Py<PyType>, bool)>,
    /// Addresses of the functions that this tracer wraps wherever it finds them.
    autowrapped: FxHashSet<usize>,
    /// Addresses of the name spaces that were searched for them.
    searched: FxHashSet<usize>,
}

impl PyTracer {
    /// Overrides of the tracer's class.
    pub(in crate::trace) fn overrides(slf: &Bound<'_, Self>) -> PyResult<Overrides> {
        if let Some(known) = slf.try_borrow()?.overrides {
            return Ok(known);
        }
        let found = Overrides::of(slf.as_any())?;
        slf.try_borrow_mut()?.overrides = Some(found);
        Ok(found)
    }

    /// The graph, if nodes can be created in it natively.
    pub(in crate::trace) fn plain_graph<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<Option<Bound<'py, PyGraph>>> {
        let me = slf.try_borrow()?;
        if !me.graph_is_plain {
            return Ok(None);
        }
        let graph = me.graph.as_ref().map(|graph| graph.bind(slf.py()));
        Ok(graph
            .and_then(|graph| graph.cast::<PyGraph>().ok())
            .cloned())
    }

    /// Origin of a node that is made now.
    pub(in crate::trace) fn origin(
        slf: &Bound<'_, Self>,
        graph: &Bound<'_, PyGraph>,
        op: Op,
    ) -> PyResult<Origin> {
        let py = slf.py();
        if let Some(origin) = Predecessor::origin_in(slf, graph)? {
            return Ok(origin);
        }
        if matches!(op, Op::Placeholder | Op::Output) {
            let me = slf.try_borrow()?;
            if let Some(code) = &me.root_code {
                let mut borrowed = graph.try_borrow_mut()?;
                let (ir, host) = borrowed.parts_to_extend();
                let code = host.external(ir, code.bind(py).as_any());
                return Ok(Origin {
                    source: Some(ir.add_source(Source::Host { code, offset: -1 })),
                    scope: me.scopes.current(),
                });
            }
        }
        // Taken out meanwhile: looking at frames may run the garbage collector.
        let mut codes = std::mem::take(&mut slf.try_borrow_mut()?.codes);
        let source = current_source(graph, &mut codes);
        let mut me = slf.try_borrow_mut()?;
        me.codes = codes;
        Ok(Origin {
            source: source?,
            scope: me.scopes.current(),
        })
    }

    /// Wraps the functions that this tracer wraps in the name space of a module's forward.
    pub(in crate::trace) fn search_module(
        slf: &Bound<'_, Self>,
        module: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = slf.py();
        if slf.try_borrow()?.autowrapped.is_empty() {
            return Ok(());
        }
        let forward = module.getattr_opt(intern!(py, "forward"))?;
        let forward = forward.as_ref().unwrap_or(module);
        match forward.getattr_opt(intern!(py, "__globals__"))? {
            Some(names) => Self::search(slf, &names),
            None => Ok(()),
        }
    }

    /// Wraps the functions that this tracer wraps in a name space, once.
    fn search(slf: &Bound<'_, Self>, names: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(names) = names.cast::<PyDict>() else {
            return Ok(());
        };
        if !slf
            .try_borrow_mut()?
            .searched
            .insert(names.as_ptr() as usize)
        {
            return Ok(());
        }
        let mut found = Vec::new();
        {
            let me = slf.try_borrow()?;
            for (name, value) in names.iter() {
                if me.autowrapped.contains(&(value.as_ptr() as usize))
                    && let Ok(name) = name.cast_into::<PyString>()
                    && !name.to_str()?.starts_with('_')
                {
                    found.push((name, value));
                }
            }
        }
        for (name, function) in found {
            Interception::wrap(names, &name, Some(&function), false)?;
        }
        Ok(())
    }

    /// Whether this tracer wraps a function wherever it finds it.
    pub(in crate::trace) fn autowraps(&self, function: &Py<PyAny>) -> bool {
        self.autowrapped.contains(&(function.as_ptr() as usize))
    }

    /// Forgets the state of one trace; the result is to be dropped when nothing is borrowed.
    fn reset(&mut self) -> impl Sized + use<> {
        self.searched.clear();
        self.autowrapped.clear();
        self.overrides = None;
        (
            self.modules.take(),
            self.parameters.take(),
            self.buffers.take(),
            self.parameter_proxies.take(),
            std::mem::take(&mut self.leaf_classes),
            self.codes.clear(),
            self.root_code.take(),
            self.scopes.clear(),
        )
    }
}

/// Ends a trace when it is dropped, for whatever reason.
struct Trace<'a, 'py> {
    tracer: &'a Bound<'py, PyTracer>,
    _interception: Interception<'py>,
    _at_work: AtWork,
}

impl<'a, 'py> Trace<'a, 'py> {
    fn begin(tracer: &'a Bound<'py, PyTracer>) -> PyResult<Self> {
        let interception = Interception::begin(tracer.py())?;
        Ok(Self {
            tracer,
            _interception: interception,
            _at_work: AtWork::begin(tracer),
        })
    }
}

impl Drop for Trace<'_, '_> {
    fn drop(&mut self) {
        if let Ok(mut tracer) = self.tracer.try_borrow_mut() {
            let forgotten = tracer.reset();
            drop(tracer);
            drop(forgotten);
        }
    }
}

#[pymethods]
impl PyTracer {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    /// The graph that is recorded into.
    #[getter]
    fn graph(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &self.graph {
            Some(graph) => Ok(graph.clone_ref(py)),
            None => Err(PyAttributeError::new_err("the tracer has no graph yet")),
        }
    }

    #[setter]
    fn set_graph(slf: &Bound<'_, Self>, graph: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        static PLAIN: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let plain = graph.is_instance_of::<PyGraph>() && {
            let class = graph.get_type();
            let create = intern!(py, "create_node");
            class.is(PLAIN.import(py, "corsac.fx.graph", "Graph")?)
                || class
                    .getattr(create)?
                    .is(py.get_type::<PyGraph>().getattr(create)?)
        };
        let replaced = {
            let mut me = slf.try_borrow_mut()?;
            me.graph_is_plain = plain;
            let open = me.scopes.clear();
            let codes = me.codes.clear();
            (me.graph.replace(graph.clone().unbind()), open, codes)
        };
        drop(replaced);
        Ok(())
    }

    /// Prepares for a trace of `root`, by a function with this code. Returns the tensors that
    /// modules have as plain attributes.
    fn _index_root<'py>(
        slf: &Bound<'py, Self>,
        root: &Bound<'py, PyAny>,
        is_module: bool,
        code: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let forgotten = slf.try_borrow_mut()?.reset();
        drop(forgotten);
        let replaced = {
            let mut me = slf.try_borrow_mut()?;
            let code = code.cast::<PyCode>().ok().map(|code| code.clone().unbind());
            std::mem::replace(&mut me.root_code, code)
        };
        drop(replaced);
        if !is_module {
            return Ok(PyDict::new(root.py()));
        }
        if let Some(survey) = Kind::Modules.survey(root)? {
            slf.try_borrow_mut()?.modules = Some(survey.modules);
            return Ok(survey.constants);
        }
        let modules = Kind::Modules.names(root)?;
        slf.try_borrow_mut()?.modules = Some(modules);
        Survey::constants_of(root)
    }

    /// Calls `fn` and records its operations and its result.
    fn _record(
        slf: &Bound<'_, Self>,
        r#fn: &Bound<'_, PyAny>,
        args: &Bound<'_, PyAny>,
        names: &Bound<'_, PyAny>,
        type_expr: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = slf.py();
        let autowrapped: FxHashSet<usize> = slf
            .getattr(intern!(py, "_autowrap_function_ids"))?
            .try_iter()?
            .map(|id| id?.extract())
            .collect::<PyResult<_>>()?;
        let search = slf.getattr(intern!(py, "_autowrap_search"))?;
        slf.try_borrow_mut()?.autowrapped = autowrapped;
        let overrides = Self::overrides(slf)?;
        let _trace = Trace::begin(slf)?;
        Self::search(slf, names)?;
        for module in search.try_iter()? {
            Self::search(slf, &module?.getattr(intern!(py, "__dict__"))?)?;
        }
        let args = match args.cast::<PyTuple>() {
            Ok(args) => args.clone(),
            Err(_) => PyTuple::new(py, args.try_iter()?.collect::<PyResult<Vec<_>>>()?)?,
        };
        let result = r#fn.call1(args)?;
        record::output(slf, overrides, &result, type_expr)
    }

    /// The default `create_proxy`.
    #[allow(clippy::too_many_arguments)] // the signature is torch.fx's
    fn _create_proxy<'py>(
        slf: &Bound<'py, Self>,
        kind: &str,
        target: &Bound<'py, PyAny>,
        args: &Bound<'py, PyAny>,
        kwargs: &Bound<'py, PyAny>,
        name: Option<&Bound<'py, PyAny>>,
        type_expr: Option<&Bound<'py, PyAny>>,
        proxy_factory_fn: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let overrides = Self::overrides(slf)?;
        let (Ok(tuple), Ok(dict)) = (args.cast::<PyTuple>(), kwargs.cast::<PyDict>()) else {
            return record::create_proxy_of(slf, kind, target, args, kwargs, name, type_expr);
        };
        let call = Call {
            op: parse_op(kind)?,
            target,
            arguments: Arguments::of(tuple),
            kwargs: Some(dict),
            name: name.filter(|name| !name.is_none()),
            ty: type_expr.filter(|ty| !ty.is_none()),
            factory: proxy_factory_fn.filter(|factory| !factory.is_none()),
        };
        record::create_proxy(slf, overrides, &call)
    }

    /// Records the origin of a node.
    fn _note_origin(slf: &Bound<'_, Self>, node: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(node) = node.cast::<PyNode>() else {
            return Ok(());
        };
        let graph = node.get().graph(slf.py());
        if !slf
            .try_borrow()?
            .graph
            .as_ref()
            .is_some_and(|own| own.is(graph))
        {
            return Ok(());
        }
        let id = node.get().id();
        let op = graph.try_borrow()?.ir().node(id).op();
        let origin = Self::origin(slf, graph, op)?;
        graph
            .try_borrow_mut()?
            .parts_to_extend()
            .0
            .set_origin(id, origin);
        Self::note_scope(slf, node)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.graph)?;
        visit.call(&self.submodule_paths)?;
        visit.call(&self.parameter_proxies)?;
        for names in [&self.modules, &self.parameters, &self.buffers] {
            for (object, _) in names.iter().flat_map(|names| names.entries()) {
                visit.call(object)?;
            }
        }
        for (class, _) in self.leaf_classes.values() {
            visit.call(class)?;
        }
        visit.call(&self.root_code)?;
        self.predecessor.traverse(&visit)?;
        self.codes.objects().try_for_each(|code| visit.call(code))?;
        self.scopes.traverse(&visit)
    }

    fn __clear__(&mut self) {
        *self = Self::default();
    }
}

/// The tracer at work in this thread, if there is one.
pub(in crate::trace) fn at_work(py: Python<'_>) -> Option<Bound<'_, PyTracer>> {
    active::current(py)
}
