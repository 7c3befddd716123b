//! Operators over elements of all types: what is no arithmetic of floating-point numbers alone.

mod arithmetic;
mod run;

use corsac_kernels::gather::Places;
use smallvec::SmallVec;

use crate::kernels::generic::Steps;
use crate::kernels::put::Put;
use crate::kernels::volume::Volume;
use crate::program::Element;

pub use arithmetic::Arithmetic;
pub(crate) use arithmetic::{floor_divide, of_floats};
pub(crate) use run::run;

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
    /// Integers of which so many bits are kept, or numbers that are truncated to 32 bits before.
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
