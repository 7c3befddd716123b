//! Steps, and what they compute.

use corsac_ir::NodeId;
use smallvec::SmallVec;

use crate::general::General;
use crate::kernels::blocked::reorder::Order;
use crate::kernels::fused::Fused;
use crate::portions::Portions;

use super::{Binary, Reduction, Unary, ValueId};

/// How a weight is computed from weights. A batch norm stands as mean, variance, and weight and bias
/// if it has them; the number is what is added to the variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Recipe {
    /// A convolution's weight times the factors of the norm after it.
    NormWeight(f32),
    /// A convolution's bias times the factors of the norm after it, plus its offsets.
    NormBias(f32),
    /// The factors of a norm.
    NormScale(f32),
    /// The offsets of a norm.
    NormOffset(f32),
    /// A matrix with its columns as rows.
    Transpose,
    /// The weight or bias of a layer, each channel of its results times a factor.
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
    /// Into how many parts channels are divided that do not see each other.
    pub groups: usize,
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

/// Elements of a value, as a tensor of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Where the first element is.
    pub offset: usize,
    /// Its sizes.
    pub shape: SmallVec<[usize; 6]>,
    /// Elements from one to the next along each dimension.
    pub strides: SmallVec<[usize; 6]>,
}

/// `softmax(query @ key.T * scale + mask) @ value`, for stacks of matrices of which those with fewer
/// are repeated.
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
    /// What products are multiplied by.
    pub scale: f32,
    /// Whether a query sees no keys that come after it.
    pub causal: bool,
    /// Whether rows of which nothing is seen are zero; NaN otherwise.
    pub safe: bool,
}

/// What a recurrent layer does in a time step.
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
    /// How many numbers a state has for each of its own.
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
    /// What it does.
    pub cell: Cell,
    /// How many rows the state has: those of the first time step.
    pub batch: usize,
    /// How many numbers a gate has.
    pub hidden: usize,
    /// How many a row of the state has.
    pub width: usize,
    /// Whether the last time step comes first.
    pub reverse: bool,
    /// Whether there is a bias.
    pub bias: bool,
    /// Whether the last input says how many rows each time step has; otherwise all have as many.
    pub varies: bool,
    /// Whether the last state and the last memory follow the rows of all time steps.
    pub keeps: bool,
}

/// What a step computes of its inputs.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Image, weight, and bias if there are three.
    Conv(Conv),
    /// Image, weight, bias, and a number for each channel of the image that it is multiplied by; of single
    /// pixels, and in blocks.
    GatedConv(Conv),
    /// `x @ weight.T`, with a bias if there are three inputs.
    Linear,
    /// Products of the matrices in the last two dimensions; transposed if so said.
    MatMul {
        /// Whether the first has its columns in rows.
        first_transposed: bool,
        /// Whether the second has.
        transposed: bool,
        /// What products are multiplied by.
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
        /// How many dimensions a row has.
        dims: usize,
        /// Added to the variance.
        eps: f32,
        /// Whether the first input after `x` is a weight.
        weight: bool,
        /// Whether the last input is a bias.
        bias: bool,
    },
    /// Of each element.
    Unary(Unary),
    /// Of each pair of elements, after broadcasting.
    Binary(Binary),
    /// Several functions of elements, and reductions of rows, done a tile at a time.
    Fused(Box<Fused>),
    /// The largest of each window.
    MaxPool(Pool),
    /// The mean of each window.
    AvgPool {
        /// The windows.
        pool: Pool,
        /// Whether zeros outside the image count.
        count_padding: bool,
        /// What sums are divided by instead of the number of elements.
        divisor: Option<usize>,
    },
    /// Means of windows that make the image as large as the result.
    AdaptiveAvgPool,
    /// Along dimensions, which stay with size 1 or go.
    Reduce {
        /// What is computed.
        reduction: Reduction,
        /// Which dimensions.
        dims: SmallVec<[usize; 4]>,
    },
    /// Along a dimension.
    Softmax {
        /// Which one.
        dim: usize,
        /// Whether the logarithm of it is meant.
        log: bool,
    },
    /// Queries, keys and values, and what is added to scores if there are four.
    Attention(Box<Attention>),
    /// A view, copied: an element of the result lies `offset` plus its indices times `strides`
    /// from the first one of the input.
    Copy {
        /// Where the first element is.
        offset: usize,
        /// Steps along the dimensions of the result.
        strides: SmallVec<[isize; 6]>,
    },
    /// What the gates get of the inputs, the weight of the state, its bias, the state, what cells remember if they do,
    /// the weight of a projection if the state is narrower than the gates, and integers: how many rows each time step
    /// has. A vector: the rows of all time steps, and the last state and memory if they are kept.
    Recurrent(Recurrent),
    /// One behind the other along a dimension.
    Concat {
        /// Which one.
        dim: usize,
    },
    /// What [`general`](crate::general) computes: operators over all types of elements.
    General(General),
    /// An image, into blocks of channels.
    ToBlocks(Order),
    /// An image, out of blocks of channels.
    FromBlocks(Order),
    /// What several steps compute, for a part of the batch at a time.
    Portions(Box<Portions>),
    /// Surrounded by a number.
    Pad {
        /// Elements before and after, by dimension.
        widths: SmallVec<[[usize; 2]; 6]>,
        /// The number.
        value: f32,
    },
}

/// What is done to a result before it is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Post {
    /// A value of the same shape is added.
    Add(ValueId),
    /// Of each element.
    Unary(Unary),
}

/// One step of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What it computes.
    pub op: Op,
    /// What it computes it of.
    pub inputs: SmallVec<[ValueId; 4]>,
    /// What is done to the result.
    pub post: SmallVec<[Post; 2]>,
    /// What it is called.
    pub output: ValueId,
    /// The node of the graph that asked for it.
    pub node: NodeId,
}

impl Step {
    /// How many steps it stands for.
    pub(crate) fn count(&self) -> usize {
        match &self.op {
            Op::Portions(portions) => portions.body.step_count(),
            _ => 1,
        }
    }

    /// The weight and bias of a layer: what is packed, if it is known before the program runs.
    pub(crate) fn weights(&self) -> &[ValueId] {
        match self.op {
            Op::GatedConv(_) => &self.inputs[1..3],
            Op::Recurrent(ref own) => &self.inputs[1..2 + usize::from(own.bias)],
            _ => &self.inputs[1..],
        }
    }

    /// The same as [`reads`](Self::reads), to replace them.
    pub(crate) fn reads_mut(&mut self) -> impl Iterator<Item = &mut ValueId> {
        let added = self.post.iter_mut().filter_map(|post| match post {
            Post::Add(value) => Some(value),
            Post::Unary(_) => None,
        });
        self.inputs.iter_mut().chain(added)
    }

    /// All values that it reads.
    pub fn reads(&self) -> impl Iterator<Item = ValueId> + '_ {
        let added = self.post.iter().filter_map(|post| match post {
            Post::Add(value) => Some(*value),
            Post::Unary(_) => None,
        });
        self.inputs.iter().copied().chain(added)
    }
}
