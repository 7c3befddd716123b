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

/// Strides of a row-major tensor along the dimensions of one of shape `shape` that it is reduced
/// from: 0 along `dims`.
pub(super) fn reduced_strides(shape: &[usize], dims: &[usize]) -> Strides {
    let mut strides: Strides = SmallVec::from_elem(0, shape.len());
    let mut stride = 1;
    for (at, &size) in shape.iter().enumerate().rev() {
        if !dims.contains(&at) {
            strides[at] = stride;
            stride *= size as isize;
        }
    }
    strides
}

/// Offset of row `index` of a tensor of shape `outer`, which has at least as many strides, none
/// negative.
pub(super) fn start(outer: &[usize], strides: &[isize], mut index: usize) -> usize {
    let mut at = 0;
    for (&size, &stride) in outer.iter().zip(strides).rev() {
        at += (index % size) * stride.unsigned_abs();
        index /= size;
    }
    at
}

/// Rows of a result, and of the operands that are broadcast to it: the last dimension, with those before it in which
/// each operand goes on as it does there.
pub(super) struct BroadcastRows<'s, const N: usize> {
    /// The dimensions of the result before those of a row.
    outer: &'s [usize],
    /// Number of elements of a row of the result.
    pub(super) row: usize,
    /// Strides of each operand along the outer dimensions.
    strides: [Strides; N],
    /// The stride of each operand along a row: 1, or 0 where it has one element.
    pub(super) steps: [usize; N],
}

impl<'s, const N: usize> BroadcastRows<'s, N> {
    /// Rows of a result of shape `shape`, for operands of these shapes.
    pub(super) fn of(shape: &'s [usize], operands: [&[usize]; N]) -> Self {
        let strides = operands.map(|own| broadcast_strides(own, shape.len()));
        let (mut row, mut rest, mut steps) = (1, shape.len(), [None; N]);
        while rest > 0 && row < GRAIN {
            let size = shape[rest - 1];
            if size != 1 {
                let here = strides
                    .each_ref()
                    .map(|own| usize::from(own[rest - 1] != 0));
                let known = steps.iter().flatten().zip(here);
                if !known.into_iter().all(|(&own, here)| own == here) {
                    break;
                }
                steps = here.map(Some);
            }
            row *= size;
            rest -= 1;
        }
        Self {
            outer: &shape[..rest],
            row,
            strides,
            steps: steps.map(Option::unwrap_or_default),
        }
    }

    /// Where each operand begins in row `index`.
    pub(super) fn starts(&self, index: usize) -> [usize; N] {
        self.strides
            .each_ref()
            .map(|own| start(self.outer, own, index))
    }
}

/// Number of elements in a row of a tensor of this shape.
pub(super) fn row_len(shape: &[usize]) -> usize {
    shape.last().copied().unwrap_or(1)
}

/// Writes rows of `row` elements: calls `write` with the number of each row and the row.
pub(super) fn by_rows<T: Send>(row: usize, out: &mut [T], write: impl Fn(usize, &mut [T]) + Sync) {
    if row == 0 || out.is_empty() {
        return;
    }
    out.par_chunks_mut(row)
        .enumerate()
        .with_min_len(GRAIN.div_ceil(row))
        .run_parallel(|(index, out)| write(index, out));
}
