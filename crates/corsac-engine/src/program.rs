//! Programs: steps of a small set of operators over numbered values.

use std::fmt;

use corsac_ir::{DType, NodeId};
use corsac_kernels::amx::Amx;
use smallvec::SmallVec;

use crate::general::General;
use crate::kernels::blocked::reorder::Order;
use crate::kernels::blocked::stored_len;
use crate::kernels::fused::Fused;
use crate::portions::Portions;

/// A value of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(u32);

impl ValueId {
    pub(crate) fn new(index: usize) -> Self {
        // A program has fewer values than its graph has nodes, which are numbered by 32 bits.
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// Its number.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// It is the input with this number.
    Input(usize),
    /// It is the weight with this number, as the host counts them.
    Weight(usize),
    /// It is computed from weights before the program runs, by the recipe with this number.
    Derived(usize),
    /// A step computes it.
    Step,
    /// It is another value under another shape.
    Alias(ValueId),
}

/// What a value is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// Truth values: bytes that are 0 or 1.
    Bool,
    /// Integers of 64 bits.
    I64,
    /// Floating-point numbers of 32 bits.
    #[default]
    F32,
}

impl Element {
    /// How many bytes one takes.
    #[must_use]
    pub fn size_bytes(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::I64 => 8,
            Self::F32 => 4,
        }
    }

    /// PyTorch's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I64 => "int64",
            Self::F32 => "float32",
        }
    }
}

/// With what convolutions and linear layers multiply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Numbers of 32 bits.
    #[default]
    F32,
    /// Numbers rounded to bfloat16, with sums of 32 bits, where the processor multiplies them in
    /// [tiles](corsac_kernels::amx); elsewhere as [`F32`](Self::F32).
    Bf16,
}

impl Precision {
    /// The right to use tiles, if they are wanted and there are any.
    pub(crate) fn amx(self) -> Option<Amx> {
        match self {
            Self::F32 => None,
            Self::Bf16 => Amx::detect(),
        }
    }

    /// What is meant here: bfloat16 where there are tiles.
    #[must_use]
    pub fn effective(self) -> Self {
        self.amx().map_or(Self::F32, |_| self)
    }
}

/// How the elements of a value lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Row by row.
    #[default]
    Rows,
    /// An image in [blocks of channels](crate::kernels::blocked).
    Blocks,
}

/// What is known of a value before the program runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueInfo {
    /// Its sizes.
    pub shape: Vec<usize>,
    /// What it is made of.
    pub element: Element,
    /// How its elements lie.
    pub layout: Layout,
    /// Where it comes from.
    pub source: Source,
}

