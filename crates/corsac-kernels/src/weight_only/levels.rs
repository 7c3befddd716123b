//! Rows of numbers as integers of fifteen bits, in two bytes each.
//!
//! A processor that multiplies bytes then multiplies weights of four bits without widening them. A
//! number is rounded to a multiple of the 16,256th part of the largest of its group, which is less
//! than a thousandth of what rounding a weight to four bits changes.

use multiversion::multiversion;

use super::CHUNK;

/// The largest integer: 127 times the second byte, and a first byte of zero.
const MOST: f32 = 127.0 * 128.0;
/// Of smaller numbers, the reciprocal may be infinite.
const LEAST: f32 = 1e-30;
/// Most numbers of a group: sums of their products with weights fit in 32 bits.
pub(super) const LONGEST: usize = 4096;

/// The integers of a chunk, as a product reads them: of the numbers at even places, then of those at
/// odd ones, the higher bytes; and the lower bytes in the same order. A number is `128 * higher +
/// lower`, both signed.
pub(super) type Bytes = [[i8; CHUNK / 2]; 4];

/// The integers of some rows.
#[derive(Debug, Default)]
pub(super) struct Levels {
    /// For each row, each of its chunks.
    pub(super) bytes: Vec<Bytes>,
    /// For each row, each of its groups.
    pub(super) groups: Vec<Group>,
}

/// A group of numbers of a row.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "only products of this architecture read it")
)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// The number that one stands for.
    pub(super) scale: f32,
    /// The sum of the integers.
    pub(super) sum: i32,
}

impl Levels {
    /// The integers of rows of `depth` numbers, whole chunks, in groups of whole chunks; `None` if a group
    /// is too long, or has infinite, undefined or very small numbers alone.
    pub(super) fn new(rows: &[f32], depth: usize, group: usize) -> Option<Self> {
        if group > LONGEST {
            return None;
        }
        let mut made = Self {
            bytes: vec![[[0; CHUNK / 2]; 4]; rows.len() / CHUNK],
            groups: Vec::with_capacity(rows.len().div_ceil(group)),
        };
        let own = rows.chunks(depth);
        for (row, bytes) in own.zip(made.bytes.chunks_mut(depth / CHUNK)) {
            for (numbers, bytes) in row.chunks(group).zip(bytes.chunks_mut(group / CHUNK)) {
                made.groups.push(quantise(numbers, bytes)?);
            }
        }
        Some(made)
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+fma"))]
fn quantise(numbers: &[f32], bytes: &mut [Bytes]) -> Option<Group> {
    // NaN is no maximum, so that it is found by comparing.
    let largest = numbers.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let are_numbers = numbers.iter().all(|x| x.abs() <= f32::MAX);
    if !are_numbers || (largest > 0.0 && largest < LEAST) {
        return None;
    }
    let inverse = if largest > 0.0 { MOST / largest } else { 0.0 };
    let mut sum = 0;
    for (numbers, bytes) in numbers.as_chunks::<CHUNK>().0.iter().zip(bytes) {
        // The integer is in the last bits of the sum, rounded half to even.
        let integers = numbers.map(|x| {
            let shifted = (x * inverse).clamp(-MOST, MOST) + 12_582_912.0;
            (shifted.to_bits() as i32).wrapping_sub(0x4B40_0000)
        });
        for (at, integer) in integers.into_iter().enumerate() {
            let higher = (integer + 64) >> 7;
            bytes[at % 2][at / 2] = higher as i8;
            bytes[2 + at % 2][at / 2] = (integer - (higher << 7)) as i8;
            sum += integer;
        }
    }
    Some(Group {
        scale: largest / MOST,
        sum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_nearest_multiples() {
        let numbers: Vec<f32> = (0..64)
            .map(|at| ((at * 37 % 64) as f32 - 31.5) * 0.37)
            .collect();
        let levels = Levels::new(&numbers, 32, 16).unwrap();
        assert_eq!(levels.groups.len(), 4);
        for (at, x) in numbers.iter().enumerate() {
            let (chunk, place) = (at / CHUNK, at % CHUNK);
            let [higher, lower] =
                [0, 2].map(|first| i32::from(levels.bytes[chunk][first + place % 2][place / 2]));
            let group = &levels.groups[at / 16];
            let found = (128 * higher + lower) as f32 * group.scale;
            assert!(
                (found - x).abs() <= 0.5001 * group.scale,
                "{found} is not {x}"
            );
        }
        for (number, group) in levels.groups.iter().enumerate() {
            let own = &levels.bytes[number * 2..][..2];
            let weighted = |first: usize| -> i32 {
                let own = own.iter().flat_map(|bytes| &bytes[first..first + 2]);
                own.flatten().map(|&byte| i32::from(byte)).sum()
            };
            assert_eq!(128 * weighted(0) + weighted(2), group.sum);
        }
    }

    #[test]
    fn the_largest_numbers_keep_their_signs() {
        let mut numbers = [0.0_f32; 8];
        (numbers[2], numbers[5]) = (-3.0, 3.0);
        let levels = Levels::new(&numbers, 8, 8).unwrap();
        assert_eq!(levels.bytes[0][0], [0, -127, 0, 0]);
        assert_eq!(levels.bytes[0][1], [0, 0, 127, 0]);
        assert_eq!(levels.bytes[0][2..], [[0; 4]; 2]);
        assert_eq!(levels.groups[0].sum, 0);
    }

    #[test]
    fn what_is_no_multiple_is_left() {
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-38, -1e-40] {
            assert!(
                Levels::new(&[0.0, x, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 8, 8).is_none(),
                "{x}"
            );
        }
        let zeros = Levels::new(&[0.0, -0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 8, 8).unwrap();
        assert_eq!(zeros.groups[0].scale, 0.0);
        assert!(Levels::new(&[1.0; 8192], 8192, 8192).is_none());
        assert!(Levels::new(&[f32::MAX; 8], 8, 8).is_some());
    }
}
