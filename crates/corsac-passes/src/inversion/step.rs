//! The inverse of one call.

use corsac_ir::{Arg, Graph, NodeId, Op, SecondaryMap};
use corsac_ops::{BinaryInverse, OperatorId};

use crate::report::Refusal;

/// A call on the way from the input to the result, with its inverse.
pub(super) struct Step<'g> {
    /// The operand on the way to the input.
    pub(super) operand: NodeId,
    /// The computation of the operand from the result.
    pub(super) undo: Undo<'g>,
}

/// The computation of an operand from the result of a call.
pub(super) enum Undo<'g> {
    /// Functions of one tensor, one after the other.
    Functions(&'static [&'static str]),
    /// A function of the result and these arguments.
    With(&'static str, Vec<&'g Arg>),
    /// A permutation of the dimensions.
    Permute(Vec<i64>),
    /// A function of the result and the other operand.
    Binary(BinaryInverse, &'g Arg),
}

const SEVERAL_OPERANDS: Refusal = Refusal::because("several of its operands depend on the input");

/// The refusal of a node that calls no function or method.
pub(super) fn of_opcode(op: Op) -> Refusal {
    format!("what {op} does is not known to have an inverse").into()
}

/// The refusal of a call whose inverse is not known.
pub(super) fn unknown(graph: &Graph, node: NodeId) -> Refusal {
    let name = corsac_ir::own_name(graph.node(node).target_name());
    format!("the inverse of {name} is not known").into()
}

/// The inverse of `node`, where `dependent` marks the values that depend on the input.
pub(super) fn step<'g>(
    graph: &'g Graph,
    node: NodeId,
    dependent: &SecondaryMap<NodeId, bool>,
) -> Result<Step<'g>, Refusal> {
    let view = graph.node(node);
    if !matches!(view.op(), Op::CallFunction | Op::CallMethod) {
        return Err(of_opcode(view.op()));
    }
    let unknown = || unknown(graph, node);
    let operator = OperatorId::of(view.op(), view.target_name()).ok_or_else(unknown)?;
    let (name, row) = (operator.name(), operator.row());
    if !view.kwargs().is_empty() {
        return Err(format!("{name} is called with keyword arguments").into());
    }
    let on_the_way = |arg: &Arg| arg.as_node().is_some_and(|node| dependent[node]);
    let args = view.args();
    let mut ways = args.iter().enumerate().filter(|(_, arg)| on_the_way(arg));
    let (Some((place, Arg::Node(operand))), None) = (ways.next(), ways.next()) else {
        return Err(SEVERAL_OPERANDS);
    };
    // Containers may hold operands that depend on the input too.
    if graph.inputs(node).filter(|&used| dependent[used]).count() != 1 {
        return Err(SEVERAL_OPERANDS);
    }
    let others = args.iter().enumerate().filter(|(at, _)| *at != place);
    let others: Vec<&Arg> = others.map(|(_, arg)| arg).collect();
    let undo = match (name, others.as_slice()) {
        (_, []) if !row.inverse.is_empty() => Undo::Functions(row.inverse),
        ("transpose", [_, _]) if place == 0 => Undo::With("torch.transpose", others),
        ("flip", [_]) if place == 0 => Undo::With("torch.flip", others),
        ("permute", dims) if place == 0 => {
            Undo::Permute(inverse_permutation(dims).ok_or_else(unknown)?)
        }
        (_, [other]) => {
            let inverse = row.operand_inverses.get(place).copied().flatten();
            let inverse = inverse.ok_or_else(unknown)?;
            Undo::Binary(inverse, other)
        }
        _ => return Err(unknown()),
    };
    let operand = *operand;
    Ok(Step { operand, undo })
}

/// The inverse of a permutation of literal dimensions, which are given one by one or as a list.
pub(super) fn inverse_permutation(dims: &[&Arg]) -> Option<Vec<i64>> {
    let dims: Vec<&Arg> = match dims {
        [list] if list.as_items().is_some() => list.as_items()?.iter().collect(),
        dims => dims.to_vec(),
    };
    let rank = i64::try_from(dims.len()).ok()?;
    let order = dims.iter().map(|dim| match dim {
        Arg::Int(dim) if (-rank..rank).contains(dim) => Some(dim.rem_euclid(rank)),
        _ => None,
    });
    let order = order.collect::<Option<Vec<i64>>>()?;
    let place = |dim| order.iter().position(|&d| d == dim);
    let back = (0..rank).map(|dim| i64::try_from(place(dim)?).ok());
    back.collect()
}
