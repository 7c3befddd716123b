//! Conversions of values that enter or leave a subgraph.

use corsac_ir::{EntityId, FunctionId, Graph, InsertPoint, NodeId, Op};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Subgraph, Writes};
use crate::error::PassError;

/// The conversions at the border of a subgraph: calls of a function with one argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversions {
    /// Conversions of the values that enter, in order.
    pub starts: Vec<NodeId>,
    /// Conversions of the values that leave, in order.
    pub ends: Vec<NodeId>,
}

/// Puts conversions around a subgraph: `enter` for each value from outside that its nodes use,
/// `leave` for each of its values that nodes outside use.
///
/// A value that enters is converted once, before its first user, and again where it may have been
/// written to since.
///
/// # Errors
/// If the graph refuses a change, which it does not for a plan that was made for it.
pub fn convert(
    graph: &mut Graph,
    subgraph: &Subgraph,
    writes: &mut Writes,
    enter: FunctionId,
    leave: FunctionId,
) -> Result<Conversions, PassError> {
    let inside: FxHashSet<NodeId> = subgraph.nodes.iter().copied().collect();
    let mut conversions = Conversions::default();
    let mut converted: FxHashMap<NodeId, NodeId> = FxHashMap::default();
    let outer = graph.insert_point();
    for &node in &subgraph.nodes {
        let entering: Vec<NodeId> = graph.inputs(node).filter(|i| !inside.contains(i)).collect();
        for value in entering {
            let known = converted.get(&value).copied();
            let still_holds = |&start: &NodeId| {
                !writes.is_seen(value) || !writes.come_between(graph, start, node)
            };
            let start = match known.filter(still_holds) {
                Some(start) => start,
                None => {
                    let start = call(graph, InsertPoint::Before(node), enter, value)?;
                    graph.set_origin(start, graph.origin(node));
                    writes.add_copy(start, value);
                    conversions.starts.push(start);
                    converted.insert(value, start);
                    start
                }
            };
            graph.replace_input(node, value, start)?;
        }
        if graph.users(node).any(|user| !inside.contains(&user)) {
            let end = call(graph, InsertPoint::After(node), leave, node)?;
            graph.set_origin(end, graph.origin(node));
            graph.replace_uses_if(node, end, |_, user| user != end && !inside.contains(&user))?;
            writes.add_copy(end, node);
            conversions.ends.push(end);
        }
    }
    graph.restore_insert_point(outer);
    Ok(conversions)
}

/// Removes conversions again. Returns the erased nodes.
///
/// # Errors
/// If one of them was erased, or is no call with one argument.
pub fn unconvert(graph: &mut Graph, conversions: &Conversions) -> Result<Vec<NodeId>, PassError> {
    let all = conversions.starts.iter().chain(&conversions.ends).copied();
    let mut gone = Vec::new();
    for node in all {
        graph.check_live(node)?;
        let value = match graph.node(node).args() {
            [value] if graph.node(node).op() == Op::CallFunction => value.as_node(),
            _ => None,
        };
        let Some(value) = value else { continue };
        graph.replace_all_uses(node, value)?;
        graph.erase(node)?;
        gone.push(node);
    }
    Ok(gone)
}

fn call(
    graph: &mut Graph,
    place: InsertPoint,
    function: FunctionId,
    value: NodeId,
) -> Result<NodeId, PassError> {
    debug_assert!(
        function.index() < graph.functions().len(),
        "a function of this graph"
    );
    graph.set_insert_point(place)?;
    Ok(graph.call_function(function, [value.into()])?)
}
