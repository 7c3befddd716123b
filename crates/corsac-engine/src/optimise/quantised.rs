//! Quantised numbers as bytes: layers with weights of integers multiply them, and images stay bytes from
//! one layer to the next.
//!
//! The levels of a value become bytes if a layer multiplies them. Pools of the largest and elementwise
//! functions before such levels then read bytes as well, where their operands are levels, too.

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::flow::Flow;
use crate::kernels::int8;
use crate::program::{
    ConvShape, Element, Layout, Levels, Op, Program, QUAD, QuantisedLayer, Rounding, Sharing,
    Source, Step, Unary, ValueId,
};

/// Makes layers over quantised numbers multiply bytes.
pub(super) fn fuse(program: &mut Program) {
    let flow = Flow::of(program);
    let mut fusion = Fusion {
        flow,
        bytes: FxHashMap::default(),
        queue: Vec::new(),
        inserted: Vec::new(),
        program,
    };
    for at in 0..fusion.program.steps.len() {
        fusion.layer(at);
    }
    while let Some(at) = fusion.queue.pop() {
        fusion.before(at);
    }
    fusion.dequantise();
    let Fusion {
        mut inserted,
        program,
        ..
    } = fusion;
    // In the order of the steps that they follow.
    inserted.sort_by_key(|&(at, _)| at);
    let mut inserted = inserted.into_iter().peekable();
    let steps = std::mem::take(&mut program.steps);
    for (at, step) in steps.into_iter().enumerate() {
        program.steps.push(step);
        while let Some((_, step)) = inserted.next_if(|&(after, _)| after == at) {
            program.steps.push(step);
        }
    }
}

struct Fusion<'p> {
    program: &'p mut Program,
    flow: Flow,
    /// The bytes of levels: images by pixel, or in rows.
    bytes: FxHashMap<(ValueId, Layout), ValueId>,
    /// Steps that compute levels whose bytes are read, by pixel.
    queue: Vec<usize>,
    /// New steps, and those that they follow.
    inserted: Vec<(usize, Step)>,
}

/// Levels, and the numbers that stand for them.
struct Dequantised {
    /// The value of the levels.
    value: ValueId,
    /// The step that computes them from numbers.
    quantise: usize,
    levels: Levels,
    scale: f32,
}

