//! Scales for rows as they come: dynamic quantisation.

use multiversion::multiversion;

use super::{Quantisation, quantise};

/// Numbers that are compared at a time.
const LANES: usize = 64;

/// The scale and the zero point of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowScale {
    /// The number between neighbouring bytes.
    pub scale: f32,
    /// The byte that stands for zero.
    pub zero_point: i32,
}

/// The smallest and the largest of some numbers and zero; NaN if a number is NaN.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
#[must_use]
pub fn range(numbers: &[f32]) -> [f32; 2] {
    let (mut smallest, mut largest) = ([0.0_f32; LANES], [0.0_f32; LANES]);
    let mut size = [0_u32; LANES];
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &x) in chunk.iter().enumerate() {
            smallest[lane] = if x < smallest[lane] {
                x
            } else {
                smallest[lane]
            };
            largest[lane] = if x > largest[lane] { x } else { largest[lane] };
            size[lane] = size[lane].max(x.to_bits() & 0x7fff_ffff);
        }
    }
    for (lane, &x) in rest.iter().enumerate() {
        smallest[lane] = if x < smallest[lane] {
            x
        } else {
            smallest[lane]
        };
        largest[lane] = if x > largest[lane] { x } else { largest[lane] };
        size[lane] = size[lane].max(x.to_bits() & 0x7fff_ffff);
    }
    let size = size.into_iter().fold(0, u32::max);
    if f32::from_bits(size).is_nan() {
        return [f32::NAN; 2];
    }
    [
        smallest.into_iter().fold(0.0, f32::min),
        largest.into_iter().fold(0.0, f32::max),
    ]
}

/// The scale and zero point with which bytes within `bounds` stand for all numbers of a range that
/// includes zero: `scale = (largest - smallest) / (bounds[1] - bounds[0])`, at least
/// `smallest_scale` (and the smallest normal number), and the zero point `bounds[0] - smallest / scale`, rounded and clamped.
///
/// If the range is not finite, or its size, the scale is NaN and the zero point the lower bound: then
/// all bytes are 0, and stand for NaN. If all numbers are zero and so is `smallest_scale`, the scale
/// is one.
///
/// # Panics
/// If the upper bound is not greater than the lower.
#[must_use]
pub fn choose([smallest, largest]: [f32; 2], bounds: [i32; 2], smallest_scale: f32) -> RowScale {
    assert!(bounds[0] < bounds[1], "bounds {bounds:?} of a range");
    let steps = (bounds[1] - bounds[0]) as f32;
    let scale = (largest - smallest) / steps;
    if !scale.is_finite() {
        return RowScale {
            scale: f32::NAN,
            zero_point: bounds[0],
        };
    }
    let scale = match scale.max(smallest_scale) {
        0.0 if smallest == largest => 1.0,
        // One divided by a smaller number may be infinite.
        scale => scale.max(f32::MIN_POSITIVE),
    };
    let zero_point = (bounds[0] as f32 - smallest / scale).round_ties_even();
    RowScale {
        scale,
        zero_point: zero_point.clamp(bounds[0] as f32, bounds[1] as f32) as i32,
    }
}

/// Converts a row to bytes with a scale and zero point of its own, as [`choose`] gives them.
///
/// # Panics
/// If the lengths differ, or `bounds` are not those of bytes.
pub fn quantise_row(
    from: &[f32],
    bounds: [i32; 2],
    smallest_scale: f32,
    to: &mut [u8],
) -> RowScale {
    let row = choose(range(from), bounds, smallest_scale);
    let quantisation = Quantisation {
        inverse_scale: 1.0 / row.scale,
        zero_point: row.zero_point,
        bounds,
    };
    quantise(from, &quantisation, to);
    row
}
