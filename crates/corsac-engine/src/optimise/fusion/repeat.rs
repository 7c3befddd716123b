//! Steps that are computed anew by each reader, in place of being stored: that reads no more than reading their result.

use super::groups::Groups;
use super::{Kind, rows_fit, rows_of};
use crate::optimise::flow::Flow;
use crate::program::fused::Function;
use crate::program::{Binary, Element, Program, Step, ValueId};

/// The steps of a program that are cheap: a sum or product of an input or weight, and of numbers for rows or one for
/// all, whose readers can be fused, but not all in one group. What they read is always stored.
pub(super) struct Cheap {
    /// By step, whether it is cheap.
    steps: Vec<bool>,
}

impl Cheap {
    /// None.
    pub(super) fn none(program: &Program) -> Self {
        Self {
            steps: vec![false; program.steps.len()],
        }
    }

    /// Those whose results are stored if `groups` are fused.
    pub(super) fn of(program: &Program, flow: &Flow, groups: &Groups) -> Self {
        let steps = program.steps.iter().enumerate();
        let steps = steps.map(|(at, step)| groups.stores(at) && is_cheap(program, flow, step));
        Self {
            steps: steps.collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.steps.contains(&true)
    }

    pub(super) fn is(&self, at: usize) -> bool {
        self.steps[at]
    }

    /// Whether a cheap step reads `value`.
    pub(super) fn reads(&self, flow: &Flow, value: ValueId) -> bool {
        flow.readers(value)
            .iter()
            .any(|&(reader, _)| self.is(reader))
    }
}

fn is_cheap(program: &Program, flow: &Flow, step: &Step) -> bool {
    let output = program.root(step.output);
    let Some(Kind::Each(Function::Binary(Binary::Add | Binary::Sub | Binary::Mul))) =
        Kind::of(program, step)
    else {
        return false;
    };
    let readers = flow.readers(output).iter();
    if readers.len() < 2 {
        return false;
    }
    let mut readers = readers.map(|&(reader, _)| &program.steps[reader]);
    program.element(output) == Element::F32
        && step.epilogues.is_empty()
        && !flow.is_returned(output)
        && reads_one_tensor(program, flow, step)
        && readers.all(|reader| can_be_fused(program, reader))
}

/// Whether one of the operands is an input or a weight, and the others are smaller.
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
    program.value(tensor).len() == len
        && program.element(tensor) == Element::F32
        && flow.maker(program, tensor).is_none()
}

/// Whether a step can be part of a group with others.
fn can_be_fused(program: &Program, step: &Step) -> bool {
    match Kind::of(program, step) {
        Some(Kind::Rows(_, row)) => rows_fit(program.value(step.inputs[0]).len(), row),
        Some(Kind::Each(_) | Kind::WithNumber(..)) => true,
        None => false,
    }
}
