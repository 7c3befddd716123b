//! Linear layers and products of matrices.

use corsac_kernels::double_product::{COLUMNS, Rows};
use rayon::prelude::*;

use super::panel::{DEPTH, Panel, SMALL, Start, divided, multiply};
use crate::kernels::matmul::Product;
use crate::parallel::{Parallel, thread_count};

/// A linear layer with its weight packed in panels.
#[derive(Debug)]
pub(crate) struct DoubleLinear {
    panels: Vec<Panel>,
    bias: Option<Vec<f64>>,
    outputs: usize,
    inputs: usize,
}

impl DoubleLinear {
    /// Packs a weight of `outputs` rows, or, if it is stored `by_input`, of as many columns.
    pub(crate) fn new(
        weight: &[f64],
        [outputs, inputs]: [usize; 2],
        by_input: bool,
        bias: Option<&[f64]>,
    ) -> Self {
        let mut panels = vec![[0.0; COLUMNS]; outputs.div_ceil(COLUMNS) * inputs];
        panels
            .par_chunks_mut(inputs.max(1))
            .enumerate()
            .run_parallel(|(number, panel)| {
                let sizes = [inputs, outputs];
                pack(weight, sizes, !by_input, number * COLUMNS, 0, panel);
            });
        Self {
            panels,
            bias: bias.map(<[f64]>::to_vec),
            outputs,
            inputs,
        }
    }

    /// Writes the results for all rows of `input`.
    pub(crate) fn run(&self, input: &[f64], out: &mut [f64]) {
        if self.outputs == 0 || out.is_empty() {
            return;
        }
        let bias = self.bias.as_deref();
        let work = out.len().saturating_mul(self.inputs);
        let parts = if work < SMALL { 1 } else { thread_count() };
        let mut parts = divided(out, self.outputs, parts);
        let each = parts[0][0].len();
        parts
            .par_iter_mut()
            .enumerate()
            .run_parallel(|(part, out)| {
                let first = part * each;
                let bias = bias.map(|bias| &bias[first..first + out[0].len()]);
                for at in (0..out[0].len()).step_by(COLUMNS) {
                    let width = COLUMNS.min(out[0].len() - at);
                    let number = (first + at) / COLUMNS;
                    let panel = &self.panels[number * self.inputs..][..self.inputs];
                    let mut start = bias.map_or(Start::Zero, Start::Columns);
                    // Once without any inputs, too.
                    for depth in (0..self.inputs.max(1)).step_by(DEPTH) {
                        let rows = Rows {
                            data: input.get(depth..).unwrap_or(&[]),
                            stride: self.inputs,
                            step: 1,
                        };
                        let panel = &panel[depth.min(self.inputs)..self.inputs.min(depth + DEPTH)];
                        multiply(rows, panel, (start, 1.0), out, (at, width));
                        start = Start::Sums;
                    }
                }
            });
    }
}

/// Packs columns from `column` on of a matrix of `[depth, columns]`, stored transposed if `transposed`,
/// from `first` on.
fn pack(
    matrix: &[f64],
    [depth, columns]: [usize; 2],
    transposed: bool,
    column: usize,
    first: usize,
    panel: &mut [Panel],
) {
    let width = COLUMNS.min(columns - column);
    if transposed {
        for j in 0..width {
            let own = &matrix[(column + j) * depth + first..];
            for (to, &x) in panel.iter_mut().zip(own) {
                to[j] = x;
            }
        }
        for to in panel {
            to[width..].fill(0.0);
        }
        return;
    }
    for (k, to) in panel.iter_mut().enumerate() {
        to[..width].copy_from_slice(&matrix[(first + k) * columns + column..][..width]);
        to[width..].fill(0.0);
    }
}

