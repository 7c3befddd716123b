//! Epilogues with vectors of 256 bits: the same steps, each rounded as in plain Rust.

use std::arch::x86_64::{
    __m256, __m256i, _CMP_ORD_Q, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_loadl_epi64,
    _mm_storel_epi64, _mm_storeu_si128, _mm_unpackhi_epi64, _mm256_add_epi8, _mm256_add_ps,
    _mm256_and_si256, _mm256_castps_si256, _mm256_castsi256_si128, _mm256_cmp_ps,
    _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_cvtps_epi32, _mm256_extracti128_si256,
    _mm256_loadu_ps, _mm256_loadu_si256, _mm256_max_ps, _mm256_min_ps, _mm256_mul_ps,
    _mm256_mullo_epi32, _mm256_packus_epi16, _mm256_packus_epi32, _mm256_permutevar8x32_epi32,
    _mm256_set1_epi8, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32, _mm256_setzero_si256,
    _mm256_storeu_ps, _mm256_storeu_si256, _mm256_sub_epi32,
};

use super::ToBytes;
use super::epilogue::Epilogue;
use crate::int8_unit::{COLUMNS, Sums};

/// Columns of a vector.
const LANES: usize = 8;
/// Vectors of a row.
const VECTORS: usize = COLUMNS / LANES;

/// Whether the processor has the instructions.
pub(super) fn has() -> bool {
    is_x86_feature_detected!("avx2")
}

/// Writes numbers of some rows, of which `first` is the first.
///
/// # Safety
/// The processor has AVX2; `Epilogue::check` has passed for these rows.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn floats(
    epilogue: &Epilogue<'_>,
    first: usize,
    sums: &[Sums],
    columns: usize,
    to: &mut [f32],
    stride: usize,
) {
    let bounds = epilogue.bounds.map(|bound| _mm256_set1_ps(bound));
    for v in 0..columns.div_ceil(LANES) {
        let own = Columns::new(epilogue, v);
        let columns = LANES.min(columns - v * LANES);
        for (row, sums) in (first..).zip(sums) {
            // SAFETY: this row of the residual and of the result has these columns.
            unsafe {
                let x = clamp(own.numbers(epilogue, row, sums, columns), bounds);
                let to = to.as_mut_ptr().add(row * stride + v * LANES);
                if columns == LANES {
                    _mm256_storeu_ps(to, x);
                } else {
                    let mut all = [0.0_f32; LANES];
                    _mm256_storeu_ps(all.as_mut_ptr(), x);
                    to.copy_from_nonoverlapping(all.as_ptr(), columns);
                }
            }
        }
    }
}

/// Writes bytes of some rows. Unless `ANY`, no number is NaN, and the bounds of the epilogue change
/// none.
///
/// # Safety
/// As for [`floats`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn bytes<const ANY: bool>(
    epilogue: &Epilogue<'_>,
    first: usize,
    sums: &[Sums],
    columns: usize,
    conversion: ToBytes,
    to: &mut [u8],
    stride: usize,
) {
    let panel: [Columns; VECTORS] = [
        Columns::new(epilogue, 0),
        Columns::new(epilogue, 1),
        Columns::new(epilogue, 2),
        Columns::new(epilogue, 3),
    ];
    let bounds = epilogue.bounds.map(|bound| _mm256_set1_ps(bound));
    let inside: [usize; VECTORS] =
        std::array::from_fn(|v| LANES.min(columns.saturating_sub(v * LANES)));
    for (row, sums) in (first..).zip(sums) {
        // SAFETY: this row of the residual and of the result has these columns.
        unsafe {
            let mut x = [_mm256_set1_ps(0.0); VECTORS];
            for (v, x) in x.iter_mut().enumerate() {
                *x = panel[v].numbers(epilogue, row, sums, inside[v]);
                if ANY {
                    *x = clamp(*x, bounds);
                }
            }
            let bytes = converted::<ANY>(conversion, x);
            let to = to.as_mut_ptr().add(row * stride);
            match columns {
                COLUMNS => _mm256_storeu_si256(to.cast(), bytes),
                _ => store_some(bytes, columns, to),
            }
        }
    }
}

/// Converts numbers to bytes, 32 at a time.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn quantise(
    from: &[[f32; COLUMNS]],
    conversion: ToBytes,
    to: &mut [[u8; COLUMNS]],
) {
    for (from, to) in from.iter().zip(to) {
        // SAFETY: these are 32 numbers, and 32 bytes.
        unsafe {
            let mut x = [_mm256_set1_ps(0.0); VECTORS];
            for (v, x) in x.iter_mut().enumerate() {
                *x = _mm256_loadu_ps(from.as_ptr().add(v * LANES));
            }
            _mm256_storeu_si256(to.as_mut_ptr().cast(), converted::<true>(conversion, x));
        }
    }
}

