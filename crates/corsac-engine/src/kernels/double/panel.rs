//! Products of rows with panels of columns.

use corsac_kernels::double_product::{COLUMNS, ROWS, Rows, add_products};

/// Numbers of each column that are multiplied at a time: a part of a panel, 24 KB, stays in the
/// first-level cache while all rows are multiplied with it.
pub(crate) const DEPTH: usize = 128;

/// Numbers of the columns of a panel, at each depth.
pub(crate) type Panel = [f64; COLUMNS];

/// Products of fewer multiplications are computed on one thread.
pub(crate) const SMALL: usize = 64 * 1024;

/// The beginning of a sum.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a> {
    /// 0.
    Zero,
    /// A number for each column.
    Columns(&'a [f64]),
    /// A number for each row.
    Rows(&'a [f64]),
    /// The result so far.
    Sums,
}

/// Writes the products of rows with a panel, times `scale`, to `width` columns from `at` on of `out`,
/// one slice for each row.
pub(crate) fn multiply(
    rows: Rows<'_>,
    panel: &[Panel],
    (start, scale): (Start<'_>, f64),
    out: &mut [&mut [f64]],
    (at, width): (usize, usize),
) {
    for (block, out) in out.chunks_mut(ROWS).enumerate() {
        let mut sums = [[0.0; COLUMNS]; ROWS];
        let sums = &mut sums[..out.len()];
        for (row, (sums, out)) in sums.iter_mut().zip(&mut *out).enumerate() {
            match start {
                Start::Zero => {}
                Start::Columns(numbers) => sums[..width].copy_from_slice(&numbers[at..at + width]),
                Start::Rows(numbers) => *sums = [numbers[block * ROWS + row]; COLUMNS],
                Start::Sums => sums[..width].copy_from_slice(&out[at..at + width]),
            }
        }
        let from = Rows {
            data: rows.data.get(block * ROWS * rows.stride..).unwrap_or(&[]),
            ..rows
        };
        add_products(from, panel, sums);
        for (sums, out) in sums.iter().zip(out) {
            let out = &mut out[at..at + width];
            match scale {
                1.0 => out.copy_from_slice(&sums[..width]),
                _ => out
                    .iter_mut()
                    .zip(sums)
                    .for_each(|(out, x)| *out = scale * x),
            }
        }
    }
}

/// Ranges of whole panels for `parts` threads: the rows of `out`, each divided into these.
pub(crate) fn divided(out: &mut [f64], columns: usize, parts: usize) -> Vec<Vec<&mut [f64]>> {
    let each = columns.div_ceil(COLUMNS).div_ceil(parts.max(1)) * COLUMNS;
    let mut all: Vec<Vec<&mut [f64]>> = Vec::new();
    for row in out.chunks_mut(columns.max(1)) {
        for (part, piece) in row.chunks_mut(each.max(1)).enumerate() {
            match all.get_mut(part) {
                Some(own) => own.push(piece),
                None => all.push(vec![piece]),
            }
        }
    }
    all
}
