//! Products of matrices.

use crate::parallel::Parallel;
use rayon::prelude::*;
use rten_gemm::{GemmExecutor, GemmInputA, GemmInputB, GemmOptions};
use rten_tensor::Matrix;

/// Sizes of a product of stacks of matrices: `[rows, depth]` times `[depth, columns]`.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a> {
    /// Rows of a result.
    pub rows: usize,
    /// Columns of the first matrix, rows of the second.
    pub depth: usize,
    /// Columns of a result.
    pub columns: usize,
    /// Whether the first matrix is stored as `[depth, rows]`.
    pub first_transposed: bool,
    /// Whether the second matrix is stored as `[columns, depth]`.
    pub transposed: bool,
    /// Factor of the results.
    pub scale: f64,
    /// For each result, the numbers of the two matrices.
    pub pairs: &'a [[usize; 2]],
}

impl Product<'_> {
    /// Writes all products to `out`.
    ///
    /// # Panics
    ///
    /// If matrices are of other sizes than those of the product.
    pub fn run(&self, a: &[f32], b: &[f32], out: &mut [f32]) {
        let (left, right) = (self.rows * self.depth, self.depth * self.columns);
        let result = self.rows * self.columns;
        if result == 0 {
            return;
        }
        if self.depth == 0 {
            return out.fill(0.0);
        }
        let one = |([at_a, at_b], out): (&[usize; 2], &mut [f32])| {
            let (a, b) = (&a[at_a * left..][..left], &b[at_b * right..][..right]);
            if self.is_small() {
                return self.run_small(a, b, out);
            }
            let a = matrix(a, [self.rows, self.depth], self.first_transposed);
            let b = matrix(b, [self.depth, self.columns], self.transposed);
            let options = GemmOptions {
                alpha: self.scale as f32,
                ..GemmOptions::default()
            };
            let done = match (a, b) {
                (Some(a), Some(b)) => GemmExecutor::<f32>::new()
                    .gemm(
                        out,
                        GemmInputA::Unpacked(a),
                        GemmInputB::Unpacked(b),
                        options,
                    )
                    .is_ok(),
                _ => false,
            };
            assert!(done, "shapes were checked");
        };
        if self.pairs.len() == 1 {
            return self.pairs.iter().zip(out.chunks_mut(result)).for_each(one);
        }
        self.pairs
            .par_iter()
            .zip(out.par_chunks_mut(result))
            .run_parallel(one);
    }
}

/// `data` as a matrix of these sizes, stored transposed if `transposed`; `None` if it is too short.
fn matrix(data: &[f32], [rows, columns]: [usize; 2], transposed: bool) -> Option<Matrix<'_>> {
    let strides = match transposed {
        true => [1, rows],
        false => [columns, 1],
    };
    Matrix::from_data_with_strides([rows, columns], data, strides).ok()
}

/// For each matrix of a broadcast stack of shape `batch`, the numbers of its factors in `a` and
/// `b`.
#[must_use]
pub fn pairs(batch: &[usize], a: &[usize], b: &[usize]) -> Vec<[usize; 2]> {
    let count: usize = batch.iter().product();
    let place = |mut index: usize, own: &[usize]| {
        let (mut at, mut step) = (0, 1);
        for dim in (0..batch.len()).rev() {
            let here = index % batch[dim];
            index /= batch[dim];
            if let Some(own_dim) = (dim + own.len()).checked_sub(batch.len()) {
                if own[own_dim] != 1 {
                    at += here * step;
                }
                step *= own[own_dim];
            }
        }
        at
    };
    (0..count)
        .map(|index| [place(index, a), place(index, b)])
        .collect()
}
