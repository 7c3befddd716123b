//! Tiles: pixels of a row of a result, for a few blocks of its channels.
//!
//! The sums of a tile stay in registers until they are complete: for each element of the kernel and
//! each channel, one vector of weights for each block is multiplied with the element of each pixel.
//! Fourteen pixels and two blocks, nine and three, or six and four fill the 32 registers of
//! AVX-512; two of three operands are reused, so that the loads keep pace with the products.

use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp};

use super::BLOCK;
use crate::aligned_buffer::LINE;

/// Number of vectors of a block.
pub(super) fn vectors_per_block() -> usize {
    BLOCK / VectorLen.dispatch().min(BLOCK)
}

/// Number of elements of a vector.
struct VectorLen;

impl SimdOp for VectorLen {
    type Output = usize;

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) -> usize {
        isa.f32().len()
    }
}

/// Number of blocks of a tile for rows of this many pixels: in short rows, more blocks than pixels.
pub(super) fn widest(columns: usize, vectors: usize) -> usize {
    match (vectors, columns) {
        (1, 14..) => 2,
        (1, 7..14) => 3,
        (1, _) => 4,
        _ => 1,
    }
}

/// Largest number of pixels of a tile of `vectors` vectors. Weights take as many registers as
/// vectors, and the current element takes one; AVX-512, where a block is one vector, and NEON have 32,
/// others 16.
pub(super) const fn widest_tile(vectors: usize, per_block: usize) -> usize {
    let has_many = per_block == 1 || cfg!(target_arch = "aarch64");
    let registers = if has_many { 32 } else { 16 };
    let pixels = (registers - vectors - 1) / vectors;
    if pixels > 14 { 14 } else { pixels }
}

/// Runs `$do` with the constant `$P` equal to `$pixels`, a number of pixels that a tile of `$V`
/// vectors can have.
macro_rules! by_width {
    ($pixels:expr, $V:ident, $PER_BLOCK:ident, $P:ident => $do:block) => {
        by_width!(@ $pixels, $V, $PER_BLOCK, $P, $do, 1 2 3 4 5 6 7 8 9 10 11 12 13 14)
    };
    (@ $pixels:expr, $V:ident, $PER_BLOCK:ident, $P:ident, $do:block, $($width:literal)*) => {
        match $pixels {
            $($width if const { $width <= widest_tile($V, $PER_BLOCK) } => {
                const $P: usize = $width;
                $do
            })*
            _ => unreachable!("a tile fits the registers"),
        }
    };
}
pub(super) use by_width;

/// The part of `ahead` to prefetch during piece `at` of `count` pieces of work.
pub(super) fn share(ahead: &[f32], at: usize, count: usize) -> &[f32] {
    let part = ahead.len().div_ceil(count.max(1)).next_multiple_of(LINE);
    let start = (at * part).min(ahead.len());
    &ahead[start..(start + part).min(ahead.len())]
}

/// Loads `V` vectors.
#[inline(always)]
pub(super) fn load<I: Isa, const V: usize>(isa: I, from: &[f32]) -> [I::F32; V] {
    let ops = isa.f32();
    let mut vectors = [ops.splat(0.0); V];
    for v in 0..V {
        vectors[v] = ops.load(&from[v * ops.len()..][..ops.len()]);
    }
    vectors
}

/// Operands of a tile.
pub(super) struct Tile<'a> {
    /// Offsets of the runs of elements.
    pub(super) taps: &'a [usize],
    /// Elements of a run.
    pub(super) depth: usize,
    /// Elements from the first pixel on.
    pub(super) source: &'a [f32],
    /// For each element of each run, the weights of all channels.
    pub(super) weights: &'a [f32],
    /// Weights of later work, to prefetch meanwhile: they are far away in memory.
    pub(super) ahead: &'a [f32],
}

impl Tile<'_> {
    /// The sums of `P` pixels that are `STEP` elements apart, added to initial sums.
    // Loops over ranges are unrolled before sums are put in registers; iterators are not, and
    // closures are not always compiled for the instruction set.
    #[inline(always)]
    pub(super) fn sums<I: Isa, const P: usize, const STEP: usize, const V: usize>(
        &self,
        isa: I,
        mut sums: [[I::F32; V]; P],
    ) -> [[I::F32; V]; P] {
        let ops = isa.f32();
        let len = ops.len();
        let weights = self.weights.chunks_exact(self.depth * V * len);
        let mut ahead = self
            .ahead
            .chunks(self.ahead.len().div_ceil(self.taps.len().max(1)).max(1));
        for (&tap, weights) in self.taps.iter().zip(weights) {
            for line in ahead.next().unwrap_or(&[]).chunks(LINE) {
                ops.prefetch(line.as_ptr());
            }
            let run = &self.source[tap..][..(P - 1) * STEP + self.depth];
            for (c, weights) in weights.chunks_exact(V * len).enumerate() {
                let weight: [I::F32; V] = load(isa, weights);
                let run = &run[c..][..(P - 1) * STEP + 1];
                for p in 0..P {
                    let x = ops.splat(run[p * STEP]);
                    for v in 0..V {
                        sums[p][v] = ops.mul_add(x, weight[v], sums[p][v]);
                    }
                }
            }
        }
        sums
    }
}
