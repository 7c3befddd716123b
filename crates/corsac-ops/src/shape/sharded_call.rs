//! Calls of a graph with the ways to make them on parts of tensors.

use corsac_ir::{Arg, Graph, NodeId, Op};
use smallvec::SmallVec;

use super::binding::Given;
use super::call::Call;
use super::propagate::Propagator;
use super::sharding::{Relation, Relations, Sizes, count, slices};
use crate::operators::OperatorId;

/// A place among the arguments of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the positional argument.
    pub position: Option<usize>,
    /// The name of the keyword argument.
    pub keyword: Option<Box<str>>,
    /// The items inside it that lead there; 0, 1 and 2 are the start, the stop and the step of a slice.
    pub items: SmallVec<[usize; 2]>,
    /// The tensor of the arguments or of the results, and its dimension, to whose size the number
    /// is proportional.
    pub of: (bool, usize, usize),
}

/// A call of a graph with what its parts are.
#[derive(Debug)]
pub struct ShardedCall {
    /// The operator.
    pub operator: OperatorId,
    /// The tensors among its arguments: the node, and the number of the tensor in its value.
    pub inputs: Vec<(NodeId, usize)>,
    /// The ways to make it on parts.
    pub relations: Vec<Relation>,
    /// Whether the elements of its result are those of its argument in the same order, in another
    /// shape.
    pub keeps_order: bool,
    /// Its arguments that are sizes.
    pub sizes: Vec<Place>,
}

impl Propagator<'_> {
    /// The ways in which `node` may be called on parts, once the types of all values are known;
    /// `None` where nothing is known of it, or it writes to an argument.
    pub fn sharded(&mut self, graph: &Graph, node: NodeId) -> Option<ShardedCall> {
        let view = graph.node(node);
        if !matches!(view.op(), Op::CallFunction | Op::CallMethod) {
            return None;
        }
        let result = self.value(node).clone();
        let (found, call) = self.bind(graph, view).ok()?;
        if found.in_place || call.out.is_some() {
            return None;
        }
        let mut inputs = Vec::new();
        let binding = self.binding(graph, view).ok()?;
        for (_, given) in &binding.given {
            match given {
                Given::Arg(arg) => self.leaves(arg, &mut inputs),
                Given::Rest(rest) => rest.iter().for_each(|arg| self.leaves(arg, &mut inputs)),
                Given::Attribute(_) => return None,
            }
        }
        let mut tensors = Vec::new();
        for (param, arg) in call.signature.params.iter().zip(&call.args) {
            let values = match param.variadic {
                true => call.rest.as_slice(),
                false => arg.as_ref().map_or(&[][..], std::slice::from_ref),
            };
            for value in values {
                value.for_each_tensor(&mut |tensor| tensors.push(tensor));
            }
        }
        let mut outputs = Vec::new();
        result.for_each_tensor(&mut |tensor| outputs.push(tensor));
        let (mut relations, mut keeps_order) = (Vec::new(), false);
        if let Some(shard) = found.entry.rule.shard
            && tensors.len() == inputs.len()
            && !outputs.is_empty()
        {
            let mut own = Relations {
                call: &call,
                operator: found.operator,
                inputs: tensors,
                outputs,
                infer: found.entry.rule.infer,
                found: Vec::new(),
                keeps_order: false,
            };
            let _ = shard(&mut own);
            (relations, keeps_order) = (own.found, own.keeps_order);
        }
        let sizes = self.size_places(&call, found.entry.rule.sizes, view, &binding.given);
        Some(ShardedCall {
            operator: found.operator,
            inputs,
            relations,
            keeps_order,
            sizes: sizes.unwrap_or_default(),
        })
    }

    /// The tensors in an argument.
    fn leaves(&self, arg: &Arg, found: &mut Vec<(NodeId, usize)>) {
        arg.for_each_node(&mut |node| {
            let own = count(self.value(node));
            found.extend((0..own).map(|at| (node, at)));
        });
    }

    /// The arguments of a call that are sizes.
    fn size_places(
        &self,
        call: &Call<'_>,
        sizes: Sizes,
        node: corsac_ir::Node<'_>,
        given: &[(&'static str, Given<'_>)],
    ) -> Option<Vec<Place>> {
        let mut found = Vec::new();
        let place = |arg: &Arg, items: &[usize], of| {
            let position = node.args().iter().position(|own| std::ptr::eq(own, arg));
            let keyword = node.kwargs().iter().find(|(_, own)| std::ptr::eq(own, arg));
            let keyword = keyword.map(|(name, _)| node.graph().text(*name).into());
            Place {
                position,
                keyword,
                items: items.into(),
                of,
            }
        };
        let of = |name: &str| given.iter().find(|(own, _)| *own == name).map(|(_, g)| g);
        let mut listed = |name: &str, first: usize| -> Option<()> {
            match of(name)? {
                Given::Arg(arg) => match arg.as_items() {
                    Some(items) => {
                        for at in 0..items.len() {
                            found.push(place(arg, &[at], (false, 0, first + at)));
                        }
                    }
                    None => found.push(place(arg, &[], (false, 0, first))),
                },
                Given::Rest(args) => match args.as_slice() {
                    [only] if only.as_items().is_some() => {
                        for at in 0..only.as_items()?.len() {
                            found.push(place(only, &[at], (false, 0, first + at)));
                        }
                    }
                    many => {
                        for (at, arg) in many.iter().enumerate() {
                            found.push(place(arg, &[], (false, 0, first + at)));
                        }
                    }
                },
                Given::Attribute(_) => {}
            }
            Some(())
        };
        match sizes {
            Sizes::None => {}
            Sizes::OfResult(name) => listed(name, 0)?,
            Sizes::From(dim, name) => {
                let rank = call.tensor("input").ok()?.rank();
                listed(name, call.axis(dim, rank).ok()??)?;
            }
            Sizes::Pieces(name) => {
                let input = call.tensor("input").ok()?;
                let axis = call.axis("dim", input.rank()).ok()?.unwrap_or(0);
                let Given::Arg(arg) = of(name)? else {
                    return None;
                };
                match arg.as_items() {
                    Some(items) => {
                        for at in 0..items.len() {
                            found.push(place(arg, &[at], (false, at, axis)));
                        }
                    }
                    None => found.push(place(arg, &[], (false, 0, axis))),
                }
            }
            Sizes::Groups(name) => {
                let (input, weight) = (call.tensor("input").ok()?, call.tensor("weight").ok()?);
                let channels = (input.rank() + 1).checked_sub(weight.rank())?;
                if let Some(Given::Arg(arg)) = of(name)
                    && !matches!(arg, Arg::Int(1))
                {
                    found.push(place(arg, &[], (true, 0, channels)));
                }
            }
            Sizes::Bounds(names) => {
                let input = call.tensor("input").ok()?;
                let axis = call.axis("dim", input.rank()).ok()?.unwrap_or(0);
                for name in names {
                    if let Some(Given::Arg(arg)) = of(name) {
                        found.push(place(arg, &[], (true, 0, axis)));
                    }
                }
            }
            Sizes::Slices(name) => {
                let Given::Arg(arg) = of(name)? else {
                    return None;
                };
                let input = call.tensor("a").ok()?;
                for (dim, items) in slices(input, arg)? {
                    for part in [0, 1] {
                        let mut path = items.clone();
                        path.push(part);
                        found.push(place(arg, &path, (true, 0, dim)));
                    }
                }
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests;