impl Product<'_> {
    /// Writes all products of matrices of double precision to `out`.
    ///
    /// # Panics
    /// If matrices are of other sizes than those of the product.
    pub(crate) fn run_doubles(&self, a: &[f64], b: &[f64], out: &mut [f64]) {
        let (left, right) = (self.rows * self.depth, self.depth * self.columns);
        let result = self.rows * self.columns;
        if result == 0 {
            return;
        }
        let threads = thread_count();
        let one = |([at_a, at_b], out): (&[usize; 2], &mut [f64])| {
            let (a, b) = (&a[at_a * left..][..left], &b[at_b * right..][..right]);
            let alone = self.pairs.len() >= threads || result * self.depth < SMALL;
            let mut parts = divided(out, self.columns, if alone { 1 } else { threads });
            let each = parts[0][0].len();
            let scratch = || vec![[0.0; COLUMNS]; DEPTH.min(self.depth)];
            parts
                .par_iter_mut()
                .enumerate()
                .run_parallel_with(scratch, |panel, (part, out)| {
                    self.columns(a, b, part * each, panel, out);
                });
        };
        self.pairs
            .par_iter()
            .zip(out.par_chunks_mut(result))
            .with_min_len(SMALL.div_ceil((result * self.depth).max(1)))
            .run_parallel(one);
    }

    /// Writes the columns from `first` on of a product.
    fn columns(
        &self,
        a: &[f64],
        b: &[f64],
        first: usize,
        panel: &mut [Panel],
        out: &mut [&mut [f64]],
    ) {
        let [stride, step] = match self.first_transposed {
            true => [1, self.rows],
            false => [self.depth, 1],
        };
        let len = out[0].len();
        for at in (0..len).step_by(COLUMNS) {
            let width = COLUMNS.min(len - at);
            for depth in (0..self.depth.max(1)).step_by(DEPTH) {
                let until = self.depth.min(depth + DEPTH);
                let panel = &mut panel[..until - depth.min(until)];
                pack(
                    b,
                    [self.depth, self.columns],
                    self.transposed,
                    first + at,
                    depth,
                    panel,
                );
                let rows = Rows {
                    data: a.get(depth * step..).unwrap_or(&[]),
                    stride,
                    step,
                };
                let start = if depth == 0 { Start::Zero } else { Start::Sums };
                let scale = if until == self.depth { self.scale } else { 1.0 };
                multiply(rows, panel, (start, scale), out, (at, width));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(len: usize) -> Vec<f64> {
        (0..len).map(|at| (at as f64 * 0.37).sin()).collect()
    }

    fn near(found: &[f64], expected: impl Fn(usize) -> f64) {
        for (at, &x) in found.iter().enumerate() {
            let expected = expected(at);
            assert!((x - expected).abs() < 1e-11, "{at}: {x}, {expected}");
        }
    }

    #[test]
    fn a_layer_is_its_weight_times_each_row() {
        for (rows, inputs, outputs) in [(1, 5, 3), (7, 300, 50), (9, 24, 24), (2, 0, 4)] {
            let (x, w, b) = (
                numbers(rows * inputs),
                numbers(outputs * inputs),
                numbers(outputs),
            );
            let mut transposed = vec![0.0; w.len()];
            for o in 0..outputs {
                for i in 0..inputs {
                    transposed[i * outputs + o] = w[o * inputs + i];
                }
            }
            for (weight, by_input, bias) in [
                (&w, false, Some(&b[..])),
                (&transposed, true, Some(&b[..])),
                (&w, false, None),
            ] {
                let layer = DoubleLinear::new(weight, [outputs, inputs], by_input, bias);
                let mut out = vec![f64::NAN; rows * outputs];
                layer.run(&x, &mut out);
                near(&out, |at| {
                    let (r, o) = (at / outputs, at % outputs);
                    let terms = (0..inputs).map(|i| x[r * inputs + i] * w[o * inputs + i]);
                    terms.sum::<f64>() + bias.map_or(0.0, |bias| bias[o])
                });
            }
        }
    }

    #[test]
    fn products_take_matrices_in_both_orders() {
        let (rows, depth, columns) = (11, 270, 30);
        let (a, b) = (numbers(2 * rows * depth), numbers(depth * columns));
        for first_transposed in [false, true] {
            for transposed in [false, true] {
                let product = Product {
                    rows,
                    depth,
                    columns,
                    first_transposed,
                    transposed,
                    scale: 0.5,
                    pairs: &[[1, 0], [0, 0]],
                };
                let mut out = vec![f64::NAN; 2 * rows * columns];
                product.run_doubles(&a, &b, &mut out);
                near(&out, |at| {
                    let (stack, i, j) = (at / (rows * columns), at / columns % rows, at % columns);
                    let a = &a[(1 - stack) * rows * depth..];
                    let term = |k: usize| {
                        let x = if first_transposed {
                            a[k * rows + i]
                        } else {
                            a[i * depth + k]
                        };
                        let y = if transposed {
                            b[j * depth + k]
                        } else {
                            b[k * columns + j]
                        };
                        x * y
                    };
                    0.5 * (0..depth).map(term).sum::<f64>()
                });
            }
        }
    }
}
