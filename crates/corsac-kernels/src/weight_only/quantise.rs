//! Integers of rows, of eight numbers at a time.

use std::arch::x86_64::{
    __m256, __m256i, __mmask8, _mm_setr_epi8, _mm_shuffle_epi8, _mm_storel_epi64, _mm256_add_epi32,
    _mm256_and_si256, _mm256_cmplt_epu32_mask, _mm256_cvtepi32_epi8, _mm256_cvtps_epi32,
    _mm256_loadu_ps, _mm256_loadu_si256, _mm256_max_epu32, _mm256_mul_ps, _mm256_set1_epi32,
    _mm256_set1_ps, _mm256_setzero_si256, _mm256_slli_epi32, _mm256_srai_epi32,
    _mm256_storeu_si256, _mm256_sub_epi32,
};
use std::ops::Range;

use super::levels::{Block, Bytes, Levels, PLANES};
use super::{Bits, CHUNK};

/// What the bytes of an integer are multiplied with: they are signed, the first one is the highest.
pub(super) const FACTORS: [i32; PLANES] = [1 << 14, 1 << 7, 1];
/// The largest integer: 127 in the first byte, and zeros.
const MOST: f32 = (127 << 14) as f32;
/// Of smaller numbers, the reciprocal may be infinite.
const LEAST: f32 = 1e-30;
/// A number is much smaller than the largest if it is less than this part of it.
const SMALL: f32 = 1.0 / 256.0;

/// Most chunks of a block of rows for weights of these bits: sums of products of all bytes of a number
/// with weights of four bits fit in 32 bits, as do those of the first bytes with weights of eight.
pub(super) const fn most_in_block(bits: Bits) -> usize {
    match bits {
        Bits::Four => 32 / CHUNK,
        Bits::Eight => 128 / CHUNK,
    }
}

/// Whether the processor has the instructions of [`quantise`].
pub(super) fn has() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
}

/// The chunks of each block of a row of `depth` numbers in groups, both whole chunks: no block is of two
/// groups.
fn blocks(bits: Bits, depth: usize, group: usize) -> impl Iterator<Item = Range<usize>> {
    let (chunks, group) = (depth / CHUNK, group / CHUNK);
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = group.min(chunks - start / group * group) - start % group;
        let len = in_block(bits, rest);
        start += len;
        (start <= chunks && len > 0).then(|| start - len..start)
    })
}

/// Chunks of the next block of a group that has so many left: of weights of four bits, as many as fit or
/// one.
pub(super) fn in_block(bits: Bits, rest: usize) -> usize {
    match (bits, most_in_block(bits)) {
        (Bits::Four, most) if rest < most => rest.min(1),
        (_, most) => rest.min(most),
    }
}

impl Levels {
    /// The integers of rows of `depth` numbers in groups, both whole chunks; `None` if [`quantise`] makes
    /// none of a block.
    #[target_feature(enable = "avx2,avx512f,avx512vl")]
    pub(super) fn new(bits: Bits, rows: &[f32], [depth, group]: [usize; 2]) -> Option<Self> {
        let mut made = Self {
            bits,
            bytes: vec![Bytes::default(); rows.len() / CHUNK],
            blocks: Vec::with_capacity(rows.len() / depth * blocks(bits, depth, group).count()),
        };
        let chunks = rows.as_chunks().0.chunks(depth / CHUNK);
        for (row, bytes) in chunks.zip(made.bytes.chunks_mut(depth / CHUNK)) {
            for block in blocks(bits, depth, group) {
                let bytes = &mut bytes[block.clone()];
                made.blocks.push(quantise(bits, &row[block], bytes)?);
            }
        }
        Some(made)
    }
}

impl Block {
    /// A block, given the sums of the first bytes, of the second ones, and of the third ones.
    fn new(bits: Bits, scale: f32, sums: [i32; PLANES]) -> Self {
        let parts = FACTORS.into_iter().zip(sums);
        let sum: i64 = parts
            .map(|(factor, sum)| i64::from(factor) * i64::from(sum))
            .sum();
        let sums = match bits {
            Bits::Four => [0, 0, sum as i32],
            Bits::Eight => sums,
        };
        Self {
            scale,
            sum: sum as f32 * scale,
            offsets: sums.map(|sum| -bits.excess() * sum),
        }
    }
}

