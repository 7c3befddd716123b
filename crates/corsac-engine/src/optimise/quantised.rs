//! Quantised numbers as bytes: layers with weights of integers multiply them, and images stay bytes from
//! one layer to the next.
//!
//! The levels of a value become bytes if a layer multiplies them. Pools of the largest and elementwise
//! functions before such levels then read bytes as well, where their operands are levels, too.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};

use super::flow::Flow;
use crate::kernels::{elementwise, int8};
use crate::program::{
    AddLevels, Binary, ConvShape, Element, Layout, Levels, Op, Program, QUAD, QuantisedLayer,
    Rounding, Sharing, Source, Step, Unary, ValueId,
};

/// Makes layers over quantised numbers multiply bytes.
pub(super) fn fuse(program: &mut Program) {
    let transforms = program.weight_transforms.iter();
    let mut integers = transforms.filter_map(|(transform, _)| transform.quantised());
    if integers.next().is_none() {
        return;
    }
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
    while let Some((at, layout)) = fusion.queue.pop() {
        fusion.before(at, layout);
    }
    fusion.dequantise();
    let Fusion {
        mut inserted,
        program,
        ..
    } = fusion;
    // In the order of the steps that they follow.
    inserted.sort_by_key(|&(place, _)| place);
    let mut inserted = inserted.into_iter().peekable();
    let steps = std::mem::take(&mut program.steps);
    for (at, step) in steps.into_iter().enumerate() {
        program.steps.push(step);
        while let Some((_, step)) = inserted.next_if(|&((after, _), _)| after == at) {
            program.steps.push(step);
        }
    }
}

struct Fusion<'p> {
    program: &'p mut Program,
    flow: Flow,
    /// The new steps that make bytes of levels: images by pixel, or in rows.
    bytes: FxHashMap<(ValueId, Layout), usize>,
    /// Steps that compute levels whose bytes are read, and the layout of these.
    queue: Vec<(usize, Layout)>,
    /// New steps, and those that they follow.
    inserted: Vec<((usize, Order), Step)>,
}

