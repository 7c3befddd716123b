//! Dead code elimination.
//!
//! Removes unused nodes, unless they have an observable effect: they use random numbers, assert,
//! switch a mode, write to an input or an attribute of the program, or write to a value that a node
//! which stays reads afterwards, directly or through shared storage.
//!
//! Needs: a graph in which definitions come before uses.
//!
//! Preserves: order, names and metadata of the nodes that stay.
//!
//! ```text
//! m = torch.zeros(3)            m = torch.zeros(3)
//! v = m.view(-1)            →   v = m.view(-1)
//! v.add_(1)                     v.add_(1)
//! unused = m + 1                return m
//! return m
//! ```
//!
//! torch.fx 2.15 removes every unused call of a method, `v.add_(1)` among them. On programs that
//! write to nothing and call nothing unknown, the result is that of torch.fx.
//!
//! Reference: R. Cytron et al., "Efficiently computing static single assignment form and the
//! control dependence graph", TOPLAS 1991, section 7.1; values that share storage from
//! [`corsac_ops::AliasClasses`].

use corsac_ir::{EntityId, Graph, NodeId, Op};
use corsac_ops::{ClassId, Effects, Host};

use crate::analysis::Analysis;
use crate::error::PassError;
use crate::pass::{Changes, Context, Needs, Pass, Plan, Setting};
use crate::report::{Refusal, Site};

const SIDE_EFFECT: Refusal = Refusal::because("has a side effect");
const RANDOM: Refusal = Refusal::because("uses random numbers");
const WRITES_OUTSIDE: Refusal =
    Refusal::because("writes to an input, an attribute or the state of a module");
const WRITTEN_IS_READ: Refusal = Refusal::because("writes to a value that is used later");
const UNKNOWN: Refusal = Refusal::because("calls something of which nothing is known");

/// The pass.
#[derive(Clone, Copy, Debug)]
pub struct DeadCode {
    /// Whether operators that use random numbers stay, so that those after them get the same
    /// numbers as before. Python functions that use them always stay, as in torch.fx.
    pub impure_random: bool,
}

impl Default for DeadCode {
    fn default() -> Self {
        Self {
            impure_random: true,
        }
    }
}

/// Unused nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unused {
    /// The nodes to remove, users first.
    pub removed: Vec<NodeId>,
    /// The nodes that stay, with the reason, in graph order.
    pub kept: Vec<(NodeId, Refusal)>,
}

impl Pass for DeadCode {
    fn name(&self) -> &'static str {
        "dead code"
    }

    fn set(&mut self, option: &str, setting: Setting) -> bool {
        option == "impure_random" && setting.put_flag(&mut self.impure_random)
    }

    fn needs(&self) -> Needs {
        Needs {
            host: true,
            ..Needs::default()
        }
    }

    /// # Errors
    /// [`PassError::UsedBeforeDefined`] if a node uses one that comes after it.
    fn plan(&self, graph: &Graph, context: &mut Context<'_>) -> Result<Plan, PassError> {
        let Unused {
            mut removed,
            mut kept,
        } = self.find(graph, context.host)?;
        let granted = context.budget.take_up_to(removed.len());
        let left = removed.drain(granted..);
        kept.extend(left.map(|node| (node, Refusal::BUDGET)));
        let gone = removed.iter().rev();
        let gone = gone.map(|&node| Site::new(graph, node, None));
        let kept = kept.into_iter();
        let kept = kept.map(|(node, refusal)| Site::new(graph, node, Some(refusal)));
        Ok(Plan {
            sites: gone.chain(kept).collect(),
            changes: Changes::Erase(removed),
            ..Plan::default()
        })
    }
}

impl DeadCode {
    /// Finds unused nodes.
    ///
    /// # Errors
    /// [`PassError::UsedBeforeDefined`] if a node uses one that comes after it.
    pub fn find(&self, graph: &Graph, host: &dyn Host) -> Result<Unused, PassError> {
        let analysis = Analysis::of_graph(graph, host)?;
        let classes = analysis.writes().then_some(&analysis.classes);

        let mut unused = Unused::default();
        let mut needed = vec![false; graph.id_bound()];
        let mut read_later = vec![false; graph.id_bound()];
        for (_, node, effects) in analysis.walk().rev() {
            let op = graph.node(node).op();
            let mut reason = self.reason_to_stay(effects);
            if reason.is_none()
                && let Some(classes) = classes
            {
                let mut written = effects.mutates.iter();
                reason = written.find_map(|&written| match classes.class(written) {
                    ClassId::OUTSIDE => Some(WRITES_OUTSIDE),
                    class => read_later[class.index()].then_some(WRITTEN_IS_READ),
                });
            }
            let needed_here = needed[node.index()];
            if !(needed_here || reason.is_some() || matches!(op, Op::Placeholder | Op::Output)) {
                unused.removed.push(node);
                continue;
            }
            if let Some(reason) = reason
                && !needed_here
                && op != Op::Output
            {
                unused.kept.push((node, reason));
            }
            for input in graph.inputs(node) {
                needed[input.index()] = true;
                if let Some(classes) = classes {
                    read_later[classes.class(input).index()] = true;
                }
            }
        }
        unused.kept.reverse();
        Ok(unused)
    }

