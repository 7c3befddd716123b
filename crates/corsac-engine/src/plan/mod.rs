//! Memory planning: values are placed in the results of a call, or in as little other memory as
//! their live ranges allow.

mod concat_elision;
mod placement;

use crate::aligned_buffer::LINE;
use crate::kernels::bf16;
use crate::kernels::blocked::{ConvAlgorithm, conv, linear};
use crate::kernels::int8;
use crate::program::{
    Control, ConvShape, Element, Flow, Layout, Op, Program, Source, Step, ValueId,
};
use concat_elision::ConcatElision;
use placement::{LiveRange, Placement, ResultMemory};

/// Places of the values of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The place of each value that a step computes, and of inputs that are written to.
    places: Vec<Option<Place>>,
    /// Whether a step computes its result in place of its first input, by step.
    in_place: Vec<bool>,
    /// The workspace of each step: its place, and its number of elements. That of a fused step is its
    /// row result.
    workspaces: Vec<(Place, usize)>,
    /// Number of elements of each type to allocate.
    lens: Lens,
    /// Bytes that control flow allocates besides.
    control_bytes: usize,
}

/// Place of a value in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the result in whose memory it lies: a result of the program itself, or numbers
    /// that are dead before that result is written. Without one, it lies in the memory for its type
    /// of elements.
    pub(crate) result: Option<usize>,
    /// Offset in elements.
    pub(crate) start: usize,
}

/// Number of elements of each type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lens {
    pub(crate) f32: usize,
    pub(crate) f64: usize,
    pub(crate) i64: usize,
    pub(crate) bool: usize,
}

/// The types that have memory of their own.
const ELEMENTS: [Element; 4] = [Element::F32, Element::F64, Element::I64, Element::Bool];

/// A buffer: it holds a value, and before that those that the value was computed in place of.
struct Buffer {
    element: Element,
    range: LiveRange,
    /// The result that it is.
    result: Option<usize>,
    /// The region that it lies in, and its offset there.
    region: Option<(usize, usize)>,
}

/// Uses of values, from which their live ranges follow.
struct Lifetimes<'p> {
    program: &'p Program,
    /// By value, the last step that reads it; the number of steps if it is a result.
    last_read: Vec<Option<usize>>,
    /// By value, the result that it is.
    result: Vec<Option<usize>>,
}

impl Plan {
    /// Plans `program`. Memory is free again after the last step that reads its value.
    #[must_use]
    pub fn of(program: &Program) -> Self {
        let mut plan = Self::of_values(program);
        let controls = program.controls().map(control_bytes);
        plan.control_bytes = controls.fold(0, usize::saturating_add);
        plan
    }

    fn of_values(program: &Program) -> Self {
        let lifetimes = Lifetimes::of(program);
        let plan = Self::with_elision(&lifetimes, &ConcatElision::default());
        let elision = ConcatElision::of(program, &lifetimes.result);
        if elision.is_empty() {
            return plan;
        }
        // Joined values stay as long as any part of them is live, which may be long.
        let joined = Self::with_elision(&lifetimes, &elision);
        match joined.size_bytes() <= plan.size_bytes() / 8 * 9 {
            true => joined,
            false => plan,
        }
    }

