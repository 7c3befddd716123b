//! Execution of layers: steps with packed weights, products of matrices, and steps of several
//! operators. None is inlined, so that the frame of [`StepRun::run`] stays small.

use std::sync::Arc;

use smallvec::SmallVec;

use super::memory::Memory;
use super::step::StepRun;
use super::{Observe, matrices};
use crate::aligned_buffer::zeros;
use crate::data::{Data, DataMut};
use crate::error::RunError;
use crate::kernels::ApplyEpilogue;
use crate::kernels::blocked;
use crate::kernels::blocked::attention::Operands;
use crate::kernels::blocked::linear::LinearWeight;
use crate::kernels::conv::ConvKernel;
use crate::kernels::elementwise;
use crate::kernels::int8::{self, Finish};
use crate::kernels::matmul::Product;
use crate::kernels::recurrent;
use crate::plan::linear_workspace_len;
use crate::prepare::{Packed, Prepared, linear_kernel};
use crate::program::fused::Fused;
use crate::program::{
    Attention, Binary, Cell, Conv, ConvShape, Epilogue, Op, Order, Recurrent, Rounding, Unary,
};

impl<'a> StepRun<'a> {
    #[inline(never)]
    pub(super) fn convolution(
        &self,
        conv: &Conv,
        workspace: &mut [f32],
        out: &mut [f32],
        epilogue: ApplyEpilogue<'_>,
    ) -> Result<(), RunError> {
        let image = self.get(0)?;
        match &self.executable.prepared[self.at] {
            Prepared::Packed(Packed::Conv(kernel)) => kernel.run(image, out, epilogue),
            Prepared::Packed(Packed::BlockedConv(kernel)) => {
                kernel.run(image, self.optional(3)?, workspace, out, epilogue);
            }
            Prepared::Packed(Packed::Bf16Conv(kernel)) => {
                kernel.run(image, workspace, out, epilogue);
            }
            Prepared::Packed(Packed::BlockedDepthwise(kernel)) => kernel.run(image, out, epilogue),
            // Weights that are computed while the program runs.
            _ => {
                let shape = ConvShape::of(self.program(), self.step, conv);
                let kernel = ConvKernel::new(shape, self.get(1)?, self.optional(2)?);
                kernel.run(image, out, epilogue);
            }
        }
        Ok(())
    }

    #[inline(never)]
    pub(super) fn linear(
        &self,
        workspace: &mut [f32],
        out: &mut [f32],
        epilogue: ApplyEpilogue<'_>,
    ) -> Result<(), RunError> {
        let rows = self.get(0)?;
        if let Prepared::Packed(Packed::Linear(kernel)) = &self.executable.prepared[self.at] {
            kernel.run(rows, workspace, out, epilogue);
            return Ok(());
        }
        if let Prepared::Packed(Packed::WeightOnly(kernel)) = &self.executable.prepared[self.at] {
            kernel.run(rows, workspace, out, epilogue);
            return Ok(());
        }
        // Weights that are computed while the program runs.
        let weight = LinearWeight {
            data: self.get(1)?,
            sizes: [self.shape(1)[0], self.shape(1)[1]],
            by_input: false,
        };
        let kernel = linear_kernel(self.program(), self.step, &weight, self.optional(2)?);
        kernel.run(rows, workspace, out, epilogue);
        Ok(())
    }

