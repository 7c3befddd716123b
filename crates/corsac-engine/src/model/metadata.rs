//! Metadata of a model file: version, programs, state.

use std::collections::{HashMap, HashSet};

use corsac_ir::DType;
use serde::{Deserialize, Serialize};

use super::error::ModelError;
use super::limits::within;
use super::signature::{InputSpec, Signature};
use super::size::{Size, SizeSymbol};

/// What all keys of the format begin with.
pub(super) const OWN: &str = "corsac.";
/// The key of the version of the format.
pub(super) const FORMAT: &str = "corsac.format";
/// The key of the graph, in the lossless form of `docs/text-form.md`.
pub(super) const GRAPH: &str = "corsac.graph";
/// The key of the inputs: a list in JSON.
pub(super) const INPUTS: &str = "corsac.inputs";

/// The key of the symbols among the sizes of inputs, in files that have some.
pub(super) const SIZES: &str = "corsac.sizes";
/// The first version with symbols.
pub(super) const WITH_SIZES: u32 = 3;
/// The key of the programs, in files with state or several programs: a list in JSON.
pub(super) const PROGRAMS: &str = "corsac.programs";
/// The key of the state in these files: a list of tensors in JSON.
pub(super) const STATE: &str = "corsac.state";
/// The first version with these.
pub(super) const WITH_STATE: u32 = 4;
/// The key of graphs that others call: a list in JSON.
pub(super) const GRAPHS: &str = "corsac.graphs";
/// The first version with these.
pub(super) const WITH_GRAPHS: u32 = 5;
/// The first version with numbers and texts among results; it has the same keys.
pub(super) const WITH_CONSTANTS: u32 = 6;

/// Largest number of programs of a file.
const MOST_PROGRAMS: usize = 256;

/// Largest number of graphs that others call.
const MOST_GRAPHS: usize = 4096;

/// An input as it is written in the file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct InputEntry {
    name: String,
    dtype: String,
    shape: Vec<SizeEntry>,
}

/// A size: a number, or an expression of a symbol.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "a size is a number or a text")]
enum SizeEntry {
    Number(usize),
    Text(String),
}

/// A program as it is written in the file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ProgramEntry {
    name: String,
    graph: String,
    inputs: Vec<InputEntry>,
    /// The names of its state, in the order of the placeholders behind those of the inputs.
    state: Vec<String>,
    sizes: SizesEntry,
}

/// A graph that others call, as it is written in the file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct GraphEntry {
    name: String,
    graph: String,
}

/// The symbols of a program, and the names of the nodes that have to be true.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct SizesEntry {
    symbols: Vec<SymbolEntry>,
    conditions: Vec<String>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct SymbolEntry {
    name: String,
    least: usize,
    most: Option<usize>,
}

/// The metadata of a model.
pub(super) struct ModelMetadata {
    /// The programs, at least one.
    pub(super) programs: Vec<ProgramMetadata>,
    /// The state of all programs.
    pub(super) state: Vec<InputSpec>,
    /// The graphs that others call: names and texts.
    pub(super) graphs: Vec<(String, String)>,
}

/// The metadata of a program.
pub(super) struct ProgramMetadata {
    pub(super) name: String,
    pub(super) graph: String,
    pub(super) signature: Signature,
}

pub(super) fn wrong(key: &'static str, reason: impl Into<String>) -> ModelError {
    ModelError::Metadata {
        key,
        reason: reason.into(),
    }
}

