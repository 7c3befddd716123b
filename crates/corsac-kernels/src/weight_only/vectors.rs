//! Products in vectors, of some rows at a time.

use super::lanes::Lanes;
#[cfg(target_arch = "aarch64")]
use super::lanes::Neon;
#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::{Bits, CHUNK, PANEL, Product, Scales, WORD};
use crate::prefetch::{self, DISTANCE, LINE};

/// Sets the sums of each row with vectors of 512 bits.
///
/// # Safety
/// The processor has the instructions of [`Avx512`]. There are as many whole rows as results, and
/// scales, zero points if there are any, and sums with them for all groups of the panel.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn avx512(product: &Product<'_>, mut results: &mut [[f32; PANEL]]) {
    let mut first = 0;
    while !results.is_empty() {
        let count = match results.len() {
            8.. => 8,
            6.. => 6,
            4.. => 4,
            len => len,
        };
        let (own, rest) = results.split_at_mut(count);
        // SAFETY: by the contract of this function; these rows are there.
        unsafe {
            match (product.bits, count) {
                (Bits::Four, 8) => panel::<Avx512, 4, 8, 2, 1>(product, first, own),
                (Bits::Four, 6) => panel::<Avx512, 4, 6, 2, 1>(product, first, own),
                (Bits::Four, 4) => panel::<Avx512, 4, 4, 2, 1>(product, first, own),
                (Bits::Four, 3) => panel::<Avx512, 4, 3, 2, 2>(product, first, own),
                (Bits::Four, 2) => panel::<Avx512, 4, 2, 2, 2>(product, first, own),
                (Bits::Four, _) => panel::<Avx512, 4, 1, 2, 4>(product, first, own),
                (Bits::Eight, 8) => panel::<Avx512, 8, 8, 2, 1>(product, first, own),
                (Bits::Eight, 6) => panel::<Avx512, 8, 6, 2, 1>(product, first, own),
                (Bits::Eight, 4) => panel::<Avx512, 8, 4, 2, 1>(product, first, own),
                (Bits::Eight, 3) => panel::<Avx512, 8, 3, 2, 2>(product, first, own),
                (Bits::Eight, 2) => panel::<Avx512, 8, 2, 2, 2>(product, first, own),
                (Bits::Eight, _) => panel::<Avx512, 8, 1, 2, 4>(product, first, own),
            }
        }
        (first, results) = (first + count, rest);
    }
}

/// Sets the sums of each row with vectors of 256 bits: of sixteen, two rows take eight.
///
/// # Safety
/// The processor has the instructions of [`Avx2`]; else as [`avx512`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn avx2(product: &Product<'_>, results: &mut [[f32; PANEL]]) {
    // SAFETY: by the contract of this function.
    unsafe { pairs::<Avx2, 4>(product, results) }
}

/// Sets the sums of each row with vectors of 128 bits: of 32, two rows take sixteen.
///
/// # Safety
/// As for [`panel`], of all rows.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn neon(product: &Product<'_>, results: &mut [[f32; PANEL]]) {
    // SAFETY: by the contract of this function.
    unsafe { pairs::<Neon, 8>(product, results) }
}

/// Sets the sums of each row, two rows at a time, in `V` vectors.
///
/// # Safety
/// As for [`panel`], of all rows.
#[inline(always)]
unsafe fn pairs<L: Lanes, const V: usize>(product: &Product<'_>, mut results: &mut [[f32; PANEL]]) {
    let mut first = 0;
    while !results.is_empty() {
        let count = results.len().min(2);
        let (own, rest) = results.split_at_mut(count);
        // SAFETY: by the contract of this function; these rows are there.
        unsafe {
            match (product.bits, count) {
                (Bits::Four, 2) => panel::<L, 4, 2, V, 1>(product, first, own),
                (Bits::Four, _) => panel::<L, 4, 1, V, 1>(product, first, own),
                (Bits::Eight, 2) => panel::<L, 8, 2, V, 1>(product, first, own),
                (Bits::Eight, _) => panel::<L, 8, 1, V, 2>(product, first, own),
            }
        }
        (first, results) = (first + count, rest);
    }
}