    /// A layer over quantised numbers.
    #[inline(never)]
    pub(super) fn quantised(
        &self,
        workspace: &mut [f32],
        out: DataMut<'_>,
    ) -> Result<(), RunError> {
        let (Op::QuantisedLinear(layer) | Op::QuantisedConv(_, layer)) = &self.step.op else {
            return Err(self.mismatch());
        };
        let prepared = &self.executable.prepared[self.at];
        let Some(levels) = layer.output else {
            let out = self.result(out)?;
            return self.with_epilogues(|epilogue| {
                match prepared {
                    Prepared::Packed(Packed::Int8Linear(kernel)) => {
                        kernel.run(self.data(0)?, workspace, out, epilogue);
                    }
                    Prepared::Packed(Packed::Int8Conv(kernel)) => {
                        kernel.to_blocks(self.get(0)?, workspace, out, epilogue);
                    }
                    _ => self.unpacked(layer.input, out, epilogue)?,
                }
                Ok(())
            });
        };
        let functions = self.step.epilogues.iter().map(|epilogue| match epilogue {
            Epilogue::Unary(function) => Ok(*function),
            Epilogue::Add(_) => Err(self.mismatch()),
        });
        let functions: SmallVec<[Unary; 2]> = functions.collect::<Result<_, _>>()?;
        let finish = Finish {
            functions: &functions,
            levels,
        };
        match prepared {
            Prepared::Packed(Packed::Int8Linear(kernel)) => {
                kernel.to_bytes(self.data(0)?, workspace, &finish, self.result(out)?);
            }
            Prepared::Packed(Packed::Int8Conv(kernel)) => {
                kernel.to_bytes(self.get(0)?, workspace, &finish, self.result(out)?);
            }
            _ => {
                let mut numbers = zeros(self.program().value(self.step.output).len());
                self.with_epilogues(|epilogue| self.unpacked(layer.input, &mut numbers, epilogue))?;
                let to = self.result(out)?;
                match self.pixels(self.step.output) {
                    Some(image) => int8::levels::to_pixels(&numbers, false, image, levels, to),
                    None => int8::levels::to_bytes(&numbers, levels, to),
                }
            }
        }
        Ok(())
    }

    /// A layer with integers that bytes do not hold, as numbers.
    fn unpacked(
        &self,
        rounding: Rounding,
        out: &mut [f32],
        epilogue: ApplyEpilogue<'_>,
    ) -> Result<(), RunError> {
        let levels = match rounding {
            Rounding::Levels(levels, scale) => (levels.byte_zero(), scale),
            Rounding::ByRow { .. } => (0, 1.0),
        };
        let input = self.step.inputs[0];
        let mut numbers = zeros(self.program().value(input).len());
        match (self.data(0)?, self.pixels(input)) {
            (Data::Bool(bytes), Some(image)) => {
                int8::levels::from_pixels(bytes, false, image, levels, &mut numbers);
            }
            (Data::Bool(bytes), None) => int8::levels::from_bytes(bytes, levels, &mut numbers),
            (Data::F32(rows), _) => {
                let width = self.shape(0).last().copied().unwrap_or(1);
                numbers = rounding.rounded(rows, width);
            }
            (Data::I64(_) | Data::F64(_), _) => return Err(self.mismatch()),
        }
        match &self.executable.prepared[self.at] {
            Prepared::Packed(Packed::Linear(kernel)) => {
                let mut workspace = zeros(linear_workspace_len(self.program(), self.step));
                kernel.run(&numbers, &mut workspace, out, epilogue);
            }
            Prepared::Packed(Packed::Conv(kernel)) if self.is_in_blocks() => {
                let shape = self.program().shape(self.step.output);
                let mut planes = zeros(shape.iter().product());
                kernel.run(&numbers, &mut planes, &|_, _| {});
                let [channels, pixels] = [shape[1], shape[2] * shape[3]];
                blocked::reorder::to_blocks(&planes, Order::Planes, channels, pixels, out);
                epilogue(0, out);
            }
            Prepared::Packed(Packed::Conv(kernel)) => kernel.run(&numbers, out, epilogue),
            _ => return Err(self.mismatch()),
        }
        Ok(())
    }

