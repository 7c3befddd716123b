//! Products of matrices in double precision: a few rows times a panel of columns.
//!
//! Sums stay in registers while one vector of the panel at a time is multiplied with broadcast numbers
//! of each row: three vectors and eight rows with AVX-512, two vectors and six rows with AVX2. There,
//! three vectors and four rows would take all registers, and a sum would go to memory at each step.

/// Columns of a panel.
pub const COLUMNS: usize = 24;
/// Most rows that are multiplied at a time.
pub const ROWS: usize = 12;

/// A few rows of a matrix: number `k` of row `i` is at `i * stride + k * step`.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The numbers, from the first of the first row on.
    pub data: &'a [f64],
    /// Distance of rows.
    pub stride: usize,
    /// Distance of the numbers of a row.
    pub step: usize,
}

/// Adds the products of `rows` with the numbers of each column of `panel` to `sums`, a row each.
///
/// # Panics
/// If a number is not within the slice of the rows, or there are more than [`ROWS`].
pub fn add_products(rows: Rows<'_>, panel: &[[f64; COLUMNS]], sums: &mut [[f64; COLUMNS]]) {
    let Some(last) = panel.len().checked_sub(1) else {
        return;
    };
    assert!(sums.len() <= ROWS, "at most {ROWS} rows");
    let Some(others) = sums.len().checked_sub(1) else {
        return;
    };
    let last_row = others.checked_mul(rows.stride);
    let last = last
        .checked_mul(rows.step)
        .and_then(|last| last.checked_add(last_row?));
    assert!(
        last.is_some_and(|last| last < rows.data.len()),
        "rows are there"
    );
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has these instructions, and the numbers of all rows are there.
        return unsafe { x86_64::avx512(rows, panel, sums) };
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: as above.
        return unsafe { x86_64::avx2(rows, panel, sums) };
    }
    portable(rows, panel, sums);
}