/// Writes the integers of a block of numbers for products with weights of `bits`; `None` if it has
/// infinite or undefined numbers or very small ones alone, or a few that are much larger than most:
/// rounding would change the others.
#[target_feature(enable = "avx2,avx512f,avx512vl")]
fn quantise(bits: Bits, numbers: &[[f32; CHUNK]], bytes: &mut [Bytes]) -> Option<Block> {
    // The bits of numbers without signs are ordered as the numbers are, NaN the last.
    let mut largest = _mm256_setzero_si256();
    for numbers in numbers {
        largest = _mm256_max_epu32(largest, size(numbers));
    }
    let largest = f32::from_bits(lanes(largest).into_iter().fold(0, i32::max).cast_unsigned());
    if !largest.is_finite() || (largest > 0.0 && largest < LEAST) {
        return None;
    }
    let least = _mm256_set1_epi32((largest * SMALL).to_bits().cast_signed());
    let one = _mm256_set1_epi32(1);
    let (mut zeros, mut small) = (0, 0);
    for numbers in numbers {
        let size = size(numbers);
        let count = |mask: __mmask8| mask.count_ones() as usize;
        zeros += count(_mm256_cmplt_epu32_mask(size, one));
        small += count(_mm256_cmplt_epu32_mask(size, least));
    }
    // Zeros are small unless there is nothing else.
    let others = numbers.len() * CHUNK - zeros;
    if others > 0 && 2 * (small - zeros) > others {
        return None;
    }
    let inverse = _mm256_set1_ps(if largest > 0.0 { MOST / largest } else { 0.0 });
    let mut sums = [_mm256_setzero_si256(); PLANES];
    for (numbers, bytes) in numbers.iter().zip(bytes) {
        let mut rest = _mm256_cvtps_epi32(_mm256_mul_ps(load(numbers), inverse));
        // Each byte is the nearest multiple of its factor.
        let highest = multiple::<{ FACTORS[0].trailing_zeros().cast_signed() }>(&mut rest);
        let middle = multiple::<{ FACTORS[1].trailing_zeros().cast_signed() }>(&mut rest);
        for (plane, own) in [highest, middle, rest].into_iter().enumerate() {
            sums[plane] = _mm256_add_epi32(sums[plane], own);
            store(bits, &mut bytes[plane], own);
        }
    }
    let sums = sums.map(|sums| lanes(sums).into_iter().sum());
    Some(Block::new(bits, largest / MOST, sums))
}

