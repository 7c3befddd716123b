//! One order and one hash for all graphs that compute the same in the same way.
//!
//! Adds the effects of operators to [`corsac_ir::canonical`], so that two graphs that differ in the
//! order of independent nodes are equal, and two that differ in the order of a write and a read of
//! the same value, or of two calls that use random numbers, are not.
//!
//! Needs: a graph in which definitions come before uses.
//!
//! Preserves: names and metadata.

use corsac_ir::canonical::{Canonical, Constraints, ExternalIdentity, canonical};
use corsac_ir::{EntityId, Graph, NodeId, Op};
use corsac_ops::{ClassId, Host};
use rustc_hash::FxHashMap;

use crate::analysis::Analysis;
use crate::edits::Edits;
use crate::error::PassError;
use crate::pass::{Context, Needs, Pass, Plan};
use crate::report::Site;

/// Constraints on the order of nodes that come from their effects.
#[derive(Debug, Default)]
struct Order {
    /// The node whose effect comes right before that of the node.
    state: FxHashMap<NodeId, NodeId>,
    /// Nodes that have to come before, besides those that are used.
    after: FxHashMap<NodeId, Vec<NodeId>>,
    /// By user and input: the last node that wrote to the input's value before.
    versions: FxHashMap<(NodeId, NodeId), NodeId>,
}

impl Constraints for Order {
    fn state(&self, node: NodeId) -> Option<NodeId> {
        self.state.get(&node).copied()
    }

    fn after(&self, node: NodeId) -> &[NodeId] {
        self.after.get(&node).map_or(&[], Vec::as_slice)
    }

    fn version(&self, user: NodeId, input: NodeId) -> Option<NodeId> {
        self.versions.get(&(user, input)).copied()
    }
}

impl Order {
    fn of_graph(graph: &Graph, analysis: &Analysis) -> Self {
        let mut order = Self::default();
        let any_effect = analysis.special().any(|(_, effects)| {
            effects.writes() || effects.random || effects.side_effect || effects.barrier
        });
        if !any_effect {
            return order;
        }
        // The last effect so far, which all later effects follow, and the last barrier, which
        // everything later follows.
        let (mut last_effect, mut last_barrier) = (None, None);
        let mut writers: FxHashMap<ClassId, NodeId> = FxHashMap::default();
        let mut readers: FxHashMap<ClassId, Vec<NodeId>> = FxHashMap::default();
        let mut since_barrier: Vec<NodeId> = Vec::new();
        for (_, node, effects) in analysis.walk() {
            let class = |n| analysis.classes.class(n);
            let op = graph.node(node).op();
            if op == Op::Output {
                continue;
            }
            let mut read: Vec<ClassId> = Vec::new();
            for input in graph.inputs(node) {
                read.push(class(input));
                if let Some(&writer) = writers.get(&class(input)) {
                    order.versions.insert((node, input), writer);
                }
            }
            if effects.reads_state || effects.writes_state {
                read.push(ClassId::OUTSIDE);
            }
            let mut written: Vec<ClassId> = effects.mutates.iter().map(|&n| class(n)).collect();
            if effects.writes_state {
                written.push(ClassId::OUTSIDE);
            }
            let acts = effects.random
                || effects.side_effect
                || effects.opaque
                || effects.barrier
                || effects.writes_state;
            let state = if acts || op == Op::Placeholder {
                last_effect.or(last_barrier)
            } else if effects.reads_state {
                let writer = writers.get(&ClassId::OUTSIDE).copied();
                let both = writer.into_iter().chain(last_barrier);
                both.max_by_key(|&n| graph.node(n).order())
            } else {
                last_barrier
            };
            if op != Op::Placeholder
                && let Some(state) = state
            {
                order.state.insert(node, state);
            }
            let mut after: Vec<NodeId> = Vec::new();
            for class in &written {
                after.extend(readers.remove(class).unwrap_or_default());
                after.extend(writers.insert(*class, node));
            }
            if effects.barrier || effects.opaque {
                after.append(&mut since_barrier);
                last_barrier = Some(node);
            }
            after.retain(|&n| n != node);
            if !after.is_empty() {
                order.after.insert(node, after);
            }
            for class in read {
                if !written.contains(&class) {
                    readers.entry(class).or_default().push(node);
                }
            }
            since_barrier.push(node);
            if acts {
                last_effect = Some(node);
            }
        }
        // The result is read after all effects.
        if let Some(output) = graph.output_node() {
            for input in graph.inputs(output) {
                if let Some(&writer) = writers.get(&analysis.classes.class(input)) {
                    order.versions.insert((output, input), writer);
                }
            }
            if let Some(last) = last_effect {
                order.state.insert(output, last);
            }
        }
        order
    }
}

