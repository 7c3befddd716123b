//! Steps and their operators.

use corsac_ir::NodeId;
use smallvec::SmallVec;

use super::fused::Fused;
use super::{Binary, Generic, Program, Reduction, Unary, ValueId};

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

/// A convolution in two dimensions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    /// Rows and columns from one window to the next.
    pub stride: [usize; 2],
    /// Zeros above and left of the image, below and right of it.
    pub padding: [[usize; 2]; 2],
    /// Rows and columns from one element of the kernel to the next.
    pub dilation: [usize; 2],
    /// Number of groups of channels that are independent of each other.
    pub groups: usize,
}

/// Shapes of a convolution.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvShape {
    /// Images.
    pub batch: usize,
    /// Channels, rows and columns of an image.
    pub input: [usize; 3],
    /// Channels, rows and columns of a result.
    pub output: [usize; 3],
    /// Rows and columns of the kernel.
    pub kernel: [usize; 2],
    /// Stride, padding, dilation and groups.
    pub conv: Conv,
}

impl ConvShape {
    /// The shapes of a step that is a convolution.
    pub(crate) fn of(program: &Program, step: &Step) -> Self {
        let (Op::Conv(conv) | Op::ChannelScaledConv(conv)) = &step.op else {
            unreachable!("only convolutions have these shapes")
        };
        let (image, kernel) = (program.shape(step.inputs[0]), program.shape(step.inputs[1]));
        let out = program.shape(step.output);
        let out = &out[out.len() - 3..];
        Self {
            batch: image[0],
            input: [image[1], image[2], image[3]],
            output: [kernel[0], out[1], out[2]],
            kernel: [kernel[2], kernel[3]],
            conv: conv.clone(),
        }
    }
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
        strides: SmallVec<[isize; 6]>,
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
    /// An operator over elements of any type, see [`Generic`].
    Generic(Generic),
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
        value: f32,
    },
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
