//! Execution of steps over elements of any type.

use smallvec::SmallVec;

use super::Values;
use crate::data::{Data, DataMut};
use crate::error::RunError;
use crate::kernels::elementwise::{self, Operand};
use crate::kernels::generic::{self};
use crate::kernels::resample::resample;
use crate::kernels::{layout, margins, reduce};
use crate::program::arithmetic::{of_32_bits, of_floats, of_integers, wrapped};
use crate::program::{
    Arithmetic, Combination, Comparison, Generic, GenericReduction, IndexPut, Program, Reduction,
    Step, ValueId,
};

/// Runs `step`, which is [`Generic`] or only moves elements. With `in_place`, its first input is
/// in `out`.
pub(crate) fn run(
    program: &Program,
    step: &Step,
    values: &Values<'_>,
    in_place: bool,
    out: DataMut<'_>,
) -> Result<(), RunError> {
    let operator = match &step.op {
        crate::program::Op::Generic(operator) => operator,
        other => unreachable!("{} has floating-point results", other.name()),
    };
    let work = Work {
        program,
        step,
        values,
        in_place,
    };
    match operator {
        Generic::Cast => return work.cast(out),
        Generic::Compare(comparison) => return work.compare(*comparison, out),
        Generic::Arithmetic(function) => return work.arithmetic(*function, out),
        Generic::Not => match (work.data(0)?, out) {
            (Data::F32(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x == 0.0)),
            (Data::I64(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x == 0)),
            (Data::Bool(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x == 0)),
            (Data::I64(x), DataMut::I64(out)) => generic::map(x, out, |x| !x),
            _ => return Err(work.mismatch()),
        },
        Generic::Where => match out {
            DataMut::F32(out) => return work.choose(out, Values::f32),
            DataMut::I64(out) => return work.choose(out, Values::i64),
            DataMut::Bool(out) => return work.choose(out, Values::bool),
        },
        Generic::Fill(number) => match out {
            DataMut::F32(out) => out.fill(number.float() as f32),
            DataMut::I64(out) => out.fill(number.int()),
            DataMut::Bool(out) => out.fill(u8::from(number.float() != 0.0)),
        },
        Generic::Range { start, step } => match out {
            DataMut::F32(out) => out.iter_mut().enumerate().for_each(|(at, out)| {
                *out = (start.float() + at as f64 * step.float()) as f32;
            }),
            DataMut::I64(out) => out.iter_mut().zip(0..).for_each(|(out, at)| {
                *out = start.int().wrapping_add(step.int().wrapping_mul(at));
            }),
            DataMut::Bool(_) => return Err(work.mismatch()),
        },
        Generic::Copy { offset, steps } => {
            let shape = program.shape(step.output);
            match (work.data(0)?, out) {
                (Data::F32(x), DataMut::F32(out)) => layout::copy(x, *offset, steps, shape, out),
                (Data::I64(x), DataMut::I64(out)) => layout::copy(x, *offset, steps, shape, out),
                (Data::Bool(x), DataMut::Bool(out)) => layout::copy(x, *offset, steps, shape, out),
                _ => return Err(work.mismatch()),
            }
        }
        Generic::Concat { dim } => match out {
            DataMut::F32(out) => return work.concat(*dim, out, Values::f32),
            DataMut::I64(out) => return work.concat(*dim, out, Values::i64),
            DataMut::Bool(out) => return work.concat(*dim, out, Values::bool),
        },
        Generic::Pad { widths, value } => {
            let shape = work.shape(0);
            match (work.data(0)?, out) {
                (Data::F32(x), DataMut::F32(out)) => {
                    crate::kernels::layout::pad(x, shape, widths, value.float() as f32, out);
                }
                (Data::I64(x), DataMut::I64(out)) => {
                    crate::kernels::layout::pad(x, shape, widths, value.int(), out);
                }
                (Data::Bool(x), DataMut::Bool(out)) => {
                    let value = u8::from(value.float() != 0.0);
                    crate::kernels::layout::pad(x, shape, widths, value, out);
                }
                _ => return Err(work.mismatch()),
            }
        }
        Generic::IndexSelect { dim, wraps } => {
            let (shape, indices) = (work.shape(0), work.i64(1)?);
            let (size, inner) = (shape[*dim], shape[dim + 1..].iter().product());
            let done = match (work.data(0)?, out) {
                (Data::F32(x), DataMut::F32(out)) => {
                    generic::index_select(x, size, inner, indices, *wraps, out)
                }
                (Data::I64(x), DataMut::I64(out)) => {
                    generic::index_select(x, size, inner, indices, *wraps, out)
                }
                (Data::Bool(x), DataMut::Bool(out)) => {
                    generic::index_select(x, size, inner, indices, *wraps, out)
                }
                _ => return Err(work.mismatch()),
            };
            return done.map_err(|index| RunError::Index { index, size });
        }
        Generic::Gather { dim, wraps } => {
            let shape = work.shape(0);
            let indices = (work.i64(1)?, work.shape(1), *wraps);
            let done = match (work.data(0)?, out) {
                (Data::F32(x), DataMut::F32(out)) => generic::gather(x, shape, *dim, indices, out),
                (Data::I64(x), DataMut::I64(out)) => generic::gather(x, shape, *dim, indices, out),
                (Data::Bool(x), DataMut::Bool(out)) => {
                    generic::gather(x, shape, *dim, indices, out)
                }
                _ => return Err(work.mismatch()),
            };
            let size = shape[*dim];
            return done.map_err(|index| RunError::Index { index, size });
        }
        Generic::Scatter { dim, combination } => return work.scatter(*dim, *combination, out),
        Generic::IndexPut(put) => return work.put(put, out),
        Generic::Wrap { bits, signed } => match (work.data(0)?, out) {
            (Data::I64(x), DataMut::I64(out)) => {
                generic::map(x, out, |x| wrapped(x, *bits, *signed));
            }
            (Data::F32(x), DataMut::I64(out)) => {
                generic::map(x, out, |x| wrapped(of_32_bits(x), *bits, *signed));
            }
            _ => return Err(work.mismatch()),
        },
        Generic::Scan { dim, product } => {
            let [size, inner] = work.along(*dim);
            match (work.data(0)?, out) {
                // In double precision, as PyTorch does.
                (Data::F32(x), DataMut::F32(out)) => {
                    let zero = f64::from(u8::from(*product));
                    let f = |a: f64, x: f32| match product {
                        true => a * f64::from(x),
                        false => a + f64::from(x),
                    };
                    generic::scan(x, size, inner, zero, f, |a| a as f32, out);
                }
                (Data::I64(x), DataMut::I64(out)) => {
                    let f = |a: i64, x: i64| match product {
                        true => a.wrapping_mul(x),
                        false => a.wrapping_add(x),
                    };
                    generic::scan(x, size, inner, i64::from(*product), f, |a| a, out);
                }
                _ => return Err(work.mismatch()),
            }
        }
        Generic::Sort { dim, descending } => {
            let keep = program.shape(step.output)[*dim];
            let sizes = work.along(*dim);
            match (work.data(0)?, out) {
                (Data::F32(x), DataMut::I64(out)) => {
                    generic::sort(x, sizes, *descending, keep, out);
                }
                (Data::I64(x), DataMut::I64(out)) => {
                    generic::sort(x, sizes, *descending, keep, out);
                }
                (Data::Bool(x), DataMut::I64(out)) => {
                    generic::sort(x, sizes, *descending, keep, out);
                }
                _ => return Err(work.mismatch()),
            }
        }
        Generic::ArgReduce { dim, largest } => {
            let sizes = work.along(*dim);
            match (work.data(0)?, out) {
                (Data::F32(x), DataMut::I64(out)) if sizes[0] > 0 && sizes[1] == 1 => {
                    let reduction = if *largest {
                        Reduction::Max
                    } else {
                        Reduction::Min
                    };
                    reduce::places(reduction, x, sizes[0], out);
                }
                (Data::F32(x), DataMut::I64(out)) => generic::arg_reduce(x, sizes, *largest, out),
                (Data::I64(x), DataMut::I64(out)) => generic::arg_reduce(x, sizes, *largest, out),
                (Data::Bool(x), DataMut::I64(out)) => generic::arg_reduce(x, sizes, *largest, out),
                _ => return Err(work.mismatch()),
            }
        }
        Generic::ConvNd(conv) => {
            let DataMut::F32(out) = out else {
                return Err(work.mismatch());
            };
            let bias = step
                .inputs
                .get(2)
                .map(|&bias| values.f32(bias))
                .transpose()?;
            conv.run(work.f32(0)?, work.f32(1)?, bias, out);
        }
        Generic::Ternary(function) => {
            let DataMut::F32(out) = out else {
                return Err(work.mismatch());
            };
            let operand = |at: usize| -> Result<_, RunError> {
                let (data, shape) = (work.f32(at)?, work.shape(at));
                Ok(Operand { data, shape })
            };
            let operands = [operand(0)?, operand(1)?, operand(2)?];
            elementwise::ternary(*function, operands, program.shape(step.output), out);
        }
        Generic::Arrange { rows, columns } => {
            let DataMut::F32(out) = out else {
                return Err(work.mismatch());
            };
            let shape = work.shape(0);
            let plane = shape[shape.len() - 2..].iter().product();
            layout::arrange(work.f32(0)?, plane, rows, columns, out);
        }
        Generic::Resample { dim, taps } => {
            let DataMut::F32(out) = out else {
                return Err(work.mismatch());
            };
            let [size, inner] = work.along(*dim);
            resample(work.f32(0)?, size, inner, taps, out);
        }
        Generic::Causal | Generic::SafeSoftmax => {
            let shape = work.shape(0);
            let DataMut::F32(out) = out else {
                return Err(work.mismatch());
            };
            out.copy_from_slice(work.f32(0)?);
            let [.., rows, columns] = shape[..] else {
                return Err(work.mismatch());
            };
            if matches!(operator, Generic::Causal) {
                crate::kernels::attention::causal(out, rows, columns);
            } else {
                crate::kernels::attention::safe_softmax(out, columns);
            }
        }
        Generic::LabelMargins => {
            let DataMut::F32(out) = out else {
                return Err(work.mismatch());
            };
            let [_, classes] = work.shape(0)[..] else {
                return Err(work.mismatch());
            };
            let (scores, labels) = (work.f32(0)?, work.i64(1)?);
            let done = margins::of_labels(scores, labels, classes, out);
            return done.map_err(|index| RunError::Index {
                index,
                size: classes,
            });
        }
        Generic::Reduce { reduction, dims } => return work.reduce(*reduction, dims, out),
    }
    Ok(())
}

