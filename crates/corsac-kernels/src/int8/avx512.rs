//! Epilogues with vectors of 512 bits: the same steps, each rounded as in plain Rust.

use std::arch::x86_64::{
    __m256i, __m512, __m512i, __mmask16, _CMP_ORD_Q, _mm_maskz_loadu_epi8, _mm256_add_epi8,
    _mm256_mask_storeu_epi8, _mm256_maskz_mov_epi8, _mm256_set_m128i, _mm256_set1_epi8,
    _mm256_storeu_si256, _mm512_add_ps, _mm512_castps_si512, _mm512_cmp_ps_mask,
    _mm512_cvtepi32_epi8, _mm512_cvtepi32_ps, _mm512_cvtepu8_epi32, _mm512_loadu_ps,
    _mm512_loadu_si512, _mm512_mask_storeu_ps, _mm512_max_ps, _mm512_min_ps, _mm512_mul_ps,
    _mm512_mullo_epi32, _mm512_set1_epi32, _mm512_set1_ps, _mm512_sub_epi32,
};

use super::epilogue::Epilogue;
use super::{ToBytes, WHOLE};
use crate::int8_unit::{COLUMNS, Sums};

/// Columns of a vector.
const LANES: usize = 16;
/// Vectors of a row.
const VECTORS: usize = COLUMNS / LANES;

/// Whether the processor has the instructions.
pub(super) fn has() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
}

/// Those of the first `columns` lanes that are in each vector.
fn masks(columns: usize) -> [__mmask16; VECTORS] {
    let all = (1_u64 << columns) - 1;
    [all as u16, (all >> LANES) as u16]
}

/// Writes numbers of some rows, of which `first` is the first.
///
/// # Safety
/// The processor has the instructions; `Epilogue::check` has passed for these rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn floats(
    epilogue: &Epilogue<'_>,
    first: usize,
    sums: &[Sums],
    columns: usize,
    to: &mut [f32],
    stride: usize,
) {
    let masks = masks(columns);
    for (v, &mask) in masks.iter().enumerate().filter(|(_, mask)| **mask > 0) {
        let columns = Columns::new(epilogue, v);
        for (row, sums) in (first..).zip(sums) {
            // SAFETY: this row of the result has the columns of the mask, and the residual, too.
            unsafe {
                let x = columns.numbers(epilogue, row, sums, mask);
                let to = to.as_mut_ptr().add(row * stride + v * LANES);
                _mm512_mask_storeu_ps(to, mask, clamp(x, epilogue.bounds));
            }
        }
    }
}

/// Writes bytes of some rows. Unless `ANY`, no number is NaN, and the bounds of the epilogue change
/// none.
///
/// # Safety
/// As for [`floats`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn bytes<const ANY: bool>(
    epilogue: &Epilogue<'_>,
    first: usize,
    sums: &[Sums],
    columns: usize,
    conversion: ToBytes,
    to: &mut [u8],
    stride: usize,
) {
    let masks = masks(columns);
    let all = ((1_u64 << columns) - 1) as u32;
    let panel = [Columns::new(epilogue, 0), Columns::new(epilogue, 1)];
    for (row, sums) in (first..).zip(sums) {
        // SAFETY: this row of the result has the columns of the masks, and the residual, too.
        unsafe {
            let x = [0, 1].map(|v| {
                let x = panel[v].numbers(epilogue, row, sums, masks[v]);
                if ANY { clamp(x, epilogue.bounds) } else { x }
            });
            let bytes = converted::<ANY>(conversion, x);
            let to = to.as_mut_ptr().add(row * stride);
            match columns {
                COLUMNS => _mm256_storeu_si256(to.cast(), bytes),
                _ => _mm256_mask_storeu_epi8(to.cast(), all, bytes),
            }
        }
    }
}

