//! Decomposes operators by rules: the graph is recorded again, and each call that has a rule is
//! replaced by the nodes that the rule records.

use rustc_hash::FxHashMap;

use crate::arg::Arg;
use crate::entity::{EntityId, NodeId, SecondaryMap};
use crate::error::GraphError;
use crate::graph::{Graph, Origin, Translation};
use crate::op::Op;
use crate::proxy::{Proxy, TraceError, TraceFault, Tracer, Value};

/// The call that a rule decomposes.
#[derive(Debug)]
pub struct Call<'t> {
    /// Positional arguments.
    pub args: Vec<Value>,
    /// Keyword arguments, in order.
    pub kwargs: Vec<(String, Value)>,
    target: &'t str,
    tracer: &'t Tracer,
}

impl Call<'_> {
    /// The target: the qualified name of a function, the name of a method, the path of a module.
    #[must_use]
    pub fn target(&self) -> &str {
        self.target
    }

    /// The positional argument at `index`, which must be the value of a node: if it is not, that is
    /// reported when the trace ends.
    #[must_use]
    pub fn proxy(&self, index: usize) -> Proxy {
        match self.args.get(index) {
            Some(Value::Proxy(proxy)) => proxy.clone(),
            _ => self.tracer.fail(TraceFault::NoNode {
                target: self.target.to_owned(),
                index,
            }),
        }
    }
}

type Rule<'r> = Box<dyn Fn(&Tracer, &Call<'_>) -> Option<Value> + 'r>;

/// Rules for decomposing calls, by opcode and target.
#[derive(Default)]
pub struct Rules<'r> {
    rules: FxHashMap<(Op, String), Rule<'r>>,
}

