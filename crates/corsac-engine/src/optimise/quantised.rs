//! Products of quantised numbers: what is rounded to levels before a layer with a weight of integers is
//! multiplied as bytes.

use super::flow::Flow;
use crate::program::{Op, Program, Rounding, Sharing, Source, Unary, ValueId};

/// Makes layers over rounded numbers read the numbers, and round them as they multiply them.
pub(super) fn fuse(program: &mut Program) {
    let flow = Flow::of(program);
    for at in 0..program.steps.len() {
        let step = &program.steps[at];
        let [x, weight, ..] = step.inputs[..] else {
            continue;
        };
        if step.op != Op::Linear || !has_scales_of_outputs(program, weight) {
            continue;
        }
        let bias = step.inputs.get(2);
        if bias.is_some_and(|&bias| !program.is_weight(bias)) {
            continue;
        }
        let Some((numbers, rounding)) = rounded(program, &flow, x) else {
            continue;
        };
        let numbers = reshaped(program, numbers, x);
        let step = &mut program.steps[at];
        step.op = Op::QuantisedLinear(rounding);
        step.inputs[0] = numbers;
    }
}

/// Whether a weight is one of integers with a scale for each output, or one scale.
fn has_scales_of_outputs(program: &Program, weight: ValueId) -> bool {
    let whole = program.shape(program.root(weight)) == program.shape(weight);
    let format = program
        .dequantised(weight)
        .map(|(format, _)| format.sharing);
    whole && matches!(format, Some(Sharing::Along(0) | Sharing::Tensor(..)))
}

/// The numbers that `value` is rounded from, to levels of bytes.
fn rounded(program: &Program, flow: &Flow, value: ValueId) -> Option<(ValueId, Rounding)> {
    let maker = |value| Some(&program.steps[flow.maker(program, value)?]);
    let dequantise = maker(value)?;
    let (levels, zero, scale) = match dequantise.op {
        Op::RoundRows(bounds @ ([-128, 127] | [0, 255])) => {
            let width = program.shape(dequantise.output).last();
            let same = width == program.shape(value).last();
            let signed = bounds[0] < 0;
            return same.then_some((dequantise.inputs[0], Rounding::ByRow { signed }));
        }
        Op::Unary(Unary::Dequantise { zero, scale }) => (dequantise.inputs[0], zero, scale),
        _ => return None,
    };
    let quantise = maker(levels)?;
    match quantise.op {
        Op::Unary(Unary::Quantise(levels)) if levels.zero == zero && levels.are_bytes() => {
            Some((quantise.inputs[0], Rounding::Levels(levels, scale)))
        }
        _ => None,
    }
}

/// `value` in the shape of `like`, which has as many elements.
fn reshaped(program: &mut Program, value: ValueId, like: ValueId) -> ValueId {
    if program.shape(value) == program.shape(like) {
        return value;
    }
    let (element, shape) = (program.element(value), program.shape(like).to_vec());
    let root = program.root(value);
    program.add_typed(element, shape, Source::Alias(root))
}
