//! `TracerCore`: the native half of `corsac.fx.proxy.TracerBase`.

use corsac_ir::{Op, Origin, Source};
use pyo3::exceptions::PyAttributeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCode, PyDict, PyString, PyTuple, PyType};
use rustc_hash::{FxHashMap, FxHashSet};

use super::active::{self, AtWork};
use super::intercept::Interception;
use super::modules::{Kind, Names, Survey, TorchClasses};
use super::overrides::Overrides;
use super::predecessor::Predecessor;
use super::record::{self, Arguments, Call};
use super::scopes::{Mirror, Scopes, leave_unnoted};
use super::source::{CodeCache, Place};
use crate::graph::PyGraph;
use crate::node::{PyNode, parse_op};

/// Records what happens to proxies. The Python class `corsac.fx.proxy.TracerBase` derives from
/// this one.
#[pyclass(name = "TracerCore", module = "corsac._core", subclass, weakref)]
#[derive(Default)]
pub(crate) struct PyTracer {
    graph: Option<Py<PyAny>>,
    /// Whether nodes may be created in the graph without asking its class.
    graph_is_plain: bool,
    overrides: Option<Overrides>,
    modules: Option<Names>,
    parameters: Option<Names>,
    buffers: Option<Names>,
    /// What somebody has assigned to `submodule_paths`.
    submodule_paths: Option<Py<PyAny>>,
    /// Proxies of parameters, by qualified name.
    parameter_proxies: Option<Py<PyDict>>,
    pub(super) scopes: Scopes,
    /// The node whose place the nodes made now take.
    pub(super) predecessor: Predecessor,
    codes: CodeCache,
    /// The code of the function that is traced: where its inputs and its output come from.
    root_code: Option<Py<PyCode>>,
    /// By address of the class: whether its instances are leaf modules.
    leaf_classes: FxHashMap<usize, (Py<PyType>, bool)>,
    /// Addresses of the functions that this tracer wraps wherever it meets them.
    autowrapped: FxHashSet<usize>,
    /// Addresses of the name spaces in which they were looked for.
    searched: FxHashSet<usize>,
}

impl PyTracer {
    /// What is overridden.
    pub(super) fn overrides(slf: &Bound<'_, Self>) -> PyResult<Overrides> {
        if let Some(known) = slf.try_borrow()?.overrides {
            return Ok(known);
        }
        let found = Overrides::of(slf.as_any())?;
        slf.try_borrow_mut()?.overrides = Some(found);
        Ok(found)
    }

    /// The graph, if nodes can be created in it natively.
    pub(super) fn plain_graph<'py>(
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

    /// Where a node made now comes from.
    pub(super) fn origin(
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
        let place = Place::current(py, &mut codes);
        let source = place.and_then(|place| {
            let Some(place) = place else { return Ok(None) };
            let mut borrowed = graph.try_borrow_mut()?;
            let (ir, host) = borrowed.parts_to_extend();
            let code = match place.id {
                Some(id) => id,
                None => {
                    let id = host.external(ir, place.code.as_any());
                    codes.set_id(&place.code, id);
                    id
                }
            };
            Ok(Some(ir.add_source(Source::Host {
                code,
                offset: place.offset,
            })))
        });
        let mut me = slf.try_borrow_mut()?;
        me.codes = codes;
        Ok(Origin {
            source: source?,
            scope: me.scopes.current(),
        })
    }

    /// Notes a new node in what Python code has asked for: the scope of each node, and the module
    /// stack if it may differ from the graph's.
    pub(super) fn note_scope(slf: &Bound<'_, Self>, node: &Bound<'_, PyNode>) -> PyResult<()> {
        let py = slf.py();
        let Some(mirror) = slf.try_borrow()?.scopes.mirror().map(|m| m.clone_ref(py)) else {
            return Ok(());
        };
        let scope = mirror.scope.bind(py);
        let entry = (
            scope.getattr(intern!(py, "module_path"))?,
            scope.getattr(intern!(py, "module_type"))?,
        );
        mirror
            .node_name_to_scope
            .bind(py)
            .set_item(node.getattr(intern!(py, "name"))?, entry)?;
        let stack = mirror.module_stack.bind(py);
        if stack.is_truthy()? {
            let copy = py
                .import(intern!(py, "copy"))?
                .call_method1(intern!(py, "copy"), (stack,))?;
            let meta = node.getattr(intern!(py, "meta"))?;
            meta.set_item(intern!(py, "nn_module_stack"), copy)?;
        }
        Ok(())
    }

    /// Whether somebody has asked for the scopes as Python objects.
    pub(super) fn is_mirrored(&self) -> bool {
        self.scopes.mirror().is_some()
    }

