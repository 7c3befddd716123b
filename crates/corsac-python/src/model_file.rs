//! Model files, for Python: written from a graph and tensors, opened, run.

use std::path::{Path, PathBuf};

use corsac_engine::{
    DType, Executable, ModelError, ModelErrorKind, ModelFile, TensorSpec, write_model,
};
use corsac_ir::Graph;
use pyo3::buffer::PyBuffer;
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::engine::{CompileError, PyProgram};

create_exception!(
    corsac._core,
    ModelFileError,
    PyValueError,
    "A file that is no model file, is damaged, or exceeds a limit."
);

/// A tensor in Python: name, element type without the `torch.`, sizes.
type Spec = (String, String, Vec<usize>);

fn model_error(error: &ModelError) -> PyErr {
    if let ModelError::Io { path, source } = error {
        let number = source.raw_os_error();
        let text = source.to_string();
        return match number {
            // Of the class for the number: FileNotFoundError, PermissionError.
            Some(number) => PyOSError::new_err((number, text, path.clone())),
            None => std::io::Error::new(source.kind(), error.to_string()).into(),
        };
    }
    let text = error.to_string();
    match error.kind() {
        ModelErrorKind::Unsupported => CompileError::new_err(text),
        ModelErrorKind::Internal => PyRuntimeError::new_err(text),
        _ => ModelFileError::new_err(text),
    }
}

fn spec((name, dtype, shape): Spec) -> PyResult<TensorSpec> {
    let known = dtype.parse::<DType>();
    let dtype = known.map_err(|()| PyValueError::new_err(format!("{dtype} is no element type")))?;
    Ok(TensorSpec { name, dtype, shape })
}

fn spec_of(spec: &TensorSpec) -> Spec {
    let dtype = spec.dtype.name().to_owned();
    (spec.name.clone(), dtype, spec.shape.clone())
}

/// Writes a model file: the graph of `text`, in the lossless form, its inputs, and the tensors that
/// it names, with their bytes.
#[pyfunction]
fn write_model_file(
    py: Python<'_>,
    path: PathBuf,
    text: &str,
    inputs: Vec<Spec>,
    weights: Vec<(Spec, PyBuffer<u8>)>,
) -> PyResult<()> {
    let graph = Graph::parse(text).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let inputs: Vec<TensorSpec> = inputs.into_iter().map(spec).collect::<PyResult<_>>()?;
    let weights = weights.into_iter();
    let weights = weights.map(|(own, bytes)| Ok((spec(own)?, bytes.to_vec(py)?)));
    let weights: Vec<(TensorSpec, Vec<u8>)> = weights.collect::<PyResult<_>>()?;
    py.detach(|| {
        let weights: Vec<(TensorSpec, &[u8])> = weights
            .iter()
            .map(|(spec, bytes)| (spec.clone(), bytes.as_slice()))
            .collect();
        write_model(&path, &graph, &inputs, &weights)
    })
    .map_err(|error| model_error(&error))
}

/// A model file, read and checked.
#[pyclass(name = "ModelFile", module = "corsac._core", frozen)]
struct PyModelFile(ModelFile);

#[pymethods]
impl PyModelFile {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let open = |path: &Path| ModelFile::open(path);
        py.detach(|| open(&path))
            .map(Self)
            .map_err(|error| model_error(&error))
    }

    /// The graph, in the lossless form.
    #[getter]
    fn text(&self) -> String {
        self.0.graph().to_lossless()
    }

    /// Its inputs: names, element types, sizes.
    #[getter]
    fn inputs(&self) -> Vec<Spec> {
        self.0.inputs().iter().map(spec_of).collect()
    }

    /// Its outputs: places in the result, element types, sizes.
    #[getter]
    fn outputs(&self) -> Vec<Spec> {
        self.0.outputs().iter().map(spec_of).collect()
    }

    /// Its weights: names, element types, sizes.
    #[getter]
    fn weights(&self) -> Vec<Spec> {
        self.0.weights().map(spec_of).collect()
    }

    /// The bytes of the weight with this number, in little-endian and row-major order.
    fn weight_bytes<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.0.weight_bytes(number));
        let bytes = bytes.map_err(|error| model_error(&error))?;
        let bytes = bytes.ok_or_else(|| PyValueError::new_err(format!("no weight {number}")))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Its program, with packed weights.
    fn program(&self, py: Python<'_>) -> PyResult<PyProgram> {
        let executable = py.detach(|| self.0.executable());
        let executable: Executable = executable.map_err(|error| model_error(&error))?;
        Ok(PyProgram::new(executable, false))
    }
}

/// Runs the native program with this command line, the program's name first; returns its exit code.
#[pyfunction]
fn run_program(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> u8 {
    py.detach(|| {
        let (out, err) = (std::io::stdout(), std::io::stderr());
        corsac_cli::run(arguments, &mut out.lock(), &mut err.lock())
    })
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("ModelFileError", m.py().get_type::<ModelFileError>())?;
    m.add_class::<PyModelFile>()?;
    m.add_function(wrap_pyfunction!(run_program, m)?)?;
    m.add_function(wrap_pyfunction!(write_model_file, m)?)
}
