//! Control flow: programs that a step runs as elements decide.

use std::fmt;

use super::{Op, Program, ValueId};

/// A step that runs other programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    /// The programs, and when they run.
    pub flow: Flow,
    /// The results behind the first one, which is the output of the step.
    pub others: Vec<ValueId>,
    /// Largest number of iterations of all loops of a run.
    pub most_iterations: u64,
}

/// Programs, and when they run. Their inputs are values in rows, and their results become those of the step.
#[derive(Clone, Debug, PartialEq)]
pub enum Flow {
    /// A truth value and operands: the first program runs on them if it is true, else the second one.
    Cond {
        /// The programs.
        branches: [Program; 2],
    },
    /// Values of the loop, and operands: as long as the result of `condition` is true, `body` runs on both, and returns
    /// the next values of the loop.
    While {
        /// Its result is one truth value.
        condition: Program,
        /// The loop.
        body: Program,
        /// Number of values of the loop.
        carried: usize,
    },
    /// Values of the loop, tensors, and operands: `body` runs for each row of the tensors, and returns the next values
    /// of the loop, and rows of the other results.
    Scan {
        /// The loop.
        body: Program,
        /// Number of values of the loop.
        carried: usize,
        /// Number of tensors whose rows are taken.
        scanned: usize,
        /// Number of rows.
        length: usize,
    },
}

/// Iterations of a loop for which nobody knows how many it has, for estimates of work.
const GUESSED_ITERATIONS: usize = 8;

impl Flow {
    /// The programs.
    pub fn bodies(&self) -> impl Iterator<Item = &Program> {
        let (first, second) = match self {
            Self::Cond {
                branches: [first, second],
            } => (first, Some(second)),
            Self::While {
                condition, body, ..
            } => (condition, Some(body)),
            Self::Scan { body, .. } => (body, None),
        };
        std::iter::once(first).chain(second)
    }

    /// The programs, to be changed.
    pub(crate) fn bodies_mut(&mut self) -> impl Iterator<Item = &mut Program> {
        let (first, second) = match self {
            Self::Cond {
                branches: [first, second],
            } => (first, Some(second)),
            Self::While {
                condition, body, ..
            } => (condition, Some(body)),
            Self::Scan { body, .. } => (body, None),
        };
        std::iter::once(first).chain(second)
    }
}

impl Control {
    /// Name in listings.
    pub(super) fn name(&self) -> &'static str {
        match self.flow {
            Flow::Cond { .. } => "cond",
            Flow::While { .. } => "while",
            Flow::Scan { .. } => "scan_rows",
        }
    }

    /// Its work, where `of` estimates that of a program.
    pub(crate) fn work(&self, of: fn(&Program) -> usize) -> usize {
        let works = self.flow.bodies().map(of);
        match self.flow {
            Flow::Cond { .. } => works.fold(0, usize::max),
            Flow::While { .. } => works
                .fold(0, usize::saturating_add)
                .saturating_mul(GUESSED_ITERATIONS),
            Flow::Scan { length, .. } => {
                works.fold(0, usize::saturating_add).saturating_mul(length)
            }
        }
    }

    /// Writes its programs, each with its part in the step.
    pub(super) fn write_bodies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: &[&str] = match self.flow {
            Flow::Cond { .. } => &["true", "false"],
            Flow::While { .. } => &["condition", "body"],
            Flow::Scan { .. } => &["body"],
        };
        for (part, body) in parts.iter().zip(self.flow.bodies()) {
            writeln!(f, "  {part}:")?;
            for line in body.to_string().lines() {
                writeln!(f, "    {line}")?;
            }
        }
        Ok(())
    }
}

impl Program {
    /// Its steps with control flow.
    pub(crate) fn controls(&self) -> impl Iterator<Item = &Control> {
        self.steps.iter().filter_map(|step| match &step.op {
            Op::Control(control) => Some(&**control),
            _ => None,
        })
    }

    /// Its steps with control flow, to be changed.
    pub(crate) fn controls_mut(&mut self) -> impl Iterator<Item = &mut Control> {
        self.steps.iter_mut().filter_map(|step| match &mut step.op {
            Op::Control(control) => Some(&mut **control),
            _ => None,
        })
    }
}
