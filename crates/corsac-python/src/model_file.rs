//! Model files, for Python: written from a graph and tensors, opened, run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use corsac_engine::{
    DType, InputSpec, MOST_SIZES, ModelDraft, ModelError, ModelErrorKind, ModelFile, OutputSpec,
    ProgramSource, Signature, Size, SizeCache, SizeSymbol, SizeValues, TensorSpec, WeightCache,
    write_programs,
};
use corsac_ir::Graph;
use corsac_ops::shape::Dim;
use pyo3::buffer::PyBuffer;
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::engine::{CompileError, Contexts, PyProgram};

create_exception!(
    corsac._core,
    ModelFileError,
    PyValueError,
    "A file that is no model file, is damaged, or exceeds a limit."
);

/// A weight in Python: name, element type without the `torch.`, sizes.
pub(crate) type Spec = (String, String, Vec<usize>);

/// A size in Python: a number, or an expression as text.
#[derive(FromPyObject, IntoPyObject)]
pub(crate) enum PySize {
    Number(usize),
    Text(String),
}

/// An input or output in Python: name, element type without the `torch.`, sizes.
pub(crate) type DynamicSpec = (String, String, Vec<PySize>);

/// A symbol in Python: name, least and largest value.
pub(crate) type Symbol = (String, usize, Option<usize>);

pub(crate) fn model_error(error: &ModelError) -> PyErr {
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
        ModelErrorKind::Call => PyValueError::new_err(text),
        _ => ModelFileError::new_err(text),
    }
}

pub(crate) fn element_type(name: &str) -> PyResult<DType> {
    let known = name.parse::<DType>();
    known.map_err(|()| PyValueError::new_err(format!("{name} is no element type")))
}

fn spec((name, dtype, shape): Spec) -> PyResult<TensorSpec> {
    let dtype = element_type(&dtype)?;
    Ok(TensorSpec { name, dtype, shape })
}

pub(crate) fn spec_of(spec: &TensorSpec) -> Spec {
    let dtype = spec.dtype.name().to_owned();
    (spec.name.clone(), dtype, spec.shape.clone())
}

fn input((name, dtype, shape): DynamicSpec) -> PyResult<InputSpec> {
    let size = |size| match size {
        PySize::Number(size) => Ok(Size::Fixed(size)),
        PySize::Text(text) => {
            let size = text.parse();
            size.map_err(|()| PyValueError::new_err(format!("{text:?} is no size")))
        }
    };
    Ok(InputSpec {
        name,
        dtype: element_type(&dtype)?,
        shape: shape.into_iter().map(size).collect::<PyResult<_>>()?,
    })
}

pub(crate) fn input_of(spec: &InputSpec) -> DynamicSpec {
    let size = |size: &Size| match size {
        Size::Fixed(size) => PySize::Number(*size),
        Size::Symbolic { .. } => PySize::Text(size.to_string()),
    };
    let shape = spec.shape.iter().map(size).collect();
    (spec.name.clone(), spec.dtype.name().to_owned(), shape)
}

pub(crate) fn output_of(spec: &OutputSpec) -> DynamicSpec {
    let size = |dim: &Option<Dim>| match dim {
        Some(Dim::Known(size)) => PySize::Number(usize::try_from(*size).unwrap_or(0)),
        Some(dim) => PySize::Text(dim.to_string()),
        None => PySize::Text("?".to_owned()),
    };
    let shape = spec.shape.iter().map(size).collect();
    (spec.name.clone(), spec.dtype.name().to_owned(), shape)
}