/// Stores the first of 32 bytes: fewer than 32.
///
/// # Safety
/// The processor has AVX2, and these bytes can be written.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_some(bytes: __m256i, columns: usize, to: *mut u8) {
    let upper = _mm256_extracti128_si256::<1>(bytes);
    let (mut bytes, mut at) = (_mm256_castsi256_si128(bytes), 0);
    // SAFETY: by the contract.
    unsafe {
        if columns & 16 != 0 {
            _mm_storeu_si128(to.cast(), bytes);
            (bytes, at) = (upper, 16);
        }
        if columns & 8 != 0 {
            _mm_storel_epi64(to.add(at).cast(), bytes);
            (bytes, at) = (_mm_unpackhi_epi64(bytes, bytes), at + 8);
        }
        let last = _mm_cvtsi128_si64(bytes).to_le_bytes();
        if columns & 4 != 0 {
            to.add(at).copy_from_nonoverlapping(last.as_ptr(), 4);
        }
        for at in columns & !3..columns {
            to.add(at).write(last[at % 8]);
        }
    }
}

/// Converts the numbers of a row to bytes; NaN to zero if `ANY` number may be NaN.
#[inline]
#[target_feature(enable = "avx2")]
fn converted<const ANY: bool>(conversion: ToBytes, x: [__m256; VECTORS]) -> __m256i {
    let inverse = _mm256_set1_ps(conversion.inverse_scale);
    let bounds = [conversion.lower, conversion.upper].map(|bound| _mm256_set1_ps(bound));
    let lowest = _mm256_set1_epi32(0xff);
    let of = |x: __m256| {
        let whole = _mm256_cvtps_epi32(clamp(_mm256_mul_ps(x, inverse), bounds));
        _mm256_and_si256(whole, lowest)
    };
    let bytes = packed(x.map(of));
    // The zero point is added to the lowest bits alone, which are all that is left.
    let bytes = _mm256_add_epi8(bytes, _mm256_set1_epi8(conversion.zero_point as i8));
    if ANY {
        let is_number = |x: __m256| {
            let x = _mm256_mul_ps(x, inverse);
            let mask = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_ORD_Q>(x, x));
            _mm256_and_si256(mask, lowest)
        };
        return _mm256_and_si256(bytes, packed(x.map(is_number)));
    }
    bytes
}

/// The lowest bytes of integers below 256, in their order.
#[inline]
#[target_feature(enable = "avx2")]
fn packed([a, b, c, d]: [__m256i; VECTORS]) -> __m256i {
    let (low, high) = (_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
    // Both halves of a vector are packed alone.
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order)
}

/// Clamps numbers; as the second operand is the result where one is NaN, NaN stays.
#[inline]
#[target_feature(enable = "avx2")]
fn clamp(x: __m256, [lower, upper]: [__m256; 2]) -> __m256 {
    _mm256_min_ps(upper, _mm256_max_ps(lower, x))
}

/// Scales and biases of eight columns.
struct Columns {
    vector: usize,
    scales: __m256,
    biases: __m256,
    sums: __m256i,
}

impl Columns {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(epilogue: &Epilogue<'_>, vector: usize) -> Self {
        let floats = |all: &[f32; COLUMNS]| {
            let own = &all[vector * LANES..][..LANES];
            // SAFETY: these are eight numbers.
            unsafe { _mm256_loadu_ps(own.as_ptr()) }
        };
        Self {
            vector,
            scales: floats(epilogue.scales),
            biases: floats(epilogue.biases),
            sums: match &epilogue.rows {
                Some(rows) => integers(rows.column_sums, vector),
                None => _mm256_setzero_si256(),
            },
        }
    }

    /// The numbers of a row, not clamped, of which the first `columns` are there.
    ///
    /// # Safety
    /// The residual has these columns in this row.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn numbers(
        &self,
        epilogue: &Epilogue<'_>,
        row: usize,
        sums: &Sums,
        columns: usize,
    ) -> __m256 {
        let (mut sums, mut scales) = (integers(sums, self.vector), self.scales);
        if let Some(rows) = &epilogue.rows {
            let zero_point = _mm256_set1_epi32(rows.zero_points[row]);
            sums = _mm256_sub_epi32(sums, _mm256_mullo_epi32(zero_point, self.sums));
            scales = _mm256_mul_ps(scales, _mm256_set1_ps(rows.scales[row]));
        }
        let mut x = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), scales);
        x = _mm256_add_ps(x, self.biases);
        if let Some(residual) = &epilogue.residual {
            let from = residual.bytes.as_ptr();
            let from = from.wrapping_add(row * residual.stride + self.vector * LANES);
            let mut all = [0_u8; LANES];
            // SAFETY: by the contract; eight bytes are read where there are eight.
            let bytes = unsafe {
                match columns {
                    LANES => _mm_loadl_epi64(from.cast()),
                    4 => _mm_cvtsi32_si128(from.cast::<i32>().read_unaligned()),
                    _ => {
                        all.as_mut_ptr().copy_from_nonoverlapping(from, columns);
                        _mm_loadl_epi64(all.as_ptr().cast())
                    }
                }
            };
            let zero_point = _mm256_set1_epi32(residual.zero_point);
            let steps = _mm256_sub_epi32(_mm256_cvtepu8_epi32(bytes), zero_point);
            let scale = _mm256_set1_ps(residual.scale);
            x = _mm256_add_ps(x, _mm256_mul_ps(_mm256_cvtepi32_ps(steps), scale));
        }
        x
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn integers(sums: &Sums, vector: usize) -> __m256i {
    let own = &sums[vector * LANES..][..LANES];
    // SAFETY: these are eight numbers.
    unsafe { _mm256_loadu_si256(own.as_ptr().cast()) }
}
