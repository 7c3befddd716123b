//! Language models in model files.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use corsac_engine::{
    DType, Data, DataMut, Elements, Model, ModelFile, ModelProgram, Session, Signature, Size,
    Tensor, TensorSpec,
};
use serde::Deserialize;

use crate::error::GenerateError;
use crate::request::TextLimits;
use crate::steps::{Step, Steps};

/// The key of the metadata of a file in which its settings are, in JSON.
pub const SETTINGS: &str = "generation";

/// The program that reads several tokens, and the one that reads one.
const PROGRAMS: [&str; 2] = ["prompt", "token"];
/// The sizes of their inputs and of the state.
const ROWS: &str = "batch";
const COLUMNS: &str = "capacity";
const LENGTH: &str = "length";

/// What a file says about its texts.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
struct Settings {
    /// Tokens that end a text.
    stop: Vec<u32>,
    /// Most tokens of a text, if fewer than the caches hold.
    length: Option<usize>,
}

/// A language model that continues texts, of a file of `corsac.generation.save`.
///
/// The file has the programs `prompt` and `token`, which read several tokens or one, and caches as state:
///
/// | input | shape | |
/// |---|---|---|
/// | `ids` | \[batch, length\] | tokens |
/// | `mask` | \[batch, capacity\] | 1 for columns of the caches with tokens of the text, also the new ones |
/// | `positions` | \[batch, length\] | positions of the new tokens in their text |
/// | `start` | \[\] | column of the first new token |
///
/// The result is the logits after the last token, \[batch, vocabulary\]. Any number of threads may use a model at once.
#[derive(Clone, Debug)]
pub struct TextModel {
    model: Arc<Model>,
    limits: TextLimits,
    most_rows: usize,
    layouts: Arc<[CacheLayout]>,
}

/// How a tensor of the caches is laid out: \[rows, outer, columns, inner\].
#[derive(Clone, Debug)]
struct CacheLayout {
    name: String,
    /// The dimension of the columns, if it has some.
    columns: Option<usize>,
}

impl TextModel {
    /// Loads the model in the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, or is no language model.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, GenerateError> {
        Self::from_file(ModelFile::open(path)?, None)
    }

    /// The model in a file, which runs on a number of threads: by default `CORSAC_NUM_THREADS`, or the number of cores.
    ///
    /// # Errors
    /// If the file cannot be read any more, or is no language model.
    pub fn from_file(file: ModelFile, threads: Option<usize>) -> Result<Self, GenerateError> {
        let settings = match file.metadata().get(SETTINGS) {
            None => Settings::default(),
            Some(text) => serde_json::from_str(text)
                .map_err(|error| wrong(format!("its settings of generation: {error}")))?,
        };
        let [prompt, token] = PROGRAMS.map(|name| {
            let mut programs = file.programs().iter();
            let found = programs.find(|own| own.name() == name);
            found.ok_or_else(|| wrong(format!("the file has no program {name:?}")))
        });
        let (prompt, token) = (prompt?, token?);
        check_inputs(prompt)?;
        check_inputs(token)?;
        let (_, longest_step) = range(prompt.signature(), LENGTH)
            .ok_or_else(|| wrong("the program \"prompt\" has no size \"length\"".to_owned()))?;
        let (_, most_rows) = range(token.signature(), ROWS).unwrap_or((1, 1));
        let vocabulary = match token.outputs() {
            [logits] if logits.shape.len() == 2 => logits.shape[1],
            outputs => {
                let found = outputs.len();
                return Err(wrong(format!(
                    "{found} results, where logits [batch, vocabulary] are needed"
                )));
            }
        };
        let model = Model::from_file(file)?;
        let model = match threads {
            Some(threads) => model.with_threads(threads),
            None => model,
        };
        let (fewest_columns, most_columns) = range(model.state(), COLUMNS)
            .ok_or_else(|| wrong(format!("no state of the file has the size \"{COLUMNS}\"")))?;
        let length = settings.length.unwrap_or(most_columns).min(most_columns);
        if length < fewest_columns {
            return Err(wrong(format!(
                "texts of {length} tokens, and caches for {fewest_columns} at least"
            )));
        }
        let layouts = model.state().inputs().iter().map(|spec| {
            let symbol = |name: &str| {
                let mut sizes = spec.shape.iter();
                sizes.position(|size| size.symbol() == Some(name))
            };
            let columns = symbol(COLUMNS);
            match (symbol(ROWS), most_rows) {
                (Some(0), _) | (None, 1) if columns != Some(0) && !spec.shape.is_empty() => {
                    Ok(CacheLayout {
                        name: spec.name.clone(),
                        columns,
                    })
                }
                _ => Err(wrong(format!("{spec}: the first size is not \"{ROWS}\""))),
            }
        });
        Ok(Self {
            layouts: layouts.collect::<Result<_, _>>()?,
            model: Arc::new(model),
            limits: TextLimits {
                vocabulary,
                length,
                longest_step,
                fewest_columns,
                stop: settings.stop,
            },
            most_rows,
        })
    }

    /// Number of tokens that there are.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.limits.vocabulary
    }

    /// Most tokens of a prompt and of a text, but for the last one.
    #[must_use]
    pub fn longest_text(&self) -> usize {
        self.limits.length
    }

    /// Tokens that end a text.
    #[must_use]
    pub fn stop(&self) -> &[u32] {
        &self.limits.stop
    }

    /// Most sequences that it continues at once.
    #[must_use]
    pub fn most_rows(&self) -> usize {
        self.most_rows
    }
}

