//! Transposition of matrices.

/// Rows and columns of the squares that are transposed at a time.
const SIDE: usize = 16;

/// `to[j * to_step + i] = from[i * from_step + j]` for `rows` of `columns` elements each.
///
/// # Panics
/// If a row or a column is not within its slice.
pub fn transpose(
    from: &[f32],
    from_step: usize,
    to: &mut [f32],
    to_step: usize,
    [rows, columns]: [usize; 2],
) {
    if rows == 0 || columns == 0 {
        return;
    }
    let ends = |len: usize, step: usize, rows: usize, columns: usize| {
        let last = (rows - 1).checked_mul(step);
        last.and_then(|last| last.checked_add(columns))
            .is_some_and(|end| end <= len)
    };
    assert!(ends(from.len(), from_step, rows, columns), "rows are there");
    assert!(ends(to.len(), to_step, columns, rows), "columns are there");
    #[cfg(target_arch = "x86_64")]
    if rows >= SIDE && columns >= SIDE && is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has these instructions, and all rows and columns are in bounds.
        return unsafe { x86_64::squares(from, from_step, to, to_step, [rows, columns]) };
    }
    for first in (0..rows).step_by(SIDE) {
        let last = rows.min(first + SIDE);
        for column in 0..columns {
            let to = &mut to[column * to_step..];
            for row in first..last {
                to[row] = from[row * from_step + column];
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{
        _mm512_loadu_ps, _mm512_permutex2var_ps, _mm512_set_epi32, _mm512_setzero_ps,
        _mm512_storeu_ps,
    };

    use super::SIDE;

    /// The same in squares; the last ones of a row or column may overlap those before.
    ///
    /// # Safety
    /// All rows and columns must be in bounds, at least sixteen of each, and the processor must
    /// have the instructions.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn squares(
        from: &[f32],
        from_step: usize,
        to: &mut [f32],
        to_step: usize,
        [rows, columns]: [usize; 2],
    ) {
        // The inner loop takes the longer side, so that as few rows as possible are read or written
        // at a time.
        let [down, across] = [rows, columns].map(|len| len.div_ceil(SIDE));
        for index in 0..down * across {
            let (row, column) = match down < across {
                true => (index / across, index % across),
                false => (index % down, index / down),
            };
            let row = (row * SIDE).min(rows - SIDE);
            let column = (column * SIDE).min(columns - SIDE);
            // SAFETY: sixteen rows and columns from these on are in bounds.
            unsafe {
                let from = from.as_ptr().add(row * from_step + column);
                let to = to.as_mut_ptr().add(column * to_step + row);
                square(from, from_step, to, to_step);
            }
        }
    }

    /// # Safety
    /// Sixteen numbers must be in bounds, to read and to write, at each of sixteen steps.
    #[target_feature(enable = "avx512f")]
    unsafe fn square(from: *const f32, from_step: usize, to: *mut f32, to_step: usize) {
        let low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
        let high = _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
        let mut rows = [_mm512_setzero_ps(); SIDE];
        for (row, own) in rows.iter_mut().enumerate() {
            // SAFETY: the caller guarantees it.
            *own = unsafe { _mm512_loadu_ps(from.add(row * from_step)) };
        }
        // A perfect shuffle of the numbers of all rows rotates the bits of their places by one:
        // four exchange the bits of the row with those of the column.
        for _ in 0..4 {
            let before = rows;
            for at in 0..SIDE / 2 {
                let (a, b) = (before[at], before[at + SIDE / 2]);
                rows[2 * at] = _mm512_permutex2var_ps(a, low, b);
                rows[2 * at + 1] = _mm512_permutex2var_ps(a, high, b);
            }
        }
        for (column, own) in rows.into_iter().enumerate() {
            // SAFETY: the caller guarantees it.
            unsafe { _mm512_storeu_ps(to.add(column * to_step), own) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        for [rows, columns] in [
            [1, 1],
            [3, 40],
            [40, 3],
            [15, 16],
            [16, 16],
            [16, 49],
            [49, 16],
            [33, 50],
        ] {
            let (from_step, to_step) = (columns + 3, rows + 5);
            let from: Vec<f32> = (0..rows * from_step).map(|x| x as f32).collect();
            let mut to = vec![-1.0; columns * to_step];
            transpose(&from, from_step, &mut to, to_step, [rows, columns]);
            for (at, &x) in to.iter().enumerate() {
                let (column, row) = (at / to_step, at % to_step);
                let expected = match row < rows {
                    true => (row * from_step + column) as f32,
                    false => -1.0,
                };
                assert_eq!(x, expected, "{rows} by {columns}, {row}, {column}");
            }
        }
        transpose(&[], 0, &mut [], 0, [0, 5]);
    }

    #[test]
    #[should_panic = "columns are there"]
    fn what_is_not_there_is_not_written() {
        transpose(&[0.0; 256], 16, &mut [0.0; 255], 16, [16, 16]);
    }
}
