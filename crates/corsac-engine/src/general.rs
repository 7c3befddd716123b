//! Operators over elements of all types: what is no arithmetic of floating-point numbers alone.

use corsac_kernels::gather::Places;
use smallvec::SmallVec;

use crate::data::{Data, DataMut};
use crate::execute::{RunError, Values};
use crate::kernels::elementwise::{self, Operand};
use crate::kernels::generic::{self, Steps};
use crate::kernels::put::Put;
use crate::kernels::resample::resample;
use crate::kernels::volume::Volume;
use crate::kernels::{layout, reduce};
use crate::lower::wrapped;
use crate::program::{Element, Program, Reduction, Step};

/// What two numbers are compared for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `a == b`
    Eq,
    /// `a != b`
    Ne,
    /// `a < b`
    Lt,
    /// `a <= b`
    Le,
    /// `a > b`
    Gt,
    /// `a >= b`
    Ge,
}

/// Functions of two elements of one type, which the result has, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// The larger one.
    Maximum,
    /// The smaller one.
    Minimum,
    /// The larger one; if one is NaN, the other.
    Fmax,
    /// The smaller one; if one is NaN, the other.
    Fmin,
    /// Division, rounded down.
    FloorDivide,
    /// Division, rounded to zero.
    TruncDivide,
    /// What is left of division rounded down: the sign is that of `b`.
    Remainder,
    /// What is left of division rounded to zero: the sign is that of `a`.
    Fmod,
    /// `a ** b`
    Power,
    /// The angle of the point `(b, a)`.
    Atan2,
    /// `sqrt(a * a + b * b)`
    Hypot,
    /// The bits that are set in both.
    And,
    /// The bits that are set in one.
    Or,
    /// The bits that are set in one only.
    Xor,
}

impl Arithmetic {
    /// Whether it is a function of elements of this type.
    #[must_use]
    pub fn is_of(self, element: Element) -> bool {
        match self {
            Self::Add | Self::Mul | Self::Maximum | Self::Minimum | Self::Fmax | Self::Fmin => true,
            Self::And | Self::Or | Self::Xor => element != Element::F32,
            Self::Sub
            | Self::FloorDivide
            | Self::TruncDivide
            | Self::Remainder
            | Self::Fmod
            | Self::Power => element != Element::Bool,
            Self::Atan2 | Self::Hypot => element == Element::F32,
        }
    }
}

/// What becomes of an element that an index names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combination {
    /// The other one takes its place; of several, the last.
    Replace,
    /// The sum.
    Add,
    /// The product.
    Multiply,
    /// The larger one, NaN if one is.
    Largest,
    /// The smaller one, NaN if one is.
    Smallest,
}

/// How elements along dimensions are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folding {
    /// Their sum.
    Sum,
    /// Their product.
    Product,
    /// The largest: whether any is true.
    Max,
    /// The smallest: whether all are true.
    Min,
}

/// A number of the type of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// An integer, or a truth value.
    Int(i64),
    /// A floating-point number.
    Float(f64),
}

impl Scalar {
    pub(crate) fn float(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    fn int(self) -> i64 {
        match self {
            Self::Int(value) => value,
            Self::Float(value) => float_to_int(value as f32),
        }
    }
}

/// What elements are made of: places, and their weights.
pub type Taps = Vec<SmallVec<[(usize, f32); 4]>>;

/// What is computed of three floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ternary {
    /// Between the first two, as far as the third says.
    Lerp,
    /// The first, and the product of the others times a number.
    AddProduct(f32),
    /// The first, and the quotient of the others times a number.
    AddQuotient(f32),
}

