//! Execution of a step: the kernel for each operator and element type.

use smallvec::SmallVec;

use super::{Executable, Observe, Values};
use crate::data::{Data, DataMut, Stored};
use crate::error::RunError;
use crate::kernels::blocked::{self, reorder};
use crate::kernels::elementwise::generic::{self, Paired};
use crate::kernels::elementwise::{self, Operand};
use crate::kernels::pool::Averages;
use crate::kernels::reduce::{self, Reduced};
use crate::kernels::resample::resample;
use crate::kernels::result_tiles::ResultTiles;
use crate::kernels::{
    ApplyEpilogue, attention, indexing, int8, layout, margins, normalise, pool, round_rows,
    softmax, sort,
};
use crate::program::arithmetic::{of_32_bits, wrapped};
use crate::program::float_to_int;
use crate::program::{Binary, Epilogue, Layout, Op, Program, Reduction, Step, Unary, ValueId};

/// Numbers that epilogues are applied to at a time, 8 KB.
const EPILOGUE: usize = 2048;

/// A step of a run, with the values that it reads.
pub(super) struct StepRun<'a> {
    pub(super) executable: &'a Executable,
    /// Position of the step.
    pub(super) at: usize,
    pub(super) step: &'a Step,
    pub(super) values: &'a Values<'a>,
}

/// Runs a kernel over elements of one type: those of the first input, and of the result.
macro_rules! of_one_type {
    ($run:ident, $out:ident, |$x:ident| $kernel:expr) => {
        match ($run.data(0)?, $out) {
            (Data::F32($x), DataMut::F32($out)) => $kernel,
            (Data::F64($x), DataMut::F64($out)) => $kernel,
            (Data::I64($x), DataMut::I64($out)) => $kernel,
            (Data::Bool($x), DataMut::Bool($out)) => $kernel,
            _ => return Err($run.mismatch()),
        }
    };
}

/// Runs a kernel for the type of elements, which are [`Data`] or [`DataMut`].
macro_rules! by_type {
    ($all:ident: $elements:expr, |$own:ident| $kernel:expr) => {
        match $elements {
            $all::F32($own) => $kernel,
            $all::F64($own) => $kernel,
            $all::I64($own) => $kernel,
            $all::Bool($own) => $kernel,
        }
    };
}

