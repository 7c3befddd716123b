//! Attention over a few keys at a time: the scores are never all in memory.
//!
//! For some rows of queries and some keys, scores are computed, exponentiated, multiplied with the
//! values and added to the results for the keys before; where a larger score appears, the earlier
//! results are scaled down. (Dao et al., FlashAttention, algorithm 1; Milakov and Gimelshein,
//! Online normalizer calculation for softmax, algorithm 3.) [Few queries](few) need no packed keys.

mod few;

use std::cell::RefCell;
use std::ops::Range;

use rayon::prelude::*;
use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, Simd, SimdOp};

use self::few::FewQueries;
use super::BLOCK;
use super::tile::{Tile, by_width, load, vectors_per_block, widest_tile};
use crate::aligned_buffer::AlignedBuffer;
use crate::kernels::functions::vectors::exp_of_negative;
use crate::parallel::{Parallel, thread_count};

/// Number of keys that are processed at a time.
const KEYS: usize = 256;
/// Number of queries whose scores are in memory at a time: with [`KEYS`], 28 KB, and two tiles.
const QUERIES: usize = 28;
/// Largest number of queries of a piece of work: packed keys and values are read once for each
/// piece.
const HEIGHT: usize = 256;

/// Strides of a matrix, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pitch {
    /// From a row to the next.
    pub row: usize,
    /// From a column to the next.
    pub column: usize,
}

/// Offsets of the matrices of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// `[rows, width]`
    pub query: usize,
    /// `[keys, width]`
    pub key: usize,
    /// `[keys, outputs]`
    pub value: usize,
    /// `[rows, keys]`
    pub mask: usize,
    /// `[rows, outputs]`
    pub result: usize,
}

/// `softmax(query @ key.T * scale + mask) @ value` for several heads.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Offsets of the matrices, by head.
    pub heads: Vec<Head>,
    /// Number of queries of a head.
    pub rows: usize,
    /// Number of keys of a head.
    pub keys: usize,
    /// Features of queries and keys.
    pub width: usize,
    /// Features of values.
    pub outputs: usize,
    /// Strides of queries.
    pub query: Pitch,
    /// Strides of keys.
    pub key: Pitch,
    /// Strides of values.
    pub value: Pitch,
    /// Strides of masks, if there are any.
    pub mask: Option<Pitch>,
    /// Elements from a row of the result to the next; a multiple of `outputs`, as the offsets of
    /// results are.
    pub result: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Whether a query sees no keys after it.
    pub causal: bool,
    /// Whether rows whose keys are all masked are zero; otherwise they are NaN.
    pub safe: bool,
}

/// Operands of attention.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// Memory of the queries.
    pub query: &'a [f32],
    /// Memory of the keys.
    pub key: &'a [f32],
    /// Memory of the values.
    pub value: &'a [f32],
    /// Mask, which is added to the scores; empty if there is none.
    pub mask: &'a [f32],
}

impl Attention {
    /// Writes the results of all heads.
    pub fn run(&self, operands: &Operands<'_>, out: &mut [f32]) {
        let vectors = vectors_per_block();
        self.pieces(out).into_par_iter().run_parallel(|mut piece| {
            if self.has_few_queries() {
                return SCRATCH.with_borrow_mut(|scratch| {
                    FewQueries {
                        attention: self,
                        operands,
                        piece: &mut piece,
                        query: &mut scratch.queries,
                        scores: &mut scratch.scores,
                    }
                    .dispatch();
                });
            }
            SCRATCH.with_borrow_mut(|scratch| match vectors {
                1 => self.piece::<2, 1>(operands, scratch, &mut piece),
                2 => self.piece::<2, 2>(operands, scratch, &mut piece),
                _ => self.piece::<4, 4>(operands, scratch, &mut piece),
            });
        });
    }