fn portable(rows: Rows<'_>, panel: &[[f64; COLUMNS]], sums: &mut [[f64; COLUMNS]]) {
    for (i, sums) in sums.iter_mut().enumerate() {
        for (k, panel) in panel.iter().enumerate() {
            let x = rows.data[i * rows.stride + k * rows.step];
            for (sum, y) in sums.iter_mut().zip(panel) {
                *sum = x.mul_add(*y, *sum);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{
        _mm256_fmadd_pd, _mm256_loadu_pd, _mm256_set1_pd, _mm256_storeu_pd, _mm512_fmadd_pd,
        _mm512_loadu_pd, _mm512_set1_pd, _mm512_storeu_pd,
    };

    use super::{COLUMNS, Rows};

    /// Defines a function for any number of rows, by tiles of `$rows` rows and `$vectors` vectors.
    macro_rules! products {
        ($name:ident, $tile:ident, $features:literal, $lanes:literal, [$($rows:literal: $vectors:literal),*],
         $load:ident, $all:ident, $add:ident, $store:ident) => {
            /// Adds the products of the rows.
            ///
            /// # Safety
            /// The processor must have the instructions, and the numbers of all rows must be there.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $name(
                rows: Rows<'_>,
                panel: &[[f64; COLUMNS]],
                sums: &mut [[f64; COLUMNS]],
            ) {
                const MOST: usize = {
                    let mut most = 0;
                    $(if $rows > most { most = $rows; })*
                    most
                };
                for (at, sums) in sums.chunks_mut(MOST).enumerate() {
                    let from = &rows.data[at * MOST * rows.stride..];
                    match sums.len() {
                        $($rows => for first in (0..COLUMNS).step_by($vectors * $lanes) {
                            let rows = Rows { data: from, ..rows };
                            // SAFETY: the numbers of these rows are there, and as many columns.
                            unsafe { $tile::<$rows, $vectors>(rows, panel, first, sums) }
                        })*
                        _ => unreachable!("there are {MOST} rows at most"),
                    }
                }
            }

            /// Adds the products of `R` rows with the columns of `V` vectors from `first` on.
            ///
            /// # Safety
            /// As above; there must be as many rows of sums, and as many columns.
            #[target_feature(enable = $features)]
            unsafe fn $tile<const R: usize, const V: usize>(
                rows: Rows<'_>,
                panel: &[[f64; COLUMNS]],
                first: usize,
                sums: &mut [[f64; COLUMNS]],
            ) {
                // SAFETY: by the contract of this function.
                unsafe {
                    let at = |v: usize| first + v * $lanes;
                    let mut own: [[_; V]; R] = std::array::from_fn(|i| {
                        std::array::from_fn(|v| $load(sums[i].as_ptr().add(at(v))))
                    });
                    let mut x = rows.data.as_ptr();
                    for panel in panel {
                        let y: [_; V] =
                            std::array::from_fn(|v| $load(panel.as_ptr().add(at(v))));
                        for i in 0..R {
                            let x = $all(*x.add(i * rows.stride));
                            for v in 0..V {
                                own[i][v] = $add(x, y[v], own[i][v]);
                            }
                        }
                        x = x.wrapping_add(rows.step);
                    }
                    for i in 0..R {
                        for v in 0..V {
                            $store(sums[i].as_mut_ptr().add(at(v)), own[i][v]);
                        }
                    }
                }
            }
        };
    }

    products!(
        avx512,
        tile_avx512,
        "avx512f",
        8,
        [1: 3, 2: 3, 3: 3, 4: 3, 5: 3, 6: 3, 7: 3, 8: 3],
        _mm512_loadu_pd,
        _mm512_set1_pd,
        _mm512_fmadd_pd,
        _mm512_storeu_pd
    );
    products!(
        avx2,
        tile_avx2,
        "avx2,fma",
        4,
        [1: 6, 2: 3, 3: 3, 4: 2, 5: 2, 6: 2],
        _mm256_loadu_pd,
        _mm256_set1_pd,
        _mm256_fmadd_pd,
        _mm256_storeu_pd
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_the_same_with_all_instructions() {
        for (count, depth, stride, step) in [
            (1, 1, 1, 1),
            (8, 37, 40, 1),
            (5, 16, 1, 6),
            (3, 7, 0, 2),
            (12, 20, 25, 1),
            (6, 9, 9, 1),
        ] {
            let len = (count - 1) * stride + (depth - 1) * step + 1;
            let data: Vec<f64> = (0..len).map(|at| (at as f64 * 0.7).sin()).collect();
            let rows = Rows {
                data: &data,
                stride,
                step,
            };
            let panel: Vec<[f64; COLUMNS]> = (0..depth)
                .map(|k| std::array::from_fn(|j| ((k * COLUMNS + j) as f64 * 0.3).cos()))
                .collect();
            let start = vec![[0.25; COLUMNS]; count];
            let mut expected = start.clone();
            portable(rows, &panel, &mut expected);
            for (i, row) in expected.iter().enumerate() {
                let product = |j: usize| {
                    let terms = (0..depth).map(|k| data[i * stride + k * step] * panel[k][j]);
                    0.25 + terms.sum::<f64>()
                };
                for (j, x) in row.iter().enumerate() {
                    assert!((x - product(j)).abs() < 1e-13, "{i} {j}");
                }
            }
            let mut found = start.clone();
            add_products(rows, &panel, &mut found);
            assert_eq!(found, expected);
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                let mut found = start.clone();
                // SAFETY: the processor has these instructions, and the numbers are there.
                unsafe { x86_64::avx2(rows, &panel, &mut found) };
                assert_eq!(found, expected);
            }
        }
    }

    #[test]
    #[should_panic(expected = "rows are there")]
    fn rows_outside_are_not_read() {
        let rows = Rows {
            data: &[0.0; 5],
            stride: 3,
            step: 1,
        };
        add_products(rows, &[[0.0; COLUMNS]; 3], &mut [[0.0; COLUMNS]; 2]);
    }
}
