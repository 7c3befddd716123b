//! Programs: steps of a small set of operators over numbered values.

pub(crate) mod arithmetic;
mod attention;
mod broadcast;
mod control;
mod conv;
mod float;
mod function;
pub mod fused;
mod indexing;
mod op;
mod recurrent;
mod scalar;
mod step;
mod text;

use corsac_ir::DType;
use rustc_hash::FxHashSet;

pub use arithmetic::Arithmetic;
pub use attention::{Attention, View};
pub use control::{Control, Flow};
pub use conv::{Conv, ConvNd, ConvShape};
pub use float::Float;
pub use function::{Binary, Comparison, Half, Levels, Reduction, Rounding, Ternary, Unary};
pub use indexing::{Combination, IndexPut};
pub use op::{
    AddLevels, BatchTiling, Op, Order, Pool, Quantised, QuantisedLayer, Sharing, Strides, Taps,
    WeightTransform,
};
pub(crate) use recurrent::{Cell, Recurrent};
pub use scalar::Scalar;
pub(crate) use scalar::float_to_int;
pub use step::{Epilogue, Step};

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

/// Origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The input with this number.
    Input(usize),
    /// The weight with this number, as the host counts them.
    Weight(usize),
    /// Computed from weights before the program runs, by the transform with this number.
    Transformed(usize),
    /// The result of a step.
    Step,
    /// Another value under another shape.
    Alias(ValueId),
}

/// Type of the elements of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// Bytes: truth values, 0 or 1, or within a program levels of quantised numbers.
    Bool,
    /// Integers of 64 bits.
    I64,
    /// Floating-point numbers of 32 bits.
    #[default]
    F32,
    /// Floating-point numbers of 64 bits.
    F64,
}

impl Element {
    /// Bytes of an element.
    #[must_use]
    pub fn size_bytes(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::I64 | Self::F64 => 8,
            Self::F32 => 4,
        }
    }

    /// The PyTorch name of the type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I64 => "int64",
            Self::F32 => "float32",
            Self::F64 => "float64",
        }
    }

    /// Whether elements are floating-point numbers.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}

/// Precision of the products of convolutions and linear layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Numbers of 32 bits.
    #[default]
    F32,
    /// Numbers rounded to bfloat16, with sums of 32 bits, where the processor
    /// [multiplies them](corsac_kernels::bf16_unit); elsewhere the same as [`F32`](Self::F32).
    Bf16,
}

impl Precision {
    /// The lower of two.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match self {
            Self::F32 => other,
            Self::Bf16 => self,
        }
    }
}

/// Layout of the elements of a value in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Row by row.
    #[default]
    Rows,
    /// An image in [blocks of channels](crate::kernels::blocked).
    Blocks,
    /// An image of bytes, pixel by pixel, [filled up](crate::kernels::int8::levels) to whole quads.
    Pixels,
}

/// Number of channels of a block.
pub const BLOCK: usize = 16;

/// Bytes that are multiplied at a time.
pub(crate) const QUAD: usize = corsac_kernels::int8_unit::QUAD;

/// Number of elements of the blocks of an image `[batch, channels, rows, columns]`.
#[must_use]
pub(crate) fn stored_len(shape: &[usize]) -> usize {
    match shape {
        [batch, channels, rows, columns] => {
            batch * channels.next_multiple_of(BLOCK) * rows * columns
        }
        _ => shape.iter().product(),
    }
}

/// Properties of a value that are known before the program runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueInfo {
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Type of its elements.
    pub element: Element,
    /// Layout of its elements.
    pub layout: Layout,
    /// Its origin.
    pub source: Source,
}

impl ValueInfo {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Number of elements in memory, with the padding of blocks.
    #[must_use]
    pub fn stored_len(&self) -> usize {
        match self.layout {
            Layout::Rows => self.len(),
            Layout::Blocks => stored_len(&self.shape),
            Layout::Pixels => match self.shape[..] {
                [batch, channels, rows, columns] => {
                    batch * rows * columns * channels.next_multiple_of(QUAD)
                }
                _ => self.len(),
            },
        }
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Structure of the results that the caller gets: tensors and constants, in containers.
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
    /// The same in each call.
    Constant(Constant),
}

/// A result that is no tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// `None`
    None,
    /// `True` or `False`
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A text.
    Str(String),
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
            Self::Input(_) | Self::Constant(_) => {}
        }
    }
}

/// Steps over values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Precision of the products of all convolutions and linear layers; see [`products`](Self::products).
    pub precision: Precision,
    /// Whether weights of linear layers are packed for any number of rows, so that programs for other sizes
    /// share them.
    pub any_rows: bool,
    /// Weights of bfloat16 in layers, whose inputs are rounded to it, too.
    pub rounded: FxHashSet<ValueId>,
    /// All values.
    pub values: Vec<ValueInfo>,
    /// Transforms of weights that are computed from others, with their inputs.
    pub weight_transforms: Vec<(WeightTransform, Vec<ValueId>)>,
    /// Number of inputs.
    pub inputs: usize,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The results.
    pub output: Option<Output>,
    /// The inputs that the program writes to, by number, and the values that they hold at the end.
    pub written: Vec<(usize, ValueId)>,
    /// PyTorch types of the inputs, in order: one [element type](Element) holds several.
    pub input_dtypes: Vec<DType>,
    /// PyTorch types of the results, in order.
    pub output_dtypes: Vec<DType>,
}

