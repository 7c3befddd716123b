//! Operators of steps.

use corsac_kernels::gather::Places;
use smallvec::SmallVec;

use super::fused::Fused;
use super::{
    Arithmetic, Attention, Binary, Combination, Comparison, Control, Conv, ConvNd, IndexPut,
    Levels, Program, Recurrent, Reduction, Rounding, Scalar, Ternary, Unary,
};

/// Transform that computes a weight from other weights. A batch norm is given by mean, variance,
/// and weight and bias if it has them; the number is added to the variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WeightTransform {
    /// A convolution's weight times the factors of the norm after it.
    NormWeight(f64),
    /// A convolution's bias times the factors of the norm after it, plus its offsets.
    NormBias(f64),
    /// The factors of a norm.
    NormScale(f64),
    /// The offsets of a norm.
    NormOffset(f64),
    /// The transpose of a matrix.
    Transpose,
    /// The weight or bias of a layer, with each output channel times a factor.
    Scale,
    /// The numbers of a weight of integers, from it, scales, and zero points if there are three; from it
    /// alone, if all share one scale.
    Dequantise(Quantised),
}

/// Format of a quantised weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quantised {
    /// Whether each byte has two integers of 4 bits, the lower bits first.
    pub packed: bool,
    /// The integers that share a scale.
    pub sharing: Sharing,
}

/// The integers of a weight that share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// All, with the scale (as bits) and the zero point given here.
    Tensor(u32, i32),
    /// All with the same index along a dimension.
    Along(usize),
    /// This many neighbours in a row.
    Group(usize),
}

/// Windows over two dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Sizes of a window.
    pub kernel: [usize; 2],
    /// Rows and columns from one window to the next.
    pub stride: [usize; 2],
    /// Elements outside on each side.
    pub padding: [usize; 2],
    /// Rows and columns from one element of a window to the next.
    pub dilation: [usize; 2],
}

/// Strides along the dimensions of a tensor, in elements.
pub type Strides = SmallVec<[isize; 6]>;

/// For each element of a result, the places of the elements that it is a weighted sum of, and their
/// weights.
pub type Taps = Vec<SmallVec<[(usize, f64); 4]>>;

/// Order of the channels of images that are not in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Each has a plane of its own: `[batch, channels, rows, columns]`.
    Planes,
    /// Those of a pixel follow each other: `[batch, rows, columns, channels]`.
    Pixels,
}

/// A layer over quantised numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantisedLayer {
    /// Rounding of its input.
    pub input: Rounding,
    /// The levels of its result, if that is bytes.
    pub output: Option<Levels>,
}

/// A sum of numbers that are levels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddLevels {
    /// The zero points and scales of the operands.
    pub operands: [(i32, f32); 2],
    /// The smallest and the largest sum.
    pub bounds: [f32; 2],
    /// The levels of the sums.
    pub levels: Levels,
}

/// Steps over a batch, computed one micro-batch at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchTiling {
    /// Number of micro-batches, all of equal size.
    pub count: usize,
    /// The steps for one micro-batch. Values and weights have the numbers of the enclosing program;
    /// inputs and the result are slices of the inputs and the result of the step.
    pub body: Program,
}

