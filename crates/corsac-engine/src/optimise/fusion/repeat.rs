//! Steps that are computed anew by each reader, in place of being stored: that reads no more than reading their result.

use super::{Kind, rows_fit, rows_of};
use crate::optimise::flow::Flow;
use crate::program::fused::Function;
use crate::program::{Binary, Element, Program, Step, ValueId};

/// Whether step `at` is a sum or product of a tensor, which is stored anyway, and of numbers for rows or one for all,
/// and all its readers can be fused.
pub(super) fn is_cheap(program: &Program, flow: &Flow, at: usize) -> bool {
    let step = &program.steps[at];
    let output = program.root(step.output);
    let arithmetic =
        [Binary::Add, Binary::Sub, Binary::Mul].map(|own| Kind::Each(Function::Binary(own)));
    program.element(output) == Element::F32
        && step.epilogues.is_empty()
        && !flow.is_returned(output)
        && Kind::of(program, step).is_some_and(|kind| arithmetic.contains(&kind))
        && reads_one_tensor(program, flow, step)
        && flow
            .readers(output)
            .iter()
            .all(|&(reader, _)| can_be_fused(program, &program.steps[reader]))
}

/// Whether one of the operands is a tensor that is stored, and the others are smaller.
fn reads_one_tensor(program: &Program, flow: &Flow, step: &Step) -> bool {
    let result = program.shape(step.output);
    let len: usize = result.iter().product();
    let is_small = |value: ValueId| {
        program.value(value).len() == 1 || rows_of(program.shape(value), result).is_some()
    };
    let mut whole = step
        .inputs
        .iter()
        .copied()
        .filter(|&value| !is_small(value));
    let (Some(tensor), None) = (whole.next(), whole.next()) else {
        return false;
    };
    let root = program.root(tensor);
    let maker = flow
        .maker(program, tensor)
        .map(|maker| &program.steps[maker]);
    let is_stored = flow.is_returned(root)
        || flow.readers(root).len() > 1
        || maker.is_none_or(|maker| Kind::of(program, maker).is_none());
    program.value(tensor).len() == len && program.element(tensor) == Element::F32 && is_stored
}

/// Whether a step can be part of a group with others.
fn can_be_fused(program: &Program, step: &Step) -> bool {
    match Kind::of(program, step) {
        Some(Kind::Rows(_, row)) => rows_fit(program.value(step.inputs[0]).len(), row),
        Some(Kind::Each(_) | Kind::WithNumber(..)) => true,
        None => false,
    }
}
