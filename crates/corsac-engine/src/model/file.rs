//! A model file, read and checked.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use corsac_ir::Graph;
use corsac_ops::shape::Propagator;
use rustc_hash::{FxHashMap, FxHashSet};

use super::called_graphs::CalledGraphs;
use super::check::RANK;
use super::compile::{Compiler, output_specs};
use super::error::{ModelError, without_panic};
use super::file_weights::FileWeights;
use super::header::{Header, LENGTH_BYTES, graph_type};
use super::limits::{Limits, within};
use super::metadata::{GRAPHS, ModelMetadata, ProgramMetadata, wrong};
use super::output_shapes::OutputSpec;
use super::program::{ModelProgram, Names, check_inputs};
use super::signature::Signature;
use super::source::Source;
use super::specialisation::Specialisation;
use super::state::FileState;
use super::tensor::{Tensor, TensorSpec};
use crate::execute::Executable;
use crate::prepare::WeightCache;
use crate::program::{Precision, Program};

/// A model file: its programs, their state, and the places of their weights. The whole file is checked, but only its
/// header is read.
///
/// Of several programs, the first is the default one: [`graph`](Self::graph), [`inputs`](Self::inputs) and others are
/// about it, unless [another](Self::with_program) is chosen.
#[derive(Debug)]
pub struct ModelFile {
    source: Source,
    programs: Vec<ModelProgram>,
    graphs: Arc<CalledGraphs>,
    /// The number of the default program.
    default: usize,
    weights: Vec<Entry>,
    state: FileState,
    limits: Limits,
    metadata: HashMap<String, String>,
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
        let specs = weights.iter().map(|entry| &entry.spec);
        let state = FileState::new(metadata.state, &metadata.programs, specs.clone())?;
        let texts = (metadata.programs, metadata.graphs);
        let (programs, graphs) = read_programs(texts, &specs, &state, limits)?;
        Ok(Self {
            source,
            programs,
            graphs,
            default: 0,
            weights,
            state,
            limits: *limits,
            metadata: header.metadata,
        })
    }

    /// Compiles the model anew, with convolutions and linear layers that multiply in another
    /// precision.
    ///
    /// # Errors
    /// If its values then exceed the limits.
    pub fn with_precision(mut self, precision: Precision) -> Result<Self, ModelError> {
        let mut programs = self.programs.iter_mut();
        programs.try_for_each(|program| program.set_precision(precision))?;
        Ok(self)
    }

    /// The same file, with the program of this name as the default one.
    ///
    /// # Errors
    /// If there is no such program.
    pub fn with_program(mut self, name: &str) -> Result<Self, ModelError> {
        self.default = self.number_of(Some(name))?;
        Ok(self)
    }

    /// The programs, in the order of the file.
    #[must_use]
    pub fn programs(&self) -> &[ModelProgram] {
        &self.programs
    }

    /// The graphs that those of programs and others call, by name.
    #[must_use]
    pub fn graphs(&self) -> Vec<(&str, &Graph)> {
        let mut graphs: Vec<(&str, &Graph)> = self.graphs.iter().collect();
        graphs.sort_unstable_by_key(|(name, _)| *name);
        graphs
    }

    /// The default program.
    #[must_use]
    pub fn default_program(&self) -> &ModelProgram {
        &self.programs[self.default]
    }

    /// What else the header says, by key.
    #[must_use]
    pub fn metadata(&self) -> &HashMap<String, String> {
        &self.metadata
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn default_number(&self) -> usize {
        self.default
    }

    /// The number of the program of this name; that of the default one if there is none.
    pub(super) fn number_of(&self, name: Option<&str>) -> Result<usize, ModelError> {
        let Some(name) = name else {
            return Ok(self.default);
        };
        let found = self.programs.iter().position(|own| own.name() == name);
        found.ok_or_else(|| ModelError::Program {
            name: name.chars().take(64).collect(),
            known: self
                .programs
                .iter()
                .map(|own| own.name().to_owned())
                .collect(),
        })
    }

    /// The state that the programs share: tensors whose sizes may be symbols, with the values that these may have for
    /// all programs, as inputs.
    #[must_use]
    pub fn state(&self) -> &Signature {
        &self.state.signature
    }

    /// The initial values of the state that does not begin with zeros.
    pub(super) fn initial(&self) -> Result<Vec<Option<Tensor>>, ModelError> {
        let weights = FileWeights::of(self);
        let numbers = self.state.initial.iter();
        let tensors = numbers.map(|number| {
            let number = (*number)?;
            Some(self.weights[number].spec.tensor(weights.elements(number)?))
        });
        let tensors: Vec<Option<Tensor>> = tensors.collect();
        match weights.into_error() {
            Some(error) => Err(error),
            None => Ok(tensors),
        }
    }

    /// Closes a file whose weights will not be read any more.
    pub(super) fn close(&mut self) {
        self.source = Source::Memory(Vec::new());
    }

    /// The graph of the default program.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        self.default_program().graph()
    }

    /// The inputs and the state of the default program with their sizes, which may be symbols, and the ranges of these.
    #[must_use]
    pub fn signature(&self) -> &Signature {
        self.default_program().signature()
    }

    /// The [inputs](ModelProgram::inputs) of the default program.
    #[must_use]
    pub fn inputs(&self) -> &[TensorSpec] {
        self.default_program().inputs()
    }

    /// The [outputs](ModelProgram::outputs) of the default program.
    #[must_use]
    pub fn outputs(&self) -> &[TensorSpec] {
        self.default_program().outputs()
    }

    /// The [outputs](ModelProgram::dynamic_outputs) of the default program.
    #[must_use]
    pub fn dynamic_outputs(&self) -> Vec<OutputSpec> {
        self.default_program().dynamic_outputs()
    }

    /// The weights, in the order in which they lie in the file.
    pub fn weights(&self) -> impl ExactSizeIterator<Item = &TensorSpec> {
        self.weights.iter().map(|entry| &entry.spec)
    }

    /// The [program](ModelProgram::program) that the engine runs for the default one.
    #[must_use]
    pub fn program(&self) -> &Program {
        self.default_program().program()
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

    /// As [`ModelProgram::with_types`], of the default program.
    ///
    /// # Errors
    /// If the program does not take such sizes.
    pub fn with_types<T>(
        &self,
        values: &[usize],
        work: impl FnOnce(&mut Propagator<'_>) -> T,
    ) -> Result<T, ModelError> {
        self.default_program().with_types(values, work)
    }

    /// As [`ModelProgram::program_for`], of the default program.
    ///
    /// # Errors
    /// If the program does not take such sizes.
    pub fn program_for(&self, values: &[usize]) -> Result<Program, ModelError> {
        self.default_program().program_for(values)
    }

    /// The program with its weights, which are read and packed here.
    ///
    /// # Errors
    /// If the file cannot be read any more.
    pub fn executable(&self) -> Result<Executable, ModelError> {
        self.executable_of(self.program().clone(), &WeightCache::default())
    }

    /// The default program where symbols have [these values](Signature::values). Weights are read and packed here,
    /// unless `cache` has them from other sizes or programs of this file.
    ///
    /// # Errors
    /// If the model does not take such sizes, or the file cannot be read any more.
    pub fn specialised(
        &self,
        values: &[usize],
        cache: &WeightCache,
    ) -> Result<Specialisation, ModelError> {
        self.specialised_program(self.default, values, cache)
    }

    /// The same for the program with this number.
    pub(super) fn specialised_program(
        &self,
        number: usize,
        values: &[usize],
        cache: &WeightCache,
    ) -> Result<Specialisation, ModelError> {
        let own = &self.programs[number];
        own.compiler.at(values, || {
            let program = match *values == *own.signature().least() {
                true => own.program().clone(),
                false => own.compiler.program(values)?,
            };
            Ok(Specialisation {
                inputs: own.signature().specs_at(values)?,
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

/// Reads the texts of programs, which read these weights, and of graphs that they call, and compiles the programs.
fn read_programs<'w>(
    (programs, called): (Vec<ProgramMetadata>, Vec<(String, String)>),
    weights: &(impl ExactSizeIterator<Item = &'w TensorSpec> + Clone),
    state: &FileState,
    limits: &Limits,
) -> Result<(Vec<ModelProgram>, Arc<CalledGraphs>), ModelError> {
    // Graphs read weights, too.
    let is_several = programs.len() > 1 || !called.is_empty();
    let mut nodes = 0;
    let called = called
        .into_iter()
        .map(|(name, text)| Ok((name, read_graph(&text, &mut nodes, limits)?)));
    let called = CalledGraphs::new(called.collect::<Result<_, ModelError>>()?)?;
    let called = Arc::new(called);
    let graphs = programs.into_iter().map(|own| {
        let graph = read_graph(&own.graph, &mut nodes, limits)?;
        Ok((own.name, graph, own.signature))
    });
    let graphs: Vec<(String, Graph, Signature)> = graphs.collect::<Result<_, ModelError>>()?;
    let stored = state.signature.inputs();
    let places = stored
        .iter()
        .enumerate()
        .map(|(at, spec)| (&*spec.name, at));
    let places: FxHashMap<&str, usize> = places.collect();
    let mut read: FxHashSet<&str> = places.keys().copied().collect();
    let known = weights.clone().map(|spec| &*spec.name);
    let known: FxHashSet<&str> = known.filter(|name| !read.contains(name)).collect();
    let mut specs = weights.clone();
    if let Some(spec) = specs.find(|spec| called.get(&spec.name).is_some()) {
        let reason = format!("a tensor has the name {:.64?}, too", spec.name);
        return Err(wrong(GRAPHS, reason));
    }
    let names = Names {
        weights: &known,
        graphs: &called,
    };
    for (_, graph, signature) in &graphs {
        check_inputs(graph, signature)?;
        names.check(graph, &mut read)?;
    }
    for (_, graph) in called.iter() {
        names.check(graph, &mut read)?;
    }
    called.check(graphs.iter().map(|(_, graph, _)| graph), limits)?;
    if let Some(spec) = weights.clone().find(|spec| !read.contains(&*spec.name)) {
        return Err(ModelError::Weight {
            name: spec.name.clone(),
            reason: "the graph does not read it".to_owned(),
        });
    }
    let made = graphs.into_iter().map(|(name, graph, signature)| {
        let own = signature.state().iter();
        let own = own
            .filter_map(|spec| places.get(&*spec.name).copied())
            .collect();
        let mut compiler = Compiler::new(graph, signature, weights.clone(), &called, limits)?;
        if is_several {
            compiler = compiler.sharing_weights();
        }
        ModelProgram::new(name, compiler, own)
    });
    Ok((made.collect::<Result<_, _>>()?, called))
}

/// Reads the text of a graph, and adds its nodes to those of other programs.
fn read_graph(text: &str, nodes: &mut usize, limits: &Limits) -> Result<Graph, ModelError> {
    if !text.starts_with("graph v") {
        return Err(ModelError::Metadata {
            key: super::metadata::GRAPH,
            reason: "it is not in the lossless form, which begins with `graph v1:`".to_owned(),
        });
    }
    let lines = text
        .lines()
        .filter(|line| line.trim_start().starts_with('%'));
    *nodes = nodes.saturating_add(lines.count());
    within("nodes of the graph", *nodes, limits.nodes)?;
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
