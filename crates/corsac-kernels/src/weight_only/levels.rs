//! Rows of numbers as integers of 22 bits, in three bytes each.
//!
//! A processor that multiplies bytes then multiplies weights without widening them. A number is rounded
//! to a multiple of the 2,080,768th part of the largest of its block, which is as exact as sums in
//! single precision are, unless most of the others are much smaller: such rows stay numbers.

use super::{Bits, CHUNK};

/// Bytes of an integer.
pub(super) const PLANES: usize = 3;

/// The integers of a chunk, as a product reads them: all first bytes, all second ones, and all third
/// ones. Weights of four bits are taken from the lower halves of the bytes of a word first, so that the
/// bytes for these are the first ones.
pub(super) type Bytes = [[i8; CHUNK]; PLANES];

/// The integers of some rows.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "only products of this architecture read it")
)]
#[derive(Debug)]
pub(super) struct Levels {
    /// Of the weights that they are multiplied with.
    pub(super) bits: Bits,
    /// For each row, each of its chunks.
    pub(super) bytes: Vec<Bytes>,
    /// For each row, each of its blocks.
    pub(super) blocks: Vec<Block>,
}

/// A block of numbers of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Block {
    /// The number that one stands for.
    pub(super) scale: f32,
    /// The sum of the rounded numbers.
    pub(super) sum: f32,
    /// What is added to sums of products with the first bytes, the second ones, and the third ones, as
    /// weights have their [excess](Bits::excess); of four bits, all is added to the last one.
    pub(super) offsets: [i32; PLANES],
}
