//! Nodes whose arguments are no tensors.

use corsac_ir::{Arg, EntityId, Graph, Node, NodeId, Op};

/// Whether the arguments of nodes are numbers, sizes and the like, as far as the graph shows.
pub(crate) struct Numbers(Vec<bool>);

impl Numbers {
    /// Those of a graph whose nodes come after their inputs.
    pub(crate) fn of_graph(graph: &Graph) -> Self {
        let mut numbers = Self(vec![false; graph.id_bound()]);
        for node in graph.nodes() {
            numbers.0[node.index()] = numbers.decide(graph.node(node));
        }
        numbers
    }

    /// Whether it is known that no argument of `node` is a tensor.
    pub(crate) fn only(&self, node: NodeId) -> bool {
        self.0[node.index()]
    }

    fn decide(&self, view: Node<'_>) -> bool {
        match view.op() {
            Op::Placeholder | Op::GetAttr | Op::CallModule => false,
            Op::CallFunction if view.calls("operator.getitem") => {
                let source = view.args().first().and_then(Arg::as_node);
                source.is_none_or(|source| self.only(source))
            }
            Op::CallFunction if reads_size(view) => true,
            Op::CallMethod if view.target_name() == "size" => true,
            Op::CallFunction | Op::CallMethod | Op::Output => {
                !view.args().is_empty() && view.args().iter().all(|arg| self.is_number(arg))
            }
        }
    }

    fn is_number(&self, arg: &Arg) -> bool {
        match arg {
            Arg::Int(_) | Arg::Bool(_) | Arg::BigInt(_) => true,
            Arg::Node(node) => self.only(*node),
            Arg::List(items) => {
                let mut nodes = items.iter().filter_map(Arg::as_node);
                nodes.all(|node| self.only(node))
            }
            Arg::None
            | Arg::Ellipsis
            | Arg::Float(_)
            | Arg::Complex(_)
            | Arg::Str(_)
            | Arg::Bytes(_)
            | Arg::DType(_)
            | Arg::Device(_)
            | Arg::Layout(_)
            | Arg::MemoryFormat(_)
            | Arg::Tuple(_)
            | Arg::Dict(_)
            | Arg::Slice(_)
            | Arg::Range(_)
            | Arg::NamedTuple(_)
            | Arg::Opaque(_) => false,
        }
    }
}

/// Whether a node reads the rank or shape of a value.
fn reads_size(view: Node<'_>) -> bool {
    view.calls("builtins.getattr")
        && matches!(view.args(), [_, Arg::Str(name), ..]
            if matches!(view.graph().text(*name), "ndim" | "shape"))
}