    fn with_elision(lifetimes: &Lifetimes<'_>, elision: &ConcatElision) -> Self {
        let program = lifetimes.program;
        let mut plan = Self {
            places: vec![None; program.values.len()],
            ..Self::default()
        };
        let (buffers, buffer_of);
        (buffers, buffer_of, plan.in_place) = lifetimes.buffers(elision);
        let (result_numbers, results) = lifetimes.result_memory(&buffers);
        let place = |found: &Placement| Place {
            result: found.result.map(|result| result_numbers[result]),
            start: found.start,
        };
        let mut places: Vec<Place> = vec![Place::default(); buffers.len()];
        for element in ELEMENTS {
            let is_f32 = element == Element::F32;
            let own = buffers.iter().zip(&mut places);
            let own = own.filter(|(buffer, _)| buffer.element == element);
            let mut ranges: Vec<LiveRange> = Vec::with_capacity(buffers.len());
            let mut alone: Vec<&mut Place> = Vec::with_capacity(buffers.len());
            let mut in_regions: Vec<(&mut Place, (usize, usize))> = Vec::new();
            for (buffer, place) in own {
                match (buffer.result, buffer.region) {
                    (Some(number), _) => place.result = Some(number),
                    (None, Some(region)) => in_regions.push((place, region)),
                    (None, None) => {
                        ranges.push(in_lines(buffer.range));
                        alone.push(place);
                    }
                }
            }
            let regions = ranges.len();
            if is_f32 {
                ranges.extend(lifetimes.regions(elision, &buffers));
                ranges.extend(workspaces(program));
            }
            let results: &[ResultMemory] = if is_f32 { &results } else { &[] };
            let (found, len) = placement::place(&ranges, results);
            for (own, found) in alone.into_iter().zip(&found) {
                *own = place(found);
            }
            for (own, (region, at)) in in_regions {
                *own = place(&found[regions + region]);
                own.start += at;
            }
            if is_f32 {
                let from = found.len() - program.steps.len();
                let own = found[from..].iter().zip(&ranges[from..]);
                plan.workspaces = own
                    .map(|(found, range)| (place(found), range.len))
                    .collect();
            }
            *plan.lens.of_mut(element) = len;
        }
        for (place, buffer) in plan.places.iter_mut().zip(buffer_of) {
            *place = buffer.map(|buffer| places[buffer]);
        }
        // Fused steps need no other workspace.
        for (workspace, step) in plan.workspaces.iter_mut().zip(&program.steps) {
            let value = step.row_result().map(|value| program.root(value));
            if let Some(value) = value
                && let Some(place) = plan.places[value.index()]
            {
                *workspace = (place, program.value(value).stored_len());
            }
        }
        plan
    }

    pub(crate) fn place(&self, value: ValueId) -> Option<Place> {
        self.places[value.index()]
    }

    /// Whether `value`, which is result `number`, is computed in the memory of that result.
    pub(crate) fn is_result(&self, value: ValueId, number: usize) -> bool {
        // A value that only lies there for a time is not the result.
        self.place(value)
            .is_some_and(|place| place.result == Some(number))
    }

    pub(crate) fn is_in_place(&self, step: usize) -> bool {
        self.in_place[step]
    }

    /// The workspace of a step: its place, and its number of elements.
    pub(crate) fn workspace(&self, step: usize) -> (Place, usize) {
        self.workspaces[step]
    }

    /// Whether `operand` was computed in place in `joined`, `start` elements from its beginning.
    pub(crate) fn lies_in(
        &self,
        program: &Program,
        operand: ValueId,
        (joined, start): (ValueId, usize),
    ) -> bool {
        let place = |value: ValueId| self.place(program.root(value));
        let (Some(own), Some(mut wanted)) = (place(operand), place(joined)) else {
            return false;
        };
        wanted.start += start;
        own == wanted && program.element(operand) == program.element(joined)
    }

    pub(crate) fn lens(&self) -> Lens {
        self.lens
    }

    /// Number of elements of a type to allocate.
    #[must_use]
    pub fn len(&self, element: Element) -> usize {
        match element {
            Element::F32 => self.lens.f32,
            Element::F64 => self.lens.f64,
            Element::I64 => self.lens.i64,
            Element::Bool => self.lens.bool,
        }
    }

    /// Bytes to allocate. Results have memory of their own.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let bytes = ELEMENTS.map(|element| self.len(element).saturating_mul(element.size_bytes()));
        bytes
            .into_iter()
            .fold(self.control_bytes, usize::saturating_add)
    }
}

impl Lens {
    fn of_mut(&mut self, element: Element) -> &mut usize {
        match element {
            Element::F32 => &mut self.f32,
            Element::F64 => &mut self.f64,
            Element::I64 => &mut self.i64,
            Element::Bool => &mut self.bool,
        }
    }
}

impl<'p> Lifetimes<'p> {
    fn of(program: &'p Program) -> Self {
        let count = program.values.len();
        let mut last_read = vec![None; count];
        for (at, step) in program.steps.iter().enumerate() {
            for value in step.reads() {
                last_read[program.root(value).index()] = Some(at);
            }
        }
        let mut result = vec![None; count];
        let results = program.results();
        let given = results.len() - program.written.len();
        for (number, value) in results.into_iter().enumerate() {
            let root = program.root(value);
            last_read[root.index()] = Some(program.steps.len());
            if is_step(program, root) && number < given {
                result[root.index()].get_or_insert(number);
            }
        }
        Self {
            program,
            last_read,
            result,
        }
    }

