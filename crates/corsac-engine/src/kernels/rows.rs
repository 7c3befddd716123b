//! Rows of tensors that are broadcast or strided.

use rayon::prelude::*;
use smallvec::SmallVec;

use super::GRAIN;
use crate::parallel::Parallel;
use crate::program::Strides;

/// Strides of a row-major tensor of shape `shape` along the dimensions of one of rank `rank` that
/// it is broadcast to: 0 where it is repeated.
#[must_use]
pub fn broadcast_strides(shape: &[usize], rank: usize) -> Strides {
    let mut steps: Strides = SmallVec::from_elem(0, rank);
    let mut step = 1;
    for (at, &size) in shape.iter().enumerate().rev() {
        if size != 1 {
            steps[at + rank - shape.len()] = step;
        }
        step *= size as isize;
    }
    steps
}

/// Offset of row `index` of a tensor of shape `outer`.
pub(super) fn start(outer: &[usize], steps: &[isize], mut index: usize) -> isize {
    let mut at = 0;
    for (&size, &step) in outer.iter().zip(steps).rev() {
        at += (index % size) as isize * step;
        index /= size;
    }
    at
}

/// Writes rows of a tensor of shape `shape`: calls `write` with the number of each row and the row.
pub(super) fn by_rows<T: Send>(
    shape: &[usize],
    out: &mut [T],
    write: impl Fn(usize, &mut [T]) + Sync,
) {
    let row = shape.last().copied().unwrap_or(1);
    if row == 0 || out.is_empty() {
        return;
    }
    out.par_chunks_mut(row)
        .enumerate()
        .with_min_len(GRAIN.div_ceil(row))
        .run_parallel(|(index, out)| write(index, out));
}
