//! Convolutions and linear layers over bytes, with weights of integers.
//!
//! Numbers are rounded to bytes with a scale and a zero point; sums of products are 32-bit integers,
//! which one multiplication makes numbers of again. Weights are centred: their zero points are
//! subtracted when they are packed.

pub mod conv;
pub mod levels;
pub mod linear;
#[cfg(test)]
mod tests;
mod weight;
pub mod weight_only;

use corsac_kernels::int8::{Epilogue, quantise};
use corsac_kernels::int8_unit::{
    self, COLUMNS, Int8Unit, MAX_PRODUCTS, QUAD, RowSums, Sums, column_sums,
};
use rayon::prelude::*;

use crate::aligned_buffer::AlignedBuffer;
use crate::kernels::elementwise;
use crate::parallel::Parallel;
use crate::program::{Levels, Unary};

pub(crate) use weight::QuantisedWeight;

/// Weights of outputs, packed for the unit, with what makes numbers of sums.
#[derive(Debug)]
struct Panels {
    unit: Int8Unit,
    /// For each 32 outputs, bytes.
    weights: AlignedBuffer,
    /// Bytes of the weights of a panel.
    len: usize,
    columns: Vec<Columns>,
}

/// The bytes of rows that are multiplied.
#[derive(Clone, Copy, Debug)]
struct RowBytes {
    /// The number between neighbouring bytes.
    scale: f32,
    /// The byte that stands for zero.
    zero_point: i32,
    /// No byte is larger.
    largest: u8,
}

impl RowBytes {
    fn of(levels: Levels, scale: f32) -> Self {
        let own = levels.as_bytes();
        let largest = own.bounds[1].max(own.zero).max(own.of_nan);
        Self {
            scale,
            zero_point: levels.byte_zero(),
            largest: largest as u8,
        }
    }
}

/// Facts about the columns of a panel.
#[derive(Debug)]
struct Columns {
    /// The scale of the products of a column.
    scales: [f32; COLUMNS],
    biases: [f32; COLUMNS],
    /// The sums of the weights of each column.
    sums: Sums,
    /// The beginning of sums: the zero point of the rows times the sums of the weights, negated.
    initial: Sums,
}

/// A panel of 32 outputs.
struct Panel<'a> {
    weights: &'a [i8],
    /// The weights of the next panel.
    ahead: &'a [i8],
    columns: &'a Columns,
}

impl Panels {
    /// Packs a weight of `outputs` outputs, each with a row of taps of a number of inputs;
    /// `at(tap, input)` is the place of one in its row, if it is there. `rows` are those that
    /// are multiplied. `None` if the weight has integers that bytes do not hold, or too many for sums.
    fn new(
        weight: &QuantisedWeight<'_>,
        [outputs, taps, inputs]: [usize; 3],
        at: impl Fn(usize, usize) -> Option<usize> + Sync,
        rows: RowBytes,
        bias: Option<&[f32]>,
    ) -> Option<Self> {
        let depth = inputs.next_multiple_of(QUAD);
        let products = taps * depth;
        if !weight.is_by_output() || products > MAX_PRODUCTS || products == 0 || outputs == 0 {
            return None;
        }
        let integers = weight.centred(outputs)?;
        let row = integers.len() / outputs;
        let (len, panels) = (taps * depth * COLUMNS, outputs.div_ceil(COLUMNS));
        let mut weights = AlignedBuffer::zeros(space(panels * len));
        let bytes: &mut [i8] = bytemuck::cast_slice_mut(&mut weights);
        bytes[..panels * len]
            .par_chunks_exact_mut(depth * COLUMNS)
            .enumerate()
            .with_min_len(crate::kernels::GRAIN.div_ceil(depth * COLUMNS))
            .run_parallel(|(number, packed)| {
                let (panel, tap) = (number / taps, number % taps);
                int8_unit::pack(packed, |column, input| {
                    let output = panel * COLUMNS + column;
                    let place = at(tap, input).filter(|_| output < outputs && input < inputs);
                    place.map_or(0, |place| integers[output * row + place])
                });
            });
        Some(Self::of(
            weights,
            [outputs, len],
            weight,
            rows,
            bias,
            column_sums,
        ))
    }

    /// Packs a weight with one input for each output, and a number of taps.
    fn depthwise(
        weight: &QuantisedWeight<'_>,
        [outputs, taps]: [usize; 2],
        rows: RowBytes,
        bias: Option<&[f32]>,
    ) -> Option<Self> {
        if !weight.is_by_output() || taps > MAX_PRODUCTS || taps == 0 || outputs == 0 {
            return None;
        }
        let integers = weight.centred(outputs)?;
        let (len, panels) = (taps * COLUMNS, outputs.div_ceil(COLUMNS));
        let mut weights = AlignedBuffer::zeros(space(panels * len));
        let bytes: &mut [i8] = bytemuck::cast_slice_mut(&mut weights);
        for (panel, packed) in bytes.chunks_exact_mut(len).enumerate() {
            for (at, byte) in packed.iter_mut().enumerate() {
                let output = panel * COLUMNS + at % COLUMNS;
                if output < outputs {
                    *byte = integers[output * taps + at / COLUMNS];
                }
            }
        }
        let sums = |panel: &[i8]| {
            let mut sums = [0; COLUMNS];
            for row in panel.chunks_exact(COLUMNS) {
                sums.iter_mut()
                    .zip(row)
                    .for_each(|(sum, &own)| *sum += i32::from(own));
            }
            sums
        };
        Some(Self::of(weights, [outputs, len], weight, rows, bias, sums))
    }

