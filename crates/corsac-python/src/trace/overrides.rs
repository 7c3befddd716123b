//! Parts of the recording that a tracer's class overrides.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyType};

/// Overridden methods and settings of a tracer, as found at the start of a trace or at the first
/// use.
#[derive(Clone, Copy)]
pub(super) struct Overrides {
    pub(super) create_proxy: bool,
    pub(super) create_node: bool,
    pub(super) create_arg: bool,
    pub(super) proxy: bool,
    pub(super) call_module: bool,
    pub(super) is_leaf_module: bool,
    pub(super) path_of_module: bool,
    pub(super) getattr: bool,
    /// Whether parameters become proxies with known shapes.
    pub(super) parameter_shapes: bool,
    /// Whether buffers become proxies.
    pub(super) buffers: bool,
    /// Whether each node needs more than the native recording does: a check of the operator's
    /// schema, or a stack trace.
    pub(super) checks_nodes: bool,
}

/// The methods as this package defines them, by name.
struct Originals {
    base: Py<PyType>,
    tracer: Py<PyType>,
    methods: Vec<(Py<PyString>, Vec<Py<PyAny>>)>,
}

static ORIGINALS: PyOnceLock<Originals> = PyOnceLock::new();

/// The names, in the order of the first fields of [`Overrides`].
const NAMES: [&str; 8] = [
    "create_proxy",
    "create_node",
    "create_arg",
    "proxy",
    "call_module",
    "is_leaf_module",
    "path_of_module",
    "getattr",
];

/// Registers the classes that define the methods that may be overridden.
#[pyfunction]
pub(super) fn register_tracer_classes(
    py: Python<'_>,
    base: &Bound<'_, PyType>,
    tracer: &Bound<'_, PyType>,
) -> PyResult<()> {
    let mut methods = Vec::with_capacity(NAMES.len());
    for name in NAMES {
        let name = PyString::intern(py, name);
        let mut known = Vec::new();
        for class in [base, tracer] {
            if let Some(method) = class.getattr_opt(&name)? {
                known.push(method.unbind());
            }
        }
        methods.push((name.unbind(), known));
    }
    let originals = Originals {
        base: base.clone().unbind(),
        tracer: tracer.clone().unbind(),
        methods,
    };
    let _ = ORIGINALS.set(py, originals);
    Ok(())
}

impl Overrides {
    /// Inspects a tracer.
    pub(super) fn of(tracer: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = tracer.py();
        let Some(originals) = ORIGINALS.get(py) else {
            return Ok(Self::everything());
        };
        let class = tracer.get_type();
        let plain = class.is(&originals.tracer) || class.is(&originals.base);
        let attributes = tracer.getattr(intern!(py, "__dict__"))?;
        let attributes = attributes.cast::<PyDict>()?;
        let mut found = [false; NAMES.len()];
        for (found, (name, known)) in found.iter_mut().zip(&originals.methods) {
            let own = plain || {
                let method = class.getattr_opt(name)?;
                method.is_none_or(|method| known.iter().any(|k| method.is(k)))
            };
            *found = !own || attributes.contains(name)?;
        }
        let [
            create_proxy,
            create_node,
            create_arg,
            proxy,
            call_module,
            is_leaf_module,
            path_of_module,
            getattr,
        ] = found;
        let flag = |name: &Bound<'_, PyString>| -> PyResult<bool> {
            tracer
                .getattr_opt(name)?
                .map_or(Ok(false), |value| value.is_truthy())
        };
        Ok(Self {
            create_proxy,
            create_node,
            create_arg,
            proxy,
            call_module,
            is_leaf_module,
            path_of_module,
            getattr,
            parameter_shapes: flag(intern!(py, "param_shapes_constant"))?,
            buffers: flag(intern!(py, "proxy_buffer_attributes"))?,
            checks_nodes: flag(intern!(py, "check_mutable_operations"))?
                || flag(intern!(py, "record_stack_traces"))?,
        })
    }

    /// Overrides of a tracer that is used before the classes are complete.
    fn everything() -> Self {
        Self {
            create_proxy: true,
            create_node: true,
            create_arg: true,
            proxy: true,
            call_module: true,
            is_leaf_module: true,
            path_of_module: true,
            getattr: true,
            parameter_shapes: false,
            buffers: false,
            checks_nodes: true,
        }
    }
}