impl<'r> Rules<'r> {
    /// No rules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule for calls of the function with this qualified name. The last rule given
    /// counts.
    #[must_use]
    pub fn function<R: Into<Value>>(
        self,
        name: &str,
        rule: impl Fn(&Tracer, &Call<'_>) -> R + 'r,
    ) -> Self {
        self.rule(Op::CallFunction, name, rule)
    }

    /// Adds a rule for calls of the method called `name`; the object is the first argument.
    #[must_use]
    pub fn method<R: Into<Value>>(
        self,
        name: &str,
        rule: impl Fn(&Tracer, &Call<'_>) -> R + 'r,
    ) -> Self {
        self.rule(Op::CallMethod, name, rule)
    }

    /// Adds a rule for calls of the submodule with this qualified name.
    #[must_use]
    pub fn module<R: Into<Value>>(
        self,
        name: &str,
        rule: impl Fn(&Tracer, &Call<'_>) -> R + 'r,
    ) -> Self {
        self.rule(Op::CallModule, name, rule)
    }

    fn rule<R: Into<Value>>(
        self,
        op: Op,
        name: &str,
        rule: impl Fn(&Tracer, &Call<'_>) -> R + 'r,
    ) -> Self {
        self.declining(op, name, move |tracer, call| {
            Some(rule(tracer, call).into())
        })
    }

    /// Adds a rule for calls of `name` with this opcode; where it returns `None`, the call stays as
    /// it is.
    #[must_use]
    pub fn declining(
        mut self,
        op: Op,
        name: &str,
        rule: impl Fn(&Tracer, &Call<'_>) -> Option<Value> + 'r,
    ) -> Self {
        self.rules.insert((op, name.to_owned()), Box::new(rule));
        self
    }

    /// Whether there is a rule for calls of `name` with this opcode.
    #[must_use]
    pub fn has(&self, op: Op, name: &str) -> bool {
        self.rules.contains_key(&(op, name.to_owned()))
    }
}

/// The outcome for a call that has a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Retraced {
    /// The nodes that the rule recorded took its place; the value, in the new graph.
    Replaced(Arg),
    /// The rule declined.
    Declined,
    /// The rule was not to be applied.
    Kept,
}

/// A graph recorded again.
#[derive(Debug)]
pub struct Retrace {
    /// The graph.
    pub graph: Graph,
    /// The calls of the original that have a rule, with their outcomes, in order.
    pub calls: Vec<(NodeId, Retraced)>,
    /// Every new node, with the node of the original that it was recorded for.
    pub origins: Vec<(NodeId, NodeId)>,
}

/// Records `graph` again with `rules` applied; nodes without a rule are copied. Nodes that a rule
/// records have the origin of the call. Rules are not applied to nodes that rules record.
///
/// ```
/// use corsac_ir::proxy::trace;
/// use corsac_ir::rewrite::{Rules, retrace};
///
/// let graph = trace(|g| {
///     let x = g.placeholder("x");
///     g.call_function("torch.relu", [x])
/// })?;
/// let rules = Rules::new().function("torch.relu", |_, call| {
///     let x = call.proxy(0);
///     x.clone().gt(0) * x
/// });
/// let graph = retrace(&graph, &rules)?;
/// let targets: Vec<_> = graph.nodes().map(|id| graph.node(id).target_name()).collect();
/// assert_eq!(targets, ["x", "operator.gt", "operator.mul", "output"]);
/// # Ok::<(), corsac_ir::proxy::TraceError>(())
/// ```
///
/// # Errors
/// [`TraceError`] lists everything that the rules could not record.
pub fn retrace(graph: &Graph, rules: &Rules<'_>) -> Result<Graph, TraceError> {
    Ok(retrace_where(graph, rules, |_| true)?.graph)
}

/// Like [`retrace`], with rules applied only to the calls for which `wanted` holds.
///
/// # Errors
/// [`TraceError`] lists everything that the rules could not record.
pub fn retrace_where(
    graph: &Graph,
    rules: &Rules<'_>,
    mut wanted: impl FnMut(NodeId) -> bool,
) -> Result<Retrace, TraceError> {
    let tracer = Tracer::new(Graph::new());
    let mut translation = Translation::new();
    let mut map: SecondaryMap<NodeId, Option<Arg>> = SecondaryMap::with_capacity(graph.id_bound());
    let (mut calls, mut origins) = (Vec::new(), Vec::new());
    for id in graph.nodes() {
        let node = graph.node(id);
        let refused = |error| TraceError {
            faults: vec![TraceFault::Refused {
                target: node.target_name().to_owned(),
                error,
            }],
        };
        let mut known = |node: NodeId| map[node].clone().ok_or(GraphError::UnknownNode { node });
        let first = tracer.edit(|to| to.id_bound());
        let mut result = None;
        if let Some(rule) = rules.rules.get(&(node.op(), node.target_name().to_owned())) {
            let outcome = if wanted(id) {
                let spec = tracer.edit(|to| translation.spec(graph, to, id, &mut known));
                let spec = spec.map_err(refused)?;
                let text = |key| tracer.edit(|to| to.text(key).to_owned());
                let kwargs = spec.kwargs.into_iter();
                let call = Call {
                    args: spec.args.into_iter().map(|arg| tracer.value(arg)).collect(),
                    kwargs: kwargs
                        .map(|(key, arg)| (text(key), tracer.value(arg)))
                        .collect(),
                    target: node.target_name(),
                    tracer: &tracer,
                };
                let origin = tracer.edit(|to| translation.origin(graph, to, node.origin()));
                tracer.set_origin(origin);
                let value = rule(&tracer, &call);
                tracer.set_origin(Origin::default());
                match value {
                    Some(value) => {
                        let value = tracer.arg(node.target_name(), value);
                        result = Some(value.clone());
                        Retraced::Replaced(value)
                    }
                    None => Retraced::Declined,
                }
            } else {
                Retraced::Kept
            };
            calls.push((id, outcome));
        }
        let result = match result {
            Some(result) => result,
            None => {
                let copy = tracer.edit(|to| to.copy_node(graph, id, &mut translation, &mut known));
                Arg::Node(copy.map_err(refused)?)
            }
        };
        let last = tracer.edit(|to| to.id_bound());
        origins.extend((first..last).map(|at| (NodeId::from_index(at), id)));
        map.set(id, Some(result));
    }
    Ok(Retrace {
        graph: tracer.finish()?,
        calls,
        origins,
    })
}
