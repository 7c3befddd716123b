//! Numbers of type bfloat16: the upper half of the bits of an `f32`.

use multiversion::multiversion;

/// A bfloat16 number, as bits.
pub type Bf16 = u16;

/// Rounds to the nearest bfloat16 number, ties to even; NaN stays NaN.
#[inline(always)]
#[must_use]
pub fn rounded(x: f32) -> Bf16 {
    let bits = x.to_bits();
    // Half of the last place that stays, less one if that place is even.
    let nearest = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1))) >> 16;
    // A NaN must not become an infinity.
    let nan = (bits >> 16) | 0x40;
    (if x.is_nan() { nan } else { nearest }) as Bf16
}

/// Converts to `f32`, exactly.
#[inline(always)]
#[must_use]
pub fn widened(x: Bf16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

/// Rounds every number of `from`.
///
/// # Panics
/// If `to` has another length.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+fma"))]
pub fn round(from: &[f32], to: &mut [Bf16]) {
    assert_eq!(from.len(), to.len(), "as many as there are");
    for (to, &from) in to.iter_mut().zip(from) {
        *to = rounded(from);
    }
}

/// Converts every number of `from`, exactly.
///
/// # Panics
/// If `to` has another length.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+fma"))]
pub fn widen(from: &[Bf16], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "as many as there are");
    for (to, &from) in to.iter_mut().zip(from) {
        *to = widened(from);
    }
}

/// Channels of a block that [`join`] reads.
const BLOCK: usize = 16;

/// Rounds pixels of two blocks of sixteen channels and writes them side by side: to each 32 numbers
/// of `to`, sixteen of `first` and sixteen of `second`, from every `step`-th pixel. A missing
/// second block counts as zeros.
///
/// # Panics
/// If a block has too few pixels.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+fma"))]
pub fn join(first: &[f32], second: Option<&[f32]>, step: usize, to: &mut [Bf16]) {
    for (at, to) in to.chunks_exact_mut(2 * BLOCK).enumerate() {
        let pixel = at * step * BLOCK;
        let first = &first[pixel..][..BLOCK];
        for lane in 0..BLOCK {
            to[lane] = rounded(first[lane]);
        }
        match second {
            Some(second) => {
                let second = &second[pixel..][..BLOCK];
                for lane in 0..BLOCK {
                    to[BLOCK + lane] = rounded(second[lane]);
                }
            }
            None => to[BLOCK..].fill(0),
        }
    }
}

/// Rounds `width` numbers of each row of `rows`, which begin `pitch` numbers apart, and writes them
/// in rows of 32, padded with zeros.
///
/// # Panics
/// If there are too few rows, or `width` is more than 32.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2+fma"))]
pub fn column(rows: &[f32], pitch: usize, width: usize, to: &mut [Bf16]) {
    for (at, to) in to.chunks_exact_mut(2 * BLOCK).enumerate() {
        let row = &rows[at * pitch..][..width];
        if width == 2 * BLOCK {
            for lane in 0..2 * BLOCK {
                to[lane] = rounded(row[lane]);
            }
        } else {
            for (to, &x) in to.iter_mut().zip(row) {
                *to = rounded(x);
            }
            to[width..].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{column, join, round, rounded, widened};

    #[test]
    fn rounds_to_the_nearest_even() {
        // One has 1 + STEP as its neighbour.
        const STEP: f32 = 1.0 / 128.0;
        let cases = [
            (1.0, 1.0),
            (1.0 + STEP / 2.0, 1.0),
            (1.0 + STEP / 2.0 + f32::EPSILON, 1.0 + STEP),
            (1.0 + STEP * 1.5, 1.0 + STEP * 2.0),
            (-1.0 - STEP / 2.0, -1.0),
            (0.0, 0.0),
            (f32::MAX, f32::INFINITY),
            (f32::INFINITY, f32::INFINITY),
            (f32::NEG_INFINITY, f32::NEG_INFINITY),
        ];
        for (given, expected) in cases {
            assert_eq!(widened(rounded(given)), expected, "of {given}");
        }
        assert_eq!(rounded(-0.0), 0x8000);
    }

    #[test]
    fn nan_stays_nan() {
        for bits in [0x7f80_0001, 0x7fff_ffff, 0xff80_0001, 0x7fc0_0000] {
            assert!(widened(rounded(f32::from_bits(bits))).is_nan(), "{bits:x}");
        }
    }

    #[test]
    fn slices_are_rounded_like_numbers() {
        let from: Vec<f32> = (0..1003u32)
            .map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761)))
            .collect();
        let mut to = vec![0; from.len()];
        round(&from, &mut to);
        let expected: Vec<u16> = from.iter().map(|&x| rounded(x)).collect();
        assert_eq!(to, expected);
    }

    #[test]
    fn blocks_are_joined_and_columns_cut_out() {
        let numbers: Vec<f32> = (0..160u8).map(f32::from).collect();
        let wide = |to: &[u16]| to.iter().map(|&x| widened(x)).collect::<Vec<f32>>();
        let mut to = vec![1; 64];
        join(&numbers[..64], Some(&numbers[64..128]), 2, &mut to);
        let expected: Vec<f32> = [0..16u8, 64..80, 32..48, 96..112]
            .into_iter()
            .flatten()
            .map(f32::from)
            .collect();
        assert_eq!(wide(&to), expected);
        join(&numbers, None, 1, &mut to);
        assert_eq!(wide(&to[16..48])[..16], [0.0; 16]);
        assert_eq!(wide(&to[32..48]), numbers[16..32]);
        column(&numbers[3..], 40, 5, &mut to);
        assert_eq!(wide(&to[32..38]), [43.0, 44.0, 45.0, 46.0, 47.0, 0.0]);
        column(&numbers, 40, 32, &mut to);
        assert_eq!(wide(&to[32..]), numbers[40..72]);
    }
}
