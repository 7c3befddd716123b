//! Elementwise operators that are done together, a tile at a time.
//!
//! A tile is a few kilobytes of the result, so that what lies between one operator and the next never
//! leaves the first-level cache. Numbers and truth values (0 and 1) are both floating-point numbers
//! there. Where something is computed of whole rows, tiles are rows.

mod broadcast;
mod run;
#[cfg(test)]
mod tests;

use std::fmt;

use smallvec::SmallVec;

pub use broadcast::Broadcast;

use crate::general::{Arithmetic, Comparison, Ternary};
use crate::program::{Binary, Reduction, Unary};

/// How many elements of registers, inputs and result are worked on at a time, more or less: 24 KB, which stay in the
/// first-level cache.
const TOGETHER: usize = 6 * 1024;
/// Tiles are whole lines of the cache.
const LINES: usize = 16;
/// How many elements a tile has, at least and at most, unless it is one row.
const TILE: [usize; 2] = [256, 4096];

/// Elementwise operators over tensors of `len` elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Fused {
    /// How many elements tensors have.
    pub len: usize,
    /// How many of them are a row, if there are numbers for rows.
    pub row: Option<usize>,
    /// How inputs are read, in order.
    pub inputs: Vec<Access>,
    /// What is computed; the last instruction gives the result.
    pub instructions: Vec<Instruction>,
    /// How many registers instructions use.
    pub registers: usize,
}

/// What there is one number for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// Each element.
    Tile,
    /// Each row.
    Row,
}

/// How an input is read.
#[derive(Clone, Debug, PartialEq)]
pub enum Access {
    /// An element for each.
    Whole,
    /// An element for each row.
    Rows,
    /// One for all.
    Number,
    /// Elements that are repeated in another way; they are [loaded](Function::Load).
    Broadcast(Broadcast),
}

/// What an instruction reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// An input, of floating-point numbers.
    Input(usize),
    /// What an instruction before has computed.
    Register(usize, Width),
    /// A number.
    Number(f32),
}

/// Where an instruction writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a register, which may be the first one that it reads if it is done in place.
    Register(usize),
    /// To the result.
    Result,
}

/// What an instruction computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// The elements of an input, as floating-point numbers.
    Load(usize),
    /// What it reads.
    Same,
    /// A function of each number.
    Unary(Unary),
    /// A function of two numbers.
    Binary(Binary),
    /// A function of two numbers that has no vectors.
    Arithmetic(Arithmetic),
    /// Whether two numbers compare so.
    Compare(Comparison),
    /// The second where the first is true, elsewhere the third.
    Where,
    /// A function of three numbers.
    Ternary(Ternary),
    /// A number for each row.
    Reduce(Reduction),
    /// The sum or mean of the squares of each row.
    ReduceSquares(Reduction),
}

/// One operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// What it computes.
    pub function: Function,
    /// Of what.
    pub args: SmallVec<[Arg; 3]>,
    /// Of what it computes one.
    pub width: Width,
    /// Where it goes.
    pub target: Target,
}

impl Function {
    /// Whether it may write to the first register that it reads.
    pub(crate) fn works_in_place(self) -> bool {
        matches!(self, Self::Unary(_) | Self::Binary(_))
    }
}

impl Fused {
    /// What there is one number of the result for.
    pub(crate) fn result(&self) -> Width {
        self.instructions
            .last()
            .map_or(Width::Tile, |last| last.width)
    }

    /// Whether the result can overwrite the first input.
    pub(crate) fn works_in_place(&self) -> bool {
        self.result() == Width::Tile && self.inputs.first() == Some(&Access::Whole)
    }

    /// How many elements a tile has.
    fn tile(&self) -> usize {
        let whole = self.inputs.iter().filter(|own| **own == Access::Whole);
        // One more for the result.
        // What is computed of whole rows waits for all of them anyway: more of them wait less for what tiles take to begin.
        let together = if self.row.is_some() {
            2 * TOGETHER
        } else {
            TOGETHER
        };
        let fits = together / (self.registers + whole.count() + 1) / LINES * LINES;
        let fits = fits.clamp(TILE[0], TILE[1]).min(self.len.max(1));
        match self.row {
            Some(row) => (fits / row).max(1) * row,
            None => fits,
        }
    }
}

impl fmt::Display for Fused {
    /// The first operators: `Mul, Affine(1.0, 0.5), Sigmoid, 5 more`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let named = self.instructions.iter().map(|own| own.function);
        let named: Vec<Function> = named
            .filter(|function| !matches!(function, Function::Load(_) | Function::Same))
            .collect();
        for (at, function) in named.iter().take(SHOWN).enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            match function {
                Function::Load(_) | Function::Same => {}
                Function::Unary(unary) => write!(f, "{comma}{unary:?}")?,
                Function::Binary(binary) => write!(f, "{comma}{binary:?}")?,
                Function::Arithmetic(arithmetic) => write!(f, "{comma}{arithmetic:?}")?,
                Function::Compare(comparison) => write!(f, "{comma}{comparison:?}")?,
                Function::Ternary(ternary) => write!(f, "{comma}{ternary:?}")?,
                Function::Where => write!(f, "{comma}Where")?,
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
