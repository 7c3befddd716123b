//! Vectors of single-precision sums, of 256 and 512 bits.

use std::arch::x86_64::{
    __m256, __m256i, __m512, __m512i, _mm_cvtsi32_si128, _mm_loadl_epi64, _mm_loadu_si128,
    _mm256_add_ps, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_cvtph_ps, _mm256_fmadd_ps,
    _mm256_fnmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_setzero_ps, _mm256_sll_epi32, _mm256_srai_epi32, _mm256_storeu_ps, _mm256_xor_si256,
    _mm512_add_ps, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_fmadd_ps,
    _mm512_fnmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_permutexvar_ps,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_setr_ps, _mm512_setzero_ps, _mm512_sll_epi32,
    _mm512_srai_epi32, _mm512_srl_epi32, _mm512_storeu_ps, _mm512_xor_si512,
};

use super::{Lanes, shift, signs};

/// Whether the processor has the instructions of [`Avx512`].
pub(crate) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
}

/// Whether the processor has the instructions of [`Avx2`].
pub(crate) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

/// AVX-512.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512;
/// AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2;

impl Lanes for Avx512 {
    type Floats = __m512;
    type Words = __m512i;
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> __m512 {
        // SAFETY: the processor has AVX-512F.
        unsafe { _mm512_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn all(x: f32) -> __m512 {
        // SAFETY: the processor has AVX-512F.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        // SAFETY: the processor has AVX-512F, and sixteen numbers can be read.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: __m512) {
        // SAFETY: the processor has AVX-512F, and sixteen numbers can be written.
        unsafe { _mm512_storeu_ps(to, x) }
    }
    #[inline(always)]
    unsafe fn halves(from: *const u16) -> __m512 {
        // SAFETY: the processor has AVX-512F, and sixteen halves can be read.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> __m512 {
        // SAFETY: the processor has AVX-512F, and sixteen bytes can be read.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn words<const BITS: usize>(from: *const u8) -> __m512i {
        // SAFETY: the processor has AVX-512F, and sixteen words can be read.
        unsafe {
            let words = _mm512_loadu_si512(from.cast());
            match BITS {
                4 => words,
                _ => _mm512_xor_si512(words, _mm512_set1_epi32(signs(BITS))),
            }
        }
    }
    #[inline(always)]
    unsafe fn weights<const BITS: usize>(words: __m512i, at: usize) -> __m512 {
        // SAFETY: the processor has AVX-512F.
        unsafe {
            if BITS == 4 {
                // The lowest four bits of a lane choose a number.
                let table = _mm512_setr_ps(
                    -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0,
                    6.0, 7.0,
                );
                let count = _mm_cvtsi32_si128((4 * at) as i32);
                return _mm512_permutexvar_ps(_mm512_srl_epi32(words, count), table);
            }
            let count = _mm_cvtsi32_si128(shift(BITS, at));
            let highest = _mm512_sll_epi32(words, count);
            _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(highest))
        }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        // SAFETY: the processor has AVX-512F.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn add_product(sum: __m512, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the processor has AVX-512F.
        unsafe { _mm512_fmadd_ps(a, b, sum) }
    }
    #[inline(always)]
    unsafe fn subtract_product(sum: __m512, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the processor has AVX-512F.
        unsafe { _mm512_fnmadd_ps(a, b, sum) }
    }
}

impl Lanes for Avx2 {
    type Floats = __m256;
    type Words = __m256i;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn zero() -> __m256 {
        // SAFETY: the processor has AVX2.
        unsafe { _mm256_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn all(x: f32) -> __m256 {
        // SAFETY: the processor has AVX2.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        // SAFETY: the processor has AVX2, and eight numbers can be read.
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: __m256) {
        // SAFETY: the processor has AVX2, and eight numbers can be written.
        unsafe { _mm256_storeu_ps(to, x) }
    }
    #[inline(always)]
    unsafe fn halves(from: *const u16) -> __m256 {
        // SAFETY: the processor has F16C, and eight halves can be read.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn bytes(from: *const u8) -> __m256 {
        // SAFETY: the processor has AVX2, and eight bytes can be read.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn words<const BITS: usize>(from: *const u8) -> __m256i {
        // SAFETY: the processor has AVX2, and eight words can be read.
        unsafe {
            let words = _mm256_loadu_si256(from.cast());
            _mm256_xor_si256(words, _mm256_set1_epi32(signs(BITS)))
        }
    }
    #[inline(always)]
    unsafe fn weights<const BITS: usize>(words: __m256i, at: usize) -> __m256 {
        // SAFETY: the processor has AVX2.
        unsafe {
            let highest = _mm256_sll_epi32(words, _mm_cvtsi32_si128(shift(BITS, at)));
            _mm256_cvtepi32_ps(match BITS {
                4 => _mm256_srai_epi32::<28>(highest),
                _ => _mm256_srai_epi32::<24>(highest),
            })
        }
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        // SAFETY: the processor has AVX2.
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn add_product(sum: __m256, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the processor has FMA.
        unsafe { _mm256_fmadd_ps(a, b, sum) }
    }
    #[inline(always)]
    unsafe fn subtract_product(sum: __m256, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the processor has FMA.
        unsafe { _mm256_fnmadd_ps(a, b, sum) }
    }
}
