//! Writes calls in one of several equivalent forms.
//!
//! [`Keywords`] passes the arguments of PyTorch's functions by keyword; [`Operators`] writes
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

use corsac_ir::{Graph, Op, Target, ThinVec};
use corsac_ops::signature::{parameter_names, python_operator};

use crate::edits::Edits;
use crate::error::PassError;
use crate::pass::{Context, Pass, Plan};
use crate::report::{Refusal, Site};

/// The overloads of its function have other names, or it is unknown.
const NAMES: Refusal =
    Refusal::because("the names of its arguments are not known, or depend on their types");
const TWICE: Refusal = Refusal::because("an argument is given by position and by name");
const ARGUMENTS: Refusal = Refusal::because("it has arguments that the operator does not take");

/// Passes the arguments of PyTorch's functions by keyword. Reports every call of such a function
/// with positional arguments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keywords;

/// Writes calls of `torch` as operators of Python. Reports every call of a function for which Python
/// has an operator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Operators;

impl Pass for Keywords {
    fn name(&self) -> &'static str {
        "keyword arguments"
    }

    fn plan(&self, graph: &Graph, context: &mut Context<'_>) -> Result<Plan, PassError> {
        let (mut sites, mut changes) = (Vec::new(), Vec::new());
        for id in graph.find_nodes(Op::CallFunction, None) {
            let node = graph.node(id);
            if node.args().is_empty() || !node.target_name().starts_with("torch.") {
                continue;
            }
            let granted = match parameter_names(node.target_name(), node.args().len()) {
                None => Err(NAMES),
                Some(names) if names.iter().any(|name| node.kwarg(name).is_some()) => Err(TWICE),
                Some(names) => context.budget.grant((id, names)),
            };
            sites.push(Site::new(graph, id, granted.as_ref().err().cloned()));
            changes.extend(granted);
        }
        Ok(Plan::other(sites, Vec::new(), move |graph, _, _, _| {
            for (node, names) in changes {
                let names = names.iter().map(|name| graph.intern(name));
                let names = names.collect::<Vec<_>>().into_iter();
                let kwargs = names.zip(graph.node(node).args().iter().cloned());
                let further = graph.node(node).kwargs().iter().cloned();
                let kwargs: ThinVec<_> = kwargs.chain(further).collect();
                graph.set_arguments(node, ThinVec::new(), kwargs)?;
            }
            Ok(Edits::default())
        }))
    }
}

impl Pass for Operators {
    fn name(&self) -> &'static str {
        "operators"
    }

    fn plan(&self, graph: &Graph, context: &mut Context<'_>) -> Result<Plan, PassError> {
        let (mut sites, mut changes, mut functions) = (Vec::new(), Vec::new(), Vec::new());
        for id in graph.find_nodes(Op::CallFunction, None) {
            let node = graph.node(id);
            let Some(operator) = python_operator(node.target_name()) else {
                continue;
            };
            let granted = if node.args().len() != 2 || !node.kwargs().is_empty() {
                Err(ARGUMENTS)
            } else {
                context.budget.grant((id, operator))
            };
            let mut site = Site::new(graph, id, granted.clone().err());
            if granted.is_ok() {
                site.target = operator.to_owned();
                functions.push(operator.to_owned());
            }
            sites.push(site);
            changes.extend(granted);
        }
        Ok(Plan::other(
            sites,
            functions,
            move |graph, function, _, _| {
                for (node, operator) in changes {
                    let operator = Target::Function(function(graph, operator));
                    graph.set_target(node, operator)?;
                }
                Ok(Edits::default())
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use corsac_ir::Arg;
    use corsac_ops::Unhosted;

    use super::*;
    use crate::pass::testing::{run_on, run_within};

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
        let report = run_within(1, &Keywords, &mut graph, &Unhosted);
        let nodes: Vec<_> = report.sites.iter().map(|site| site.node).collect();
        assert_eq!(nodes, [add, max, relu]);
        assert_eq!(
            report.refusals(),
            [None, Some(NAMES), Some(Refusal::BUDGET)]
        );
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
        let report = run_on(&Operators, &mut graph, &Unhosted);
        assert_eq!(report.refusals(), [None, Some(ARGUMENTS)]);
        assert!(graph.node(plain).calls("operator.add"));
        assert!(graph.node(scaled).calls("torch.add"));
    }
}