impl ValueInfo {
    /// How many elements it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// How many elements it takes in memory.
    #[must_use]
    pub fn stored_len(&self) -> usize {
        match self.layout {
            Layout::Rows => self.len(),
            Layout::Blocks => stored_len(&self.shape),
        }
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Functions of one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// `max(x, 0)`, NaN for NaN
    Relu,
    /// `min(max(x, low), high)`
    Clamp(f32, f32),
    /// `x` if positive, otherwise times the slope
    LeakyRelu(f32),
    /// `x` if positive, otherwise `alpha * (exp(x) - 1)`
    Elu(f32),
    /// `x * min(max(x + 3, 0), 6) / 6`
    Hardswish,
    /// `min(max(x + 3, 0), 6) / 6`
    Hardsigmoid,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// `x * sigmoid(x)`
    Silu,
    /// Hyperbolic tangent.
    Tanh,
    /// `x * Φ(x)`, by the error function
    Gelu,
    /// `gelu` by its approximation with the hyperbolic tangent
    GeluTanh,
    /// The error function.
    Erf,
    /// Exponential function.
    Exp,
    /// Natural logarithm.
    Log,
    /// Square root.
    Sqrt,
    /// One over the square root.
    Rsqrt,
    /// Absolute value.
    Abs,
    /// `scale * x + offset`. Adding -0.0 changes nothing, not even the sign of a zero.
    Affine(f32, f32),
    /// `x / divisor`
    DivideBy(f32),
    /// `x ** exponent`
    Power(f32),
    /// `numerator / x`
    DivideInto(f32),
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// Tangent.
    Tan,
    /// Inverse sine.
    Asin,
    /// Inverse cosine.
    Acos,
    /// Inverse tangent.
    Atan,
    /// Hyperbolic sine.
    Sinh,
    /// Hyperbolic cosine.
    Cosh,
    /// Inverse hyperbolic sine.
    Asinh,
    /// Inverse hyperbolic cosine.
    Acosh,
    /// Inverse hyperbolic tangent.
    Atanh,
    /// `2 ** x`
    Exp2,
    /// `exp(x) - 1`
    Expm1,
    /// `log(1 + x)`
    Log1p,
    /// Logarithm to base 2.
    Log2,
    /// Logarithm to base 10.
    Log10,
    /// The next integer below.
    Floor,
    /// The next integer above.
    Ceil,
    /// The nearest integer, the even one of two.
    Round,
    /// The next integer towards zero.
    Trunc,
    /// What is behind the point.
    Frac,
    /// -1, 0 or 1.
    Sign,
    /// `log(1 + exp(beta * x)) / beta`; `x` where `beta * x` is larger than the threshold.
    Softplus(f32, f32),
    /// `x * tanh(softplus(x))`
    Mish,
    /// `x / (1 + |x|)`
    Softsign,
    /// `log(sigmoid(x))`
    LogSigmoid,
    /// `x` moved towards zero, as far as it is.
    Softshrink(f32),
    /// `x`; 0 within this distance of it.
    Hardshrink(f32),
    /// `x - tanh(x)`
    Tanhshrink,
    /// `x` above the first number, otherwise the second.
    Threshold(f32, f32),
    /// `max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))`
    Celu(f32),
}

impl Unary {
    /// `factor * x`, with the sign that PyTorch gives a zero.
    #[must_use]
    pub fn scale(factor: f32) -> Self {
        Self::Affine(factor, -0.0)
    }

    /// `x / divisor`: a product where that is the same.
    #[must_use]
    pub fn divide_by(divisor: f32) -> Self {
        let factor = 1.0 / divisor;
        // A power of two, whose fraction has no bits, and whose inverse is one.
        let is_exact = divisor.to_bits() << 9 == 0 && divisor.is_normal() && factor.is_normal();
        match is_exact {
            true => Self::scale(factor),
            false => Self::DivideBy(divisor),
        }
    }
}

/// Functions of two numbers, over tensors of broadcast shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`
    Div,
    /// The larger one, NaN if one is.
    Maximum,
    /// The smaller one, NaN if one is.
    Minimum,
    /// The first if it is positive, otherwise their product.
    Prelu,
}

/// What is computed of the elements along some dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

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

/// What the caller gets: tensors, in containers.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A tensor.
    Value(ValueId),
    /// A tuple.
    Tuple(Vec<Output>),
    /// A list.
    List(Vec<Output>),
    /// A dictionary.
    Dict(Vec<(String, Output)>),
    /// The input with this number itself.
    Input(usize),
    /// No tensor.
    None,
}

impl Output {
    /// Calls `visit` with each tensor in order.
    pub fn for_each(&self, visit: &mut dyn FnMut(ValueId)) {
        match self {
            Self::Value(value) => visit(*value),
            Self::Tuple(items) | Self::List(items) => {
                items.iter().for_each(|item| item.for_each(visit));
            }
            Self::Dict(entries) => entries.iter().for_each(|(_, item)| item.for_each(visit)),
            Self::Input(_) | Self::None => {}
        }
    }
}

/// Steps over values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// With what convolutions and linear layers multiply.
    pub precision: Precision,
    /// All values.
    pub values: Vec<ValueInfo>,
    /// How weights are made of weights.
    pub recipes: Vec<(Recipe, Vec<ValueId>)>,
    /// How many inputs there are.
    pub inputs: usize,
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// What comes of it.
    pub output: Option<Output>,
    /// The inputs that it writes to, by number, and what they hold in the end.
    pub written: Vec<(usize, ValueId)>,
    /// What inputs are for the caller, in order: [elements](Element) hold several types.
    pub input_dtypes: Vec<DType>,
    /// The same for the results.
    pub output_dtypes: Vec<DType>,
}