/// What a step computes of elements of any type.
#[derive(Clone, Debug, PartialEq)]
pub enum General {
    /// The same numbers as elements of the result's type.
    Cast,
    /// Of two of one type, broadcast; truth values.
    Compare(Comparison),
    /// Of two of one type, broadcast.
    Arithmetic(Arithmetic),
    /// Whether it is 0.
    Not,
    /// Truth values, and two of one type, broadcast.
    Where,
    /// A number everywhere.
    Fill(Scalar),
    /// Numbers one step apart.
    Range {
        /// The first.
        start: Scalar,
        /// From one to the next.
        step: Scalar,
    },
    /// A view, copied; steps may be negative.
    Copy {
        /// Where the first element is.
        offset: usize,
        /// Steps along the dimensions of the result.
        steps: Steps,
    },
    /// One behind the other along a dimension.
    Concat {
        /// Which one.
        dim: usize,
    },
    /// Surrounded by a number.
    Pad {
        /// Elements before and after, by dimension; fewer than none are left out.
        widths: SmallVec<[[usize; 2]; 6]>,
        /// The number.
        value: Scalar,
    },
    /// A tensor and integers: rows of the tensor along a dimension.
    Select {
        /// Which one.
        dim: usize,
        /// Whether negative indices count from the end.
        wraps: bool,
    },
    /// A tensor and integers of the same rank: an element for each of these.
    Gather {
        /// Along which dimension.
        dim: usize,
        /// Whether negative indices count from the end.
        wraps: bool,
    },
    /// A tensor, integers, and a tensor of their rank: the first, in which the elements along a
    /// dimension that the integers name are combined with those of the last.
    Scatter {
        /// Along which dimension.
        dim: usize,
        /// How.
        combination: Combination,
    },
    /// A tensor, elements, and integers: the first, in which the elements of a [region](Put) are combined with
    /// the others.
    Put(Put),
    /// Integers of which so many bits are kept.
    Wrap {
        /// How many.
        bits: u32,
        /// Whether the first of them is a sign.
        signed: bool,
    },
    /// Sums or products of all elements up to each.
    Cumulate {
        /// Along which dimension.
        dim: usize,
        /// Whether products are meant.
        product: bool,
    },
    /// The places of elements in order, along a dimension; as many as the result has.
    Sort {
        /// Which one.
        dim: usize,
        /// Whether the largest come first.
        descending: bool,
    },
    /// The place of an extreme along a dimension.
    Extreme {
        /// Which one.
        dim: usize,
        /// Whether the largest is meant.
        largest: bool,
    },
    /// Scores of queries and keys in the last two dimensions: minus infinity where the key comes
    /// after the query.
    Causal,
    /// Softmax along the last dimension; 0 where there is nothing but minus infinity.
    SafeSoftmax,
    /// A convolution in up to three dimensions: image, weight, and bias if there are three.
    Volume(Volume),
    /// A function of three numbers.
    Ternary(Ternary),
    /// Elements in other places of the last two dimensions: `out[…, i, j] = input[…, rows[i], columns[j]]`, of
    /// floating-point numbers.
    Arrange {
        /// Which rows.
        rows: Vec<u32>,
        /// Which element of each.
        columns: Places,
    },
    /// Weighted sums of elements along a dimension.
    Resample {
        /// Which one.
        dim: usize,
        /// For each element of the result, elements and their weights.
        taps: Taps,
    },
    /// Elements along dimensions combined.
    Fold {
        /// How.
        folding: Folding,
        /// Which dimensions.
        dims: SmallVec<[usize; 4]>,
    },
}

impl General {
    /// A word for it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cast => "cast",
            Self::Compare(_) => "compare",
            Self::Arithmetic(_) => "arithmetic",
            Self::Not => "not",
            Self::Where => "where",
            Self::Fill(_) => "fill",
            Self::Range { .. } => "range",
            Self::Copy { .. } => "copy",
            Self::Concat { .. } => "concat",
            Self::Pad { .. } => "pad",
            Self::Select { .. } => "select",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::Put(_) => "put",
            Self::Wrap { .. } => "wrap",
            Self::Cumulate { .. } => "cumulate",
            Self::Sort { .. } => "sort",
            Self::Extreme { .. } => "extreme",
            Self::Fold { .. } => "fold",
            Self::Volume(_) => "conv",
            Self::Ternary(Ternary::Lerp) => "lerp",
            Self::Ternary(Ternary::AddProduct(_)) => "addcmul",
            Self::Ternary(Ternary::AddQuotient(_)) => "addcdiv",
            Self::Arrange { .. } => "arrange",
            Self::Resample { .. } => "resample",
            Self::Causal => "causal",
            Self::SafeSoftmax => "softmax",
        }
    }
}

/// A number as PyTorch casts it on x86: what does not fit is the smallest integer.
#[inline(always)]
fn float_to_int(x: f32) -> i64 {
    // 2^63 as a float is the first that does not fit.
    match (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&x) {
        true => x as i64,
        false => i64::MIN,
    }
}

