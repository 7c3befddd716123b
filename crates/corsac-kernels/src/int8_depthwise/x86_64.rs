//! Depthwise products in vectors.

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, __mmask64, _mm_loadu_si128, _mm_unpackhi_epi8, _mm_unpacklo_epi8,
    _mm256_add_epi32, _mm256_cvtepi8_epi16, _mm256_cvtepu8_epi16, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_storeu_si256, _mm512_add_epi32, _mm512_broadcast_i64x4,
    _mm512_castsi256_si512, _mm512_dpbusd_epi32, _mm512_inserti64x4, _mm512_loadu_si512,
    _mm512_maskz_mov_epi8, _mm512_setzero_si512, _mm512_shuffle_i32x4, _mm512_storeu_si512,
    _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

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

/// The same with pairs of taps as numbers of 16 bits, sixteen columns at a time.
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
    for (row, sums) in (first..).zip(sums) {
        for column in (0..COLUMNS).step_by(16) {
            let mut parts: [__m256i; 2] = [0, 8].map(|at| {
                let own = &initial[column + at..][..8];
                // SAFETY: these are eight numbers.
                unsafe { _mm256_loadu_si256(own.as_ptr().cast()) }
            });
            for tap in (0..taps).step_by(2) {
                // SAFETY: there is an offset for each tap and row, and 32 bytes from it on.
                let bytes = |tap: usize| unsafe {
                    let offset = *product.offsets.get_unchecked(tap * product.rows + row);
                    let from = product.source.as_ptr().add(offset as usize + column);
                    _mm_loadu_si128(from.cast())
                };
                // SAFETY: there are 32 weights for each tap.
                let weights = |tap: usize| unsafe {
                    let from = product.weights.as_ptr().add(tap * COLUMNS + column);
                    _mm_loadu_si128(from.cast())
                };
                let (x, own) = (bytes(tap), weights(tap));
                let (next_x, next) = match tap + 1 < taps {
                    true => (bytes(tap + 1), weights(tap + 1)),
                    false => (x, zeros()),
                };
                let pairs = [_mm_unpacklo_epi8(x, next_x), _mm_unpackhi_epi8(x, next_x)];
                let weights = [_mm_unpacklo_epi8(own, next), _mm_unpackhi_epi8(own, next)];
                for ((sums, pairs), weights) in parts.iter_mut().zip(pairs).zip(weights) {
                    let (x, weights) = (_mm256_cvtepu8_epi16(pairs), _mm256_cvtepi8_epi16(weights));
                    *sums = _mm256_add_epi32(*sums, _mm256_madd_epi16(x, weights));
                }
            }
            for (at, found) in [0, 8].into_iter().zip(parts) {
                let to = &mut sums[column + at..][..8];
                // SAFETY: these are eight numbers.
                unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), found) };
            }
        }
    }
}

fn zeros() -> __m128i {
    // SAFETY: all bits may be zero.
    unsafe { std::mem::zeroed() }
}
