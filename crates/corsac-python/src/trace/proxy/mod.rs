//! `Proxy`: values that record the operations on them.

mod operators;

use corsac_ir::{NodeId, Op};
use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::graph::PyGraph;
use crate::graph::node::PyNode;
use crate::trace::attribute::PyAttribute;
use crate::trace::bytecode;
use crate::trace::modules::entries;
use crate::trace::operators::Operator;
use crate::trace::record::{Arguments, Call, record};
use crate::trace::torch_function::torch_function;

/// Objects that the Python half of the package supplies.
struct Support {
    /// Values of `__class__` of a proxy and of an attribute.
    torch_proxy: Py<PyType>,
    torch_attribute: Py<PyType>,
    appending_tracer: Py<PyType>,
    assert_function: Py<PyAny>,
    explain_length: Py<PyAny>,
    explain_conversion: Py<PyAny>,
}

static SUPPORT: PyOnceLock<Support> = PyOnceLock::new();

impl Support {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        SUPPORT
            .get(py)
            .ok_or_else(|| PyRuntimeError::new_err("corsac.fx.proxy has not been imported"))
    }
}

/// Registers the objects that proxies need of the Python half of the package.
#[pyfunction]
pub(in crate::trace) fn register_proxy_support(
    py: Python<'_>,
    torch_proxy: Py<PyType>,
    torch_attribute: Py<PyType>,
    appending_tracer: Py<PyType>,
    assert_function: Py<PyAny>,
    explain_length: Py<PyAny>,
    explain_conversion: Py<PyAny>,
) {
    let support = Support {
        torch_proxy,
        torch_attribute,
        appending_tracer,
        assert_function,
        explain_length,
        explain_conversion,
    };
    let _ = SUPPORT.set(py, support);
}

/// Value of a proxy.
enum Value {
    /// Nothing yet: `__init__` has not run.
    Unset,
    Node(Py<PyGraph>, NodeId),
    /// An attribute of another proxy, which becomes a node on demand: mostly it is a method, and
    /// called at once.
    Attribute(Py<PyAny>, Py<PyString>),
}

/// A value that flows through a program while it is recorded.
///
/// Operators, methods and functions of PyTorch applied to it become nodes of a graph, and return
/// proxies for those. ``Proxy(node)`` makes one that appends to the graph of ``node``, so that a
/// transform can be written as an expression.
///
/// A proxy cannot be iterated over, and control flow cannot depend on it: its value is unknown.
/// Either fix the value (``concrete_args``), or put the code in question into a function and keep
/// that as one call with ``wrap``.
#[pyclass(name = "Proxy", module = "corsac.fx.proxy", subclass, weakref)]
pub(crate) struct PyProxy {
    tracer: Option<Py<PyAny>>,
    value: Value,
    /// Attributes set on an instance of this very class; a subclass has its own.
    attributes: Option<Py<PyDict>>,
}

impl PyProxy {
    /// The error for a conversion of the value to a number or an array; `kind` names the
    /// conversion.
    fn no_conversion(slf: &Bound<'_, Self>, kind: &str) -> PyErr {
        let py = slf.py();
        let explained = Support::get(py)
            .and_then(|support| support.explain_conversion.bind(py).call1((slf, kind)));
        match explained {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    }

    /// A proxy for a node.
    pub(in crate::trace) fn of_node(
        tracer: &Bound<'_, PyAny>,
        graph: &Bound<'_, PyGraph>,
        id: NodeId,
    ) -> Self {
        Self {
            tracer: Some(tracer.clone().unbind()),
            value: Value::Node(graph.clone().unbind(), id),
            attributes: None,
        }
    }

    /// Its node, made on demand.
    pub(in crate::trace) fn node_id<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyGraph>, NodeId)> {
        let py = slf.py();
        let (root, name) = match &slf.try_borrow()?.value {
            Value::Node(graph, id) => return Ok((graph.bind(py).clone(), *id)),
            Value::Attribute(root, name) => (root.bind(py).clone(), name.bind(py).clone()),
            Value::Unset => {
                let message = "Proxy.__init__ has not been called";
                return Err(PyAttributeError::new_err(message));
            }
        };
        static GETATTR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let getattr = GETATTR.get_or_try_init(py, || {
            let builtins = py.import("builtins")?;
            Ok::<_, PyErr>(builtins.getattr("getattr")?.unbind())
        })?;
        let values = [root, name.into_any()];
        let made = record(
            &Self::tracer_of(slf)?,
            &Call::function(getattr.bind(py), &values),
        )?;
        let node = made.getattr(intern!(py, "node"))?;
        let node = node.cast::<PyNode>()?.get();
        let (graph, id) = (node.graph(py).clone(), node.id());
        let replaced = std::mem::replace(
            &mut slf.try_borrow_mut()?.value,
            Value::Node(graph.clone().unbind(), id),
        );
        drop(replaced);
        Ok((graph, id))
    }