/// Sets the sums of `M` rows from `first` on, of weights of `BITS` bits, in `V` vectors. Sums of a
/// group are computed in `S` parts, so that a product need not wait for the one before.
///
/// # Safety
/// The processor has the instructions of `L`, with which the caller is compiled; else as [`avx512`].
#[inline(always)]
unsafe fn panel<L: Lanes, const BITS: usize, const M: usize, const V: usize, const S: usize>(
    product: &Product<'_>,
    first: usize,
    results: &mut [[f32; PANEL]],
) {
    const { assert!(V * L::LANES == PANEL) }
    let len = product.bits.chunk_len();
    let chunks = product.packed.len() / len;
    let groups = chunks.div_ceil(product.group);
    let results = &mut results[..M];
    results.fill([0.0; PANEL]);
    let mut packed = product.packed.as_ptr();
    // SAFETY: by the contract, each row has numbers for all chunks of the panel, and the panel has
    // scales and zero points for all groups.
    unsafe {
        let mut numbers = product.rows.as_ptr().add(first * chunks * CHUNK);
        for group in 0..groups {
            let mut parts = [[[L::zero(); V]; M]; S];
            let count = product.group.min(chunks - group * product.group);
            for _ in 0..count {
                chunk::<L, BITS, M, V, S>(&mut parts, packed, numbers, chunks * CHUNK);
                packed = packed.add(len);
                numbers = numbers.add(CHUNK);
            }
            for v in 0..V {
                let at = group * PANEL + v * L::LANES;
                let scales = match product.scales {
                    Scales::Single(all) => L::load(all[at..][..L::LANES].as_ptr()),
                    Scales::Half(all) => L::halves(all[at..][..L::LANES].as_ptr()),
                };
                for (row, result) in results.iter_mut().enumerate() {
                    let mut sum = parts[0][row][v];
                    for part in &parts[1..] {
                        sum = L::add(sum, part[row][v]);
                    }
                    if let Some(zero_points) = product.zero_points {
                        let all = L::all(product.sums[(first + row) * groups + group]);
                        let own = L::bytes(zero_points[at..][..L::LANES].as_ptr().cast());
                        sum = L::subtract_product(sum, all, own);
                    }
                    let to = &mut result[v * L::LANES..][..L::LANES];
                    let sum = L::add_product(L::load(to.as_ptr()), sum, scales);
                    L::store(to.as_mut_ptr(), sum);
                }
            }
        }
    }
}

/// Adds the products of a chunk.
///
/// # Safety
/// The bytes of the chunk are there, and eight numbers of each row, `step` apart; else as [`panel`].
#[inline(always)]
unsafe fn chunk<L: Lanes, const BITS: usize, const M: usize, const V: usize, const S: usize>(
    parts: &mut [[[L::Floats; V]; M]; S],
    packed: *const u8,
    numbers: *const f32,
    step: usize,
) {
    // SAFETY: by the contract.
    unsafe {
        for line in 0..CHUNK * PANEL * BITS / 8 / LINE {
            prefetch::nearest(packed.wrapping_add(DISTANCE + line * LINE));
        }
        let mut words = [L::words::<BITS>(packed); V];
        for at in 0..CHUNK {
            let (word, place) = (at * BITS / 32, at * BITS % 32);
            let mut weights = [L::zero(); V];
            for v in 0..V {
                if place == 0 {
                    let column = word * PANEL + v * L::LANES;
                    words[v] = L::words::<BITS>(packed.add(column * WORD));
                }
                weights[v] = L::weights::<BITS>(words[v], place / BITS);
            }
            for (row, sums) in parts[at % S].iter_mut().enumerate() {
                let x = L::all(numbers.add(row * step + at).read());
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = L::add_product(*sum, x, weights);
                }
            }
        }
    }
}
