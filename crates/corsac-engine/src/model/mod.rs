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

mod check;
mod error;
mod file;
mod header;
mod limits;
mod metadata;
mod source;
mod tensor;
mod write;

use std::path::Path;
use std::sync::Mutex;

pub use error::{ModelError, ModelErrorKind, without_panic};
pub use file::ModelFile;
pub(crate) use file::file_metadata;
pub use limits::Limits;
pub use tensor::{Tensor, TensorSpec};
pub(crate) use write::{header_bytes, temporary};
pub use write::{model_bytes, write_model};

use crate::data::{Data, DataMut, Elements};
use crate::error::RunError;
use crate::execute::Context;
use crate::execute::Executable;
use crate::threads::default_threads;

/// The newest version of the format. All versions up to it are read. Version 1 is written if all inputs
/// and weights are of float32, int64 or bool: programs that read only that do not run others.
pub const VERSION: u32 = 2;

/// A model ready to run. Any number of threads may run it at once.
#[derive(Debug)]
pub struct Model {
    executable: Executable,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    threads: usize,
    /// Memory of finished runs, for later ones.
    idle: Mutex<Vec<Context>>,
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
    pub fn from_file(file: ModelFile) -> Result<Self, ModelError> {
        let (inputs, outputs) = (file.inputs().to_vec(), file.outputs().to_vec());
        let executable = file.executable()?;
        Ok(Self {
            executable,
            inputs,
            outputs,
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

    /// Number of threads of a run.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The inputs of the model, in order.
    #[must_use]
    pub fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    /// The outputs of the model, in order, named after their places in the result.
    #[must_use]
    pub fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    /// The program with its weights packed.
    #[must_use]
    pub fn executable(&self) -> &Executable {
        &self.executable
    }

    /// Runs it on `inputs`, in order.
    ///
    /// # Errors
    /// If the model expects other inputs.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, ModelError> {
        for (spec, tensor) in self.inputs.iter().zip(inputs) {
            let got = tensor.spec(&spec.name);
            if *spec != got {
                return Err(ModelError::Input {
                    expected: Box::new(spec.clone()),
                    got: Box::new(got),
                });
            }
        }
        let inputs: Vec<Data<'_>> = inputs
            .iter()
            .map(|tensor| tensor.elements().all())
            .collect();
        let program = self.executable.program();
        let values = program.outputs();
        let elements = values.iter().map(|&value| {
            let info = program.value(value);
            Elements::zeros(info.element, info.len())
        });
        let mut outputs: Vec<Elements> = elements.collect();
        let mut places: Vec<DataMut<'_>> = outputs.iter_mut().map(Elements::all_mut).collect();
        self.run_into(&inputs, &mut places)?;
        let results = self.outputs.iter().zip(outputs);
        Ok(results
            .map(|(spec, elements)| spec.tensor(elements))
            .collect())
    }

    /// As [`Model::run`], with elements row by row, into memory of the caller: numbers of 16 bits as
    /// `f32`, integers of fewer than 64 bits as `i64`. Inputs have to be numbers of their types, to
    /// which results are rounded.
    ///
    /// # Errors
    /// If inputs or outputs differ in number, length or element type from those of the model.
    pub fn run_into(
        &self,
        inputs: &[Data<'_>],
        outputs: &mut [DataMut<'_>],
    ) -> Result<(), ModelError> {
        if outputs.len() != self.outputs.len() {
            return Err(ModelError::Run(RunError::OutputCount {
                expected: self.outputs.len(),
                got: outputs.len(),
            }));
        }
        let idle = self.idle.lock().ok().and_then(|mut idle| idle.pop());
        let mut context = idle.unwrap_or_else(|| self.executable.context());
        without_panic(|| {
            let run = self.executable.on_threads(self.threads, || {
                self.executable.run_typed(&mut context, inputs, outputs)
            });
            run.map_err(ModelError::Run)
        })?;
        for (spec, output) in self.outputs.iter().zip(outputs) {
            output.round_to(spec.dtype);
        }
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(context);
        }
        Ok(())
    }
}