    /// The buffers; by value, its buffer; and by step, whether it works in place.
    fn buffers(&self, elision: &ConcatElision) -> (Vec<Buffer>, Vec<Option<usize>>, Vec<bool>) {
        let program = self.program;
        let mut buffers: Vec<Buffer> = Vec::new();
        let mut buffer_of: Vec<Option<usize>> = vec![None; program.values.len()];
        let mut in_place = vec![false; program.steps.len()];
        // By value, the number of the written input whose memory it lies in.
        let mut written: Vec<Option<usize>> = vec![None; program.values.len()];
        for (at, value) in program.values.iter().enumerate() {
            if let Source::Input(number) = value.source
                && let Some(result) = program.result_of_input(number)
            {
                buffer_of[at] = Some(buffers.len());
                written[at] = Some(result);
                buffers.push(Buffer {
                    element: value.element,
                    range: LiveRange::new(0, self.last_read[at].unwrap_or(0), value.len()),
                    result: Some(result),
                    region: None,
                });
            }
        }
        for (at, step) in program.steps.iter().enumerate() {
            for value in step.results() {
                let output = program.root(value);
                let info = program.value(output);
                // A row result has memory of its own.
                let first = (value == step.output).then(|| self.taken_over(at, step, &written));
                let taken = first
                    .flatten()
                    .filter(|&value| elision.place(value).is_none())
                    .inspect(|&value| written[output.index()] = written[value.index()])
                    .and_then(|value| buffer_of[value.index()]);
                let number = taken.unwrap_or(buffers.len());
                if taken.is_none() {
                    buffers.push(Buffer {
                        element: info.element,
                        range: LiveRange::new(at, at, info.stored_len()),
                        result: None,
                        region: None,
                    });
                }
                let buffer = &mut buffers[number];
                buffer
                    .range
                    .extend(at, self.last_read[output.index()].unwrap_or(at));
                buffer.result = self.result[output.index()].or(written[output.index()]);
                buffer.region = elision.place(output);
                buffer_of[output.index()] = Some(number);
                in_place[at] |= taken.is_some();
            }
        }
        (buffers, buffer_of, in_place)
    }

    /// The first input of a step, if its live range ends there and the result can be computed in
    /// its place.
    fn taken_over(&self, at: usize, step: &Step, written: &[Option<usize>]) -> Option<ValueId> {
        let program = self.program;
        let output = program.root(step.output);
        let value = program.root(*step.inputs.first()?);
        // Results lie in memory of their own; those of inputs that are written to in that of the
        // input.
        let is_there = match written[value.index()] {
            Some(own) => {
                let mut results = program.results().into_iter().enumerate();
                results.all(|(number, result)| number == own || program.root(result) != output)
            }
            None => is_step(program, value),
        };
        let fits = works_in_place(program, step)
            && is_there
            && program.element(value) == program.element(output)
            && self.last_read[value.index()] == Some(at)
            && program.value(value).stored_len() == program.value(output).stored_len()
            && step
                .reads()
                .skip(1)
                .all(|other| program.root(other) != value);
        fits.then_some(value)
    }

    /// The results that hold floating-point numbers, as memory that can hold other values before
    /// they are written.
    fn result_memory(&self, buffers: &[Buffer]) -> (Vec<usize>, Vec<ResultMemory>) {
        let results = buffers
            .iter()
            .filter(|buffer| buffer.element == Element::F32);
        // Written inputs hold their elements all the time.
        let given = self.program.outputs().len();
        let memory = results.filter_map(|buffer| {
            let number = buffer.result.filter(|&number| number < given)?;
            let until = buffer.range.first;
            let len = buffer.range.len;
            Some((number, ResultMemory { len, until }))
        });
        memory.unzip()
    }

    /// The memory of regions, live as long as any value in them.
    fn regions(&self, elision: &ConcatElision, buffers: &[Buffer]) -> Vec<LiveRange> {
        let end = self.program.steps.len();
        let lens = elision
            .lens()
            .map(|len| in_lines(LiveRange::new(end, 0, len)));
        // Regions that were merged into others are empty, and never live.
        let mut ranges: Vec<LiveRange> = lens.collect();
        for buffer in buffers {
            if let Some((region, _)) = buffer.region {
                ranges[region].extend(buffer.range.first, buffer.range.last);
            }
        }
        ranges
    }
}

