//! Recurrent layers: for each time step, the product of the state with a packed weight, and the
//! functions of the gates.

use multiversion::multiversion;
use rayon::prelude::*;

use super::GRAIN;
use super::blocked::linear::{LinearKernel, LinearWeight, workspace_len};
use super::functions::multiply_add::MultiplyAdd;
use crate::aligned_buffer::LINE;
use crate::kernels::linear::Linear;
use crate::parallel::{Parallel, thread_count};
use crate::program::{Cell, Recurrent};

/// Operands of a recurrent layer.
pub(crate) struct Operands<'a> {
    /// Products of the inputs for the gates: a row for each row of a time step, one time step after
    /// the other.
    pub(crate) gates: &'a [f32],
    /// The initial state.
    pub(crate) hidden: &'a [f32],
    /// The cell memory, of cells that have one.
    pub(crate) cells: &'a [f32],
    /// Weight of the projection of results, if there is one.
    pub(crate) projection: Option<&'a [f32]>,
    /// Number of rows of each time step, the most first.
    pub(crate) batch_sizes: &'a [i64],
}

impl Recurrent {
    /// Number of elements of the gates of a row.
    pub(crate) fn gates(&self) -> usize {
        self.cell.gates() * self.hidden
    }

    /// Number of elements of the workspace of a run.
    pub(crate) fn workspace_len(&self) -> usize {
        let [gates, product, projected] = self.parts();
        let state = match self.keeps {
            true => 0,
            false => self.batch * (self.width + self.cells()),
        };
        gates + product + projected + state
    }

    /// Number of elements of the cell memory of a row.
    fn cells(&self) -> usize {
        match self.cell {
            Cell::Lstm => self.hidden,
            Cell::Gru | Cell::Tanh | Cell::Relu => 0,
        }
    }

    fn parts(&self) -> [usize; 3] {
        let product = |sizes: [usize; 2]| {
            let rows = 1..=self.batch;
            let most = rows.map(|rows| workspace_len(rows, sizes)).max();
            most.unwrap_or(0).next_multiple_of(LINE)
        };
        let projected = match self.width == self.hidden {
            true => 0,
            false => self.batch * self.hidden + product([self.width, self.hidden]),
        };
        let gates = (self.batch * self.gates()).next_multiple_of(LINE);
        [gates, product([self.gates(), self.width]), projected]
    }

    /// Whether the numbers of rows of the time steps are valid.
    pub(crate) fn fits(&self, rows: usize, batch_sizes: &[i64]) -> bool {
        let sum = batch_sizes
            .iter()
            .try_fold(0, |sum: i64, &own| sum.checked_add(own));
        batch_sizes.first() == Some(&(self.batch as i64))
            && batch_sizes.iter().all(|&own| own > 0)
            && batch_sizes.is_sorted_by(|a, b| a >= b)
            && sum == Some(rows as i64)
    }

    /// Number of rows of each time step, for padded sequences of these lengths, of which the longest
    /// is first; `None` if the lengths are not sorted or out of range.
    pub(crate) fn sizes(&self, rows: usize, lengths: &[i64]) -> Option<Vec<i64>> {
        let steps = rows / self.batch.max(1);
        let fits = lengths.len() == self.batch
            && lengths.is_sorted_by(|a, b| a >= b)
            && lengths.iter().all(|own| (1..=steps as i64).contains(own));
        let longer = |step: usize| lengths.partition_point(|&own| own > step as i64) as i64;
        fits.then(|| (0..steps).map(longer).collect())
    }