    /// A proxy without a value until `__init__` has run.
    pub(in crate::trace) fn unset() -> Self {
        Self {
            tracer: None,
            value: Value::Unset,
            attributes: None,
        }
    }

    /// Makes it a proxy for the attribute `name` of `root`.
    pub(in crate::trace) fn become_attribute(
        slf: &Bound<'_, Self>,
        tracer: Bound<'_, PyAny>,
        root: &Bound<'_, PyAny>,
        name: &Bound<'_, PyString>,
    ) -> PyResult<()> {
        let value = Value::Attribute(root.clone().unbind(), name.clone().unbind());
        let mut me = slf.try_borrow_mut()?;
        let replaced = (
            me.tracer.replace(tracer.unbind()),
            std::mem::replace(&mut me.value, value),
        );
        drop(me);
        // This may run any code.
        drop(replaced);
        Ok(())
    }

    /// Its tracer. A subclass may define that as an attribute of its own.
    pub(in crate::trace) fn tracer_of<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(tracer) = &slf.try_borrow()?.tracer {
            return Ok(tracer.bind(slf.py()).clone());
        }
        slf.getattr(intern!(slf.py(), "tracer"))
    }

    fn apply<'py>(
        slf: &Bound<'py, Self>,
        operator: Operator,
        values: &[Bound<'py, PyAny>],
    ) -> PyResult<Bound<'py, PyAny>> {
        let function = operator.function(slf.py())?;
        record(&Self::tracer_of(slf)?, &Call::function(function, values))
    }

    fn unary<'py>(slf: &Bound<'py, Self>, operator: Operator) -> PyResult<Bound<'py, PyAny>> {
        Self::apply(slf, operator, &[slf.as_any().clone()])
    }

    fn binary<'py>(
        slf: &Bound<'py, Self>,
        operator: Operator,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::apply(slf, operator, &[slf.as_any().clone(), other.clone()])
    }

    fn reflected<'py>(
        slf: &Bound<'py, Self>,
        operator: Operator,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::apply(slf, operator, &[other.clone(), slf.as_any().clone()])
    }

    /// The attribute `name`, not recorded yet.
    fn attribute<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let base = Self {
            tracer: Some(Self::tracer_of(slf)?.unbind()),
            value: Value::Attribute(slf.as_any().clone().unbind(), name.clone().unbind()),
            attributes: None,
        };
        let attribute = PyClassInitializer::from(base).add_subclass(PyAttribute::of(slf, name));
        Ok(Bound::new(slf.py(), attribute)?.into_any())
    }

    /// Whether the class is one of the package's own, without a dictionary in its instances.
    fn is_exact(slf: &Bound<'_, Self>) -> bool {
        slf.is_exact_instance_of::<Self>() || slf.is_exact_instance_of::<PyAttribute>()
    }
}

