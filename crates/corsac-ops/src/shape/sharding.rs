//! Which dimensions of the arguments of a call belong to which of its results: what a call computes
//! of its result where each process has a part of the arguments only.
//!
//! A [`Relation`] of a call says that it may be made on parts: if each process has a part of these
//! arguments along these dimensions and all of the others, it gets that part of the results along
//! those, or a summand of them. Operators without relations are called on whole tensors.

use std::ops::Range;

use smallvec::SmallVec;

use super::call::Call;
use super::error::Failure;
use super::value::{Tensor, Value};
use crate::operators::OperatorId;

pub(super) use super::sharded_moves::{
    expanded, grouped, indexed, joined, moved, narrowed, regrouped, reordered, repeated, selected,
    slices, squeezed, stacked, taken, transposed_attribute, unbound,
};
pub(super) use super::sharded_products::{
    added_products, convolved, looked_up, multiplied, projected, scored, summed_labels,
};
pub(super) use super::sharded_reductions::{
    accumulated, averaged, classified, kept, normalised, reduced, summed, without_axis,
};

/// What a process has of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// All of it.
    Whole,
    /// A summand of it.
    Sum,
    /// A part along this dimension.
    Dim(usize),
}

/// What has to be done besides calling the operator on parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Form {
    /// Nothing.
    #[default]
    Plain,
    /// The result is divided by the number of processes: a mean over a part.
    Mean,
    /// Rows that other processes have are zeros: a lookup in a part of a table.
    Lookup,
    /// The loss over a part of the classes, which exchanges maxima and sums.
    Classes,
    /// Sizes are read, which are those of the whole tensor.
    Sizes,
}

/// Dimensions of tensors in the order of their elements, as one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The number of the tensor; `None` for elements that no result has.
    pub tensor: Option<usize>,
    /// The first of the dimensions.
    pub first: usize,
    /// Their sizes.
    pub sizes: SmallVec<[i64; 4]>,
}