    /// Writes a row for each row of each time step, zeros for padding, and after them the last state
    /// and cell memory, if they are kept. `linear` is the product with the state, packed for as many
    /// rows as the state has.
    pub(crate) fn run(
        &self,
        operands: &Operands<'_>,
        linear: &Linear,
        workspace: &mut [f32],
        out: &mut [f32],
    ) {
        let (hidden, width, gates) = (self.hidden, self.width, self.gates());
        let state_len = self.batch * width;
        let cells_len = operands.cells.len();
        let all = workspace.len() - if self.keeps { 0 } else { state_len + cells_len };
        let (workspace, lost) = workspace.split_at_mut(all);
        let len = operands.gates.len() / gates.max(1) * width;
        let (out, kept) = out.split_at_mut(len);
        let (state, cells) = if self.keeps { kept } else { lost }.split_at_mut(state_len);
        state.copy_from_slice(operands.hidden);
        cells.copy_from_slice(operands.cells);
        let [gates_len, product_len, _] = self.parts();
        let (own, rest) = workspace.split_at_mut(gates_len);
        let (product, rest) = rest.split_at_mut(product_len);
        let projection = operands.projection.map(|data| {
            let sizes = [width, hidden];
            let weight = LinearWeight {
                data,
                sizes,
                by_input: false,
            };
            LinearKernel::new(&weight, None, self.batch)
        });
        let projected_len = projection.as_ref().map_or(0, |_| self.batch * hidden);
        let (narrow, rest) = rest.split_at_mut(projected_len);
        let batch = self.batch;
        let mut step = |rows: usize, start: usize| {
            if self.padded {
                out[(start + rows) * width..(start + batch) * width].fill(0.0);
            }
            if rows == 0 {
                return;
            }
            let own = &mut own[..rows * gates];
            linear.run(&state[..rows * width], product, own, &|_, _| {});
            let given = &operands.gates[start * gates..][..rows * gates];
            match &projection {
                None => self.rows(given, own, cells, &mut state[..rows * hidden]),
                Some(kernel) => {
                    let narrow = &mut narrow[..rows * hidden];
                    self.rows(given, own, cells, narrow);
                    kernel.run(narrow, rest, &mut state[..rows * width], &|_, _| {});
                }
            }
            out[start * width..][..rows * width].copy_from_slice(&state[..rows * width]);
        };
        let rows = |number: &i64| usize::try_from(*number).unwrap_or(0);
        let apart = |rows: usize| if self.padded { batch } else { rows };
        let mut start = 0;
        if self.reverse {
            start = operands.gates.len() / gates.max(1);
            for size in operands.batch_sizes.iter().rev().map(rows) {
                start -= apart(size);
                step(size, start);
            }
        } else {
            for size in operands.batch_sizes.iter().map(rows) {
                step(size, start);
                start += apart(size);
            }
        }
    }

    /// Applies the functions of the gates to rows.
    fn rows(&self, given: &[f32], own: &mut [f32], cells: &mut [f32], state: &mut [f32]) {
        let (hidden, gates) = (self.hidden, self.gates());
        let count = match thread_count() {
            threads if threads > 1 && own.len() >= 2 * GRAIN => {
                (own.len() / gates.max(1)).div_ceil(threads)
            }
            _ => own.len() / gates.max(1),
        };
        let count = count.max(1);
        let rows = state.par_chunks_mut(count * hidden);
        let rows = rows.zip(own.par_chunks_mut(count * gates));
        let rows = rows.zip(given.par_chunks(count * gates));
        match self.cell {
            Cell::Lstm => {
                let cells = cells.par_chunks_mut(count * hidden);
                rows.zip(cells)
                    .run_parallel(|(((state, own), given), cells)| {
                        lstm(hidden, given, own, cells, state);
                    });
            }
            Cell::Gru => rows.run_parallel(|((state, own), given)| gru(hidden, given, own, state)),
            Cell::Tanh => {
                rows.run_parallel(|((state, own), given)| tanh_of_sums(given, own, state))
            }
            Cell::Relu => rows.run_parallel(|((state, own), given)| {
                let sums = state.iter_mut().zip(own).zip(given);
                sums.for_each(|((state, own), given)| *state = relu(*own + given));
            }),
        }
    }
}

fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// The exponential function: with an error of up to two in the last place, and never infinite.
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// Adding it leaves the nearest integer in the lowest bits: 1.5 * 2^23.
    const ROUND: f32 = 12_582_912.0;
    /// The logarithm of 2 as a sum of two numbers, the first with few bits.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    let x = x.clamp(-87.0, 88.0);
    let rounded = x.multiply_add(std::f32::consts::LOG2_E, ROUND);
    let count = rounded - ROUND;
    let rest = count.multiply_add(-LN_2[0], x);
    let rest = count.multiply_add(-LN_2[1], rest);
    // The first terms of the series: the omitted ones are less than 6e-9.
    let mut sum = 1.0 / 5040.0;
    for term in [720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        sum = rest.multiply_add(sum, 1.0 / term);
    }
    sum * f32::from_bits(rounded.to_bits().wrapping_add(127) << 23)
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[inline(always)]
fn tanh(x: f32) -> f32 {
    // Near zero the series, whose omitted terms are less than 1e-7; elsewhere there is no
    // cancellation.
    let square = x * x;
    let mut sum = 62.0 / 2835.0;
    for term in [-17.0 / 315.0, 2.0 / 15.0, -1.0 / 3.0] {
        sum = square.multiply_add(sum, term);
    }
    let near = (x * square).multiply_add(sum, x);
    let far = 1.0 - 2.0 / (1.0 + exp(2.0 * x.abs()));
    if x.abs() < 0.3 { near } else { far.copysign(x) }
}