impl Fusion<'_> {
    fn maker(&self, value: ValueId) -> Option<&Step> {
        Some(&self.program.steps[self.flow.maker(self.program, value)?])
    }

    /// The levels that `value` is dequantised from, if they are those of bytes.
    fn dequantised(&self, value: ValueId) -> Option<Dequantised> {
        let dequantise = self.maker(value)?;
        let Op::Unary(Unary::Dequantise { zero, scale }) = dequantise.op else {
            return None;
        };
        let quantise = self.flow.maker(self.program, dequantise.inputs[0])?;
        match self.program.steps[quantise].op {
            Op::Unary(Unary::Quantise(levels)) if levels.zero == zero && levels.are_bytes() => {
                Some(Dequantised {
                    value: self.program.root(dequantise.inputs[0]),
                    quantise,
                    levels,
                    scale,
                })
            }
            _ => None,
        }
    }

    /// The bytes of levels; by pixel, their shape is that of images.
    fn bytes(&mut self, levels: &Dequantised, layout: Layout) -> ValueId {
        if let Some(&known) = self.bytes.get(&(levels.value, layout)) {
            return known;
        }
        let shape = self.program.shape(levels.value).to_vec();
        let output = self.program.add_typed(Element::Bool, shape, Source::Step);
        self.program.values[output.index()].layout = layout;
        let made = &self.program.steps[levels.quantise];
        let step = Step {
            op: Op::ToLevels(levels.levels),
            inputs: made.inputs.clone(),
            epilogues: SmallVec::new(),
            output,
            node: made.node,
        };
        self.inserted.push((levels.quantise, step));
        if layout == Layout::Pixels {
            self.queue.push(levels.quantise);
        }
        self.bytes.insert((levels.value, layout), output);
        output
    }

    /// Whether levels are read by nothing but steps that dequantise them.
    fn is_only_dequantised(&self, levels: ValueId) -> bool {
        let shape = self.program.shape(levels);
        let dequantises = |&(at, value): &(usize, ValueId)| {
            let step = &self.program.steps[at];
            let whole = self.program.shape(value) == shape;
            whole && matches!(step.op, Op::Unary(Unary::Dequantise { .. }))
        };
        let mut readers = self.flow.readers(levels).iter();
        !self.flow.is_returned(levels) && readers.all(dequantises)
    }

    /// Dequantises levels from their bytes, where there are such.
    fn dequantise(&mut self) {
        for (&(levels, layout), &bytes) in &self.bytes {
            if layout != Layout::Pixels {
                continue;
            }
            let shape = self.program.shape(levels).to_vec();
            let moved = match self.flow.maker(self.program, levels) {
                Some(at) => match self.program.steps[at].op {
                    Op::Unary(Unary::Quantise(own)) => own.byte_zero() - own.zero as i32,
                    _ => continue,
                },
                None => continue,
            };
            for &(at, value) in self.flow.readers(levels) {
                let whole = self.program.shape(value) == shape;
                let step = &mut self.program.steps[at];
                if let Op::Unary(Unary::Dequantise { zero, scale }) = step.op
                    && whole
                {
                    step.op = Op::FromLevels(zero as i32 + moved, scale);
                    step.inputs[0] = bytes;
                }
            }
        }
    }

    /// Makes step `at` multiply bytes, if it is a layer over quantised numbers.
    fn layer(&mut self, at: usize) {
        let step = &self.program.steps[at];
        if !matches!(step.op, Op::Linear | Op::Conv(_)) || !self.has_integers(step) {
            return;
        }
        let (op, x) = (step.op.clone(), step.inputs[0]);
        if op == Op::Linear
            && let Some((numbers, input)) = self.rounded_rows(x)
        {
            let numbers = self.reshaped(numbers, x);
            self.replace(at, numbers, Op::QuantisedLinear, input);
            return;
        }
        let Some(levels) = self.dequantised(x) else {
            return;
        };
        let input = Rounding::Levels(levels.levels, levels.scale);
        match op {
            Op::Linear => {
                let bytes = self.bytes(&levels, Layout::Rows);
                let bytes = self.reshaped(bytes, x);
                self.replace(at, bytes, Op::QuantisedLinear, input);
            }
            Op::Conv(conv) if self.is_image(&levels, x) => {
                let shape = ConvShape::of(self.program, &self.program.steps[at], &conv);
                if int8::conv::is_supported(&shape) {
                    let bytes = self.bytes(&levels, Layout::Pixels);
                    self.replace(at, bytes, |layer| Op::QuantisedConv(conv, layer), input);
                }
            }
            _ => {}
        }
    }

    /// Whether `value` is dequantised from levels of its own shape, an image.
    fn is_image(&self, levels: &Dequantised, value: ValueId) -> bool {
        let shape = self.program.shape(levels.value);
        shape.len() == 4 && shape == self.program.shape(value) && !shape.contains(&0)
    }

    fn replace(
        &mut self,
        at: usize,
        input: ValueId,
        op: impl FnOnce(QuantisedLayer) -> Op,
        rounding: Rounding,
    ) {
        let step = &mut self.program.steps[at];
        step.inputs[0] = input;
        step.op = op(QuantisedLayer {
            input: rounding,
            output: None,
        });
    }

    /// Whether the weight of a layer is one of integers with a scale for each output, and its bias is
    /// known.
    fn has_integers(&self, step: &Step) -> bool {
        let (program, weight) = (&*self.program, step.inputs[1]);
        let bias = step
            .inputs
            .get(2)
            .is_none_or(|&bias| program.is_weight(bias));
        let shape = program.shape(weight);
        let whole = program.shape(program.root(weight)).first() == shape.first();
        let format = program
            .dequantised(weight)
            .map(|(format, _)| format.sharing);
        let by_output = matches!(format, Some(Sharing::Along(0) | Sharing::Tensor(..)));
        bias && whole && by_output && !shape.contains(&0)
    }

    /// The numbers that rows are rounded from, each by its own range.
    fn rounded_rows(&self, value: ValueId) -> Option<(ValueId, Rounding)> {
        let made = self.maker(value)?;
        let Op::RoundRows(bounds @ ([-128, 127] | [0, 255])) = made.op else {
            return None;
        };
        let same = self.program.shape(made.output).last() == self.program.shape(value).last();
        let signed = bounds[0] < 0;
        same.then_some((made.inputs[0], Rounding::ByRow { signed }))
    }

    /// `value` in the shape of `like`, which has as many elements.
    fn reshaped(&mut self, value: ValueId, like: ValueId) -> ValueId {
        if self.program.shape(value) == self.program.shape(like) {
            return value;
        }
        let (element, shape) = (
            self.program.element(value),
            self.program.shape(like).to_vec(),
        );
        let root = self.program.root(value);
        self.program.add_typed(element, shape, Source::Alias(root))
    }

    /// Makes what computes the numbers of levels read bytes: the levels that step `at` computes are read
    /// as images of bytes.
    fn before(&mut self, at: usize) {
        if !self.pool(at) {
            self.elementwise(at);
        }
    }

    /// A pool of the largest keeps levels, where those of its result are the same.
    fn pool(&mut self, at: usize) -> bool {
        let quantise = &self.program.steps[at];
        let (Op::Unary(Unary::Quantise(levels)), numbers) = (&quantise.op, quantise.inputs[0])
        else {
            return false;
        };
        let Some(pool) = self.maker(numbers) else {
            return false;
        };
        let (op @ Op::MaxPool(_), image) = (pool.op.clone(), pool.inputs[0]) else {
            return false;
        };
        let (levels, own) = (*levels, self.program.root(quantise.output));
        let Some(before) = self.dequantised(image) else {
            return false;
        };
        if before.levels != levels || !self.is_image(&before, image) {
            return false;
        }
        let inputs = smallvec![self.bytes(&before, Layout::Pixels)];
        let output = self.bytes[&(own, Layout::Pixels)];
        if let Some((_, step)) = self
            .inserted
            .iter_mut()
            .find(|(_, own)| own.output == output)
        {
            step.op = op;
            step.inputs = inputs;
        }
        true
    }

    /// Elementwise functions of levels are computed by pixel, if nothing else reads their numbers.
    fn elementwise(&mut self, at: usize) {
        let numbers = self.program.steps[at].inputs[0];
        let shape = self.program.shape(numbers).to_vec();
        let [_, channels, ..] = shape[..] else {
            return;
        };
        let mut members = Vec::new();
        let mut leaves = Vec::new();
        // Otherwise their levels are computed as numbers, too.
        if !self.is_only_dequantised(self.program.root(self.program.steps[at].output)) {
            return;
        }
        if !channels.is_multiple_of(QUAD) || !self.closed(numbers, &mut members, &mut leaves) {
            return;
        }
        if members.is_empty() {
            return;
        }
        // Levels are dequantised for these functions alone, by pixel.
        let leaves: FxHashMap<ValueId, ValueId> = leaves
            .into_iter()
            .map(|(value, levels): (ValueId, Dequantised)| {
                let bytes = self.bytes(&levels, Layout::Pixels);
                let output = self.program.add_value(shape.clone(), Source::Step);
                self.program.values[output.index()].layout = Layout::Pixels;
                let node = self.program.steps[levels.quantise].node;
                let step = Step {
                    op: Op::FromLevels(levels.levels.byte_zero(), levels.scale),
                    inputs: smallvec![bytes],
                    epilogues: SmallVec::new(),
                    output,
                    node,
                };
                // Behind the bytes, which follow the levels.
                self.inserted.push((levels.quantise, step));
                (value, output)
            })
            .collect();
        for at in members {
            let step = &mut self.program.steps[at];
            for value in step.reads_mut() {
                if let Some(&leaf) = leaves.get(value) {
                    *value = leaf;
                }
            }
            let output = step.output;
            self.program.values[output.index()].layout = Layout::Pixels;
        }
    }

    /// Whether `numbers` are computed from levels by elementwise functions whose values nothing else
    /// reads. Adds their steps, and the dequantised values that they read.
    fn closed(
        &self,
        numbers: ValueId,
        members: &mut Vec<usize>,
        leaves: &mut Vec<(ValueId, Dequantised)>,
    ) -> bool {
        if let Some(levels) = self.dequantised(numbers)
            && self.is_image(&levels, numbers)
        {
            if leaves.iter().all(|(known, _)| *known != numbers) {
                leaves.push((numbers, levels));
            }
            return true;
        }
        let Some(at) = self.flow.maker(self.program, numbers) else {
            return false;
        };
        let step = &self.program.steps[at];
        let own = self.program.shape(numbers);
        // The levels, and their bytes.
        let alone = self.flow.is_read_once(numbers) && self.program.root(numbers) == numbers;
        let same = step
            .inputs
            .iter()
            .all(|&input| self.program.shape(input) == own);
        let elementwise = matches!(step.op, Op::Unary(_) | Op::Binary(_)) && same;
        if !alone || !elementwise || !step.epilogues.is_empty() {
            return false;
        }
        members.push(at);
        let inputs = step.inputs.clone();
        inputs
            .iter()
            .all(|&input| self.closed(input, members, leaves))
    }
}