impl Run {
    /// The number of its elements.
    #[must_use]
    pub fn len(&self) -> i64 {
        self.sizes.iter().product()
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What each tensor among the arguments, or the results, is along.
pub type Sides = SmallVec<[Side; 4]>;

/// A way to make a call on parts. Tensors among the arguments are numbered in the order of the
/// rule's parameters, those of the result in the order in which it has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Each process computes the part of the results that belongs to its part of the arguments.
    Along {
        /// The arguments.
        inputs: Sides,
        /// The results.
        outputs: Sides,
        /// What else has to be done.
        form: Form,
    },
    /// The elements of the arguments, one after the other, are those of the results: views that split
    /// or merge dimensions, pieces that are cut from or joined to a tensor. Along other dimensions,
    /// everything is whole.
    Regroup {
        /// The arguments.
        inputs: Vec<Run>,
        /// The results.
        outputs: Vec<Run>,
    },
}

/// Arguments of a call that depend on the size of a dimension of which a process has a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    /// None.
    None,
    /// The sizes of the result.
    OfResult(&'static str),
    /// Sizes of the result from the dimension on that another parameter has.
    From(&'static str, &'static str),
    /// The sizes of the pieces that it is cut into, along the dimension that another parameter has.
    Pieces(&'static str),
    /// A number of groups of the channels of the input.
    Groups(&'static str),
    /// Bounds along a dimension.
    Bounds([&'static str; 2]),
    /// Bounds of slices in square brackets.
    Slices(&'static str),
}

/// The relations of one call, as the function of a rule finds them.
pub(super) struct Relations<'c, 'a> {
    pub(super) call: &'c Call<'a>,
    pub(super) operator: OperatorId,
    pub(super) inputs: Vec<&'c Tensor>,
    pub(super) outputs: Vec<&'c Tensor>,
    /// The rule's function for the result type.
    pub(super) infer: fn(&Call<'_>) -> Result<Value, Failure>,
    pub(super) found: Vec<Relation>,
    /// Whether the elements of the results are those of the argument in the same order.
    pub(super) keeps_order: bool,
}

/// The function of a rule that finds relations; `None` where a size or an option is not known, which
/// leaves those found before.
pub(super) type Shard = fn(&mut Relations<'_, '_>) -> Option<()>;

/// The size of a dimension, where it is a number.
pub(super) fn size(tensor: &Tensor, dim: usize) -> Option<i64> {
    tensor.shape.get(dim)?.known()
}

/// The sizes of a tensor, where they are numbers.
pub(super) fn sizes(tensor: &Tensor) -> Option<SmallVec<[i64; 4]>> {
    tensor.shape.iter().map(super::dim::Dim::known).collect()
}

pub(super) fn count(value: &Value) -> usize {
    let mut count = 0;
    value.for_each_tensor(&mut |_| count += 1);
    count
}

impl Relations<'_, '_> {
    /// The numbers of the tensors given for a parameter.
    pub(super) fn given(&self, name: &str) -> Range<usize> {
        let mut before = 0;
        for (param, arg) in self.call.signature.params.iter().zip(&self.call.args) {
            let own = match param.variadic {
                true => self.call.rest.iter().map(count).sum(),
                false => arg.as_ref().map_or(0, count),
            };
            if param.name == name {
                return before..before + own;
            }
            before += own;
        }
        before..before
    }

    /// The number of the tensor given for a parameter.
    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.given(name).next()
    }

    /// The argument for a parameter that not all rules for the operator have.
    pub(super) fn option(&self, name: &str) -> Option<&Value> {
        self.call.signature.position(name)?;
        self.call.get(name)
    }

    /// Arguments that are these, and whole otherwise.
    pub(super) fn sides(&self, given: impl IntoIterator<Item = (usize, Side)>) -> Sides {
        let mut sides = Sides::from_elem(Side::Whole, self.inputs.len());
        for (input, side) in given {
            sides[input] = side;
        }
        sides
    }

    /// Adds a relation of these arguments, whole ones otherwise, in which all results are the same.
    pub(super) fn along(&mut self, given: impl IntoIterator<Item = (usize, Side)>, output: Side) {
        self.push(self.sides(given), output, Form::Plain);
    }

    /// Adds a relation in which all results are the same.
    pub(super) fn push(&mut self, inputs: Sides, output: Side, form: Form) {
        let outputs = Sides::from_elem(output, self.outputs.len());
        self.found.push(Relation::Along {
            inputs,
            outputs,
            form,
        });
    }

    /// Adds the relation of one dimension of each of two tensors, unless it has one element.
    pub(super) fn pair(&mut self, input: usize, dim: usize, output: usize) -> Option<()> {
        if size(self.inputs[input], dim)? != 1 {
            self.along([(input, Side::Dim(dim))], Side::Dim(output));
        }
        Some(())
    }

    /// Adds the relations of dimensions that the results have at the same places.
    pub(super) fn same(
        &mut self,
        input: usize,
        dims: impl IntoIterator<Item = usize>,
    ) -> Option<()> {
        dims.into_iter()
            .try_for_each(|dim| self.pair(input, dim, dim))
    }

    /// Adds that a call on summands gives summands of the results, where the element type stays.
    pub(super) fn linear(&mut self) {
        let dtype = self.outputs.first().map(|output| output.dtype);
        if self.inputs.iter().any(|input| Some(input.dtype) != dtype) {
            // A sum of rounded summands is no rounded sum.
            return;
        }
        let all = Sides::from_elem(Side::Sum, self.inputs.len());
        self.push(all, Side::Sum, Form::Plain);
    }

    pub(super) fn regroup(&mut self, inputs: Vec<Run>, outputs: Vec<Run>) {
        self.found.push(Relation::Regroup { inputs, outputs });
    }
}

/// Operators that compute element by element, with operands that are broadcast together.
pub(super) fn elementwise(r: &mut Relations<'_, '_>) -> Option<()> {
    let rank = r.outputs.first()?.rank();
    if r.outputs.len() != 1 && !crate::is_operator!(r.operator, "native_dropout") {
        return None;
    }
    for dim in 0..rank {
        let own = size(r.outputs[0], dim)?;
        if own == 1 {
            continue;
        }
        let mut sides = r.sides([]);
        for (side, input) in sides.iter_mut().zip(&r.inputs) {
            let Some(at) = (dim + input.rank()).checked_sub(rank) else {
                continue;
            };
            match size(input, at)? {
                1 => {}
                other if other == own => *side = Side::Dim(at),
                _ => return None,
            }
        }
        r.push(sides, Side::Dim(dim), Form::Plain);
    }
    Some(())
}

/// Sums and differences of two tensors.
pub(super) fn added(r: &mut Relations<'_, '_>) -> Option<()> {
    elementwise(r)?;
    if r.inputs.len() == 2 {
        r.linear();
    }
    Some(())
}

/// Products element by element, among operators of two operands.
pub(super) fn scaled(r: &mut Relations<'_, '_>) -> Option<()> {
    elementwise(r)?;
    if crate::is_operator!(r.operator, "mul") {
        for summand in 0..r.inputs.len() {
            r.along([(summand, Side::Sum)], Side::Sum);
        }
    }
    Some(())
}

/// Quotients.
pub(super) fn divided(r: &mut Relations<'_, '_>) -> Option<()> {
    elementwise(r)?;
    let rounds = r.option("rounding_mode").is_some();
    if !rounds && r.number("input").or(r.number("a")) == Some(0) {
        r.along([(0, Side::Sum)], Side::Sum);
    }
    Some(())
}

/// The negative of each element.
pub(super) fn negated(r: &mut Relations<'_, '_>) -> Option<()> {
    elementwise(r)?;
    r.linear();
    Some(())
}

/// Dropout of elements; that of channels draws a number for all elements of one.
pub(super) fn dropped(r: &mut Relations<'_, '_>) -> Option<()> {
    match crate::is_operator!(r.operator, "dropout") {
        true => elementwise(r),
        false => None,
    }
}