    /// The scopes as Python objects, made when first asked for.
    fn mirror(slf: &Bound<'_, Self>) -> PyResult<Mirror> {
        let py = slf.py();
        if let Some(mirror) = slf.try_borrow()?.scopes.mirror() {
            return Ok(mirror.clone_ref(py));
        }
        static SCOPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let class = SCOPE.import(py, "corsac.fx.proxy", "Scope")?;
        let node_scopes = Self::node_scopes(slf)?;
        let mirror = {
            let me = slf.try_borrow()?;
            Mirror {
                scope: class.call1(me.scopes.innermost(py))?.unbind(),
                module_stack: me.scopes.module_stack(py)?.unbind(),
                num_calls: me.scopes.num_calls(py)?.into_any().unbind(),
                node_name_to_scope: node_scopes.into_any().unbind(),
            }
        };
        let answer = mirror.clone_ref(py);
        let replaced = slf.try_borrow_mut()?.scopes.set_mirror(mirror);
        drop(replaced);
        Ok(answer)
    }

    /// The scope of each node of the graph, by name.
    fn node_scopes<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        let scopes = PyDict::new(py);
        let Some(graph) = Self::plain_graph(slf)? else {
            return Ok(scopes);
        };
        let borrowed = graph.try_borrow()?;
        let ir = borrowed.ir();
        for id in ir.nodes() {
            let name = ir.node(id).name();
            match ir.origin(id).scope {
                Some(scope) => {
                    let scope = ir.scope(scope);
                    let class = borrowed.host().external_object(py, scope.class);
                    scopes.set_item(name, (ir.text(scope.path), class))?;
                }
                None => scopes.set_item(name, ("", py.None()))?,
            }
        }
        Ok(scopes)
    }

    fn change_mirror(slf: &Bound<'_, Self>, change: impl FnOnce(&mut Mirror)) -> PyResult<()> {
        let mut mirror = Self::mirror(slf)?;
        change(&mut mirror);
        let replaced = slf.try_borrow_mut()?.scopes.set_mirror(mirror);
        drop(replaced);
        Ok(())
    }

    fn root<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.getattr(intern!(slf.py(), "root"))
    }

    fn table(&self, kind: Kind) -> Option<&Names> {
        match kind {
            Kind::Modules => self.modules.as_ref(),
            Kind::Parameters => self.parameters.as_ref(),
            Kind::Buffers => self.buffers.as_ref(),
        }
    }

    /// The qualified name in the root of a module, parameter or buffer.
    ///
    /// The table is filled at the first question, and once more for each question that it has no
    /// answer to: the root may have changed.
    pub(super) fn name_in_root<'py>(
        slf: &Bound<'py, Self>,
        kind: Kind,
        object: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyString>>> {
        if let Some(name) = slf
            .try_borrow()?
            .table(kind)
            .and_then(|names| names.get(object))
        {
            return Ok(Some(name));
        }
        let names = kind.names(&Self::root(slf)?)?;
        let name = names.get(object);
        let replaced = {
            let mut me = slf.try_borrow_mut()?;
            let me = &mut *me;
            let table = match kind {
                Kind::Modules => &mut me.modules,
                Kind::Parameters => &mut me.parameters,
                Kind::Buffers => &mut me.buffers,
            };
            table.replace(names)
        };
        drop(replaced);
        Ok(name)
    }

    /// The qualified name of a module as `path_of_module` finds it: among the submodules as they
    /// were when the trace began, where that is known.
    pub(super) fn module_name<'py>(
        slf: &Bound<'py, Self>,
        module: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = slf.py();
        let paths = {
            let me = slf.try_borrow()?;
            me.submodule_paths
                .as_ref()
                .map(|paths| paths.bind(py).clone())
        };
        if let Some(paths) = paths
            && paths.is_truthy()?
        {
            let path = paths.call_method1(intern!(py, "get"), (module,))?;
            return Ok((!path.is_none()).then_some(path));
        }
        Ok(Self::name_in_root(slf, Kind::Modules, module)?.map(Bound::into_any))
    }

    /// Whether calls of a module are recorded as such.
    fn is_leaf(
        slf: &Bound<'_, Self>,
        overrides: Overrides,
        module: &Bound<'_, PyAny>,
        path: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let py = slf.py();
        if overrides.is_leaf_module {
            return slf
                .call_method1(intern!(py, "is_leaf_module"), (module, path))?
                .is_truthy();
        }
        let class = module.get_type();
        let address = class.as_ptr() as usize;
        if let Some((_, leaf)) = slf.try_borrow()?.leaf_classes.get(&address) {
            return Ok(*leaf);
        }
        let home = module.getattr(intern!(py, "__module__"))?;
        let home = home.cast::<PyString>()?.to_str()?;
        let leaf = (home.starts_with("torch.nn") || home.starts_with("torch.ao.nn"))
            && !module.is_instance(TorchClasses::get(py)?.sequential.bind(py))?;
        slf.try_borrow_mut()?
            .leaf_classes
            .insert(address, (class.unbind(), leaf));
        Ok(leaf)
    }

    /// What a call of a module does, unless `call_module` is overridden. `forward` calls it; where
    /// it is not given, the module is called as it would be if nobody traced.
    pub(super) fn call_module<'py>(
        slf: &Bound<'py, Self>,
        module: &Bound<'py, PyAny>,
        forward: Option<&Bound<'py, PyAny>>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let overrides = Self::overrides(slf)?;
        let path = if overrides.path_of_module {
            slf.call_method1(intern!(py, "path_of_module"), (module,))?
        } else {
            match Self::module_name(slf, module)? {
                Some(path) => path,
                // Raises the error, with its explanation.
                None => slf.call_method1(intern!(py, "path_of_module"), (module,))?,
            }
        };
        let path = path.cast_into::<PyString>()?;
        let class = module.get_type();
        let mirror = slf.try_borrow()?.scopes.mirror().map(|m| m.clone_ref(py));
        let entered = mirror
            .as_ref()
            .map(|m| m.enter(&path, &class))
            .transpose()?;
        let graph = Self::plain_graph(slf)?;
        if let Some(graph) = &graph {
            slf.try_borrow_mut()?.scopes.enter(graph, &path, &class)?;
        }
        let result =
            Self::call_in_scope(slf, overrides, module, forward, path.as_any(), args, kwargs);
        let ended = match graph {
            Some(_) => slf.try_borrow_mut()?.scopes.leave(),
            None => None,
        };
        match (mirror, entered, ended) {
            (Some(mirror), Some(entered), _) => mirror.leave(&entered, result.is_ok())?,
            (_, _, Some(ended)) => leave_unnoted(slf, &ended)?,
            (_, _, None) => {}
        }
        result
    }

    fn call_in_scope<'py>(
        slf: &Bound<'py, Self>,
        overrides: Overrides,
        module: &Bound<'py, PyAny>,
        forward: Option<&Bound<'py, PyAny>>,
        path: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if Self::is_leaf(slf, overrides, module, path)? {
            let call = Call {
                op: Op::CallModule,
                target: path,
                arguments: Arguments::of(args),
                kwargs: Some(kwargs),
                name: None,
                ty: None,
                factory: None,
            };
            return record::record(slf.as_any(), &call);
        }
        match forward {
            Some(forward) => forward.call(args, Some(kwargs)),
            None => {
                Self::search_module(slf, module)?;
                Interception::call_module(module, args, kwargs)
            }
        }
    }

    /// Wraps the functions that this tracer wraps in the name space of a module's forward.
    pub(super) fn search_module(slf: &Bound<'_, Self>, module: &Bound<'_, PyAny>) -> PyResult<()> {
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

    /// Whether this tracer wraps a function wherever it meets it.
    pub(super) fn autowraps(&self, function: &Py<PyAny>) -> bool {
        self.autowrapped.contains(&(function.as_ptr() as usize))
    }

    /// What reading an attribute of a module gives, unless `getattr` is overridden.
    pub(super) fn read_attribute<'py>(
        slf: &Bound<'py, Self>,
        overrides: Overrides,
        name: &Bound<'py, PyString>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let cache = Self::parameter_proxies(slf)?;
        let ask = |value: &Bound<'py, PyAny>| {
            slf.call_method1(intern!(py, "getattr"), (name, value, &cache))
        };
        if overrides.getattr {
            return ask(&value);
        }
        let classes = TorchClasses::get(py)?;
        let qualified = if value.is_instance(classes.parameter.bind(py))? {
            Self::name_in_root(slf, Kind::Parameters, &value)?
        } else if overrides.buffers && value.is_instance(classes.tensor.bind(py))? {
            Self::name_in_root(slf, Kind::Buffers, &value)?
        } else {
            return Ok(value);
        };
        let Some(qualified) = qualified else {
            return Ok(value);
        };
        if let Some(known) = cache.get_item(&qualified)? {
            return Ok(known);
        }
        if overrides.parameter_shapes || overrides.create_proxy {
            return ask(&value);
        }
        let call = Call {
            op: Op::GetAttr,
            target: qualified.as_any(),
            arguments: Arguments::none(),
            kwargs: None,
            name: None,
            ty: None,
            factory: None,
        };
        let proxy = record::record(slf.as_any(), &call)?;
        cache.set_item(&qualified, &proxy)?;
        Ok(proxy)
    }

    fn parameter_proxies<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        if let Some(known) = &slf.try_borrow()?.parameter_proxies {
            return Ok(known.bind(py).clone());
        }
        let new = PyDict::new(py);
        slf.try_borrow_mut()?.parameter_proxies = Some(new.clone().unbind());
        Ok(new)
    }

    /// Forgets what belongs to one trace; the answer is to be dropped when nothing is borrowed.
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

