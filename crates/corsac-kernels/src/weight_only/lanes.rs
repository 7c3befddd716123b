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
    /// Weights of four bits, eight of each column.
    type Chunk: Copy;
    /// Columns of a vector.
    const LANES: usize;

    unsafe fn zero() -> Self::Floats;
    unsafe fn all(x: f32) -> Self::Floats;
    unsafe fn load(from: *const f32) -> Self::Floats;
    unsafe fn store(to: *mut f32, x: Self::Floats);
    unsafe fn halves(from: *const u16) -> Self::Floats;
    unsafe fn bytes(from: *const u8) -> Self::Floats;
    unsafe fn chunk(from: *const u8) -> Self::Chunk;
    /// The first weights of the chunk, and the chunk without them.
    unsafe fn next(chunk: Self::Chunk) -> (Self::Floats, Self::Chunk);
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + sum`.
    unsafe fn add_product(sum: Self::Floats, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `sum - a * b`.
    unsafe fn subtract_product(sum: Self::Floats, a: Self::Floats, b: Self::Floats)
    -> Self::Floats;
}
