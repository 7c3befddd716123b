//! Programs written in Rust: proxies record the operations on them.
//!
//! A pattern, a replacement or a decomposition rule reads best as the expression it is. [`trace`]
//! hands out proxies for the inputs; operators, methods and functions applied to them are recorded
//! into a [`Graph`].
//!
//! ```
//! use corsac_ir::proxy::trace;
//!
//! let graph = trace(|g| {
//!     let x = g.placeholder("x");
//!     x.clone().gt(0.0) * x
//! })?;
//! let calls: Vec<_> = graph.nodes().map(|id| graph.node(id).target_name()).collect();
//! assert_eq!(calls, ["x", "operator.gt", "operator.mul", "output"]);
//! # Ok::<(), corsac_ir::proxy::TraceError>(())
//! ```
//!
//! Operators take proxies by value and by reference, and anything that makes a [`Value`]: numbers,
//! booleans, strings, lists and tuples.
//!
//! ```
//! use corsac_ir::proxy::trace;
//! use corsac_ir::DType;
//!
//! let graph = trace(|g| {
//!     let (x, w) = (g.placeholder("x"), g.get_attr("weight"));
//!     let y = g.call_function_with("torch.sum", (&x,), [("dim", [0, -1])]);
//!     let z = 1.0 - x.method("to", (DType::Float32,)).matmul(w);
//!     (y.get(0), z)
//! })?;
//! assert_eq!(graph.len(), 8);
//! # Ok::<(), corsac_ir::proxy::TraceError>(())
//! ```
//!
//! Nothing panics while a program is recorded. All faults are returned at the end; nodes that
//! depend on a failed one are not recorded.
//!
//! ```
//! use corsac_ir::proxy::trace;
//!
//! let mut smuggled = None;
//! trace(|g| smuggled.insert(g.placeholder("x")).clone())?;
//! let x = smuggled.expect("set while tracing");
//! let error = trace(|g| g.placeholder("y") + x).unwrap_err();
//! assert_eq!(error.to_string(), "operator.add: proxy x belongs to another trace");
//! # Ok::<(), corsac_ir::proxy::TraceError>(())
//! ```

mod operators;
mod value;

#[cfg(test)]
mod tests;

pub use value::{Arguments, Value};

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use thin_vec::ThinVec;
use thiserror::Error;

use crate::arg::Arg;
use crate::entity::{NodeId, Symbol};
use crate::error::GraphError;
use crate::graph::{Graph, NodeSpec};
use crate::op::{Op, Target};

/// Records `program`, whose value becomes the graph's output.
///
/// # Errors
/// [`TraceError`] lists everything that could not be recorded.
pub fn trace<R: Into<Value>>(program: impl FnOnce(&Tracer) -> R) -> Result<Graph, TraceError> {
    let tracer = Tracer::new(Graph::new());
    let value = program(&tracer).into();
    tracer.record(Op::Output, "output", (value,), []);
    tracer.finish()
}

/// All faults of recording a program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct TraceError {
    /// In the order of recording; never empty.
    pub faults: Vec<TraceFault>,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

/// One fault of recording a program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TraceFault {
    /// The graph refused a node.
    #[error("{target}: {error}")]
    Refused {
        /// The target of the node.
        target: String,
        /// The reason.
        error: GraphError,
    },
    /// A proxy was used outside of the trace that it was made in.
    #[error("{target}: proxy {proxy} belongs to another trace")]
    Foreign {
        /// The target of the call that it was passed to.
        target: String,
        /// The name of its value.
        proxy: String,
    },
}

#[derive(Debug, Default)]
struct Recorder {
    graph: Graph,
    faults: Vec<TraceFault>,
}

/// Records nodes, and makes the proxies that stand for them.
#[derive(Debug)]
pub struct Tracer {
    recorder: Rc<RefCell<Recorder>>,
}

/// The value of a node under construction. Clones stand for the same value.
#[derive(Clone, Debug)]
pub struct Proxy {
    recorder: Rc<RefCell<Recorder>>,
    /// `None` if recording it failed.
    node: Option<NodeId>,
    name: Rc<str>,
}

impl Tracer {
    /// A tracer that continues `graph`.
    pub(crate) fn new(graph: Graph) -> Self {
        let recorder = Recorder {
            graph,
            ..Recorder::default()
        };
        Self {
            recorder: Rc::new(RefCell::new(recorder)),
        }
    }

    /// The graph, or else all faults.
    pub(crate) fn finish(self) -> Result<Graph, TraceError> {
        let Recorder { graph, faults, .. } = self.recorder.take();
        if faults.is_empty() {
            Ok(graph)
        } else {
            Err(TraceError { faults })
        }
    }

    /// An input.
    pub fn placeholder(&self, name: &str) -> Proxy {
        self.record(Op::Placeholder, name, (), [])
    }

    /// An input with a default value.
    pub fn placeholder_with_default(&self, name: &str, default: impl Into<Value>) -> Proxy {
        self.record(Op::Placeholder, name, (default.into(),), [])
    }

    /// An attribute, by qualified name.
    pub fn get_attr(&self, name: &str) -> Proxy {
        self.record(Op::GetAttr, name, (), [])
    }

    /// A call of the function with this qualified name.
    pub fn call_function(&self, name: &str, args: impl Arguments) -> Proxy {
        self.record(Op::CallFunction, name, args, [])
    }