/// Expands `$run` with `$f` as the function of floating-point numbers of a combination.
macro_rules! combined {
    ($combination:expr, $f:ident => $run:expr) => {
        match $combination {
            Combination::Replace => {
                let $f = |_, b| b;
                $run
            }
            Combination::Add => {
                let $f = |a: f32, b: f32| a + b;
                $run
            }
            Combination::Multiply => {
                let $f = |a: f32, b: f32| a * b;
                $run
            }
            Combination::Largest => {
                let $f = of_floats(Arithmetic::Maximum);
                $run
            }
            Combination::Smallest => {
                let $f = of_floats(Arithmetic::Minimum);
                $run
            }
        }
    };
}

/// The function of integers of a combination.
fn of_integers_combined(combination: Combination) -> fn(i64, i64) -> i64 {
    match combination {
        Combination::Replace => |_, b| b,
        Combination::Add => i64::wrapping_add,
        Combination::Multiply => i64::wrapping_mul,
        Combination::Largest => i64::max,
        Combination::Smallest => i64::min,
    }
}

/// A step with its values.
struct Work<'a> {
    program: &'a Program,
    step: &'a Step,
    values: &'a Values<'a>,
    in_place: bool,
}

impl<'a> Work<'a> {
    /// The error for operands, or a result, of types that the step does not support.
    fn mismatch(&self) -> RunError {
        RunError::Mismatch {
            step: self.step.op.name(),
        }
    }

