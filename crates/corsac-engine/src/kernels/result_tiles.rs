//! Operators that work in place, or on a copy of another tensor that is made piece by piece.

use rayon::prelude::*;

use super::{ApplyEpilogue, GRAIN};
use crate::parallel::Parallel;

/// Number of elements that are processed at a time where rows need not be whole: they stay in the
/// first-level cache.
pub(super) const TILE: usize = 4 * 1024;

/// Source and epilogue of each piece of a result.
#[derive(Clone, Copy)]
pub struct ResultTiles<'a> {
    /// Source of the elements; `None` if they are in the result already.
    pub from: Option<&'a [f32]>,
    /// Called last, with the start of the piece; `None` if there is no epilogue.
    pub epilogue: Option<ApplyEpilogue<'a>>,
}

impl ResultTiles<'_> {
    /// Calls `compute` with each row of `row` elements of `out`. An element costs `cost` operations
    /// of the simplest kind.
    pub(super) fn rows(
        &self,
        out: &mut [f32],
        row: usize,
        cost: usize,
        compute: impl Fn(&mut [f32]) + Sync,
    ) {
        self.rows_from(out, row, cost, |from, row| {
            put(from, row);
            compute(row);
        });
    }

    /// As [`Self::rows`], but passes the source of a row, if it is not in the row already, instead
    /// of copying it.
    pub(super) fn rows_from(
        &self,
        out: &mut [f32],
        row: usize,
        cost: usize,
        compute: impl Fn(Option<&[f32]>, &mut [f32]) + Sync,
    ) {
        self.tiles(out, [row, row], cost, |_, from, row| compute(from, row));
    }

    /// Calls `compute` with the number of a row and a piece of it, for all pieces.
    pub(crate) fn pieces(
        &self,
        out: &mut [f32],
        row: usize,
        compute: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        self.pieces_from(out, row, |number, from, piece| {
            put(from, piece);
            compute(number, piece);
        });
    }

    /// As [`Self::pieces`], but passes the source of a piece, if it is not in the piece already,
    /// instead of copying it.
    pub(super) fn pieces_from(
        &self,
        out: &mut [f32],
        row: usize,
        compute: impl Fn(usize, Option<&[f32]>, &mut [f32]) + Sync,
    ) {
        self.tiles(out, [row, TILE], 1, compute);
    }

    /// Calls `compute` with pieces of any rows, and with their source if it is not in them already.
    pub(super) fn elements(
        &self,
        out: &mut [f32],
        compute: impl Fn(Option<&[f32]>, &mut [f32]) + Sync,
    ) {
        // Without an epilogue, a piece is not read again and need not stay in a cache.
        let tile = if self.epilogue.is_some() { TILE } else { GRAIN };
        self.tiles(out, [GRAIN, tile], 1, |_, from, piece| compute(from, piece));
    }

    fn tiles(
        &self,
        out: &mut [f32],
        [row, tile]: [usize; 2],
        cost: usize,
        compute: impl Fn(usize, Option<&[f32]>, &mut [f32]) + Sync,
    ) {
        if row == 0 {
            return;
        }
        let one_row = |(number, elements): (usize, &mut [f32])| {
            for (at, piece) in elements.chunks_mut(tile).enumerate() {
                let start = number * row + at * tile;
                let from = self.from.map(|from| &from[start..start + piece.len()]);
                compute(number, from, piece);
                if let Some(epilogue) = self.epilogue {
                    epilogue(start, piece);
                }
            }
        };
        if out.len().saturating_mul(cost) <= GRAIN {
            return out.chunks_mut(row).enumerate().for_each(one_row);
        }
        out.par_chunks_mut(row)
            .enumerate()
            .with_min_len(GRAIN.div_ceil(cost * row))
            .run_parallel(one_row);
    }
}

/// Copies the source of a piece into it, if there is one.
pub(super) fn put(from: Option<&[f32]>, piece: &mut [f32]) {
    if let Some(from) = from {
        piece.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_is_copied_computed_and_finished_once() {
        for (rows, row) in [(3, 5), (1, 3 * TILE + 7), (40, TILE)] {
            let from: Vec<f32> = (0..rows * row).map(|at| at as f32).collect();
            let add_place = |start: usize, piece: &mut [f32]| {
                piece
                    .iter_mut()
                    .zip(start..)
                    .for_each(|(x, at)| *x += at as f32);
            };
            let mut out = vec![f32::NAN; rows * row];
            let tiles = |from| ResultTiles {
                from,
                epilogue: Some(&add_place),
            };
            tiles(Some(&from)).pieces(&mut out, row, |number, piece| {
                piece.iter_mut().for_each(|x| *x += number as f32);
            });
            let expected = |at: usize| (2 * at + at / row) as f32;
            assert!(out.iter().enumerate().all(|(at, &x)| x == expected(at)));
            tiles(None).rows(&mut out, row, 4, |piece| {
                assert_eq!(piece.len(), row);
                piece.iter_mut().for_each(|x| *x = -*x);
            });
            let expected = |at: usize| at as f32 - expected(at);
            assert!(out.iter().enumerate().all(|(at, &x)| x == expected(at)));
        }
        let epilogue = |_: usize, _: &mut [f32]| unreachable!("there is nothing");
        let tiles = ResultTiles {
            from: Some(&[]),
            epilogue: Some(&epilogue),
        };
        tiles.pieces(&mut [], 0, |_, _| unreachable!("there is nothing"));
        tiles.rows(&mut [], 4, 1, |_| unreachable!("there is nothing"));
    }
}
