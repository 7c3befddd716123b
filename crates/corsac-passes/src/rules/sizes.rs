//! Sizes of tensors that are values of nodes: one number, or all sizes at once.

use corsac_ir::{Arg, Graph, NodeId, Op};

/// Maximum depth of arithmetic on sizes to follow.
const DEPTH: u32 = 16;

/// The sizes that are the value of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sizes {
    /// One number: `x.size(0)`, `x.shape[1] * 2`.
    One,
    /// Several: `x.shape`, `x.size()`, `x.shape[1:]`.
    All,
}

impl Sizes {
    /// The kind of sizes that the value of `node` is, where it is known to be sizes. A value from
    /// outside may be anything: `x.view(n)` is a view of another type where `n` is a type.
    pub(crate) fn of_node(graph: &Graph, node: NodeId) -> Option<Self> {
        of_node(graph, node, DEPTH)
    }
}

fn of_node(graph: &Graph, node: NodeId, depth: u32) -> Option<Sizes> {
    if !graph.contains(node) {
        return None;
    }
    let depth = depth.checked_sub(1)?;
    let node = graph.node(node);
    let (name, args) = (node.target_name(), node.args());
    match node.op() {
        Op::CallMethod => match name {
            "size" if args.len() == 1 && node.kwargs().is_empty() => Some(Sizes::All),
            "size" | "numel" | "nelement" | "dim" | "ndimension" | "__len__" => Some(Sizes::One),
            _ => None,
        },
        Op::CallFunction => match (name, args) {
            ("builtins.getattr", [_, Arg::Str(name), ..]) => match graph.text(*name) {
                "shape" => Some(Sizes::All),
                "ndim" => Some(Sizes::One),
                _ => None,
            },
            ("torch.Size", _) => Some(Sizes::All),
            (
                "builtins.len"
                | "torch.numel"
                | "torch.ops.aten.sym_size.int"
                | "torch.ops.aten.sym_numel.default",
                _,
            ) => Some(Sizes::One),
            ("operator.getitem" | "_operator.getitem", [of, index]) => {
                let of = of_node(graph, of.as_node()?, depth)?;
                match (of, index) {
                    (Sizes::All, Arg::Int(_)) => Some(Sizes::One),
                    (Sizes::All, Arg::Slice(_)) => Some(Sizes::All),
                    _ => None,
                }
            }
            (
                "operator.add" | "operator.sub" | "operator.mul" | "operator.floordiv"
                | "operator.mod" | "operator.neg" | "_operator.add" | "_operator.sub"
                | "_operator.mul" | "_operator.floordiv" | "_operator.mod" | "_operator.neg"
                | "builtins.int" | "builtins.max" | "builtins.min",
                [_, ..],
            ) => {
                let numbers = args.iter().all(|arg| match arg {
                    Arg::Int(_) => true,
                    Arg::Node(node) => of_node(graph, *node, depth) == Some(Sizes::One),
                    _ => false,
                });
                numbers.then_some(Sizes::One)
            }
            _ => None,
        },
        Op::Placeholder | Op::GetAttr | Op::CallModule | Op::Output => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_from_what_may_be_a_type() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let getattr = graph.function("builtins.getattr");
        let [shape, dtype] = ["shape", "dtype"].map(|name| {
            let name = Arg::Str(graph.intern(name));
            graph.call_function(getattr, [x.into(), name]).unwrap()
        });
        let all = graph.call_method("size", [x.into()]).unwrap();
        let one = graph.call_method("size", [x.into(), 0.into()]).unwrap();
        let getitem = graph.function("operator.getitem");
        let item = graph
            .call_function(getitem, [shape.into(), 0.into()])
            .unwrap();
        let mul = graph.function("operator.mul");
        let product = graph.call_function(mul, [one.into(), item.into()]).unwrap();
        let unknown = graph.call_function(mul, [one.into(), x.into()]).unwrap();
        let of = |node| Sizes::of_node(&graph, node);
        for node in [shape, all] {
            assert_eq!(of(node), Some(Sizes::All));
        }
        for node in [one, item, product] {
            assert_eq!(of(node), Some(Sizes::One));
        }
        for node in [x, dtype, unknown] {
            assert_eq!(of(node), None);
        }
    }
}