    fn data(&self, index: usize) -> Result<Data<'a>, RunError> {
        self.values.data(self.step.inputs[index])
    }

    fn f32(&self, index: usize) -> Result<&'a [f32], RunError> {
        self.values.f32(self.step.inputs[index])
    }

    fn i64(&self, index: usize) -> Result<&'a [i64], RunError> {
        self.values.i64(self.step.inputs[index])
    }

    fn shape(&self, index: usize) -> &'a [usize] {
        self.program.shape(self.step.inputs[index])
    }

    /// The size of dimension `dim` of the first input, and the stride of its elements.
    fn along(&self, dim: usize) -> [usize; 2] {
        let shape = self.shape(0);
        [shape[dim], shape[dim + 1..].iter().product()]
    }

    fn cast(&self, out: DataMut<'_>) -> Result<(), RunError> {
        match (self.data(0)?, out) {
            (Data::F32(x), DataMut::I64(out)) => generic::to_integers(x, out),
            (Data::F32(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x != 0.0)),
            (Data::I64(x), DataMut::F32(out)) => generic::map(x, out, |x| x as f32),
            (Data::I64(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x != 0)),
            (Data::Bool(x), DataMut::F32(out)) => generic::map(x, out, f32::from),
            (Data::Bool(x), DataMut::I64(out)) => generic::map(x, out, i64::from),
            (from, mut out) => return out.copy_from(from).ok_or_else(|| self.mismatch()),
        }
        Ok(())
    }

    fn compare(&self, comparison: Comparison, out: DataMut<'_>) -> Result<(), RunError> {
        let DataMut::Bool(out) = out else {
            return Err(self.mismatch());
        };
        match (self.data(0)?, self.data(1)?) {
            (Data::F32(a), Data::F32(b)) => self.compare_as(comparison, a, b, out),
            (Data::I64(a), Data::I64(b)) => self.compare_as(comparison, a, b, out),
            (Data::Bool(a), Data::Bool(b)) => self.compare_as(comparison, a, b, out),
            _ => return Err(self.mismatch()),
        }
        Ok(())
    }

    fn compare_as<T: Copy + Sync + PartialOrd>(
        &self,
        comparison: Comparison,
        a: &[T],
        b: &[T],
        out: &mut [u8],
    ) {
        let shape = self.program.shape(self.step.output);
        let (a, b) = ((a, self.shape(0)), (b, self.shape(1)));
        match comparison {
            Comparison::Eq => generic::zip(a, b, shape, out, |a, b| u8::from(a == b)),
            Comparison::Ne => generic::zip(a, b, shape, out, |a, b| u8::from(a != b)),
            Comparison::Lt => generic::zip(a, b, shape, out, |a, b| u8::from(a < b)),
            Comparison::Le => generic::zip(a, b, shape, out, |a, b| u8::from(a <= b)),
            Comparison::Gt => generic::zip(a, b, shape, out, |a, b| u8::from(a > b)),
            Comparison::Ge => generic::zip(a, b, shape, out, |a, b| u8::from(a >= b)),
        }
    }

    fn choose<T: Copy + Send + Sync + 'a>(
        &self,
        out: &mut [T],
        get: impl Fn(&Values<'a>, ValueId) -> Result<&'a [T], RunError>,
    ) -> Result<(), RunError> {
        let [condition, a, b] = self.step.inputs[..] else {
            return Err(self.mismatch());
        };
        generic::choose(
            (self.values.bool(condition)?, self.shape(0)),
            (get(self.values, a)?, self.shape(1)),
            (get(self.values, b)?, self.shape(2)),
            self.program.shape(self.step.output),
            out,
        );
        Ok(())
    }

    fn concat<T: Copy + 'a>(
        &self,
        dim: usize,
        out: &mut [T],
        get: impl Fn(&Values<'a>, ValueId) -> Result<&'a [T], RunError>,
    ) -> Result<(), RunError> {
        let parts = self.step.inputs.iter().map(|&value| {
            let row = self.program.shape(value)[dim..].iter().product();
            Ok((get(self.values, value)?, row))
        });
        generic::concat(&parts.collect::<Result<Vec<_>, _>>()?, out);
        Ok(())
    }

    fn arithmetic(&self, function: Arithmetic, out: DataMut<'_>) -> Result<(), RunError> {
        let shape = self.program.shape(self.step.output);
        let (a_shape, b_shape) = (self.shape(0), self.shape(1));
        match (self.data(0)?, self.data(1)?, out) {
            (Data::F32(a), Data::F32(b), DataMut::F32(out)) => {
                let operand = |data, shape| Operand { data, shape };
                let (a, b) = (operand(a, a_shape), operand(b, b_shape));
                elementwise::arithmetic(function, a, b, shape, out);
            }
            (Data::I64(a), Data::I64(b), DataMut::I64(out)) => {
                let divides = matches!(
                    function,
                    Arithmetic::FloorDivide
                        | Arithmetic::TruncDivide
                        | Arithmetic::Remainder
                        | Arithmetic::Fmod
                );
                if divides && !out.is_empty() && b.contains(&0) {
                    return Err(RunError::DivisionByZero);
                }
                let (a, b) = ((a, a_shape), (b, b_shape));
                // Functions that are one instruction have loops of their own, which the compiler
                // vectorises.
                match function {
                    Arithmetic::Add => generic::zip(a, b, shape, out, i64::wrapping_add),
                    Arithmetic::Sub => generic::zip(a, b, shape, out, i64::wrapping_sub),
                    Arithmetic::Mul => generic::zip(a, b, shape, out, i64::wrapping_mul),
                    Arithmetic::Maximum => generic::zip(a, b, shape, out, i64::max),
                    Arithmetic::Minimum => generic::zip(a, b, shape, out, i64::min),
                    Arithmetic::And => generic::zip(a, b, shape, out, |a, b| a & b),
                    Arithmetic::Or => generic::zip(a, b, shape, out, |a, b| a | b),
                    Arithmetic::Xor => generic::zip(a, b, shape, out, |a, b| a ^ b),
                    _ => generic::zip(a, b, shape, out, of_integers(function)),
                }
            }
            (Data::Bool(a), Data::Bool(b), DataMut::Bool(out)) => {
                let (a, b) = ((a, a_shape), (b, b_shape));
                match function {
                    Arithmetic::And | Arithmetic::Mul | Arithmetic::Minimum | Arithmetic::Fmin => {
                        generic::zip(a, b, shape, out, |a, b| a & b);
                    }
                    Arithmetic::Xor => generic::zip(a, b, shape, out, |a, b| a ^ b),
                    _ => generic::zip(a, b, shape, out, |a, b| a | b),
                }
            }
            _ => return Err(self.mismatch()),
        }
        Ok(())
    }

    /// Copies the first input to `out`, unless it is there already.
    fn begin(&self, out: &mut DataMut<'_>) -> Result<(), RunError> {
        if self.in_place {
            return Ok(());
        }
        out.copy_from(self.data(0)?).ok_or_else(|| self.mismatch())
    }

    fn scatter(
        &self,
        dim: usize,
        combination: Combination,
        mut out: DataMut<'_>,
    ) -> Result<(), RunError> {
        self.begin(&mut out)?;
        let shape = self.shape(0);
        let indices = (self.i64(1)?, self.shape(1));
        let from = self.shape(2);
        // In place nothing may be written before an error: PyTorch runs the call again, on the
        // memory of the input.
        let may_end = !self.in_place;
        let done = match (self.data(2)?, out) {
            (Data::F32(source), DataMut::F32(out)) => {
                combined!(combination, f => generic::scatter(shape, dim, indices, (source, from), (out, may_end), f))
            }
            (Data::I64(source), DataMut::I64(out)) => {
                let f = of_integers_combined(combination);
                generic::scatter(shape, dim, indices, (source, from), (out, may_end), f)
            }
            (Data::Bool(source), DataMut::Bool(out)) => generic::scatter(
                shape,
                dim,
                indices,
                (source, from),
                (out, may_end),
                |_, b| b,
            ),
            _ => return Err(self.mismatch()),
        };
        let size = shape[dim];
        done.map_err(|index| RunError::Index { index, size })
    }

    fn put(&self, put: &IndexPut, mut out: DataMut<'_>) -> Result<(), RunError> {
        self.begin(&mut out)?;
        let indices = (2..self.step.inputs.len()).map(|at| self.i64(at));
        let indices: SmallVec<[&[i64]; 4]> = indices.collect::<Result<_, _>>()?;
        let done = match (self.data(1)?, out) {
            (Data::F32(source), DataMut::F32(out)) => {
                combined!(put.combination, f => put.run(&indices, source, out, f))
            }
            (Data::I64(source), DataMut::I64(out)) => {
                put.run(&indices, source, out, of_integers_combined(put.combination))
            }
            (Data::Bool(source), DataMut::Bool(out)) => match put.combination {
                Combination::Replace => put.run(&indices, source, out, |_, b| b),
                _ => put.run(&indices, source, out, |a, b| a | b),
            },
            _ => return Err(self.mismatch()),
        };
        done.map_err(|(index, size)| RunError::Index { index, size })
    }

    fn reduce(
        &self,
        reduction: GenericReduction,
        dims: &[usize],
        out: DataMut<'_>,
    ) -> Result<(), RunError> {
        let shape = self.shape(0);
        macro_rules! reduce {
            ($x:expr, $out:expr, $zero:expr, $f:expr, $join:expr) => {
                generic::reduce($x, shape, dims, $zero, ($f, $join), $out)
            };
        }
        match (self.data(0)?, out) {
            // In single precision, as PyTorch multiplies them.
            (Data::F32(x), DataMut::F32(out)) => match reduction {
                GenericReduction::Product => {
                    reduce!(x, out, 1.0, |a: f32, x: f32| a * x, |a, b| a * b)
                }
                GenericReduction::Sum | GenericReduction::Max | GenericReduction::Min => {
                    return Err(self.mismatch());
                }
            },
            (Data::I64(x), DataMut::I64(out)) => match reduction {
                GenericReduction::Sum => reduce!(x, out, 0, i64::wrapping_add, i64::wrapping_add),
                GenericReduction::Product => {
                    reduce!(x, out, 1, i64::wrapping_mul, i64::wrapping_mul)
                }
                GenericReduction::Max => reduce!(x, out, i64::MIN, i64::max, i64::max),
                GenericReduction::Min => reduce!(x, out, i64::MAX, i64::min, i64::min),
            },
            (Data::Bool(x), DataMut::Bool(out)) => match reduction {
                GenericReduction::Sum | GenericReduction::Max => {
                    reduce!(x, out, 0, |a, x| a | x, |a, b| a | b)
                }
                GenericReduction::Product | GenericReduction::Min => {
                    reduce!(x, out, 1, |a, x| a & x, |a, b| a & b)
                }
            },
            _ => return Err(self.mismatch()),
        }
        Ok(())
    }
}
