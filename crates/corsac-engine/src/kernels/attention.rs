//! Causal masks and safe softmax of attention scores.

use rayon::prelude::*;
use rten_simd::SimdOp;
use rten_vecmath::Softmax;

use super::GRAIN;
use crate::parallel::Parallel;
use crate::program::Float;

/// Sets the scores of each row to minus infinity where the key comes after the query.
pub(crate) fn causal<T: Float>(scores: &mut [T], rows: usize, columns: usize) {
    if scores.is_empty() {
        return;
    }
    for (at, row) in scores.chunks_mut(columns).enumerate() {
        let seen = (at % rows + 1).min(columns);
        row[seen..].fill(T::of(f64::NEG_INFINITY));
    }
}

/// Softmax of each row; 0 for rows of nothing but minus infinity. Source: `_safe_softmax` of
/// PyTorch.
pub fn safe_softmax(data: &mut [f32], columns: usize) {
    if data.is_empty() {
        return;
    }
    data.par_chunks_mut(columns)
        .with_min_len(GRAIN.div_ceil(4 * columns))
        .run_parallel(|row| match row.iter().all(|&x| x == f32::NEG_INFINITY) {
            true => row.fill(0.0),
            false => {
                Softmax::new_mut(row).dispatch();
            }
        });
}
