//! The contents of a configuration.

use corsac_ir::{DType, Graph};

use crate::error::{ConfigError, Position, WriteError};
use crate::literal::Literal;
use crate::policy::Policy;
use crate::{read_document, read_graph, write};

/// The notation of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A text of its own, for people; usually in a file `*.graph`.
    Graph,
    /// TOML 1.1.
    Toml,
    /// JSON, with comments allowed.
    Json,
}

/// A model: its modules, its own tensors, its inputs, and its graph.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The name of the model's class, if one is given.
    pub name: Option<String>,
    /// The modules, in order.
    pub modules: Vec<ModuleSpec>,
    /// Parameters and buffers outside of modules, in order.
    pub tensors: Vec<TensorSpec>,
    /// The inputs, in order; each is a placeholder of the graph.
    pub inputs: Vec<Input>,
    /// The computation. Functions have their qualified names.
    pub graph: Graph,
    /// The functions that the graph calls and the place where each is first named.
    pub functions: Vec<(String, Position)>,
}

impl Config {
    /// Reads a configuration that calls operators of PyTorch only.
    ///
    /// # Errors
    /// If the text is no configuration, with the place of the fault and the text expected there.
    pub fn read(text: &str, format: Format) -> Result<Self, ConfigError> {
        Self::read_with(text, format, &Policy::default())
    }

    /// Reads a configuration that may call everything that `policy` allows.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn read_with(text: &str, format: Format, policy: &Policy) -> Result<Self, ConfigError> {
        match format {
            Format::Graph => read_graph::read(text, policy),
            Format::Toml | Format::Json => read_document::read(text, format, policy),
        }
    }

    /// Writes the configuration. Reading it again gives the same graph, but for the names of
    /// placeholders and outputs, and for values that only a host understands.
    ///
    /// # Errors
    /// If the graph holds a value or name that a configuration has no notation for.
    pub fn write(&self, format: Format) -> Result<String, WriteError> {
        write::write(self, format)
    }
}

/// A module, with the arguments of its construction.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleSpec {
    /// The qualified name under which the model has it: `layer1.0.conv`.
    pub path: String,
    /// The class: a name of `torch.nn`, or one that the caller allows.
    pub class: String,
    /// Positional arguments of the constructor.
    pub args: Vec<Literal>,
    /// Keyword arguments of the constructor, in order.
    pub kwargs: Vec<(String, Literal)>,
    /// The place of its declaration.
    pub position: Position,
}

/// The initial value of a tensor.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Initial {
    /// Zeros.
    Zeros,
    /// Ones.
    Ones,
    /// Independent samples of the standard normal distribution.
    Normal,
    /// These elements, in row-major order.
    Elements(Vec<Literal>),
}

impl Initial {
    /// The initial value called `word`.
    pub(crate) fn named(word: &str) -> Option<Self> {
        match word {
            "zeros" => Some(Self::Zeros),
            "ones" => Some(Self::Ones),
            "normal" => Some(Self::Normal),
            _ => None,
        }
    }

    /// The word for it, as [`Initial::named`] takes it; `None` for elements.
    #[must_use]
    pub fn word(&self) -> Option<&'static str> {
        match self {
            Self::Zeros => Some("zeros"),
            Self::Ones => Some("ones"),
            Self::Normal => Some("normal"),
            Self::Elements(_) => None,
        }
    }
}

/// A parameter or buffer that belongs to no declared module.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// The qualified name under which the model has it.
    pub path: String,
    /// Whether it is a parameter, which is trained; else it is a buffer.
    pub parameter: bool,
    /// The element type.
    pub dtype: DType,
    /// The shape.
    pub shape: Vec<u64>,
    /// The initial value.
    pub initial: Initial,
    /// The place of its declaration.
    pub position: Position,
}

/// An input of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The name of the parameter of `forward`.
    pub name: String,
    /// Its element type and shape in an example, if given; `None` in a shape is any size.
    pub example: Option<(DType, Vec<Option<u64>>)>,
    /// Its default value, if it has one.
    pub default: Option<Literal>,
    /// The place of its declaration.
    pub position: Position,
}
