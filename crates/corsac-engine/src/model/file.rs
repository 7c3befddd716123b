//! A model file, read and checked.

use std::collections::HashMap;
use std::path::Path;

use corsac_ir::{Graph, Op as GraphOp};
use corsac_ops::shape::Propagator;
use rustc_hash::FxHashMap;

use super::check::RANK;
use super::compile::{Checked, Compiler, output_specs};
use super::error::{ModelError, without_panic};
use super::file_weights::FileWeights;
use super::header::{Header, LENGTH_BYTES, graph_type};
use super::limits::{Limits, within};
use super::metadata::{self, ModelMetadata};
use super::output_shapes::{OutputSpec, dynamic_outputs};
use super::signature::{InputSpec, Signature};
use super::source::Source;
use super::specialisation::Specialisation;
use super::tensor::TensorSpec;
use crate::execute::Executable;
use crate::prepare::WeightCache;
use crate::program::{Precision, Program};

/// A model file: the graph, its inputs and outputs, and the places of its weights. The whole file
/// is checked, but only its header is read.
#[derive(Debug)]
pub struct ModelFile {
    source: Source,
    compiler: Compiler,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    weights: Vec<Entry>,
    program: Program,
}

/// A weight: its type and shape, and its bytes in the file.
#[derive(Debug)]
struct Entry {
    spec: TensorSpec,
    start: u64,
    len: u64,
}

