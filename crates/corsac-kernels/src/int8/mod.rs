//! Bytes that stand for numbers: a scale times the distance from a zero point.
//!
//! The same bits come from all instructions: everything is plain Rust, compiled for several, without
//! fused multiply-adds. [`Epilogue`] turns sums of products into numbers or bytes, [`rows`] chooses
//! scales for rows as they come.
//!
//! A row of four bytes with the scale 0.5 and the zero point 10, times a column of weights with the
//! scale 0.25; sums begin with what the zero point adds to them, taken away:
//!
//! ```
//! use corsac_kernels::int8::Epilogue;
//! use corsac_kernels::int8_unit::{COLUMNS, Dense, Int8Unit, Operands, column_sums, pack};
//!
//! let (row, column) = ([12_u8, 10, 8, 14], [1_i8, 2, 3, 4]);
//! let mut weights = [0; 4 * COLUMNS];
//! pack(&mut weights, |at, row| if at == 0 { column[row] } else { 0 });
//! let product = Dense {
//!     unit: Int8Unit::detect(),
//!     operands: Operands {
//!         source: &row,
//!         offsets: &[0],
//!         depth: 4,
//!         weights: &weights,
//!         ahead: &[],
//!     },
//!     rows: 1,
//! };
//! let epilogue = Epilogue {
//!     scales: &[0.5 * 0.25; COLUMNS],
//!     biases: &[1.0; COLUMNS],
//!     rows: None,
//!     residual: None,
//!     bounds: [0.0, f32::INFINITY],
//! };
//! let initial = column_sums(&weights).map(|sum| -10 * sum);
//! let mut to = [0.0];
//! epilogue.multiply_to_floats(&product, &initial, 1, &mut to, 1);
//! // (1 · 1 + 0 · 2 - 1 · 3 + 2 · 4) · 0.25 + 1
//! assert_eq!(to, [2.5]);
//! ```

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod epilogue;
pub mod rows;
mod table;
#[cfg(test)]
mod tests;

use multiversion::multiversion;

pub use self::epilogue::{Epilogue, Residual, RowScales};
pub use self::table::map;

/// The conversion of numbers to bytes: multiplied, rounded to the nearest (ties to even), moved by
/// the zero point, and clamped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantisation {
    /// One divided by the scale.
    pub inverse_scale: f32,
    /// The byte that stands for zero; its size is at most 2^20.
    pub zero_point: i32,
    /// The smallest and the largest byte, from -128 to 255: negative ones are bytes of an `i8`.
    pub bounds: [i32; 2],
}

/// 1.5 · 2^23: a sum with it is rounded to a whole number, which its lowest bits are.
const WHOLE: f32 = 12_582_912.0;

/// The same with all that is known before the first number.
#[derive(Clone, Copy, Debug)]
struct ToBytes {
    inverse_scale: f32,
    zero_point: i32,
    lower: f32,
    upper: f32,
}

impl Quantisation {
    /// Checks the zero point and the bounds.
    fn to_bytes(self) -> ToBytes {
        let Self {
            inverse_scale,
            zero_point,
            bounds: [smallest, largest],
        } = self;
        assert!(
            -128 <= smallest && smallest <= largest && largest <= 255,
            "bounds {smallest} and {largest} of bytes"
        );
        assert!(
            zero_point.unsigned_abs() <= 1 << 20,
            "zero point {zero_point} of at most 2^20"
        );
        ToBytes {
            inverse_scale,
            zero_point,
            lower: (smallest - zero_point) as f32,
            upper: (largest - zero_point) as f32,
        }
    }
}

impl ToBytes {
    /// The same conversion of clamped numbers, for numbers that are not. As larger numbers become no
    /// smaller bytes, clamping may come afterwards. None if the scale is not positive and finite.
    fn of_clamped(self, bounds: [f32; 2]) -> Option<Self> {
        let whole = |x: f32| clamp(x * self.inverse_scale, [self.lower, self.upper]);
        let [lower, upper] = bounds.map(|x| whole(x).round_ties_even());
        let has_order = self.inverse_scale > 0.0 && self.inverse_scale.is_finite();
        (has_order && lower <= upper).then_some(Self {
            lower,
            upper,
            ..self
        })
    }

    #[inline(always)]
    fn byte(self, x: f32) -> u8 {
        let x = x * self.inverse_scale;
        // The bounds are whole, so that clamping may come before rounding.
        let clamped = clamp(x, [self.lower, self.upper]);
        // Only the bits of NaN, which are not used, can overflow.
        let whole = (clamped + WHOLE).to_bits().cast_signed();
        let whole = whole.wrapping_add(self.zero_point);
        if x.is_nan() { 0 } else { whole as u8 }
    }
}

/// Clamps a number; NaN stays NaN.
#[inline(always)]
fn clamp(x: f32, [lower, upper]: [f32; 2]) -> f32 {
    let x = if lower > x { lower } else { x };
    if upper < x { upper } else { x }
}

/// Converts numbers to bytes: `clamp(round(x * inverse_scale) + zero_point, bounds)`, as PyTorch's
/// `quantize_per_tensor` does, where every step is rounded to single precision. Infinite numbers
/// become the bounds, NaN the byte 0 (in PyTorch, too, whatever the bounds).
///
/// # Panics
/// If the lengths differ, or the zero point or the bounds are outside of those allowed.
pub fn quantise(from: &[f32], quantisation: &Quantisation, to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "a byte for each");
    let own = quantisation.to_bytes();
    #[cfg(target_arch = "x86_64")]
    if !avx512::has() && avx2::has() {
        let (whole, rest) = from.as_chunks();
        let (to, last) = to.as_chunks_mut();
        // SAFETY: the processor has the instructions.
        unsafe { avx2::quantise(whole, own, to) };
        return one_by_one(rest, own, last);
    }
    one_by_one(from, own, to);
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl"))]
fn one_by_one(from: &[f32], own: ToBytes, to: &mut [u8]) {
    for (to, &x) in to.iter_mut().zip(from) {
        *to = own.byte(x);
    }
}

/// Bytes that stand for numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaled {
    /// The number between neighbouring bytes.
    pub scale: f32,
    /// The byte that stands for zero.
    pub zero_point: i32,
}

/// Adds the numbers of bytes, clamps the sums, and converts them to bytes as [`quantise`] does.
///
/// # Panics
/// If the lengths differ, or as [`quantise`] does.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub fn add(
    operands: [(&[u8], Scaled); 2],
    bounds: [f32; 2],
    quantisation: &Quantisation,
    to: &mut [u8],
) {
    let [(a, of_a), (b, of_b)] = operands;
    assert!(
        a.len() == to.len() && b.len() == to.len(),
        "a byte for each"
    );
    let own = quantisation.to_bytes();
    for ((to, &a), &b) in to.iter_mut().zip(a).zip(b) {
        let a = number(a.into(), of_a.scale, of_a.zero_point);
        let b = number(b.into(), of_b.scale, of_b.zero_point);
        *to = own.byte(clamp(a + b, bounds));
    }
}

/// Converts bytes to numbers: `(byte - zero_point) * scale`.
///
/// # Panics
/// If the lengths differ.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub fn dequantise(from: &[u8], scale: f32, zero_point: i32, to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "a number for each");
    for (to, &byte) in to.iter_mut().zip(from) {
        *to = number(byte.into(), scale, zero_point);
    }
}

#[inline(always)]
fn number(byte: i32, scale: f32, zero_point: i32) -> f32 {
    byte.wrapping_sub(zero_point) as f32 * scale
}
