//! Softmax and layer norm.

use rayon::prelude::*;
use rten_simd::SimdOp;
use rten_vecmath::{LogSoftmax, Normalize, NormalizeOptions, Softmax, Sum, SumSquareSub};

use super::GRAIN;

/// Softmax of each row of `row` elements.
pub fn softmax_rows(data: &mut [f32], row: usize, log: bool) {
    if row == 0 {
        return;
    }
    data.par_chunks_mut(row)
        .with_min_len(GRAIN.div_ceil(4 * row))
        .for_each(|row| {
            if log {
                LogSoftmax::new_mut(row).dispatch();
            } else {
                Softmax::new_mut(row).dispatch();
            }
        });
}

/// Softmax along a dimension of `size` elements that lie `inner` apart.
pub fn softmax_strided(data: &mut [f32], size: usize, inner: usize, log: bool) {
    if data.is_empty() {
        return;
    }
    if inner == 1 {
        return softmax_rows(data, size, log);
    }
    let mut line = vec![0.0; size];
    for block in data.chunks_mut(size * inner) {
        for at in 0..inner {
            for (to, from) in line.iter_mut().zip(block[at..].iter().step_by(inner)) {
                *to = *from;
            }
            softmax_rows(&mut line, size, log);
            for (to, from) in block[at..].iter_mut().step_by(inner).zip(&line) {
                *to = *from;
            }
        }
    }
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` for each row of `row` elements.
pub fn layer_norm(
    data: &mut [f32],
    row: usize,
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    eps: f32,
) {
    if row == 0 {
        return;
    }
    data.par_chunks_mut(row)
        .with_min_len(GRAIN.div_ceil(4 * row))
        .for_each(|row| {
            let len = row.len() as f32;
            let mean = Sum::new(row).dispatch() / len;
            let variance = SumSquareSub::new(row, mean).dispatch() / len;
            let options = NormalizeOptions {
                pre_scale_bias: mean,
                scale: 1.0 / (variance + eps).sqrt(),
                element_scale: weight,
                bias: 0.0,
                element_bias: bias,
            };
            Normalize::new_mut(row, options).dispatch();
        });
}