impl Program {
    /// What is known of `value`.
    #[must_use]
    pub fn value(&self, value: ValueId) -> &ValueInfo {
        &self.values[value.index()]
    }

    /// Its sizes.
    #[must_use]
    pub fn shape(&self, value: ValueId) -> &[usize] {
        &self.value(value).shape
    }

    /// The value that `value` lies in: itself, unless it is an alias.
    #[must_use]
    pub fn root(&self, mut value: ValueId) -> ValueId {
        while let Source::Alias(of) = self.value(value).source {
            value = of;
        }
        value
    }

    /// Whether `value` is there before the program runs: a weight, or made of weights.
    pub(crate) fn is_weight(&self, value: ValueId) -> bool {
        let source = self.value(self.root(value)).source;
        matches!(source, Source::Weight(_) | Source::Derived(_))
    }

    /// The matrix that `value` is the transposed of, and true; `value` and false if it is made otherwise.
    pub(crate) fn untransposed(&self, value: ValueId) -> (ValueId, bool) {
        match self.value(self.root(value)).source {
            Source::Derived(number) => match &self.recipes[number] {
                (Recipe::Transpose, of) => (of[0], true),
                _ => (value, false),
            },
            _ => (value, false),
        }
    }

    /// The tensors that the caller gets, in order.
    #[must_use]
    pub fn outputs(&self) -> Vec<ValueId> {
        let mut values = Vec::new();
        if let Some(output) = &self.output {
            output.for_each(&mut |value| values.push(value));
        }
        values
    }

    /// All that is there when it has run: what the caller gets, and what [written](Self::written) inputs hold.
    #[must_use]
    pub fn results(&self) -> Vec<ValueId> {
        let mut values = self.outputs();
        values.extend(self.written.iter().map(|&(_, value)| value));
        values
    }

    /// Whether all that is done with an input of truth values is the same for any byte that is not 0.
    #[must_use]
    pub fn takes_any_bytes(&self, input: usize) -> bool {
        let is_own = |value: &ValueId| self.value(self.root(*value)).source == Source::Input(input);
        !self.results().iter().any(is_own)
            && self.steps.iter().all(|step| match &step.op {
                Op::Fused(_) | Op::General(General::Not) => true,
                Op::General(General::Where) => !step.inputs.iter().skip(1).any(is_own),
                _ => !step.reads().any(|value| is_own(&value)),
            })
    }

    /// The number of the result in whose memory an input lies that is written to.
    pub(crate) fn result_of_input(&self, input: usize) -> Option<usize> {
        let at = self.written.iter().position(|&(own, _)| own == input)?;
        Some(self.results().len() - self.written.len() + at)
    }

    pub(crate) fn add_derived(
        &mut self,
        recipe: Recipe,
        inputs: Vec<ValueId>,
        shape: Vec<usize>,
    ) -> ValueId {
        self.recipes.push((recipe, inputs));
        self.add_value(shape, Source::Derived(self.recipes.len() - 1))
    }

    pub(crate) fn add_value(&mut self, shape: Vec<usize>, source: Source) -> ValueId {
        self.add_typed(Element::F32, shape, source)
    }

    /// A value that lies in blocks of channels.
    pub(crate) fn add_blocks(&mut self, shape: Vec<usize>) -> ValueId {
        let value = self.add_value(shape, Source::Step);
        self.values[value.index()].layout = Layout::Blocks;
        value
    }

    pub(crate) fn add_typed(
        &mut self,
        element: Element,
        shape: Vec<usize>,
        source: Source,
    ) -> ValueId {
        self.values.push(ValueInfo {
            shape,
            element,
            layout: Layout::Rows,
            source,
        });
        ValueId::new(self.values.len() - 1)
    }

