//! A model file, read and checked.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

use corsac_ir::{DType, ExternalId, Graph, Op as GraphOp};
use corsac_ops::shape::{
    Dim, ModuleFacts, Propagator, Settings, Storage, Tensor as TypedTensor, TensorType, TypeHost,
    Value, element_bytes,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::check::{RANK, check_program, find_types};
use super::error::{ModelError, without_panic};
use super::header::{Header, LENGTH_BYTES, graph_type};
use super::limits::{Limits, within};
use super::metadata::ModelMetadata;
use super::source::Source;
use super::tensor::TensorSpec;
use crate::data::Byte;
use crate::execute::Executable;
use crate::lower::{LowerError, lower, unsupported};
use crate::optimise::optimise;
use crate::prepare::{HalfBits, Weights};
use crate::program::{Half, Output, Precision, Program};

/// A model file: the graph, its inputs and outputs, and the places of its weights. The whole file
/// is checked, but only its header is read.
#[derive(Debug)]
pub struct ModelFile {
    source: Source,
    graph: Graph,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    weights: Vec<Entry>,
    program: Program,
    limits: Limits,
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
        check_names(&graph, &metadata.inputs, &weights)?;
        let inputs = metadata.inputs;
        let host = FileHost::of(&weights);
        let program =
            without_panic(|| compiled(&graph, &host, &inputs, limits, Precision::default()))?;
        let mut outputs = Vec::new();
        if let Some(output) = &program.output {
            name_outputs(&program, output, String::new(), &mut outputs);
        }
        Ok(Self {
            source,
            graph,
            inputs,
            outputs,
            weights,
            program,
            limits: *limits,
        })
    }

    /// Compiles the model anew, with convolutions and linear layers that multiply in another
    /// precision.
    ///
    /// # Errors
    /// If its values then exceed the limits.
    pub fn with_precision(mut self, precision: Precision) -> Result<Self, ModelError> {
        let host = FileHost::of(&self.weights);
        let compile = || compiled(&self.graph, &host, &self.inputs, &self.limits, precision);
        self.program = without_panic(compile)?;
        Ok(self)
    }

    /// The graph.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The inputs of the model, in order.
    #[must_use]
    pub fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    /// The outputs of the model, in order. Each is named after its place in the result: `1.0`, or
    /// `logits`; a single one is named `output`.
    #[must_use]
    pub fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    /// The weights, in the order in which they lie in the file.
    pub fn weights(&self) -> impl ExactSizeIterator<Item = &TensorSpec> {
        self.weights.iter().map(|entry| &entry.spec)
    }

    /// The program that the engine runs.
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

    /// Calls `work` with the types of all values of the graph: for costs, and to run the graph in
    /// another way.
    ///
    /// # Errors
    /// None that opening the file would not have reported.
    pub fn with_types<T>(
        &self,
        work: impl FnOnce(&mut Propagator<'_>) -> T,
    ) -> Result<T, ModelError> {
        let host = FileHost::of(&self.weights);
        let mut types = Propagator::new(&host, Settings::default());
        types
            .run(&self.graph, &typed(&self.inputs))
            .map_err(|error| ModelError::Types(Box::new(error)))?;
        Ok(work(&mut types))
    }

    /// The program with its weights, which are read and packed here.
    ///
    /// # Errors
    /// If the file cannot be read any more.
    pub fn executable(&self) -> Result<Executable, ModelError> {
        without_panic(|| {
            let weights = FileWeights {
                file: self,
                failed: Mutex::default(),
            };
            Executable::new(self.program.clone(), &weights)
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
fn check_names(graph: &Graph, inputs: &[TensorSpec], weights: &[Entry]) -> Result<(), ModelError> {
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

fn typed(inputs: &[TensorSpec]) -> Vec<Value> {
    let value = |spec: &TensorSpec| Value::tensor(type_of(spec));
    inputs.iter().map(value).collect()
}

fn type_of(spec: &TensorSpec) -> TensorType {
    let sizes = spec.shape.iter();
    // Larger sizes are refused before any memory is allocated for them.
    let sizes = sizes.map(|&size| Dim::Known(i64::try_from(size).unwrap_or(i64::MAX)));
    TensorType::new(spec.dtype, sizes)
}

fn compiled(
    graph: &Graph,
    host: &FileHost,
    inputs: &[TensorSpec],
    limits: &Limits,
    precision: Precision,
) -> Result<Program, ModelError> {
    for spec in inputs {
        let sizes = spec.shape.iter().map(|&size| size.max(1) as u64);
        let each = u64::try_from(element_bytes(spec.dtype)).unwrap_or(1);
        let bytes = sizes.fold(each.max(1), u64::saturating_mul);
        within("bytes of an input", bytes, limits.value_bytes)?;
    }
    let mut types = Propagator::new(host, Settings::default());
    find_types(graph, &mut types, &typed(inputs), limits)?;
    let mut program = match lower(graph, &types) {
        Ok(program) => program,
        Err(first) => return Err(ModelError::Unsupported(all_unknown(graph, &types, first))),
    };
    program.precision = program.precision.or(precision);
    check_program(&program, limits)?;
    optimise(&mut program);
    check_program(&program, limits)?;
    Ok(program)
}

/// All nodes that cannot be lowered, except those that fail only because of others.
fn all_unknown(graph: &Graph, types: &Propagator<'_>, first: LowerError) -> Vec<LowerError> {
    let found = unsupported(graph, types).into_iter();
    let found = found.map(|(node, reason)| LowerError {
        node,
        name: graph.node(node).name().to_owned(),
        target: graph.node(node).target_name().to_owned(),
        reason,
    });
    // Nodes that depend on a call of unknown type have the same reason.
    let mut reasons = FxHashSet::default();
    let mut own: Vec<LowerError> = found
        .filter(|error| reasons.insert(error.reason.clone()))
        .collect();
    if own.len() > 1 {
        own.retain(|error| graph.node(error.node).op() != GraphOp::Output);
    }
    if own.is_empty() { vec![first] } else { own }
}

fn name_outputs(program: &Program, output: &Output, path: String, names: &mut Vec<TensorSpec>) {
    let inner = |key: &str| match path.is_empty() {
        true => key.to_owned(),
        false => format!("{path}.{key}"),
    };
    match output {
        Output::Value(value) => names.push(TensorSpec {
            name: match path.is_empty() {
                true => "output".to_owned(),
                false => path,
            },
            dtype: program.output_dtypes[names.len()],
            shape: program.shape(*value).to_vec(),
        }),
        Output::Tuple(items) | Output::List(items) => {
            for (number, item) in items.iter().enumerate() {
                name_outputs(program, item, inner(&number.to_string()), names);
            }
        }
        Output::Dict(entries) => {
            for (key, item) in entries {
                name_outputs(program, item, inner(key), names);
            }
        }
        Output::Input(_) | Output::None => {}
    }
}

/// The types of the attributes of a graph, as the file gives them.
struct FileHost {
    attributes: FxHashMap<String, Value>,
    count: usize,
}

impl FileHost {
    fn of(weights: &[Entry]) -> Self {
        let attribute = |(number, entry): (usize, &Entry)| {
            let tensor = TypedTensor {
                storage: Storage::from_index(number),
                ..TypedTensor::new(type_of(&entry.spec))
            };
            (entry.spec.name.clone(), Value::Tensor(tensor))
        };
        Self {
            attributes: weights.iter().enumerate().map(attribute).collect(),
            count: weights.len(),
        }
    }
}

impl TypeHost for FileHost {
    fn module(&self, _path: &str) -> Option<&ModuleFacts> {
        None
    }

    fn attribute(&self, path: &str) -> Option<Value> {
        self.attributes.get(path).cloned()
    }

    fn constant(&self, _id: ExternalId) -> Option<Value> {
        None
    }

    fn weight_count(&self) -> usize {
        self.count
    }
}

/// The weights of a file, for packing.
struct FileWeights<'f> {
    file: &'f ModelFile,
    /// The error of the first weight that could not be read.
    failed: Mutex<Option<ModelError>>,
}

impl FileWeights<'_> {
    /// The error of the first weight that could not be read, if there was one.
    fn into_error(self) -> Option<ModelError> {
        self.failed.into_inner().ok().flatten()
    }

    /// The bytes of weight `number`, if it is of this type.
    fn bytes(&self, number: usize, dtype: DType) -> Option<Vec<u8>> {
        let entry = self.file.weights.get(number)?;
        if entry.spec.dtype != dtype {
            return None;
        }
        match self.file.source.read(entry.start, entry.len) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                if let Ok(mut failed) = self.failed.lock() {
                    failed.get_or_insert(error);
                }
                None
            }
        }
    }
}

impl Weights for FileWeights<'_> {
    fn weight(&self, number: usize) -> Option<Cow<'_, [f32]>> {
        if let Some((bits, half)) = self.half_weight(number) {
            let mut numbers = vec![0.0; bits.len()];
            half.widen(&bits, &mut numbers);
            return Some(Cow::Owned(numbers));
        }
        let bytes = self.bytes(number, DType::Float32)?;
        let (numbers, _) = bytes.as_chunks();
        let numbers = numbers.iter().map(|&own| f32::from_le_bytes(own));
        Some(numbers.collect())
    }

    fn half_weight(&self, number: usize) -> Option<HalfBits<'_>> {
        let half = Half::of(self.file.weights.get(number)?.spec.dtype)?;
        let bytes = self.bytes(number, half.dtype())?;
        let bits = bytes.as_chunks().0.iter();
        Some((bits.map(|&own| u16::from_le_bytes(own)).collect(), half))
    }

    fn f64_weight(&self, number: usize) -> Option<Cow<'_, [f64]>> {
        let bytes = self.bytes(number, DType::Float64)?;
        let numbers = bytes.as_chunks().0.iter();
        Some(numbers.map(|&own| f64::from_le_bytes(own)).collect())
    }

    fn byte_weight(&self, number: usize) -> Option<(Cow<'_, [u8]>, Byte)> {
        let of = |dtype, byte| Some((Cow::Owned(self.bytes(number, dtype)?), byte));
        of(DType::Int8, Byte::Signed).or_else(|| of(DType::UInt8, Byte::Unsigned))
    }

    fn i64_weight(&self, number: usize) -> Option<Vec<i64>> {
        let dtype = self.file.weights.get(number)?.spec.dtype;
        let bytes = self.bytes(number, dtype)?;
        /// Numbers of as many bytes as `from` takes.
        fn numbers<const N: usize>(bytes: &[u8], from: fn([u8; N]) -> i64) -> Vec<i64> {
            bytes.as_chunks().0.iter().map(|&own| from(own)).collect()
        }
        Some(match dtype {
            DType::Int64 => numbers(&bytes, i64::from_le_bytes),
            DType::Int32 => numbers(&bytes, |own| i32::from_le_bytes(own).into()),
            DType::Int16 => numbers(&bytes, |own| i16::from_le_bytes(own).into()),
            DType::Int8 => numbers(&bytes, |own| i8::from_le_bytes(own).into()),
            DType::UInt8 => numbers(&bytes, |[own]| own.into()),
            _ => return None,
        })
    }

    fn bool_weight(&self, number: usize) -> Option<Vec<u8>> {
        self.bytes(number, DType::Bool)
    }
}