    /// A call of a function, with keyword arguments.
    pub fn call_function_with<'k, V: Into<Value>>(
        &self,
        name: &str,
        args: impl Arguments,
        kwargs: impl IntoIterator<Item = (&'k str, V)>,
    ) -> Proxy {
        self.record(
            Op::CallFunction,
            name,
            args,
            kwargs.into_iter().map(|(k, v)| (k, v.into())),
        )
    }

    /// A call of the submodule with this qualified name.
    pub fn call_module(&self, name: &str, args: impl Arguments) -> Proxy {
        self.record(Op::CallModule, name, args, [])
    }

    fn record<'k>(
        &self,
        op: Op,
        target: &str,
        args: impl Arguments,
        kwargs: impl IntoIterator<Item = (&'k str, Value)>,
    ) -> Proxy {
        record(&self.recorder, op, target, args.into_values(), kwargs)
    }
}

impl Proxy {
    /// A call of the method called `name`.
    pub fn method(&self, name: &str, args: impl Arguments) -> Proxy {
        self.method_with::<Value>(name, args, [])
    }

    /// A call of a method, with keyword arguments.
    pub fn method_with<'k, V: Into<Value>>(
        &self,
        name: &str,
        args: impl Arguments,
        kwargs: impl IntoIterator<Item = (&'k str, V)>,
    ) -> Proxy {
        let mut values = vec![Value::from(self)];
        values.extend(args.into_values());
        let kwargs = kwargs.into_iter().map(|(key, value)| (key, value.into()));
        record(&self.recorder, Op::CallMethod, name, values, kwargs)
    }

    /// `getattr(self, name)`.
    pub fn attr(&self, name: &str) -> Proxy {
        self.function("builtins.getattr", name)
    }

    /// `self[index]`.
    pub fn get(&self, index: impl Into<Value>) -> Proxy {
        self.function("operator.getitem", index)
    }

    /// The name of the value.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A call of the binary function `name` with this and another value.
    fn function(&self, name: &str, other: impl Into<Value>) -> Proxy {
        let args = vec![Value::from(self), other.into()];
        record(&self.recorder, Op::CallFunction, name, args, [])
    }
}

fn record<'k>(
    recorder: &Rc<RefCell<Recorder>>,
    op: Op,
    target: &str,
    args: Vec<Value>,
    kwargs: impl IntoIterator<Item = (&'k str, Value)>,
) -> Proxy {
    // Evaluated before the recorder is borrowed: they may record themselves.
    let kwargs: Vec<_> = kwargs.into_iter().collect();
    let mut inner = recorder.borrow_mut();
    let node = match inner.try_record(recorder, op, target, args, kwargs) {
        Ok(node) => Some(node),
        Err(Some(fault)) => {
            inner.faults.push(fault);
            None
        }
        Err(None) => None,
    };
    let name = node
        .map_or(target, |node| inner.graph.node(node).name())
        .into();
    Proxy {
        recorder: recorder.clone(),
        node,
        name,
    }
}

impl Recorder {
    /// Creates a node. Returns `Err(None)` if something it uses has failed before.
    fn try_record(
        &mut self,
        recorder: &Rc<RefCell<Recorder>>,
        op: Op,
        target: &str,
        args: Vec<Value>,
        kwargs: Vec<(&str, Value)>,
    ) -> Result<NodeId, Option<TraceFault>> {
        let mut positional = ThinVec::with_capacity(args.len());
        for value in args {
            positional.push(self.argument(recorder, target, value)?);
        }
        let mut pairs: ThinVec<(Symbol, Arg)> = ThinVec::with_capacity(kwargs.len());
        for (key, value) in kwargs {
            let value = self.argument(recorder, target, value)?;
            pairs.push((self.graph.intern(key), value));
        }
        let graph = &mut self.graph;
        let spec = NodeSpec {
            op,
            target: match op {
                Op::CallFunction => Target::Function(graph.function(target)),
                Op::Placeholder | Op::GetAttr | Op::CallMethod | Op::CallModule | Op::Output => {
                    Target::Name(graph.intern(target))
                }
            },
            args: positional,
            kwargs: pairs,
            ty: None,
        };
        graph
            .create(spec, None)
            .map_err(|error| Some(refused(target, error)))
    }

    /// A value as an argument in a call of `target`.
    fn argument(
        &mut self,
        recorder: &Rc<RefCell<Recorder>>,
        target: &str,
        value: Value,
    ) -> Result<Arg, Option<TraceFault>> {
        let node = |proxy: &Proxy| {
            if !Rc::ptr_eq(&proxy.recorder, recorder) {
                let proxy = proxy.name.as_ref().to_owned();
                return Err(Some(TraceFault::Foreign {
                    target: target.to_owned(),
                    proxy,
                }));
            }
            proxy.node.ok_or(None)
        };
        value
            .into_arg(&mut self.graph, &node)
            .map_err(|unusable| match unusable {
                value::Unusable::Proxy(fault) => fault,
                value::Unusable::Refused(error) => Some(refused(target, error)),
            })
    }
}

fn refused(target: &str, error: GraphError) -> TraceFault {
    TraceFault::Refused {
        target: target.to_owned(),
        error,
    }
}
