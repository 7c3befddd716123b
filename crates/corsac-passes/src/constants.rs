//! Finds nodes that do not depend on the inputs.
//!
//! Marks the nodes whose values are the same in every call, so that a host can compute them once:
//! attributes, and calls that only compute a value from such nodes. The last ones, which other
//! nodes use, are the values to keep ([`Constants::results`]).
//!
//! Not constant: calls that use random numbers, have side effects or write to something; calls
//! after a change of modes; values that share storage with one that is written to; values that the
//! caller gets and may write to.
//!
//! Needs: attributes and modules that do not change from now on; a graph in which definitions come
//! before uses.
//!
//! Preserves: the graph, which is only read.
//!
//! ```text
//! w = self.w
//! t = w.t()                     constant
//! s = torch.softmax(t, 0)       constant, a result
//! y = x @ s
//! ```
//!
//! Reference: M. Wegman and F. K. Zadeck, "Constant propagation with conditional branches", TOPLAS
//! 1991.

use corsac_ir::{EntityId, Graph, NodeId, Op};
use corsac_ops::{Catalogue, ClassId, Effects, Host};

use crate::analysis::Analysis;
use crate::budget::Budget;
use crate::common_subexpressions::returned;
use crate::error::PassError;
use crate::report::{Refusal, Site};

/// The nodes that do not depend on the inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constants {
    /// The nodes whose values are always the same, attributes among them, in graph order.
    pub nodes: Vec<NodeId>,
    /// The calls among them that non-constant nodes use.
    pub results: Vec<NodeId>,
    /// Calls with constant arguments that do not count as constant, with the reason.
    pub kept: Vec<Site>,
}

const EFFECT: Refusal = Refusal::because("does more than computing its value, or may do");
const WRITTEN: Refusal = Refusal::because("it or what it is computed from is written to");
const RETURNED: Refusal = Refusal::because("the caller gets it and may write to it");
const MODES: Refusal = Refusal::because("modes are switched before it");
/// The caller of [`find`] excluded it.
const SKIPPED: Refusal = Refusal::because("it is to stay");
/// Numbers of integers would take several times their memory.
const EXPANDS: Refusal = Refusal::because("its result takes more memory than its operands");

/// Finds the nodes of `graph` that do not depend on its inputs. Calls in `skipped` count as
/// dependent.
///
/// # Errors
/// [`PassError::UsedBeforeDefined`] if a node uses one that comes after it.
pub fn find(graph: &Graph, host: &dyn Host, skipped: &[NodeId]) -> Result<Constants, PassError> {
    let analysis = Analysis::of_graph(graph, host)?;
    let returned = returned(graph, &analysis, |_| false);
    let mut written = vec![false; graph.id_bound()];
    for (_, effects) in analysis.special() {
        for &value in &effects.mutates {
            written[analysis.classes.class(value).index()] = true;
        }
        written[ClassId::OUTSIDE.index()] |= effects.writes_state;
    }
    let is_written = |node| written[analysis.classes.class(node).index()];
    let mut skip = vec![false; graph.id_bound()];
    skipped.iter().for_each(|node| skip[node.index()] = true);

    let mut found = Constants::default();
    let mut catalogue = Catalogue::new(host);
    let mut constant = vec![false; graph.id_bound()];
    let mut modes = false;
    for (_, node, effects) in analysis.walk() {
        modes |= effects.barrier;
        match graph.node(node).op() {
            Op::GetAttr => {}
            Op::Placeholder | Op::Output => continue,
            Op::CallFunction | Op::CallMethod | Op::CallModule => {
                if !graph.inputs(node).all(|input| constant[input.index()]) {
                    continue;
                }
                let operator = catalogue.operator(graph, node);
                let reason = if skip[node.index()] {
                    Some(SKIPPED)
                } else if operator.is_some_and(|own| own.row().expands) {
                    Some(EXPANDS)
                } else if !only_computes(effects) {
                    Some(EFFECT)
                } else if modes {
                    Some(MODES)
                } else if is_written(node)
                    || graph.inputs(node).any(is_written)
                    || (effects.reads_state && written[ClassId::OUTSIDE.index()])
                {
                    Some(WRITTEN)
                } else if returned[node.index()] {
                    Some(RETURNED)
                } else {
                    None
                };
                if let Some(reason) = reason {
                    found.kept.push(Site::new(graph, node, Some(reason)));
                    continue;
                }
            }
        }
        constant[node.index()] = true;
        found.nodes.push(node);
    }
    found.results = found
        .nodes
        .iter()
        .copied()
        .filter(|&node| {
            let is_used = graph.users(node).any(|user| !constant[user.index()]);
            graph.node(node).op() != Op::GetAttr && is_used
        })
        .collect();
    Ok(found)
}