    /// Divides the result into pieces of work: some rows of a head.
    fn pieces<'a>(&'a self, out: &'a mut [f32]) -> Vec<Piece<'a>> {
        let mut lines: Vec<Option<&mut [f32]>> = out.chunks_mut(self.outputs).map(Some).collect();
        let threads = thread_count();
        let wanted = if threads == 1 { 1 } else { 4 * threads };
        let parts = wanted.div_ceil(self.heads.len().max(1));
        let parts = parts
            .min(self.rows.div_ceil(QUERIES))
            .max(self.rows.div_ceil(HEIGHT));
        let height = self.rows.div_ceil(parts);
        let mut pieces = Vec::with_capacity(self.heads.len() * parts);
        for head in &self.heads {
            for first in (0..self.rows).step_by(height) {
                let rows = first..self.rows.min(first + height);
                let line = |row: usize| (head.result + row * self.result) / self.outputs;
                pieces.push(Piece {
                    head,
                    first,
                    out: rows.filter_map(|row| lines[line(row)].take()).collect(),
                });
            }
        }
        pieces
    }

    /// Computes a piece, with `V` vectors of keys, or of features of values, at a time.
    fn piece<const V: usize, const PER_BLOCK: usize>(
        &self,
        operands: &Operands<'_>,
        scratch: &mut Scratch,
        piece: &mut Piece<'_>,
    ) {
        let group = V / PER_BLOCK * BLOCK;
        let rows = piece.out.len();
        let outputs = self.outputs.next_multiple_of(group);
        scratch.begin(rows, outputs);
        self.pack_queries(operands.query, piece, &mut scratch.queries);
        let last = piece.first + rows;
        let seen = match self.causal {
            true => self.keys.min(last),
            false => self.keys,
        };
        for start in (0..seen).step_by(KEYS) {
            let keys = start..seen.min(start + KEYS);
            self.pack_keys(
                operands.key,
                piece.head,
                keys.clone(),
                group,
                &mut scratch.keys,
            );
            self.pack_values(
                operands.value,
                piece.head,
                keys.clone(),
                group,
                &mut scratch.values,
            );
            for first in (0..rows).step_by(QUERIES) {
                let count = QUERIES.min(rows - first);
                let blocks = keys.len().next_multiple_of(group) / BLOCK;
                scratch.scores.reuse(blocks * count * BLOCK);
                scratch.taps.clear();
                let planes = self.width.div_ceil(BLOCK);
                scratch
                    .taps
                    .extend((0..planes).map(|plane| plane * rows * BLOCK));
                Scores::<V, PER_BLOCK> {
                    taps: &scratch.taps,
                    queries: &scratch.queries[first * BLOCK..],
                    keys: &scratch.keys,
                    count,
                    scores: &mut scratch.scores,
                }
                .dispatch();
                self.hide(
                    operands.mask,
                    piece,
                    first,
                    keys.clone(),
                    count,
                    &mut scratch.scores,
                );
                scratch.exponentials(first, count, outputs);
                scratch.taps.clear();
                let blocks = keys.len().div_ceil(BLOCK);
                scratch
                    .taps
                    .extend((0..blocks).map(|block| block * count * BLOCK));
                Sums::<V, PER_BLOCK> {
                    taps: &scratch.taps,
                    weights: &scratch.scores,
                    values: &scratch.values,
                    count,
                    outputs,
                    results: &mut scratch.results[first * outputs..][..count * outputs],
                }
                .dispatch();
            }
        }
        for (row, out) in piece.out.iter_mut().enumerate() {
            let factor = self.factor(scratch.sums[row]);
            let result = &scratch.results[row * outputs..][..out.len()];
            for (to, &x) in out.iter_mut().zip(result) {
                *to = x * factor;
            }
        }
    }

    /// What a row of the result is multiplied with, given the sum of its exponentials.
    fn factor(&self, sum: f32) -> f32 {
        match self.safe && sum == 0.0 {
            true => 0.0,
            false => 1.0 / sum,
        }
    }

