//! Execution of steps over floating-point numbers of double precision.

use rayon::prelude::*;

use super::matrices;
use super::step::{StepRun, last_two};
use crate::data::DataMut;
use crate::error::RunError;
use crate::kernels::double::linear::DoubleLinear;
use crate::kernels::double::norm;
use crate::kernels::elementwise::{self, Real};
use crate::kernels::pool::Averages;
use crate::kernels::resample::resample;
use crate::kernels::{GRAIN, attention, pool};
use crate::parallel::Parallel;
use crate::prepare::{Packed, Prepared};
use crate::program::{ConvShape, Op, Unary};

impl StepRun<'_> {
    /// Runs a step whose operands and result are numbers of double precision.
    #[inline(never)]
    pub(super) fn doubles(&self, out: DataMut<'_>) -> Result<(), RunError> {
        let shape = self.program().shape(self.step.output);
        match &self.step.op {
            Op::Conv(conv) => {
                let own = ConvShape::of(self.program(), self.step, conv);
                let bias = self.optional(2)?;
                own.run_doubles(self.get(0)?, self.get(1)?, bias, self.result(out)?);
            }
            Op::ConvNd(conv) => {
                let bias: Option<&[f64]> = self.optional(2)?;
                conv.run(self.get(0)?, self.get(1)?, bias, self.result(out)?);
            }
            Op::Linear => {
                let (input, out) = (self.get(0)?, self.result(out)?);
                match &self.executable.prepared[self.at] {
                    Prepared::Packed(Packed::DoubleLinear(kernel)) => kernel.run(input, out),
                    // A weight that is computed while the program runs.
                    _ => {
                        let sizes = [self.shape(1)[0], self.shape(1)[1]];
                        let bias = self.optional(2)?;
                        DoubleLinear::new(self.get(1)?, sizes, false, bias).run(input, out);
                    }
                }
            }
            Op::MatMul { .. } => {
                let Prepared::Pairs(pairs) = &self.executable.prepared[self.at] else {
                    return Err(self.mismatch());
                };
                let product = matrices(self.program(), self.step, pairs);
                let product = product.ok_or_else(|| self.mismatch())?;
                product.run_doubles(self.get(0)?, self.get(1)?, self.result(out)?);
            }
            Op::BatchNorm { eps } => {
                let (mean, variance): (&[f64], &[f64]) = (self.get(1)?, self.get(2)?);
                let (weight, bias) = (self.optional(3)?, self.optional(4)?);
                let mut offsets = mean.to_vec();
                let mut factors = variance.to_vec();
                for (at, (factor, offset)) in factors.iter_mut().zip(&mut offsets).enumerate() {
                    let of = |own: Option<&[f64]>, other: f64| own.map_or(other, |own| own[at]);
                    *factor = of(weight, 1.0) / (*factor + eps).sqrt();
                    *offset = of(bias, 0.0) - *offset * *factor;
                }
                let plane = shape[2..].iter().product();
                norm::channel_affine(self.start_of(out)?, &factors, &offsets, plane);
            }
            Op::ChannelAffine => {
                let plane = shape[2..].iter().product();
                let (factors, offsets) = (self.get(1)?, self.get(2)?);
                norm::channel_affine(self.start_of(out)?, factors, offsets, plane);
            }
            Op::LayerNorm {
                dims,
                eps,
                weight,
                bias,
            } => {
                let row = shape[shape.len() - dims..].iter().product();
                let affine = self.affine(*weight, *bias)?;
                norm::layer_norm(self.start_of(out)?, row, affine, *eps);
            }
            Op::Softmax { dim, log } => {
                let inner = shape[dim + 1..].iter().product();
                norm::softmax(self.start_of(out)?, shape[*dim], inner, *log);
            }
            Op::SafeSoftmax => {
                let [_, columns] = last_two(shape);
                norm::safe_softmax(self.start_of(out)?, columns);
            }
            Op::Causal => {
                let [rows, columns] = last_two(shape);
                attention::causal(self.start_of(out)?, rows, columns);
            }
            Op::Unary(function) => self.function(*function, self.result(out)?)?,
            Op::Binary(function) => {
                let out: &mut [f64] = self.result(out)?;
                if self.is_in_place() {
                    elementwise::binary_over(*function, out, self.get(1)?);
                } else {
                    elementwise::binary(*function, self.operand(0)?, self.operand(1)?, shape, out);
                }
            }
            Op::Ternary(function) => {
                let operands = [self.operand(0)?, self.operand(1)?, self.operand(2)?];
                let out: &mut [f64] = self.result(out)?;
                elementwise::ternary(*function, operands, shape, out);
            }
            Op::MaxPool(own) => {
                let out: &mut [f64] = self.result(out)?;
                pool::max_pool(
                    self.get(0)?,
                    last_two(self.shape(0)),
                    own,
                    last_two(shape),
                    out,
                );
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
                let (image, out): (_, &mut [f64]) = (last_two(self.shape(0)), self.result(out)?);
                pool::avg_pool(self.get(0)?, image, &averages, last_two(shape), out);
            }
            Op::AdaptiveAvgPool => {
                let (image, out): (_, &mut [f64]) = (last_two(self.shape(0)), self.result(out)?);
                pool::adaptive_avg_pool(self.get(0)?, image, last_two(shape), out);
            }
            Op::Resample { dim, taps } => {
                let [size, inner] = self.along(*dim);
                resample::<f64>(self.get(0)?, size, inner, taps, self.result(out)?);
            }
            _ => return Err(self.mismatch()),
        }
        Ok(())
    }

    /// The result, with the numbers of the first input.
    fn start_of<'o>(&self, out: DataMut<'o>) -> Result<&'o mut [f64], RunError> {
        self.result(self.begun(out)?)
    }

    fn function(&self, function: Unary, out: &mut [f64]) -> Result<(), RunError> {
        let chunks = out.par_chunks_mut(GRAIN);
        if self.is_in_place() {
            chunks.run_parallel(|out| f64::unary_from(function, None, out));
            return Ok(());
        }
        let from: &[f64] = self.get(0)?;
        chunks
            .zip(from.par_chunks(GRAIN))
            .run_parallel(|(out, from)| f64::unary_from(function, Some(from), out));
        Ok(())
    }
}
