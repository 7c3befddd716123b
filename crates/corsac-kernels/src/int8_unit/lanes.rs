//! Vectors of sums of four products each.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(super) use self::aarch64::{DotProduct, has_dot_product};
#[cfg(target_arch = "x86_64")]
pub(crate) use self::x86_64::has_avx512_vnni;
#[cfg(target_arch = "x86_64")]
pub(super) use self::x86_64::{Avx2, Avx2Pairs, Avx512Vnni, AvxVnni, has_avx_vnni};

/// Vectors of 32-bit integers.
///
/// # Safety
/// All functions are `unsafe`: the processor must have the instructions (NEON for vectors of 128 bits,
/// AVX2 for 256, AVX-512F for 512), and memory must be there for what is loaded or stored.
pub(super) trait Vector: Copy {
    /// Integers of a vector.
    const LANES: usize;

    unsafe fn zero() -> Self;
    unsafe fn load(from: *const i32) -> Self;
    unsafe fn store(self, to: *mut i32);
    unsafe fn add(self, other: Self) -> Self;
    /// A quad of bytes in all lanes.
    unsafe fn quad(from: *const u8) -> Self;
}

/// Products of quads, added to the sums of some columns.
///
/// # Safety
/// All functions are `unsafe`: the processor must have the instructions, and memory must be there
/// for the quads of as many weights as sums have lanes, or a quad of a row.
pub(super) trait Lanes {
    /// Sums of some columns.
    type Sums: Vector;
    /// A quad of weights of each of the columns.
    type Weights: Copy;
    /// A quad of a row, for each of the columns.
    type Row: Copy;
    /// Columns of a vector.
    const LANES: usize = Self::Sums::LANES;

    unsafe fn weights(from: *const i8) -> Self::Weights;
    unsafe fn row(from: *const u8) -> Self::Row;
    unsafe fn dot(sums: Self::Sums, row: Self::Row, weights: Self::Weights) -> Self::Sums;
    /// Adds what the products of any row exceed the true ones by: nothing, unless bytes of rows are
    /// multiplied as signed ones.
    #[inline(always)]
    unsafe fn excess(excess: Self::Sums, _weights: Self::Weights) -> Self::Sums {
        excess
    }
    /// The true sums.
    #[inline(always)]
    unsafe fn without(sums: Self::Sums, _excess: Self::Sums) -> Self::Sums {
        sums
    }
}
