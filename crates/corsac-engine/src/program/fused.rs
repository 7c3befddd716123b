//! Fused elementwise operators, computed a tile at a time.
//!
//! A tile is a few kilobytes of the result, so that intermediate values never leave the first-level
//! cache. Floating-point numbers, of one precision, and booleans (0 and 1) are both such numbers there. If
//! there are reductions of rows, tiles are whole rows.

use std::fmt;

use smallvec::SmallVec;

use super::broadcast::Broadcast;
use super::{Arithmetic, Binary, Comparison, Element, Reduction, Ternary, Unary, ValueId};

/// Approximate number of elements of registers, inputs and result that are in use at a time: 24 KB,
/// which stay in the first-level cache.
const TOGETHER: usize = 6 * 1024;
/// Tiles are multiples of a cache line.
pub(crate) const LINES: usize = 16;
/// Least and largest number of elements of a tile, unless it is one row.
const TILE: [usize; 2] = [256, 4096];

/// Least number of elements of a tile that lies in a run of a broadcast number: for shorter ones, the fixed cost of
/// a tile is more than is saved.
pub(crate) const SHORTEST_RUN: usize = 512;

/// Elementwise operators over tensors of `len` elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Fused {
    /// Type of the numbers in registers.
    pub element: Element,
    /// Number of elements of tensors.
    pub len: usize,
    /// Number of elements of a row, if there are numbers for rows.
    pub row: Option<usize>,
    /// Access to the inputs, in order.
    pub inputs: Vec<Access>,
    /// The instructions; the last one computes the result, and the one before it the row result, if
    /// there is one.
    pub instructions: Vec<Instruction>,
    /// A second result: a value with one number for each row.
    pub row_result: Option<ValueId>,
    /// Number of registers that the instructions use.
    pub registers: usize,
}

/// Number of values that an instruction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// One for each element.
    Tile,
    /// One for each row.
    Row,
}

/// Access to an input.
#[derive(Clone, Debug, PartialEq)]
pub enum Access {
    /// An element for each element of the result.
    Whole,
    /// An element for each row.
    Rows,
    /// One element for all.
    Number,
    /// Elements that are broadcast in another way; they are [loaded](Function::Load).
    Broadcast(Broadcast),
}

impl Access {
    /// Number of elements of the result in a row that one element is broadcast to.
    fn run(&self) -> Option<usize> {
        match self {
            Self::Broadcast(broadcast) => broadcast.run_of_one(),
            Self::Whole | Self::Rows | Self::Number => None,
        }
    }
}

/// Operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// An input, of floating-point numbers.
    Input(usize),
    /// The result of an earlier instruction.
    Register(usize, Width),
    /// A number.
    Number(f64),
}

/// Operands of an instruction.
pub type Args = SmallVec<[Arg; 6]>;

/// Target of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A register, which may be the first one that it reads if it works in place.
    Register(usize),
    /// The result.
    Result,
    /// The row result.
    RowResult,
}

/// Function of an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// The elements of an input, as floating-point numbers.
    Load {
        /// The input.
        input: usize,
        /// Whether its bytes are levels, not truth values.
        levels: bool,
    },
    /// Its operand, unchanged.
    Same,
    /// A function of each number.
    Unary(Unary),
    /// A function of two numbers.
    Binary(Binary),
    /// A function of two numbers that is not vectorised.
    Arithmetic(Arithmetic),
    /// A comparison of two numbers.
    Compare(Comparison),
    /// The second where the first is true, elsewhere the third.
    Where,
    /// The third where the comparison of the first two holds, elsewhere the fourth.
    Select(Comparison),
    /// A function of three numbers.
    Ternary(Ternary),
    /// Of numbers that are rounded to levels.
    Levels(LevelFunction),
    /// A reduction of each row.
    Reduce(Reduction),
    /// The sum or mean of the squares of each row.
    ReduceSquares(Reduction),
}

/// A function of the level of a number, `round(x * inverse) + zero`, where `x`, `inverse` and `zero` are its first
/// operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelFunction {
    /// What it gives.
    pub gives: Levels,
    /// The least and the largest level.
    pub bounds: [f64; 2],
    /// Whether negative infinity is rounded in place of NaN; otherwise NaN has no level, and its number is NaN.
    pub ordered: bool,
}

/// What is asked of levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Levels {
    /// Whether they are inside the bounds.
    AreInside,
    /// The fifth operand where the level is inside the bounds or the fourth is true, elsewhere the sixth.
    KeepInside,
    /// `(level - zero) * scale`, with levels outside put to the bounds. The scale is the fourth operand. Where the fifth
    /// is false, the sixth.
    AsNumbers,
}

