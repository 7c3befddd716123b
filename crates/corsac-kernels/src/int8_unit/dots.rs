//! Products as dot products of quads, a block of rows at a time.

use std::ops::Range;

#[cfg(target_arch = "aarch64")]
use super::lanes::DotProduct;
#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx2Pairs, Avx512Vnni, AvxVnni};
use super::lanes::{Lanes, Vector};
use super::{COLUMNS, Product, QUAD, blocks};
use crate::prefetch::{self, DISTANCE, LINE};

/// Bytes of a quad of all columns.
pub(super) const QUAD_BYTES: usize = QUAD * COLUMNS;

/// Sets sums with vectors of 512 bits.
///
/// # Safety
/// The processor has AVX-512 VNNI. The product is one that `Operands::taps` has checked, `rows` sums
/// can be written, and the first sums of each row read.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn avx512_vnni(product: &Product<'_>) {
    /// Rows of a block: with 28 sums, there are vectors left for weights and a row.
    const MOST: usize = 14;
    for rows in blocks(product.rows, MOST) {
        prefetch_ahead(product, &rows);
        let row = rows.start;
        // SAFETY: by the contract of this function, and as all rows of the block are there.
        unsafe {
            match rows.len() {
                14 => block::<Avx512Vnni, 14, 2, 1>(product, row),
                13 => block::<Avx512Vnni, 13, 2, 1>(product, row),
                12 => block::<Avx512Vnni, 12, 2, 1>(product, row),
                11 => block::<Avx512Vnni, 11, 2, 1>(product, row),
                10 => block::<Avx512Vnni, 10, 2, 1>(product, row),
                9 => block::<Avx512Vnni, 9, 2, 1>(product, row),
                8 => block::<Avx512Vnni, 8, 2, 1>(product, row),
                7 => block::<Avx512Vnni, 7, 2, 1>(product, row),
                6 => block::<Avx512Vnni, 6, 2, 2>(product, row),
                5 => block::<Avx512Vnni, 5, 2, 2>(product, row),
                4 => block::<Avx512Vnni, 4, 2, 2>(product, row),
                3 => block::<Avx512Vnni, 3, 2, 2>(product, row),
                2 => block::<Avx512Vnni, 2, 2, 4>(product, row),
                _ => block::<Avx512Vnni, 1, 2, 4>(product, row),
            }
        }
    }
}

/// Sets sums with vectors of 256 bits.
///
/// # Safety
/// The processor has AVX-VNNI; else as [`avx512_vnni`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avxvnni")]
pub(super) unsafe fn avx_vnni(product: &Product<'_>) {
    /// Rows of a block: with 12 sums, there are vectors left for weights and a row.
    const MOST: usize = 6;
    for rows in blocks(product.rows, MOST) {
        prefetch_ahead(product, &rows);
        let row = rows.start;
        // SAFETY: by the contract of this function, and as all rows of the block are there.
        unsafe {
            match rows.len() {
                6 => block::<AvxVnni, 6, 2, 1>(product, row),
                5 => block::<AvxVnni, 5, 2, 1>(product, row),
                4 => block::<AvxVnni, 4, 2, 1>(product, row),
                3 => block::<AvxVnni, 3, 2, 2>(product, row),
                2 => block::<AvxVnni, 2, 4, 1>(product, row),
                _ => block::<AvxVnni, 1, 4, 2>(product, row),
            }
        }
    }
}

/// Sets sums with vectors of 256 bits and products of 16 bits.
///
/// # Safety
/// The processor has AVX2; else as [`avx512_vnni`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn avx2(product: &Product<'_>) {
    /// Rows of a block: with eight sums, there are vectors left for weights and a row, two of each.
    const MOST: usize = 4;
    for rows in blocks(product.rows, MOST) {
        prefetch_ahead(product, &rows);
        let row = rows.start;
        // SAFETY: by the contract of this function, and as all rows of the block are there.
        unsafe {
            match rows.len() {
                4 => block::<Avx2, 4, 2, 1>(product, row),
                3 => block::<Avx2, 3, 2, 1>(product, row),
                2 => block::<Avx2, 2, 2, 1>(product, row),
                _ => block::<Avx2, 1, 4, 1>(product, row),
            }
        }
    }
}

/// Sets sums with vectors of 256 bits and sums of two products of 16 bits, which must fit.
///
/// # Safety
/// The processor has AVX2; else as [`avx512_vnni`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn avx2_pairs(product: &Product<'_>) {
    /// Rows of a block: with ten sums, there are vectors left for weights, a row, ones and products.
    const MOST: usize = 5;
    for rows in blocks(product.rows, MOST) {
        prefetch_ahead(product, &rows);
        let row = rows.start;
        // SAFETY: by the contract of this function, and as all rows of the block are there.
        unsafe {
            match rows.len() {
                5 => block::<Avx2Pairs, 5, 2, 1>(product, row),
                4 => block::<Avx2Pairs, 4, 2, 1>(product, row),
                3 => block::<Avx2Pairs, 3, 2, 1>(product, row),
                2 => block::<Avx2Pairs, 2, 4, 1>(product, row),
                _ => block::<Avx2Pairs, 1, 4, 2>(product, row),
            }
        }
    }
}

