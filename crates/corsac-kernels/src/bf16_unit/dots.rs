//! Dot products of pairs (AVX-512 BF16) over the layout of tiles.

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _MM_HINT_T1, _mm_prefetch, _mm512_add_ps, _mm512_dpbf16_ps,
    _mm512_loadu_ps, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_setzero_ps, _mm512_storeu_ps,
};

use super::{COLUMNS, LINE, Operands, ROWS, RUN, Sums, WEIGHTS_LEN};
use crate::bf16::Bf16;
use crate::prefetch;

/// Columns of a vector of sums.
const LANES: usize = 16;
/// Pairs of a run.
const PAIRS: usize = RUN / 2;
/// With fewer rows than this, a product takes as long as its weights are read from memory.
const FEW: usize = 4;
/// Distance from weights of a few rows to those that are prefetched meanwhile: 8 KB.
const DISTANCE: usize = 4096;

/// Whether the processor has dot products of pairs.
pub(super) fn has_dots() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16")
}

/// Adds products to sums; of the last product, only its first `rows` rows.
///
/// # Safety
/// `has_dots` has returned true. There are as many sums as firsts, and [`WEIGHTS_LEN`] weights for
/// each tap; each tap plus each first plus [`BLOCK_LEN`](super::BLOCK_LEN) is at most the length of
/// the source. `rows` is at most [`ROWS`].
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) unsafe fn multiply(
    operands: &Operands<'_>,
    firsts: &[usize],
    rows: usize,
    sums: &mut [Sums],
) {
    let count = firsts.len();
    let mut ahead = operands.shares_ahead(count);
    for (at, (&first, sums)) in firsts.iter().zip(sums).enumerate() {
        let end = if at + 1 == count { rows } else { ROWS };
        let next = ahead.next().filter(|_| end >= FEW);
        for line in next.unwrap_or(&[]).chunks(LINE) {
            _mm_prefetch(line.as_ptr().cast(), _MM_HINT_T1);
        }
        let mut row = 0;
        while row < end {
            // SAFETY: by the contract of this function, and as `row` plus the number of rows is at
            // most `ROWS`.
            row += unsafe {
                match end - row {
                    12.. => block::<12, 1>(operands, first, row, sums),
                    8..12 => block::<8, 1>(operands, first, row, sums),
                    4..8 => block::<4, 1>(operands, first, row, sums),
                    2..4 => block::<2, 2>(operands, first, row, sums),
                    _ => block::<1, 4>(operands, first, row, sums),
                }
            };
        }
    }
}

/// Adds the products of `P` rows from `row` on, which it returns. Each sum is computed in `S` parts,
/// so that a product need not wait for the one before.
///
/// # Safety
/// As for [`multiply`]; `row + P` is at most [`ROWS`].
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn block<const P: usize, const S: usize>(
    operands: &Operands<'_>,
    first: usize,
    row: usize,
    sums: &mut Sums,
) -> usize {
    let mut parts: [[[__m512; 2]; P]; S] = [[[_mm512_setzero_ps(); 2]; P]; S];
    let own = &mut sums.0[row * COLUMNS..][..P * COLUMNS];
    for p in 0..P {
        for v in 0..2 {
            let from = &own[p * COLUMNS + v * LANES..][..LANES];
            // SAFETY: these are sixteen numbers.
            parts[0][p][v] = unsafe { _mm512_loadu_ps(from.as_ptr()) };
        }
    }
    let weights = operands.weights.chunks_exact(WEIGHTS_LEN);
    for (&tap, weights) in operands.taps.iter().zip(weights) {
        // SAFETY: by the contract, the rows of the block lie inside the source.
        let rows = unsafe { operands.source.as_ptr().add(tap + first + row * RUN) };
        for step in (0..PAIRS).step_by(S) {
            for (s, part) in parts.iter_mut().enumerate() {
                let pair = step + s;
                let columns = [0, WEIGHTS_LEN / 2].map(|tile| {
                    let from = &weights[tile + pair * 2 * LANES..][..2 * LANES];
                    if P < FEW {
                        // Past the end, too: prefetching has no effect that a program can observe.
                        prefetch::nearest(from.as_ptr().wrapping_add(DISTANCE));
                    }
                    // SAFETY: these are 32 numbers of 16 bits.
                    pairs(unsafe { _mm512_loadu_si512(from.as_ptr().cast()) })
                });
                for (p, sums) in part.iter_mut().enumerate() {
                    // SAFETY: row `p` of the block has 32 numbers, of which this is a pair.
                    let x = unsafe { rows.add(p * RUN + pair * 2).cast::<i32>().read_unaligned() };
                    let x = pairs(_mm512_set1_epi32(x));
                    for (sum, columns) in sums.iter_mut().zip(columns) {
                        *sum = _mm512_dpbf16_ps(*sum, x, columns);
                    }
                }
            }
        }
    }
    for p in 0..P {
        for v in 0..2 {
            let mut sum = parts[0][p][v];
            for part in &parts[1..] {
                sum = _mm512_add_ps(sum, part[p][v]);
            }
            let to = &mut own[p * COLUMNS + v * LANES..][..LANES];
            // SAFETY: these are sixteen numbers.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), sum) };
        }
    }
    P
}

/// The same bits as pairs of bfloat16 numbers.
#[inline]
#[target_feature(enable = "avx512f")]
fn pairs(bits: __m512i) -> __m512bh {
    const { assert!(size_of::<Bf16>() == 2) }
    // SAFETY: both types are 512 bits, all of which are numbers.
    unsafe { std::mem::transmute::<__m512i, __m512bh>(bits) }
}