/// An instruction: one operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// Its function.
    pub function: Function,
    /// Its operands.
    pub args: Args,
    /// Number of values that it computes.
    pub width: Width,
    /// Its target.
    pub target: Target,
}

impl Function {
    /// Whether the target may be the first register that it reads.
    pub(crate) fn works_in_place(self) -> bool {
        matches!(self, Self::Unary(_) | Self::Binary(_))
    }
}

impl Fused {
    /// Target of the instruction at this position, if it computes a result.
    pub(crate) fn result_at(&self, at: usize) -> Option<Target> {
        match self.instructions.len() - at {
            1 => Some(Target::Result),
            2 => self.row_result.map(|_| Target::RowResult),
            _ => None,
        }
    }

    /// Width of the result.
    pub(crate) fn result(&self) -> Width {
        self.instructions
            .last()
            .map_or(Width::Tile, |last| last.width)
    }

    /// Whether a result of bytes is levels, not truth values.
    pub(crate) fn gives_levels(&self) -> bool {
        let last = self.instructions.last().map(|last| last.function);
        matches!(last, Some(Function::Unary(Unary::Quantise(_))))
    }

    /// Whether the result can overwrite the first input.
    pub(crate) fn works_in_place(&self) -> bool {
        self.result() == Width::Tile && self.inputs.first() == Some(&Access::Whole)
    }

    /// The inputs that instructions read as floating-point numbers, without a load.
    pub(crate) fn reads(&self) -> impl Iterator<Item = usize> + '_ {
        let args = self.instructions.iter().flat_map(|own| &own.args);
        args.filter_map(|arg| match arg {
            Arg::Input(input) => Some(*input),
            Arg::Register(..) | Arg::Number(_) => None,
        })
    }

    /// Number of elements of a tile.
    pub(crate) fn tile(&self) -> usize {
        let whole = self.inputs.iter().filter(|own| **own == Access::Whole);
        // One more for the result. Reductions need whole rows anyway: with more of them, the fixed
        // cost of a tile is shared by more rows.
        let together = if self.row.is_some() {
            2 * TOGETHER
        } else {
            TOGETHER
        };
        let together = together * size_of::<f32>() / self.element.size_bytes();
        let fits = together / (self.registers + whole.count() + 1) / LINES * LINES;
        let fits = fits.clamp(TILE[0], TILE[1]).min(self.len.max(1));
        // Where a number is broadcast to a run, a tile in it reads one number.
        let runs = self.inputs.iter().filter_map(Access::run);
        let run = runs.min().filter(|&run| run >= SHORTEST_RUN);
        match (self.row, run) {
            (Some(row), Some(run)) if run <= row => row,
            (Some(row), _) => (fits / row).max(1) * row,
            (None, Some(run)) => {
                let parts = (run.div_ceil(fits)..=run / SHORTEST_RUN)
                    .find(|&parts| run.is_multiple_of(parts * LINES));
                parts.map_or(fits, |parts| run / parts)
            }
            (None, None) => fits,
        }
    }
}

impl fmt::Display for Fused {
    /// The first operators: `Mul, Affine(1.0, 0.5), Sigmoid, 5 more`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let named = self.instructions.iter().map(|own| own.function);
        let named: Vec<Function> = named
            .filter(|function| !matches!(function, Function::Load { .. } | Function::Same))
            .collect();
        for (at, function) in named.iter().take(SHOWN).enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            match function {
                Function::Load { .. } | Function::Same => {}
                Function::Unary(unary) => write!(f, "{comma}{unary:?}")?,
                Function::Binary(binary) => write!(f, "{comma}{binary:?}")?,
                Function::Arithmetic(arithmetic) => write!(f, "{comma}{arithmetic:?}")?,
                Function::Compare(comparison) => write!(f, "{comma}{comparison:?}")?,
                Function::Ternary(ternary) => write!(f, "{comma}{ternary:?}")?,
                Function::Levels(LevelFunction { gives, bounds, .. }) => {
                    write!(
                        f,
                        "{comma}Levels{gives:?}({:?}, {:?})",
                        bounds[0], bounds[1]
                    )?;
                }
                Function::Where => write!(f, "{comma}Where")?,
                Function::Select(comparison) => write!(f, "{comma}Where({comparison:?})")?,
                Function::Reduce(reduction) => write!(f, "{comma}{reduction:?}")?,
                Function::ReduceSquares(reduction) => {
                    write!(f, "{comma}{reduction:?} of squares")?;
                }
            }
        }
        match named.len().checked_sub(SHOWN) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, ", {more} more"),
        }
    }
}
