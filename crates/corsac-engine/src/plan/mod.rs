//! Memory planning: values are placed in the results of a call, or in as little other memory as
//! their live ranges allow.

mod concat_elision;
mod placement;

use crate::aligned_buffer::LINE;
use crate::general::General;
use crate::kernels::bf16;
use crate::kernels::blocked::{Form, conv, linear};
use crate::prepare::conv_shape;
use crate::program::{Element, Layout, Op, Program, Source, Step, ValueId};
use concat_elision::Joins;
use placement::{Found, Room, Span};

/// Places of the values of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The place of each value that a step computes, and of inputs that are written to.
    places: Vec<Option<Place>>,
    /// Whether a step computes its result in place of its first input, by step.
    in_place: Vec<bool>,
    /// The workspace of each step: its place, and its number of elements.
    workspaces: Vec<(Place, usize)>,
    /// Number of elements of each type to allocate.
    lens: Lens,
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
    pub(crate) numbers: usize,
    pub(crate) integers: usize,
    pub(crate) flags: usize,
}

/// A buffer: it holds a value, and before that those that the value was computed in place of.
struct Slot {
    element: Element,
    span: Span,
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
        let lifetimes = Lifetimes::of(program);
        let plan = Self::with_joins(&lifetimes, &Joins::default());
        let joins = Joins::of(program, &lifetimes.result);
        if joins.is_empty() {
            return plan;
        }
        // Joined values stay as long as any part of them is live, which may be long.
        let joined = Self::with_joins(&lifetimes, &joins);
        match joined.size_bytes() <= plan.size_bytes() / 8 * 9 {
            true => joined,
            false => plan,
        }
    }

    fn with_joins(lifetimes: &Lifetimes<'_>, joins: &Joins) -> Self {
        let program = lifetimes.program;
        let mut plan = Self {
            places: vec![None; program.values.len()],
            ..Self::default()
        };
        let (slots, slot_of);
        (slots, slot_of, plan.in_place) = lifetimes.slots(joins);
        let (results, rooms) = lifetimes.rooms(&slots);
        let place = |found: &Found| Place {
            result: found.room.map(|room| results[room]),
            start: found.start,
        };
        let mut places: Vec<Place> = vec![Place::default(); slots.len()];
        for element in [Element::F32, Element::I64, Element::Bool] {
            let numbers = element == Element::F32;
            let own = slots.iter().zip(&mut places);
            let own = own.filter(|(slot, _)| slot.element == element);
            let mut spans: Vec<Span> = Vec::with_capacity(slots.len());
            let mut alone: Vec<&mut Place> = Vec::with_capacity(slots.len());
            let mut in_regions: Vec<(&mut Place, (usize, usize))> = Vec::new();
            for (slot, place) in own {
                match (slot.result, slot.region) {
                    (Some(number), _) => place.result = Some(number),
                    (None, Some(region)) => in_regions.push((place, region)),
                    (None, None) => {
                        spans.push(in_lines(slot.span));
                        alone.push(place);
                    }
                }
            }
            let regions = spans.len();
            if numbers {
                spans.extend(lifetimes.regions(joins, &slots));
                spans.extend(workspaces(program));
            }
            let rooms: &[Room] = if numbers { &rooms } else { &[] };
            let (found, len) = placement::place(&spans, rooms);
            for (own, found) in alone.into_iter().zip(&found) {
                *own = place(found);
            }
            for (own, (region, at)) in in_regions {
                *own = place(&found[regions + region]);
                own.start += at;
            }
            if numbers {
                let from = found.len() - program.steps.len();
                let own = found[from..].iter().zip(&spans[from..]);
                plan.workspaces = own.map(|(found, span)| (place(found), span.len)).collect();
            }
            *plan.lens.of_mut(element) = len;
        }
        for (place, slot) in plan.places.iter_mut().zip(slot_of) {
            *place = slot.map(|slot| places[slot]);
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
            Element::F32 => self.lens.numbers,
            Element::I64 => self.lens.integers,
            Element::Bool => self.lens.flags,
        }
    }

    /// Bytes to allocate. Results have memory of their own.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let elements = [Element::F32, Element::I64, Element::Bool];
        let bytes = elements.map(|element| self.len(element).saturating_mul(element.size_bytes()));
        bytes.into_iter().fold(0, usize::saturating_add)
    }
}