fn lstm(hidden: usize, given: &[f32], own: &[f32], cells: &mut [f32], state: &mut [f32]) {
    let rows = cells
        .chunks_exact_mut(hidden)
        .zip(state.chunks_exact_mut(hidden));
    let gates = own
        .chunks_exact(4 * hidden)
        .zip(given.chunks_exact(4 * hidden));
    for ((cells, state), (own, given)) in rows.zip(gates) {
        lstm_row(given, own, cells, state);
    }
}

/// Input, forget, cell and output gates. A function of its own, so that the compiler sees that
/// inputs and outputs do not overlap.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn lstm_row(given: &[f32], own: &[f32], cells: &mut [f32], state: &mut [f32]) {
    let len = cells.len();
    let state = &mut state[..len];
    let part = |number: usize| (&own[number * len..][..len], &given[number * len..][..len]);
    let ((input, given_input), (forget, given_forget)) = (part(0), part(1));
    let ((new, given_new), (output, given_output)) = (part(2), part(3));
    for at in 0..len {
        let forgotten = sigmoid(forget[at] + given_forget[at]) * cells[at];
        let added = sigmoid(input[at] + given_input[at]) * tanh(new[at] + given_new[at]);
        let cell = forgotten + added;
        cells[at] = cell;
        state[at] = sigmoid(output[at] + given_output[at]) * tanh(cell);
    }
}

fn gru(hidden: usize, given: &[f32], own: &[f32], state: &mut [f32]) {
    let gates = own
        .chunks_exact(3 * hidden)
        .zip(given.chunks_exact(3 * hidden));
    for (state, (own, given)) in state.chunks_exact_mut(hidden).zip(gates) {
        gru_row(given, own, state);
    }
}

/// Reset, update and new gates.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn gru_row(given: &[f32], own: &[f32], state: &mut [f32]) {
    let len = state.len();
    let part = |number: usize| (&own[number * len..][..len], &given[number * len..][..len]);
    let ((reset, given_reset), (update, given_update), (new, given_new)) =
        (part(0), part(1), part(2));
    for at in 0..len {
        let reset = sigmoid(reset[at] + given_reset[at]);
        let update = sigmoid(update[at] + given_update[at]);
        let new = tanh(reset.multiply_add(new[at], given_new[at]));
        state[at] = (state[at] - new).multiply_add(update, new);
    }
}

#[multiversion(targets("x86_64+avx512f", "x86_64+avx2+fma"))]
fn tanh_of_sums(given: &[f32], own: &[f32], state: &mut [f32]) {
    let sums = own.iter().zip(given);
    for (state, (own, given)) in state.iter_mut().zip(sums) {
        *state = tanh(own + given);
    }
}

#[cfg(test)]
mod tests {
    use super::{exp, sigmoid, tanh};
    use crate::program::{Cell, Recurrent};

    #[test]
    fn lengths_say_how_many_rows_each_time_step_has() {
        let layer = Recurrent {
            cell: Cell::Gru,
            batch: 3,
            hidden: 1,
            width: 1,
            reverse: false,
            bias: false,
            varies: false,
            padded: true,
            keeps: true,
        };
        assert_eq!(layer.sizes(12, &[3, 2, 2]), Some(vec![3, 3, 1, 0]));
        for wrong in [&[2, 3, 1][..], &[3, 2, 0], &[5, 1, 1], &[3, 2]] {
            assert_eq!(layer.sizes(12, wrong), None);
        }
    }

    #[test]
    fn functions_of_gates_are_near_enough() {
        for step in -40_000..=40_000 {
            let x = step as f32 / 1000.0;
            let right = f64::from(x);
            let far =
                |own: f32, right: f64| (f64::from(own) - right).abs() / right.abs().max(1e-30);
            assert!(far(exp(x), right.exp()) < 3e-7, "exp {x}");
            assert!(
                far(sigmoid(x), 1.0 / (1.0 + (-right).exp())) < 4e-7,
                "sigmoid {x}"
            );
            assert!(far(tanh(x), right.tanh()) < 6e-7, "tanh {x}");
        }
        assert!(tanh(f32::NAN).is_nan() && sigmoid(f32::NAN).is_nan());
        assert_eq!(
            [tanh(f32::INFINITY), tanh(-1000.0), tanh(-0.0)],
            [1.0, -1.0, -0.0]
        );
        assert_eq!([sigmoid(f32::INFINITY), sigmoid(1000.0)], [1.0, 1.0]);
        assert!(sigmoid(-1000.0) < 1e-37);
    }
}