    /// The product of matrices that the step computes.
    #[inline(never)]
    pub(super) fn product(&self) -> Result<Product<'a>, RunError> {
        let product = match &self.executable.prepared[self.at] {
            Prepared::Pairs(pairs) => matrices(self.program(), self.step, pairs),
            _ => None,
        };
        product.ok_or_else(|| self.mismatch())
    }

    #[inline(never)]
    pub(super) fn attention(&self, attention: &Attention, out: &mut [f32]) -> Result<(), RunError> {
        let Prepared::Attention(kernel) = &self.executable.prepared[self.at] else {
            return Err(self.mismatch());
        };
        let operands = Operands {
            query: self.get(0)?,
            key: self.get(1)?,
            value: self.get(2)?,
            mask: match attention.mask {
                Some(_) => self.get(3)?,
                None => &[],
            },
        };
        kernel.run(&operands, out);
        Ok(())
    }

    #[inline(never)]
    pub(super) fn binary(&self, function: Binary, out: &mut [f32]) -> Result<(), RunError> {
        let shape = self.program().shape(self.step.output);
        if self.is_in_blocks() && self.shape(0) != self.shape(1) {
            let plane = shape[2] * shape[3];
            let reversed = self.shape(0) != shape;
            let (image, numbers) = match reversed {
                true => (self.get(1)?, self.get(0)?),
                false => (self.get(0)?, self.get(1)?),
            };
            blocked::affine::with_channels(function, image, numbers, reversed, plane, out);
        } else if self.is_in_place() {
            elementwise::binary_over(function, out, self.get(1)?);
        } else {
            elementwise::binary(function, self.operand(0)?, self.operand(1)?, shape, out);
        }
        Ok(())
    }

    #[inline(never)]
    pub(super) fn fused(
        &self,
        fused: &Fused,
        rows: &mut [f32],
        out: DataMut<'_>,
    ) -> Result<(), RunError> {
        let in_place = self.is_in_place();
        let read = self.step.inputs.iter().enumerate();
        let read = read.map(|(index, &value)| match in_place && index == 0 {
            true => Ok(Data::F32(&[])),
            false => self.values.data(value),
        });
        let read: SmallVec<[Data<'_>; 8]> = read.collect::<Result<_, _>>()?;
        fused.run(&read, in_place, out, rows);
        Ok(())
    }

    #[inline(never)]
    pub(super) fn recurrent(
        &self,
        recurrent: &Recurrent,
        workspace: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), RunError> {
        let weights = self.step.weights();
        let made;
        let linear = match &self.executable.prepared[self.at] {
            Prepared::Packed(Packed::Linear(kernel)) => kernel,
            // Weights that are computed while the program runs.
            _ => {
                let weight = LinearWeight {
                    data: self.get(1)?,
                    sizes: [recurrent.gates(), recurrent.width],
                    by_input: false,
                };
                let bias = recurrent.bias.then(|| self.get(2)).transpose()?;
                made = Arc::new(linear_kernel(self.program(), self.step, &weight, bias));
                &made
            }
        };
        let mut index = weights.len();
        let mut next = || {
            index += 1;
            self.get(index)
        };
        let gates: &[f32] = self.get(0)?;
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
        let last = self.step.inputs.len() - 1;
        let all: Vec<i64>;
        let batch_sizes = if recurrent.padded {
            let sizes = recurrent.sizes(rows, self.get(last)?);
            all = sizes.ok_or(RunError::BatchSizes)?;
            &all
        } else if recurrent.varies {
            self.get(last)?
        } else {
            all = vec![recurrent.batch as i64; rows / recurrent.batch.max(1)];
            &all
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
        recurrent.run(&operands, linear, workspace, out);
        Ok(())
    }

    #[inline(never)]
    pub(super) fn batch_tiling(
        &self,
        count: usize,
        workspace: &mut [f32],
        out: &mut [f32],
        mut observe: Option<Observe<'_>>,
    ) -> Result<(), RunError> {
        let body = self.executable.bodies.get(&self.at);
        let body = body.and_then(|own| own.first());
        let body = body.ok_or_else(|| self.mismatch())?;
        let all = (0..self.step.inputs.len()).map(|index| self.get(index));
        let all: SmallVec<[&[f32]; 4]> = all.collect::<Result<_, _>>()?;
        let len = out.len() / count;
        for (number, out) in out.chunks_exact_mut(len).enumerate() {
            let inputs = all.iter().map(|all| {
                let len = all.len() / count;
                Data::F32(&all[number * len..][..len])
            });
            let inputs: SmallVec<[Data<'_>; 4]> = inputs.collect();
            let mut memory = Memory::from(&mut *workspace);
            let observe = observe
                .as_mut()
                .map(|observe| &mut **observe as Observe<'_>);
            body.run_steps(&mut memory, &inputs, &mut [DataMut::F32(out)], observe)?;
        }
        Ok(())
    }
}