impl<'a> StepRun<'a> {
    /// Runs the step. It writes to `out`, where its first input is if it works in place.
    pub(super) fn run(
        &self,
        workspace: &mut [f32],
        out: DataMut<'_>,
        observe: Option<Observe<'_>>,
    ) -> Result<(), RunError> {
        let shape = self.program().shape(self.step.output);
        if matches!(out, DataMut::F64(_)) && self.step.op.is_of_floats() {
            return self.doubles(out);
        }
        match &self.step.op {
            Op::Conv(conv) | Op::ChannelScaledConv(conv) => self.with_epilogues(|epilogue| {
                self.convolution(conv, workspace, self.result(out)?, epilogue)
            })?,
            Op::Linear => {
                self.with_epilogues(|epilogue| self.linear(workspace, self.result(out)?, epilogue))?
            }
            Op::QuantisedLinear(_) | Op::QuantisedConv(..) => self.quantised(workspace, out)?,
            Op::ToLevels(levels) => {
                let (from, to) = (self.get(0)?, self.result(out)?);
                match self.reordered(self.step.output, self.step.inputs[0]) {
                    Some((image, in_blocks)) => {
                        int8::levels::to_pixels(from, in_blocks, image, *levels, to);
                    }
                    None => int8::levels::to_bytes(from, *levels, to),
                }
            }
            Op::MapLevels(table) => int8::levels::map(table, self.get(0)?, self.result(out)?),
            Op::AddLevels(add) => {
                int8::levels::add(add, [self.get(0)?, self.get(1)?], self.result(out)?);
            }
            Op::FromLevels(zero, scale) => {
                let (from, to, levels) = (self.get(0)?, self.result(out)?, (*zero, *scale));
                match self.reordered(self.step.inputs[0], self.step.output) {
                    Some((image, in_blocks)) => {
                        int8::levels::from_pixels(from, in_blocks, image, levels, to);
                    }
                    None => int8::levels::from_bytes(from, levels, to),
                }
            }
            Op::MatMul { .. } => {
                let out = self.result(out)?;
                self.product()?.run(self.get(0)?, self.get(1)?, out);
                self.finish(out)?;
            }
            Op::Attention(attention) => self.attention(attention, self.result(out)?)?,
            Op::Recurrent(recurrent) => self.recurrent(recurrent, workspace, self.result(out)?)?,
            Op::Fused(fused) => self.fused(fused, workspace, out)?,
            Op::BatchTiling(tiling) => {
                self.batch_tiling(tiling.count, workspace, self.result(out)?, observe)?;
            }
            Op::ConvNd(conv) => {
                let bias: Option<&[f32]> = self.optional(2)?;
                conv.run(self.get(0)?, self.get(1)?, bias, self.result(out)?);
            }
            Op::ChannelAffine => {
                let plane = shape[2..].iter().product();
                let channel_affine = match self.is_in_blocks() {
                    true => blocked::affine::channel_affine,
                    false => elementwise::channel_affine,
                };
                let (out, factors, offsets) = (self.result(out)?, self.get(1)?, self.get(2)?);
                self.with_tiles(|tiles| channel_affine(tiles, out, factors, offsets, plane))?;
            }
            Op::LayerNorm {
                dims,
                eps,
                weight,
                bias,
            } => {
                let row = shape[shape.len() - dims..].iter().product();
                let affine = self.affine(*weight, *bias)?;
                let out = self.result(out)?;
                self.with_tiles(|tiles| {
                    normalise::layer_norm(tiles, out, row, affine, *eps as f32)
                })?;
            }
            // Run with memory of its own.
            Op::Control(_) => return Err(self.mismatch()),
            // Folded into weights, or made a `ChannelAffine`, when the program is optimised.
            Op::BatchNorm { .. } => return Err(self.mismatch()),
            Op::Softmax { dim, log } => {
                let inner = shape[dim + 1..].iter().product();
                let (out, size) = (self.result(out)?, shape[*dim]);
                self.with_tiles(|tiles| softmax::softmax_strided(tiles, out, size, inner, *log))?;
            }
            Op::SafeSoftmax => {
                let (out, [_, columns]) = (self.copied(out)?, self.image(0)?);
                attention::safe_softmax(out, columns);
            }
            Op::RoundRows(bounds) => {
                let width = shape.last().copied().unwrap_or(1);
                round_rows::round_rows(self.get(0)?, width, *bounds, self.result(out)?);
            }
            Op::Causal => {
                let (out, [rows, columns]) = (self.copied(out)?, self.image(0)?);
                attention::causal(out, rows, columns);
            }
            Op::Unary(function) => {
                let out = self.result(out)?;
                self.with_tiles(|tiles| elementwise::unary(tiles, *function, out))?;
            }
            Op::Binary(function) => {
                let out = self.result(out)?;
                self.binary(*function, out)?;
                self.finish(out)?;
            }
            Op::Ternary(function) => {
                let operands = [self.operand(0)?, self.operand(1)?, self.operand(2)?];
                let out: &mut [f32] = self.result(out)?;
                elementwise::ternary(*function, operands, shape, out);
            }
            Op::MaxPool(pool) if let Some(image) = self.pixels(self.step.output) => {
                let from = self
                    .pixels(self.step.inputs[0])
                    .ok_or_else(|| self.mismatch())?;
                int8::levels::max_pool(self.get(0)?, pool, from, image, self.result(out)?);
            }
            Op::MaxPool(pool) => {
                let max_pool = match self.is_in_blocks() {
                    true => blocked::pool::max_pool,
                    false => pool::max_pool,
                };
                let (image, result) = (self.image(0)?, self.result(out)?);
                max_pool(self.get(0)?, image, pool, last_two(shape), result);
            }
            Op::AvgPool {
                pool,
                count_padding,
                divisor,
            } => {
                let averages = Averages {
                    pool,
                    count_padding: *count_padding,
                    divisor: *divisor,
                };
                let avg_pool = match self.is_in_blocks() {
                    true => blocked::pool::avg_pool,
                    false => pool::avg_pool,
                };
                let (image, result) = (self.image(0)?, self.result(out)?);
                avg_pool(self.get(0)?, image, &averages, last_two(shape), result);
            }
            Op::AdaptiveAvgPool => {
                let adaptive_avg_pool = match self.is_in_blocks() {
                    true => blocked::pool::adaptive_avg_pool,
                    false => pool::adaptive_avg_pool,
                };
                let out = self.result(out)?;
                adaptive_avg_pool(self.get(0)?, self.image(0)?, last_two(shape), out);
                self.finish(out)?;
            }
            Op::Resample { dim, taps } => {
                let [size, inner] = self.along(*dim);
                resample::<f32>(self.get(0)?, size, inner, taps, self.result(out)?);
            }
            Op::ToBlocks(order) => {
                let plane = shape[2] * shape[3];
                reorder::to_blocks(self.get(0)?, *order, shape[1], plane, self.result(out)?);
            }
            Op::FromBlocks(order) => {
                let image = self.shape(0);
                let plane = image[2] * image[3];
                reorder::from_blocks(self.get(0)?, *order, image[1], plane, self.result(out)?);
            }
            Op::Arrange { rows, columns } => {
                let plane = self.image(0)?.iter().product();
                layout::arrange(self.get(0)?, plane, rows, columns, self.result(out)?);
            }
            Op::Copy { offset, strides } => {
                of_one_type!(self, out, |x| layout::copy(x, *offset, strides, shape, out));
            }
            Op::Concat { dim } => by_type!(DataMut: out, |out| self.concat(*dim, out)?),
            Op::Pad { widths, value } => {
                let shape = self.shape(0);
                of_one_type!(self, out, |x| {
                    layout::pad(x, shape, widths, Stored::number(*value), out);
                });
            }
            Op::Fill(number) => by_type!(DataMut: out, |out| out.fill(Stored::number(*number))),
            Op::Range { start, step } => match out {
                DataMut::F32(out) => out.iter_mut().enumerate().for_each(|(at, out)| {
                    *out = (start.float() + at as f64 * step.float()) as f32;
                }),
                DataMut::F64(out) => out.iter_mut().enumerate().for_each(|(at, out)| {
                    *out = start.float() + at as f64 * step.float();
                }),
                DataMut::I64(out) => out.iter_mut().zip(0..).for_each(|(out, at)| {
                    *out = start.int().wrapping_add(step.int().wrapping_mul(at));
                }),
                DataMut::Bool(_) => return Err(self.mismatch()),
            },
            Op::Cast => match (self.data(0)?, out) {
                (Data::F32(x), DataMut::I64(out)) => generic::to_integers(x, out),
                (Data::F32(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x != 0.0)),
                (Data::F64(x), DataMut::I64(out)) => generic::map(x, out, float_to_int),
                (Data::F64(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x != 0.0)),
                (Data::F64(x), DataMut::F32(out)) => generic::map(x, out, |x| x as f32),
                (Data::F32(x), DataMut::F64(out)) => generic::map(x, out, f64::from),
                (Data::I64(x), DataMut::F64(out)) => generic::map(x, out, |x| x as f64),
                (Data::Bool(x), DataMut::F64(out)) => generic::map(x, out, f64::from),
                (Data::I64(x), DataMut::F32(out)) => generic::map(x, out, |x| x as f32),
                (Data::I64(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x != 0)),
                (Data::Bool(x), DataMut::F32(out)) => generic::map(x, out, f32::from),
                (Data::Bool(x), DataMut::I64(out)) => generic::map(x, out, i64::from),
                (x, mut out) => out.copy_from(x).ok_or_else(|| self.mismatch())?,
            },
            Op::Wrap { bits, signed } => match (self.data(0)?, self.result(out)?) {
                (Data::I64(x), out) => generic::map(x, out, |x| wrapped(x, *bits, *signed)),
                (Data::F32(x), out) => {
                    generic::map(x, out, |x| wrapped(of_32_bits(x.into()), *bits, *signed));
                }
                (Data::F64(x), out) => {
                    generic::map(x, out, |x| wrapped(of_32_bits(x), *bits, *signed));
                }
                _ => return Err(self.mismatch()),
            },
            Op::Not => match (self.data(0)?, out) {
                (Data::F32(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x == 0.0)),
                (Data::F64(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x == 0.0)),
                (Data::I64(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x == 0)),
                (Data::Bool(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x == 0)),
                (Data::I64(x), DataMut::I64(out)) => generic::map(x, out, |x| !x),
                _ => return Err(self.mismatch()),
            },
            Op::Compare(comparison) => {
                let out = self.result(out)?;
                by_type!(Data: self.data(0)?, |a| {
                    let a = Operand { data: a, shape: self.shape(0) };
                    generic::compare(*comparison, a, self.operand(1)?, shape, out);
                });
            }
            Op::Arithmetic(function) => {
                if function.divides()
                    && let Data::I64(b) = self.data(1)?
                    && !out.is_empty()
                    && b.contains(&0)
                {
                    return Err(RunError::DivisionByZero);
                }
                of_one_type!(self, out, |a| {
                    let a = Operand {
                        data: a,
                        shape: self.shape(0),
                    };
                    Paired::arithmetic(*function, a, self.operand(1)?, shape, out);
                });
            }
            Op::Where => by_type!(DataMut: out, |out| {
                let condition = self.operand(0)?;
                generic::choose(condition, self.operand(1)?, self.operand(2)?, shape, out);
            }),
            Op::Reduce { reduction, dims } => {
                let shape = self.shape(0);
                let done = of_one_type!(self, out, |x| {
                    Reduced::reduce(*reduction, x, shape, dims, out)
                });
                done.ok_or_else(|| self.mismatch())?;
            }
            Op::Scan { dim, product } => {
                let [size, inner] = self.along(*dim);
                match (self.data(0)?, out) {
                    // In double precision, as PyTorch does.
                    (Data::F32(x), DataMut::F32(out)) => {
                        let zero = f64::from(u8::from(*product));
                        let f = |a: f64, x: f32| match product {
                            true => a * f64::from(x),
                            false => a + f64::from(x),
                        };
                        reduce::scan(x, size, inner, zero, f, |a| a as f32, out);
                    }
                    (Data::F64(x), DataMut::F64(out)) => {
                        let f = |a: f64, x: f64| if *product { a * x } else { a + x };
                        let zero = f64::from(u8::from(*product));
                        reduce::scan(x, size, inner, zero, f, |a| a, out);
                    }
                    (Data::I64(x), DataMut::I64(out)) => {
                        let f = |a: i64, x: i64| match product {
                            true => a.wrapping_mul(x),
                            false => a.wrapping_add(x),
                        };
                        reduce::scan(x, size, inner, i64::from(*product), f, |a| a, out);
                    }
                    _ => return Err(self.mismatch()),
                }
            }
            Op::Sort { dim, descending } => {
                let (sizes, out) = (self.along(*dim), self.result(out)?);
                by_type!(Data: self.data(0)?, |x| {
                    sort::sort(x, sizes, *descending, shape[*dim], out);
                });
            }
            Op::ArgMaxPool(own) => {
                let (image, result) = (self.image(0)?, self.result(out)?);
                match self.data(0)? {
                    Data::F32(x) => pool::places_of_largest(x, image, own, last_two(shape), result),
                    Data::F64(x) => pool::places_of_largest(x, image, own, last_two(shape), result),
                    _ => return Err(self.mismatch()),
                }
            }
            Op::ArgReduce { dim, largest } => {
                let (sizes, out) = (self.along(*dim), self.result(out)?);
                let in_rows = sizes[0] > 0 && sizes[1] == 1;
                let reduction = match largest {
                    true => Reduction::Max,
                    false => Reduction::Min,
                };
                match self.data(0)? {
                    Data::F32(x) if in_rows => reduce::places(reduction, x, sizes[0], out),
                    Data::F64(x) if in_rows => reduce::places(reduction, x, sizes[0], out),
                    x => by_type!(Data: x, |x| sort::arg_reduce(x, sizes, *largest, out)),
                }
            }
            Op::IndexSelect { dim, wraps } => {
                let ([size, inner], indices) = (self.along(*dim), self.get(1)?);
                let done = of_one_type!(self, out, |x| {
                    indexing::index_select(x, size, inner, indices, *wraps, out)
                });
                done.map_err(|index| RunError::Index { index, size })?;
            }
            Op::Gather { dim, wraps } => {
                let shape = self.shape(0);
                let indices = (self.get(1)?, self.shape(1), *wraps);
                let done = of_one_type!(self, out, |x| {
                    indexing::gather(x, shape, *dim, indices, out)
                });
                let size = shape[*dim];
                done.map_err(|index| RunError::Index { index, size })?;
            }
            Op::Scatter { dim, combination } => {
                let (shape, indices) = (self.shape(0), (self.get(1)?, self.shape(1)));
                // In place nothing may be written before an error: PyTorch runs the call again, on
                // the memory of the input.
                let may_end = !self.is_in_place();
                let done = by_type!(DataMut: self.begun(out)?, |out| {
                    let source = (self.get(2)?, self.shape(2));
                    indexing::scatter(shape, *dim, indices, source, (out, may_end), *combination)
                });
                let size = shape[*dim];
                done.map_err(|index| RunError::Index { index, size })?;
            }
            Op::IndexPut(put) => {
                let indices = (2..self.step.inputs.len()).map(|at| self.get(at));
                let indices: SmallVec<[&[i64]; 4]> = indices.collect::<Result<_, _>>()?;
                let done = by_type!(DataMut: self.begun(out)?, |out| {
                    put.run(&indices, self.get(1)?, out)
                });
                done.map_err(|(index, size)| RunError::Index { index, size })?;
            }
            Op::LabelMargins => {
                let [_, size] = self.image(0)?;
                let done = margins::of_labels(self.get(0)?, self.get(1)?, size, self.result(out)?);
                done.map_err(|index| RunError::Index { index, size })?;
            }
        }
        Ok(())
    }