/// The canonical order and hash of `graph`.
///
/// # Errors
/// [`PassError::UsedBeforeDefined`] if a node uses one that comes after it.
pub fn of_graph(
    graph: &Graph,
    host: &dyn Host,
    identity: &dyn ExternalIdentity,
) -> Result<Canonical, PassError> {
    let analysis = Analysis::of_graph(graph, host)?;
    let order = Order::of_graph(graph, &analysis);
    Ok(canonical(graph, &order, identity))
}

/// The pass: puts nodes into the canonical order, as one change. Its sites are the nodes that move.
#[derive(Clone, Copy, Debug)]
pub struct CanonicalOrder;

impl Pass for CanonicalOrder {
    fn name(&self) -> &'static str {
        "canonical order"
    }

    fn needs(&self) -> Needs {
        Needs {
            host: true,
            texts: true,
            ..Needs::default()
        }
    }

    fn plan(&self, graph: &Graph, context: &mut Context<'_>) -> Result<Plan, PassError> {
        let order = of_graph(graph, context.host, context.texts)?.order;
        let moved = order.iter().zip(graph.nodes());
        let moved = moved.filter(|&(&now, then)| now != then);
        let mut moved: Vec<NodeId> = moved.map(|(&now, _)| now).collect();
        if moved.is_empty() || !context.budget.take() {
            return Ok(Plan::default());
        }
        moved.sort_unstable_by_key(|node| node.index());
        let sites = moved.into_iter().map(|node| Site::new(graph, node, None));
        let (sites, functions) = (sites.collect(), Vec::new());
        Ok(Plan::other(sites, functions, move |graph, _, _, _| {
            for node in order {
                graph.move_before(node, NodeId::ROOT)?;
            }
            Ok(Edits::default())
        }))
    }
}

#[cfg(test)]
mod tests {
    use corsac_ir::Arg;
    use corsac_ir::canonical::ByOccurrence;
    use corsac_ops::Unhosted;

    use super::*;
    use crate::pass::testing::run_on;

    fn hash(graph: &Graph) -> u128 {
        of_graph(graph, &Unhosted, &ByOccurrence).unwrap().hash
    }

    fn program(names: &[&str]) -> Graph {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let m = graph.call_method("clone", [x.into()]).unwrap();
        let mut results = vec![Arg::from(m)];
        for name in names {
            results.push(graph.call_method(name, [m.into()]).unwrap().into());
        }
        // The same values in the same places, whatever the order of the calls.
        results.sort_by_key(|arg| {
            let node = arg.as_node().unwrap();
            graph.node(node).target_name().to_owned()
        });
        graph.output(Arg::tuple(results).unwrap()).unwrap();
        graph
    }

    #[test]
    fn independent_nodes_may_change_places_and_writes_may_not() {
        assert_eq!(
            hash(&program(&["sin", "cos"])),
            hash(&program(&["cos", "sin"]))
        );
        assert_ne!(
            hash(&program(&["sin", "zero_"])),
            hash(&program(&["zero_", "sin"]))
        );
        assert_ne!(
            hash(&program(&["exp_", "zero_"])),
            hash(&program(&["zero_", "exp_"]))
        );
    }

    #[test]
    fn random_draws_stay_in_order() {
        let names = ["bernoulli", "multinomial"];
        let swapped = [names[1], names[0]];
        assert_ne!(hash(&program(&names)), hash(&program(&swapped)));
    }

    #[test]
    fn what_is_put_in_order_is_equal_and_stays_what_it_was() {
        let names = ["sin", "zero_", "cos", "tan", "exp_", "neg"];
        let swapped = ["sin", "zero_", "tan", "cos", "exp_", "neg"];
        let moves = [&names, &swapped].map(|names| {
            let mut graph = program(names);
            let before = hash(&graph);
            let report = run_on(&CanonicalOrder, &mut graph, &Unhosted);
            graph.lint().unwrap();
            assert_eq!(hash(&graph), before);
            assert!(!run_on(&CanonicalOrder, &mut graph, &Unhosted).changed());
            report.changed()
        });
        assert!(moves[0] != moves[1]);
    }
}
