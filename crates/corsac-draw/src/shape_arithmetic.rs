//! Nodes that compute sizes and no tensors.

use corsac_ir::{Graph, HostText, NodeId, Op};
use rustc_hash::FxHashSet;

/// Methods and functions that read sizes of a tensor.
const METHODS: [&str; 5] = ["size", "dim", "numel", "ndimension", "nelement"];
const FUNCTIONS: [&str; 5] = [
    "torch.numel",
    "torch.ops.aten.sym_size.int",
    "torch.ops.aten.sym_numel.default",
    "torch.ops.aten.sym_stride.int",
    "builtins.len",
];
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
        let is_one = match node.op() {
            Op::CallMethod => METHODS.contains(&target),
            Op::CallFunction => {
                FUNCTIONS.contains(&target)
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