/// Whether a call may be made once instead of every time.
fn only_computes(effects: &Effects) -> bool {
    effects.is_pure() && !effects.unrepeatable && !effects.barrier
}

impl Constants {
    /// Leaves values that the budget does not allow to keep to be computed every time.
    pub fn limit(&mut self, graph: &Graph, budget: &mut Budget) {
        let granted = budget.take_up_to(self.results.len());
        let left = self.results.drain(granted..);
        let kept = left.map(|node| Site::new(graph, node, Some(Refusal::BUDGET)));
        self.kept.extend(kept);
    }
}

#[cfg(test)]
mod tests {
    use corsac_ir::Arg;
    use corsac_ops::Unhosted;

    use super::*;

    /// `w`, `w.t()`, `exp` of it, a sum with the input, and the nodes that `more` adds.
    fn program(more: impl FnOnce(&mut Graph, [NodeId; 4]) -> Arg) -> (Graph, NodeId) {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let w = graph.get_attr("w").unwrap();
        let t = graph.call_method("t", [w.into()]).unwrap();
        let exp = graph.call_method("exp", [t.into()]).unwrap();
        let add = graph.call_method("add", [x.into(), exp.into()]).unwrap();
        let result = more(&mut graph, [x, w, exp, add]);
        graph.output(result).unwrap();
        (graph, exp)
    }

    fn results(graph: &Graph) -> Vec<NodeId> {
        find(graph, &Unhosted, &[]).unwrap().results
    }

    #[test]
    fn what_depends_on_no_input_is_constant() {
        let (graph, exp) = program(|_, [.., add]| add.into());
        let found = find(&graph, &Unhosted, &[]).unwrap();
        assert_eq!(found.nodes.len(), 3);
        assert_eq!(found.results, [exp]);
        // The view before it is then the value to keep.
        let skipped = find(&graph, &Unhosted, &[exp]).unwrap();
        assert_eq!(skipped.kept, [Site::new(&graph, exp, Some(SKIPPED))]);
        assert_eq!(skipped.results.len(), 1);
    }

    #[test]
    fn what_is_written_to_or_returned_is_not() {
        let written = program(|graph, [.., exp, add]| {
            graph.call_method("add_", [exp.into(), 1.into()]).unwrap();
            add.into()
        });
        assert!(!results(&written.0).contains(&written.1));
        let outside = program(|graph, [_, w, _, add]| {
            graph.call_method("zero_", [w.into()]).unwrap();
            add.into()
        });
        assert_eq!(results(&outside.0), []);
        let returned = program(|_, [.., exp, add]| Arg::tuple([exp.into(), add.into()]).unwrap());
        assert!(!results(&returned.0).contains(&returned.1));
    }

    #[test]
    fn random_draws_are_made_every_time() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let w = graph.get_attr("w").unwrap();
        let draw = graph.call_method("bernoulli", [w.into()]).unwrap();
        let add = graph.call_method("add", [x.into(), draw.into()]).unwrap();
        graph.output(add).unwrap();
        let found = find(&graph, &Unhosted, &[]).unwrap();
        assert_eq!(found.kept, [Site::new(&graph, draw, Some(EFFECT))]);
        assert_eq!(found.results, []);
    }

    #[test]
    fn a_budget_limits_what_is_kept() {
        let (graph, exp) = program(|_, [.., add]| add.into());
        let mut found = find(&graph, &Unhosted, &[]).unwrap();
        found.limit(&graph, &mut Budget::of(0));
        assert_eq!(found.results, []);
        assert_eq!(found.kept, [Site::new(&graph, exp, Some(Refusal::BUDGET))]);
    }
}
