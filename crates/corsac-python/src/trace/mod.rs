//! Tracing: proxies, the tracers that record operations on them, and the interception of modules.
//!
//! A [`proxy::PyProxy`] stands for the value of a node. Operations on it go to its tracer
//! ([`tracer::PyTracer`]) as a [`record::Call`]. A tracer's class may override any part of the
//! recording; [`overrides`] finds these parts once, and everything else happens natively: arguments
//! are converted straight into the graph ([`lower`]), without Python handles of nodes.
//!
//! While a trace is active, calls and attributes of modules and the functions registered with
//! `wrap` are intercepted ([`intercept`]) and passed to the tracer at work in the calling thread
//! ([`active`]), if there is one.

mod active;
mod attribute;
mod bytecode;
mod intercept;
mod lower;
mod modules;
mod operators;
mod overrides;
mod predecessor;
mod proxy;
mod record;
mod scopes;
mod torch_function;
mod tracer;
mod wrapped;

use pyo3::prelude::*;

/// Adds the module's classes and functions to `m`.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<proxy::PyProxy>()?;
    m.add_class::<attribute::PyAttribute>()?;
    m.add_class::<tracer::PyTracer>()?;
    m.add_class::<wrapped::PyWrappedFunction>()?;
    m.add_function(wrap_pyfunction!(proxy::register_proxy_support, m)?)?;
    m.add_function(wrap_pyfunction!(overrides::register_tracer_classes, m)?)?;
    m.add_function(wrap_pyfunction!(intercept::register_interception, m)?)?;
    m.add_function(wrap_pyfunction!(intercept::intercept_call, m)?)?;
    m.add_function(wrap_pyfunction!(intercept::intercept_getattr, m)?)?;
    m.add_function(wrap_pyfunction!(intercept::active_traces, m)?)?;
    Ok(())
}
