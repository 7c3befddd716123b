//! Products of pairs of taps in vectors.

use std::arch::x86_64::{
    __m256i, __m512i, _mm_loadu_si128, _mm256_add_epi32, _mm256_cvtepu8_epi16, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_permute2x128_si256, _mm256_setzero_si256, _mm256_storeu_si256,
    _mm256_unpackhi_epi16, _mm256_unpacklo_epi16, _mm512_add_epi32, _mm512_cvtepu8_epi16,
    _mm512_dpwssd_epi32, _mm512_loadu_si512, _mm512_permutex2var_epi64, _mm512_setr_epi64,
    _mm512_setzero_si512, _mm512_storeu_si512, _mm512_unpackhi_epi16, _mm512_unpacklo_epi16,
};

use super::{Depthwise, PAIR_LEN};
use crate::int8_unit::{COLUMNS, Sums};

/// Whether the processor has AVX-512 VNNI.
pub(super) fn has_avx512_vnni() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vnni")
}

/// Sets the sums of the rows from `first` on, 32 columns at a time.
///
/// # Safety
/// The processor has AVX-512 VNNI; `Depthwise::taps` has checked the operands, of which these rows are
/// some.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn avx512_vnni(
    product: &Depthwise<'_>,
    taps: usize,
    first: usize,
    initial: &Sums,
    sums: &mut [Sums],
) {
    let source = product.source.as_ptr();
    for (row, sums) in (first..).zip(sums) {
        let mut own: [__m512i; 2] = [_mm512_setzero_si512(); 2];
        // SAFETY: there is an offset for each tap and row, 32 bytes from it on, and weights for each
        // pair of taps; sums are twice sixteen.
        unsafe {
            let mut weights = product.weights.as_ptr();
            for tap in (0..taps).step_by(2) {
                // The weights of a tap that is not there are zero.
                let places = [tap, (tap + 1).min(taps - 1)];
                let [a, b] = places.map(|tap| {
                    let offset = *product.offsets.get_unchecked(tap * product.rows + row);
                    _mm256_loadu_si256(source.add(offset as usize).cast())
                });
                let (a, b) = (_mm512_cvtepu8_epi16(a), _mm512_cvtepu8_epi16(b));
                let pairs = [_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b)];
                for (half, pairs) in pairs.into_iter().enumerate() {
                    let weights = weights.add(half * PAIR_LEN / 2);
                    let weights = _mm512_loadu_si512(weights.cast());
                    own[half] = _mm512_dpwssd_epi32(own[half], pairs, weights);
                }
                weights = weights.add(PAIR_LEN);
            }
            let orders = [
                _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15),
            ];
            for (half, order) in orders.into_iter().enumerate() {
                let found = _mm512_permutex2var_epi64(own[0], order, own[1]);
                let start = _mm512_loadu_si512(initial.as_ptr().add(half * 16).cast());
                let to = sums.as_mut_ptr().add(half * 16);
                _mm512_storeu_si512(to.cast(), _mm512_add_epi32(start, found));
            }
        }
    }
}

/// The same sixteen columns at a time.
///
/// # Safety
/// The processor has AVX2; else as for [`avx512_vnni`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn avx2(
    product: &Depthwise<'_>,
    taps: usize,
    first: usize,
    initial: &Sums,
    sums: &mut [Sums],
) {
    for (row, sums) in (first..).zip(sums) {
        for column in (0..COLUMNS).step_by(16) {
            let mut own: [__m256i; 2] = [_mm256_setzero_si256(); 2];
            // SAFETY: there is an offset for each tap and row, 32 bytes from it on, and weights for
            // each pair of taps; sums are twice sixteen.
            unsafe {
                let source = product.source.as_ptr().add(column);
                let mut weights = product.weights.as_ptr().add(column);
                for tap in (0..taps).step_by(2) {
                    // The weights of a tap that is not there are zero.
                    let places = [tap, (tap + 1).min(taps - 1)];
                    let [a, b] = places.map(|tap| {
                        let offset = *product.offsets.get_unchecked(tap * product.rows + row);
                        _mm_loadu_si128(source.add(offset as usize).cast())
                    });
                    let (a, b) = (_mm256_cvtepu8_epi16(a), _mm256_cvtepu8_epi16(b));
                    let pairs = [_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)];
                    for (half, pairs) in pairs.into_iter().enumerate() {
                        let weights = weights.add(half * PAIR_LEN / 2);
                        let weights = _mm256_loadu_si256(weights.cast());
                        let products = _mm256_madd_epi16(pairs, weights);
                        own[half] = _mm256_add_epi32(own[half], products);
                    }
                    weights = weights.add(PAIR_LEN);
                }
                let found = [
                    _mm256_permute2x128_si256::<0x20>(own[0], own[1]),
                    _mm256_permute2x128_si256::<0x31>(own[0], own[1]),
                ];
                for (half, found) in found.into_iter().enumerate() {
                    let at = column + half * 8;
                    let start = _mm256_loadu_si256(initial.as_ptr().add(at).cast());
                    let to = sums.as_mut_ptr().add(at);
                    _mm256_storeu_si256(to.cast(), _mm256_add_epi32(start, found));
                }
            }
        }
    }
}
