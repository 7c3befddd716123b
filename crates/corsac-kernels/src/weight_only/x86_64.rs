//! Products in vectors of 512 bits.

use std::arch::x86_64::{
    __m512, __m512i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm256_loadu_si256, _mm512_add_ps,
    _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_fmadd_ps, _mm512_fnmadd_ps,
    _mm512_loadu_ps, _mm512_loadu_si512, _mm512_permutexvar_ps, _mm512_set1_ps, _mm512_setr_ps,
    _mm512_setzero_ps, _mm512_srli_epi32, _mm512_storeu_ps,
};

use super::{Bits, CHUNK, PANEL, Product, Scales};

/// Columns of a vector.
const LANES: usize = 16;
/// Vectors of a panel.
const VECTORS: usize = PANEL / LANES;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Distance from weights to those that are prefetched meanwhile, in bytes.
const DISTANCE: usize = 4096;

/// Whether the processor has the instructions.
pub(super) fn has() -> bool {
    is_x86_feature_detected!("avx512f")
}

/// Sets the sums of each row.
///
/// # Safety
/// The processor has AVX-512. There are as many whole rows as results, and scales,
/// zero points if there are any, and sums with them for all groups of the panel.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn multiply(product: &Product<'_>, mut results: &mut [[f32; PANEL]]) {
    let mut first = 0;
    while !results.is_empty() {
        // With four bits, vectors are needed for the table and for the lanes.
        let count = match results.len() {
            12.. if product.bits == Bits::Eight => 12,
            8.. => 8,
            6.. => 6,
            4.. => 4,
            len => len,
        };
        let (own, rest) = results.split_at_mut(count);
        // SAFETY: by the contract of this function; these rows are there.
        unsafe {
            match (product.bits, count) {
                (Bits::Four, 8) => panel::<4, 8, 1>(product, first, own),
                (Bits::Four, 6) => panel::<4, 6, 1>(product, first, own),
                (Bits::Four, 4) => panel::<4, 4, 1>(product, first, own),
                (Bits::Four, 3) => panel::<4, 3, 2>(product, first, own),
                (Bits::Four, 2) => panel::<4, 2, 2>(product, first, own),
                (Bits::Four, _) => panel::<4, 1, 4>(product, first, own),
                (Bits::Eight, 12) => panel::<8, 12, 1>(product, first, own),
                (Bits::Eight, 8) => panel::<8, 8, 1>(product, first, own),
                (Bits::Eight, 6) => panel::<8, 6, 1>(product, first, own),
                (Bits::Eight, 4) => panel::<8, 4, 1>(product, first, own),
                (Bits::Eight, 3) => panel::<8, 3, 2>(product, first, own),
                (Bits::Eight, 2) => panel::<8, 2, 2>(product, first, own),
                (Bits::Eight, _) => panel::<8, 1, 4>(product, first, own),
            }
        }
        (first, results) = (first + count, rest);
    }
}

/// Sums of `M` rows in `S` parts, so that a product need not wait for the one before.
type Parts<const M: usize, const S: usize> = [[[__m512; VECTORS]; M]; S];