fn parsed(text: &str) -> PyResult<Graph> {
    Graph::parse(text).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Graphs by name.
fn all_parsed(texts: Vec<(String, String)>) -> PyResult<Vec<(String, Graph)>> {
    let texts = texts.into_iter();
    texts
        .map(|(name, text)| Ok((name, parsed(&text)?)))
        .collect()
}

fn signature(
    inputs: Vec<DynamicSpec>,
    state: Vec<DynamicSpec>,
    symbols: Vec<Symbol>,
    conditions: Vec<String>,
) -> PyResult<Signature> {
    let all = |specs: Vec<DynamicSpec>| specs.into_iter().map(input).collect::<PyResult<_>>();
    let symbols = symbols.into_iter();
    let symbols = symbols.map(|(name, least, most)| SizeSymbol { name, least, most });
    Signature::with_state(all(inputs)?, all(state)?, symbols.collect(), conditions)
        .map_err(|error| model_error(&error))
}

/// The symbols of a signature.
pub(crate) fn symbols_of(signature: &Signature) -> Vec<Symbol> {
    let symbols = signature.symbols().iter();
    symbols
        .map(|own| (own.name.clone(), own.least, own.most))
        .collect()
}

/// A model without its weights: the graph of `text`, in the lossless form, its inputs, the types of the tensors
/// that it names, the symbols among its sizes, the nodes that have to be true, the state behind its inputs, and graphs
/// that it calls, by name.
#[pyclass(name = "ModelDraft", module = "corsac._core", frozen)]
struct PyModelDraft {
    draft: ModelDraft,
    /// Sizes that were checked.
    checked: SizeCache<()>,
}

#[pymethods]
impl PyModelDraft {
    #[new]
    #[pyo3(signature = (text, inputs, weights, symbols, conditions, state = Vec::new(), graphs = Vec::new()))]
    fn new(
        text: &str,
        inputs: Vec<DynamicSpec>,
        weights: Vec<Spec>,
        symbols: Vec<Symbol>,
        conditions: Vec<String>,
        state: Vec<DynamicSpec>,
        graphs: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let signature = signature(inputs, state, symbols, conditions)?;
        let weights = weights.into_iter().map(spec);
        let weights: Vec<TensorSpec> = weights.collect::<PyResult<_>>()?;
        let draft = ModelDraft::new(parsed(text)?, signature, &weights, all_parsed(graphs)?);
        Ok(Self {
            draft: draft.map_err(|error| model_error(&error))?,
            checked: SizeCache::new(MOST_SIZES),
        })
    }

    /// Floating-point operations of a call with these values of the symbols; None if it needs more memory than
    /// files may ask for. Raises `ValueError` if the model does not take such sizes.
    fn check(&self, py: Python<'_>, values: Vec<usize>) -> PyResult<Option<i64>> {
        match py.detach(|| self.draft.check(&values)) {
            Ok(flops) => Ok(Some(flops)),
            Err(error) if error.kind() == ModelErrorKind::TooLarge => Ok(None),
            Err(error) => Err(model_error(&error)),
        }
    }

    /// Checks that it takes inputs of these shapes, one for each; raises `ValueError` if not.
    fn check_shapes(&self, py: Python<'_>, shapes: Vec<Vec<usize>>) -> PyResult<()> {
        let values = values(self.draft.signature(), &shapes)?;
        let check = || self.draft.check_types(&values);
        py.detach(|| self.checked.get_or_make(&values, check))
            .map_err(|error| model_error(&error))
    }
}

/// The values of the symbols for inputs of these shapes.
fn values(signature: &Signature, shapes: &[Vec<usize>]) -> PyResult<SizeValues> {
    let count = signature.inputs().len();
    if shapes.len() != count {
        let text = format!("the model takes {count} inputs, not {}", shapes.len());
        return Err(PyValueError::new_err(text));
    }
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    let values = signature.unify(&shapes);
    values.map_err(|error| model_error(&error))
}

/// A program in Python: its name, its graph in the lossless form, its inputs, its state, the symbols among the sizes of
/// both, and the nodes that have to be true.
type ProgramParts = (
    String,
    String,
    Vec<DynamicSpec>,
    Vec<DynamicSpec>,
    Vec<Symbol>,
    Vec<String>,
);

/// Writes a model file: programs, each with its name (empty for an only one), its graph in the lossless form, its
/// inputs, its state, the symbols among the sizes of both, and the nodes that have to be true; and the tensors that
/// they name, with their bytes; other texts for the header; and graphs that control flow calls, by name.
#[pyfunction]
#[pyo3(signature = (path, programs, weights, metadata, graphs = Vec::new()))]
fn write_model_file(
    py: Python<'_>,
    path: PathBuf,
    programs: Vec<ProgramParts>,
    weights: Vec<(Spec, PyBuffer<u8>)>,
    metadata: BTreeMap<String, String>,
    graphs: Vec<(String, String)>,
) -> PyResult<()> {
    let graphs = all_parsed(graphs)?;
    let programs = programs
        .into_iter()
        .map(|(name, text, inputs, state, symbols, conditions)| {
            let signature = signature(inputs, state, symbols, conditions)?;
            Ok((name, parsed(&text)?, signature))
        });
    let programs: Vec<(String, Graph, Signature)> = programs.collect::<PyResult<_>>()?;
    let weights = weights.into_iter();
    let weights = weights.map(|(own, bytes)| Ok((spec(own)?, bytes.to_vec(py)?)));
    let weights: Vec<(TensorSpec, Vec<u8>)> = weights.collect::<PyResult<_>>()?;
    py.detach(|| {
        let weights: Vec<(TensorSpec, &[u8])> = weights
            .iter()
            .map(|(spec, bytes)| (spec.clone(), bytes.as_slice()))
            .collect();
        let programs: Vec<ProgramSource<'_>> = programs
            .iter()
            .map(|(name, graph, signature)| ProgramSource {
                name,
                graph,
                signature,
            })
            .collect();
        let graphs = graphs.iter();
        let graphs: Vec<(&str, &Graph)> = graphs.map(|(name, own)| (&**name, own)).collect();
        write_programs(&path, &programs, &graphs, &weights, &metadata)
    })
    .map_err(|error| model_error(&error))
}

/// A model file, read and checked.
#[pyclass(name = "ModelFile", module = "corsac._core", frozen)]
struct PyModelFile {
    file: ModelFile,
    /// Programs by sizes, which share packed weights and memory.
    programs: SizeCache<Arc<Py<PyProgram>>>,
    weights: WeightCache,
    contexts: Contexts,
}

#[pymethods]
impl PyModelFile {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let open = |path: &Path| ModelFile::open(path);
        py.detach(|| open(&path))
            .map(|file| Self {
                file,
                programs: SizeCache::new(MOST_SIZES),
                weights: WeightCache::default(),
                contexts: Contexts::default(),
            })
            .map_err(|error| model_error(&error))
    }

    /// The graph, in the lossless form.
    #[getter]
    fn text(&self) -> String {
        self.file.graph().to_lossless()
    }

    /// The graphs that it calls: names, and texts in the lossless form.
    #[getter]
    fn graphs(&self) -> Vec<(String, String)> {
        let graphs = self.file.graphs().into_iter();
        graphs
            .map(|(name, own)| (name.to_owned(), own.to_lossless()))
            .collect()
    }

    /// Its inputs: names, element types, sizes, which may be expressions of symbols.
    #[getter]
    fn inputs(&self) -> Vec<DynamicSpec> {
        let inputs = self.file.signature().inputs();
        inputs.iter().map(input_of).collect()
    }

    /// Its outputs: places in the result, element types, sizes, which may be expressions of symbols, or `"?"`.
    #[getter]
    fn outputs(&self) -> Vec<DynamicSpec> {
        self.file.dynamic_outputs().iter().map(output_of).collect()
    }

    /// The symbols among the sizes of its inputs: names, least and largest values.
    #[getter]
    fn symbols(&self) -> Vec<Symbol> {
        symbols_of(self.file.signature())
    }

    /// The names of the nodes of the graph that have to be true.
    #[getter]
    fn conditions(&self) -> Vec<String> {
        self.file.signature().conditions().to_vec()
    }

    /// Whether it runs in sessions: it has state, or several programs.
    #[getter]
    fn has_sessions(&self) -> bool {
        self.file.programs().len() > 1 || !self.file.state().inputs().is_empty()
    }

    /// Its weights: names, element types, sizes.
    #[getter]
    fn weights(&self) -> Vec<Spec> {
        self.file.weights().map(spec_of).collect()
    }

    /// The bytes of the weight with this number, in little-endian and row-major order.
    fn weight_bytes<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.file.weight_bytes(number));
        let bytes = bytes.map_err(|error| model_error(&error))?;
        let bytes = bytes.ok_or_else(|| PyValueError::new_err(format!("no weight {number}")))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Its program for inputs of these shapes, with packed weights. Raises `ValueError` if it does not take
    /// them.
    fn program(&self, py: Python<'_>, shapes: Vec<Vec<usize>>) -> PyResult<Py<PyProgram>> {
        let values = values(self.file.signature(), &shapes)?;
        // Another thread that compiles a program for these sizes needs the interpreter.
        let program = py.detach(|| {
            self.programs.get_or_make(&values, || {
                let made = self.file.specialised(&values, &self.weights);
                let executable = made.map_err(|error| model_error(&error))?.into_executable();
                let contexts = Arc::clone(&self.contexts);
                let program = PyProgram::new(executable, false, contexts);
                Python::attach(|py| Py::new(py, program)).map(Arc::new)
            })
        })?;
        Ok(program.clone_ref(py))
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
    m.add_class::<PyModelDraft>()?;
    m.add_class::<PyModelFile>()?;
    m.add_function(wrap_pyfunction!(run_program, m)?)?;
    m.add_function(wrap_pyfunction!(write_model_file, m)?)
}
