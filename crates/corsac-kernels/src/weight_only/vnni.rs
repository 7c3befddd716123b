//! Products of weights with [levels](super::levels) of rows, of 64 bytes at a time.

use std::arch::x86_64::{
    __m512, __m512i, _mm_loadu_si128, _mm256_loadu_si256, _mm512_add_epi32, _mm512_and_si512,
    _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_dpbusd_epi32,
    _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_set1_epi8,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_slli_epi32,
    _mm512_srli_epi16, _mm512_storeu_ps,
};

use super::levels::{Block, Bytes, Levels, PLANES};
use super::quantise::{FACTORS, in_block, most_in_block};
use super::{Bits, CHUNK, PANEL, Product, Scales, WORD};
use crate::prefetch::{self, DISTANCE, LINE};

/// Numbers of a vector.
const LANES: usize = 16;
/// Vectors of a panel.
const VECTORS: usize = PANEL / LANES;
/// Vectors of bytes of some columns of a chunk.
const WORDS: usize = CHUNK / WORD;

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
/// The processor [`has`] the instructions. There are scales, and zero points if there are any, for all
/// groups of the panel.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn multiply(
    product: &Product<'_>,
    levels: &Levels,
    mut first: usize,
    mut results: &mut [[f32; PANEL]],
) {
    let chunks = product.packed.len() / product.bits.chunk_len();
    assert!(
        (first + results.len()) * chunks <= levels.bytes.len(),
        "levels of rows"
    );
    // More sums than those of four rows do not stay in registers.
    while !results.is_empty() {
        let (own, rest) = results.split_at_mut(results.len().min(4));
        let count = own.len();
        // SAFETY: by the contract of this function; the levels of these rows are there.
        unsafe {
            match (product.bits, count) {
                (Bits::Four, 4) => panel::<4, 4>(product, levels, first, own),
                (Bits::Four, 3) => panel::<4, 3>(product, levels, first, own),
                (Bits::Four, 2) => panel::<4, 2>(product, levels, first, own),
                (Bits::Four, _) => panel::<4, 1>(product, levels, first, own),
                (Bits::Eight, 4) => panel::<8, 4>(product, levels, first, own),
                (Bits::Eight, 3) => panel::<8, 3>(product, levels, first, own),
                (Bits::Eight, 2) => panel::<8, 2>(product, levels, first, own),
                (Bits::Eight, _) => panel::<8, 1>(product, levels, first, own),
            }
        }
        (first, results) = (first + count, rest);
    }
}

/// Sets the sums of `M` rows, of weights of `BITS` bits.
///
/// # Safety
/// As [`multiply`]; the levels of the rows are there.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn panel<const BITS: usize, const M: usize>(
    product: &Product<'_>,
    levels: &Levels,
    first: usize,
    results: &mut [[f32; PANEL]],
) {
    let chunks = product.packed.len() / product.bits.chunk_len();
    let results = &mut results[..M];
    let mut all = [[_mm512_setzero_ps(); VECTORS]; M];
    let of_row = levels.blocks.len() / (levels.bytes.len() / chunks);
    let mut at = first * of_row;
    for (group, start) in (0..chunks).step_by(product.group).enumerate() {
        let end = chunks.min(start + product.group);
        let mut sums = [[_mm512_setzero_ps(); VECTORS]; M];
        let mut totals = [0.0; M];
        let mut chunk = start;
        while chunk < end {
            let mut own = [&levels.blocks[at]; M];
            for (row, block) in own.iter_mut().enumerate().skip(1) {
                *block = &levels.blocks[at + row * of_row];
            }
            let count = in_block(product.bits, end - chunk);
            let mut bytes = [&levels.bytes[first * chunks + chunk..][..count]; M];
            for (row, bytes) in bytes.iter_mut().enumerate().skip(1) {
                *bytes = &levels.bytes[(first + row) * chunks + chunk..][..count];
            }
            let len = product.bits.chunk_len();
            let packed = product.packed[chunk * len..][..count * len].as_ptr();
            // SAFETY: these chunks are there.
            unsafe {
                match (BITS, count == const { most_in_block(Bits::Four) }) {
                    (4, true) => {
                        const ALL: usize = most_in_block(Bits::Four);
                        add_four::<M, ALL>(&mut sums, packed, bytes, own);
                    }
                    (4, false) => add_four::<M, 1>(&mut sums, packed, bytes, own),
                    _ => add_eight(&mut sums, packed, bytes, own),
                }
            }
            if product.zero_points.is_some() {
                for (total, block) in totals.iter_mut().zip(own) {
                    *total += block.sum;
                }
            }
            (at, chunk) = (at + 1, chunk + count);
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
            for (row, all) in all.iter_mut().enumerate() {
                let mut sum = sums[row][v];
                if let Some(zero_points) = zero_points {
                    sum = _mm512_fnmadd_ps(_mm512_set1_ps(totals[row]), zero_points, sum);
                }
                all[v] = _mm512_fmadd_ps(sum, scales, all[v]);
            }
        }
    }
    for (result, all) in results.iter_mut().zip(all) {
        for (to, sums) in result.as_chunks_mut::<LANES>().0.iter_mut().zip(all) {
            // SAFETY: sixteen numbers are there.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), sums) };
        }
    }
}