/// Sets the sums of `M` rows from `first` on, of weights of `BITS` bits.
///
/// # Safety
/// As for [`multiply`].
#[target_feature(enable = "avx512f")]
unsafe fn panel<const BITS: usize, const M: usize, const S: usize>(
    product: &Product<'_>,
    first: usize,
    results: &mut [[f32; PANEL]],
) {
    let len = product.bits.chunk_len();
    let chunks = product.packed.len() / len;
    let groups = chunks.div_ceil(product.group);
    let results = &mut results[..M];
    results.fill([0.0; PANEL]);
    let mut packed = product.packed.as_ptr();
    // SAFETY: by the contract.
    let mut numbers = unsafe { product.rows.as_ptr().add(first * chunks * CHUNK) };
    for group in 0..groups {
        let mut parts: Parts<M, S> = [[[_mm512_setzero_ps(); VECTORS]; M]; S];
        let count = product.group.min(chunks - group * product.group);
        for _ in 0..count {
            // SAFETY: the chunk is one of the panel, and each row has numbers for it.
            unsafe {
                chunk::<BITS, M, S>(&mut parts, packed, numbers, chunks * CHUNK);
                packed = packed.add(len);
                numbers = numbers.add(CHUNK);
            }
        }
        for v in 0..VECTORS {
            let at = group * PANEL + v * LANES;
            let scales = scales(&product.scales, at);
            for (row, result) in results.iter_mut().enumerate() {
                let mut sum = parts[0][row][v];
                for part in &parts[1..] {
                    sum = _mm512_add_ps(sum, part[row][v]);
                }
                if let Some(zero_points) = product.zero_points {
                    let all = _mm512_set1_ps(product.sums[(first + row) * groups + group]);
                    // SAFETY: these are sixteen bytes.
                    let own = unsafe { bytes(zero_points[at..][..LANES].as_ptr().cast()) };
                    sum = _mm512_fnmadd_ps(all, own, sum);
                }
                let to = &mut result[v * LANES..][..LANES];
                // SAFETY: these are sixteen numbers.
                unsafe {
                    let own = _mm512_loadu_ps(to.as_ptr());
                    _mm512_storeu_ps(to.as_mut_ptr(), _mm512_fmadd_ps(sum, scales, own));
                }
            }
        }
    }
}

/// Adds the products of a chunk.
///
/// # Safety
/// The bytes of the chunk are there, and eight numbers of each row, `step` apart.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn chunk<const BITS: usize, const M: usize, const S: usize>(
    parts: &mut Parts<M, S>,
    packed: *const u8,
    numbers: *const f32,
    step: usize,
) {
    for line in 0..CHUNK * PANEL * BITS / 8 / LINE {
        // Past the end, too: prefetching has no effect that a program can observe.
        let far = packed.wrapping_add(DISTANCE + line * LINE);
        _mm_prefetch(far.cast(), _MM_HINT_T0);
    }
    // SAFETY: by the contract; with four bits, a chunk is two vectors.
    unsafe {
        let mut lanes = [_mm512_loadu_si512(packed.cast()); VECTORS];
        if BITS == 4 {
            lanes[1] = _mm512_loadu_si512(packed.add(LINE).cast());
        }
        for at in 0..CHUNK {
            let mut weights = [_mm512_setzero_ps(); VECTORS];
            for v in 0..VECTORS {
                if BITS == 4 {
                    weights[v] = chosen(lanes[v]);
                    lanes[v] = _mm512_srli_epi32::<4>(lanes[v]);
                } else {
                    weights[v] = bytes(packed.add(at * PANEL + v * LANES));
                }
            }
            for (row, sums) in parts[at % S].iter_mut().enumerate() {
                let x = _mm512_set1_ps(numbers.add(row * step + at).read());
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = _mm512_fmadd_ps(x, weights, *sum);
                }
            }
        }
    }
}

/// The weights that the lowest four bits of each lane stand for.
#[inline]
#[target_feature(enable = "avx512f")]
fn chosen(lanes: __m512i) -> __m512 {
    let table = _mm512_setr_ps(
        -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0,
    );
    _mm512_permutexvar_ps(lanes, table)
}

/// Sixteen signed bytes as numbers.
///
/// # Safety
/// They are there.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn bytes(from: *const u8) -> __m512 {
    // SAFETY: by the contract.
    let bytes = unsafe { _mm_loadu_si128(from.cast()) };
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))
}

/// Sixteen scales from `at` on.
#[inline]
#[target_feature(enable = "avx512f")]
fn scales(scales: &Scales<'_>, at: usize) -> __m512 {
    match scales {
        Scales::Single(all) => {
            let own = &all[at..][..LANES];
            // SAFETY: these are sixteen numbers.
            unsafe { _mm512_loadu_ps(own.as_ptr()) }
        }
        Scales::Half(all) => {
            let own = &all[at..][..LANES];
            // SAFETY: these are sixteen numbers of 16 bits.
            unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(own.as_ptr().cast())) }
        }
    }
}
