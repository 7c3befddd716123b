//! Metadata of a model file: version, graph, inputs.

use std::collections::HashMap;

use corsac_ir::DType;
use serde::{Deserialize, Serialize};

use super::error::ModelError;
use super::tensor::TensorSpec;

/// The key of the version of the format.
pub(super) const FORMAT: &str = "corsac.format";
/// The key of the graph, in the lossless form of `docs/text-form.md`.
pub(super) const GRAPH: &str = "corsac.graph";
/// The key of the inputs: a list in JSON.
pub(super) const INPUTS: &str = "corsac.inputs";

/// An input as it is written in the file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct InputEntry {
    name: String,
    dtype: String,
    shape: Vec<usize>,
}

/// The metadata of a model.
pub(super) struct ModelMetadata {
    pub(super) graph: String,
    pub(super) inputs: Vec<TensorSpec>,
}

fn wrong(key: &'static str, reason: impl Into<String>) -> ModelError {
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
        let Some(version) = found
            .parse()
            .ok()
            .filter(|own| (1..=super::VERSION).contains(own))
        else {
            let found = found.chars().take(20).collect();
            return Err(ModelError::Version { found });
        };
        let (graph, inputs) = (take(GRAPH)?, take(INPUTS)?);
        if let Some(key) = metadata.keys().find(|key| key.starts_with("corsac.")) {
            return Err(wrong(
                FORMAT,
                format!("version {version} has no key {key:?}"),
            ));
        }
        Ok(Self {
            graph,
            inputs: read_inputs(&inputs)?,
        })
    }
}

fn read_inputs(json: &str) -> Result<Vec<TensorSpec>, ModelError> {
    let entries: Vec<InputEntry> =
        serde_json::from_str(json).map_err(|error| wrong(INPUTS, error.to_string()))?;
    let spec = |entry: InputEntry| {
        let dtype = entry.dtype.parse::<DType>();
        let dtype = dtype.map_err(|()| {
            let reason = format!("{} has an element type that does not exist", entry.name);
            wrong(INPUTS, reason)
        })?;
        Ok(TensorSpec {
            name: entry.name,
            dtype,
            shape: entry.shape,
        })
    };
    entries.into_iter().map(spec).collect()
}

/// The inputs as JSON text for the file.
pub(super) fn write_inputs(inputs: &[TensorSpec]) -> Result<String, ModelError> {
    let entries = inputs.iter().map(|spec| InputEntry {
        name: spec.name.clone(),
        dtype: spec.dtype.name().to_owned(),
        shape: spec.shape.clone(),
    });
    let entries: Vec<InputEntry> = entries.collect();
    serde_json::to_string(&entries).map_err(|error| wrong(INPUTS, error.to_string()))
}
