//! Vectors of sums, of 256 and 512 bits.

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_add_epi32, _mm256_and_si256, _mm256_dpbusd_avx_epi32,
    _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_set1_epi16,
    _mm256_set1_epi32, _mm256_setzero_si256, _mm256_slli_epi16, _mm256_srai_epi16,
    _mm256_srli_epi16, _mm256_storeu_si256, _mm512_add_epi32, _mm512_dpbusd_epi32,
    _mm512_loadu_si512, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_storeu_si512,
};

use super::{Lanes, Vector};

/// Whether the processor has dot products of bytes in vectors of 512 bits.
pub(crate) fn has_avx512_vnni() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vnni")
}

/// Whether the processor has dot products of bytes in vectors of 256 bits.
pub(crate) fn has_avx_vnni() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("avxvnni")
}

impl Vector for __m512i {
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the processor has AVX-512F.
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    unsafe fn load(from: *const i32) -> Self {
        // SAFETY: the processor has AVX-512F, and sixteen integers can be read.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        // SAFETY: the processor has AVX-512F, and sixteen integers can be written.
        unsafe { _mm512_storeu_si512(to.cast(), self) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the processor has AVX-512F.
        unsafe { _mm512_add_epi32(self, other) }
    }
    #[inline(always)]
    unsafe fn quad(from: *const u8) -> Self {
        // SAFETY: the processor has AVX-512F, and four bytes can be read.
        unsafe { _mm512_set1_epi32(from.cast::<i32>().read_unaligned()) }
    }
}

impl Vector for __m256i {
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the processor has AVX2.
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn load(from: *const i32) -> Self {
        // SAFETY: the processor has AVX2, and eight integers can be read.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        // SAFETY: the processor has AVX2, and eight integers can be written.
        unsafe { _mm256_storeu_si256(to.cast(), self) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the processor has AVX2.
        unsafe { _mm256_add_epi32(self, other) }
    }
    #[inline(always)]
    unsafe fn quad(from: *const u8) -> Self {
        // SAFETY: the processor has AVX2, and four bytes can be read.
        unsafe { _mm256_set1_epi32(from.cast::<i32>().read_unaligned()) }
    }
}

/// AVX-512 VNNI.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512Vnni;
/// AVX-VNNI.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AvxVnni;
/// AVX2, with bytes at even and odd places multiplied as numbers of 16 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2;

/// AVX2, where the sums of two products fit into 16 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2Pairs;

/// Products of whole vectors of weights.
///
/// # Safety
/// As for [`Lanes`].
pub(crate) trait Dot {
    /// Sums of some columns, and as many quads of weights or of a row.
    type Vector: Vector;

    unsafe fn dot(sums: Self::Vector, row: Self::Vector, weights: Self::Vector) -> Self::Vector;
}

impl<D: Dot> Lanes for D {
    type Sums = D::Vector;
    type Weights = D::Vector;
    type Row = D::Vector;

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> D::Vector {
        // SAFETY: by the contract.
        unsafe { Vector::load(from.cast()) }
    }
    #[inline(always)]
    unsafe fn row(from: *const u8) -> D::Vector {
        // SAFETY: by the contract.
        unsafe { Vector::quad(from) }
    }
    #[inline(always)]
    unsafe fn dot(sums: D::Vector, row: D::Vector, weights: D::Vector) -> D::Vector {
        // SAFETY: by the contract.
        unsafe { <D as Dot>::dot(sums, row, weights) }
    }
}

impl Dot for Avx512Vnni {
    type Vector = __m512i;

    #[inline(always)]
    unsafe fn dot(sums: __m512i, row: __m512i, weights: __m512i) -> __m512i {
        // SAFETY: the processor has AVX-512 VNNI.
        unsafe { _mm512_dpbusd_epi32(sums, row, weights) }
    }
}

impl Dot for AvxVnni {
    type Vector = __m256i;

    #[inline(always)]
    unsafe fn dot(sums: __m256i, row: __m256i, weights: __m256i) -> __m256i {
        // SAFETY: the processor has AVX-VNNI.
        unsafe { _mm256_dpbusd_avx_epi32(sums, row, weights) }
    }
}

impl Dot for Avx2Pairs {
    type Vector = __m256i;

    #[inline(always)]
    unsafe fn dot(sums: __m256i, row: __m256i, weights: __m256i) -> __m256i {
        // SAFETY: the processor has AVX2.
        unsafe {
            let pairs = _mm256_maddubs_epi16(row, weights);
            let quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            _mm256_add_epi32(sums, quads)
        }
    }
}

impl Lanes for Avx2 {
    type Sums = __m256i;
    /// Bytes at even places, and at odd ones.
    type Weights = [__m256i; 2];
    type Row = [__m256i; 2];

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> [__m256i; 2] {
        // SAFETY: the processor has AVX2, and eight quads can be read.
        unsafe {
            let bytes: __m256i = Vector::load(from.cast());
            let even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes));
            [even, _mm256_srai_epi16::<8>(bytes)]
        }
    }
    #[inline(always)]
    unsafe fn row(from: *const u8) -> [__m256i; 2] {
        // SAFETY: the processor has AVX2, and a quad can be read.
        unsafe {
            let bytes: __m256i = Vector::quad(from);
            let even = _mm256_and_si256(bytes, _mm256_set1_epi16(0xff));
            [even, _mm256_srli_epi16::<8>(bytes)]
        }
    }
    #[inline(always)]
    unsafe fn dot(sums: __m256i, row: [__m256i; 2], weights: [__m256i; 2]) -> __m256i {
        // Two products of 255 and -128 fit into 17 bits, with the sign.
        // SAFETY: the processor has AVX2.
        unsafe {
            let even = _mm256_madd_epi16(row[0], weights[0]);
            let odd = _mm256_madd_epi16(row[1], weights[1]);
            _mm256_add_epi32(sums, _mm256_add_epi32(even, odd))
        }
    }
}
