//! Control flow: programs that a step runs as elements decide.

use std::fmt;

use super::{Op, Program, ValueId};

/// A step that runs other programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    /// When the programs run.
    pub flow: Flow,
    /// The programs: two for [`Flow::Cond`] and [`Flow::While`], one for [`Flow::Scan`]. Their inputs are values in rows,
    /// and their results become those of the step.
    pub bodies: Vec<Program>,
    /// The results behind the first one, which is the output of the step.
    pub others: Vec<ValueId>,
    /// Largest number of iterations of all loops of a run.
    pub most_iterations: u64,
}

/// When programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// A truth value and operands: the first program runs on them if it is true, else the second one.
    Cond,
    /// Values of the loop, and operands: as long as the only result of the first program is true, the second one runs on
    /// both, and returns the next values of the loop.
    While {
        /// Number of values of the loop.
        carried: usize,
    },
    /// Values of the loop, tensors, and operands: the program runs for each row of the tensors, and returns the next
    /// values of the loop, and rows of the other results.
    Scan {
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

impl Control {
    /// Name in listings.
    pub(super) fn name(&self) -> &'static str {
        match self.flow {
            Flow::Cond => "cond",
            Flow::While { .. } => "while",
            Flow::Scan { .. } => "scan_rows",
        }
    }

    /// Its work, where `of` estimates that of a program.
    pub(crate) fn work(&self, of: fn(&Program) -> usize) -> usize {
        let works = self.bodies.iter().map(of);
        match self.flow {
            Flow::Cond => works.fold(0, usize::max),
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
            Flow::Cond => &["true", "false"],
            Flow::While { .. } => &["condition", "body"],
            Flow::Scan { .. } => &["body"],
        };
        for (part, body) in parts.iter().zip(&self.bodies) {
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