#[pymethods]
impl PyProxy {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self::unset()
    }

    /// A proxy for `node`; without a tracer, one that appends to the node's graph.
    #[pyo3(signature = (node, tracer = None))]
    fn __init__(
        slf: &Bound<'_, Self>,
        node: &Bound<'_, PyAny>,
        tracer: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        let tracer = match tracer.filter(|tracer| !tracer.is_none()) {
            Some(tracer) => tracer.clone(),
            None => {
                let class = Support::get(py)?.appending_tracer.bind(py);
                class.call1((node.getattr(intern!(py, "graph"))?,))?
            }
        };
        slf.setattr(intern!(py, "tracer"), tracer)?;
        slf.setattr(intern!(py, "node"), node)
    }

    /// The tracer that records operations on this proxy.
    #[getter]
    fn tracer(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        match &slf.try_borrow()?.tracer {
            Some(tracer) => Ok(tracer.clone_ref(slf.py())),
            None => Err(PyAttributeError::new_err(
                "Proxy.__init__ has not been called",
            )),
        }
    }

    #[setter]
    fn set_tracer(slf: &Bound<'_, Self>, tracer: Py<PyAny>) -> PyResult<()> {
        let replaced = slf.try_borrow_mut()?.tracer.replace(tracer);
        drop(replaced);
        Ok(())
    }

    /// The node whose value the proxy stands for.
    #[getter]
    fn node<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyNode>> {
        let (graph, id) = Self::node_id(slf)?;
        let borrowed = graph.try_borrow()?;
        Ok(PyNode::handle(&graph, borrowed.host(), id)?.into_bound(slf.py()))
    }

    #[setter]
    fn set_node(slf: &Bound<'_, Self>, node: &Bound<'_, PyAny>) -> PyResult<()> {
        let node = node.cast::<PyNode>().map_err(|_| {
            PyTypeError::new_err(format!(
                "a Proxy stands for a corsac.fx.Node, got {}",
                node.get_type()
            ))
        })?;
        let graph = node.get().graph(slf.py()).clone().unbind();
        let value = Value::Node(graph, node.get().id());
        let replaced = std::mem::replace(&mut slf.try_borrow_mut()?.value, value);
        drop(replaced);
        Ok(())
    }

    /// A class that also passes for the namesake in torch.fx, so that libraries which check for an
    /// instance of that find one; the true class for a subclass.
    #[getter(__class__)]
    fn class<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyType>> {
        let py = slf.py();
        if slf.is_exact_instance_of::<Self>() {
            return Ok(Support::get(py)?.torch_proxy.bind(py).clone());
        }
        if slf.is_exact_instance_of::<PyAttribute>() {
            return Ok(Support::get(py)?.torch_attribute.bind(py).clone());
        }
        Ok(slf.get_type())
    }

    /// Attributes set by users.
    #[getter(__dict__)]
    fn dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        if let Some(known) = &slf.try_borrow()?.attributes {
            return Ok(known.bind(py).clone());
        }
        let new = PyDict::new(py);
        slf.try_borrow_mut()?.attributes = Some(new.clone().unbind());
        Ok(new)
    }

    fn __getattr__<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        {
            let me = slf.try_borrow()?;
            if let Some(attributes) = &me.attributes
                && let Some(value) = attributes.bind(slf.py()).get_item(name)?
            {
                return Ok(value);
            }
            if matches!(me.value, Value::Unset) {
                // Otherwise a proxy that is not initialised would look for its tracer for ever.
                return Err(PyAttributeError::new_err(format!(
                    "Proxy.__init__ has not been called: no attribute '{}'",
                    name.to_string_lossy()
                )));
            }
        }
        // NumPy asks every proxy for it, and takes any result for a C structure.
        if name == "__array_struct__" {
            return Err(Self::no_conversion(slf, "numpy"));
        }
        Self::attribute(slf, name)
    }

    fn __index__(slf: &Bound<'_, Self>) -> PyResult<i64> {
        Err(Self::no_conversion(slf, "index"))
    }

    fn __int__(slf: &Bound<'_, Self>) -> PyResult<i64> {
        Err(Self::no_conversion(slf, "int"))
    }

    fn __float__(slf: &Bound<'_, Self>) -> PyResult<f64> {
        Err(Self::no_conversion(slf, "float"))
    }

    fn __complex__(slf: &Bound<'_, Self>) -> PyResult<f64> {
        Err(Self::no_conversion(slf, "complex"))
    }

    #[pyo3(signature = (ndigits = None))]
    fn __round__(slf: &Bound<'_, Self>, ndigits: Option<&Bound<'_, PyAny>>) -> PyResult<f64> {
        let _ = ndigits;
        Err(Self::no_conversion(slf, "round"))
    }

    fn __format__<'py>(slf: &Bound<'py, Self>, spec: &str) -> PyResult<Bound<'py, PyString>> {
        match spec.is_empty() {
            true => slf.str(),
            false => Err(Self::no_conversion(slf, "format")),
        }
    }

    fn __divmod__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<f64> {
        let kind = other.get_type().name()?;
        Err(Self::no_conversion(
            slf,
            &format!("divmod(): 'Proxy' and '{kind}'"),
        ))
    }

    fn __rdivmod__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<f64> {
        let kind = other.get_type().name()?;
        Err(Self::no_conversion(
            slf,
            &format!("divmod(): '{kind}' and 'Proxy'"),
        ))
    }

    fn __setattr__(
        slf: &Bound<'_, Self>,
        name: &Bound<'_, PyString>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = slf.py();
        // A property of the class goes first, as for any Python object.
        if let Some(property) = slf.get_type().getattr_opt(name)?
            && let Some(set) = property.get_type().getattr_opt(intern!(py, "__set__"))?
        {
            set.call1((property, slf, value))?;
            return Ok(());
        }
        if Self::is_exact(slf) {
            return Self::dict(slf)?.set_item(name, value);
        }
        let own = slf.getattr(intern!(py, "__dict__"))?;
        own.cast::<PyDict>()?.set_item(name, value)
    }

    fn __delattr__(slf: &Bound<'_, Self>, name: &Bound<'_, PyString>) -> PyResult<()> {
        let py = slf.py();
        let attributes = slf.getattr(intern!(py, "__dict__"))?;
        attributes.cast::<PyDict>()?.del_item(name).map_err(|_| {
            PyAttributeError::new_err(format!(
                "the proxy has no attribute '{}' that can be deleted",
                name.to_string_lossy()
            ))
        })
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let name = Self::node(slf)?.getattr(intern!(slf.py(), "name"))?;
        Ok(format!("Proxy({name})"))
    }

    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        // By identity, as objects of Python do it: comparing is recorded.
        (slf.as_ptr() as isize) >> 4
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let receiver = [slf.as_any().clone()];
        call_method(
            &Self::tracer_of(slf)?,
            intern!(slf.py(), "__call__"),
            &receiver,
            args,
            kwargs,
        )
    }

    /// Recorded as a call of the method; a tracer that knows the keys may return them.
    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::tracer_of(slf)?.call_method1(intern!(slf.py(), "keys"), (slf,))
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let Some(count) = bytecode::unpacked_into(py)? else {
            return Self::tracer_of(slf)?.call_method1(intern!(py, "iter"), (slf,));
        };
        let items = (0..count).map(|index| slf.as_any().get_item(index));
        let items = PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?;
        Ok(items.try_iter()?.into_any())
    }

    fn __bool__(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let py = slf.py();
        let tracer = Self::tracer_of(slf)?;
        let asserts = tracer.getattr_opt(intern!(py, "trace_asserts"))?;
        if asserts.is_some_and(|asserts| asserts.is_truthy().unwrap_or(false))
            && bytecode::is_asserted(py)?
        {
            let function = Support::get(py)?.assert_function.bind(py);
            record(&tracer, &Call::function(function, &[slf.as_any().clone()]))?;
            return Ok(true);
        }
        tracer
            .call_method1(intern!(py, "to_bool"), (slf,))?
            .is_truthy()
    }

    /// As `len`, which Python calls here.
    fn __reversed__(slf: &Bound<'_, Self>) -> PyResult<usize> {
        Self::__len__(slf)
    }

    fn __len__(slf: &Bound<'_, Self>) -> PyResult<usize> {
        let py = slf.py();
        let explain = Support::get(py)?.explain_length.bind(py);
        Err(PyRuntimeError::new_err(
            explain.call1((slf,))?.extract::<String>()?,
        ))
    }

    #[classmethod]
    #[pyo3(signature = (orig_method, types, args = None, kwargs = None))]
    fn __torch_function__<'py>(
        cls: &Bound<'py, PyType>,
        orig_method: &Bound<'py, PyAny>,
        types: &Bound<'py, PyAny>,
        args: Option<&Bound<'py, PyTuple>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = types;
        let empty;
        let args = match args {
            Some(args) => args,
            None => {
                empty = PyTuple::empty(cls.py());
                &empty
            }
        };
        torch_function(orig_method, args, kwargs)
    }

    fn __getstate__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        let state = slf
            .getattr(intern!(py, "__dict__"))?
            .cast::<PyDict>()?
            .copy()?;
        state.set_item(intern!(py, "tracer"), Self::tracer_of(slf)?)?;
        state.set_item(intern!(py, "node"), Self::node(slf)?)?;
        Ok(state)
    }

    fn __setstate__(slf: &Bound<'_, Self>, state: &Bound<'_, PyDict>) -> PyResult<()> {
        for (name, value) in entries(state) {
            slf.setattr(name.cast::<PyString>()?, value)?;
        }
        Ok(())
    }

    /// A proxy for the same node of a copy of the graph, with a copy of the tracer. Attributes
    /// that cannot be copied are shared.
    fn __deepcopy__<'py>(
        slf: &Bound<'py, Self>,
        memo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let module = py.import(intern!(py, "copy"))?;
        let deepcopy = module.getattr(intern!(py, "deepcopy"))?;
        let (graph, id) = Self::node_id(slf)?;
        let name = graph.try_borrow()?.ir().node(id).name().to_owned();
        let graph = deepcopy.call1((graph, memo))?.cast_into::<PyGraph>()?;
        let node = {
            let borrowed = graph.try_borrow()?;
            let ir = borrowed.ir();
            // A node after the output has no copy.
            let Some(id) = ir.nodes().find(|&id| ir.node(id).name() == name) else {
                return Err(PyRuntimeError::new_err(format!(
                    "node {name} is not in the copy of its graph"
                )));
            };
            PyNode::handle(&graph, borrowed.host(), id)?
        };
        let tracer = deepcopy.call1((Self::tracer_of(slf)?, memo))?;
        let proxy = py.get_type::<Self>().call1((node, tracer))?;
        let own = slf.getattr(intern!(py, "__dict__"))?;
        for (name, value) in entries(own.cast::<PyDict>()?) {
            let copy = deepcopy.call1((&value, memo)).unwrap_or(value);
            proxy.setattr(name.cast::<PyString>()?, copy)?;
        }
        Ok(proxy)
    }

    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::binary(slf, Operator::GetItem, index)
    }

    /// Recorded as a call of `operator.setitem`, which torch.fx refuses.
    fn __setitem__(
        slf: &Bound<'_, Self>,
        index: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let values = [slf.as_any().clone(), index.clone(), value.clone()];
        Self::apply(slf, Operator::SetItem, &values)?;
        Ok(())
    }

    fn __delitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<()> {
        let _ = index;
        Err(PyTypeError::new_err(
            "'Proxy' object doesn't support item deletion",
        ))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.tracer)?;
        visit.call(&self.attributes)?;
        match &self.value {
            Value::Node(graph, _) => visit.call(graph),
            Value::Attribute(root, _) => visit.call(root),
            Value::Unset => Ok(()),
        }
    }

    fn __clear__(&mut self) {
        self.tracer = None;
        self.attributes = None;
        self.value = Value::Unset;
    }
}

/// Records a call of the method `name` on `receiver`.
pub(in crate::trace) fn call_method<'py>(
    tracer: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
    receiver: &[Bound<'py, PyAny>],
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let call = Call {
        op: Op::CallMethod,
        target: name.as_any(),
        arguments: Arguments::with(receiver, args),
        kwargs,
        name: None,
        ty: None,
        factory: None,
    };
    record(tracer, &call)
}