/// Order of steps that follow the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    /// It computes what bytes are made of.
    Before,
    /// It makes bytes.
    Bytes,
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
            return self.inserted[known].1.output;
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
        let place = (levels.value, layout);
        self.bytes.insert(place, self.inserted.len());
        self.inserted.push(((levels.quantise, Order::Bytes), step));
        self.queue.push((levels.quantise, layout));
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
        for (&(levels, _), &made) in &self.bytes {
            let bytes = self.inserted[made].1.output;
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
        // Places in rows of bytes are counted in 32 bits.
        if self.program.value(x).len() >= 1 << 30 {
            return;
        }
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
    /// as bytes in this layout.
    fn before(&mut self, at: usize, layout: Layout) {
        if layout == Layout::Pixels && self.pool(at) {
            return;
        }
        self.elementwise(at, layout);
    }

    /// Replaces the step that makes bytes of the levels of step `at`.
    fn make(&mut self, at: usize, layout: Layout, op: Op, inputs: SmallVec<[ValueId; 4]>) {
        let levels = self.program.root(self.program.steps[at].output);
        if let Some(&made) = self.bytes.get(&(levels, layout)) {
            let (_, step) = &mut self.inserted[made];
            step.op = op;
            step.inputs = inputs;
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
        let (Op::MaxPool(windows), image) = (pool.op.clone(), pool.inputs[0]) else {
            return false;
        };
        // Windows with gaps may have no element of the image, whose largest is the lowest number.
        if windows.dilation != [1, 1] {
            return false;
        }
        let levels = *levels;
        let Some(before) = self.dequantised(image) else {
            return false;
        };
        if before.levels != levels || !self.is_image(&before, image) {
            return false;
        }
        let inputs = smallvec![self.bytes(&before, Layout::Pixels)];
        self.make(at, Layout::Pixels, Op::MaxPool(windows), inputs);
        true
    }

    /// Elementwise functions of levels are computed of bytes, if nothing else reads their numbers.
    fn elementwise(&mut self, at: usize, layout: Layout) {
        let quantise = &self.program.steps[at];
        let (numbers, levels) = match quantise.op {
            Op::Unary(Unary::Quantise(levels)) => (quantise.inputs[0], levels),
            _ => return,
        };
        let mut members = Vec::new();
        let mut leaves = Vec::new();
        // Otherwise their levels are computed as numbers, too.
        if !self.is_only_dequantised(self.program.root(quantise.output))
            || !self.closed((numbers, layout), &mut members, &mut leaves)
            || members.is_empty()
        {
            return;
        }
        if let Some(table) = self.table(&members, &leaves, levels) {
            let inputs = smallvec![self.bytes(&leaves[0].1, layout)];
            return self.make(at, layout, Op::MapLevels(table), inputs);
        }
        if let Some((add, operands)) = self.sum(&members, &leaves, levels) {
            let inputs = operands.map(|leaf| self.bytes(&leaves[leaf].1, layout));
            return self.make(
                at,
                layout,
                Op::AddLevels(Box::new(add)),
                inputs.into_iter().collect(),
            );
        }
        let shape = self.program.shape(numbers).to_vec();
        // By pixel there are as many bytes as elements.
        if layout == Layout::Pixels && !shape[1].is_multiple_of(QUAD) {
            return;
        }
        // The functions are computed once more, for the bytes alone.
        let mut made: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        let node = self.program.steps[at].node;
        for (value, leaf) in leaves {
            let bytes = self.bytes(&leaf, layout);
            let op = Op::FromLevels(leaf.levels.byte_zero(), leaf.scale);
            let output = self.program.add_value(shape.clone(), Source::Step);
            let step = Step {
                op,
                inputs: smallvec![bytes],
                epilogues: SmallVec::new(),
                output,
                node,
            };
            self.compute(at, layout, step);
            made.insert(value, output);
        }
        let mut last = numbers;
        for member in members.into_iter().rev() {
            let output = self.program.add_value(shape.clone(), Source::Step);
            let mut step = Step {
                output,
                ..self.program.steps[member].clone()
            };
            for value in step.reads_mut() {
                *value = made.get(value).copied().unwrap_or(*value);
            }
            made.insert(self.program.steps[member].output, output);
            self.compute(at, layout, step);
            last = output;
        }
        self.make(at, layout, Op::ToLevels(levels), smallvec![last]);
    }

    /// Adds a step that computes numbers in this layout before the bytes of the levels of step `at`.
    fn compute(&mut self, at: usize, layout: Layout, step: Step) {
        self.program.values[step.output.index()].layout = layout;
        self.inserted.push(((at, Order::Before), step));
    }

    /// Functions of one value of levels, as a table of bytes.
    fn table(
        &self,
        members: &[usize],
        leaves: &[(ValueId, Dequantised)],
        levels: Levels,
    ) -> Option<Box<[u8; 256]>> {
        let [(_, leaf)] = leaves else { return None };
        let mut numbers: [f32; 256] = std::array::from_fn(|byte| byte as f32);
        let dequantise = Unary::Dequantise {
            zero: leaf.levels.byte_zero() as f32,
            scale: leaf.scale,
        };
        elementwise::unary_chunk(dequantise, &mut numbers);
        // The last function is the first member.
        for &at in members.iter().rev() {
            let Op::Unary(function) = self.program.steps[at].op else {
                return None;
            };
            elementwise::unary_chunk(function, &mut numbers);
        }
        elementwise::unary_chunk(Unary::Quantise(levels.as_bytes()), &mut numbers);
        Some(Box::new(numbers.map(|level| level as u8)))
    }

    /// A sum of two values of levels, clamped or not, and the leaves that these are.
    fn sum(
        &self,
        members: &[usize],
        leaves: &[(ValueId, Dequantised)],
        levels: Levels,
    ) -> Option<(AddLevels, [usize; 2])> {
        let (add, bounds) = match *members {
            [add] => (add, [f32::NEG_INFINITY, f32::INFINITY]),
            [clamp, add] => match self.program.steps[clamp].op {
                Op::Unary(Unary::Relu) => (add, [0.0, f32::INFINITY]),
                Op::Unary(Unary::Clamp(low, high)) => (add, [low as f32, high as f32]),
                _ => return None,
            },
            _ => return None,
        };
        let add = &self.program.steps[add];
        if add.op != Op::Binary(Binary::Add) {
            return None;
        }
        let leaf = |at: usize| {
            leaves
                .iter()
                .position(|(value, _)| *value == add.inputs[at])
        };
        let operands = [leaf(0)?, leaf(1)?];
        let add = AddLevels {
            operands: operands.map(|leaf| {
                let own = &leaves[leaf].1;
                (own.levels.byte_zero(), own.scale)
            }),
            bounds,
            levels,
        };
        Some((add, operands))
    }

    /// Whether `numbers` are computed from levels by elementwise functions whose values nothing else
    /// reads. Adds their steps, each before those that it reads, and the dequantised values.
    fn closed(
        &self,
        (numbers, layout): (ValueId, Layout),
        members: &mut Vec<usize>,
        leaves: &mut Vec<(ValueId, Dequantised)>,
    ) -> bool {
        let mut known: FxHashSet<ValueId> = FxHashSet::default();
        let mut rest = vec![numbers];
        while let Some(numbers) = rest.pop() {
            if let Some(levels) = self.dequantised(numbers)
                && match layout {
                    Layout::Pixels => self.is_image(&levels, numbers),
                    _ => self.program.shape(levels.value) == self.program.shape(numbers),
                }
            {
                if known.insert(numbers) {
                    leaves.push((numbers, levels));
                }
                continue;
            }
            let Some(at) = self.flow.maker(self.program, numbers) else {
                return false;
            };
            let step = &self.program.steps[at];
            let own = self.program.shape(numbers);
            let alone = self.flow.is_read_once(numbers) && self.program.root(numbers) == numbers;
            let inputs = step.inputs.iter();
            let same = inputs
                .clone()
                .all(|&input| self.program.shape(input) == own);
            let elementwise = matches!(step.op, Op::Unary(_) | Op::Binary(_)) && same;
            if !alone || !elementwise || !step.epilogues.is_empty() {
                return false;
            }
            members.push(at);
            rest.extend(inputs);
        }
        true
    }
}
