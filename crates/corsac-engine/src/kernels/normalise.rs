//! Softmax and layer norm.

use rten_simd::SimdOp;
use rten_vecmath::{LogSoftmax, Normalize, NormalizeOptions, Softmax, Sum, SumSquareSub};

use super::over::Over;

/// What an element costs, counted in the simplest functions.
const COST: usize = 4;

/// Softmax of each row of `row` elements.
pub fn softmax_rows(over: &Over<'_>, out: &mut [f32], row: usize, log: bool) {
    over.rows(out, row, COST, |row| softmax(row, log));
}

fn softmax(row: &mut [f32], log: bool) {
    if log {
        LogSoftmax::new_mut(row).dispatch();
    } else {
        Softmax::new_mut(row).dispatch();
    }
}

/// Softmax along a dimension of `size` elements that lie `inner` apart.
pub fn softmax_strided(over: &Over<'_>, out: &mut [f32], size: usize, inner: usize, log: bool) {
    if inner == 1 {
        return softmax_rows(over, out, size, log);
    }
    over.rows(out, size * inner, COST, |block| {
        let mut line = vec![0.0; size];
        for at in 0..inner {
            for (to, from) in line.iter_mut().zip(block[at..].iter().step_by(inner)) {
                *to = *from;
            }
            softmax(&mut line, log);
            for (to, from) in block[at..].iter_mut().step_by(inner).zip(&line) {
                *to = *from;
            }
        }
    });
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` for each row of `row` elements.
pub fn layer_norm(
    over: &Over<'_>,
    out: &mut [f32],
    row: usize,
    [weight, bias]: [Option<&[f32]>; 2],
    eps: f32,
) {
    over.rows(out, row, COST, |row| {
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