    /// Panels of `len` bytes, for these rows; `sums` adds up the weights of each
    /// column.
    fn of(
        weights: AlignedBuffer,
        [outputs, len]: [usize; 2],
        weight: &QuantisedWeight<'_>,
        rows: RowBytes,
        bias: Option<&[f32]>,
        sums: impl Fn(&[i8]) -> Sums,
    ) -> Self {
        let bytes: &[i8] = bytemuck::cast_slice(&weights);
        let columns = (0..outputs.div_ceil(COLUMNS)).map(|panel| {
            let of = |column: usize| Some(panel * COLUMNS + column).filter(|&own| own < outputs);
            let number = |value: &dyn Fn(usize) -> f32| {
                std::array::from_fn(|column| of(column).map_or(0.0, value))
            };
            let sums = sums(&bytes[panel * len..][..len]);
            Columns {
                scales: number(&|output| weight.scale_of(output) * rows.scale),
                biases: number(&|output| bias.map_or(0.0, |bias| bias[output])),
                sums,
                initial: sums.map(|sum| rows.zero_point.wrapping_mul(sum).wrapping_neg()),
            }
        });
        Self {
            unit: Int8Unit::detect_for(rows.largest, bytes),
            columns: columns.collect(),
            weights,
            len,
        }
    }

    /// Parameters that make numbers of the sums of a panel.
    fn epilogue(&self, panel: usize) -> Epilogue<'_> {
        let Columns { scales, biases, .. } = &self.columns[panel];
        Epilogue {
            scales,
            biases,
            rows: None,
            residual: None,
            bounds: ALL,
        }
    }

    fn panel(&self, number: usize) -> Panel<'_> {
        let all: &[i8] = bytemuck::cast_slice(&self.weights);
        let (own, rest) = all[number * self.len..].split_at(self.len);
        Panel {
            weights: own,
            ahead: &rest[..rest.len().min(self.len)],
            columns: &self.columns[number],
        }
    }
}

/// Writes the levels of numbers as unsigned bytes, to which signed ones are moved.
fn level_bytes(from: &[f32], levels: Levels, to: &mut [u8]) {
    quantise(from, &levels.quantisation(), to);
    if levels.are_signed() {
        unsigned(to);
    }
}

/// Moves signed bytes by 128, to unsigned ones.
fn unsigned(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte ^= 128);
}

/// All numbers.
const ALL: [f32; 2] = [f32::NEG_INFINITY, f32::INFINITY];
/// Most rows of sums that are made bytes at a time.
const TOGETHER: usize = 128;

/// Operations on numbers before they are bytes.
#[derive(Clone, Copy, Debug)]
pub struct Finish<'a> {
    /// Functions of each number.
    pub functions: &'a [Unary],
    /// The levels of results.
    pub levels: Levels,
}

impl Finish<'_> {
    /// Writes the bytes of the first `columns` columns of a product, whose sums begin with `initial`;
    /// rows of `to` begin `stride` bytes apart.
    fn bytes(
        &self,
        epilogue: Epilogue<'_>,
        (product, initial): (&impl RowSums, &Sums),
        columns: usize,
        to: &mut [u8],
        stride: usize,
    ) {
        let bounds = match *self.functions {
            [] => Some(ALL),
            [Unary::Relu] => Some([0.0, f32::INFINITY]),
            [Unary::Clamp(low, high)] => Some([low as f32, high as f32]),
            _ => None,
        };
        let quantisation = self.levels.as_bytes().quantisation();
        if let Some(bounds) = bounds {
            let epilogue = Epilogue { bounds, ..epilogue };
            epilogue.multiply_to_bytes(product, initial, columns, &quantisation, to, stride);
            return;
        }
        let mut numbers = [0.0; TOGETHER * COLUMNS];
        let numbers = &mut numbers[..product.rows() * columns];
        epilogue.multiply_to_floats(product, initial, columns, numbers, columns);
        for &function in self.functions {
            elementwise::unary_chunk(function, numbers);
        }
        for (row, to) in numbers.chunks_exact(columns).zip(to.chunks_mut(stride)) {
            quantise(row, &quantisation, &mut to[..columns]);
        }
    }
}

/// Number of single-precision elements that take as much memory as `len` bytes.
const fn space(len: usize) -> usize {
    len.div_ceil(size_of::<f32>())
}
