//! Depthwise products in vectors.

use std::arch::x86_64::{
    __m256i, __m512i, __mmask64, _mm256_add_epi32, _mm256_and_si256, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_permute2x128_si256, _mm256_set1_epi16, _mm256_setzero_si256,
    _mm256_slli_epi16, _mm256_srai_epi16, _mm256_srli_epi16, _mm256_storeu_si256,
    _mm256_unpackhi_epi16, _mm256_unpackhi_epi32, _mm256_unpacklo_epi16, _mm256_unpacklo_epi32,
    _mm512_add_epi32, _mm512_broadcast_i64x4, _mm512_castsi256_si512, _mm512_dpbusd_epi32,
    _mm512_inserti64x4, _mm512_loadu_si512, _mm512_maskz_mov_epi8, _mm512_setzero_si512,
    _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64,
    _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

use std::ops::Range;

use super::Depthwise;
use crate::int8_unit::{COLUMNS, Sums};

/// Rows of a block: two vectors of two.
const ROWS: usize = 4;
/// Columns of a quad, which a dot product adds up: of four, three have the weight zero.
const QUAD: usize = 4;

/// Sets the sums of the rows from `first` on.
///
/// Nothing is shuffled until all taps are multiplied, since most processors shuffle more slowly than
/// they multiply.
///
/// # Safety
/// `has_avx512_vnni` has returned true; `Depthwise::taps` has checked the operands, of which these
/// rows are some.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn avx512_vnni(
    product: &Depthwise<'_>,
    taps: usize,
    first: usize,
    initial: &Sums,
    sums: &mut [Sums],
) {
    /// The first column of each quad, of all.
    const FIRST: __mmask64 = 0x1111_1111_1111_1111;
    let source = product.source.as_ptr();
    for (block, sums) in sums.chunks_mut(ROWS).enumerate() {
        let row = first + block * ROWS;
        let mut parts: [[__m512i; QUAD]; 2] = [[_mm512_setzero_si512(); QUAD]; 2];
        // SAFETY: there is an offset for each tap and row, 32 bytes from it on, and 32 weights for
        // each tap. The last row stands for those that are not there.
        unsafe {
            let mut offsets = product.offsets.as_ptr().add(row);
            for tap in 0..taps {
                let from = |at: usize| {
                    let offset = *offsets.add(at.min(sums.len() - 1)) as usize;
                    _mm256_loadu_si256(source.add(offset).cast())
                };
                let x = [0, 2].map(|at| {
                    let low = _mm512_castsi256_si512(from(at));
                    _mm512_inserti64x4::<1>(low, from(at + 1))
                });
                let weights = product.weights.as_ptr().add(tap * COLUMNS);
                let weights = _mm512_broadcast_i64x4(_mm256_loadu_si256(weights.cast()));
                for at in 0..QUAD {
                    let weights = _mm512_maskz_mov_epi8(FIRST << at, weights);
                    for (parts, x) in parts.iter_mut().zip(x) {
                        parts[at] = _mm512_dpbusd_epi32(parts[at], x, weights);
                    }
                }
                offsets = offsets.wrapping_add(product.rows);
            }
        }
        let halves = [0, 1].map(|half| {
            let own = &initial[half * 16..][..16];
            // SAFETY: these are sixteen numbers.
            unsafe { _mm512_loadu_si512(own.as_ptr().cast()) }
        });
        for (sums, parts) in sums.chunks_mut(2).zip(parts) {
            for (sums, found) in sums.iter_mut().zip(ordered(parts)) {
                for half in 0..2 {
                    let to = &mut sums[half * 16..][..16];
                    let found = _mm512_add_epi32(halves[half], found[half]);
                    // SAFETY: these are sixteen numbers.
                    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), found) };
                }
            }
        }
    }
}