/// Operator of a step. Descriptions of variants begin with the inputs.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Image, weight, and bias if there are three.
    Conv(Conv),
    /// Image, weight, bias, and a factor for each channel of the image; for kernels of single
    /// pixels, in blocks.
    ChannelScaledConv(Conv),
    /// `x @ weight.T`, with a bias if there are three inputs.
    Linear,
    /// The same, with rows rounded to bytes and a [weight of integers](WeightTransform::Dequantise).
    /// Rows are bytes already if they have one scale.
    QuantisedLinear(QuantisedLayer),
    /// An image of bytes, a weight of integers, and bias if there are three.
    QuantisedConv(Conv, QuantisedLayer),
    /// The levels of numbers, as unsigned bytes; those of images by [pixel](super::Layout::Pixels).
    ToLevels(Levels),
    /// The numbers of levels that are unsigned bytes: of this zero point and this scale.
    FromLevels(i32, f32),
    /// A function of levels that are unsigned bytes, as a table.
    MapLevels(Box<[u8; 256]>),
    /// The sum of the numbers of two levels, of these zero points and scales, clamped and quantised.
    AddLevels(Box<AddLevels>),
    /// Products of the matrices in the last two dimensions.
    MatMul {
        /// Whether the first matrix is transposed.
        first_transposed: bool,
        /// Whether the second matrix is transposed.
        transposed: bool,
        /// Factor of the products.
        scale: f64,
    },
    /// Input, mean, variance, and weight and bias if there are five; over dimension 1.
    BatchNorm {
        /// Added to the variance.
        eps: f64,
    },
    /// Input, factors, offsets: `x * factor + offset` over dimension 1.
    ChannelAffine,
    /// Input, and weight and bias if there are three; over the last `dims` dimensions.
    LayerNorm {
        /// Number of dimensions of a row.
        dims: usize,
        /// Added to the variance.
        eps: f64,
        /// Whether the first input after `x` is a weight.
        weight: bool,
        /// Whether the last input is a bias.
        bias: bool,
    },
    /// A function of each element.
    Unary(Unary),
    /// A function of each pair of elements, after broadcasting.
    Binary(Binary),
    /// Several elementwise functions and reductions of rows, computed a tile at a time.
    Fused(Box<Fused>),
    /// The largest of each window.
    MaxPool(Pool),
    /// The mean of each window.
    AvgPool {
        /// The windows.
        pool: Pool,
        /// Whether zeros outside the image count.
        count_padding: bool,
        /// Divisor of the sums, if it is not the number of elements.
        divisor: Option<usize>,
    },
    /// Means of as many windows as the result has elements, spread evenly over the image.
    AdaptiveAvgPool,
    /// A reduction along dimensions, which stay with size 1 or are removed.
    Reduce {
        /// The reduction.
        reduction: Reduction,
        /// The dimensions.
        dims: SmallVec<[usize; 4]>,
    },
    /// Softmax along a dimension.
    Softmax {
        /// The dimension.
        dim: usize,
        /// Whether its logarithm is computed.
        log: bool,
    },
    /// Queries, keys and values, and a mask if there are four; it is added to the scores.
    Attention(Box<Attention>),
    /// A strided copy: an element of the result lies `offset` plus its indices times `strides` from
    /// the first one of the input.
    Copy {
        /// Offset of the first element.
        offset: usize,
        /// Strides in the input along the dimensions of the result.
        strides: Strides,
    },
    /// A recurrent layer. Inputs: the products of its inputs for the gates, the weight of the
    /// state, its bias, the state, the cell memory if there is one, the weight of a projection if
    /// the state is narrower than the gates, and the numbers of rows of the time steps, as
    /// integers. The result is a vector: the rows of all time steps, and the last state and cell
    /// memory if they are kept.
    Recurrent(Recurrent),
    /// Concatenation along a dimension.
    Concat {
        /// The dimension.
        dim: usize,
    },
    /// An image, reordered into blocks of channels.
    ToBlocks(Order),
    /// An image, reordered out of blocks of channels.
    FromBlocks(Order),
    /// Several steps, computed one micro-batch at a time.
    BatchTiling(Box<BatchTiling>),
    /// Padding with a number.
    Pad {
        /// Elements before and after, by dimension.
        widths: SmallVec<[[usize; 2]; 6]>,
        /// The number.
        value: Scalar,
    },
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
    /// The index in its plane of the largest element of each window.
    ArgMaxPool(Pool),
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
    /// Each row of the last dimension as its levels give it, which have these bounds and span its range and
    /// 0.
    RoundRows([i32; 2]),
    /// Other programs, run as elements decide. Inputs and results are those of its [`Flow`](super::Flow).
    Control(Box<Control>),
    /// Scores and labels by row: the sum of the amounts by which scores of other classes exceed those of
    /// labels less 1.
    LabelMargins,
}

