//! Taking operators apart by rules: the graph is recorded again, and each call that has a rule is
//! replaced by what the rule records.

use rustc_hash::FxHashMap;

use crate::arg::Arg;
use crate::entity::{NodeId, SecondaryMap};
use crate::error::GraphError;
use crate::graph::{Graph, Origin, Translation};
use crate::op::Op;
use crate::proxy::{Proxy, TraceError, TraceFault, Tracer, Value};

/// What a rule is given: the call it takes apart.
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

type Rule<'r> = Box<dyn Fn(&Tracer, &Call<'_>) -> Value + 'r>;

/// Rules for taking calls apart, by opcode and target.
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

    /// Says what becomes of calls of the function with this qualified name. The last rule given
    /// counts.
    #[must_use]
    pub fn function<R: Into<Value>>(
        self,
        name: &str,
        rule: impl Fn(&Tracer, &Call<'_>) -> R + 'r,
    ) -> Self {
        self.rule(Op::CallFunction, name, rule)
    }

    /// Says what becomes of calls of the method called `name`; the object is the first argument.
    #[must_use]
    pub fn method<R: Into<Value>>(
        self,
        name: &str,
        rule: impl Fn(&Tracer, &Call<'_>) -> R + 'r,
    ) -> Self {
        self.rule(Op::CallMethod, name, rule)
    }

    /// Says what becomes of calls of the submodule with this qualified name.
    #[must_use]
    pub fn module<R: Into<Value>>(
        self,
        name: &str,
        rule: impl Fn(&Tracer, &Call<'_>) -> R + 'r,
    ) -> Self {
        self.rule(Op::CallModule, name, rule)
    }

    fn rule<R: Into<Value>>(
        mut self,
        op: Op,
        name: &str,
        rule: impl Fn(&Tracer, &Call<'_>) -> R + 'r,
    ) -> Self {
        let rule: Rule<'r> = Box::new(move |tracer, call| rule(tracer, call).into());
        self.rules.insert((op, name.to_owned()), rule);
        self
    }
}

/// Records `graph` again with `rules` applied; what has no rule is copied. What a rule records says
/// that it comes from where the call came from. Rules are not applied to what rules record.
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
    let tracer = Tracer::new(Graph::new());
    let mut translation = Translation::new();
    let mut map: SecondaryMap<NodeId, Option<Arg>> = SecondaryMap::with_capacity(graph.id_bound());
    for id in graph.nodes() {
        let node = graph.node(id);
        let mut known = |node: NodeId| map[node].clone().ok_or(GraphError::UnknownNode { node });
        let rule = rules.rules.get(&(node.op(), node.target_name().to_owned()));
        let result = match rule {
            None => tracer
                .edit(|to| to.copy_node(graph, id, &mut translation, &mut known))
                .map(Arg::Node),
            Some(rule) => {
                let spec = tracer.edit(|to| translation.spec(graph, to, id, &mut known));
                spec.map(|spec| {
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
                    tracer.arg(node.target_name(), value)
                })
            }
        };
        let result = result.map_err(|error| TraceError {
            faults: vec![TraceFault::Refused {
                target: node.target_name().to_owned(),
                error,
            }],
        })?;
        map.set(id, Some(result));
    }
    tracer.finish()
}
