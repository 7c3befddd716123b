//! Conditions on sizes: nodes of a graph that have to be true.

use corsac_ir::{Arg, Graph, NodeId, Op};
use corsac_ops::shape::{Propagator, Value};

use super::error::ModelError;
use super::signature::Signature;

/// Deepest nesting of a condition in a message.
const DEPTH: usize = 8;

/// The nodes with these names.
pub(super) fn condition_nodes(graph: &Graph, names: &[String]) -> Result<Vec<NodeId>, ModelError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let nodes = graph.nodes().map(|id| (graph.node(id).name(), id));
    let nodes: rustc_hash::FxHashMap<&str, NodeId> = nodes.collect();
    let node = |name: &String| {
        let node = nodes.get(&**name).copied();
        node.ok_or_else(|| ModelError::graph(name, "it is a condition, and is not in the graph"))
    };
    names.iter().map(node).collect()
}

/// Checks that `nodes`, whose types are known, are true.
pub(super) fn check_conditions(
    graph: &Graph,
    types: &Propagator<'_>,
    nodes: &[NodeId],
    sizes: (&Signature, &[usize]),
) -> Result<(), ModelError> {
    if let Some(error) = failed_condition(graph, types, nodes, sizes) {
        return Err(error);
    }
    let unknown = |&&node: &&NodeId| !matches!(types.value(node), Value::Bool(_));
    nodes.iter().find(unknown).map_or(Ok(()), |&node| {
        let reason = format!("it is a condition, and is {}", types.value(node));
        Err(ModelError::graph(graph.node(node).name(), reason))
    })
}

/// The error for the first of `nodes` that is false; others may not be known.
pub(super) fn failed_condition(
    graph: &Graph,
    types: &Propagator<'_>,
    nodes: &[NodeId],
    (signature, values): (&Signature, &[usize]),
) -> Option<ModelError> {
    let is_false = |&&node: &&NodeId| matches!(types.value(node), Value::Bool(false));
    let node = nodes.iter().find(is_false)?;
    Some(ModelError::Condition {
        sizes: signature.placed(values),
        condition: text_of(graph, *node, DEPTH).chars().take(200).collect(),
    })
}

/// A condition as Python writes it: `x.shape[1] <= 1024`.
fn text_of(graph: &Graph, id: NodeId, depth: usize) -> String {
    let node = graph.node(id);
    let argument = |at: usize| match node.args().get(at) {
        Some(Arg::Node(input)) => {
            let text = text_of(graph, *input, depth - 1);
            match text.contains(' ') {
                true => format!("({text})"),
                false => text,
            }
        }
        Some(Arg::Int(number)) => number.to_string(),
        _ => "…".to_owned(),
    };
    let sign = match node.target_name() {
        _ if depth == 0 => "",
        "operator.lt" => "<",
        "operator.le" => "<=",
        "operator.eq" => "==",
        "operator.ne" => "!=",
        "operator.gt" => ">",
        "operator.ge" => ">=",
        "operator.add" => "+",
        "operator.sub" => "-",
        "operator.mul" => "*",
        "operator.floordiv" => "//",
        "operator.mod" => "%",
        "builtins.len" => return format!("len({})", argument(0)),
        "size" if node.op() == Op::CallMethod => {
            return format!("{}.shape[{}]", argument(0), argument(1));
        }
        _ => "",
    };
    match sign {
        "" if node.op() == Op::Placeholder => node.target_name().to_owned(),
        "" => node.name().to_owned(),
        sign => format!("{} {sign} {}", argument(0), argument(1)),
    }
}
