//! Steps and their operators.

use corsac_ir::NodeId;
use corsac_kernels::gather::Places;
use smallvec::SmallVec;

use super::fused::Fused;
use super::{
    Arithmetic, Binary, Combination, Comparison, Conv, ConvNd, IndexPut, Program, Reduction,
    Scalar, Ternary, Unary, ValueId,
};

/// Transform that computes a weight from other weights. A batch norm is given by mean, variance,
/// and weight and bias if it has them; the number is added to the variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WeightTransform {
    /// A convolution's weight times the factors of the norm after it.
    NormWeight(f32),
    /// A convolution's bias times the factors of the norm after it, plus its offsets.
    NormBias(f32),
    /// The factors of a norm.
    NormScale(f32),
    /// The offsets of a norm.
    NormOffset(f32),
    /// The transpose of a matrix.
    Transpose,
    /// The weight or bias of a layer, with each output channel times a factor.
    Scale,
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
pub type Taps = Vec<SmallVec<[(usize, f32); 4]>>;

/// A strided view of the elements of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Offset of the first element.
    pub offset: usize,
    /// Its sizes.
    pub shape: SmallVec<[usize; 6]>,
    /// Strides in elements.
    pub strides: SmallVec<[usize; 6]>,
}

/// `softmax(query @ key.T * scale + mask) @ value`, for stacks of matrices, which are broadcast to
/// each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// `[…, rows, width]`
    pub query: View,
    /// `[…, keys, width]`
    pub key: View,
    /// `[…, keys, outputs]`
    pub value: View,
    /// `[…, rows, keys]`, or one row for all
    pub mask: Option<View>,
    /// `[…, rows, outputs]`
    pub result: View,
    /// Factor of the products.
    pub scale: f32,
    /// Whether a query sees no keys after it.
    pub causal: bool,
    /// Whether rows whose keys are all masked are zero; otherwise they are NaN.
    pub safe: bool,
}

/// Order of the channels of images that are not in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Each has a plane of its own: `[batch, channels, rows, columns]`.
    Planes,
    /// Those of a pixel follow each other: `[batch, rows, columns, channels]`.
    Pixels,
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

/// Function of a recurrent layer in a time step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Long short-term memory.
    Lstm,
    /// Gated recurrent units.
    Gru,
    /// The hyperbolic tangent of the sum.
    Tanh,
    /// The sum, where it is positive.
    Relu,
}

impl Cell {
    /// Number of gates.
    #[must_use]
    pub fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
            Self::Tanh | Self::Relu => 1,
        }
    }
}

/// A layer of a recurrent network in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recurrent {
    /// The function of a time step.
    pub cell: Cell,
    /// Rows of the state: those of the first time step.
    pub batch: usize,
    /// Numbers of a gate.
    pub hidden: usize,
    /// Numbers of a row of the state.
    pub width: usize,
    /// Whether time steps are computed in reverse order.
    pub reverse: bool,
    /// Whether there is a bias.
    pub bias: bool,
    /// Whether the last input has the number of rows of each time step; otherwise all have as many.
    pub varies: bool,
    /// Whether the last input has the lengths of padded sequences, the longest first.
    pub padded: bool,
    /// Whether the last state and the last cell memory follow the rows of all time steps in the
    /// result.
    pub keeps: bool,
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
    /// Products of the matrices in the last two dimensions.
    MatMul {
        /// Whether the first matrix is transposed.
        first_transposed: bool,
        /// Whether the second matrix is transposed.
        transposed: bool,
        /// Factor of the products.
        scale: f32,
    },
    /// Input, mean, variance, and weight and bias if there are five; over dimension 1.
    BatchNorm {
        /// Added to the variance.
        eps: f32,
    },
    /// Input, factors, offsets: `x * factor + offset` over dimension 1.
    ChannelAffine,
    /// Input, and weight and bias if there are three; over the last `dims` dimensions.
    LayerNorm {
        /// Number of dimensions of a row.
        dims: usize,
        /// Added to the variance.
        eps: f32,
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
            | Self::Resample { .. } => true,
            Self::Fused(_)
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
                | Self::MatMul { .. }
                | Self::Binary(_)
                | Self::Unary(_)
                | Self::ChannelAffine
                | Self::LayerNorm { .. }
                | Self::AdaptiveAvgPool
        )
    }
}

/// An epilogue: it is applied to a result before that is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Epilogue {
    /// A value of the same shape is added.
    Add(ValueId),
    /// A function of each element.
    Unary(Unary),
}

/// One step of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The operator.
    pub op: Op,
    /// The operands.
    pub inputs: SmallVec<[ValueId; 4]>,
    /// The epilogues, in order.
    pub epilogues: SmallVec<[Epilogue; 2]>,
    /// The result.
    pub output: ValueId,
    /// The node of the graph that it was lowered from.
    pub node: NodeId,
}

impl Step {
    /// Number of steps, with those of micro-batches.
    pub(crate) fn count(&self) -> usize {
        match &self.op {
            Op::BatchTiling(tiling) => tiling.body.step_count(),
            _ => 1,
        }
    }

    /// The weight and bias of a layer, which are packed if they are known before the program runs.
    pub(crate) fn weights(&self) -> &[ValueId] {
        match self.op {
            Op::ChannelScaledConv(_) => &self.inputs[1..3],
            Op::Recurrent(ref own) => &self.inputs[1..2 + usize::from(own.bias)],
            _ => &self.inputs[1..],
        }
    }

    /// The values of [`reads`](Self::reads), to be replaced.
    pub(crate) fn reads_mut(&mut self) -> impl Iterator<Item = &mut ValueId> {
        let added = self
            .epilogues
            .iter_mut()
            .filter_map(|epilogue| match epilogue {
                Epilogue::Add(value) => Some(value),
                Epilogue::Unary(_) => None,
            });
        self.inputs.iter_mut().chain(added)
    }

    /// All values that the step reads: its inputs, and those that its epilogues add.
    pub fn reads(&self) -> impl Iterator<Item = ValueId> + '_ {
        let added = self.epilogues.iter().filter_map(|epilogue| match epilogue {
            Epilogue::Add(value) => Some(*value),
            Epilogue::Unary(_) => None,
        });
        self.inputs.iter().copied().chain(added)
    }
}
