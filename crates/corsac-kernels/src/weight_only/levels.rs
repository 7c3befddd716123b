//! Rows of numbers as integers of 22 bits, in three bytes each.
//!
//! A processor that multiplies bytes then multiplies weights of four bits without widening them. A
//! number is rounded to a multiple of the 2,080,768th part of the largest of its group, which is as
//! exact as sums in single precision are, unless most of the others are much smaller: such rows stay
//! numbers.

use multiversion::multiversion;

use super::CHUNK;

/// Bytes of an integer.
pub(super) const PLANES: usize = 3;
/// What the bytes of an integer are multiplied with: they are signed, the first one is the highest.
pub(super) const FACTORS: [i32; PLANES] = [1 << 14, 1 << 7, 1];
/// The largest integer: 127 in the first byte, and zeros.
const MOST: f32 = (127 << 14) as f32;
/// Of smaller numbers, the reciprocal may be infinite.
const LEAST: f32 = 1e-30;
/// A number is much smaller than the largest if it is less than this part of it.
const SMALL: f32 = 1.0 / 64.0;
/// Most numbers of a group: sums of products of their bytes with weights, times a factor, fit in 32
/// bits.
pub(super) const LONGEST: usize = 4096;

/// The integers of a chunk, as a product reads them: the first bytes of the numbers at even places,
/// those of the numbers at odd ones, then the second bytes in the same order, and the third ones.
pub(super) type Bytes = [[i8; CHUNK / 2]; 2 * PLANES];

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
    /// The sums of the first bytes, of the second ones, and of the third ones.
    pub(super) sums: [i32; PLANES],
}

impl Levels {
    /// The integers of rows of `depth` numbers, whole chunks, in groups of whole chunks; `None` if a group
    /// is too long, has infinite or undefined numbers or very small ones alone, or has a few numbers that
    /// are much larger than most: rounding would change those.
    pub(super) fn new(rows: &[f32], depth: usize, group: usize) -> Option<Self> {
        if group > LONGEST {
            return None;
        }
        let mut made = Self {
            bytes: vec![Bytes::default(); rows.len() / CHUNK],
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
    let least = largest * SMALL;
    let others = numbers.iter().filter(|&&x| x != 0.0);
    let small = others.clone().filter(|x| x.abs() < least).count();
    if 2 * small > others.count() {
        return None;
    }
    let inverse = if largest > 0.0 { MOST / largest } else { 0.0 };
    let mut sums = [0; PLANES];
    for (numbers, bytes) in numbers.as_chunks::<CHUNK>().0.iter().zip(bytes) {
        // The integer is in the last bits of the sum, rounded half to even.
        let integers = numbers.map(|x| {
            let shifted = (x * inverse).clamp(-MOST, MOST) + 12_582_912.0;
            (shifted.to_bits() as i32).wrapping_sub(0x4B40_0000)
        });
        for (at, integer) in integers.into_iter().enumerate() {
            let mut rest = integer;
            for (plane, factor) in FACTORS.into_iter().enumerate() {
                // The nearest multiple of the factor, which is a power of two.
                let byte = (rest + factor / 2) >> factor.trailing_zeros();
                rest -= byte * factor;
                bytes[2 * plane + at % 2][at / 2] = byte as i8;
                sums[plane] += byte;
            }
        }
    }
    Some(Group {
        scale: largest / MOST,
        sums,
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
            let (own, place) = (&levels.bytes[at / CHUNK], at % CHUNK);
            let parts = FACTORS.into_iter().enumerate();
            let integer: i32 = parts
                .map(|(plane, factor)| factor * i32::from(own[2 * plane + place % 2][place / 2]))
                .sum();
            let found = f64::from(integer) * f64::from(levels.groups[at / 16].scale);
            let error = (found - f64::from(*x)).abs();
            assert!(error <= 4e-7 * 11.7, "{found} is not {x}");
        }
        for (number, group) in levels.groups.iter().enumerate() {
            let own = &levels.bytes[number * 2..][..2];
            for (plane, sum) in group.sums.into_iter().enumerate() {
                let bytes = own
                    .iter()
                    .flat_map(|bytes| &bytes[2 * plane..2 * plane + 2]);
                let bytes = bytes.flatten().map(|&byte| i32::from(byte));
                assert_eq!(bytes.sum::<i32>(), sum);
            }
        }
    }

    #[test]
    fn the_largest_numbers_keep_their_signs() {
        let mut numbers = [0.0_f32; 8];
        (numbers[2], numbers[5]) = (-3.0, 3.0);
        let levels = Levels::new(&numbers, 8, 8).unwrap();
        assert_eq!(levels.bytes[0][0], [0, -127, 0, 0]);
        assert_eq!(levels.bytes[0][1], [0, 0, 127, 0]);
        assert_eq!(levels.bytes[0][2..], [[0; 4]; 4]);
        assert_eq!(levels.groups[0].sums, [0; 3]);
    }

    #[test]
    fn what_is_no_multiple_is_left() {
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-38, -1e-40] {
            assert!(
                Levels::new(&[0.0, x, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 8, 8).is_none(),
                "{x}"
            );
        }
        // Most are much smaller than the largest ones.
        let mut uneven = [0.01; 32];
        uneven[..4].fill(1.0);
        assert!(Levels::new(&uneven, 32, 32).is_none());
        uneven[4..].fill(0.02);
        assert!(Levels::new(&uneven, 32, 32).is_some());
        uneven[1..].fill(0.0);
        assert!(Levels::new(&uneven, 32, 32).is_some());
        let zeros = Levels::new(&[0.0, -0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 8, 8).unwrap();
        assert_eq!(zeros.groups[0].scale, 0.0);
        assert!(Levels::new(&[1.0; 8192], 8192, 8192).is_none());
        assert!(Levels::new(&[f32::MAX; 8], 8, 8).is_some());
    }
}