/// The end of a trace, however it comes about.
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

    /// The module that is being called: its path and class.
    #[getter]
    fn scope(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        Ok(Self::mirror(slf)?.scope)
    }

    #[setter]
    fn set_scope(slf: &Bound<'_, Self>, scope: Py<PyAny>) -> PyResult<()> {
        Self::change_mirror(slf, |mirror| mirror.scope = scope)
    }

    /// The modules that are being called, outermost first.
    #[getter]
    fn module_stack(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        Ok(Self::mirror(slf)?.module_stack)
    }

    #[setter]
    fn set_module_stack(slf: &Bound<'_, Self>, stack: Py<PyAny>) -> PyResult<()> {
        Self::change_mirror(slf, |mirror| mirror.module_stack = stack)
    }

    /// How often each module was called, by path.
    #[getter]
    fn num_calls(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        Ok(Self::mirror(slf)?.num_calls)
    }

    #[setter]
    fn set_num_calls(slf: &Bound<'_, Self>, calls: Py<PyAny>) -> PyResult<()> {
        Self::change_mirror(slf, |mirror| mirror.num_calls = calls)
    }

    /// Path and class of the module that each node was made in, by the node's name.
    #[getter]
    fn node_name_to_scope(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        Ok(Self::mirror(slf)?.node_name_to_scope)
    }

    #[setter]
    fn set_node_name_to_scope(slf: &Bound<'_, Self>, scopes: Py<PyAny>) -> PyResult<()> {
        Self::change_mirror(slf, |mirror| mirror.node_name_to_scope = scopes)
    }

    /// The path of each module of the root, while tracing one.
    #[getter]
    fn submodule_paths(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let me = slf.try_borrow()?;
        if let Some(paths) = &me.submodule_paths {
            return Ok(paths.clone_ref(py));
        }
        let Some(modules) = &me.modules else {
            return Ok(py.None());
        };
        let entries: Vec<_> = modules
            .entries()
            .iter()
            .map(|(module, path)| (module.clone_ref(py), path.clone_ref(py)))
            .collect();
        drop(me);
        let paths = PyDict::new(py);
        for (module, path) in entries {
            paths.set_item(module, path)?;
        }
        Ok(paths.into_any().unbind())
    }

    #[setter]
    fn set_submodule_paths(slf: &Bound<'_, Self>, paths: Py<PyAny>) -> PyResult<()> {
        let given = (!paths.is_none(slf.py())).then_some(paths);
        let replaced = {
            let mut me = slf.try_borrow_mut()?;
            let modules = if given.is_none() {
                me.modules.take()
            } else {
                None
            };
            (std::mem::replace(&mut me.submodule_paths, given), modules)
        };
        drop(replaced);
        Ok(())
    }

    /// Prepares for a trace of `root`, by a function with this code. Answers the tensors that modules have as plain attributes.
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

    /// Calls `fn` and records what it does and what it returns.
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

    /// What `create_proxy` does, unless overridden.
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

    /// What `call_module` does, unless overridden.
    fn _call_module<'py>(
        slf: &Bound<'py, Self>,
        module: &Bound<'py, PyAny>,
        forward: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::call_module(slf, module, Some(forward), args, kwargs)
    }

    /// Notes where a node comes from.
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

    /// The qualified name of a module of the root.
    fn _module_name<'py>(
        slf: &Bound<'py, Self>,
        module: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Self::module_name(slf, module)
    }

    /// The qualified name of a parameter of the root.
    fn _parameter_name<'py>(
        slf: &Bound<'py, Self>,
        parameter: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyString>>> {
        Self::name_in_root(slf, Kind::Parameters, parameter)
    }

    /// The qualified name of a buffer of the root.
    fn _buffer_name<'py>(
        slf: &Bound<'py, Self>,
        buffer: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyString>>> {
        Self::name_in_root(slf, Kind::Buffers, buffer)
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

/// The tracer at work in this thread, if it is to see what happens.
pub(super) fn at_work(py: Python<'_>) -> Option<Bound<'_, PyTracer>> {
    active::current(py)
}