impl ModelMetadata {
    /// Removes the keys of a model from `metadata` and parses them.
    pub(super) fn take(metadata: &mut HashMap<String, String>) -> Result<Self, ModelError> {
        let mut take = |key: &'static str| {
            let value = metadata.remove(key);
            value.ok_or_else(|| wrong(key, "it is missing: the file holds weights, and no model"))
        };
        let found = take(FORMAT)?;
        let version = found.parse().ok();
        let Some(version) = version.filter(|own| (1..=super::VERSION).contains(own)) else {
            let found = found.chars().take(20).collect();
            return Err(ModelError::Version { found });
        };
        let texts = match version {
            WITH_GRAPHS.. => Texts::Programs(take(PROGRAMS)?, take(STATE)?, Some(take(GRAPHS)?)),
            WITH_STATE.. => Texts::Programs(take(PROGRAMS)?, take(STATE)?, None),
            WITH_SIZES.. => Texts::Program(take(GRAPH)?, take(INPUTS)?, Some(take(SIZES)?)),
            _ => Texts::Program(take(GRAPH)?, take(INPUTS)?, None),
        };
        if let Some(key) = metadata.keys().find(|key| key.starts_with(OWN)) {
            return Err(wrong(
                FORMAT,
                format!("version {version} has no key {key:?}"),
            ));
        }
        match texts {
            Texts::Programs(programs, state, graphs) => {
                let mut read = read_programs(&programs, &state)?;
                if let Some(graphs) = graphs {
                    let entries: Vec<GraphEntry> = parsed(GRAPHS, &graphs)?;
                    within("graphs", entries.len(), MOST_GRAPHS)?;
                    let entries = entries.into_iter();
                    read.graphs = entries.map(|own| (own.name, own.graph)).collect();
                }
                Ok(read)
            }
            Texts::Program(graph, inputs, sizes) => {
                let sizes =
                    sizes.map_or_else(|| Ok(SizesEntry::default()), |sizes| parsed(SIZES, &sizes));
                let inputs = parsed(INPUTS, &inputs)?;
                Ok(Self {
                    programs: vec![ProgramMetadata {
                        name: String::new(),
                        graph,
                        signature: read_signature(inputs, Vec::new(), sizes?)?,
                    }],
                    state: Vec::new(),
                    graphs: Vec::new(),
                })
            }
        }
    }
}

/// The values of the keys of a model.
enum Texts {
    /// The graph, the inputs, and the sizes of an only program.
    Program(String, String, Option<String>),
    /// Programs, state, and the graphs that they call.
    Programs(String, String, Option<String>),
}

fn parsed<'t, T: Deserialize<'t>>(key: &'static str, text: &'t str) -> Result<T, ModelError> {
    serde_json::from_str(text).map_err(|error| wrong(key, error.to_string()))
}

/// A name for a message.
fn shown(name: &str) -> String {
    format!("{:?}", name.chars().take(64).collect::<String>())
}

fn read_programs(programs: &str, state: &str) -> Result<ModelMetadata, ModelError> {
    let state: Vec<InputEntry> = parsed(STATE, state)?;
    let state = state.into_iter().map(read_input);
    let state: Vec<InputSpec> = state.collect::<Result<_, _>>()?;
    let mut by_name: HashMap<&str, &InputSpec> = HashMap::new();
    for spec in &state {
        if by_name.insert(&spec.name, spec).is_some() {
            return Err(wrong(
                STATE,
                format!("the name {} stands twice", shown(&spec.name)),
            ));
        }
    }
    let entries: Vec<ProgramEntry> = parsed(PROGRAMS, programs)?;
    let count = entries.len();
    within("programs", count, MOST_PROGRAMS)?;
    let mut read: Vec<ProgramMetadata> = Vec::with_capacity(count);
    for entry in entries {
        let name = entry.name;
        let about = |reason: &str| wrong(PROGRAMS, format!("program {}: {reason}", shown(&name)));
        if count > 1 && name.is_empty() {
            return Err(about("of several, each has a name"));
        }
        if read.iter().any(|other| other.name == name) {
            return Err(about("the name stands twice"));
        }
        let own = entry.state.iter().map(|own| match by_name.get(&**own) {
            Some(&spec) => Ok(spec.clone()),
            None => Err(about(&format!("the file has no state {}", shown(own)))),
        });
        let own = own.collect::<Result<_, _>>()?;
        let signature = read_signature(entry.inputs, own, entry.sizes)?;
        let graph = entry.graph;
        read.push(ProgramMetadata {
            name,
            graph,
            signature,
        });
    }
    if read.is_empty() {
        return Err(wrong(PROGRAMS, "there are none"));
    }
    let used = read.iter().flat_map(|program| program.signature.state());
    let used: HashSet<&str> = used.map(|own| &*own.name).collect();
    if let Some(spec) = state.iter().find(|spec| !used.contains(&*spec.name)) {
        return Err(wrong(
            STATE,
            format!("no program reads {}", shown(&spec.name)),
        ));
    }
    Ok(ModelMetadata {
        programs: read,
        state,
        graphs: Vec::new(),
    })
}

