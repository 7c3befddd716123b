//! Rows of numbers as integers of 22 bits, in three bytes each.
//!
//! A processor that multiplies bytes then multiplies weights without widening them. A number is rounded
//! to a multiple of the 2,080,768th part of the largest of its block, which is as exact as sums in
//! single precision are, unless most of the others are much smaller: such rows stay numbers.

use std::ops::Range;

use super::{Bits, CHUNK, WORD};

/// Bytes of an integer.
pub(super) const PLANES: usize = 3;
/// What the bytes of an integer are multiplied with: they are signed, the first one is the highest.
pub(super) const FACTORS: [i32; PLANES] = [1 << 14, 1 << 7, 1];
/// The largest integer: 127 in the first byte, and zeros.
pub(super) const MOST: f32 = (127 << 14) as f32;
/// Of smaller numbers, the reciprocal may be infinite.
pub(super) const LEAST: f32 = 1e-30;
/// A number is much smaller than the largest if it is less than this part of it.
pub(super) const SMALL: f32 = 1.0 / 256.0;
/// Most chunks of a block: sums of products of their first bytes with weights are exact in single
/// precision, those of others, times 128, fit in 32 bits.
pub(super) const IN_BLOCK: usize = 128 / CHUNK;

/// The integers of a chunk, as a product reads them: all first bytes, all second ones, and all third
/// ones; each in the [order] of the weights.
pub(super) type Bytes = [[i8; CHUNK]; PLANES];

/// The integers of some rows.
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
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "only products of this architecture read it")
)]
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

impl Block {
    /// A block, given the sums of the first bytes, of the second ones, and of the third ones.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn new(bits: Bits, scale: f32, sums: [i32; PLANES]) -> Self {
        let parts = FACTORS.into_iter().zip(sums);
        let sum: i64 = parts
            .map(|(factor, sum)| i64::from(factor) * i64::from(sum))
            .sum();
        Self {
            scale,
            sum: sum as f32 * scale,
            offsets: sums.map(|sum| -bits.excess() * sum),
        }
    }
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

/// The place of a weight of a chunk among the bytes of a product: those of four bits are taken from the
/// lower halves of the bytes of a word first, and then from the higher ones.
pub(super) const fn order(bits: Bits, at: usize) -> usize {
    match bits {
        Bits::Four => at / 2 + at % 2 * WORD,
        Bits::Eight => at,
    }
}

impl Levels {
    /// The integers of rows of `depth` numbers in groups, both whole chunks, made by `quantise`; `None` if
    /// it makes none of a block.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn new(
        bits: Bits,
        rows: &[f32],
        [depth, group]: [usize; 2],
        quantise: impl Fn(&[[f32; CHUNK]], &mut [Bytes]) -> Option<Block>,
    ) -> Option<Self> {
        let mut made = Self {
            bits,
            bytes: vec![Bytes::default(); rows.len() / CHUNK],
            blocks: Vec::with_capacity(rows.len().div_ceil(group.min(IN_BLOCK * CHUNK))),
        };
        let chunks = rows.as_chunks().0.chunks(depth / CHUNK);
        for (row, bytes) in chunks.zip(made.bytes.chunks_mut(depth / CHUNK)) {
            for block in blocks(depth, group) {
                let bytes = &mut bytes[block.clone()];
                made.blocks.push(quantise(&row[block], bytes)?);
            }
        }
        Some(made)
    }
}