    /// The error for operands, or a result, of types that the step does not support.
    pub(super) fn mismatch(&self) -> RunError {
        RunError::Mismatch {
            step: self.step.op.name(),
        }
    }

    pub(super) fn program(&self) -> &'a Program {
        &self.executable.program
    }

    pub(super) fn is_in_place(&self) -> bool {
        self.executable.plan.is_in_place(self.at)
    }

    fn layout(&self, value: ValueId) -> Layout {
        let program = self.program();
        program.value(program.root(value)).layout
    }

    /// Channels, rows and columns of an image of bytes.
    pub(super) fn pixels(&self, value: ValueId) -> Option<[usize; 3]> {
        match (self.layout(value), self.program().shape(value)) {
            (Layout::Pixels, &[_, channels, rows, columns]) => Some([channels, rows, columns]),
            _ => None,
        }
    }

    /// The image whose bytes and numbers are in different order, and whether the numbers are in blocks.
    fn reordered(&self, bytes: ValueId, numbers: ValueId) -> Option<([usize; 3], bool)> {
        let image = self.pixels(bytes)?;
        match self.layout(numbers) {
            Layout::Pixels => None,
            layout => Some((image, layout == Layout::Blocks)),
        }
    }

    pub(super) fn is_in_blocks(&self) -> bool {
        self.program().value(self.step.output).layout == Layout::Blocks
    }

    pub(super) fn data(&self, index: usize) -> Result<Data<'a>, RunError> {
        let value = self.step.inputs.get(index);
        self.values.data(*value.ok_or_else(|| self.mismatch())?)
    }

    /// The elements of an input.
    pub(super) fn get<T: Stored>(&self, index: usize) -> Result<&'a [T], RunError> {
        let value = self.step.inputs.get(index);
        self.values.get(*value.ok_or_else(|| self.mismatch())?)
    }

    /// The weight and the bias of a norm, where it has them.
    pub(super) fn affine<T: Stored>(
        &self,
        weight: bool,
        bias: bool,
    ) -> Result<[Option<&'a [T]>; 2], RunError> {
        let given = |given: bool, index: usize| given.then(|| self.get(index)).transpose();
        Ok([given(weight, 1)?, given(bias, 1 + usize::from(weight))?])
    }

    /// The elements of an input, if there is one with this number.
    pub(super) fn optional<T: Stored>(&self, index: usize) -> Result<Option<&'a [T]>, RunError> {
        let value = self.step.inputs.get(index);
        value.map(|&value| self.values.get(value)).transpose()
    }

    pub(super) fn shape(&self, index: usize) -> &'a [usize] {
        self.program().shape(self.step.inputs[index])
    }

    pub(super) fn operand<T: Stored>(&self, index: usize) -> Result<Operand<'a, T>, RunError> {
        let (data, shape) = (self.get(index)?, self.shape(index));
        Ok(Operand { data, shape })
    }

    /// The result, as elements of a type.
    pub(super) fn result<'o, T: Stored>(&self, out: DataMut<'o>) -> Result<&'o mut [T], RunError> {
        T::of_mut(out).ok_or_else(|| self.mismatch())
    }

    /// Rows and columns of the images of an input.
    fn image(&self, index: usize) -> Result<[usize; 2], RunError> {
        match self.shape(index) {
            [.., rows, columns] => Ok([*rows, *columns]),
            _ => Err(self.mismatch()),
        }
    }

    /// The size of dimension `dim` of the first input, and the stride of its elements.
    pub(super) fn along(&self, dim: usize) -> [usize; 2] {
        let shape = self.shape(0);
        [shape[dim], shape[dim + 1..].iter().product()]
    }

    /// The result, with the elements of the first input.
    fn copied<'o>(&self, out: DataMut<'o>) -> Result<&'o mut [f32], RunError> {
        let out: &mut [f32] = self.result(out)?;
        out.copy_from_slice(self.get(0)?);
        Ok(out)
    }

    /// As [`copied`](Self::copied), for elements of any type, which are there already if the step
    /// works in place.
    pub(super) fn begun<'o>(&self, mut out: DataMut<'o>) -> Result<DataMut<'o>, RunError> {
        if !self.is_in_place() {
            let copied = out.copy_from(self.data(0)?);
            copied.ok_or_else(|| self.mismatch())?;
        }
        Ok(out)
    }

    /// Calls `run` with a function that applies the epilogues.
    pub(super) fn with_epilogues(
        &self,
        run: impl FnOnce(ApplyEpilogue<'_>) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let epilogues = self.step.epilogues.iter();
        let epilogues = epilogues.map(|epilogue| BoundEpilogue::of(epilogue, self.values));
        let epilogues: SmallVec<[BoundEpilogue<'_>; 2]> = epilogues.collect::<Result<_, _>>()?;
        // All of them on a part that stays in the first-level cache, then the next.
        run(&|start, piece| {
            for (at, part) in piece.chunks_mut(EPILOGUE).enumerate() {
                let start = start + at * EPILOGUE;
                epilogues.iter().for_each(|own| own.apply(start, part));
            }
        })
    }

    /// Calls `run` with the source of the result, which is the first input, and the epilogues.
    fn with_tiles(&self, run: impl FnOnce(&ResultTiles<'_>)) -> Result<(), RunError> {
        self.with_epilogues(|epilogue| {
            run(&ResultTiles {
                from: (!self.is_in_place()).then(|| self.get(0)).transpose()?,
                epilogue: (!self.step.epilogues.is_empty()).then_some(epilogue),
            });
            Ok(())
        })
    }

    /// Applies the epilogues to a result, if there are any.
    fn finish(&self, out: &mut [f32]) -> Result<(), RunError> {
        if self.step.epilogues.is_empty() {
            return Ok(());
        }
        self.with_epilogues(|epilogue| {
            let tiles = ResultTiles {
                from: None,
                epilogue: Some(epilogue),
            };
            tiles.pieces(out, crate::kernels::GRAIN, |_, _| {});
            Ok(())
        })
    }

    #[inline(never)]
    fn concat<T: Stored>(&self, dim: usize, out: &mut [T]) -> Result<(), RunError> {
        let (program, output) = (self.program(), self.step.output);
        let shape = program.shape(output);
        let inner: usize = shape[dim + 1..].iter().product();
        // Blocks of channels are concatenated as channels are.
        let along = |shape: &[usize]| match self.is_in_blocks() {
            true => shape[dim].next_multiple_of(blocked::BLOCK),
            false => shape[dim],
        };
        let mut parts: SmallVec<[(&[T], usize, usize); 4]> = SmallVec::new();
        let mut start = 0;
        for (index, &operand) in self.step.inputs.iter().enumerate() {
            let row = along(program.shape(operand)) * inner;
            let plan = &self.executable.plan;
            if !plan.lies_in(program, operand, (output, start)) {
                parts.push((self.get(index)?, row, start));
            }
            start += row;
        }
        layout::place_all(&parts, out, along(shape) * inner);
        Ok(())
    }
}

/// Rows and columns of an image of this shape.
pub(super) fn last_two(shape: &[usize]) -> [usize; 2] {
    [shape[shape.len() - 2], shape[shape.len() - 1]]
}

/// An epilogue with its operand.
enum BoundEpilogue<'a> {
    Add(&'a [f32]),
    Unary(Unary),
}

impl<'a> BoundEpilogue<'a> {
    fn of(epilogue: &Epilogue, values: &Values<'a>) -> Result<Self, RunError> {
        Ok(match epilogue {
            Epilogue::Add(value) => Self::Add(values.get(*value)?),
            Epilogue::Unary(function) => Self::Unary(*function),
        })
    }

    /// Applies it to a piece of a result, which begins at element `start`.
    fn apply(&self, start: usize, piece: &mut [f32]) {
        match self {
            Self::Add(other) => {
                let other = &other[start..start + piece.len()];
                elementwise::binary_in_place(Binary::Add, piece, other);
            }
            Self::Unary(function) => elementwise::unary_chunk(*function, piece),
        }
    }
}
