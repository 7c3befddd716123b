//! Execution of steps over floating-point numbers.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::data::{Data, DataMut};
use crate::kernels::blocked::attention::Operands;
use crate::kernels::blocked::linear::LinearWeight;
use crate::kernels::blocked::{self, reorder};
use crate::kernels::conv::ConvKernel;
use crate::kernels::elementwise::{self, Operand};
use crate::kernels::matmul::Product;
use crate::kernels::pool::Averages;
use crate::kernels::result_tiles::ResultTiles;
use crate::kernels::{layout, normalise, pool, recurrent, reduce, softmax};
use crate::prepare::Packed;
use crate::prepare::{Prepared, linear_kernel};
use crate::program::fused::Fused;
use crate::program::{
    Binary, Cell, ConvShape, Epilogue, Layout, Op, Program, Recurrent, Step, Unary,
};

use super::{Executable, Values};
use crate::error::RunError;

impl Executable {
    pub(super) fn run_fused(
        &self,
        at: usize,
        step: &Step,
        fused: &Fused,
        values: &Values<'_>,
        result: DataMut<'_>,
    ) -> Result<(), RunError> {
        let in_place = self.plan.is_in_place(at);
        let read = step.inputs.iter().enumerate();
        let read = read.map(|(index, &value)| match in_place && index == 0 {
            true => Ok(Data::F32(&[])),
            false => values.data(value),
        });
        let read: SmallVec<[Data<'_>; 8]> = read.collect::<Result<_, _>>()?;
        fused.run(&read, in_place, result);
        Ok(())
    }

    pub(super) fn run_recurrent(
        &self,
        (at, step): (usize, &Step),
        recurrent: &Recurrent,
        values: &Values<'_>,
        workspace: &mut [f32],
        result: &mut [f32],
    ) -> Result<(), RunError> {
        let weights = step.weights();
        let made;
        let linear = match &self.prepared[at] {
            Prepared::Packed(Packed::Linear(kernel)) => kernel,
            // Weights that are computed while the program runs.
            _ => {
                let weight = LinearWeight {
                    data: values.f32(weights[0])?,
                    sizes: [recurrent.gates(), recurrent.width],
                    by_input: false,
                };
                let bias = weights.get(1).map(|&bias| values.f32(bias)).transpose()?;
                made = Arc::new(linear_kernel(&self.program, step, &weight, bias));
                &made
            }
        };
        let mut others = step.inputs[1 + weights.len()..].iter().copied();
        let mut next = || match others.next() {
            Some(value) => values.f32(value),
            None => Err(RunError::Mismatch {
                step: step.op.name(),
            }),
        };
        let gates = values.f32(step.inputs[0])?;
        let hidden = next()?;
        let cells = match recurrent.cell {
            Cell::Lstm => next()?,
            Cell::Gru | Cell::Tanh | Cell::Relu => &[],
        };
        let projection = match recurrent.width != recurrent.hidden {
            true => Some(next()?),
            false => None,
        };
        let rows = gates.len() / recurrent.gates().max(1);
        let all: Vec<i64>;
        let batch_sizes = match step.inputs.last() {
            Some(&lengths) if recurrent.padded => {
                let sizes = recurrent.sizes(rows, values.i64(lengths)?);
                all = sizes.ok_or(RunError::BatchSizes)?;
                &all
            }
            Some(&sizes) if recurrent.varies => values.i64(sizes)?,
            _ => {
                all = vec![recurrent.batch as i64; rows / recurrent.batch.max(1)];
                &all
            }
        };
        if recurrent.varies && !recurrent.fits(rows, batch_sizes) {
            return Err(RunError::BatchSizes);
        }
        let operands = recurrent::Operands {
            gates,
            hidden,
            cells,
            projection,
            batch_sizes,
        };
        recurrent.run(&operands, linear, workspace, result);
        Ok(())
    }

    pub(super) fn step(
        &self,
        at: usize,
        step: &Step,
        values: &Values<'_>,
        workspace: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), RunError> {
        let program = &self.program;
        let input = |index: usize| values.f32(step.inputs[index]);
        let shape_of = |index: usize| program.shape(step.inputs[index]);
        let shape = program.shape(step.output);
        let in_place = self.plan.is_in_place(at);
        let in_blocks = program.value(step.output).layout == Layout::Blocks;
        let epilogues = step
            .epilogues
            .iter()
            .map(|epilogue| BoundEpilogue::of(epilogue, values));
        let epilogues: SmallVec<[BoundEpilogue<'_>; 2]> = epilogues.collect::<Result<_, _>>()?;
        let epilogue = |start: usize, chunk: &mut [f32]| {
            epilogues.iter().for_each(|own| own.apply(start, chunk));
        };
        let tiles = || -> Result<_, RunError> {
            Ok(ResultTiles {
                from: if in_place { None } else { Some(input(0)?) },
                epilogue: (!step.epilogues.is_empty()).then_some(&epilogue),
            })
        };
        match (&step.op, &self.prepared[at]) {
            (Op::Conv(_) | Op::ChannelScaledConv(_) | Op::Linear, prepared) => {
                let bias = || step.inputs.get(2).map(|&bias| values.f32(bias)).transpose();
                match (prepared, &step.op) {
                    (Prepared::Packed(Packed::Conv(kernel)), _) => {
                        kernel.run(input(0)?, out, &epilogue);
                    }
                    (Prepared::Packed(Packed::BlockedConv(kernel)), op) => {
                        let factors = match op {
                            Op::ChannelScaledConv(_) => Some(input(3)?),
                            _ => None,
                        };
                        kernel.run(input(0)?, factors, workspace, out, &epilogue);
                    }
                    (Prepared::Packed(Packed::Bf16Conv(kernel)), _) => {
                        kernel.run(input(0)?, workspace, out, &epilogue);
                    }
                    (Prepared::Packed(Packed::BlockedDepthwise(kernel)), _) => {
                        kernel.run(input(0)?, out, &epilogue);
                    }
                    (Prepared::Packed(Packed::Linear(kernel)), _) => {
                        kernel.run(input(0)?, workspace, out, &epilogue);
                    }
                    // Weights that are computed while the program runs.
                    (_, Op::Linear) => {
                        let weight = LinearWeight {
                            data: input(1)?,
                            sizes: [shape_of(1)[0], shape_of(1)[1]],
                            by_input: false,
                        };
                        let kernel = linear_kernel(program, step, &weight, bias()?);
                        kernel.run(input(0)?, workspace, out, &epilogue);
                    }
                    _ => {
                        let shape = ConvShape::of(program, step);
                        ConvKernel::new(shape, input(1)?, bias()?).run(input(0)?, out, &epilogue);
                    }
                }
                return Ok(());
            }
            (Op::MatMul { .. }, Prepared::Pairs(pairs)) => {
                product(program, step, pairs).run(input(0)?, input(1)?, out);
            }
            (Op::Attention(attention), Prepared::Attention(kernel)) => {
                let operands = Operands {
                    query: input(0)?,
                    key: input(1)?,
                    value: input(2)?,
                    mask: match attention.mask {
                        Some(_) => input(3)?,
                        None => &[],
                    },
                };
                kernel.run(&operands, out);
            }
            (Op::ChannelAffine, _) => {
                let plane = shape[2..].iter().product();
                let channel_affine = match in_blocks {
                    true => blocked::affine::channel_affine,
                    false => elementwise::channel_affine,
                };
                channel_affine(&tiles()?, out, input(1)?, input(2)?, plane);
                return Ok(());
            }
            (
                Op::LayerNorm {
                    dims,
                    eps,
                    weight,
                    bias,
                },
                _,
            ) => {
                let row = shape[shape.len() - dims..].iter().product();
                let given = |given: bool, index: usize| given.then(|| input(index)).transpose();
                let affine = [given(*weight, 1)?, given(*bias, 1 + usize::from(*weight))?];
                normalise::layer_norm(&tiles()?, out, row, affine, *eps);
                return Ok(());
            }
            (Op::Unary(function), _) => {
                elementwise::unary(&tiles()?, *function, out);
                return Ok(());
            }
            (Op::Binary(function), _) => {
                if in_blocks && shape_of(0) != shape_of(1) {
                    let plane = shape[2] * shape[3];
                    let reversed = shape_of(0) != shape;
                    let (image, numbers) = match reversed {
                        true => (input(1)?, input(0)?),
                        false => (input(0)?, input(1)?),
                    };
                    blocked::affine::with_channels(*function, image, numbers, reversed, plane, out);
                } else if in_place {
                    elementwise::binary_over(*function, out, input(1)?);
                } else {
                    let operand = |index: usize| -> Result<_, RunError> {
                        let (data, shape) = (input(index)?, shape_of(index));
                        Ok(Operand { data, shape })
                    };
                    elementwise::binary(*function, operand(0)?, operand(1)?, shape, out);
                }
            }
            (Op::Softmax { dim, log }, _) => {
                let inner = shape[dim + 1..].iter().product();
                softmax::softmax_strided(&tiles()?, out, shape[*dim], inner, *log);
                return Ok(());
            }
            (Op::MaxPool(pool), _) => {
                let max_pool = match in_blocks {
                    true => blocked::pool::max_pool,
                    false => pool::max_pool,
                };
                max_pool(input(0)?, image(shape_of(0)), pool, image(shape), out);
            }
            (
                Op::AvgPool {
                    pool,
                    count_padding,
                    divisor,
                },
                _,
            ) => {
                let averages = Averages {
                    pool,
                    count_padding: *count_padding,
                    divisor: *divisor,
                };
                let avg_pool = match in_blocks {
                    true => blocked::pool::avg_pool,
                    false => pool::avg_pool,
                };
                avg_pool(input(0)?, image(shape_of(0)), &averages, image(shape), out);
            }
            (Op::AdaptiveAvgPool, _) => {
                let adaptive_avg_pool = match in_blocks {
                    true => blocked::pool::adaptive_avg_pool,
                    false => pool::adaptive_avg_pool,
                };
                adaptive_avg_pool(input(0)?, image(shape_of(0)), image(shape), out);
            }
            (Op::ToBlocks(order), _) => {
                let plane = shape[2] * shape[3];
                reorder::to_blocks(input(0)?, *order, shape[1], plane, out);
            }
            (Op::FromBlocks(order), _) => {
                let image = shape_of(0);
                reorder::from_blocks(input(0)?, *order, image[1], image[2] * image[3], out);
            }
            (Op::Reduce { reduction, dims }, _) => {
                reduce::reduce(*reduction, input(0)?, shape_of(0), dims, out);
            }
            (Op::Copy { offset, strides }, _) => {
                layout::copy(input(0)?, *offset, strides, shape, out);
            }
            (Op::Concat { dim }, _) => {
                let inner: usize = shape[dim + 1..].iter().product();
                // Blocks of channels are concatenated as channels are.
                let along = |shape: &[usize]| match in_blocks {
                    true => shape[*dim].next_multiple_of(blocked::BLOCK),
                    false => shape[*dim],
                };
                let mut parts: SmallVec<[(&[f32], usize, usize); 4]> = SmallVec::new();
                let mut start = 0;
                for (index, &operand) in step.inputs.iter().enumerate() {
                    let row = along(shape_of(index)) * inner;
                    if !self.plan.lies_in(program, operand, (step.output, start)) {
                        parts.push((input(index)?, row, start));
                    }
                    start += row;
                }
                layout::place_all(&parts, out, along(shape) * inner);
            }
            (Op::Pad { widths, value }, _) => {
                layout::pad(input(0)?, shape_of(0), widths, *value, out);
            }
            (
                Op::MatMul { .. }
                | Op::Attention(_)
                | Op::Recurrent(_)
                | Op::BatchNorm { .. }
                | Op::Generic(_)
                | Op::Fused(_)
                | Op::BatchTiling(_),
                _,
            ) => unreachable!("prepared when the program was made, or done elsewhere"),
        }
        if !step.epilogues.is_empty() {
            let tiles = ResultTiles {
                from: None,
                epilogue: Some(&epilogue),
            };
            tiles.pieces(out, crate::kernels::GRAIN, |_, _| {});
        }
        Ok(())
    }
}

/// The product of matrices that a step computes.
pub(super) fn product<'a>(program: &Program, step: &Step, pairs: &'a [[usize; 2]]) -> Product<'a> {
    let Op::MatMul {
        first_transposed,
        transposed,
        scale,
    } = step.op
    else {
        unreachable!("only products of matrices have one")
    };
    let (a, shape) = (program.shape(step.inputs[0]), program.shape(step.output));
    Product {
        rows: shape[shape.len() - 2],
        depth: a[a.len() - if first_transposed { 2 } else { 1 }],
        columns: shape[shape.len() - 1],
        first_transposed,
        transposed,
        scale,
        pairs,
    }
}

/// Rows and columns of an image.
fn image(shape: &[usize]) -> [usize; 2] {
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
            Epilogue::Add(value) => Self::Add(values.f32(*value)?),
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