    /// Packs queries, times the scale, in blocks of sixteen features.
    fn pack_queries(&self, from: &[f32], piece: &Piece<'_>, to: &mut AlignedBuffer) {
        let rows = piece.out.len();
        to.clear_to(self.width.next_multiple_of(BLOCK) * rows);
        let next = self.query.column;
        let start = piece.head.query + piece.first * self.query.row;
        for (at, plane) in to.chunks_exact_mut(rows * BLOCK).enumerate() {
            let count = BLOCK.min(self.width - at * BLOCK);
            for (row, pixel) in plane.chunks_exact_mut(BLOCK).enumerate() {
                let from = &from[start + row * self.query.row + at * BLOCK * next..];
                if next == 1 {
                    for (to, &from) in pixel.iter_mut().zip(&from[..count]) {
                        *to = from * self.scale;
                    }
                    continue;
                }
                for (lane, to) in pixel[..count].iter_mut().enumerate() {
                    *to = from[lane * next] * self.scale;
                }
            }
        }
    }

    /// Packs keys: for each group of keys and each feature, the elements of all keys of the group.
    fn pack_keys(
        &self,
        from: &[f32],
        head: &Head,
        keys: Range<usize>,
        group: usize,
        to: &mut AlignedBuffer,
    ) {
        let depth = self.width.next_multiple_of(BLOCK);
        to.clear_to(keys.len().next_multiple_of(group) * depth);
        for (at, key) in keys.enumerate() {
            let from = &from[head.key + key * self.key.row..];
            let to = &mut to[at / group * group * depth + at % group..];
            for feature in 0..self.width {
                to[feature * group] = from[feature * self.key.column];
            }
        }
    }

    /// Packs values: for each group of features and each key, these features of its value.
    fn pack_values(
        &self,
        from: &[f32],
        head: &Head,
        keys: Range<usize>,
        group: usize,
        to: &mut AlignedBuffer,
    ) {
        let depth = keys.len().next_multiple_of(BLOCK);
        to.clear_to(self.outputs.next_multiple_of(group) * depth);
        for (at, packed) in to.chunks_exact_mut(group * depth).enumerate() {
            let count = group.min(self.outputs - at * group);
            for (key, packed) in keys.clone().zip(packed.chunks_exact_mut(group)) {
                let start = head.value + key * self.value.row + at * group * self.value.column;
                match self.value.column {
                    1 => packed[..count].copy_from_slice(&from[start..start + count]),
                    step => {
                        for (lane, to) in packed[..count].iter_mut().enumerate() {
                            *to = from[start + lane * step];
                        }
                    }
                }
            }
        }
    }

    /// Adds the mask to scores, and sets those of padding keys and of keys after the query to minus
    /// infinity.
    fn hide(
        &self,
        mask: &[f32],
        piece: &Piece<'_>,
        first: usize,
        keys: Range<usize>,
        count: usize,
        scores: &mut [f32],
    ) {
        let plane = count * BLOCK;
        if let Some(pitch) = self.mask {
            for (block, scores) in scores.chunks_exact_mut(plane).enumerate() {
                for (row, scores) in scores.chunks_exact_mut(BLOCK).enumerate() {
                    let row = piece.head.mask + (piece.first + first + row) * pitch.row;
                    let own = keys.end.min(keys.start + block * BLOCK)..keys.end;
                    if pitch.column == 1 {
                        let mask = &mask[row + own.start..row + own.end];
                        for (score, &mask) in scores.iter_mut().zip(mask) {
                            *score += mask;
                        }
                        continue;
                    }
                    for (score, key) in scores.iter_mut().zip(own) {
                        *score += mask[row + key * pitch.column];
                    }
                }
            }
        }
        for (block, scores) in scores.chunks_exact_mut(plane).enumerate() {
            let start = keys.start + block * BLOCK;
            // The first key that is masked for a row.
            let end = |row: usize| match self.causal {
                true => keys.end.min(piece.first + first + row + 1),
                false => keys.end,
            };
            if end(0) >= start + BLOCK {
                continue;
            }
            for (row, scores) in scores.chunks_exact_mut(BLOCK).enumerate() {
                let seen = end(row).saturating_sub(start).min(BLOCK);
                scores[seen..].fill(f32::NEG_INFINITY);
            }
        }
    }
}

/// A piece of work.
struct Piece<'a> {
    head: &'a Head,
    /// The first row.
    first: usize,
    /// The rows of the result, in order.
    out: Vec<&'a mut [f32]>,
}

