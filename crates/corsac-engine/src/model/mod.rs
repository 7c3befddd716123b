//! Models in files, run without Python.
//!
//! A model file is a safetensors file: weights, and in its metadata the text of a graph and the
//! types of its inputs. The graph is lowered when the file is loaded, so files do not depend on the
//! programs of this engine. `docs/model-files.md` describes the format.
//!
//! ```
//! use corsac_engine::{DType, Model, Tensor, TensorSpec, write_model};
//! use corsac_ir::Graph;
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("double.safetensors");
//! let graph = Graph::parse(
//!     "graph v1:
//!     %x = placeholder[target=x]
//!     %w = get_attr[target=factor]
//!     %y = call_function[target=torch.mul](args = (%x, %w), kwargs = {})
//!     %output = output[target=output](args = (%y,), kwargs = {})",
//! )?;
//! let spec = |name: &str, shape: &[usize]| TensorSpec {
//!     name: name.to_owned(),
//!     dtype: DType::Float32,
//!     shape: shape.to_vec(),
//! };
//! let factor = 2.0_f32.to_le_bytes();
//! write_model(&path, &graph, &[spec("x", &[3])], &[(spec("factor", &[]), &factor)])?;
//!
//! let model = Model::load(&path)?;
//! let outputs = model.run(&[Tensor::new([3], [1.0_f32, 2.0, 3.0])?])?;
//! assert_eq!(outputs[0].as_f32(), Some(&[2.0, 4.0, 6.0][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A file is data: it may come from anywhere. Loading checks all of it and runs nothing. A fault is
//! a [`ModelError`] that says where it is, and a file that asks for more memory than [`Limits`]
//! allow is refused before any is allocated.

mod called_graphs;
mod check;
mod compile;
mod conditions;
mod draft;
mod error;
mod file;
mod file_weights;
mod header;
mod limits;
mod metadata;
mod output_shapes;
mod program;
mod session;
mod signature;
mod size;
mod size_cache;
mod source;
mod specialisation;
mod state;
mod tensor;
mod write;

use std::path::Path;
use std::sync::{Arc, Mutex};

use corsac_ir::DType;
use smallvec::SmallVec;

pub use draft::ModelDraft;
pub use error::{ModelError, ModelErrorKind, without_panic};
pub use file::ModelFile;
pub(crate) use file::file_metadata;
pub use limits::Limits;
pub use output_shapes::OutputSpec;
pub use program::ModelProgram;
pub use session::Session;
pub use signature::{InputSpec, Signature, SizeValues};
pub use size::{Size, SizeSymbol};
pub use size_cache::SizeCache;
pub use specialisation::Specialisation;
pub use tensor::{Tensor, TensorSpec};
pub use write::{
    ProgramSource, dynamic_model_bytes, model_bytes, programs_bytes, write_dynamic_model,
    write_model, write_programs,
};
pub(crate) use write::{header_bytes, temporary};

use crate::data::{Data, DataMut, Elements};
use crate::error::RunError;
use crate::execute::Context;
use crate::execute::Executable;
use crate::prepare::WeightCache;
use crate::threads::default_threads;

/// The newest version of the format. All versions up to it are read, and the oldest that has everything is
/// written: 6 for numbers and texts among results, 5 for control flow, 4 for several programs or state, 3 if
/// sizes are symbols, 1 if all inputs and weights are of float32, int64 or bool, else 2.
pub const VERSION: u32 = 6;

/// By default, the largest number of sets of sizes of a model that have programs.
pub const MOST_SIZES: usize = 32;

/// A model ready to run. Any number of threads may run it at once.
///
/// Methods that take no name of a program are about the default one, the first of the file. Programs with state run in
/// a [`Session`].
///
/// If sizes of inputs are symbols, a program is compiled at the first call with new sizes, in milliseconds.
/// Programs share packed weights; the least recently used one is dropped if there are more than
/// [`MOST_SIZES`].
#[derive(Debug)]
pub struct Model {
    file: ModelFile,
    /// By program.
    compiled: Vec<Compiled>,
    /// The initial values of the state that does not begin with zeros.
    initial: Vec<Option<Tensor>>,
    weights: WeightCache,
    threads: usize,
    /// Memory of finished runs, for later ones.
    idle: Mutex<Vec<Context>>,
}

/// A program compiled for sizes.
#[derive(Debug)]
struct Compiled {
    /// For the least sizes, or the only ones. It keeps the packed weights that all sizes share.
    first: Arc<Specialisation>,
    others: SizeCache<Arc<Specialisation>>,
}

