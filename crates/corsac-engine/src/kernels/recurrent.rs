//! Recurrent layers: for each time step, a product of the state with a packed weight, and the functions of the gates.

use rayon::prelude::*;

use super::GRAIN;
use super::blocked::linear::{LinearKernel, LinearWeight, workspace_len};
use super::elementwise::unary_chunk;
use crate::lines::LINE;
use crate::prepare::Linear;
use crate::program::{Cell, Recurrent, Unary};
use crate::spread::Spread;

/// What a run reads.
pub(crate) struct Operands<'a> {
    /// What the gates get of the inputs: a row for each row of a time step, one time step after the other.
    pub(crate) gates: &'a [f32],
    /// The state at the beginning.
    pub(crate) hidden: &'a [f32],
    /// The memory of cells that have one.
    pub(crate) cells: &'a [f32],
    /// What results are multiplied by, if they are.
    pub(crate) projection: Option<&'a [f32]>,
    /// How many rows each time step has, the most first.
    pub(crate) batch_sizes: &'a [i64],
}

impl Recurrent {
    /// How many numbers the gates of a row are.
    pub(crate) fn gates(&self) -> usize {
        self.cell.gates() * self.hidden
    }

    /// How many numbers a run needs besides.
    pub(crate) fn workspace_len(&self) -> usize {
        let [gates, product, projected] = self.parts();
        gates + product + projected
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

    /// Whether the time steps are such as there can be.
    pub(crate) fn fits(&self, rows: usize, batch_sizes: &[i64]) -> bool {
        let sum = batch_sizes.iter().try_fold(0, |sum: i64, &own| sum.checked_add(own));
        batch_sizes.first() == Some(&(self.batch as i64))
            && batch_sizes.iter().all(|&own| own > 0)
            && batch_sizes.is_sorted_by(|a, b| a >= b)
            && sum == Some(rows as i64)
    }

    /// Writes a row for each row of each time step, and behind them the last state, and the last memory of the cells.
    /// `linear` is the product with the state, packed for so many rows as the state has.
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
        let (out, cells) = out.split_at_mut(out.len() - cells_len);
        let (out, state) = out.split_at_mut(out.len() - state_len);
        state.copy_from_slice(operands.hidden);
        cells.copy_from_slice(operands.cells);
        let [gates_len, product_len, _] = self.parts();
        let (own, rest) = workspace.split_at_mut(gates_len);
        let (product, rest) = rest.split_at_mut(product_len);
        let projection = operands.projection.map(|data| {
            let sizes = [width, hidden];
            let weight = LinearWeight { data, sizes, by_input: false };
            LinearKernel::new(&weight, None, self.batch)
        });
        let projected_len = projection.as_ref().map_or(0, |_| self.batch * hidden);
        let (narrow, rest) = rest.split_at_mut(projected_len);
        let mut step = |rows: usize, start: usize| {
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
        let mut start = 0;
        if self.reverse {
            start = operands.gates.len() / gates.max(1);
            for size in operands.batch_sizes.iter().rev().map(rows) {
                start -= size;
                step(size, start);
            }
        } else {
            for size in operands.batch_sizes.iter().map(rows) {
                step(size, start);
                start += size;
            }
        }
    }

    /// The functions of the gates, for rows of them.
    fn rows(&self, given: &[f32], own: &mut [f32], cells: &mut [f32], state: &mut [f32]) {
        let (hidden, gates) = (self.hidden, self.gates());
        if hidden == 0 {
            return;
        }
        let least = GRAIN.div_ceil(gates * 4);
        let rows = state.par_chunks_exact_mut(hidden);
        let rows = rows.zip(own.par_chunks_exact_mut(gates));
        let rows = rows.zip(given.par_chunks_exact(gates));
        match self.cell {
            Cell::Lstm => {
                let rows = rows.zip(cells.par_chunks_exact_mut(hidden));
                rows.with_min_len(least)
                    .spread(|(((state, own), given), cell)| lstm(given, own, cell, state));
            }
            Cell::Gru => rows
                .with_min_len(least)
                .spread(|((state, own), given)| gru(given, own, state)),
            Cell::Tanh | Cell::Relu => {
                let function = match self.cell {
                    Cell::Relu => Unary::Relu,
                    _ => Unary::Tanh,
                };
                rows.with_min_len(least).spread(|((state, own), given)| {
                    add(own, given);
                    state.copy_from_slice(own);
                    unary_chunk(function, state);
                });
            }
        }
    }
}

fn add(to: &mut [f32], other: &[f32]) {
    for (to, other) in to.iter_mut().zip(other) {
        *to += other;
    }
}

/// Gates of input, forgetting, cell and output.
fn lstm(given: &[f32], own: &mut [f32], cell: &mut [f32], state: &mut [f32]) {
    let len = cell.len();
    add(own, given);
    let (input, rest) = own.split_at_mut(2 * len);
    unary_chunk(Unary::Sigmoid, input);
    let (new, output) = rest.split_at_mut(len);
    unary_chunk(Unary::Tanh, new);
    unary_chunk(Unary::Sigmoid, output);
    let (input, forget) = input.split_at(len);
    let gates = input.iter().zip(forget).zip(&*new);
    for ((cell, state), ((input, forget), new)) in cell.iter_mut().zip(&mut *state).zip(gates) {
        *cell = *forget * *cell + *input * *new;
        *state = *cell;
    }
    unary_chunk(Unary::Tanh, state);
    for (state, output) in state.iter_mut().zip(&*output) {
        *state *= *output;
    }
}

/// Gates of resetting, updating and what is new.
fn gru(given: &[f32], own: &mut [f32], state: &mut [f32]) {
    let len = state.len();
    let (gates, new) = own.split_at_mut(2 * len);
    let (given, given_new) = given.split_at(2 * len);
    add(gates, given);
    unary_chunk(Unary::Sigmoid, gates);
    let (reset, update) = gates.split_at(len);
    for ((new, reset), given) in new.iter_mut().zip(reset).zip(given_new) {
        *new = *given + *reset * *new;
    }
    unary_chunk(Unary::Tanh, new);
    for ((state, new), update) in state.iter_mut().zip(&*new).zip(update) {
        *state = (*state - *new) * *update + *new;
    }
}