/// Does the step `step`, which is [`General`] or one that only moves elements; `in_place` says that its first
/// input is in `out`.
pub(crate) fn run(
    program: &Program,
    step: &Step,
    values: &Values<'_>,
    in_place: bool,
    out: DataMut<'_>,
) -> Result<(), RunError> {
    let general = match &step.op {
        crate::program::Op::General(general) => general,
        other => unreachable!("{} has floating-point results", other.name()),
    };
    let work = Work {
        program,
        step,
        values,
        in_place,
    };
    match general {
        General::Cast => return work.cast(out),
        General::Compare(comparison) => return work.compare(*comparison, out),
        General::Arithmetic(function) => return work.arithmetic(*function, out),
        General::Not => match (work.data(0), out) {
            (Data::F32(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x == 0.0)),
            (Data::I64(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x == 0)),
            (Data::Bool(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x == 0)),
            (Data::I64(x), DataMut::I64(out)) => generic::map(x, out, |x| !x),
            _ => return Err(work.mismatch()),
        },
        General::Where => match out {
            DataMut::F32(out) => work.choose(out, Data::numbers),
            DataMut::I64(out) => work.choose(out, Data::integers),
            DataMut::Bool(out) => work.choose(out, Data::flags),
        },
        General::Fill(number) => match out {
            DataMut::F32(out) => out.fill(number.float() as f32),
            DataMut::I64(out) => out.fill(number.int()),
            DataMut::Bool(out) => out.fill(u8::from(number.float() != 0.0)),
        },
        General::Range { start, step } => match out {
            DataMut::F32(out) => out.iter_mut().enumerate().for_each(|(at, out)| {
                *out = (start.float() + at as f64 * step.float()) as f32;
            }),
            DataMut::I64(out) => out.iter_mut().zip(0..).for_each(|(out, at)| {
                *out = start.int().wrapping_add(step.int().wrapping_mul(at));
            }),
            DataMut::Bool(_) => return Err(work.mismatch()),
        },
        General::Copy { offset, steps } => {
            let shape = program.shape(step.output);
            match (work.data(0), out) {
                (Data::F32(x), DataMut::F32(out)) => layout::copy(x, *offset, steps, shape, out),
                (Data::I64(x), DataMut::I64(out)) => layout::copy(x, *offset, steps, shape, out),
                (Data::Bool(x), DataMut::Bool(out)) => layout::copy(x, *offset, steps, shape, out),
                _ => return Err(work.mismatch()),
            }
        }
        General::Concat { dim } => match out {
            DataMut::F32(out) => work.concat(*dim, out, Data::numbers),
            DataMut::I64(out) => work.concat(*dim, out, Data::integers),
            DataMut::Bool(out) => work.concat(*dim, out, Data::flags),
        },
        General::Pad { widths, value } => {
            let shape = work.shape(0);
            match (work.data(0), out) {
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
        General::Select { dim, wraps } => {
            let (shape, indices) = (work.shape(0), work.data(1).integers());
            let (size, inner) = (shape[*dim], shape[dim + 1..].iter().product());
            let done = match (work.data(0), out) {
                (Data::F32(x), DataMut::F32(out)) => {
                    generic::select(x, size, inner, indices, *wraps, out)
                }
                (Data::I64(x), DataMut::I64(out)) => {
                    generic::select(x, size, inner, indices, *wraps, out)
                }
                (Data::Bool(x), DataMut::Bool(out)) => {
                    generic::select(x, size, inner, indices, *wraps, out)
                }
                _ => return Err(work.mismatch()),
            };
            return done.map_err(|index| RunError::Index { index, size });
        }
        General::Gather { dim, wraps } => {
            let shape = work.shape(0);
            let indices = (work.data(1).integers(), work.shape(1), *wraps);
            let done = match (work.data(0), out) {
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
        General::Scatter { dim, combination } => return work.scatter(*dim, *combination, out),
        General::Put(put) => return work.put(put, out),
        General::Wrap { bits, signed } => match (work.data(0), out) {
            (Data::I64(x), DataMut::I64(out)) => {
                generic::map(x, out, |x| wrapped(x, *bits, *signed));
            }
            _ => return Err(work.mismatch()),
        },
        General::Cumulate { dim, product } => {
            let [size, inner] = work.along(*dim);
            match (work.data(0), out) {
                // In double precision, as PyTorch does.
                (Data::F32(x), DataMut::F32(out)) => {
                    let zero = f64::from(u8::from(*product));
                    let f = |a: f64, x: f32| match product {
                        true => a * f64::from(x),
                        false => a + f64::from(x),
                    };
                    generic::cumulate(x, size, inner, zero, f, |a| a as f32, out);
                }
                (Data::I64(x), DataMut::I64(out)) => {
                    let f = |a: i64, x: i64| match product {
                        true => a.wrapping_mul(x),
                        false => a.wrapping_add(x),
                    };
                    generic::cumulate(x, size, inner, i64::from(*product), f, |a| a, out);
                }
                _ => return Err(work.mismatch()),
            }
        }
        General::Sort { dim, descending } => {
            let keep = program.shape(step.output)[*dim];
            let sizes = work.along(*dim);
            match (work.data(0), out) {
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
        General::Extreme { dim, largest } => {
            let sizes = work.along(*dim);
            match (work.data(0), out) {
                (Data::F32(x), DataMut::I64(out)) if sizes[0] > 0 && sizes[1] == 1 => {
                    let reduction = if *largest {
                        Reduction::Max
                    } else {
                        Reduction::Min
                    };
                    reduce::places(reduction, x, sizes[0], out);
                }
                (Data::F32(x), DataMut::I64(out)) => generic::extreme(x, sizes, *largest, out),
                (Data::I64(x), DataMut::I64(out)) => generic::extreme(x, sizes, *largest, out),
                (Data::Bool(x), DataMut::I64(out)) => generic::extreme(x, sizes, *largest, out),
                _ => return Err(work.mismatch()),
            }
        }
        General::Volume(volume) => {
            let DataMut::F32(out) = out else {
                return Err(work.mismatch());
            };
            let bias = step.inputs.get(2).map(|&bias| values.get(bias));
            volume.run(work.data(0).numbers(), work.data(1).numbers(), bias, out);
        }
        General::Ternary(function) => {
            let DataMut::F32(out) = out else {
                return Err(work.mismatch());
            };
            let operand = |at: usize| Operand {
                data: work.data(at).numbers(),
                shape: work.shape(at),
            };
            let operands = [operand(0), operand(1), operand(2)];
            elementwise::ternary(*function, operands, program.shape(step.output), out);
        }
        General::Arrange { rows, columns } => {
            let DataMut::F32(out) = out else {
                return Err(work.mismatch());
            };
            let shape = work.shape(0);
            let plane = shape[shape.len() - 2..].iter().product();
            layout::arrange(work.data(0).numbers(), plane, rows, columns, out);
        }
        General::Resample { dim, taps } => {
            let DataMut::F32(out) = out else {
                return Err(work.mismatch());
            };
            let [size, inner] = work.along(*dim);
            resample(work.data(0).numbers(), size, inner, taps, out);
        }
        General::Causal | General::SafeSoftmax => {
            let shape = work.shape(0);
            let DataMut::F32(out) = out else {
                return Err(work.mismatch());
            };
            out.copy_from_slice(work.data(0).numbers());
            let [.., rows, columns] = shape[..] else {
                return Err(work.mismatch());
            };
            if matches!(general, General::Causal) {
                crate::kernels::attention::causal(out, rows, columns);
            } else {
                crate::kernels::attention::safe_softmax(out, columns);
            }
        }
        General::Fold { folding, dims } => return work.fold(*folding, dims, out),
    }
    Ok(())
}

/// Does something with the function of floating-point numbers that combines them so.
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

/// The function of integers that combines them so.
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
    /// That its operands, or its result, are not of the types that it computes with.
    fn mismatch(&self) -> RunError {
        RunError::Mismatch {
            step: self.step.op.name(),
        }
    }

    fn data(&self, index: usize) -> Data<'a> {
        self.values.data(self.step.inputs[index])
    }

    fn shape(&self, index: usize) -> &'a [usize] {
        self.program.shape(self.step.inputs[index])
    }

    /// The size of the first input's dimension `dim`, and how far apart its elements lie.
    fn along(&self, dim: usize) -> [usize; 2] {
        let shape = self.shape(0);
        [shape[dim], shape[dim + 1..].iter().product()]
    }

    fn cast(&self, out: DataMut<'_>) -> Result<(), RunError> {
        match (self.data(0), out) {
            (Data::F32(x), DataMut::I64(out)) => generic::to_integers(x, out),
            (Data::F32(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x != 0.0)),
            (Data::I64(x), DataMut::F32(out)) => generic::map(x, out, |x| x as f32),
            (Data::I64(x), DataMut::Bool(out)) => generic::map(x, out, |x| u8::from(x != 0)),
            (Data::Bool(x), DataMut::F32(out)) => generic::map(x, out, f32::from),
            (Data::Bool(x), DataMut::I64(out)) => generic::map(x, out, i64::from),
            (from, mut out) if from.element() == out.element() => out.copy_from(from),
            _ => return Err(self.mismatch()),
        }
        Ok(())
    }

    fn compare(&self, comparison: Comparison, out: DataMut<'_>) -> Result<(), RunError> {
        let DataMut::Bool(out) = out else {
            return Err(self.mismatch());
        };
        match (self.data(0), self.data(1)) {
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

    fn choose<T: Copy + Send + Sync + 'a>(&self, out: &mut [T], get: impl Fn(Data<'a>) -> &'a [T]) {
        let condition = (self.data(0).flags(), self.shape(0));
        let (a, b) = (get(self.data(1)), get(self.data(2)));
        let shape = self.program.shape(self.step.output);
        generic::choose(
            condition,
            (a, self.shape(1)),
            (b, self.shape(2)),
            shape,
            out,
        );
    }

    fn concat<T: Copy + 'a>(&self, dim: usize, out: &mut [T], get: impl Fn(Data<'a>) -> &'a [T]) {
        let parts = (0..self.step.inputs.len())
            .map(|at| (get(self.data(at)), self.shape(at)[dim..].iter().product()));
        generic::concat(&parts.collect::<Vec<_>>(), out);
    }

    fn arithmetic(&self, function: Arithmetic, out: DataMut<'_>) -> Result<(), RunError> {
        let shape = self.program.shape(self.step.output);
        let (a_shape, b_shape) = (self.shape(0), self.shape(1));
        match (self.data(0), self.data(1), out) {
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
                // Those that are one instruction are loops of their own.
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

    /// Makes `out` the first input, unless it is already.
    fn begin(&self, out: &mut DataMut<'_>) -> Result<(), RunError> {
        if self.in_place {
            return Ok(());
        }
        match self.data(0).element() == out.element() {
            true => out.copy_from(self.data(0)),
            false => return Err(self.mismatch()),
        }
        Ok(())
    }

    fn scatter(
        &self,
        dim: usize,
        combination: Combination,
        mut out: DataMut<'_>,
    ) -> Result<(), RunError> {
        self.begin(&mut out)?;
        let shape = self.shape(0);
        let indices = (self.data(1).integers(), self.shape(1));
        let from = self.shape(2);
        // PyTorch runs the call again: what is an input's memory stays as it is.
        let may_end = !self.in_place;
        let done = match (self.data(2), out) {
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

    fn put(&self, put: &Put, mut out: DataMut<'_>) -> Result<(), RunError> {
        self.begin(&mut out)?;
        let indices = (2..self.step.inputs.len()).map(|at| self.data(at).integers());
        let indices: SmallVec<[&[i64]; 4]> = indices.collect();
        let done = match (self.data(1), out) {
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

    fn fold(&self, folding: Folding, dims: &[usize], out: DataMut<'_>) -> Result<(), RunError> {
        let shape = self.shape(0);
        macro_rules! fold {
            ($x:expr, $out:expr, $zero:expr, $f:expr, $join:expr) => {
                generic::fold($x, shape, dims, $zero, ($f, $join), $out)
            };
        }
        match (self.data(0), out) {
            // In single precision, as PyTorch multiplies them.
            (Data::F32(x), DataMut::F32(out)) => match folding {
                Folding::Product => fold!(x, out, 1.0, |a: f32, x: f32| a * x, |a, b| a * b),
                Folding::Sum | Folding::Max | Folding::Min => return Err(self.mismatch()),
            },
            (Data::I64(x), DataMut::I64(out)) => match folding {
                Folding::Sum => fold!(x, out, 0, i64::wrapping_add, i64::wrapping_add),
                Folding::Product => fold!(x, out, 1, i64::wrapping_mul, i64::wrapping_mul),
                Folding::Max => fold!(x, out, i64::MIN, i64::max, i64::max),
                Folding::Min => fold!(x, out, i64::MAX, i64::min, i64::min),
            },
            (Data::Bool(x), DataMut::Bool(out)) => match folding {
                Folding::Sum | Folding::Max => fold!(x, out, 0, |a, x| a | x, |a, b| a | b),
                Folding::Product | Folding::Min => fold!(x, out, 1, |a, x| a & x, |a, b| a & b),
            },
            _ => return Err(self.mismatch()),
        }
        Ok(())
    }
}

/// A function of floating-point numbers.
pub(crate) fn of_floats(function: Arithmetic) -> fn(f32, f32) -> f32 {
    match function {
        Arithmetic::Add => |a, b| a + b,
        Arithmetic::Sub => |a, b| a - b,
        Arithmetic::Mul => |a, b| a * b,
        Arithmetic::Maximum => |a, b| if a > b || a.is_nan() { a } else { b },
        Arithmetic::Minimum => |a, b| if a < b || a.is_nan() { a } else { b },
        Arithmetic::Fmax => f32::max,
        Arithmetic::Fmin => f32::min,
        Arithmetic::FloorDivide => |a, b| floor_divide(a, b, a % b),
        Arithmetic::TruncDivide => |a, b| (a / b).trunc(),
        Arithmetic::Remainder => |a, b| {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
                rest + b
            } else {
                rest
            }
        },
        Arithmetic::Fmod => |a, b| a % b,
        Arithmetic::Power => f32::powf,
        Arithmetic::Atan2 => f32::atan2,
        Arithmetic::Hypot => f32::hypot,
        // Bits of floating-point numbers are not combined.
        Arithmetic::And | Arithmetic::Or | Arithmetic::Xor => |a, _| a,
    }
}

/// The next integer below a quotient, of which `rest` is what is left of `a`.
/// Source: `div_floor_floating` of PyTorch, which is Python's.
#[inline(always)]
pub(crate) fn floor_divide(a: f32, b: f32, rest: f32) -> f32 {
    let exact = (a - rest) / b;
    let is_below = rest != 0.0 && (b < 0.0) != (rest < 0.0);
    let exact = if is_below { exact - 1.0 } else { exact };
    let floor = exact.floor();
    let nearest = if exact - floor > 0.5 {
        floor + 1.0
    } else {
        floor
    };
    let zero = 0.0_f32.copysign(a / b);
    let found = if exact == 0.0 { zero } else { nearest };
    if b == 0.0 { a / b } else { found }
}

fn of_integers(function: Arithmetic) -> fn(i64, i64) -> i64 {
    match function {
        Arithmetic::Add => i64::wrapping_add,
        Arithmetic::Sub => i64::wrapping_sub,
        Arithmetic::Mul => i64::wrapping_mul,
        Arithmetic::Maximum | Arithmetic::Fmax => i64::max,
        Arithmetic::Minimum | Arithmetic::Fmin => i64::min,
        Arithmetic::FloorDivide => |a, b| {
            let quotient = a.wrapping_div(b);
            let inexact = a.wrapping_rem(b) != 0 && (a < 0) != (b < 0);
            quotient - i64::from(inexact)
        },
        Arithmetic::TruncDivide => i64::wrapping_div,
        Arithmetic::Remainder => |a, b| {
            let rest = a.wrapping_rem(b);
            match rest != 0 && (rest < 0) != (b < 0) {
                true => rest + b,
                false => rest,
            }
        },
        Arithmetic::Fmod => i64::wrapping_rem,
        Arithmetic::Power => |a, b| match u32::try_from(b) {
            Ok(exponent) => a.wrapping_pow(exponent),
            // Exponents that are negative are refused when a program is made, if they are known.
            Err(_) => match (a, b % 2 == 0) {
                (1, _) | (-1, true) => 1,
                (-1, false) => -1,
                _ => 0,
            },
        },
        Arithmetic::And => |a, b| a & b,
        Arithmetic::Or => |a, b| a | b,
        Arithmetic::Xor => |a, b| a ^ b,
        // Results are floating-point numbers.
        Arithmetic::Atan2 | Arithmetic::Hypot => |a, _| a,
    }
}

impl Element {
    /// Zero, as a number of this type.
    #[must_use]
    pub fn zero(self) -> Scalar {
        match self {
            Self::F32 => Scalar::Float(0.0),
            Self::I64 | Self::Bool => Scalar::Int(0),
        }
    }
}