/// Takes the nearest multiples of a power of two from integers, and gives the factors.
#[inline]
#[target_feature(enable = "avx2")]
fn multiple<const SHIFT: i32>(rest: &mut __m256i) -> __m256i {
    let half = _mm256_set1_epi32(1 << SHIFT >> 1);
    let own = _mm256_srai_epi32::<SHIFT>(_mm256_add_epi32(*rest, half));
    *rest = _mm256_sub_epi32(*rest, _mm256_slli_epi32::<SHIFT>(own));
    own
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(numbers: &[f32; CHUNK]) -> __m256 {
    // SAFETY: eight numbers can be read.
    unsafe { _mm256_loadu_ps(numbers.as_ptr()) }
}

/// The bits of numbers without their signs.
#[inline]
#[target_feature(enable = "avx2")]
fn size(numbers: &[f32; CHUNK]) -> __m256i {
    // SAFETY: eight numbers can be read.
    let bits = unsafe { _mm256_loadu_si256(numbers.as_ptr().cast()) };
    _mm256_and_si256(bits, _mm256_set1_epi32(i32::MAX))
}

#[inline]
#[target_feature(enable = "avx2")]
fn lanes(vector: __m256i) -> [i32; CHUNK] {
    let mut lanes = [0; CHUNK];
    // SAFETY: eight numbers can be written.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), vector) };
    lanes
}

/// Writes the lowest byte of each integer, those for weights in lower halves of bytes first.
#[inline]
#[target_feature(enable = "avx2,avx512f,avx512vl")]
fn store(bits: Bits, bytes: &mut [i8; CHUNK], integers: __m256i) {
    let mut own = _mm256_cvtepi32_epi8(integers);
    if bits == Bits::Four {
        let order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        own = _mm_shuffle_epi8(own, order);
    }
    // SAFETY: eight bytes can be written.
    unsafe { _mm_storel_epi64(bytes.as_mut_ptr().cast(), own) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weight_only::WORD;

    /// The place of a weight of a chunk among the bytes of a product.
    fn order(bits: Bits, at: usize) -> usize {
        match bits {
            Bits::Four => at / 2 + at % 2 * WORD,
            Bits::Eight => at,
        }
    }

    /// The definition: rounds to the nearest multiples.
    fn quantise_by_definition(
        bits: Bits,
        numbers: &[[f32; CHUNK]],
        bytes: &mut [Bytes],
    ) -> Option<Block> {
        let sizes = numbers.iter().flatten().map(|x| x.abs());
        if !sizes.clone().all(f32::is_finite) {
            return None;
        }
        let largest = sizes.clone().fold(0.0, f32::max);
        let others = sizes.filter(|&size| size > 0.0);
        let small = others
            .clone()
            .filter(|&size| size < largest * SMALL)
            .count();
        if (largest > 0.0 && largest < LEAST) || 2 * small > others.count() {
            return None;
        }
        let inverse = if largest > 0.0 { MOST / largest } else { 0.0 };
        let mut sums = [0; PLANES];
        for (numbers, bytes) in numbers.iter().zip(bytes) {
            for (at, x) in numbers.iter().enumerate() {
                let mut rest = (x * inverse).round_ties_even() as i32;
                for (plane, factor) in FACTORS.into_iter().enumerate() {
                    let byte = (rest + factor / 2).div_euclid(factor);
                    rest -= byte * factor;
                    bytes[plane][order(bits, at)] = byte.try_into().unwrap();
                    sums[plane] += byte;
                }
            }
        }
        Some(Block::new(bits, largest / MOST, sums))
    }

    /// The block of numbers by the definition and by instructions, which are equal.
    fn both(numbers: &[[f32; CHUNK]]) -> Option<(Vec<Bytes>, Block)> {
        let mut found = None;
        for bits in [Bits::Four, Bits::Eight] {
            let mut bytes = vec![Bytes::default(); numbers.len()];
            let block = quantise_by_definition(bits, numbers, &mut bytes);
            if has() {
                let mut own = vec![Bytes::default(); numbers.len()];
                // SAFETY: the processor has the instructions.
                let own_block = unsafe { quantise(bits, numbers, &mut own) };
                assert_eq!(own_block, block);
                assert!(block.is_none() || own == bytes);
            }
            found = block.map(|block| (bytes, block));
        }
        found
    }

    /// The integers of numbers in their order.
    fn integers(bytes: &[Bytes]) -> Vec<i32> {
        let chunks = bytes.iter().flat_map(|bytes| {
            (0..CHUNK).map(move |at| {
                let parts = FACTORS.into_iter().zip(bytes);
                parts
                    .map(|(factor, plane)| factor * i32::from(plane[at]))
                    .sum()
            })
        });
        chunks.collect()
    }

    #[test]
    fn numbers_are_the_nearest_multiples() {
        for factor in [0.37, 1e-20, 1e30] {
            let number = |at: usize| ((at * 37 % 64) as f32 - 31.5) * factor;
            let numbers: Vec<f32> = (0..128).map(number).collect();
            let (bytes, block) = both(numbers.as_chunks().0).unwrap();
            let largest = 31.5 * f64::from(factor);
            for (integer, x) in integers(&bytes).into_iter().zip(&numbers) {
                let found = f64::from(integer) * f64::from(block.scale);
                let error = (found - f64::from(*x)).abs();
                assert!(error <= 4e-7 * largest, "{found} is not {x}");
            }
            let sum: i32 = integers(&bytes).into_iter().sum();
            assert_eq!(block.sum, sum as f32 * block.scale);
            for (plane, offset) in block.offsets.into_iter().enumerate() {
                let bytes = bytes.iter().flat_map(|bytes| bytes[plane]);
                assert_eq!(bytes.map(i32::from).sum::<i32>() * -128, offset);
            }
        }
    }

    #[test]
    fn the_largest_numbers_keep_their_signs() {
        let mut numbers = [0.0_f32; CHUNK];
        (numbers[2], numbers[5]) = (-3.0, 3.0);
        let (bytes, block) = both(&[numbers]).unwrap();
        assert_eq!(bytes[0], [[0, 0, -127, 0, 0, 127, 0, 0], [0; 8], [0; 8]]);
        assert_eq!(block.offsets, [0; PLANES]);
    }

    #[test]
    fn what_is_no_multiple_is_left() {
        for x in [
            f32::NAN,
            -f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            1e-38,
            -1e-40,
        ] {
            assert!(
                both(&[[0.0, x, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]).is_none(),
                "{x}"
            );
        }
        // Most are much smaller than the largest ones.
        let mut uneven = [[0.003; CHUNK]; 4];
        uneven[0][..4].fill(1.0);
        assert!(both(&uneven).is_none());
        uneven[1..].fill([0.02; CHUNK]);
        assert!(both(&uneven).is_some());
        uneven[1..].fill([0.0; CHUNK]);
        assert!(both(&uneven).is_some());
        let (_, zeros) = both(&[[-0.0; CHUNK], [0.0; CHUNK]]).unwrap();
        assert_eq!(zeros.scale, 0.0);
        assert!(both(&[[f32::MAX; CHUNK]]).is_some());
    }
}
