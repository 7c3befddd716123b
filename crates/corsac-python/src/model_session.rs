//! Sessions of model files, for Python.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corsac_engine::{Data, Model, ModelError, Session, Tensor, TensorSpec};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::engine::{read, structure};
use crate::model_file::{
    DynamicSpec, Spec, Symbol, element_type, input_of, model_error, output_of, spec_of, symbols_of,
};

/// A tensor from Python: element type without the `torch.`, sizes, and its elements row by row as programs hold them:
/// float32, also for numbers of 16 bits, float64, int64 for all integers, bytes for truth values.
type Given<'py> = (String, Vec<usize>, Bound<'py, PyAny>);

/// A tensor for Python, with its elements as bytes.
type Returned<'py> = (String, Vec<usize>, Bound<'py, PyByteArray>);

/// Names and values of sizes.
type Sizes = Vec<(String, usize)>;

fn tensor((dtype, shape, array): Given<'_>) -> PyResult<Tensor> {
    let spec = TensorSpec {
        name: String::new(),
        dtype: element_type(&dtype)?,
        shape,
    };
    let element = spec.element();
    let element =
        element.ok_or_else(|| PyValueError::new_err(format!("no elements of {}", spec.dtype)))?;
    let tensor = Tensor::new(spec.shape, read(&array, element)?);
    let tensor = tensor.and_then(|own| own.with_dtype(spec.dtype));
    tensor.map_err(|error| model_error(&error))
}

fn returned<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Returned<'py>> {
    fn bytes<'py, T: Copy, const N: usize>(
        py: Python<'py>,
        elements: &[T],
        bytes: fn(T) -> [u8; N],
    ) -> PyResult<Bound<'py, PyByteArray>> {
        PyByteArray::new_with(py, elements.len() * N, |memory| {
            for (to, &own) in memory.as_chunks_mut().0.iter_mut().zip(elements) {
                *to = bytes(own);
            }
            Ok(())
        })
    }
    let elements = match tensor.elements().all() {
        Data::F32(own) => bytes(py, own, f32::to_le_bytes),
        Data::F64(own) => bytes(py, own, f64::to_le_bytes),
        Data::I64(own) => bytes(py, own, i64::to_le_bytes),
        Data::Bool(own) => bytes(py, own, u8::to_le_bytes),
    };
    let dtype = tensor.dtype().name().to_owned();
    Ok((dtype, tensor.shape().to_vec(), elements?))
}

fn named(sizes: &Sizes) -> Vec<(&str, usize)> {
    sizes.iter().map(|(name, size)| (&**name, *size)).collect()
}

/// A model with state or several programs, ready for sessions.
#[pyclass(name = "SessionModel", module = "corsac._core", frozen)]
struct PySessionModel(Arc<Model>);

#[pymethods]
impl PySessionModel {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let model = py.detach(|| Model::load(&path));
        let model = model.map_err(|error| model_error(&error))?;
        Ok(Self(Arc::new(model)))
    }

    /// The programs: names, inputs, outputs, the names of the state that each reads or writes, and of that which it
    /// writes.
    #[getter]
    #[expect(clippy::type_complexity, reason = "a row for Python")]
    fn programs(
        &self,
    ) -> Vec<(
        String,
        Vec<DynamicSpec>,
        Vec<DynamicSpec>,
        Vec<String>,
        Vec<String>,
    )> {
        let programs = self.0.programs().iter();
        let parts = programs.map(|own| {
            let (outputs, state) = (own.dynamic_outputs(), own.signature().state());
            (
                own.name().to_owned(),
                own.signature().inputs().iter().map(input_of).collect(),
                outputs.iter().map(output_of).collect(),
                state.iter().map(|own| own.name.clone()).collect(),
                own.written().map(str::to_owned).collect(),
            )
        });
        parts.collect()
    }

    /// The state: names, element types, sizes, which may be expressions of symbols.
    #[getter]
    fn state(&self) -> Vec<DynamicSpec> {
        self.0.state().inputs().iter().map(input_of).collect()
    }

    /// The symbols among the sizes of the state: names, least and largest values.
    #[getter]
    fn sizes(&self) -> Vec<Symbol> {
        symbols_of(self.0.state())
    }

    /// A session with state of these sizes.
    fn session(&self, py: Python<'_>, sizes: Sizes) -> PyResult<PySession> {
        let session = py.detach(|| self.0.session(&named(&sizes)));
        let session = session.map_err(|error| model_error(&error))?;
        Ok(PySession(Mutex::new(session)))
    }
}

/// A session: state between calls of the programs of a model. Calls from several threads wait for each other.
#[pyclass(name = "Session", module = "corsac._core", frozen)]
struct PySession(Mutex<Session>);

impl PySession {
    /// Does `work` with the session, without the interpreter: a thread that holds the session may wait for that.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Session) -> Result<T, ModelError> + Send,
    ) -> PyResult<T> {
        py.detach(|| work(&mut self.lock()))
            .map_err(|error| model_error(&error))
    }

    fn lock(&self) -> MutexGuard<'_, Session> {
        // A panic in a call is an error of the session.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PySession {
    /// Runs the program of this name, or the default one, on tensors: their element types, sizes and elements. Returns
    /// the value that the graph returns, with what `made` makes of each result in place of tensors.
    fn run<'py>(
        &self,
        py: Python<'py>,
        program: Option<&str>,
        inputs: Vec<Given<'py>>,
        made: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let inputs = inputs.into_iter().map(tensor);
        let inputs: Vec<Tensor> = inputs.collect::<PyResult<_>>()?;
        let run = |session: &mut Session| session.run_specialised(program, &inputs);
        let (sized, results) = self.with(py, run)?;
        let results = results.iter().map(|own| made.call1((returned(py, own)?,)));
        let mut results = results.collect::<PyResult<Vec<_>>>()?.into_iter();
        match &sized.executable().program().output {
            None => Ok(py.None().into_bound(py)),
            Some(output) => structure(py, output, &[], &mut |_| {
                let missing = || PyRuntimeError::new_err("a result is missing");
                results.next().ok_or_else(missing)
            }),
        }
    }

    /// The state: names, element types, sizes.
    #[getter]
    fn specs(&self, py: Python<'_>) -> PyResult<Vec<Spec>> {
        self.with(py, |session| {
            Ok(session.specs().iter().map(spec_of).collect())
        })
    }

    /// The sizes of the state, by name.
    #[getter]
    fn sizes(&self, py: Python<'_>) -> PyResult<Sizes> {
        self.with(py, |session| {
            let sizes = session.sizes();
            Ok(sizes.map(|(name, size)| (name.to_owned(), size)).collect())
        })
    }

    /// A copy of the state of this name: its element type, sizes and elements.
    fn state<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Returned<'py>> {
        let state = self.with(py, |session| session.state(name).cloned())?;
        returned(py, &state)
    }

    /// Replaces the state of this name.
    fn set_state(&self, py: Python<'_>, name: &str, value: Given<'_>) -> PyResult<()> {
        let value = tensor(value)?;
        self.with(py, |session| session.set_state(name, value))
    }

    /// Sets the state to its initial values.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Session::reset)
    }

    /// Enlarges the state to these sizes.
    fn resize(&self, py: Python<'_>, sizes: Sizes) -> PyResult<()> {
        self.with(py, |session| session.resize(&named(&sizes)))
    }

    /// Another session of the model, with a copy of the state.
    fn fork(&self, py: Python<'_>) -> PyResult<Self> {
        let fork = self.with(py, |session| Ok(session.fork()))?;
        Ok(Self(Mutex::new(fork)))
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySessionModel>()?;
    m.add_class::<PySession>()
}