    /// Why a node stays even if it is unused.
    fn reason_to_stay(&self, effects: &Effects) -> Option<Refusal> {
        // torch.fx goes by the tag of an operator, whatever its arguments.
        let is_random = match effects.seeded_operator {
            true => self.impure_random,
            false => effects.random,
        };
        if effects.opaque && !effects.side_effect {
            Some(UNKNOWN)
        } else if effects.side_effect {
            Some(SIDE_EFFECT)
        } else if effects.writes_state {
            Some(WRITES_OUTSIDE)
        } else if is_random {
            Some(RANDOM)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::testing::run_on;
    use corsac_ops::Unhosted;

    /// Runs the pass, which removes what it finds.
    fn eliminated(graph: &mut Graph) -> Unused {
        let found = DeadCode::default().find(graph, &Unhosted).unwrap();
        let report = run_on(&DeadCode::default(), graph, &Unhosted);
        assert_eq!(report.edits.erased, found.removed);
        found
    }

    #[test]
    fn a_write_that_is_seen_through_a_view_stays() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let m = graph.call_method("clone", [x.into()]).unwrap();
        let rows = graph.call_method("unbind", [m.into()]).unwrap();
        let getitem = graph.function("operator.getitem");
        let row = graph
            .call_function(getitem, [rows.into(), 0.into()])
            .unwrap();
        let add = graph.call_method("add_", [row.into(), 1.into()]).unwrap();
        graph.output(m).unwrap();
        let report = eliminated(&mut graph);
        assert_eq!(report.removed, []);
        assert_eq!(report.kept, [(add, WRITTEN_IS_READ)]);
    }

    #[test]
    fn a_write_that_comes_after_the_last_read_goes() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let m = graph.call_method("clone", [x.into()]).unwrap();
        let sum = graph.call_method("sum", [m.into()]).unwrap();
        let add = graph.call_method("add_", [m.into(), 1.into()]).unwrap();
        graph.output(sum).unwrap();
        assert_eq!(eliminated(&mut graph).removed, [add]);
    }

    #[test]
    fn a_write_to_an_input_or_an_attribute_stays() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let w = graph.get_attr("w").unwrap();
        let t = graph.call_method("t", [w.into()]).unwrap();
        let zero = graph.call_method("zero_", [t.into()]).unwrap();
        let setitem = graph.function("operator.setitem");
        let set = graph
            .call_function(setitem, [x.into(), 0.into(), 1.into()])
            .unwrap();
        graph.output(Arg::None).unwrap();
        let report = eliminated(&mut graph);
        assert_eq!(report.removed, []);
        assert_eq!(report.kept, [(zero, WRITES_OUTSIDE), (set, WRITES_OUTSIDE)]);
    }

    #[test]
    fn an_out_argument_is_written_to() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let m = graph.call_method("clone", [x.into()]).unwrap();
        let function = graph.function("torch.add");
        let out = graph.intern("out");
        let add = graph
            .create(
                corsac_ir::NodeSpec {
                    op: Op::CallFunction,
                    target: corsac_ir::Target::Function(function),
                    args: [x.into(), 1.into()].into(),
                    kwargs: [(out, m.into())].into(),
                    ty: None,
                },
                None,
            )
            .unwrap();
        let unseen = graph.call_method("clone", [x.into()]).unwrap();
        graph.output(m).unwrap();
        let report = eliminated(&mut graph);
        assert_eq!(report.removed, [unseen]);
        assert_eq!(report.kept, [(add, WRITTEN_IS_READ)]);
    }

    #[test]
    fn random_and_unknown_calls_stay_and_pure_ones_go() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let rand = graph.function("torch.rand_like");
        let seeded = graph.function("torch.ops.aten.rand_like.default");
        let mine = graph.function("mine.log");
        let relu = graph.function("torch.nn.functional.relu");
        let rand = graph.call_function(rand, [x.into()]).unwrap();
        let seeded = graph.call_function(seeded, [x.into()]).unwrap();
        let mine = graph.call_function(mine, [x.into()]).unwrap();
        let relu = graph.call_function(relu, [x.into()]).unwrap();
        graph.output(x).unwrap();
        let mut copy = graph.clone();
        let report = eliminated(&mut graph);
        assert_eq!(report.removed, [relu]);
        assert_eq!(
            report.kept,
            [(rand, RANDOM), (seeded, RANDOM), (mine, UNKNOWN)]
        );
        let pass = DeadCode {
            impure_random: false,
        };
        let report = run_on(&pass, &mut copy, &Unhosted);
        assert_eq!(report.edits.erased, [relu, seeded]);
    }

    #[test]
    fn a_graph_out_of_order_is_refused_and_left_alone() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let neg = graph.call_method("neg", [x.into()]).unwrap();
        graph.move_before(neg, x).unwrap();
        assert_eq!(
            DeadCode::default().find(&graph, &Unhosted),
            Err(PassError::UsedBeforeDefined {
                user: "neg".into(),
                used: "x".into()
            })
        );
        assert_eq!(graph.len(), 2);
    }

    use corsac_ir::Arg;
}
