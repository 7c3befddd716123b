//! Result types and costs of calls that no node of a graph makes.

use corsac_ir::{Arg, Graph, NodeId, Op, Symbol, Target};

use super::call::{Call, Settings};
use super::cost::{NodeCost, of_call};
use super::error::Failure;
use super::propagate::{NoModules, apply, argument};
use super::rule::{for_function, for_method};
use super::value::Value;

/// A call of a function or a method, its arguments in the terms of a graph.
#[derive(Clone, Copy, Debug)]
pub struct DetachedCall<'a> {
    /// `CallFunction` or `CallMethod`; nothing is known of others.
    pub op: Op,
    /// The target.
    pub target: Target,
    /// Positional arguments. Nodes in them need not be in the graph.
    pub args: &'a [Arg],
    /// Keyword arguments.
    pub kwargs: &'a [(Symbol, Arg)],
}

impl DetachedCall<'_> {
    /// The type of the result and the cost, where `value_of` gives the values of the nodes in the
    /// arguments. Strings and functions are those of `graph`.
    ///
    /// # Errors
    /// If there is no rule, its arguments are not known, or the call fails.
    pub fn infer(
        &self,
        graph: &Graph,
        value_of: &dyn Fn(NodeId) -> Value,
        settings: Settings,
    ) -> Result<(Value, NodeCost), Failure> {
        let found = match (self.op, self.target) {
            (Op::CallFunction, Target::Function(function)) => {
                for_function(graph.function_name(function))
            }
            (Op::CallMethod, Target::Name(name)) => for_method(graph.text(name)),
            _ => None,
        };
        let found = found.ok_or_else(|| Failure::unknown("there is no rule for this call"))?;
        let value = |arg: &Arg| argument(graph, arg, &NoModules, value_of);
        let kwargs = self.kwargs.iter();
        let kwargs = kwargs.map(|(key, arg)| (graph.text(*key), value(arg)));
        let args = self.args.iter().map(value);
        let mut call = Call::bind(&found.entry.signature, args, kwargs, settings)?;
        call.exact = found.exact;
        if self.op == Op::CallMethod && !matches!(call.args.first(), Some(Some(Value::Tensor(_)))) {
            return Err(Failure::unknown("a method of something else than a tensor"));
        }
        let result = apply(found, &call)?;
        let cost = of_call(found, &call, &result);
        Ok((result, cost))
    }
}