fn wrong(reason: String) -> GenerateError {
    GenerateError::Model(reason)
}

/// Checks that the program has the inputs that are known here only.
fn check_inputs(program: &ModelProgram) -> Result<(), GenerateError> {
    // A size that is a number has one value only.
    let is = |size: &Size, name: &str| size.symbol() == Some(name) || *size == Size::Fixed(1);
    for spec in program.signature().inputs() {
        let is_known = match (&*spec.name, spec.dtype, &spec.shape[..]) {
            ("ids" | "positions", DType::Int64, [rows, length]) => {
                is(rows, ROWS) && is(length, LENGTH)
            }
            ("mask", DType::Int64 | DType::Bool, [rows, columns]) => {
                is(rows, ROWS) && columns.symbol() == Some(COLUMNS)
            }
            ("start", DType::Int64, []) => true,
            _ => false,
        };
        if !is_known {
            let name = program.name();
            return Err(wrong(format!("the program {name:?} has the input {spec}")));
        }
    }
    Ok(())
}

/// The range of a size.
fn range(signature: &Signature, name: &str) -> Option<(usize, usize)> {
    let mut symbols = signature.symbols().iter();
    let found = symbols.find(|own| own.name == name)?;
    Some((found.least, found.most.unwrap_or(usize::MAX)))
}

impl Steps for TextModel {
    type Caches = Session;

    fn limits(&self) -> &TextLimits {
        &self.limits
    }

    fn new_caches(&self, rows: usize, columns: usize) -> Result<Session, GenerateError> {
        let all = [(ROWS, rows), (COLUMNS, columns)];
        let symbols = self.model.state().symbols();
        let sizes = all
            .into_iter()
            .filter(|(name, _)| symbols.iter().any(|own| own.name == *name));
        let sizes: Vec<(&str, usize)> = sizes.collect();
        Ok(self.model.session(&sizes)?)
    }

    fn columns(caches: &Session) -> usize {
        let found = caches.sizes().find(|(name, _)| *name == COLUMNS);
        // All state of language models has them.
        found.map_or(0, |(_, columns)| columns)
    }

