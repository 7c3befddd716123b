//! Operators over elements of all types: those that are more than arithmetic of floating-point
//! numbers.

use corsac_kernels::gather::Places;
use smallvec::SmallVec;

use super::{Arithmetic, Element};

/// Comparison of two numbers.
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

/// Combination of an element at an indexed place with the one that is put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combination {
    /// The new element replaces the old one; of several, the last.
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

/// Reduction of elements along dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenericReduction {
    /// Their sum.
    Sum,
    /// Their product.
    Product,
    /// The largest; of booleans, whether any is true.
    Max,
    /// The smallest; of booleans, whether all are true.
    Min,
}

/// A number of the type of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// An integer or a boolean.
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

    pub(crate) fn int(self) -> i64 {
        match self {
            Self::Int(value) => value,
            Self::Float(value) => float_to_int(value as f32),
        }
    }
}

/// For each element of a result, the places of the elements that it is a weighted sum of, and their
/// weights.
pub type Taps = Vec<SmallVec<[(usize, f32); 4]>>;

/// A function of three floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ternary {
    /// Linear interpolation between the first two, by the third.
    Lerp,
    /// The first, plus the product of the others times a number.
    AddProduct(f32),
    /// The first, plus the quotient of the others times a number.
    AddQuotient(f32),
}

/// Strides along the dimensions of a tensor, in elements.
pub type Steps = SmallVec<[isize; 6]>;

/// Target of an indexed write: a strided region of a tensor, with some dimensions indexed.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexPut {
    /// Offset of the first element of the region.
    pub offset: usize,
    /// By index: the size of the indexed dimension, and its stride.
    pub indexed: SmallVec<[(usize, usize); 2]>,
    /// The dimensions of the indices, which all have one shape: sizes, and strides in the source.
    pub along: SmallVec<[(usize, usize); 4]>,
    /// The other dimensions: sizes, strides in the tensor, and strides in the source.
    pub rest: SmallVec<[(usize, usize, usize); 6]>,
    /// Whether negative indices count from the end.
    pub wraps: bool,
    /// Combination of the old and the new elements.
    pub combination: Combination,
}

/// A convolution over volumes; lines and images have leading sizes of 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvNd {
    /// Channels of the image, in all groups.
    pub channels: usize,
    /// Channels of the result, in all groups.
    pub out_channels: usize,
    /// Number of groups of channels that are independent of each other.
    pub groups: usize,
    /// Sizes of the image.
    pub input: [usize; 3],
    /// Sizes of the result.
    pub output: [usize; 3],
    /// Sizes of the kernel.
    pub kernel: [usize; 3],
    /// Stride of windows.
    pub stride: [usize; 3],
    /// Zeros before the image.
    pub padding: [usize; 3],
    /// Stride of the elements of the kernel.
    pub dilation: [usize; 3],
    /// Whether it is transposed: the windows lie in the result.
    pub transposed: bool,
}