/// Bytes that a step with control flow allocates: for the values of its programs, and for their results.
fn control_bytes(control: &Control) -> usize {
    let of_results = |body: &Program| {
        let results = body.outputs().into_iter().map(|value| body.value(value));
        let bytes = results.map(|info| info.len().saturating_mul(info.element.size_bytes()));
        bytes.fold(0, usize::saturating_add)
    };
    let bodies = control.bodies.iter().map(|body| {
        let results = of_results(body).saturating_mul(2);
        Plan::of(body).size_bytes().saturating_add(results)
    });
    let rows = match control.flow {
        Flow::Scan { length, .. } => {
            let bytes = control.bodies.iter().map(of_results);
            bytes.fold(0, usize::saturating_add).saturating_mul(length)
        }
        Flow::Cond | Flow::While { .. } => 0,
    };
    bodies.fold(rows, usize::saturating_add)
}

/// Whether a step computes `value`.
fn is_step(program: &Program, value: ValueId) -> bool {
    matches!(program.value(value).source, Source::Step)
}

/// Rounds up to whole cache lines, so that the next buffer begins at one.
fn in_lines(range: LiveRange) -> LiveRange {
    let len = range
        .len
        .checked_next_multiple_of(LINE)
        .unwrap_or(range.len);
    LiveRange { len, ..range }
}

/// The workspaces of all steps.
fn workspaces(program: &Program) -> impl Iterator<Item = LiveRange> + '_ {
    let steps = program.steps.iter().enumerate();
    steps.map(|(at, step)| in_lines(LiveRange::new(at, at, workspace_len(program, step))))
}

/// Number of elements that a step needs besides its inputs and its result.
fn workspace_len(program: &Program, step: &Step) -> usize {
    // Kernels of double precision need none.
    if program.element(step.output) == Element::F64 {
        return 0;
    }
    let in_blocks = program.value(step.output).layout == Layout::Blocks;
    match step.op {
        Op::Conv(ref conv) | Op::ChannelScaledConv(ref conv) if in_blocks => {
            let shape = ConvShape::of(program, step, conv);
            ConvAlgorithm::of(&shape, program.products(step))
                .map_or(0, |algorithm| conv::workspace_len(&shape, algorithm))
        }
        Op::Linear => {
            let [outputs, inputs] = [0, 1].map(|dim| program.shape(step.inputs[1])[dim]);
            let numbers = linear_workspace_len(program, step);
            match program.has_integers(step) {
                true => {
                    let rows = program.linear_rows(step, inputs);
                    numbers.max(int8::weight_only::workspace_len(rows, [outputs, inputs]))
                }
                false => numbers,
            }
        }
        Op::QuantisedConv(ref conv, _) => {
            int8::conv::workspace_len(&ConvShape::of(program, step, conv))
        }
        Op::QuantisedLinear(_) => {
            let inputs = program.shape(step.inputs[1])[1];
            int8::linear::workspace_len(program.linear_rows(step, inputs), inputs)
        }
        Op::Recurrent(ref own) => own.workspace_len(),
        Op::BatchTiling(ref tiling) => Plan::of(&tiling.body).lens.f32,
        _ => 0,
    }
}

/// Number of elements that a linear layer over numbers needs besides.
pub(crate) fn linear_workspace_len(program: &Program, step: &Step) -> usize {
    let weight = program.shape(step.inputs[1]);
    let rows = program.linear_rows(step, weight[1]);
    match program.products(step).bf16_unit() {
        Some(_) => bf16::linear::workspace_len(rows, weight[1]),
        None => linear::workspace_len(rows, [weight[0], weight[1]]),
    }
}

/// Whether the result can overwrite the first input while it is computed.
fn works_in_place(program: &Program, step: &Step) -> bool {
    match step.op {
        // Both operands are read element by element: neither is broadcast.
        Op::Binary(_) => {
            let shape = program.shape(step.output);
            step.inputs
                .iter()
                .all(|&value| program.shape(value) == shape)
        }
        Op::Fused(ref fused) => program.element(step.output).is_float() && fused.works_in_place(),
        Op::Unary(_)
        | Op::ChannelAffine
        | Op::LayerNorm { .. }
        | Op::Softmax { .. }
        | Op::IndexPut(_)
        | Op::Scatter { .. } => true,
        _ => false,
    }
}
