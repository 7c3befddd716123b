//! Images of which each channel is multiplied by a number, and that only a convolution of single pixels
//! reads, as in squeeze and excitation: the weights are multiplied instead, when the program runs. There
//! are as many for each pixel, and they are in the cache.
//!
//! Before: `%2 = mul(%factors, %image)`, `%3 = conv(%2, w0, w1)`; after: `%3 = gated_conv(%image, w0, w1, %factors)`.

use rustc_hash::FxHashMap;

use crate::kernels::blocked::{BLOCK, Form};
use crate::optimise::Uses;
use crate::prepare::conv_shape;
use crate::program::{Binary, Layout, Op, Program, Step, ValueId};

/// Makes one step of each such pair.
pub(crate) fn fuse(program: &mut Program) {
    let uses = Uses::of(program);
    // The product that makes a value, of those that may go.
    let mut products: FxHashMap<ValueId, (ValueId, ValueId)> = FxHashMap::default();
    let mut steps = std::mem::take(&mut program.steps);
    for step in &mut steps {
        if let Some(found) = product(program, step)
            && program.root(step.output) == step.output
            && uses.once(step.output)
        {
            products.insert(step.output, found);
        } else if let Some(&(image, factors)) =
            products.get(&step.inputs.first().copied().unwrap_or(step.output))
            && let Some(op) = gated(program, step)
        {
            step.op = op;
            step.inputs[0] = image;
            step.inputs.push(factors);
        }
    }
    program.steps = steps;
}

/// The image and the factors of its channels, if `step` is nothing but their product in blocks.
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
    let blocks = step.post.is_empty() && [step.output, a, b].into_iter().all(in_blocks);
    match () {
        () if !blocks => None,
        () if is_image(a) && are_factors(b) => Some((a, b)),
        () if is_image(b) && are_factors(a) => Some((b, a)),
        () => None,
    }
}

/// What `step` becomes, if it is a convolution of single pixels whose image may be multiplied.
fn gated(program: &Program, step: &Step) -> Option<Op> {
    let Op::Conv(conv) = &step.op else {
        return None;
    };
    let shape = conv_shape(program, step);
    let [_, rows, columns] = shape.output;
    let pointwise = shape.kernel == [1, 1]
        && conv.stride == [1, 1]
        && conv.groups == 1
        && conv.padding == [[0; 2]; 2];
    let blocks = program.value(step.output).layout == Layout::Blocks
        && Form::of(&shape, program.precision) == Some(Form::Blocks);
    // With fewer pixels than a block has channels, the weights are more work than the image.
    let pays = rows * columns >= BLOCK;
    (pointwise && blocks && pays && step.inputs.len() == 3).then(|| Op::GatedConv(conv.clone()))
}