/// The sums of two rows in the order of columns, from those of each column of a quad.
#[inline]
#[target_feature(enable = "avx512f")]
fn ordered([a, b, c, d]: [__m512i; QUAD]) -> [[__m512i; 2]; 2] {
    // Quads, of which each vector has the same in all parts of 128 bits.
    let (low, high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (next_low, next_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    let first = _mm512_unpacklo_epi64(low, next_low);
    let second = _mm512_unpackhi_epi64(low, next_low);
    let third = _mm512_unpacklo_epi64(high, next_high);
    let fourth = _mm512_unpackhi_epi64(high, next_high);
    // A row is in the lower or the upper two parts.
    let lower = [
        _mm512_shuffle_i32x4::<0b01_00_01_00>(first, second),
        _mm512_shuffle_i32x4::<0b01_00_01_00>(third, fourth),
    ];
    let upper = [
        _mm512_shuffle_i32x4::<0b11_10_11_10>(first, second),
        _mm512_shuffle_i32x4::<0b11_10_11_10>(third, fourth),
    ];
    [lower, upper].map(|[a, b]| {
        [
            _mm512_shuffle_i32x4::<0b10_00_10_00>(a, b),
            _mm512_shuffle_i32x4::<0b11_01_11_01>(a, b),
        ]
    })
}

/// Rows whose pairs are multiplied at a time.
const PAIR_ROWS: usize = 2;
/// Pairs of taps whose weights are widened at a time.
const PAIRS: usize = 16;
/// Vectors of a pair of all columns: the lower and the upper half of each eight even columns, and
/// those of odd ones.
const PARTS: usize = 4;

/// The same with pairs of taps as numbers of 16 bits, even and odd columns apart.
///
/// # Safety
/// The processor has AVX2; else as for [`avx512_vnni`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn avx2(
    product: &Depthwise<'_>,
    taps: usize,
    first: usize,
    initial: &Sums,
    sums: &mut [Sums],
) {
    sums.fill(*initial);
    for start in (0..taps).step_by(2 * PAIRS) {
        let end = taps.min(start + 2 * PAIRS);
        // SAFETY: there are 32 weights for each of these taps.
        let weights = unsafe { widened(product, start..end) };
        for (block, sums) in sums.chunks_mut(PAIR_ROWS).enumerate() {
            let row = first + block * PAIR_ROWS;
            // SAFETY: there is an offset for each tap and row, and 32 bytes from it on; these are the
            // weights of the taps.
            unsafe {
                match sums {
                    [a, b] => add_pairs(product, start..end, row, &weights, [a, b]),
                    [a] => add_pairs(product, start..end, row, &weights, [a]),
                    _ => {}
                }
            }
        }
    }
}

/// The weights of pairs of taps as numbers of 16 bits; a last one alone has zeros beside it.
///
/// # Safety
/// The processor has AVX2; there are 32 weights for each tap, and at most two taps for each of
/// [`PAIRS`].
#[target_feature(enable = "avx2")]
unsafe fn widened(product: &Depthwise<'_>, taps: Range<usize>) -> [[__m256i; PARTS]; PAIRS] {
    let mut all = [[_mm256_setzero_si256(); PARTS]; PAIRS];
    for (pair, tap) in taps.clone().step_by(2).enumerate() {
        let halves = |tap: usize| {
            // SAFETY: by the contract.
            let bytes = unsafe {
                let from = product.weights.as_ptr().add(tap * COLUMNS);
                _mm256_loadu_si256(from.cast())
            };
            let even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes));
            [even, _mm256_srai_epi16::<8>(bytes)]
        };
        let next = match tap + 1 < taps.end {
            true => halves(tap + 1),
            false => [_mm256_setzero_si256(); 2],
        };
        all[pair] = pairs(halves(tap), next);
    }
    all
}

/// Pairs of the same column, of even and odd columns.
#[inline]
#[target_feature(enable = "avx2")]
fn pairs([even, odd]: [__m256i; 2], [next_even, next_odd]: [__m256i; 2]) -> [__m256i; PARTS] {
    [
        _mm256_unpacklo_epi16(even, next_even),
        _mm256_unpackhi_epi16(even, next_even),
        _mm256_unpacklo_epi16(odd, next_odd),
        _mm256_unpackhi_epi16(odd, next_odd),
    ]
}

/// Adds the products of some taps to the sums of `P` rows.
///
/// # Safety
/// The processor has AVX2; there are these taps, of which the rows have offsets, and 32 bytes from
/// each on.
#[target_feature(enable = "avx2")]
unsafe fn add_pairs<const P: usize>(
    product: &Depthwise<'_>,
    taps: Range<usize>,
    row: usize,
    weights: &[[__m256i; PARTS]],
    sums: [&mut Sums; P],
) {
    let mut parts = [[_mm256_setzero_si256(); PARTS]; P];
    let offsets = product.offsets.as_ptr();
    for (tap, weights) in taps.clone().step_by(2).zip(weights) {
        // The last tap, alone, has zeros beside its weights.
        let next = (tap + 1).min(taps.end - 1);
        for (p, parts) in parts.iter_mut().enumerate() {
            let halves = |tap: usize| {
                // SAFETY: by the contract.
                let bytes = unsafe {
                    let offset = offsets.add(tap * product.rows + row + p).read();
                    let from = product.source.as_ptr().add(offset as usize);
                    _mm256_loadu_si256(from.cast())
                };
                let even = _mm256_and_si256(bytes, _mm256_set1_epi16(0xff));
                [even, _mm256_srli_epi16::<8>(bytes)]
            };
            let x = pairs(halves(tap), halves(next));
            for ((parts, x), &weights) in parts.iter_mut().zip(x).zip(weights) {
                *parts = _mm256_add_epi32(*parts, _mm256_madd_epi16(x, weights));
            }
        }
    }
    for (sums, [even, next_even, odd, next_odd]) in sums.into_iter().zip(parts) {
        // Both halves of a vector have their own sixteen columns.
        let quarters = [
            _mm256_unpacklo_epi32(even, odd),
            _mm256_unpackhi_epi32(even, odd),
            _mm256_unpacklo_epi32(next_even, next_odd),
            _mm256_unpackhi_epi32(next_even, next_odd),
        ];
        let ordered = [
            _mm256_permute2x128_si256::<0x20>(quarters[0], quarters[1]),
            _mm256_permute2x128_si256::<0x20>(quarters[2], quarters[3]),
            _mm256_permute2x128_si256::<0x31>(quarters[0], quarters[1]),
            _mm256_permute2x128_si256::<0x31>(quarters[2], quarters[3]),
        ];
        for (sums, found) in sums.as_chunks_mut::<8>().0.iter_mut().zip(ordered) {
            // SAFETY: these are eight numbers.
            unsafe {
                let before = _mm256_loadu_si256(sums.as_ptr().cast());
                let after = _mm256_add_epi32(before, found);
                _mm256_storeu_si256(sums.as_mut_ptr().cast(), after);
            }
        }
    }
}