    fn copy(
        &self,
        from: &Session,
        row: usize,
        columns: Range<usize>,
        to: &mut Session,
        (other, column): (usize, usize),
    ) -> Result<(), GenerateError> {
        for layout in &*self.layouts {
            let from = from.state(&layout.name)?;
            let own = Part::of(from.shape(), layout, row, columns.start, columns.len());
            let shape = to.state(&layout.name)?.shape().to_vec();
            let place = Part::of(&shape, layout, other, column, columns.len());
            match (from.elements().all(), to.state_mut(&layout.name)?) {
                (Data::F32(from), DataMut::F32(to)) => copy_part(from, &own, to, &place),
                (Data::F64(from), DataMut::F64(to)) => copy_part(from, &own, to, &place),
                (Data::I64(from), DataMut::I64(to)) => copy_part(from, &own, to, &place),
                (Data::Bool(from), DataMut::Bool(to)) => copy_part(from, &own, to, &place),
                _ => return Err(wrong(format!("the state {} changed its type", layout.name))),
            }
        }
        Ok(())
    }

    fn read(&self, caches: &mut Session, step: &Step<'_>) -> Result<Vec<f32>, GenerateError> {
        let rows = step.read.len();
        let length = step.tokens.len() / rows;
        let name = PROGRAMS[usize::from(length == 1)];
        let program = self.model.program(Some(name))?;
        let columns = Self::columns(caches);
        let input = |spec: &TensorSpec| {
            let (shape, elements) = match &*spec.name {
                "ids" => {
                    let tokens = step.tokens.iter().map(|&token| i64::from(token));
                    (vec![rows, length], tokens.collect())
                }
                "positions" => {
                    let all = step.read.iter().flat_map(|&read| read..read + length);
                    (vec![rows, length], all.map(|at| at as i64).collect())
                }
                "start" => (vec![], vec![step.column as i64]),
                _ => {
                    let last = step.column + length;
                    let mask = step.read.iter().flat_map(|&read| {
                        let own = step.column - read..last;
                        (0..columns).map(move |column| own.contains(&column))
                    });
                    if spec.dtype == DType::Bool {
                        return Tensor::new([rows, columns], mask.collect::<Vec<bool>>());
                    }
                    (vec![rows, columns], mask.map(i64::from).collect())
                }
            };
            Tensor::new(shape, elements)
        };
        let inputs = program.inputs().iter().map(input);
        let inputs: Vec<Tensor> = inputs.collect::<Result<_, _>>()?;
        let results = caches.run(name, &inputs)?;
        let logits = results.into_iter().next().map(Tensor::into_elements);
        let logits: Vec<f32> = match logits {
            Some(Elements::F32(logits)) => logits,
            Some(Elements::F64(logits)) => logits.into_iter().map(|logit| logit as f32).collect(),
            _ => return Err(wrong(format!("the program {name:?} has no logits"))),
        };
        let expected = rows * self.limits.vocabulary;
        if logits.len() != expected {
            let got = logits.len();
            return Err(wrong(format!(
                "the program {name:?} has {got} logits, and {expected} are needed"
            )));
        }
        Ok(logits)
    }
}

/// Elements of a row: `count` pieces of `len`, each `step` after the one before, from `start` on.
struct Part {
    row: Range<usize>,
    start: usize,
    step: usize,
    len: usize,
    count: usize,
}

impl Part {
    fn of(
        shape: &[usize],
        layout: &CacheLayout,
        row: usize,
        column: usize,
        columns: usize,
    ) -> Self {
        let row_len: usize = shape.iter().skip(1).product();
        let Some(dim) = layout.columns else {
            return Self {
                row: row * row_len..(row + 1) * row_len,
                start: row * row_len,
                step: row_len,
                len: row_len,
                count: 1,
            };
        };
        let inner: usize = shape[dim + 1..].iter().product();
        Self {
            row: row * row_len..(row + 1) * row_len,
            start: row * row_len + column * inner,
            step: shape[dim] * inner,
            len: columns * inner,
            count: shape[1..dim].iter().product(),
        }
    }

    fn pieces(&self) -> impl Iterator<Item = Range<usize>> {
        let starts = (0..self.count).map(|number| self.start + number * self.step);
        starts.map(|start| start..start + self.len)
    }
}

fn copy_part<T: Copy + Default>(from: &[T], own: &Part, to: &mut [T], place: &Part) {
    to[place.row.clone()].fill(T::default());
    for (own, place) in own.pieces().zip(place.pieces()) {
        to[place].copy_from_slice(&from[own]);
    }
}
