//! Metadata of a model file: version, graph, inputs.

use std::collections::HashMap;

use corsac_ir::DType;
use serde::{Deserialize, Serialize};

use super::error::ModelError;
use super::signature::{InputSpec, Signature};
use super::size::{Size, SizeSymbol};

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

/// The symbols of a file, and the names of the nodes that have to be true.
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
        let (graph, inputs) = (take(GRAPH)?, take(INPUTS)?);
        let sizes = match version {
            WITH_SIZES.. => metadata.remove(SIZES),
            _ => None,
        };
        if version >= WITH_SIZES && sizes.is_none() {
            return Err(wrong(SIZES, "it is missing"));
        }
        if let Some(key) = metadata.keys().find(|key| key.starts_with("corsac.")) {
            return Err(wrong(
                FORMAT,
                format!("version {version} has no key {key:?}"),
            ));
        }
        Ok(Self {
            graph,
            signature: read_signature(&inputs, sizes.as_deref())?,
        })
    }
}

fn read_signature(inputs: &str, sizes: Option<&str>) -> Result<Signature, ModelError> {
    let entries: Vec<InputEntry> =
        serde_json::from_str(inputs).map_err(|error| wrong(INPUTS, error.to_string()))?;
    let inputs = entries.into_iter().map(read_input);
    let inputs: Vec<InputSpec> = inputs.collect::<Result<_, _>>()?;
    let sizes: SizesEntry = match sizes {
        None => SizesEntry::default(),
        Some(sizes) => {
            serde_json::from_str(sizes).map_err(|error| wrong(SIZES, error.to_string()))?
        }
    };
    let symbols = sizes.symbols.into_iter().map(|entry| SizeSymbol {
        name: entry.name,
        least: entry.least,
        most: entry.most,
    });
    let signature = Signature::new(inputs, symbols.collect(), sizes.conditions);
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

/// The inputs as JSON text for the file.
pub(super) fn write_inputs(inputs: &[InputSpec]) -> Result<String, ModelError> {
    let size = |size: &Size| match size {
        Size::Fixed(size) => SizeEntry::Number(*size),
        Size::Symbolic { .. } => SizeEntry::Text(size.to_string()),
    };
    let entries = inputs.iter().map(|spec| InputEntry {
        name: spec.name.clone(),
        dtype: spec.dtype.name().to_owned(),
        shape: spec.shape.iter().map(size).collect(),
    });
    let entries: Vec<InputEntry> = entries.collect();
    serde_json::to_string(&entries).map_err(|error| wrong(INPUTS, error.to_string()))
}

/// The symbols as JSON text for the file.
pub(super) fn write_sizes(signature: &Signature) -> Result<String, ModelError> {
    let symbols = signature.symbols().iter().map(|symbol| SymbolEntry {
        name: symbol.name.clone(),
        least: symbol.least,
        most: symbol.most,
    });
    let entry = SizesEntry {
        symbols: symbols.collect(),
        conditions: signature.conditions().to_vec(),
    };
    serde_json::to_string(&entry).map_err(|error| wrong(SIZES, error.to_string()))
}
