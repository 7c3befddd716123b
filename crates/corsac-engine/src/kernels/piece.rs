//! Pieces of work: parts of a matrix, written by one thread each.

/// Some columns of some rows of a result.
pub(super) struct Piece<'a, T = f32> {
    /// The first row.
    pub(super) row: usize,
    /// The first column.
    pub(super) column: usize,
    /// The columns of each row.
    pub(super) rows: Vec<&'a mut [T]>,
}

/// Divides a result with rows of `columns` elements into pieces of `height` rows and `width`
/// columns; the last ones may have fewer.
pub(super) fn pieces<T>(
    out: &mut [T],
    columns: usize,
    [height, width]: [usize; 2],
) -> Vec<Piece<'_, T>> {
    let across = columns.div_ceil(width);
    let rows = out.len() / columns;
    let mut pieces: Vec<Piece<'_, T>> = Vec::with_capacity(across * rows.div_ceil(height));
    for (row, line) in out.chunks_exact_mut(columns).enumerate() {
        for (at, chunk) in line.chunks_mut(width).enumerate() {
            let index = row / height * across + at;
            if pieces.len() == index {
                pieces.push(Piece {
                    row,
                    column: at * width,
                    rows: Vec::with_capacity(height.min(rows - row)),
                });
            }
            pieces[index].rows.push(chunk);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole_and_no_element_twice() {
        let mut out = vec![0.0; 7 * 10];
        let pieces = pieces(&mut out, 10, [3, 4]);
        let corners: Vec<_> = pieces
            .iter()
            .map(|piece| [piece.row, piece.column])
            .collect();
        let [a, b, c] = [0, 3, 6].map(|row| [0, 4, 8].map(|column| [row, column]));
        assert_eq!(corners, [a, b, c].concat());
        for piece in pieces {
            assert_eq!(piece.rows.len(), if piece.row == 6 { 1 } else { 3 });
            for (at, row) in piece.rows.into_iter().enumerate() {
                assert_eq!(row.len(), if piece.column == 8 { 2 } else { 4 });
                for (x, column) in row.iter_mut().zip(piece.column..) {
                    *x += ((piece.row + at) * 10 + column) as f32;
                }
            }
        }
        assert!(out.iter().enumerate().all(|(at, &x)| x == at as f32));
    }
}