impl ModelFile {
    /// Opens the model file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, is no model file, or exceeds the default [`Limits`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        Self::open_within(path, &Limits::default())
    }

    /// As [`ModelFile::open`], with other limits.
    ///
    /// # Errors
    /// As [`ModelFile::open`].
    pub fn open_within(path: impl AsRef<Path>, limits: &Limits) -> Result<Self, ModelError> {
        Self::read(Source::open(path.as_ref())?, limits)
    }

    /// Reads a model file in memory.
    ///
    /// # Errors
    /// As [`ModelFile::open`].
    pub fn from_bytes(bytes: Vec<u8>, limits: &Limits) -> Result<Self, ModelError> {
        Self::read(Source::Memory(bytes), limits)
    }

    fn read(source: Source, limits: &Limits) -> Result<Self, ModelError> {
        let mut header = read_header(&source, limits)?;
        let metadata = ModelMetadata::take(&mut header.metadata)?;
        let data_at = source.len() - header.data_bytes;
        let weights = entries(&header, data_at, limits)?;
        let graph = read_graph(&metadata.graph, limits)?;
        check_names(&graph, metadata.signature.inputs(), &weights)?;
        let specs = weights.iter().map(|entry| &entry.spec);
        let compiler = Compiler::new(graph, metadata.signature, specs, limits)?;
        let least = compiler.signature().least();
        let program = without_panic(|| compiler.program(&least)).map_err(|error| match error {
            // Sizes in the range that it declares.
            ModelError::Condition { .. } | ModelError::Size { .. } => {
                metadata::wrong(metadata::SIZES, error.to_string())
            }
            error => error,
        })?;
        Ok(Self {
            source,
            inputs: compiler.signature().specs_at(&least)?,
            outputs: output_specs(&program),
            compiler,
            weights,
            program,
        })
    }

    /// Compiles the model anew, with convolutions and linear layers that multiply in another
    /// precision.
    ///
    /// # Errors
    /// If its values then exceed the limits.
    pub fn with_precision(mut self, precision: Precision) -> Result<Self, ModelError> {
        self.compiler.precision = precision;
        let least = self.compiler.signature().least();
        self.program = without_panic(|| self.compiler.program(&least))?;
        Ok(self)
    }

    /// Closes a file whose weights will not be read any more.
    pub(super) fn close(&mut self) {
        self.source = Source::Memory(Vec::new());
    }

    /// The graph.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        self.compiler.graph()
    }

    /// The inputs of the model with their sizes, which may be symbols, and the ranges of these.
    #[must_use]
    pub fn signature(&self) -> &Signature {
        self.compiler.signature()
    }

    /// The inputs of the model, in order; with the least sizes, where these are symbols.
    #[must_use]
    pub fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    /// The outputs of the model, in order, for [`inputs`](Self::inputs). Each is named after its place in the
    /// result: `1.0`, or `logits`; a single one is named `output`.
    #[must_use]
    pub fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    /// The outputs of the model, with sizes as expressions of the symbols where they are products and sums
    /// of these.
    #[must_use]
    pub fn dynamic_outputs(&self) -> Vec<OutputSpec> {
        dynamic_outputs(&self.compiler, &self.outputs)
    }

    /// The weights, in the order in which they lie in the file.
    pub fn weights(&self) -> impl ExactSizeIterator<Item = &TensorSpec> {
        self.weights.iter().map(|entry| &entry.spec)
    }

    /// The program that the engine runs, for [`inputs`](Self::inputs).
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The bytes of weight `number`, in little-endian order, row by row; `None` if it is missing.
    ///
    /// # Errors
    /// If the file cannot be read any more.
    pub fn weight_bytes(&self, number: usize) -> Result<Option<Vec<u8>>, ModelError> {
        let entry = self.weights.get(number);
        let bytes = entry.map(|entry| self.source.read(entry.start, entry.len));
        bytes.transpose()
    }

    /// Calls `work` with the types of all values of the graph, where symbols have [these
    /// values](Signature::values): for costs, and to run the graph in another way.
    ///
    /// # Errors
    /// If the model does not take such sizes.
    pub fn with_types<T>(
        &self,
        values: &[usize],
        work: impl FnOnce(&mut Propagator<'_>) -> T,
    ) -> Result<T, ModelError> {
        self.compiler.at(values, || {
            Ok(work(&mut self.compiler.types(values, Checked::Yes)?))
        })
    }

    /// The program where symbols have [these values](Signature::values).
    ///
    /// # Errors
    /// If the model does not take such sizes.
    pub fn program_for(&self, values: &[usize]) -> Result<Program, ModelError> {
        self.compiler.at(values, || self.compiler.program(values))
    }

    /// The program with its weights, which are read and packed here.
    ///
    /// # Errors
    /// If the file cannot be read any more.
    pub fn executable(&self) -> Result<Executable, ModelError> {
        self.executable_of(self.program.clone(), &WeightCache::default())
    }

    /// The model where symbols have [these values](Signature::values). Weights are read and packed here, unless
    /// `cache` has them from other sizes of this file.
    ///
    /// # Errors
    /// If the model does not take such sizes, or the file cannot be read any more.
    pub fn specialised(
        &self,
        values: &[usize],
        cache: &WeightCache,
    ) -> Result<Specialisation, ModelError> {
        self.compiler.at(values, || {
            let program = match *values == *self.signature().least() {
                true => self.program.clone(),
                false => self.compiler.program(values)?,
            };
            Ok(Specialisation {
                inputs: self.signature().specs_at(values)?,
                outputs: output_specs(&program),
                executable: self.executable_of(program, cache)?,
            })
        })
    }

    fn executable_of(
        &self,
        program: Program,
        cache: &WeightCache,
    ) -> Result<Executable, ModelError> {
        without_panic(|| {
            let weights = FileWeights::of(self);
            Executable::with_cache(program, &weights, cache)
                .map_err(|error| weights.into_error().unwrap_or(ModelError::Run(error)))
        })
    }
}

/// The metadata of a safetensors file in memory.
pub(crate) fn file_metadata(
    bytes: Vec<u8>,
    limits: &Limits,
) -> Result<HashMap<String, String>, ModelError> {
    Ok(read_header(&Source::Memory(bytes), limits)?.metadata)
}

fn read_header(source: &Source, limits: &Limits) -> Result<Header, ModelError> {
    let file_bytes = source.len();
    if file_bytes < LENGTH_BYTES {
        return Err(ModelError::format(format!("it has {file_bytes} bytes")));
    }
    let mut length = [0; LENGTH_BYTES as usize];
    length.copy_from_slice(&source.read(0, LENGTH_BYTES)?);
    let length = u64::from_le_bytes(length);
    if length > file_bytes - LENGTH_BYTES {
        return Err(ModelError::format(format!(
            "a header of {length} bytes in a file of {file_bytes}"
        )));
    }
    within("bytes of the header", length, limits.header_bytes)?;
    let header = Header::parse(&source.read(LENGTH_BYTES, length)?)?;
    let there = file_bytes - LENGTH_BYTES - length;
    if header.data_bytes != there {
        return Err(ModelError::format(format!(
            "tensors of {} bytes, and {there} bytes are there",
            header.data_bytes
        )));
    }
    within("bytes of weights", there, limits.weight_bytes)?;
    Ok(header)
}