impl Model {
    /// Loads the model in the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, is no model file, or exceeds the default [`Limits`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        Self::from_file(ModelFile::open(path)?)
    }

    /// Reads and packs the weights of `file`.
    ///
    /// # Errors
    /// If the file cannot be read any more.
    pub fn from_file(mut file: ModelFile) -> Result<Self, ModelError> {
        let weights = WeightCache::default();
        let programs = file.programs().iter().enumerate();
        let compiled = programs.map(|(number, program)| {
            let least = program.signature().least();
            let first = file.specialised_program(number, &least, &weights)?;
            Ok(Compiled {
                first: Arc::new(first),
                others: SizeCache::new(MOST_SIZES),
            })
        });
        let compiled = compiled.collect::<Result<_, ModelError>>()?;
        let initial = file.initial()?;
        let mut programs = file.programs().iter();
        if !programs.any(|program| program.signature().is_dynamic()) {
            file.close();
        }
        Ok(Self {
            file,
            compiled,
            initial,
            weights,
            threads: default_threads(),
            idle: Mutex::default(),
        })
    }

    /// Sets the number of threads of a run: by default `CORSAC_NUM_THREADS`, or the number of
    /// cores.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Sets the largest number of sets of sizes for which each program of the file is kept: by default
    /// [`MOST_SIZES`].
    #[must_use]
    pub fn with_most_sizes(mut self, sizes: usize) -> Self {
        for program in &mut self.compiled {
            program.others = SizeCache::new(sizes);
        }
        self
    }

    /// Number of threads of a run.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The programs, in the order of the file.
    #[must_use]
    pub fn programs(&self) -> &[ModelProgram] {
        self.file.programs()
    }

    /// The program of this name, or else the default one.
    ///
    /// # Errors
    /// If there is no such program.
    pub fn program(&self, name: Option<&str>) -> Result<&ModelProgram, ModelError> {
        let number = self.file.number_of(name)?;
        Ok(&self.programs()[number])
    }

    /// The [state](ModelFile::state) that the programs share.
    #[must_use]
    pub fn state(&self) -> &Signature {
        self.file.state()
    }

    /// A session with state of these sizes, at its beginning: `[("batch", 1), ("capacity", 64)]`, for all symbols of
    /// [`state`](Self::state). It keeps the model.
    ///
    /// # Errors
    /// If the state has no such sizes, values are missing or out of range, or the state needs more memory than the
    /// [`Limits`] of the file allow.
    pub fn session(self: &Arc<Self>, sizes: &[(&str, usize)]) -> Result<Session, ModelError> {
        Session::new(Arc::clone(self), sizes)
    }

    /// The inputs with their sizes, which may be symbols, and the ranges of these.
    #[must_use]
    pub fn signature(&self) -> &Signature {
        self.file.signature()
    }

    /// The inputs of the model, in order; with the least sizes, where these are symbols.
    #[must_use]
    pub fn inputs(&self) -> &[TensorSpec] {
        self.default().first.inputs()
    }

    /// The outputs of the model for [`inputs`](Self::inputs), in order, named after their places in the result.
    #[must_use]
    pub fn outputs(&self) -> &[TensorSpec] {
        self.default().first.outputs()
    }

    /// The outputs with sizes as expressions of the symbols, where they are products and sums of these.
    #[must_use]
    pub fn dynamic_outputs(&self) -> Vec<OutputSpec> {
        self.file.dynamic_outputs()
    }

    /// The program with its weights packed, for [`inputs`](Self::inputs).
    #[must_use]
    pub fn executable(&self) -> &Executable {
        self.default().first.executable()
    }

    /// Compiles the model for symbols with these names and values, unless it has been: `[("batch", 8)]`. Calls
    /// of such sizes need not compile then.
    ///
    /// # Errors
    /// If there are no such symbols, values are missing or out of range, or the model cannot be compiled for
    /// them.
    pub fn specialise(&self, sizes: &[(&str, usize)]) -> Result<Arc<Specialisation>, ModelError> {
        let number = self.file.default_number();
        let values = self.signature().values(sizes)?;
        self.specialisation(number, &values)
    }

    fn default(&self) -> &Compiled {
        &self.compiled[self.file.default_number()]
    }

    /// The program with this number where symbols have these values.
    fn specialisation(
        &self,
        number: usize,
        values: &[usize],
    ) -> Result<Arc<Specialisation>, ModelError> {
        let compiled = &self.compiled[number];
        if *values == *self.programs()[number].signature().least() {
            return Ok(Arc::clone(&compiled.first));
        }
        compiled.others.get_or_make(values, || {
            let made = self
                .file
                .specialised_program(number, values, &self.weights)?;
            Ok(Arc::new(made))
        })
    }

    /// Runs it on `inputs`, in order.
    ///
    /// # Errors
    /// If the model expects other inputs.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, ModelError> {
        let model = self.specialise_for(inputs)?;
        let inputs: Vec<Data<'_>> = inputs
            .iter()
            .map(|tensor| tensor.elements().all())
            .collect();
        let mut outputs = model.empty_outputs();
        let mut places: Vec<DataMut<'_>> = outputs.iter_mut().map(Elements::all_mut).collect();
        self.run_specialised(&model, &inputs, &mut places)?;
        Ok(model.results(outputs))
    }

    /// As [`specialise`](Self::specialise), for the types and shapes of these inputs.
    ///
    /// # Errors
    /// If the model expects other inputs.
    pub fn specialise_for(&self, inputs: &[Tensor]) -> Result<Arc<Specialisation>, ModelError> {
        let given = inputs.iter().map(|tensor| (tensor.dtype(), tensor.shape()));
        self.specialise_for_types(&given.collect::<SmallVec<[_; 4]>>())
    }

    /// As [`specialise`](Self::specialise), for inputs of these types and shapes.
    ///
    /// # Errors
    /// If the model expects other inputs.
    pub fn specialise_for_types(
        &self,
        inputs: &[(DType, &[usize])],
    ) -> Result<Arc<Specialisation>, ModelError> {
        let number = self.file.default_number();
        let signature = self.signature();
        if !signature.state().is_empty() {
            let state = signature.state().iter().map(|spec| &*spec.name);
            return Err(ModelError::NoSession {
                state: state.collect::<Vec<_>>().join(", "),
            });
        }
        self.specialise_with(number, inputs)
    }

    /// The program with this number for inputs, and behind them state, of these types and shapes.
    fn specialise_with(
        &self,
        number: usize,
        tensors: &[(DType, &[usize])],
    ) -> Result<Arc<Specialisation>, ModelError> {
        let signature = self.programs()[number].signature();
        let expected = signature.tensors();
        for (spec, &(dtype, shape)) in expected.iter().zip(tensors) {
            if spec.dtype != dtype || spec.shape.len() != shape.len() {
                return Err(ModelError::input(spec, dtype, shape));
            }
        }
        if signature.is_dynamic() && tensors.len() == expected.len() {
            let shapes: SmallVec<[&[usize]; 4]> = tensors.iter().map(|&(_, shape)| shape).collect();
            return self.specialisation(number, &signature.unify(&shapes)?);
        }
        for (spec, &(dtype, shape)) in expected.iter().zip(tensors) {
            let mut sizes = spec.shape.iter().zip(shape);
            if sizes.any(|(size, &own)| size.fixed().is_some_and(|size| size != own)) {
                return Err(ModelError::input(spec, dtype, shape));
            }
        }
        // The program reports a wrong number of inputs.
        Ok(Arc::clone(&self.compiled[number].first))
    }

    /// As [`Model::run`], with elements row by row, into memory of the caller: numbers of 16 bits as
    /// `f32`, integers of fewer than 64 bits as `i64`. Inputs have to be numbers of their types, to
    /// which results are rounded. Their shapes are those of [`inputs`](Self::inputs).
    ///
    /// # Errors
    /// If inputs or outputs differ in number, length or element type from those of the model.
    pub fn run_into(
        &self,
        inputs: &[Data<'_>],
        outputs: &mut [DataMut<'_>],
    ) -> Result<(), ModelError> {
        self.run_specialised(&self.default().first, inputs, outputs)
    }

    /// As [`Model::run_into`], for the sizes of `model`, which [`specialise`](Self::specialise) returned.
    ///
    /// # Errors
    /// As [`Model::run_into`].
    pub fn run_specialised(
        &self,
        model: &Specialisation,
        inputs: &[Data<'_>],
        outputs: &mut [DataMut<'_>],
    ) -> Result<(), ModelError> {
        if outputs.len() != model.outputs().len() {
            return Err(ModelError::Run(RunError::OutputCount {
                expected: model.outputs().len(),
                got: outputs.len(),
            }));
        }
        self.run_with(model, inputs, outputs)
    }

    /// Runs a program with its results and the state that it writes in `outputs`.
    fn run_with(
        &self,
        model: &Specialisation,
        inputs: &[Data<'_>],
        outputs: &mut [DataMut<'_>],
    ) -> Result<(), ModelError> {
        let idle = self.idle.lock().ok().and_then(|mut idle| idle.pop());
        let executable = model.executable();
        let mut context = idle.unwrap_or_else(|| executable.context());
        without_panic(|| {
            let run = executable.on_threads(self.threads, || {
                executable.run_typed(&mut context, inputs, outputs)
            });
            run.map_err(ModelError::Run)
        })?;
        for (spec, output) in model.outputs().iter().zip(outputs) {
            output.round_to(spec.dtype);
        }
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(context);
        }
        Ok(())
    }
}