/// Operator over elements of any type. Descriptions of variants begin with the inputs.
#[derive(Clone, Debug, PartialEq)]
pub enum Generic {
    /// Conversion to the element type of the result.
    Cast,
    /// Comparison of two tensors of one type, broadcast; the result is boolean.
    Compare(Comparison),
    /// Function of two tensors of one type, broadcast.
    Arithmetic(Arithmetic),
    /// Whether each element is 0.
    Not,
    /// A condition and two tensors of one type, broadcast: selects elements.
    Where,
    /// One number for all elements.
    Fill(Scalar),
    /// An arithmetic sequence.
    Range {
        /// The first number.
        start: Scalar,
        /// Difference of neighbours.
        step: Scalar,
    },
    /// A strided copy; steps may be negative.
    Copy {
        /// Offset of the first element.
        offset: usize,
        /// Steps in the input along the dimensions of the result.
        steps: Steps,
    },
    /// Concatenation along a dimension.
    Concat {
        /// The dimension.
        dim: usize,
    },
    /// Padding with a number.
    Pad {
        /// Elements before and after, by dimension; negative numbers crop.
        widths: SmallVec<[[usize; 2]; 6]>,
        /// The number.
        value: Scalar,
    },
    /// A tensor and integers: slices of the tensor along a dimension.
    IndexSelect {
        /// The dimension.
        dim: usize,
        /// Whether negative indices count from the end.
        wraps: bool,
    },
    /// A tensor and integers of the same rank: one element of the tensor for each integer.
    Gather {
        /// The dimension.
        dim: usize,
        /// Whether negative indices count from the end.
        wraps: bool,
    },
    /// A tensor, integers, and a source of the rank of the integers: the tensor, with the elements
    /// that the integers index along a dimension combined with those of the source.
    Scatter {
        /// The dimension.
        dim: usize,
        /// The combination.
        combination: Combination,
    },
    /// A tensor, a source, and integers: the tensor, with the elements of a [region](IndexPut) combined
    /// with the source.
    IndexPut(IndexPut),
    /// Integers wrapped to fewer bits, or floating-point numbers converted through 32-bit integers.
    Wrap {
        /// Number of bits.
        bits: u32,
        /// Whether the type is signed.
        signed: bool,
    },
    /// Cumulative sums or products.
    Scan {
        /// The dimension.
        dim: usize,
        /// Whether products are computed.
        product: bool,
    },
    /// The indices of the elements in sorted order, along a dimension; as many as the result has.
    Sort {
        /// The dimension.
        dim: usize,
        /// Whether the largest come first.
        descending: bool,
    },
    /// The index of the largest or smallest element along a dimension.
    ArgReduce {
        /// The dimension.
        dim: usize,
        /// Whether it is the largest.
        largest: bool,
    },
    /// Scores of queries and keys in the last two dimensions: minus infinity where the key comes
    /// after the query.
    Causal,
    /// Softmax along the last dimension; 0 for rows of nothing but minus infinity.
    SafeSoftmax,
    /// A convolution in up to three dimensions: image, weight, and bias if there are three.
    ConvNd(ConvNd),
    /// A function of three numbers.
    Ternary(Ternary),
    /// Elements in other places of the last two dimensions:
    /// `out[…, i, j] = input[…, rows[i], columns[j]]`, for floating-point numbers.
    Arrange {
        /// The rows.
        rows: Vec<u32>,
        /// The element of each row.
        columns: Places,
    },
    /// Resampling: weighted sums of elements along a dimension.
    Resample {
        /// The dimension.
        dim: usize,
        /// For each element of the result, the elements and their weights.
        taps: Taps,
    },
    /// Scores and labels by row: the sum of the amounts by which scores of other classes exceed those of
    /// labels less 1.
    LabelMargins,
    /// Reduction of elements along dimensions.
    Reduce {
        /// The reduction.
        reduction: GenericReduction,
        /// The dimensions.
        dims: SmallVec<[usize; 4]>,
    },
}

impl Generic {
    /// Name of the operator in listings.
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
            Self::IndexSelect { .. } => "index_select",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::IndexPut(_) => "index_put",
            Self::Wrap { .. } => "wrap",
            Self::Scan { .. } => "scan",
            Self::Sort { .. } => "sort",
            Self::ArgReduce { .. } => "arg_reduce",
            Self::Reduce { .. } => "reduce",
            Self::ConvNd(_) => "conv",
            Self::Ternary(Ternary::Lerp) => "lerp",
            Self::Ternary(Ternary::AddProduct(_)) => "addcmul",
            Self::Ternary(Ternary::AddQuotient(_)) => "addcdiv",
            Self::Arrange { .. } => "arrange",
            Self::Resample { .. } => "resample",
            Self::LabelMargins => "margins",
            Self::Causal => "causal",
            Self::SafeSoftmax => "softmax",
        }
    }
}

/// Converts a number as PyTorch does on x86: the smallest integer if it does not fit.
#[inline(always)]
pub(crate) fn float_to_int(x: f32) -> i64 {
    // 2^63 is the first float that does not fit.
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
