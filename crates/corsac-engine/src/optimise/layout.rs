//! Assigns the blocked layout to images.
//!
//! Convolutions read and write [blocks of channels](crate::kernels::blocked) if their weights are
//! known before the program runs. The images after them stay in blocks as long as there is a kernel
//! for the next operator: activations, sums, pools, concatenation, products with a number for each
//! channel. Elsewhere images are reordered, once for each value; where the graph permutes an image
//! to have its channels last, or back, the reordering replaces the permutation.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::kernels::blocked::{BLOCK, ConvAlgorithm};
use crate::program::Order;
use crate::program::{
    Binary, ConvShape, Element, Epilogue, Layout, Op, Program, Reduction, Step, Unary, ValueId,
};

/// Puts images in blocks where the convolutions of `program` profit.
pub(crate) fn assign(program: &mut Program) {
    let steps = std::mem::take(&mut program.steps);
    let mut blocking = Blocking {
        program,
        steps: Vec::with_capacity(steps.len()),
        in_blocks: FxHashMap::default(),
        in_rows: FxHashMap::default(),
        by_pixel: FxHashMap::default(),
    };
    for step in steps {
        blocking.step(step);
    }
    for output in blocking.program.results() {
        blocking.rows(output);
    }
    let steps = blocking.steps;
    program.steps = steps;
}

struct Blocking<'p> {
    program: &'p mut Program,
    steps: Vec<Step>,
    /// The value in blocks, by the value of the program.
    in_blocks: FxHashMap<ValueId, ValueId>,
    /// The step that reorders a value to rows, by values that are computed in blocks: added at the
    /// first use of the rows.
    in_rows: FxHashMap<ValueId, Step>,
    /// The image before a permutation to planes of channels, by the permuted image.
    by_pixel: FxHashMap<ValueId, ValueId>,
}

/// Batch, channels, rows, columns.
type ImageShape = [usize; 4];

