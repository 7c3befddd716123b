//! Vectors of single-precision sums.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(super) use self::aarch64::Neon;
#[cfg(target_arch = "x86_64")]
pub(super) use self::x86_64::{Avx2, Avx512, has_avx2, has_avx512};

/// Vectors of numbers of some columns.
///
/// # Safety
/// All functions are `unsafe`: the processor must have the instructions, and memory must be there
/// for a number, a byte, 16 bits or 32 bits of each column.
pub(super) trait Lanes {
    /// A number of each column.
    type Floats: Copy;
    /// A word of weights of each column.
    type Words: Copy;
    /// Columns of a vector.
    const LANES: usize;

    unsafe fn zero() -> Self::Floats;
    unsafe fn all(x: f32) -> Self::Floats;
    unsafe fn load(from: *const f32) -> Self::Floats;
    unsafe fn store(to: *mut f32, x: Self::Floats);
    unsafe fn halves(from: *const u16) -> Self::Floats;
    unsafe fn bytes(from: *const u8) -> Self::Floats;
    /// Words of weights of `BITS` bits.
    unsafe fn words<const BITS: usize>(from: *const u8) -> Self::Words;
    /// The weights of the words at this place.
    unsafe fn weights<const BITS: usize>(words: Self::Words, at: usize) -> Self::Floats;
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + sum`.
    unsafe fn add_product(sum: Self::Floats, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `sum - a * b`.
    unsafe fn subtract_product(sum: Self::Floats, a: Self::Floats, b: Self::Floats)
    -> Self::Floats;
}

/// By how much a word of weights of these bits is shifted so that one has its highest bits.
#[inline(always)]
fn shift(bits: usize, at: usize) -> i32 {
    (32 - bits * (at + 1)) as i32
}

/// The highest bits of the weights of a word: weights with their excess have them where weights, as signed
/// numbers, have not.
const fn signs(bits: usize) -> i32 {
    match bits {
        4 => i32::from_ne_bytes([0x88; 4]),
        _ => i32::from_ne_bytes([0x80; 4]),
    }
}
