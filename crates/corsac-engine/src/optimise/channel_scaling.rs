//! Fuses a product of each channel with a number into the convolution of single pixels that alone
//! reads it, as in squeeze-and-excitation: the weights are multiplied instead, when the program
//! runs. All pixels share the weights, which stay in the cache.
//!
//! Before: `%2 = mul(%factors, %image)`, `%3 = conv(%2, w0, w1)`; after:
//! `%3 = channel_scaled_conv(%image, w0, w1, %factors)`.

use rustc_hash::FxHashMap;

use super::flow::Flow;
use crate::kernels::blocked::{BLOCK, ConvAlgorithm};
use crate::program::{Binary, ConvShape, Layout, Op, Program, Step, ValueId};

/// Replaces each such product and convolution by one step.
pub(crate) fn fuse(program: &mut Program) {
    let flow = Flow::of(program);
    // Image and factors of products that can be fused, by the value that they compute.
    let mut products: FxHashMap<ValueId, (ValueId, ValueId)> = FxHashMap::default();
    let mut steps = std::mem::take(&mut program.steps);
    for step in &mut steps {
        if let Some(found) = product(program, step)
            && program.root(step.output) == step.output
            && flow.is_read_once(step.output)
        {
            products.insert(step.output, found);
        } else if let Some(first) = step.inputs.first()
            && let Some(&(image, factors)) = products.get(first)
            && let Some(op) = channel_scaled(program, step)
        {
            step.op = op;
            step.inputs[0] = image;
            step.inputs.push(factors);
        }
    }
    program.steps = steps;
}

/// The image and the factors of its channels, if `step` is only their product, in blocks.
fn product(program: &Program, step: &Step) -> Option<(ValueId, ValueId)> {
    let (Op::Binary(Binary::Mul), &[a, b]) = (&step.op, &step.inputs[..]) else {
        return None;
    };
    let in_blocks = |value: ValueId| program.value(value).layout == Layout::Blocks;
    let &[1, channels, ..] = program.shape(step.output) else {
        return None;
    };
    let is_image = |value: ValueId| program.shape(value) == program.shape(step.output);
    let are_factors = |value: ValueId| {
        program.shape(value) == [1, channels, 1, 1] && !is_image(value) && !program.is_weight(value)
    };
    let blocks = step.epilogues.is_empty() && [step.output, a, b].into_iter().all(in_blocks);
    [(a, b), (b, a)]
        .into_iter()
        .find(|&(image, factors)| blocks && is_image(image) && are_factors(factors))
}

/// The operator that replaces `step`, if it is a convolution of single pixels that can multiply its
/// weights.
fn channel_scaled(program: &Program, step: &Step) -> Option<Op> {
    let Op::Conv(conv) = &step.op else {
        return None;
    };
    let shape = ConvShape::of(program, step, conv);
    let [_, rows, columns] = shape.output;
    let pointwise = shape.is_pointwise() && conv.groups == 1;
    let blocks = program.value(step.output).layout == Layout::Blocks
        && ConvAlgorithm::of(&shape, program.products(step)) == Some(ConvAlgorithm::Blocks);
    // With fewer pixels than a block has channels, scaling the weights is more work than scaling
    // the image.
    let pays = rows * columns >= BLOCK;
    (pointwise && blocks && pays && step.inputs.len() == 3)
        .then(|| Op::ChannelScaledConv(conv.clone()))
}
