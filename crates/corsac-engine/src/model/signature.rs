//! The inputs of a model, with sizes that may be symbols.

use std::fmt;

use corsac_ir::DType;
use smallvec::SmallVec;

use super::check::RANK;
use super::error::ModelError;
use super::size::{Size, SizeSymbol, is_name};
use super::tensor::{TensorSpec, write_spec};

/// Values of the symbols of a signature, in its order.
pub type SizeValues = SmallVec<[usize; 4]>;

/// Largest number of symbols of a model.
const MOST_SYMBOLS: usize = 64;

/// Name, element type and shape of an input, whose sizes may be symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputSpec {
    /// The name.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Its sizes, outermost dimension first.
    pub shape: Vec<Size>,
}

impl fmt::Display for InputSpec {
    /// `x: float32[batch, 3, 224, 224]`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_spec(f, &self.name, self.dtype, &self.shape)
    }
}

impl From<&TensorSpec> for InputSpec {
    fn from(spec: &TensorSpec) -> Self {
        Self {
            name: spec.name.clone(),
            dtype: spec.dtype,
            shape: spec.shape.iter().map(|&size| Size::Fixed(size)).collect(),
        }
    }
}

/// The inputs of a program and the [state](super::Session) that it reads and writes: the symbols among their sizes,
/// and the conditions on these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// The inputs, then the state.
    tensors: Vec<InputSpec>,
    /// Number of tensors among them that are state.
    state: usize,
    symbols: Vec<SizeSymbol>,
    conditions: Vec<String>,
}

impl Signature {
    /// A signature of inputs whose sizes are symbols. `conditions` are the names of nodes of the graph that
    /// have to be true.
    ///
    /// # Errors
    /// If a symbol is declared twice, is not declared, is of no input, or has no values.
    pub fn new(
        inputs: Vec<InputSpec>,
        symbols: Vec<SizeSymbol>,
        conditions: Vec<String>,
    ) -> Result<Self, ModelError> {
        Self::with_state(inputs, Vec::new(), symbols, conditions)
    }

    /// The same for a program with state: its placeholders are the inputs, and behind them the tensors of the state.
    ///
    /// # Errors
    /// As [`Signature::new`].
    pub fn with_state(
        mut inputs: Vec<InputSpec>,
        mut state: Vec<InputSpec>,
        symbols: Vec<SizeSymbol>,
        conditions: Vec<String>,
    ) -> Result<Self, ModelError> {
        let count = state.len();
        inputs.append(&mut state);
        let wrong = |name: &str, reason: &str| {
            Err(ModelError::Symbol {
                name: name.chars().take(64).collect(),
                reason: reason.to_owned(),
            })
        };
        if symbols.len() > MOST_SYMBOLS {
            return wrong(
                &symbols[MOST_SYMBOLS].name,
                "there are more than 64 symbols",
            );
        }
        let used = |name: &str| {
            let mut sizes = inputs.iter().flat_map(|input| &input.shape);
            sizes.any(|size| size.symbol() == Some(name))
        };
        for (at, symbol) in symbols.iter().enumerate() {
            let name = &symbol.name;
            if !is_name(name) {
                return wrong(name, "a name has letters, digits and underscores only");
            }
            if symbols[..at].iter().any(|other| other.name == *name) {
                return wrong(name, "it is declared twice");
            }
            if symbol.most.is_some_and(|most| most < symbol.least) {
                return wrong(name, "its largest value is below its least one");
            }
            if !used(name) {
                return wrong(name, "it is the size of no input");
            }
        }
        for size in inputs.iter().flat_map(|input| &input.shape) {
            if let Some(name) = size.symbol()
                && !symbols.iter().any(|symbol| symbol.name == name)
            {
                return wrong(name, "it is not declared");
            }
        }
        if let Some(input) = inputs.iter().find(|input| input.shape.len() > RANK) {
            return Err(ModelError::graph(
                &input.name,
                format!("a tensor of {} dimensions", input.shape.len()),
            ));
        }
        Ok(Self {
            tensors: inputs,
            state: count,
            symbols,
            conditions,
        })
    }

