//! Products of matrices of two by eight bytes (Arm I8MM): two rows and two columns at a time.

use std::arch::aarch64::{
    int32x4_t, uint8x8_t, uint8x16_t, uint32x4_t, vcombine_s32, vcombine_u8, vdup_n_u32,
    vdupq_n_u32, vget_high_s32, vget_low_s32, vld1_s32, vld1_u8, vld1q_u8, vreinterpret_u8_u32,
    vreinterpretq_u8_u32, vreinterpretq_u32_u8, vset_lane_u32, vst1_s32, vzip1q_u32, vzip2q_u32,
};
use std::arch::{asm, is_aarch64_feature_detected};

use super::dots::QUAD_BYTES;
use super::{COLUMNS, Product, QUAD, blocks};
use crate::prefetch::{self, DISTANCE, LINE};

/// Columns whose sums are computed at a time: four pairs.
const OWN: usize = 8;
/// Rows of a block: with four pairs there are sixteen vectors of sums, and some left for weights and rows.
const MOST: usize = 8;

/// Whether the processor has these products.
pub(super) fn has_matrix_products() -> bool {
    is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("i8mm")
}

/// Sets sums. An odd row is multiplied twice.
///
/// # Safety
/// The processor has I8MM. The product is one that `Operands::taps` has checked, `rows` sums can be
/// written, and the first sums of each row read.
#[target_feature(enable = "neon,i8mm")]
pub(super) unsafe fn multiply(product: &Product<'_>) {
    for rows in blocks(product.rows, MOST) {
        for column in (0..COLUMNS).step_by(OWN) {
            // SAFETY: by the contract, and as there are these rows and columns.
            unsafe {
                match rows.len() {
                    7.. => block::<4>(product, rows.start, rows.len(), column),
                    5.. => block::<3>(product, rows.start, rows.len(), column),
                    3.. => block::<2>(product, rows.start, rows.len(), column),
                    _ => block::<1>(product, rows.start, rows.len(), column),
                }
            }
        }
    }
}

/// Sets the sums of [`OWN`] columns from `column` on, of `P` pairs of rows from `row` on. Of the last
/// pair, the second row is the first one if there are only `2 * P - 1` rows.
///
/// # Safety
/// There are `len` rows, which are `2 * P` or one less; else as [`multiply`].
#[inline]
#[target_feature(enable = "neon,i8mm")]
unsafe fn block<const P: usize>(product: &Product<'_>, row: usize, len: usize, column: usize) {
    let operands = &product.operands;
    let source = operands.source.as_ptr();
    let pairs: [[usize; 2]; P] =
        std::array::from_fn(|p| [row + 2 * p, row + (2 * p + 1).min(len - 1)]);
    // SAFETY: by the contract, the first sums of the rows, the offsets of each tap, the bytes from
    // each offset on, the weights of all taps and the sums of the rows are there.
    unsafe {
        // Two sums of the first row of a pair, and two of the second.
        let mut sums = pairs.map(|pair| {
            let from = pair.map(|row| product.start.add(row * product.start_step + column));
            [0, 2, 4, 6].map(|at| {
                let [a, b] = from.map(|from| vld1_s32(from.add(at)));
                vcombine_s32(a, b)
            })
        });
        // Moves past the end after the last tap, where nothing is read.
        let mut weights = operands.weights.as_ptr().wrapping_add(column * QUAD);
        for tap in 0..product.taps {
            let offsets = operands.offsets.as_ptr();
            let offsets = offsets.add(tap * product.all_rows + product.first_row);
            let rows =
                pairs.map(|pair| pair.map(|row| source.add(offsets.add(row).read() as usize)));
            let mut at = 0;
            while at + 2 * QUAD <= operands.depth {
                let far = weights.wrapping_add(DISTANCE);
                prefetch::nearest(far);
                prefetch::nearest(far.wrapping_add(2 * LINE));
                let columns = columns(quads(weights), quads(weights.wrapping_add(QUAD_BYTES)));
                let bytes = rows.map(|pair| pair.map(|row| vld1_u8(row.add(at))));
                add_products(&mut sums, &bytes, &columns);
                weights = weights.wrapping_add(2 * QUAD_BYTES);
                at += 2 * QUAD;
            }
            if at < operands.depth {
                // The second quads are zeros.
                let columns = columns(quads(weights), [vdupq_n_u32(0); 2]);
                let quad = |row: *const u8| {
                    let quad = row.add(at).cast::<u32>().read_unaligned();
                    vreinterpret_u8_u32(vset_lane_u32::<0>(quad, vdup_n_u32(0)))
                };
                let bytes = rows.map(|pair| pair.map(quad));
                add_products(&mut sums, &bytes, &columns);
                weights = weights.wrapping_add(QUAD_BYTES);
            }
        }
        for (pair, sums) in pairs.iter().zip(sums) {
            let to = pair.map(|row| product.sums.add(row * COLUMNS + column));
            for (j, sums) in sums.into_iter().enumerate() {
                vst1_s32(to[0].add(2 * j), vget_low_s32(sums));
                vst1_s32(to[1].add(2 * j), vget_high_s32(sums));
            }
        }
    }
}

/// A quad of each of [`OWN`] columns.
///
/// # Safety
/// There are as many weights.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn quads(from: *const i8) -> [uint32x4_t; 2] {
    // SAFETY: by the contract.
    [0, 1].map(|half| unsafe { vreinterpretq_u32_u8(vld1q_u8(from.cast::<u8>().add(half * 16))) })
}

/// Two quads of both columns of each pair of columns.
#[inline]
#[target_feature(enable = "neon")]
fn columns(first: [uint32x4_t; 2], second: [uint32x4_t; 2]) -> [uint8x16_t; OWN / 2] {
    let [a, c] = [0, 1].map(|half| vzip1q_u32(first[half], second[half]));
    let [b, d] = [0, 1].map(|half| vzip2q_u32(first[half], second[half]));
    [a, b, c, d].map(|pair| vreinterpretq_u8_u32(pair))
}

/// Adds the products of eight bytes of each row with those of each column.
#[inline]
#[target_feature(enable = "neon,i8mm")]
fn add_products<const P: usize>(
    sums: &mut [[int32x4_t; OWN / 2]; P],
    rows: &[[uint8x8_t; 2]; P],
    columns: &[uint8x16_t; OWN / 2],
) {
    for (sums, &[a, b]) in sums.iter_mut().zip(rows) {
        let rows = vcombine_u8(a, b);
        for (sums, &columns) in sums.iter_mut().zip(columns) {
            // SAFETY: the processor has I8MM, with which this function is compiled.
            unsafe {
                asm!(
                    "usmmla {sums:v}.4s, {rows:v}.16b, {columns:v}.16b",
                    sums = inout(vreg) *sums,
                    rows = in(vreg) rows,
                    columns = in(vreg) columns,
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
        }
    }
}