/// Sets sums with vectors of 128 bits.
///
/// # Safety
/// The processor has dot products; else as for [`block`], of all rows.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,dotprod")]
pub(super) unsafe fn dot_product(product: &Product<'_>) {
    /// Rows of a block: with 20 sums, there are vectors left for weights, their excess, and a row.
    const MOST: usize = 5;
    for rows in blocks(product.rows, MOST) {
        prefetch_ahead(product, &rows);
        let row = rows.start;
        // SAFETY: by the contract of this function, and as all rows of the block are there.
        unsafe {
            match rows.len() {
                5 => block::<DotProduct, 5, 4, 1>(product, row),
                4 => block::<DotProduct, 4, 4, 1>(product, row),
                3 => block::<DotProduct, 3, 4, 1>(product, row),
                2 => block::<DotProduct, 2, 4, 2>(product, row),
                _ => block::<DotProduct, 1, 4, 4>(product, row),
            }
        }
    }
}

/// With the last rows, prefetches the first of the weights that are needed next, unless they follow
/// these, past whose end [`quad`] prefetches anyway.
fn prefetch_ahead(product: &Product<'_>, rows: &Range<usize>) {
    let (weights, ahead) = (product.operands.weights, product.operands.ahead);
    let is_last = product.first_row + rows.end == product.all_rows;
    if is_last && weights.as_ptr_range().end != ahead.as_ptr() {
        for line in ahead[..ahead.len().min(DISTANCE)].chunks(LINE) {
            prefetch::nearest(line.as_ptr());
        }
    }
}

/// Sets the sums of `P` rows from `row` on, `V` vectors of columns at a time. Each sum is computed in
/// `S` parts, so that a product need not wait for the one before.
///
/// # Safety
/// The processor has the instructions of `L`, with which the caller is compiled; `row + P` is at
/// most the number of rows; else as [`avx512_vnni`].
#[inline(always)]
unsafe fn block<L: Lanes, const P: usize, const V: usize, const S: usize>(
    product: &Product<'_>,
    row: usize,
) {
    const { assert!(COLUMNS.is_multiple_of(V * L::LANES)) }
    for column in (0..COLUMNS).step_by(V * L::LANES) {
        // SAFETY: by the contract, and as these columns are within a panel.
        unsafe { vectors::<L, P, V, S>(product, row, column) };
    }
}

/// Sets the sums of `V` vectors of columns from `column` on.
///
/// # Safety
/// The columns are within [`COLUMNS`]; else as for [`block`].
#[inline(always)]
unsafe fn vectors<L: Lanes, const P: usize, const V: usize, const S: usize>(
    product: &Product<'_>,
    row: usize,
    column: usize,
) {
    let operands = &product.operands;
    let source = operands.source.as_ptr();
    // SAFETY: by the contract, the first sums of the rows, the offsets of each tap, the bytes from
    // each offset on, the weights of all taps and the sums of the rows are there.
    unsafe {
        let mut parts = [[[L::Sums::zero(); V]; P]; S];
        let mut excess = [L::Sums::zero(); V];
        let mut start = product.start.add(row * product.start_step + column);
        for sums in &mut parts[0] {
            for (v, sums) in sums.iter_mut().enumerate() {
                *sums = L::Sums::load(start.add(v * L::LANES));
            }
            start = start.wrapping_add(product.start_step);
        }
        // Both move past the end after the last tap, where nothing is read.
        let mut weights = operands.weights.as_ptr().wrapping_add(column * QUAD);
        let mut offsets = operands.offsets.as_ptr().add(product.first_row + row);
        for _ in 0..product.taps {
            let mut rows = [source; P];
            for (p, row) in rows.iter_mut().enumerate() {
                *row = source.add(offsets.add(p).read() as usize);
            }
            offsets = offsets.wrapping_add(product.all_rows);
            let mut at = 0;
            while at + S * QUAD <= operands.depth {
                for (s, part) in parts.iter_mut().enumerate() {
                    quad::<L, P, V>(part, &mut excess, &rows, at + s * QUAD, weights);
                    weights = weights.wrapping_add(QUAD_BYTES);
                }
                at += S * QUAD;
            }
            while S > 1 && at < operands.depth {
                quad::<L, P, V>(&mut parts[0], &mut excess, &rows, at, weights);
                weights = weights.wrapping_add(QUAD_BYTES);
                at += QUAD;
            }
        }
        for p in 0..P {
            for v in 0..V {
                let mut sums = parts[0][p][v];
                for part in &parts[1..] {
                    sums = sums.add(part[p][v]);
                }
                sums = L::without(sums, excess[v]);
                let to = (row + p) * COLUMNS + column + v * L::LANES;
                sums.store(product.sums.add(to));
            }
        }
    }
}

/// Adds the products of the quad at byte `at` of each row, and what they exceed the true ones by.
///
/// # Safety
/// As for [`vectors`]; the bytes are there, and the weights of the quad.
#[inline(always)]
unsafe fn quad<L: Lanes, const P: usize, const V: usize>(
    sums: &mut [[L::Sums; V]; P],
    excess: &mut [L::Sums; V],
    rows: &[*const u8; P],
    at: usize,
    weights: *const i8,
) {
    // SAFETY: by the contract.
    unsafe {
        for line in 0..V * L::LANES * QUAD / LINE {
            // Past the end, too.
            prefetch::nearest(weights.wrapping_add(DISTANCE + line * LINE));
        }
        let mut columns = [L::weights(weights); V];
        for (v, columns) in columns.iter_mut().enumerate().skip(1) {
            *columns = L::weights(weights.add(v * L::LANES * QUAD));
        }
        for (excess, columns) in excess.iter_mut().zip(columns) {
            *excess = L::excess(*excess, columns);
        }
        for (sums, row) in sums.iter_mut().zip(rows) {
            let row = L::row(row.add(at));
            for (sums, columns) in sums.iter_mut().zip(columns) {
                *sums = L::dot(*sums, row, columns);
            }
        }
    }
}
