//! Writes calls in one of several equivalent forms.
//!
//! [`keywords`] passes the arguments of PyTorch's functions by keyword; [`operators`] writes
//! functions of `torch` for which Python has an operator as that operator.
//!
//! Needs: nothing. Where the overloads of a function have different parameter names, the choice
//! depends on types, and the call stays; so does one with further arguments (`alpha=`, `out=`) that
//! an operator does not take.
//!
//! Preserves: everything but the form of the call. Each call is one change of the budget.
//!
//! ```text
//! relu = F.relu(x)        →   relu = F.relu(input=x)
//! add = torch.add(x, y)   →   add = x + y
//! ```
//!
//! Reference: `torch.fx.experimental.normalize`, which adds defaults too, drops further arguments
//! of functions that become operators, and gets the signatures from PyTorch.

use corsac_ir::{FunctionId, Graph, NodeId, Op, Target, ThinVec};
use corsac_ops::signature::{parameter_names, python_operator};
use thiserror::Error;

use crate::budget::Budget;
use crate::error::PassError;
use crate::pass::{Context, Pass};
use crate::report;

/// A call, with the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The node.
    pub node: NodeId,
    /// Why it is not rewritten, if it is not.
    pub refusal: Option<Refusal>,
}

/// Why a call is not rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The names of its arguments are not known, or depend on types.
    #[error("the names of its arguments are not known, or depend on their types")]
    Names,
    /// An argument is given by position and by name.
    #[error("an argument is given by position and by name")]
    Twice,
    /// It has arguments that the operator does not take.
    #[error("it has arguments that the operator does not take")]
    Arguments,
    /// No more changes may be made.
    #[error("{}", Budget::EXHAUSTED)]
    Budget,
}

/// [`keywords`] as a pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keywords;

/// [`operators`] as a pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Operators;

impl Pass for Keywords {
    fn name(&self) -> &'static str {
        "keyword arguments"
    }

    fn run(
        &self,
        graph: &mut Graph,
        context: &mut Context<'_>,
    ) -> Result<report::Report, PassError> {
        let sites = keywords(graph, &mut context.budget)?;
        Ok(reported(self.name(), graph, &sites))
    }
}

impl Pass for Operators {
    fn name(&self) -> &'static str {
        "operators"
    }

    fn run(
        &self,
        graph: &mut Graph,
        context: &mut Context<'_>,
    ) -> Result<report::Report, PassError> {
        let sites = operators(graph, Graph::function, &mut context.budget)?;
        Ok(reported(self.name(), graph, &sites))
    }
}

fn reported(pass: &str, graph: &Graph, sites: &[Site]) -> report::Report {
    let sites = sites.iter().map(|site| {
        let reason = site.refusal.map(|refusal| refusal.to_string());
        report::Site::new(graph, site.node, None, reason)
    });
    report::Report {
        pass: pass.to_owned(),
        sites: sites.collect(),
        nodes_before: graph.len(),
        nodes_after: graph.len(),
    }
}

/// Passes the arguments of PyTorch's functions by keyword. Returns every call of such a function
/// with positional arguments.
///
/// # Errors
/// If the graph refuses a change, which it does not for a graph that is well formed.
pub fn keywords(graph: &mut Graph, budget: &mut Budget) -> Result<Vec<Site>, PassError> {
    let mut sites = Vec::new();
    for id in graph.find_nodes(Op::CallFunction, None) {
        let node = graph.node(id);
        if node.args().is_empty() || !node.target_name().starts_with("torch.") {
            continue;
        }
        let refusal = match parameter_names(node.target_name(), node.args().len()) {
            None => Some(Refusal::Names),
            Some(names) if names.iter().any(|name| node.kwarg(name).is_some()) => {
                Some(Refusal::Twice)
            }
            Some(_) if !budget.take() => Some(Refusal::Budget),
            Some(names) => {
                let args: ThinVec<_> = node.args().into();
                let further: ThinVec<_> = node.kwargs().into();
                let names = names.iter().map(|name| graph.intern(name));
                let kwargs = names.collect::<Vec<_>>().into_iter().zip(args);
                let kwargs: ThinVec<_> = kwargs.chain(further).collect();
                graph.set_arguments(id, ThinVec::new(), kwargs)?;
                None
            }
        };
        sites.push(Site { node: id, refusal });
    }
    sites.sort_unstable_by_key(|site| graph.node(site.node).order());
    Ok(sites)
}

/// Writes calls of `torch` as operators of Python; `function` returns a function of the graph by
/// its qualified name. Returns every call of a function for which Python has an operator.
///
/// # Errors
/// If the graph refuses a change, which it does not for a graph that is well formed.
pub fn operators(
    graph: &mut Graph,
    mut function: impl FnMut(&mut Graph, &str) -> FunctionId,
    budget: &mut Budget,
) -> Result<Vec<Site>, PassError> {
    let mut sites = Vec::new();
    for id in graph.find_nodes(Op::CallFunction, None) {
        let node = graph.node(id);
        let Some(operator) = python_operator(node.target_name()) else {
            continue;
        };
        let refusal = if node.args().len() != 2 || !node.kwargs().is_empty() {
            Some(Refusal::Arguments)
        } else if !budget.take() {
            Some(Refusal::Budget)
        } else {
            let operator = function(graph, operator);
            graph.set_target(id, Target::Function(operator))?;
            None
        };
        sites.push(Site { node: id, refusal });
    }
    Ok(sites)
}

#[cfg(test)]
mod tests {
    use corsac_ir::Arg;

    use super::*;

    #[test]
    fn arguments_get_names_where_those_are_known() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let mut call = |name: &str, args: ThinVec<Arg>| {
            let function = graph.function(name);
            graph.call_function(function, args).unwrap()
        };
        let add = call("torch.add", [x.into(), 1.into()].into());
        let max = call("torch.max", [x.into(), 0.into()].into());
        call("operator.add", [x.into(), 1.into()].into());
        let relu = call("torch.relu", [x.into()].into());
        let sites = keywords(&mut graph, &mut Budget::of(1)).unwrap();
        let expected = [
            (add, None),
            (max, Some(Refusal::Names)),
            (relu, Some(Refusal::Budget)),
        ];
        let expected = expected.map(|(node, refusal)| Site { node, refusal });
        assert_eq!(sites, expected);
        assert!(graph.node(add).args().is_empty());
        assert_eq!(graph.node(add).kwarg("input"), Some(&x.into()));
    }

    #[test]
    fn operators_take_two_operands() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let add = graph.function("torch.add");
        let plain = graph.call_function(add, [x.into(), x.into()]).unwrap();
        let scaled = graph.call_function(add, [x.into(), x.into()]).unwrap();
        let alpha = graph.intern("alpha");
        graph.set_kwargs(scaled, [(alpha, 2.into())]).unwrap();
        let sites = operators(&mut graph, Graph::function, &mut Budget::unlimited()).unwrap();
        assert_eq!(sites[1].refusal, Some(Refusal::Arguments));
        assert!(graph.node(plain).calls("operator.add"));
        assert!(graph.node(scaled).calls("torch.add"));
    }
}
