//! Products of weights of four bits with [levels](super::levels) of rows, of 64 bytes at a time.

use std::arch::x86_64::{
    __m512, __m512i, _mm_loadu_si128, _mm256_loadu_si256, _mm512_add_epi32, _mm512_and_si512,
    _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_dpbusd_epi32,
    _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps,
    _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps, _mm512_slli_epi32, _mm512_srli_epi16,
    _mm512_storeu_ps,
};

use super::levels::{Bytes, FACTORS, Levels, PLANES};
use super::{Bits, PANEL, Product, Scales};
use crate::prefetch::{self, DISTANCE, LINE};

/// Numbers of a vector.
const LANES: usize = 16;
/// Vectors of a panel.
const VECTORS: usize = PANEL / LANES;

/// Whether the processor has the instructions of [`multiply`].
pub(super) fn has() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vnni")
}

/// Sets the sums of each row, given the levels of these rows from `first` on.
///
/// # Panics
/// If there are not the levels of as many rows as results.
///
/// # Safety
/// The processor [`has`] the instructions. Weights are of four bits, and there are scales, and zero points
/// if there are any, for all groups of the panel.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn multiply(
    product: &Product<'_>,
    levels: &Levels,
    mut first: usize,
    mut results: &mut [[f32; PANEL]],
) {
    let chunks = product.packed.len() / Bits::Four.chunk_len();
    assert!(
        (first + results.len()) * chunks <= levels.bytes.len(),
        "levels of rows"
    );
    // More sums than those of two rows do not stay in registers.
    while !results.is_empty() {
        let (own, rest) = results.split_at_mut(results.len().min(2));
        let count = own.len();
        // SAFETY: by the contract of this function; the levels of these rows are there.
        unsafe {
            match count {
                2 => panel::<2>(product, levels, first, own),
                _ => panel::<1>(product, levels, first, own),
            }
        }
        (first, results) = (first + count, rest);
    }
}

/// Sets the sums of `M` rows.
///
/// # Safety
/// As [`multiply`]; the levels of the rows are there.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn panel<const M: usize>(
    product: &Product<'_>,
    levels: &Levels,
    first: usize,
    results: &mut [[f32; PANEL]],
) {
    let len = Bits::Four.chunk_len();
    let chunks = product.packed.len() / len;
    let groups = chunks.div_ceil(product.group);
    let results = &mut results[..M];
    results.fill([0.0; PANEL]);
    for group in 0..groups {
        let start = group * product.group;
        let end = chunks.min(start + product.group);
        let levels_of = |row: usize| levels.groups[(first + row) * groups + group];
        // Weights are eight more than they stand for.
        let mut sums: [[[__m512i; PLANES]; VECTORS]; M] = std::array::from_fn(|row| {
            [levels_of(row).sums.map(|sum| _mm512_set1_epi32(-8 * sum)); VECTORS]
        });
        for chunk in start..end {
            let rows: [&Bytes; M] =
                std::array::from_fn(|row| &levels.bytes[(first + row) * chunks + chunk]);
            // SAFETY: the panel has this chunk.
            unsafe {
                add_chunk(
                    &mut sums,
                    product.packed[chunk * len..][..len].as_ptr(),
                    rows,
                )
            };
        }
        for v in 0..VECTORS {
            let at = group * PANEL + v * LANES;
            // SAFETY: the processor has the instructions, and slices have as many elements as are
            // read.
            let (scales, zero_points) = unsafe {
                let scales = match product.scales {
                    Scales::Single(all) => _mm512_loadu_ps(all[at..][..LANES].as_ptr()),
                    Scales::Half(all) => {
                        let halves = all[at..][..LANES].as_ptr();
                        _mm512_cvtph_ps(_mm256_loadu_si256(halves.cast()))
                    }
                };
                let zero_points = product.zero_points.map(|all| {
                    let bytes = _mm_loadu_si128(all[at..][..LANES].as_ptr().cast());
                    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))
                });
                (scales, zero_points)
            };
            for (row, result) in results.iter_mut().enumerate() {
                let own = levels_of(row);
                let [highest, middle, lowest] = sums[row][v];
                let rest = _mm512_add_epi32(_mm512_slli_epi32::<7>(middle), lowest);
                let factor = _mm512_set1_ps(FACTORS[0] as f32);
                let mut sum: __m512 = _mm512_fmadd_ps(
                    _mm512_cvtepi32_ps(highest),
                    factor,
                    _mm512_cvtepi32_ps(rest),
                );
                if let Some(zero_points) = zero_points {
                    let parts = FACTORS.into_iter().zip(own.sums);
                    let all: i64 = parts
                        .map(|(factor, sum)| i64::from(factor) * i64::from(sum))
                        .sum();
                    sum = _mm512_fnmadd_ps(_mm512_set1_ps(all as f32), zero_points, sum);
                }
                let sum = _mm512_mul_ps(sum, _mm512_set1_ps(own.scale));
                let to = &mut result[v * LANES..][..LANES];
                // SAFETY: sixteen numbers are there.
                unsafe {
                    let sum = _mm512_fmadd_ps(sum, scales, _mm512_loadu_ps(to.as_ptr()));
                    _mm512_storeu_ps(to.as_mut_ptr(), sum);
                }
            }
        }
    }
}

/// Adds the products of a chunk with each of the bytes of rows.
///
/// # Safety
/// The chunk is there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn add_chunk<const M: usize>(
    sums: &mut [[[__m512i; PLANES]; VECTORS]; M],
    packed: *const u8,
    rows: [&Bytes; M],
) {
    let low = _mm512_set1_epi8(15);
    for line in 0..Bits::Four.chunk_len() / LINE {
        prefetch::nearest(packed.wrapping_add(DISTANCE + line * LINE));
    }
    let weights: [[__m512i; 2]; VECTORS] = std::array::from_fn(|v| {
        // SAFETY: a vector of the chunk.
        let both = unsafe { _mm512_loadu_si512(packed.add(v * LANES * 4).cast()) };
        let odd = _mm512_srli_epi16::<4>(both);
        [_mm512_and_si512(both, low), _mm512_and_si512(odd, low)]
    });
    for (sums, bytes) in sums.iter_mut().zip(rows) {
        for (at, &quad) in bytes.iter().enumerate() {
            let quad = _mm512_set1_epi32(word(quad));
            for (sums, weights) in sums.iter_mut().zip(&weights) {
                let sum = &mut sums[at / 2];
                *sum = _mm512_dpbusd_epi32(*sum, weights[at % 2], quad);
            }
        }
    }
}

/// Four bytes as a number, the first one lowest.
fn word(bytes: [i8; 4]) -> i32 {
    i32::from_le_bytes(bytes.map(i8::cast_unsigned))
}