impl Blocking<'_> {
    fn shape(&self, value: ValueId) -> Option<ImageShape> {
        let shape = self.program.shape(value).try_into().ok()?;
        let info = self.program.value(value);
        (!info.is_empty() && info.element == Element::F32).then_some(shape)
    }

    /// The value under which an image is registered: the root of an alias if both have one shape.
    fn key(&self, value: ValueId) -> ValueId {
        let root = self.program.root(value);
        match self.program.shape(root) == self.program.shape(value) {
            true => root,
            false => value,
        }
    }

    fn is_in_blocks(&self, value: ValueId) -> bool {
        self.in_blocks.contains_key(&self.key(value))
    }

    /// Adds the step that reorders `value` to rows, if it has not been added.
    fn rows(&mut self, value: ValueId) {
        let root = self.program.root(value);
        if let Some(step) = self.in_rows.remove(&root) {
            self.steps.push(step);
        }
    }

    /// The image `value` in blocks, reordered if it is not yet.
    fn blocks(&mut self, value: ValueId, step: &Step) -> ValueId {
        let key = self.key(value);
        if let Some(&blocks) = self.in_blocks.get(&key) {
            return blocks;
        }
        let mut shape = self.program.shape(key).to_vec();
        // Numbers for channels may have no batch dimension.
        while shape.len() < 4 {
            shape.insert(0, 1);
        }
        let (from, order) = match self.by_pixel.get(&key) {
            Some(&before) => (before, Order::Pixels),
            None => (value, Order::Planes),
        };
        self.rows(from);
        let blocks = self.program.add_blocks(shape);
        self.steps.push(Step {
            op: Op::ToBlocks(order),
            inputs: SmallVec::from_slice(&[from]),
            epilogues: SmallVec::new(),
            output: blocks,
            node: step.node,
        });
        self.in_blocks.insert(key, blocks);
        blocks
    }

    fn step(&mut self, step: Step) {
        if self.quantised(&step) {
            return;
        }
        let blocked = match self.program.shape(step.output).len() {
            4 => self.fits(&step),
            _ => false,
        };
        if blocked {
            self.put_in_blocks(step);
        } else if !(self.mean(&step) || self.permute(&step)) {
            let reads: SmallVec<[ValueId; 4]> = step.reads().collect();
            for value in reads {
                self.rows(value);
            }
            self.steps.push(step);
        }
    }

    /// Adds a step that reads or writes images of bytes. Returns false for others.
    fn quantised(&mut self, step: &Step) -> bool {
        let by_pixel = |value: ValueId| self.program.value(value).layout == Layout::Pixels;
        let output = step.output;
        let mut step = step.clone();
        match &step.op {
            // From blocks, if the image is there.
            Op::ToLevels(_) if by_pixel(output) && !by_pixel(step.inputs[0]) => {
                let image = step.inputs[0];
                match self.in_blocks.get(&self.key(image)) {
                    Some(&blocks) => step.inputs[0] = blocks,
                    None => self.rows(image),
                }
                self.steps.push(step);
            }
            _ if by_pixel(output) => self.steps.push(step),
            Op::FromLevels(..) | Op::QuantisedConv(..) if by_pixel(step.inputs[0]) => {
                for at in 0..step.epilogues.len() {
                    if let Epilogue::Add(value) = step.epilogues[at] {
                        step.epilogues[at] = Epilogue::Add(self.blocks(value, &step));
                    }
                }
                let shape = self.program.shape(output).to_vec();
                step.output = self.program.add_blocks(shape);
                self.reorder_later(step.output, output, &step);
                self.steps.push(step);
            }
            _ => return false,
        }
        true
    }

    /// Whether `step` can be computed in blocks.
    fn fits(&self, step: &Step) -> bool {
        let Some(shape) = self.shape(step.output) else {
            return false;
        };
        // Constants have no inputs.
        let Some(&first) = step.inputs.first() else {
            return false;
        };
        let same = |&value: &ValueId| self.shape(value) == Some(shape);
        // Padding channels of the last block must stay finite: they are multiplied by zero weights.
        let fills = shape[1] % BLOCK != 0;
        let epilogues = step.epilogues.iter().all(|epilogue| match epilogue {
            Epilogue::Add(value) => same(value),
            Epilogue::Unary(function) => !fills || function.is_finite_at_zero(),
        });
        let follows = || self.is_in_blocks(first);
        epilogues
            && match &step.op {
                Op::Conv(conv) => {
                    let weights = step.inputs[1..]
                        .iter()
                        .all(|&value| self.program.is_weight(value));
                    let known = ConvAlgorithm::of(
                        &ConvShape::of(self.program, step, conv),
                        self.program.products(step),
                    )
                    .is_some();
                    weights && known && self.shape(first).is_some()
                }
                Op::Unary(function) => follows() && (!fills || function.is_finite_at_zero()),
                Op::ChannelAffine | Op::AdaptiveAvgPool | Op::MaxPool(_) | Op::AvgPool { .. } => {
                    follows()
                }
                Op::Binary(function) => {
                    let [a, b] = step.inputs[..] else {
                        return false;
                    };
                    let known = !fills || *function != Binary::Div;
                    let (whole_a, whole_b) = (same(&a), same(&b));
                    let other_fits = match (whole_a, whole_b) {
                        (true, true) => true,
                        (true, false) => self.is_for_channels(b, shape),
                        (false, true) => self.is_for_channels(a, shape),
                        (false, false) => false,
                    };
                    let image_in_blocks =
                        whole_a && self.is_in_blocks(a) || whole_b && self.is_in_blocks(b);
                    known && other_fits && image_in_blocks
                }
                Op::Concat { dim: 1 } => {
                    let whole = |&value: &ValueId| {
                        self.shape(value).is_some_and(|shape| shape[1] % BLOCK == 0)
                    };
                    let but_last = &step.inputs[..step.inputs.len() - 1];
                    but_last.iter().all(whole)
                        && step.inputs.iter().all(|&value| self.shape(value).is_some())
                        && step.inputs.iter().any(|&value| self.is_in_blocks(value))
                }
                _ => false,
            }
    }

    /// Whether `value` has one number for each channel, for each image or for all.
    fn is_for_channels(&self, value: ValueId, [batch, channels, ..]: ImageShape) -> bool {
        match *self.program.shape(value) {
            [own, of, 1, 1] => of == channels && (own == batch || own == 1),
            [of, 1, 1] => of == channels,
            _ => false,
        }
    }

    fn put_in_blocks(&mut self, mut step: Step) {
        let images = match &step.op {
            Op::Conv(conv) => {
                let shape = ConvShape::of(self.program, &step, conv);
                match ConvAlgorithm::of(&shape, self.program.products(&step)) {
                    Some(ConvAlgorithm::Planes) => 0,
                    _ => 1,
                }
            }
            Op::ChannelAffine => 1,
            _ => step.inputs.len(),
        };
        for at in 0..step.inputs.len() {
            let value = step.inputs[at];
            if at < images {
                step.inputs[at] = self.blocks(value, &step);
            } else {
                self.rows(value);
            }
        }
        for at in 0..step.epilogues.len() {
            if let Epilogue::Add(value) = step.epilogues[at] {
                step.epilogues[at] = Epilogue::Add(self.blocks(value, &step));
            }
        }
        let rows = step.output;
        let shape = self.program.shape(rows).to_vec();
        let blocks = self.program.add_blocks(shape);
        self.reorder_later(blocks, rows, &step);
        step.output = blocks;
        self.steps.push(step);
    }

    /// Registers `blocks` as the value that is computed, and the step that reorders it to `rows`
    /// where those are read.
    fn reorder_later(&mut self, blocks: ValueId, rows: ValueId, step: &Step) {
        self.in_blocks.insert(rows, blocks);
        let reorder = Step {
            op: Op::FromBlocks(Order::Planes),
            inputs: SmallVec::from_slice(&[blocks]),
            epilogues: SmallVec::new(),
            output: rows,
            node: step.node,
        };
        self.in_rows.insert(rows, reorder);
    }

    /// Computes means of whole planes in blocks. Returns false if `step` is not such a mean.
    fn mean(&mut self, step: &Step) -> bool {
        let Op::Reduce {
            reduction: Reduction::Mean,
            dims,
        } = &step.op
        else {
            return false;
        };
        let image = step.inputs[0];
        let known = dims[..] == [2, 3] && step.epilogues.is_empty() && self.is_in_blocks(image);
        let Some([batch, channels, ..]) = self.shape(image).filter(|_| known) else {
            return false;
        };
        let input = self.blocks(image, step);
        let shape = vec![batch, channels, 1, 1];
        let means = self.program.add_blocks(shape);
        self.steps.push(Step {
            op: Op::AdaptiveAvgPool,
            inputs: SmallVec::from_slice(&[input]),
            output: means,
            ..step.clone()
        });
        self.reorder_later(means, step.output, step);
        true
    }

    /// Reorders an image in blocks instead of permuting it. Otherwise returns false, and notes
    /// permutations to planes, for a convolution may want the image in blocks later.
    fn permute(&mut self, step: &Step) -> bool {
        let Op::Copy { offset: 0, strides } = &step.op else {
            return false;
        };
        let (from, to) = (step.inputs[0], step.output);
        let root = self.program.root(from);
        if let (Some(image), Some(&blocks)) = (self.shape(root), self.in_blocks.get(&root))
            && is_by_pixel(image, self.program.shape(to), strides)
        {
            self.steps.push(Step {
                op: Op::FromBlocks(Order::Pixels),
                inputs: SmallVec::from_slice(&[blocks]),
                ..step.clone()
            });
            return true;
        }
        if let Some([_, channels, rows, columns]) = self.shape(to) {
            let [channels, plane] = [channels, rows * columns].map(usize::cast_signed);
            let row = columns.cast_signed() * channels;
            if strides[..] == [plane * channels, 1, row, channels] {
                self.by_pixel.insert(to, from);
            }
        }
        false
    }
}