impl Op {
    /// Whether all operands and the result are floating-point numbers.
    pub(crate) fn is_of_floats(&self) -> bool {
        match self {
            Self::Conv(_)
            | Self::ChannelScaledConv(_)
            | Self::Linear
            | Self::MatMul { .. }
            | Self::BatchNorm { .. }
            | Self::ChannelAffine
            | Self::LayerNorm { .. }
            | Self::Unary(_)
            | Self::Binary(_)
            | Self::MaxPool(_)
            | Self::AvgPool { .. }
            | Self::AdaptiveAvgPool
            | Self::Softmax { .. }
            | Self::Attention(_)
            | Self::ToBlocks(_)
            | Self::FromBlocks(_)
            | Self::BatchTiling(_)
            | Self::Causal
            | Self::SafeSoftmax
            | Self::ConvNd(_)
            | Self::Ternary(_)
            | Self::Arrange { .. }
            | Self::RoundRows(_)
            | Self::Resample { .. } => true,
            Self::Fused(_)
            | Self::QuantisedLinear(_)
            | Self::QuantisedConv(..)
            | Self::ToLevels(_)
            | Self::FromLevels(..)
            | Self::MapLevels(_)
            | Self::AddLevels(_)
            | Self::Reduce { .. }
            | Self::Copy { .. }
            | Self::Recurrent(_)
            | Self::Concat { .. }
            | Self::Pad { .. }
            | Self::Cast
            | Self::Compare(_)
            | Self::Arithmetic(_)
            | Self::Not
            | Self::Where
            | Self::Fill(_)
            | Self::Range { .. }
            | Self::IndexSelect { .. }
            | Self::Gather { .. }
            | Self::Scatter { .. }
            | Self::IndexPut(_)
            | Self::Wrap { .. }
            | Self::Scan { .. }
            | Self::Sort { .. }
            | Self::ArgReduce { .. }
            | Self::ArgMaxPool(_)
            | Self::Control(_)
            | Self::LabelMargins => false,
        }
    }

    /// Whether there is a kernel for numbers of double precision.
    pub(crate) fn takes_doubles(&self) -> bool {
        match self {
            Self::Unary(function) => !matches!(
                function,
                Unary::RoundTo(_) | Unary::Quantise(_) | Unary::Dequantise { .. }
            ),
            Self::Conv(_)
            | Self::ConvNd(_)
            | Self::Linear
            | Self::MatMul { .. }
            | Self::BatchNorm { .. }
            | Self::ChannelAffine
            | Self::LayerNorm { .. }
            | Self::Binary(_)
            | Self::Ternary(_)
            | Self::Fused(_)
            | Self::MaxPool(_)
            | Self::AvgPool { .. }
            | Self::AdaptiveAvgPool
            | Self::Resample { .. }
            | Self::Reduce { .. }
            | Self::Softmax { .. }
            | Self::SafeSoftmax
            | Self::Causal
            | Self::Copy { .. }
            | Self::Concat { .. }
            | Self::Pad { .. }
            | Self::Cast
            | Self::Compare(_)
            | Self::Arithmetic(_)
            | Self::Not
            | Self::Where
            | Self::Fill(_)
            | Self::Range { .. }
            | Self::IndexSelect { .. }
            | Self::Gather { .. }
            | Self::Scatter { .. }
            | Self::IndexPut(_)
            | Self::Wrap { .. }
            | Self::Scan { .. }
            | Self::Sort { .. }
            | Self::ArgReduce { .. }
            | Self::Control(_)
            | Self::ArgMaxPool(_) => true,
            Self::ChannelScaledConv(_)
            | Self::QuantisedLinear(_)
            | Self::QuantisedConv(..)
            | Self::ToLevels(_)
            | Self::FromLevels(..)
            | Self::MapLevels(_)
            | Self::AddLevels(_)
            | Self::Attention(_)
            | Self::Recurrent(_)
            | Self::ToBlocks(_)
            | Self::FromBlocks(_)
            | Self::BatchTiling(_)
            | Self::Arrange { .. }
            | Self::RoundRows(_)
            | Self::LabelMargins => false,
        }
    }

    /// Whether elementwise functions can be epilogues of the operator.
    pub(crate) fn takes_epilogues(&self) -> bool {
        matches!(
            self,
            Self::Conv(_)
                | Self::ChannelScaledConv(_)
                | Self::Linear
                | Self::QuantisedLinear(_)
                | Self::QuantisedConv(..)
                | Self::MatMul { .. }
                | Self::Binary(_)
                | Self::Unary(_)
                | Self::ChannelAffine
                | Self::LayerNorm { .. }
                | Self::AdaptiveAvgPool
        )
    }
}