impl Lens {
    fn of_mut(&mut self, element: Element) -> &mut usize {
        match element {
            Element::F32 => &mut self.numbers,
            Element::I64 => &mut self.integers,
            Element::Bool => &mut self.flags,
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
    fn slots(&self, joins: &Joins) -> (Vec<Slot>, Vec<Option<usize>>, Vec<bool>) {
        let program = self.program;
        let mut slots: Vec<Slot> = Vec::new();
        let mut slot_of: Vec<Option<usize>> = vec![None; program.values.len()];
        let mut in_place = vec![false; program.steps.len()];
        // By value, the number of the written input whose memory it lies in.
        let mut written: Vec<Option<usize>> = vec![None; program.values.len()];
        for (at, value) in program.values.iter().enumerate() {
            if let Source::Input(number) = value.source
                && let Some(result) = program.result_of_input(number)
            {
                slot_of[at] = Some(slots.len());
                written[at] = Some(result);
                slots.push(Slot {
                    element: value.element,
                    span: Span::new(0, self.last_read[at].unwrap_or(0), value.len()),
                    result: Some(result),
                    region: None,
                });
            }
        }
        for (at, step) in program.steps.iter().enumerate() {
            let output = program.root(step.output);
            let info = program.value(output);
            let len = info.stored_len();
            let taken = self
                .taken_over(at, step, &written)
                .filter(|&value| joins.place(value).is_none())
                .inspect(|&value| written[output.index()] = written[value.index()])
                .and_then(|value| slot_of[value.index()]);
            let number = taken.unwrap_or(slots.len());
            if taken.is_none() {
                slots.push(Slot {
                    element: info.element,
                    span: Span::new(at, at, len),
                    result: None,
                    region: None,
                });
            }
            let slot = &mut slots[number];
            slot.span
                .extend(at, self.last_read[output.index()].unwrap_or(at));
            slot.result = self.result[output.index()].or(written[output.index()]);
            slot.region = joins.place(output);
            slot_of[output.index()] = Some(number);
            in_place[at] = taken.is_some();
        }
        (slots, slot_of, in_place)
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
    fn rooms(&self, slots: &[Slot]) -> (Vec<usize>, Vec<Room>) {
        let results = slots.iter().filter(|slot| slot.element == Element::F32);
        // Written inputs hold their elements all the time.
        let given = self.program.outputs().len();
        let rooms = results.filter_map(|slot| {
            let number = slot.result.filter(|&number| number < given)?;
            let until = slot.span.first;
            let len = slot.span.len;
            Some((number, Room { len, until }))
        });
        rooms.unzip()
    }

    /// The memory of regions, live as long as any value in them.
    fn regions(&self, joins: &Joins, slots: &[Slot]) -> Vec<Span> {
        let end = self.program.steps.len();
        let lens = joins.lens().map(|len| in_lines(Span::new(end, 0, len)));
        // Regions that were merged into others are empty, and never live.
        let mut spans: Vec<Span> = lens.collect();
        for slot in slots {
            if let Some((region, _)) = slot.region {
                spans[region].extend(slot.span.first, slot.span.last);
            }
        }
        spans
    }
}

/// Whether a step computes `value`.
fn is_step(program: &Program, value: ValueId) -> bool {
    matches!(program.value(value).source, Source::Step)
}

/// Rounds up to whole cache lines, so that the next buffer begins at one.
fn in_lines(span: Span) -> Span {
    let len = span.len.checked_next_multiple_of(LINE).unwrap_or(span.len);
    Span { len, ..span }
}

/// The workspaces of all steps.
fn workspaces(program: &Program) -> impl Iterator<Item = Span> + '_ {
    let steps = program.steps.iter().enumerate();
    steps.map(|(at, step)| in_lines(Span::new(at, at, workspace_len(program, step))))
}

/// Number of elements that a step needs besides its inputs and its result.
fn workspace_len(program: &Program, step: &Step) -> usize {
    let in_blocks = program.value(step.output).layout == Layout::Blocks;
    match step.op {
        Op::Conv(_) | Op::GatedConv(_) if in_blocks => {
            let shape = conv_shape(program, step);
            Form::of(&shape, program.precision).map_or(0, |form| conv::workspace_len(&shape, form))
        }
        Op::Linear => {
            let weight = program.shape(step.inputs[1]);
            let (outputs, inputs) = (weight[0], weight[1]);
            let rows = program.value(step.inputs[0]).len() / inputs.max(1);
            match program.precision.amx() {
                Some(_) => bf16::linear::workspace_len(rows, inputs),
                None => linear::workspace_len(rows, [outputs, inputs]),
            }
        }
        Op::Recurrent(ref own) => own.workspace_len(),
        Op::BatchTiling(ref tiling) => Plan::of(&tiling.body).lens.numbers,
        _ => 0,
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
        Op::Fused(ref fused) => {
            program.element(step.output) == Element::F32 && fused.works_in_place()
        }
        Op::Unary(_) | Op::ChannelAffine | Op::LayerNorm { .. } | Op::Softmax { .. } => true,
        Op::General(General::Put(_) | General::Scatter { .. }) => true,
        _ => false,
    }
}