/// Whether a copy of an image to `shape` has the channels of each pixel together.
fn is_by_pixel(
    [batch, channels, rows, columns]: ImageShape,
    shape: &[usize],
    strides: &[isize],
) -> bool {
    let plane = rows * columns;
    let ([.., last], [.., step]) = (shape, strides) else {
        return false;
    };
    if *last != channels || *step != plane.cast_signed() {
        return false;
    }
    // The dimensions before: pixels in order, then images.
    let mut expected = 1;
    let mut count = 1;
    for (&size, &step) in shape.iter().zip(strides).rev().skip(1) {
        if size == 1 {
            continue;
        }
        if count == plane {
            expected = channels * plane;
        }
        if step != expected.cast_signed() {
            return false;
        }
        expected *= size;
        count *= size;
    }
    count == batch * plane
}

impl Unary {
    /// Whether its value at zero is a finite number, in single precision.
    fn is_finite_at_zero(self) -> bool {
        let single = |x: f64| x as f32;
        match self {
            Self::Log
            | Self::Log2
            | Self::Log10
            | Self::Acosh
            | Self::Rsqrt
            | Self::DivideInto(_) => false,
            Self::Softplus(beta, _) => single(beta) != 0.0,
            Self::Celu(alpha) => single(alpha) != 0.0,
            Self::DivideBy(divisor) => single(divisor) != 0.0 && !divisor.is_nan(),
            Self::Threshold(_, value) => single(value).is_finite(),
            Self::Power(exponent) => exponent >= 0.0,
            Self::Affine(scale, offset) => single(scale).is_finite() && single(offset).is_finite(),
            Self::Clamp(low, high) => {
                single(low) < f32::INFINITY && single(high) > f32::NEG_INFINITY
            }
            Self::Relu
            | Self::LeakyRelu(_)
            | Self::Elu(_)
            | Self::Hardswish
            | Self::Hardsigmoid
            | Self::Sigmoid
            | Self::Silu
            | Self::Tanh
            | Self::Gelu
            | Self::GeluTanh
            | Self::Erf
            | Self::Exp
            | Self::Sqrt
            | Self::Abs
            | Self::Sin
            | Self::Cos
            | Self::Tan
            | Self::Asin
            | Self::Acos
            | Self::Atan
            | Self::Sinh
            | Self::Cosh
            | Self::Asinh
            | Self::Atanh
            | Self::Exp2
            | Self::Expm1
            | Self::Log1p
            | Self::Floor
            | Self::Ceil
            | Self::Round
            | Self::Trunc
            | Self::Frac
            | Self::Sign
            | Self::Mish
            | Self::Softsign
            | Self::LogSigmoid
            | Self::Softshrink(_)
            | Self::Hardshrink(_)
            | Self::Tanhshrink
            | Self::RoundTo(_)
            | Self::NanTo(_)
            | Self::Quantise(_)
            | Self::Dequantise { .. } => true,
        }
    }
}
