//! Programs: steps of a small set of operators over numbered values.

mod function;
mod op;
mod text;

use corsac_ir::DType;
use corsac_kernels::amx::Amx;

use crate::general::General;
use crate::kernels::blocked::stored_len;

pub use function::{Binary, Reduction, Unary};
pub use op::{Attention, Conv, Op, Pool, Post, Recipe, Step, View};
pub(crate) use op::{Cell, Recurrent};

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
