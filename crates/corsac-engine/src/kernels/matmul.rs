//! Products of matrices.

use rayon::prelude::*;
use rten_gemm::{BiasVector, GemmExecutor, GemmInputA, GemmInputB, GemmOptions, PackedBMatrix};
use rten_tensor::Matrix;

/// `x @ weight.T + bias` with the weight packed.
pub struct LinearKernel {
    /// `None` for one without elements.
    weight: Option<PackedBMatrix<f32>>,
    bias: Option<Vec<f32>>,
    features: [usize; 2],
}

impl std::fmt::Debug for LinearKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinearKernel")
            .field("features", &self.features)
            .finish_non_exhaustive()
    }
}

impl LinearKernel {
    /// Packs `weight`, of shape `[outputs, inputs]`.
    #[must_use]
    pub fn new(weight: &[f32], [outputs, inputs]: [usize; 2], bias: Option<&[f32]>) -> Self {
        let gemm = GemmExecutor::new();
        let pack = || gemm.prepack_b(Matrix::from_data([outputs, inputs], weight).transposed());
        Self {
            weight: (!weight.is_empty()).then(pack),
            bias: bias.map(<[f32]>::to_vec),
            features: [outputs, inputs],
        }
    }

    /// Writes a row of outputs for each row of `input`.
    pub fn run(&self, input: &[f32], out: &mut [f32]) {
        let [outputs, inputs] = self.features;
        if outputs == 0 || out.is_empty() {
            return;
        }
        let rows = out.len() / outputs;
        let Some(weight) = &self.weight else {
            match &self.bias {
                Some(bias) => out
                    .chunks_mut(outputs)
                    .for_each(|row| row.copy_from_slice(bias)),
                None => out.fill(0.0),
            }
            return;
        };
        let options = GemmOptions {
            bias: self.bias.as_deref().map(BiasVector::Row),
            ..GemmOptions::default()
        };
        let input = GemmInputA::Unpacked(Matrix::from_data([rows, inputs], input));
        let done = GemmExecutor::<f32>::new().gemm(out, input, GemmInputB::Packed(weight), options);
        debug_assert!(done.is_ok(), "shapes were checked: {done:?}");
    }
}

/// Sizes of a product of stacks of matrices: `[rows, depth]` times `[depth, columns]`.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a> {
    /// Rows of a result.
    pub rows: usize,
    /// Columns of the first matrix, rows of the second.
    pub depth: usize,
    /// Columns of a result.
    pub columns: usize,
    /// Whether the second matrix is stored as `[columns, depth]`.
    pub transposed: bool,
    /// What results are multiplied by.
    pub scale: f32,
    /// For each result, which matrices are multiplied.
    pub pairs: &'a [[usize; 2]],
}

impl Product<'_> {
    /// Writes all products to `out`.
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
            let a = Matrix::from_data([self.rows, self.depth], &a[at_a * left..][..left]);
            let strides = match self.transposed {
                true => [1, self.depth],
                false => [self.columns, 1],
            };
            let b = Matrix::from_data_with_strides(
                [self.depth, self.columns],
                &b[at_b * right..][..right],
                strides,
            );
            let options = GemmOptions {
                alpha: self.scale,
                ..GemmOptions::default()
            };
            let done = b.map(|b| {
                GemmExecutor::<f32>::new().gemm(
                    out,
                    GemmInputA::Unpacked(a),
                    GemmInputB::Unpacked(b),
                    options,
                )
            });
            debug_assert!(matches!(done, Ok(Ok(()))), "shapes were checked");
        };
        if self.pairs.len() == 1 {
            return self.pairs.iter().zip(out.chunks_mut(result)).for_each(one);
        }
        self.pairs
            .par_iter()
            .zip(out.par_chunks_mut(result))
            .for_each(one);
    }
}

/// For each matrix of a broadcast stack of shape `batch`, which of `a` and `b` make it.
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