/// Adds the products of `C` chunks of weights of four bits, a block of the rows.
///
/// # Safety
/// The chunks are there.
///
/// # Panics
/// If there are not the bytes of as many chunks.
#[expect(
    clippy::needless_range_loop,
    reason = "sums are put in registers after loops over ranges are unrolled, not iterators"
)]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn add_four<const M: usize, const C: usize>(
    sums: &mut [[__m512; VECTORS]; M],
    packed: *const u8,
    bytes: [&[Bytes]; M],
    blocks: [&Block; M],
) {
    let low = _mm512_set1_epi8(15);
    let mut weights = [[[_mm512_setzero_si512(); VECTORS]; WORDS]; C];
    for (line, own) in (0..C * VECTORS).zip((0..C).flat_map(|chunk| [chunk; VECTORS])) {
        let from = packed.wrapping_add(line * LINE);
        prefetch::nearest(from.wrapping_add(DISTANCE));
        // SAFETY: a line of a chunk.
        let both = unsafe { _mm512_loadu_si512(from.cast()) };
        let higher = _mm512_srli_epi16::<4>(both);
        weights[own][0][line % VECTORS] = _mm512_and_si512(both, low);
        weights[own][1][line % VECTORS] = _mm512_and_si512(higher, low);
    }
    // Sums for several rows wait for the ones before: those of all bytes of a number have one register.
    let mut integers = [[_mm512_setzero_si512(); VECTORS]; M];
    for plane in 0..PLANES {
        for row in 0..M {
            for v in 0..VECTORS {
                integers[row][v] = _mm512_slli_epi32::<7>(integers[row][v]);
            }
        }
        for chunk in 0..C {
            for at in 0..WORDS {
                for row in 0..M {
                    let word = word(&bytes[row][chunk][plane], at);
                    for v in 0..VECTORS {
                        let weights = weights[chunk][at][v];
                        integers[row][v] = _mm512_dpbusd_epi32(integers[row][v], weights, word);
                    }
                }
            }
        }
    }
    for ((sums, integers), block) in sums.iter_mut().zip(integers).zip(blocks) {
        let offset = _mm512_set1_epi32(block.offsets[PLANES - 1]);
        for (sum, integers) in sums.iter_mut().zip(integers) {
            let own = _mm512_cvtepi32_ps(_mm512_add_epi32(integers, offset));
            *sum = _mm512_fmadd_ps(own, _mm512_set1_ps(block.scale), *sum);
        }
    }
}

/// Adds the products of some chunks of weights of eight bits, a block of the rows.
///
/// # Safety
/// As many chunks are there as rows have bytes.
#[expect(
    clippy::needless_range_loop,
    reason = "sums are put in registers after loops over ranges are unrolled, not iterators"
)]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn add_eight<const M: usize>(
    sums: &mut [[__m512; VECTORS]; M],
    packed: *const u8,
    bytes: [&[Bytes]; M],
    blocks: [&Block; M],
) {
    let mut integers = [[[_mm512_setzero_si512(); PLANES]; VECTORS]; M];
    for (integers, block) in integers.iter_mut().zip(blocks) {
        for (plane, &offset) in block.offsets.iter().enumerate() {
            let offset = _mm512_set1_epi32(offset);
            integers
                .iter_mut()
                .for_each(|vector| vector[plane] = offset);
        }
    }
    for chunk in 0..bytes[0].len() {
        for at in 0..WORDS {
            let mut weights = [_mm512_setzero_si512(); VECTORS];
            for (v, weights) in weights.iter_mut().enumerate() {
                let line = (chunk * WORDS + at) * VECTORS + v;
                let from = packed.wrapping_add(line * LINE);
                // A processor reads what a row needs by itself.
                if M > 1 {
                    prefetch::nearest(from.wrapping_add(DISTANCE));
                }
                // SAFETY: a line of a chunk.
                *weights = unsafe { _mm512_loadu_si512(from.cast()) };
            }
            for row in 0..M {
                for plane in 0..PLANES {
                    let word = word(&bytes[row][chunk][plane], at);
                    for v in 0..VECTORS {
                        let sum = &mut integers[row][v][plane];
                        *sum = _mm512_dpbusd_epi32(*sum, weights[v], word);
                    }
                }
            }
        }
    }
    let factor = _mm512_set1_ps(FACTORS[0] as f32);
    for ((sums, integers), block) in sums.iter_mut().zip(integers).zip(blocks) {
        for (sum, [highest, middle, lowest]) in sums.iter_mut().zip(integers) {
            let rest = _mm512_add_epi32(_mm512_slli_epi32::<7>(middle), lowest);
            let highest = _mm512_cvtepi32_ps(highest);
            let own = _mm512_fmadd_ps(highest, factor, _mm512_cvtepi32_ps(rest));
            *sum = _mm512_fmadd_ps(own, _mm512_set1_ps(block.scale), *sum);
        }
    }
}

/// Four of the bytes in each lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn word(bytes: &[i8; CHUNK], at: usize) -> __m512i {
    let word = bytes.as_chunks::<WORD>().0[at].map(i8::cast_unsigned);
    _mm512_set1_epi32(i32::from_le_bytes(word))
}
