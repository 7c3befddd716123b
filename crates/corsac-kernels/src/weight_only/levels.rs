//! Rows of numbers as integers of 22 bits, in three bytes each.
//!
//! A processor that multiplies bytes then multiplies weights without widening them. A number is rounded
//! to a multiple of the 2,080,768th part of the largest of its block, which is as exact as sums in
//! single precision are, unless most of the others are much smaller: such rows stay numbers.

use std::ops::Range;

use super::{Bits, CHUNK};

/// Bytes of an integer.
pub(super) const PLANES: usize = 3;
/// Most chunks of a block: sums of products of their first bytes with weights are exact in single
/// precision, those of others, times 128, fit in 32 bits.
pub(super) const IN_BLOCK: usize = 128 / CHUNK;

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
    /// For each row, each of its [blocks].
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
    /// weights have their [excess](Bits::excess).
    pub(super) offsets: [i32; PLANES],
}

/// The chunks of each block of a row of `depth` numbers in groups, both whole chunks: no block is of two
/// groups.
pub(super) fn blocks(depth: usize, group: usize) -> impl Iterator<Item = Range<usize>> {
    let (chunks, group) = (depth / CHUNK, group / CHUNK);
    let groups = (0..chunks).step_by(group);
    groups.flat_map(move |start| {
        let end = chunks.min(start + group);
        let starts = (start..end).step_by(IN_BLOCK);
        starts.map(move |start| start..end.min(start + IN_BLOCK))
    })
}
