//! Puts a part back in the place of its call.

use super::error::SplitError;
use crate::arg::Arg;
use crate::entity::{NodeId, SecondaryMap};
use crate::graph::{Graph, InsertPoint, Translation};
use crate::op::Op;

/// Replaces `call`, a node with as many positional arguments as `part` has inputs, by the nodes of
/// `part`, before it. The value that the part returns takes the place of the call, and its items
/// that of the `operator.getitem` nodes that unpack it.
///
/// Targets stay as they are in the part. `translation` maps host values of the part to those of
/// `graph`.
///
/// # Errors
/// [`SplitError::Arguments`] if inputs and arguments do not fit, [`SplitError::Missing`] if the
/// part uses a value before it is defined.
pub fn inline(
    graph: &mut Graph,
    call: NodeId,
    part: &Graph,
    translation: &mut Translation,
) -> Result<(), SplitError> {
    graph.check_live(call)?;
    let inputs = part.find_nodes(Op::Placeholder, None);
    let view = graph.node(call);
    if view.args().len() != inputs.len() {
        return Err(SplitError::Arguments {
            call: view.name().to_owned(),
            expected: inputs.len(),
            got: view.args().len(),
        });
    }
    let mut values: SecondaryMap<NodeId, Option<Arg>> = SecondaryMap::new();
    for (&input, arg) in inputs.iter().zip(view.args()) {
        values.set(input, Some(arg.clone()));
    }
    let value = |values: &SecondaryMap<NodeId, Option<Arg>>, node: NodeId, user: NodeId| {
        let name = |node: NodeId| part.node(node).name().to_owned();
        values[node].clone().ok_or_else(|| SplitError::Missing {
            node,
            name: name(node),
            user: Some(name(user)),
        })
    };
    let before = graph.set_insert_point(InsertPoint::Before(call))?;
    let mut result = Arg::None;
    for node in part.nodes() {
        let data = part.node(node);
        if data.op() == Op::Output {
            let returned = data.args().first().unwrap_or(&Arg::None);
            result = translation.arg(part, graph, returned, &mut |n| value(&values, n, node))?;
            break;
        }
        if values[node].is_some() {
            continue;
        }
        let copy = graph.copy_node(part, node, translation, &mut |n| value(&values, n, node))?;
        values.set(node, Some(Arg::Node(copy)));
    }
    graph.restore_insert_point(before);
    let items: Vec<NodeId> = graph.users(call).collect();
    for item in items {
        let Some(taken) = item_taken(graph, item, call, &result) else {
            continue;
        };
        replace(graph, item, &taken)?;
        graph.erase(item)?;
    }
    replace(graph, call, &result)?;
    graph.erase(call)?;
    Ok(())
}

/// The value that `item` takes out of the result of `call`, if it is such a `getitem`.
fn item_taken(graph: &Graph, item: NodeId, call: NodeId, result: &Arg) -> Option<Arg> {
    let node = graph.node(item);
    let [taken_from, Arg::Int(index)] = node.args() else {
        return None;
    };
    if !node.calls("operator.getitem") || taken_from.as_node() != Some(call) {
        return None;
    }
    let index = usize::try_from(*index).ok()?;
    result.as_items()?.get(index).cloned()
}

fn replace(graph: &mut Graph, old: NodeId, new: &Arg) -> Result<(), SplitError> {
    let users: Vec<NodeId> = graph.users(old).collect();
    for user in users {
        graph.replace_input_by(user, old, new)?;
    }
    Ok(())
}