/// Scratch memory of a thread, kept for the next piece.
#[derive(Default)]
struct Scratch {
    taps: Vec<usize>,
    /// In blocks of features.
    queries: AlignedBuffer,
    keys: AlignedBuffer,
    values: AlignedBuffer,
    /// In blocks of keys; then their exponentials.
    scores: AlignedBuffer,
    /// The largest score of each row so far.
    largest: Vec<f32>,
    /// The sum of exponentials of each row so far.
    sums: Vec<f32>,
    /// Sums of values times exponentials, row by row.
    results: AlignedBuffer,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Scratch {
    fn begin(&mut self, rows: usize, outputs: usize) {
        self.largest.clear();
        self.largest.resize(rows, f32::NEG_INFINITY);
        self.sums.clear();
        self.sums.resize(rows, 0.0);
        self.results.clear_to(rows * outputs);
    }

    /// Replaces the scores of rows by exponentials of their difference to the largest one, and
    /// scales down the results for the keys before.
    fn exponentials(&mut self, first: usize, count: usize, outputs: usize) {
        let mut factors = [1.0; QUERIES];
        Exponentials {
            scores: &mut self.scores,
            largest: &mut self.largest[first..first + count],
            sums: &mut self.sums[first..first + count],
            factors: &mut factors[..count],
        }
        .dispatch();
        let results = self.results[first * outputs..].chunks_exact_mut(outputs);
        for (results, factor) in results.zip(factors) {
            if factor != 1.0 {
                results.iter_mut().for_each(|x| *x *= factor);
            }
        }
    }
}

/// Exponentiates the scores of rows, in blocks of keys; the other fields have an element for each
/// row.
struct Exponentials<'a> {
    scores: &'a mut [f32],
    /// The largest score of each row so far.
    largest: &'a mut [f32],
    /// The sum of exponentials of each row so far.
    sums: &'a mut [f32],
    /// Factor of the results of each row so far.
    factors: &'a mut [f32],
}

impl SimdOp for Exponentials<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let ops = isa.f32();
        let len = ops.len();
        let plane = self.largest.len() * BLOCK;
        let state = self.largest.iter_mut().zip(self.sums);
        for (row, ((largest, sum), factor)) in state.zip(self.factors).enumerate() {
            // A vector is never longer than a block.
            let starts = || (row * BLOCK..self.scores.len()).step_by(plane);
            let mut most = ops.splat(f32::NEG_INFINITY);
            for start in starts() {
                for scores in self.scores[start..start + BLOCK].chunks_exact(len) {
                    most = ops.max(ops.load(scores), most);
                }
            }
            let before = *largest;
            *largest = before.max(largest_lane(most.to_array().as_ref()));
            // If all keys are masked, there is no difference.
            let used = match *largest == f32::NEG_INFINITY {
                true => 0.0,
                false => *largest,
            };
            if before < *largest && before != f32::NEG_INFINITY {
                *factor = (before - *largest).exp();
                *sum *= *factor;
            }
            let used = ops.splat(used);
            let mut total = ops.splat(0.0);
            for start in starts() {
                for scores in self.scores[start..start + BLOCK].chunks_exact_mut(len) {
                    let power = exp_of_negative(isa, ops.sub(ops.load(scores), used));
                    ops.store(power, scores);
                    total = ops.add(total, power);
                }
            }
            *sum += ops.sum(total);
        }
    }
}

/// The largest element of a vector.
#[inline(always)]
pub(in crate::kernels) fn largest_lane(vector: &[f32]) -> f32 {
    /// The larger elements of the two halves.
    #[inline(always)]
    fn halved<const HALF: usize>(numbers: &[f32]) -> [f32; HALF] {
        let (low, high) = numbers.split_at(HALF);
        let larger = |at: usize| {
            if low[at] > high[at] {
                low[at]
            } else {
                high[at]
            }
        };
        std::array::from_fn(larger)
    }
    let mut lanes = [f32::NEG_INFINITY; BLOCK];
    lanes[..vector.len()].copy_from_slice(vector);
    let eight: [f32; 8] = halved(&lanes);
    let four: [f32; 4] = halved(&eight);
    let two: [f32; 2] = halved(&four);
    let [largest] = halved(&two);
    largest
}

