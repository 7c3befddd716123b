//! Vectors of sums of four products each.

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_add_epi32, _mm256_and_si256, _mm256_dpbusd_avx_epi32,
    _mm256_loadu_si256, _mm256_madd_epi16, _mm256_set1_epi16, _mm256_set1_epi32,
    _mm256_setzero_si256, _mm256_slli_epi16, _mm256_srai_epi16, _mm256_srli_epi16,
    _mm256_storeu_si256, _mm512_add_epi32, _mm512_dpbusd_epi32, _mm512_loadu_si512,
    _mm512_set1_epi32, _mm512_setzero_si512, _mm512_storeu_si512,
};

/// Whether the processor has dot products of bytes in vectors of 512 bits.
pub(super) fn has_avx512_vnni() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vnni")
}

/// Whether the processor has dot products of bytes in vectors of 256 bits.
pub(super) fn has_avx_vnni() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("avxvnni")
}

/// Vectors of the sums of some columns.
///
/// # Safety
/// All functions are `unsafe`: the processor must have the instructions, and memory must be there
/// for a vector of sums, the quads of as many weights, or a quad of a row.
pub(super) trait Lanes {
    /// Sums of [`LANES`](Self::LANES) columns.
    type Sums: Copy;
    /// A quad of weights of each of the columns.
    type Weights: Copy;
    /// A quad of a row, for each of the columns.
    type Row: Copy;
    /// Columns of a vector.
    const LANES: usize;

    unsafe fn zero() -> Self::Sums;
    unsafe fn load(from: *const i32) -> Self::Sums;
    unsafe fn store(to: *mut i32, sums: Self::Sums);
    unsafe fn add(a: Self::Sums, b: Self::Sums) -> Self::Sums;
    unsafe fn weights(from: *const i8) -> Self::Weights;
    unsafe fn row(from: *const u8) -> Self::Row;
    unsafe fn dot(sums: Self::Sums, row: Self::Row, weights: Self::Weights) -> Self::Sums;
}

/// AVX-512 VNNI.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512Vnni;
/// AVX-VNNI.
#[derive(Clone, Copy, Debug)]
pub(super) struct AvxVnni;
/// AVX2, with bytes at even and odd places multiplied as numbers of 16 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2;

// SAFETY of all blocks below: by the contract of the trait.
#[allow(clippy::undocumented_unsafe_blocks, reason = "said above, once")]
impl Lanes for Avx512Vnni {
    type Sums = __m512i;
    type Weights = __m512i;
    type Row = __m512i;
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> __m512i {
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    unsafe fn load(from: *const i32) -> __m512i {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut i32, sums: __m512i) {
        unsafe { _mm512_storeu_si512(to.cast(), sums) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn weights(from: *const i8) -> __m512i {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn row(from: *const u8) -> __m512i {
        unsafe { _mm512_set1_epi32(from.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn dot(sums: __m512i, row: __m512i, weights: __m512i) -> __m512i {
        unsafe { _mm512_dpbusd_epi32(sums, row, weights) }
    }
}

#[allow(clippy::undocumented_unsafe_blocks, reason = "said above, once")]
impl Lanes for AvxVnni {
    type Sums = __m256i;
    type Weights = __m256i;
    type Row = __m256i;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn zero() -> __m256i {
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn load(from: *const i32) -> __m256i {
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut i32, sums: __m256i) {
        unsafe { _mm256_storeu_si256(to.cast(), sums) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn weights(from: *const i8) -> __m256i {
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn row(from: *const u8) -> __m256i {
        unsafe { _mm256_set1_epi32(from.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn dot(sums: __m256i, row: __m256i, weights: __m256i) -> __m256i {
        unsafe { _mm256_dpbusd_avx_epi32(sums, row, weights) }
    }
}

#[allow(clippy::undocumented_unsafe_blocks, reason = "said above, once")]
impl Lanes for Avx2 {
    type Sums = __m256i;
    /// Bytes at even places, and at odd ones.
    type Weights = [__m256i; 2];
    type Row = [__m256i; 2];
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn zero() -> __m256i {
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn load(from: *const i32) -> __m256i {
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut i32, sums: __m256i) {
        unsafe { _mm256_storeu_si256(to.cast(), sums) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn weights(from: *const i8) -> [__m256i; 2] {
        unsafe {
            let bytes = _mm256_loadu_si256(from.cast());
            let even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes));
            [even, _mm256_srai_epi16::<8>(bytes)]
        }
    }
    #[inline(always)]
    unsafe fn row(from: *const u8) -> [__m256i; 2] {
        unsafe {
            let bytes = _mm256_set1_epi32(from.cast::<i32>().read_unaligned());
            let even = _mm256_and_si256(bytes, _mm256_set1_epi16(0xff));
            [even, _mm256_srli_epi16::<8>(bytes)]
        }
    }
    #[inline(always)]
    unsafe fn dot(sums: __m256i, row: [__m256i; 2], weights: [__m256i; 2]) -> __m256i {
        // Two products of 255 and -128 fit into 17 bits, with the sign.
        unsafe {
            let even = _mm256_madd_epi16(row[0], weights[0]);
            let odd = _mm256_madd_epi16(row[1], weights[1]);
            _mm256_add_epi32(sums, _mm256_add_epi32(even, odd))
        }
    }
}