impl Program {
    /// Properties of `value`.
    #[must_use]
    pub fn value(&self, value: ValueId) -> &ValueInfo {
        &self.values[value.index()]
    }

    /// Sizes of `value`.
    #[must_use]
    pub fn shape(&self, value: ValueId) -> &[usize] {
        &self.value(value).shape
    }

    /// The value in whose memory `value` lies: itself, unless it is an alias.
    #[must_use]
    pub fn root(&self, mut value: ValueId) -> ValueId {
        while let Source::Alias(of) = self.value(value).source {
            value = of;
        }
        value
    }

    /// Whether `value` is known before the program runs: a weight, or computed from weights.
    pub(crate) fn is_weight(&self, value: ValueId) -> bool {
        let source = self.value(self.root(value)).source;
        matches!(source, Source::Weight(_) | Source::Transformed(_))
    }

    /// Number of rows of a linear layer with this many inputs.
    pub(crate) fn linear_rows(&self, step: &Step, inputs: usize) -> usize {
        self.value(step.inputs[0]).len() / inputs.max(1)
    }

    /// The number of rows for which the weight of a linear layer is packed that has this many.
    pub(crate) fn packed_rows(&self, rows: usize) -> usize {
        if self.any_rows { usize::MAX } else { rows }
    }

    /// Whether the weight of a linear layer is made from integers, and is as it is made.
    pub(crate) fn has_integers(&self, step: &Step) -> bool {
        let weight = step.inputs[1];
        let whole = self.shape(self.root(weight)) == self.shape(weight);
        whole && self.dequantised(weight).is_some()
    }

    /// The format and the inputs of the [transform](WeightTransform::Dequantise) that makes a weight of
    /// integers.
    pub(crate) fn dequantised(&self, value: ValueId) -> Option<(Quantised, &[ValueId])> {
        match self.value(self.root(value)).source {
            Source::Transformed(number) => {
                let (transform, inputs) = &self.weight_transforms[number];
                Some((transform.quantised()?, inputs))
            }
            _ => None,
        }
    }

    /// Precision of the products of `step`: that of its weight, or of the program.
    #[must_use]
    pub fn products(&self, step: &Step) -> Precision {
        match (&step.op, step.inputs.get(1)) {
            (Op::Linear | Op::Conv(_) | Op::ChannelScaledConv(_), Some(&weight))
                if self.is_rounded(weight) =>
            {
                Precision::Bf16
            }
            _ => self.precision,
        }
    }

    fn is_rounded(&self, weight: ValueId) -> bool {
        self.rounded
            .contains(&self.root(self.untransposed(weight).0))
    }

    /// The matrix that `value` is the transpose of, and true; otherwise `value` and false.
    pub(crate) fn untransposed(&self, value: ValueId) -> (ValueId, bool) {
        match self.value(self.root(value)).source {
            Source::Transformed(number) => match &self.weight_transforms[number] {
                (WeightTransform::Transpose, of) => (of[0], true),
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

    /// All values that a run leaves: the tensors that the caller gets, and the final values of
    /// [written](Self::written) inputs.
    #[must_use]
    pub fn results(&self) -> Vec<ValueId> {
        let mut values = self.outputs();
        values.extend(self.written.iter().map(|&(_, value)| value));
        values
    }

    /// Whether any byte that is not 0 may stand for true in a boolean input.
    #[must_use]
    pub fn takes_any_bytes(&self, input: usize) -> bool {
        let is_own = |value: &ValueId| self.value(self.root(*value)).source == Source::Input(input);
        !self.results().iter().any(is_own)
            && self.steps.iter().all(|step| match &step.op {
                Op::Fused(_) | Op::Not => true,
                Op::Where => !step.inputs.iter().skip(1).any(is_own),
                _ => !step.reads().any(|value| is_own(&value)),
            })
    }

    /// The number of the result that is the final value of an input, if the input is written to.
    pub(crate) fn result_of_input(&self, input: usize) -> Option<usize> {
        let at = self.written.iter().position(|&(own, _)| own == input)?;
        Some(self.results().len() - self.written.len() + at)
    }

    pub(crate) fn add_transformed(
        &mut self,
        transform: WeightTransform,
        inputs: Vec<ValueId>,
        shape: Vec<usize>,
    ) -> ValueId {
        let element = match transform {
            WeightTransform::Transpose => self.element(inputs[0]),
            _ => Element::F32,
        };
        self.weight_transforms.push((transform, inputs));
        let source = Source::Transformed(self.weight_transforms.len() - 1);
        self.add_typed(element, shape, source)
    }

    pub(crate) fn add_value(&mut self, shape: Vec<usize>, source: Source) -> ValueId {
        self.add_typed(Element::F32, shape, source)
    }

    /// Adds a value in blocks of channels that a step computes.
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

    /// Type of the elements of `value`.
    #[must_use]
    pub fn element(&self, value: ValueId) -> Element {
        self.value(value).element
    }
}