fn read_signature(
    inputs: Vec<InputEntry>,
    state: Vec<InputSpec>,
    sizes: SizesEntry,
) -> Result<Signature, ModelError> {
    let inputs = inputs.into_iter().map(read_input);
    let inputs: Vec<InputSpec> = inputs.collect::<Result<_, _>>()?;
    let symbols = sizes.symbols.into_iter().map(|entry| SizeSymbol {
        name: entry.name,
        least: entry.least,
        most: entry.most,
    });
    let signature = Signature::with_state(inputs, state, symbols.collect(), sizes.conditions);
    signature.map_err(|error| match error {
        ModelError::Symbol { .. } => wrong(SIZES, error.to_string()),
        error => error,
    })
}

fn read_input(entry: InputEntry) -> Result<InputSpec, ModelError> {
    let dtype = entry.dtype.parse::<DType>();
    let dtype = dtype.map_err(|()| {
        let reason = format!("{} has an element type that does not exist", entry.name);
        wrong(INPUTS, reason)
    })?;
    let size = |size: SizeEntry| match size {
        SizeEntry::Number(size) => Ok(Size::Fixed(size)),
        SizeEntry::Text(text) => text.parse().map_err(|()| {
            let text: String = text.chars().take(64).collect();
            wrong(INPUTS, format!("{} has the size {text:?}", entry.name))
        }),
    };
    let shape = entry.shape.into_iter().map(size);
    Ok(InputSpec {
        shape: shape.collect::<Result<_, _>>()?,
        name: entry.name,
        dtype,
    })
}

fn input_entry(spec: &InputSpec) -> InputEntry {
    let size = |size: &Size| match size {
        Size::Fixed(size) => SizeEntry::Number(*size),
        Size::Symbolic { .. } => SizeEntry::Text(size.to_string()),
    };
    InputEntry {
        name: spec.name.clone(),
        dtype: spec.dtype.name().to_owned(),
        shape: spec.shape.iter().map(size).collect(),
    }
}

fn sizes_entry(signature: &Signature) -> SizesEntry {
    let symbols = signature.symbols().iter().map(|symbol| SymbolEntry {
        name: symbol.name.clone(),
        least: symbol.least,
        most: symbol.most,
    });
    SizesEntry {
        symbols: symbols.collect(),
        conditions: signature.conditions().to_vec(),
    }
}

fn written(key: &'static str, value: &impl Serialize) -> Result<String, ModelError> {
    serde_json::to_string(value).map_err(|error| wrong(key, error.to_string()))
}

/// Tensors as JSON text for the file, under `key`.
pub(super) fn write_tensors(
    key: &'static str,
    tensors: &[InputSpec],
) -> Result<String, ModelError> {
    let entries: Vec<InputEntry> = tensors.iter().map(input_entry).collect();
    written(key, &entries)
}

/// The symbols as JSON text for the file.
pub(super) fn write_sizes(signature: &Signature) -> Result<String, ModelError> {
    written(SIZES, &sizes_entry(signature))
}

/// Programs, each with its name, the text of its graph, and its signature, as JSON text for the file.
pub(super) fn program_entries(
    programs: &[(&str, String, &Signature)],
) -> Result<String, ModelError> {
    let entries = programs
        .iter()
        .map(|(name, graph, signature)| ProgramEntry {
            name: (*name).to_owned(),
            graph: graph.clone(),
            inputs: signature.inputs().iter().map(input_entry).collect(),
            state: signature
                .state()
                .iter()
                .map(|own| own.name.clone())
                .collect(),
            sizes: sizes_entry(signature),
        });
    written(PROGRAMS, &entries.collect::<Vec<_>>())
}

/// Graphs that others call, each with its name and text, as JSON text for the file.
pub(super) fn graph_entries(graphs: Vec<(String, String)>) -> Result<String, ModelError> {
    let entries = graphs.into_iter();
    let entries = entries.map(|(name, graph)| GraphEntry { name, graph });
    written(GRAPHS, &entries.collect::<Vec<_>>())
}