    /// A signature without symbols.
    #[must_use]
    pub fn fixed(inputs: &[TensorSpec]) -> Self {
        Self {
            tensors: inputs.iter().map(InputSpec::from).collect(),
            ..Self::default()
        }
    }

    /// The inputs, in order.
    #[must_use]
    pub fn inputs(&self) -> &[InputSpec] {
        &self.tensors[..self.tensors.len() - self.state]
    }

    /// The state that the program reads or writes, in the order of its placeholders.
    #[must_use]
    pub fn state(&self) -> &[InputSpec] {
        &self.tensors[self.tensors.len() - self.state..]
    }

    /// The inputs, and behind them the state.
    pub(super) fn tensors(&self) -> &[InputSpec] {
        &self.tensors
    }

    /// The symbols.
    #[must_use]
    pub fn symbols(&self) -> &[SizeSymbol] {
        &self.symbols
    }

    /// The names of the nodes that have to be true.
    #[must_use]
    pub fn conditions(&self) -> &[String] {
        &self.conditions
    }

    /// Whether sizes are symbols.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        !self.symbols.is_empty()
    }

    /// The least values of all symbols.
    #[must_use]
    pub fn least(&self) -> SizeValues {
        self.symbols.iter().map(|symbol| symbol.least).collect()
    }

    /// The values of the symbols with these names. A symbol that is not among them must have one value only.
    ///
    /// # Errors
    /// If there is no such symbol, one has two values, a value is out of its range, or one is missing.
    pub fn values(&self, named: &[(&str, usize)]) -> Result<SizeValues, ModelError> {
        let wrong = |name: &str, reason: String| ModelError::Symbol {
            name: name.to_owned(),
            reason,
        };
        if let Some((name, _)) = named.iter().find(|(name, _)| self.number(name).is_none()) {
            let known: Vec<&str> = self.symbols.iter().map(|own| &*own.name).collect();
            let known = match known.is_empty() {
                true => "all sizes of the model are numbers".to_owned(),
                false => format!("the sizes of the model are {}", known.join(", ")),
            };
            return Err(wrong(name, format!("it is no size of the model; {known}")));
        }
        let value = |symbol: &SizeSymbol| {
            let mut given = named.iter().filter(|(name, _)| *name == symbol.name);
            let (_, value) = given
                .next()
                .ok_or_else(|| wrong(&symbol.name, format!("a value is missing ({symbol})")))?;
            if let Some((_, other)) = given.find(|(_, other)| other != value) {
                let reason = format!("it has two values, {value} and {other}");
                return Err(wrong(&symbol.name, reason));
            }
            match out_of_range(symbol, *value) {
                Some(reason) => Err(wrong(&symbol.name, reason)),
                None => Ok(*value),
            }
        };
        self.symbols.iter().map(value).collect()
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.symbols.iter().position(|symbol| symbol.name == name)
    }

    /// The values of the symbols for tensors of these shapes: one for each input, and then for each tensor of the
    /// state.
    ///
    /// # Errors
    /// If a size is another one, is out of its range, or contradicts another one.
    pub fn unify(&self, shapes: &[&[usize]]) -> Result<SizeValues, ModelError> {
        // The value of each symbol, and the input and dimension that it comes from.
        let mut found: SmallVec<[Option<(usize, usize, usize)>; 4]> =
            SmallVec::from_elem(None, self.symbols.len());
        for (number, (input, shape)) in self.tensors.iter().zip(shapes).enumerate() {
            let wrong = |dim: usize, reason: String| ModelError::Size {
                input: input.name.clone(),
                dim,
                reason,
            };
            if shape.len() != input.shape.len() {
                return Err(wrong(
                    input.shape.len().min(shape.len()),
                    format!("the shape is {shape:?}, and {input} is needed"),
                ));
            }
            for (dim, (size, &given)) in input.shape.iter().zip(*shape).enumerate() {
                let Some(symbol) = size.symbol().and_then(|name| self.number(name)) else {
                    if *size != Size::Fixed(given) {
                        return Err(wrong(dim, format!("{given}, and {size} is needed")));
                    }
                    continue;
                };
                let own = &self.symbols[symbol];
                let Some(value) = size.value_for(given) else {
                    return Err(wrong(dim, format!("{given}, which {size} never is")));
                };
                if let Some(reason) = out_of_range(own, value) {
                    let name = match value == given {
                        true => own.name.clone(),
                        false => format!("{given}, which is {size} with {}", own.name),
                    };
                    return Err(wrong(dim, format!("{name}: {reason}")));
                }
                match found[symbol] {
                    Some((known, from, at)) if known != value => {
                        let other = &self.tensors[from];
                        return Err(wrong(
                            dim,
                            format!(
                                "{} is {value} here, and {known} in input {}, dimension {at}",
                                own.name, other.name
                            ),
                        ));
                    }
                    Some(_) => {}
                    None => found[symbol] = Some((value, number, dim)),
                }
            }
        }
        // Each symbol is the size of an input.
        Ok(found
            .into_iter()
            .map(|own| own.map_or(0, |(value, ..)| value))
            .collect())
    }

    /// The inputs where the symbols have these values.
    ///
    /// # Errors
    /// If a size is none.
    pub fn specs_at(&self, values: &[usize]) -> Result<Vec<TensorSpec>, ModelError> {
        let mut specs = self.tensors_at(values)?;
        specs.truncate(self.inputs().len());
        Ok(specs)
    }

    /// The inputs, and behind them the state, where the symbols have these values.
    pub(super) fn tensors_at(&self, values: &[usize]) -> Result<Vec<TensorSpec>, ModelError> {
        let spec = |input: &InputSpec| {
            let sizes = input.shape.iter().enumerate().map(|(dim, size)| {
                let number = size.symbol().and_then(|name| self.number(name));
                let value = number.and_then(|number| values.get(number).copied());
                size.at(value.unwrap_or(0)).ok_or_else(|| ModelError::Size {
                    input: input.name.clone(),
                    dim,
                    reason: format!("{size} is no size with {}", self.named(values)),
                })
            });
            Ok(TensorSpec {
                name: input.name.clone(),
                dtype: input.dtype,
                shape: sizes.collect::<Result<_, _>>()?,
            })
        };
        self.tensors.iter().map(spec).collect()
    }

    /// Values of the symbols as text: `batch=2, length=7`.
    pub(super) fn named(&self, values: &[usize]) -> String {
        let named = self.symbols.iter().zip(values);
        let named: Vec<String> = named
            .map(|(symbol, value)| format!("{}={value}", symbol.name))
            .collect();
        named.join(", ")
    }

    /// The same with the first place of each: `batch=2 (input x, dimension 0)`.
    pub(super) fn placed(&self, values: &[usize]) -> String {
        let placed = self.symbols.iter().zip(values).map(|(symbol, value)| {
            let place = self.tensors.iter().find_map(|input| {
                let mut sizes = input.shape.iter();
                let dim = sizes.position(|size| size.symbol() == Some(&symbol.name))?;
                Some(format!(" (input {}, dimension {dim})", input.name))
            });
            format!("{}={value}{}", symbol.name, place.unwrap_or_default())
        });
        placed.collect::<Vec<_>>().join(", ")
    }
}

fn out_of_range(symbol: &SizeSymbol, value: usize) -> Option<String> {
    if value < symbol.least {
        return Some(format!("{value} is less than {}", symbol.least));
    }
    let most = symbol.most.filter(|&most| value > most)?;
    Some(format!("{value} is more than {most}"))
}