/// Converts the numbers of a row to bytes; NaN to zero if `ANY` number may be NaN.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn converted<const ANY: bool>(conversion: ToBytes, x: [__m512; VECTORS]) -> __m256i {
    let x = x.map(|x| _mm512_mul_ps(x, _mm512_set1_ps(conversion.inverse_scale)));
    let [low, high] = x.map(|x| {
        let clamped = clamp(x, [conversion.lower, conversion.upper]);
        let whole = _mm512_add_ps(clamped, _mm512_set1_ps(WHOLE));
        _mm512_cvtepi32_epi8(_mm512_castps_si512(whole))
    });
    // The zero point is added to the lowest bits alone, which are all that is left.
    let zero_point = _mm256_set1_epi8(conversion.zero_point as i8);
    let bytes = _mm256_add_epi8(_mm256_set_m128i(high, low), zero_point);
    if ANY {
        let [first, second] = x.map(|x| u32::from(_mm512_cmp_ps_mask::<_CMP_ORD_Q>(x, x)));
        return _mm256_maskz_mov_epi8(first | second << LANES, bytes);
    }
    bytes
}

/// Clamps numbers; as the second operand is the result where one is NaN, NaN stays.
#[inline]
#[target_feature(enable = "avx512f")]
fn clamp(x: __m512, [lower, upper]: [f32; 2]) -> __m512 {
    let x = _mm512_max_ps(_mm512_set1_ps(lower), x);
    _mm512_min_ps(_mm512_set1_ps(upper), x)
}

/// Scales and biases of sixteen columns.
struct Columns {
    vector: usize,
    scales: __m512,
    biases: __m512,
    sums: __m512i,
}

impl Columns {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(epilogue: &Epilogue<'_>, vector: usize) -> Self {
        let floats = |all: &[f32; COLUMNS]| {
            let own = &all[vector * LANES..][..LANES];
            // SAFETY: these are sixteen numbers.
            unsafe { _mm512_loadu_ps(own.as_ptr()) }
        };
        Self {
            vector,
            scales: floats(epilogue.scales),
            biases: floats(epilogue.biases),
            sums: match &epilogue.rows {
                Some(rows) => integers(rows.column_sums, vector),
                None => _mm512_set1_epi32(0),
            },
        }
    }

    /// The numbers of a row, not clamped.
    ///
    /// # Safety
    /// The residual has the columns of the mask in this row.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn numbers(
        &self,
        epilogue: &Epilogue<'_>,
        row: usize,
        sums: &Sums,
        mask: __mmask16,
    ) -> __m512 {
        let (mut sums, mut scales) = (integers(sums, self.vector), self.scales);
        if let Some(rows) = &epilogue.rows {
            let zero_point = _mm512_set1_epi32(rows.zero_points[row]);
            sums = _mm512_sub_epi32(sums, _mm512_mullo_epi32(zero_point, self.sums));
            scales = _mm512_mul_ps(scales, _mm512_set1_ps(rows.scales[row]));
        }
        let mut x = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), scales);
        x = _mm512_add_ps(x, self.biases);
        if let Some(residual) = &epilogue.residual {
            let from = residual.bytes.as_ptr();
            let from = from.wrapping_add(row * residual.stride + self.vector * LANES);
            // SAFETY: by the contract; bytes outside of the mask, which may be none, are not read.
            let bytes = unsafe { _mm_maskz_loadu_epi8(mask, from.cast()) };
            let zero_point = _mm512_set1_epi32(residual.zero_point);
            let steps = _mm512_sub_epi32(_mm512_cvtepu8_epi32(bytes), zero_point);
            let scale = _mm512_set1_ps(residual.scale);
            x = _mm512_add_ps(x, _mm512_mul_ps(_mm512_cvtepi32_ps(steps), scale));
        }
        x
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn integers(sums: &Sums, vector: usize) -> __m512i {
    let own = &sums[vector * LANES..][..LANES];
    // SAFETY: these are sixteen numbers.
    unsafe { _mm512_loadu_si512(own.as_ptr().cast()) }
}