fn entries(header: &Header, data_at: u64, limits: &Limits) -> Result<Vec<Entry>, ModelError> {
    let entry = |(name, info): &(String, safetensors::tensor::TensorInfo)| {
        let wrong = |reason: String| ModelError::Weight {
            name: name.clone(),
            reason,
        };
        let dtype = graph_type(info.dtype)
            .ok_or_else(|| wrong(format!("elements of {:?} are not known", info.dtype)))?;
        if info.shape.len() > RANK {
            return Err(wrong(format!("{} dimensions", info.shape.len())));
        }
        let sizes = info.shape.iter().map(|&size| size.max(1) as u64);
        let bytes = sizes.fold(1, u64::saturating_mul);
        within("elements of a weight", bytes, limits.weight_bytes)?;
        let (start, end) = info.data_offsets;
        Ok(Entry {
            spec: TensorSpec {
                name: name.clone(),
                dtype,
                shape: info.shape.clone(),
            },
            start: data_at + start as u64,
            len: (end - start) as u64,
        })
    };
    header.tensors.iter().map(entry).collect()
}

fn read_graph(text: &str, limits: &Limits) -> Result<Graph, ModelError> {
    if !text.starts_with("graph v") {
        return Err(ModelError::Metadata {
            key: super::metadata::GRAPH,
            reason: "it is not in the lossless form, which begins with `graph v1:`".to_owned(),
        });
    }
    let lines = text
        .lines()
        .filter(|line| line.trim_start().starts_with('%'));
    within("nodes of the graph", lines.count(), limits.nodes)?;
    let graph = Graph::parse(text).map_err(|error| ModelError::Text(Box::new(error)))?;
    if let Err(report) = graph.lint() {
        let fault = report.faults.into_iter().find(|fault| fault.is_error());
        let (name, reason) = fault.map_or((String::new(), String::new()), |fault| {
            (fault.name.clone(), fault.to_string())
        });
        return Err(ModelError::Graph { name, reason });
    }
    Ok(graph)
}

/// Checks that the graph, its inputs and its weights use the same names.
fn check_names(graph: &Graph, inputs: &[InputSpec], weights: &[Entry]) -> Result<(), ModelError> {
    let mut known: FxHashMap<&str, bool> = FxHashMap::default();
    known.extend(weights.iter().map(|entry| (&*entry.spec.name, false)));
    let mut wanted = inputs.iter();
    let mut has_output = false;
    for id in graph.nodes() {
        let node = graph.node(id);
        let target = node.target_name();
        match node.op() {
            GraphOp::Placeholder => match wanted.next() {
                Some(spec) if spec.name == target => {}
                Some(spec) => {
                    let reason = format!("an input called {target}, where {} is", spec.name);
                    return Err(ModelError::graph(node.name(), reason));
                }
                None if node.args().is_empty() => {
                    let reason = "an input that the file does not describe, without a default";
                    return Err(ModelError::graph(node.name(), reason));
                }
                None => {}
            },
            GraphOp::GetAttr => match known.get_mut(target) {
                Some(used) => *used = true,
                None => {
                    let reason = format!("the weight {target} is not in the file");
                    return Err(ModelError::graph(node.name(), reason));
                }
            },
            GraphOp::CallModule => {
                let reason = format!("it calls the module {target}; models have functions only");
                return Err(ModelError::graph(node.name(), reason));
            }
            GraphOp::CallFunction | GraphOp::CallMethod => {}
            GraphOp::Output => has_output = true,
        }
    }
    if let Some(spec) = wanted.next() {
        return Err(ModelError::graph(&spec.name, "the graph has no such input"));
    }
    if !has_output {
        return Err(ModelError::graph("output", "the graph has no output"));
    }
    let mut names: Vec<&str> = inputs.iter().map(|spec| &*spec.name).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ModelError::graph(pair[0], "two inputs have this name"));
    }
    if let Some(entry) = weights.iter().find(|entry| !known[&*entry.spec.name]) {
        return Err(ModelError::Weight {
            name: entry.spec.name.clone(),
            reason: "the graph does not read it".to_owned(),
        });
    }
    Ok(())
}