    /// What it is made of.
    #[must_use]
    pub fn element(&self, value: ValueId) -> Element {
        self.value(value).element
    }
}

impl Program {
    /// How many steps there are, with those that are done in portions of the batch.
    #[must_use]
    pub fn step_count(&self) -> usize {
        self.steps.iter().map(Step::count).sum()
    }

    /// All steps in order, a line of text each, with those that are done in portions of the batch.
    #[must_use]
    pub fn all_steps(&self) -> Vec<String> {
        let mut lines = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            match &step.op {
                Op::Portions(portions) => {
                    let inner = portions.body.all_steps().into_iter();
                    let count = portions.count;
                    lines.extend(inner.map(|line| format!("{line}, {count} times")));
                }
                _ => lines.push(self.line(step)),
            }
        }
        lines
    }

    fn name(&self, value: ValueId) -> String {
        match self.value(self.root(value)).source {
            Source::Input(number) => format!("in{number}"),
            Source::Weight(number) => format!("w{number}"),
            Source::Derived(number) => format!("d{number}"),
            Source::Step | Source::Alias(_) => format!("%{}", self.root(value).index()),
        }
    }

    /// A step as a line of text.
    #[must_use]
    pub fn line(&self, step: &Step) -> String {
        let inputs: Vec<String> = step.inputs.iter().map(|&v| self.name(v)).collect();
        let mut line = format!(
            "{}{:?}{} = {}({})",
            self.name(step.output),
            self.shape(step.output),
            match self.value(step.output).layout {
                Layout::Rows => "",
                Layout::Blocks => " in blocks",
            },
            step.op.name(),
            inputs.join(", ")
        );
        if let Op::Fused(fused) = &step.op {
            line += &format!(": {fused}");
        }
        for post in &step.post {
            line += &match post {
                Post::Add(value) => format!(" + {}", self.name(*value)),
                Post::Unary(unary) => format!(" -> {unary:?}"),
            };
        }
        line
    }
}

impl fmt::Display for Program {
    /// One line for a step: `%5[1, 64, 112, 112] = conv(%0, w0) + %3 -> relu`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.all_steps() {
            writeln!(f, "{line}")?;
        }
        let name = |value: ValueId| self.name(value);
        for &(input, value) in &self.written {
            writeln!(f, "in{input} := {}", name(value))?;
        }
        let outputs: Vec<String> = self.outputs().into_iter().map(name).collect();
        writeln!(f, "return {}", outputs.join(", "))
    }
}

impl Op {
    /// A word for it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Conv(_) => "conv",
            Self::GatedConv(_) => "gated_conv",
            Self::Linear => "linear",
            Self::MatMul { .. } => "matmul",
            Self::BatchNorm { .. } => "batch_norm",
            Self::ChannelAffine => "channel_affine",
            Self::LayerNorm { .. } => "layer_norm",
            Self::Unary(_) => "unary",
            Self::Binary(Binary::Add) => "add",
            Self::Binary(Binary::Sub) => "sub",
            Self::Binary(Binary::Mul) => "mul",
            Self::Binary(Binary::Div) => "div",
            Self::Binary(Binary::Maximum) => "maximum",
            Self::Binary(Binary::Minimum) => "minimum",
            Self::Binary(Binary::Prelu) => "prelu",
            Self::Fused(_) => "fused",
            Self::MaxPool(_) => "max_pool",
            Self::AvgPool { .. } => "avg_pool",
            Self::AdaptiveAvgPool => "adaptive_avg_pool",
            Self::Reduce { .. } => "reduce",
            Self::Softmax { log: false, .. } => "softmax",
            Self::Softmax { log: true, .. } => "log_softmax",
            Self::Attention(_) => "attention",
            Self::Copy { .. } => "copy",
            Self::Recurrent(_) => "recurrent",
            Self::Concat { .. } => "concat",
            Self::ToBlocks(_) => "to_blocks",
            Self::FromBlocks(_) => "from_blocks",
            Self::Pad { .. } => "pad",
            Self::Portions(_) => "portions",
            Self::General(general) => general.name(),
        }
    }
}
