//! Numbers of type float16.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

/// Rounds to the nearest float16 number, ties to even; what is too large becomes infinite, and NaN
/// stays NaN.
#[inline(always)]
#[must_use]
pub fn nearest(x: f32) -> f32 {
    /// The smallest power of two that float16 holds with all its bits, 2^-14.
    const SMALLEST_NORMAL: u32 = 0x3880_0000;
    /// The first number that is rounded to infinity, half a step above the largest of 65504.
    const TOO_LARGE: u32 = 0x477f_f000;
    let bits = x.to_bits();
    let (sign, size) = (bits & 0x8000_0000, bits & 0x7fff_ffff);
    // 13 bits of the fraction are dropped: half of the last place that stays, less one if that
    // place is even.
    let normal = size.wrapping_add(0xfff + ((size >> 13) & 1)) & !0x1fff;
    // Below, steps have one size, 2^-24: a sum with 0.5 is rounded to it by the processor.
    let subnormal = (f32::from_bits(size) + 0.5) - 0.5;
    let rounded = match size {
        size if size >= TOO_LARGE => f32::INFINITY.to_bits(),
        size if size < SMALLEST_NORMAL => subnormal.to_bits(),
        _ => normal,
    };
    let rounded = f32::from_bits(rounded | sign);
    if x.is_nan() { x } else { rounded }
}

/// Rounds every number of `from`, to bits.
///
/// # Panics
/// If `to` has another length.
pub fn round(from: &[f32], to: &mut [u16]) {
    let to: &mut [half::f16] = to.reinterpret_cast_mut();
    to.convert_from_f32_slice(from);
}

/// Converts every number of `from`, given as bits, exactly.
///
/// # Panics
/// If `to` has another length.
pub fn widen(from: &[u16], to: &mut [f32]) {
    let from: &[half::f16] = from.reinterpret_cast();
    from.convert_to_f32_slice(to);
}

#[cfg(test)]
mod tests {
    use super::{nearest, widen};

    #[test]
    fn all_numbers_are_widened_exactly() {
        let bits: Vec<u16> = (0..=u16::MAX).collect();
        let mut wide = vec![0.0; bits.len()];
        widen(&bits, &mut wide);
        for (bits, wide) in bits.into_iter().zip(wide) {
            let expected = half::f16::from_bits(bits).to_f32();
            assert!(wide.to_bits() == expected.to_bits() || wide.is_nan() && expected.is_nan());
        }
    }

    #[test]
    fn all_numbers_between_neighbours_are_rounded_as_the_half_crate_does() {
        // Each number of float16 with those around it, and around the middle to the next one.
        for bits in 0..=u16::MAX {
            let own = half::f16::from_bits(bits).to_f32();
            let near = own.to_bits();
            for shift in [0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x2000] {
                for near in [near.wrapping_add(shift), near.wrapping_sub(shift)] {
                    let x = f32::from_bits(near);
                    let expected = half::f16::from_f32(x).to_f32();
                    let got = nearest(x);
                    let same = got.to_bits() == expected.to_bits();
                    assert!(
                        same || got.is_nan() && expected.is_nan(),
                        "{x:e}: {got:e}, {expected:e}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_smallest_numbers_are_rounded_to_steps_of_one_size() {
        const STEP: f32 = 1.0 / 16_777_216.0;
        let cases = [
            (STEP * 0.5, 0.0),
            (STEP * 0.500_001, STEP),
            (STEP * 1.5, STEP * 2.0),
            (-STEP * 0.25, -0.0),
            (f32::MIN_POSITIVE, 0.0),
            (65504.0, 65504.0),
            (65519.9, 65504.0),
            (65520.0, f32::INFINITY),
        ];
        for (given, expected) in cases {
            assert_eq!(nearest(given).to_bits(), expected.to_bits(), "of {given:e}");
        }
        assert!(nearest(f32::NAN).is_nan());
    }
}
