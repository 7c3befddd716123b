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
use crate::budget::Budget;
use crate::error::PassError;
use crate::pass::{Context, Pass};
use crate::report::{Report as Done, Site};

/// Effects that count as observable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether operators that use random numbers stay, so that those after them get the same
    /// numbers as before. Python functions that use them always stay, as in torch.fx.
    pub impure_random: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            impure_random: true,
        }
    }
}

/// Removed nodes, and unused ones that stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The nodes removed, in the order of their removal: users first.
    pub removed: Vec<NodeId>,
    /// Unused nodes that stay, with the reason, in graph order.
    pub kept: Vec<(NodeId, Reason)>,
}

impl Report {
    /// Whether the graph has changed.
    #[must_use]
    pub fn changed(&self) -> bool {
        !self.removed.is_empty()
    }

    /// Keeps the nodes that the budget does not allow to remove.
    pub fn limit(&mut self, budget: &mut Budget) {
        let granted = budget.take_up_to(self.removed.len());
        let left = self.removed.drain(granted..);
        self.kept.extend(left.map(|node| (node, Reason::Budget)));
    }
}

/// The pass, with its options.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeadCode(pub Options);

impl Pass for DeadCode {
    fn name(&self) -> &'static str {
        "dead code"
    }

    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> Result<Done, PassError> {
        let nodes_before = graph.len();
        let mut report = find(graph, context.host, self.0)?;
        report.limit(&mut context.budget);
        for &node in &report.removed {
            graph.erase(node)?;
        }
        let removed = report.removed.iter().rev();
        let removed = removed.map(|&node| Site::new(graph, node, None, None));
        let kept = report
            .kept
            .iter()
            .map(|&(node, reason)| Site::new(graph, node, None, Some(reason.as_str().to_owned())));
        Ok(Done {
            pass: self.name().to_owned(),
            sites: removed.chain(kept).collect(),
            nodes_before,
            nodes_after: graph.len(),
        })
    }
}

/// Why an unused node stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It has an effect that no value shows.
    SideEffect,
    /// It uses random numbers.
    Random,
    /// It writes to an input, an attribute, or state of a module.
    WritesOutside,
    /// It writes to a value that is read later.
    WrittenIsRead,
    /// Its target is unknown.
    Unknown,
    /// It could be removed, but no more changes may be made.
    Budget,
}

impl Reason {
    /// The reason in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SideEffect => "has a side effect",
            Self::Random => "draws random numbers",
            Self::WritesOutside => "writes to an input, an attribute or the state of a module",
            Self::WrittenIsRead => "writes to a value that is used later",
            Self::Unknown => "calls something of which nothing is known",
            Self::Budget => Budget::EXHAUSTED,
        }
    }
}

/// Removes dead code.
///
/// # Errors
/// [`PassError::UsedBeforeDefined`] if a node uses one that comes after it.
pub fn eliminate(
    graph: &mut Graph,
    host: &dyn Host,
    options: Options,
) -> Result<Report, PassError> {
    let report = find(graph, host, options)?;
    for &node in &report.removed {
        graph.erase(node)?;
    }
    Ok(report)
}

/// Finds dead code, without changing the graph.
///
/// # Errors
/// As [`eliminate`].
pub fn find(graph: &Graph, host: &dyn Host, options: Options) -> Result<Report, PassError> {
    let analysis = Analysis::of_graph(graph, host)?;
    let classes = analysis.writes().then_some(&analysis.classes);

    let mut report = Report::default();
    let mut needed = vec![false; graph.id_bound()];
    let mut read_later = vec![false; graph.id_bound()];
    for (_, node, effects) in analysis.walk().rev() {
        let op = graph.node(node).op();
        let mut reason = reason_to_stay(effects, options);
        if reason.is_none()
            && let Some(classes) = classes
        {
            let mut written = effects.mutates.iter();
            reason = written.find_map(|&written| match classes.class(written) {
                ClassId::OUTSIDE => Some(Reason::WritesOutside),
                class => read_later[class.index()].then_some(Reason::WrittenIsRead),
            });
        }
        let needed_here = needed[node.index()];
        if !(needed_here || reason.is_some() || matches!(op, Op::Placeholder | Op::Output)) {
            report.removed.push(node);
            continue;
        }
        if let Some(reason) = reason
            && !needed_here
            && op != Op::Output
        {
            report.kept.push((node, reason));
        }
        for input in graph.inputs(node) {
            needed[input.index()] = true;
            if let Some(classes) = classes {
                read_later[classes.class(input).index()] = true;
            }
        }
    }
    report.kept.reverse();
    Ok(report)
}

/// Why a node stays even if it is unused.
fn reason_to_stay(effects: &Effects, options: Options) -> Option<Reason> {
    if effects.opaque && !effects.side_effect {
        Some(Reason::Unknown)
    } else if effects.side_effect {
        Some(Reason::SideEffect)
    } else if effects.writes_state {
        Some(Reason::WritesOutside)
    } else if effects.random && (options.impure_random || !effects.seeded_operator) {
        Some(Reason::Random)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corsac_ops::Unhosted;

    fn eliminated(graph: &mut Graph) -> Report {
        eliminate(graph, &Unhosted, Options::default()).unwrap()
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
        assert!(!report.changed());
        assert_eq!(report.kept, [(add, Reason::WrittenIsRead)]);
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
        assert!(!report.changed());
        let outside = Reason::WritesOutside;
        assert_eq!(report.kept, [(zero, outside), (set, outside)]);
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
        assert_eq!(report.kept, [(add, Reason::WrittenIsRead)]);
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
        let random = Reason::Random;
        assert_eq!(
            report.kept,
            [(rand, random), (seeded, random), (mine, Reason::Unknown)]
        );
        let options = Options {
            impure_random: false,
        };
        let report = eliminate(&mut copy, &Unhosted, options).unwrap();
        assert_eq!(report.removed, [relu, seeded]);
    }

    #[test]
    fn a_graph_out_of_order_is_refused_and_left_alone() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let neg = graph.call_method("neg", [x.into()]).unwrap();
        graph.move_before(neg, x).unwrap();
        assert_eq!(
            eliminate(&mut graph, &Unhosted, Options::default()),
            Err(PassError::UsedBeforeDefined {
                user: "neg".into(),
                used: "x".into()
            })
        );
        assert_eq!(graph.len(), 2);
    }

    use corsac_ir::Arg;
}
