//! Language models in files, for Python.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use corsac_engine::{ModelFile, without_panic};
use corsac_generate::{
    Batch, Finish, GenerateError, Request, Sampling, SequenceId, TextModel, candidates,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::model_file::{ModelFileError, model_error};

fn text_error(error: &GenerateError) -> PyErr {
    match error {
        GenerateError::Run(error) => model_error(error),
        GenerateError::Model(_) => ModelFileError::new_err(error.to_string()),
        error => PyValueError::new_err(error.to_string()),
    }
}

/// Does `work` without the interpreter. A panic is an error.
fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, GenerateError> + Send,
) -> PyResult<T> {
    py.detach(|| without_panic(|| Ok(work())))
        .map_err(|error| model_error(&error))?
        .map_err(|error| text_error(&error))
}

/// How tokens are chosen: temperature, number of tokens, sum of probabilities, repetition penalty, seed.
type Choice = (f32, Option<usize>, Option<f32>, f32, u64);

fn sampling((temperature, top_k, top_p, repetition_penalty, seed): Choice) -> Sampling {
    Sampling {
        temperature,
        top_k,
        top_p,
        repetition_penalty,
        seed,
    }
}

/// The tokens that may come after `text`, and how probable each is, the most probable one first.
#[pyfunction]
fn text_candidates(logits: Vec<f32>, text: Vec<u32>, choice: Choice) -> PyResult<Vec<(u32, f32)>> {
    let found = candidates(&sampling(choice), &logits, &text);
    let found = found.map_err(|error| text_error(&error))?;
    Ok(found
        .iter()
        .map(|own| (own.token, own.probability))
        .collect())
}

/// A language model in a file.
#[pyclass(name = "TextModel", module = "corsac._core", frozen)]
struct PyTextModel(TextModel);

#[pymethods]
impl PyTextModel {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, threads: Option<usize>) -> PyResult<Self> {
        let load = || TextModel::from_file(ModelFile::open(path)?, threads);
        Ok(Self(detached(py, load)?))
    }

    /// Number of tokens that there are.
    #[getter]
    fn vocabulary(&self) -> usize {
        self.0.vocabulary()
    }

    /// Most tokens of a prompt.
    #[getter]
    fn longest_text(&self) -> usize {
        self.0.longest_text()
    }

    /// Tokens that end a text.
    #[getter]
    fn stop(&self) -> Vec<u32> {
        self.0.stop().to_vec()
    }

    /// Most sequences that it continues at once.
    #[getter]
    fn most_rows(&self) -> usize {
        self.0.most_rows()
    }

    /// A batch of that many sequences at once.
    fn batch(&self, rows: usize) -> PyResult<PyTextBatch> {
        let batch = self.0.batch(rows).map_err(|error| text_error(&error))?;
        Ok(PyTextBatch(Mutex::new(batch)))
    }
}

/// Sequences that are continued together. Calls from several threads wait for each other.
#[pyclass(name = "TextBatch", module = "corsac._core", frozen)]
struct PyTextBatch(Mutex<Batch>);

impl PyTextBatch {
    fn lock(&self) -> MutexGuard<'_, Batch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyTextBatch {
    /// Adds a sequence: its prompt, most new tokens, how they are chosen, tokens that end it. Returns its number.
    fn add(
        &self,
        py: Python<'_>,
        prompt: Vec<u32>,
        max_new_tokens: usize,
        choice: Choice,
        stop: Option<Vec<u32>>,
    ) -> PyResult<u64> {
        let request = Request {
            prompt,
            max_new_tokens,
            sampling: sampling(choice),
            stop,
        };
        Ok(detached(py, || self.lock().add(request))?.0)
    }

    /// Ends a sequence; false if there is none.
    fn remove(&self, py: Python<'_>, sequence: u64) -> PyResult<bool> {
        detached(py, || Ok(self.lock().remove(SequenceId(sequence))))
    }

    /// Number of sequences that have not ended.
    fn __len__(&self, py: Python<'_>) -> usize {
        py.detach(|| self.lock().len())
    }

    /// Continues each sequence by a token: sequences, tokens, and why a text ends.
    fn step(&self, py: Python<'_>) -> PyResult<Vec<(u64, u32, Option<&'static str>)>> {
        let tokens = detached(py, || self.lock().step())?;
        let tokens = tokens.into_iter();
        Ok(tokens
            .map(|new| (new.sequence.0, new.token, new.finish.map(Finish::name)))
            .collect())
    }
}

/// Adds the classes to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyTextModel>()?;
    m.add_class::<PyTextBatch>()?;
    m.add_function(wrap_pyfunction!(text_candidates, m)?)
}
