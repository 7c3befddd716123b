//! Nodes that compute sizes and no tensors.

use corsac_ir::{Graph, HostText, NodeId, Op};
use corsac_ops::{Numbers, OperatorId};
use rustc_hash::FxHashSet;

/// Attributes that are sizes of a tensor.
const ATTRIBUTES: [&str; 2] = ["shape", "ndim"];
/// Functions of numbers, which count where their arguments are sizes.
const ARITHMETIC: [&str; 5] = [
    "operator.",
    "_operator.",
    "math.",
    "builtins.",
    "torch.sym_",
];

/// The nodes of `graph` that read sizes, or compute numbers of these alone. Nodes that use them
/// together with tensors are not among them.
pub(crate) fn shape_arithmetic(graph: &Graph, host: &dyn HostText) -> FxHashSet<NodeId> {
    let mut found = FxHashSet::default();
    for id in graph.nodes() {
        let node = graph.node(id);
        let target = node.target_name();
        let operator = OperatorId::of(node.op(), target);
        let numbers = operator.and_then(|operator| operator.row().numbers);
        let is_one = match node.op() {
            Op::CallMethod => numbers == Some(Numbers::Sizes),
            Op::CallFunction => {
                numbers == Some(Numbers::Sizes)
                    || target == "builtins.len"
                    || (target == "builtins.getattr" && reads_sizes(graph, id, host))
                    || (ARITHMETIC.iter().any(|start| target.starts_with(start))
                        && graph.inputs(id).next().is_some()
                        && graph.inputs(id).all(|input| found.contains(&input)))
            }
            Op::Placeholder | Op::GetAttr | Op::CallModule | Op::Output => false,
        };
        if is_one {
            found.insert(id);
        }
    }
    found
}

fn reads_sizes(graph: &Graph, id: NodeId, host: &dyn HostText) -> bool {
    let arguments = graph.format_arguments(id, host);
    let name = arguments.get(1).map(|(_, value)| value.as_str());
    name.is_some_and(|name| ATTRIBUTES.contains(&name.trim_matches(['\'', '"'])))
}