/// Computes products of queries and keys.
struct Scores<'a, const V: usize, const PER_BLOCK: usize> {
    taps: &'a [usize],
    queries: &'a [f32],
    keys: &'a [f32],
    count: usize,
    /// In blocks of keys.
    scores: &'a mut [f32],
}

impl<const V: usize, const PER_BLOCK: usize> SimdOp for Scores<'_, V, PER_BLOCK> {
    type Output = ();

    #[expect(
        clippy::needless_range_loop,
        reason = "sums are put in registers after loops over ranges are unrolled, not iterators"
    )]
    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let ops = isa.f32();
        let len = ops.len();
        if len * PER_BLOCK != BLOCK {
            // Compiled for another instruction set.
            return;
        }
        let group = V * len;
        let tiles = self.count.div_ceil(const { widest_tile(V, PER_BLOCK) });
        let height = self.count.div_ceil(tiles);
        let plane = self.count * BLOCK;
        let keys = self.keys.chunks_exact(self.taps.len() * BLOCK * group);
        let planes = self.scores.chunks_exact_mut(plane * (V / PER_BLOCK));
        for (keys, scores) in keys.zip(planes) {
            for first in (0..self.count).step_by(height) {
                let tile = Tile {
                    taps: self.taps,
                    depth: BLOCK,
                    source: &self.queries[first * BLOCK..],
                    weights: keys,
                    ahead: &[],
                };
                by_width!(height.min(self.count - first), V, PER_BLOCK, P => {
                    let begin = [[ops.splat(0.0); V]; P];
                    let sums = tile.sums::<I, P, BLOCK, V>(isa, begin);
                    for v in 0..V {
                        let start = v / PER_BLOCK * plane + v % PER_BLOCK * len;
                        for p in 0..P {
                            let at = start + (first + p) * BLOCK;
                            ops.store(sums[p][v], &mut scores[at..at + len]);
                        }
                    }
                });
            }
        }
    }
}

/// Adds values times exponentials to the results.
struct Sums<'a, const V: usize, const PER_BLOCK: usize> {
    taps: &'a [usize],
    /// In blocks of keys.
    weights: &'a [f32],
    values: &'a [f32],
    count: usize,
    /// Features of a row of the result.
    outputs: usize,
    results: &'a mut [f32],
}

impl<const V: usize, const PER_BLOCK: usize> SimdOp for Sums<'_, V, PER_BLOCK> {
    type Output = ();

    #[expect(
        clippy::needless_range_loop,
        reason = "sums are put in registers after loops over ranges are unrolled, not iterators"
    )]
    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let ops = isa.f32();
        let len = ops.len();
        if len * PER_BLOCK != BLOCK {
            // Compiled for another instruction set.
            return;
        }
        let group = V * len;
        let tiles = self.count.div_ceil(const { widest_tile(V, PER_BLOCK) });
        let height = self.count.div_ceil(tiles);
        let values = self.values.chunks_exact(self.taps.len() * BLOCK * group);
        for (column, values) in values.enumerate() {
            for first in (0..self.count).step_by(height) {
                let tile = Tile {
                    taps: self.taps,
                    depth: BLOCK,
                    source: &self.weights[first * BLOCK..],
                    weights: values,
                    ahead: &[],
                };
                let start = first * self.outputs + column * group;
                by_width!(height.min(self.count - first), V, PER_BLOCK, P => {
                    let mut begin = [[ops.splat(0.0); V]; P];
                    for p in 0..P {
                        begin[p] = load::<I, V>(isa, &self.results[start + p * self.outputs..]);
                    }
                    let sums = tile.sums::<I, P, BLOCK, V>(isa, begin);
                    for p in 0..P {
                        for v in 0..V {
                            let at = start + p * self.outputs + v * len;
                            ops.store(sums[p][v], &mut self.results[at..at + len]);
                        }
                    }
                });
            }
        }
    }
}
