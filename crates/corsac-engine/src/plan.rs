//! Where values lie: as few and as small buffers as lifetimes allow.

use crate::kernels::bf16;
use crate::kernels::blocked::{Form, conv, linear};
use crate::prepare::conv_shape;
use crate::program::{Element, Layout, Op, Program, Source, Step, ValueId};

/// Places for the values of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The buffer of each value that a step computes.
    place: Vec<Option<usize>>,
    /// How many elements the buffers hold.
    buffers: Vec<usize>,
    /// What the buffers hold.
    elements: Vec<Element>,
    /// The steps whose result takes the place of their first input.
    in_place: Vec<bool>,
    /// The buffer that a step needs while it runs.
    workspace: Vec<Option<usize>>,
}

impl Plan {
    /// Plans `program`. A buffer is free again after the last step that reads what is in it.
    #[must_use]
    pub fn of(program: &Program) -> Self {
        let count = program.values.len();
        let mut last_read = vec![None; count];
        for (at, step) in program.steps.iter().enumerate() {
            for value in step.reads() {
                last_read[program.root(value).index()] = Some(at);
            }
        }
        for value in program.outputs() {
            // Read after the last step.
            last_read[program.root(value).index()] = Some(program.steps.len());
        }
        let mut plan = Self {
            place: vec![None; count],
            buffers: Vec::new(),
            elements: Vec::new(),
            in_place: vec![false; program.steps.len()],
            workspace: vec![None; program.steps.len()],
        };
        let mut free: Vec<usize> = Vec::new();
        for (at, step) in program.steps.iter().enumerate() {
            let output = program.root(step.output);
            let len = program.value(output).stored_len();
            let dies = |value: ValueId| last_read[value.index()] == Some(at);
            let first = step.inputs.first().map(|&value| program.root(value));
            let takes_over = first.filter(|&value| {
                works_in_place(program, step)
                    && matches!(program.value(value).source, Source::Step)
                    && program.element(value) == program.element(output)
                    && dies(value)
                    && program.value(value).stored_len() == len
                    && step
                        .reads()
                        .skip(1)
                        .all(|other| program.root(other) != value)
            });
            let buffer = match takes_over.and_then(|value| plan.place[value.index()]) {
                Some(buffer) => {
                    plan.in_place[at] = true;
                    buffer
                }
                None => plan.take_typed(&mut free, program.element(output), len),
            };
            plan.place[output.index()] = Some(buffer);
            let workspace = workspace_len(program, step);
            if workspace > 0 {
                let own = plan.take_typed(&mut free, Element::F32, workspace);
                plan.workspace[at] = Some(own);
                free.push(own);
            }
            let mut dead: Vec<usize> = step
                .reads()
                .map(|value| program.root(value))
                .filter(|&value| dies(value))
                .filter_map(|value| plan.place[value.index()])
                .filter(|&own| own != buffer)
                .collect();
            if last_read[output.index()].is_none() {
                dead.push(buffer);
            }
            dead.sort_unstable();
            dead.dedup();
            free.extend(dead);
        }
        plan
    }

    /// The smallest free buffer that is large enough, or the largest, made larger.
    fn take_typed(&mut self, free: &mut Vec<usize>, element: Element, len: usize) -> usize {
        let fits = |&&buffer: &&usize| self.buffers[buffer] >= len;
        let typed = || {
            free.iter()
                .filter(|&&buffer| self.elements[buffer] == element)
        };
        let best = typed().filter(fits).min_by_key(|&&b| self.buffers[b]);
        let best = best.or_else(|| typed().max_by_key(|&&b| self.buffers[b]));
        match best.copied() {
            Some(buffer) => {
                free.retain(|&other| other != buffer);
                self.buffers[buffer] = self.buffers[buffer].max(len);
                buffer
            }
            None => {
                self.buffers.push(len);
                self.elements.push(element);
                self.buffers.len() - 1
            }
        }
    }

    pub(crate) fn place(&self, value: ValueId) -> Option<usize> {
        self.place[value.index()]
    }

    pub(crate) fn is_in_place(&self, step: usize) -> bool {
        self.in_place[step]
    }

    /// The buffer that a step needs while it runs, if any.
    pub(crate) fn workspace(&self, step: usize) -> Option<usize> {
        self.workspace[step]
    }

    /// How many elements the buffers hold.
    #[must_use]
    pub fn buffers(&self) -> &[usize] {
        &self.buffers
    }

    /// What the buffers hold.
    #[must_use]
    pub fn elements(&self) -> &[Element] {
        &self.elements
    }

    /// How many bytes the buffers take.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let buffers = self.buffers.iter().zip(&self.elements);
        buffers
            .map(|(len, element)| len * element.size_bytes())
            .sum()
    }
}

/// How many elements a step needs besides its inputs and its result.
fn workspace_len(program: &Program, step: &Step) -> usize {
    let in_blocks = program.value(step.output).layout == Layout::Blocks;
    match step.op {
        Op::Conv(_) if in_blocks => {
            let shape = conv_shape(program, step);
            Form::of(&shape, program.precision).map_or(0, |form| conv::workspace_len(&shape, form))
        }
        Op::Linear => {
            let inputs = program.shape(step.inputs[1])[1];
            let rows = program.value(step.inputs[0]).len() / inputs.max(1);
            match program.precision.amx() {
                Some(_) => bf16::linear::workspace_len(rows, inputs),
                None => linear::workspace_len(rows, inputs),
            }
        }
        _ => 0,
    }
}

/// Whether the result can overwrite the first input while it is computed.
fn works_in_place(program: &Program, step: &Step) -> bool {
    match step.op {
        // Both operands are read element by element: neither is repeated.
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
        _ => false,
    }
}
