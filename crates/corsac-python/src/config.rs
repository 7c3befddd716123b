//! Configurations, for Python: modules and tensors as plain data, the graph as a graph.

use corsac_config::{
    Config, ConfigError as ReadError, Format, Initial, Input, Literal, ModuleSpec, Policy,
    Position, TensorSpec, WriteError,
};
use corsac_ir::{DType, Op, Target};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use rustc_hash::FxHashSet;

use crate::graph::PyGraph;
use crate::resolve::resolve;
use crate::runtime::{TorchValue, TorchValues};
use crate::text::attach_functions;

pyo3::create_exception!(
    corsac._core,
    ConfigError,
    PyValueError,
    "An invalid configuration, or a model that cannot be described by one.\n\n\
     Has the attributes `line` and `column`, counted from 1; both are None where a model cannot be \
     described."
);

/// A module: path, class, positional and keyword arguments of its constructor.
type PyModuleSpec<'py> = (String, String, Vec<Bound<'py, PyAny>>, Bound<'py, PyDict>);

/// A tensor: path, whether it is a parameter, dtype, shape, and a word or a list of elements.
type PyTensorSpec<'py> = (String, bool, Bound<'py, PyAny>, Vec<u64>, Bound<'py, PyAny>);

/// An input: its name, and the dtype and shape of an example.
type PyInput<'py> = (String, Option<(Bound<'py, PyAny>, Vec<u64>)>);

fn config_error(py: Python<'_>, error: &ReadError) -> PyErr {
    let raised = ConfigError::new_err(error.to_string());
    let Position { line, column } = error.position;
    let value = raised.value(py);
    let set = (value.setattr("line", line)).and_then(|()| value.setattr("column", column));
    set.err().unwrap_or(raised)
}

fn write_error(py: Python<'_>, error: &WriteError) -> PyErr {
    let raised = ConfigError::new_err(error.to_string());
    let value = raised.value(py);
    let none = || py.None();
    let set = (value.setattr("line", none())).and_then(|()| value.setattr("column", none()));
    set.err().unwrap_or(raised)
}

fn format_named(name: &str) -> PyResult<Format> {
    match name {
        "graph" => Ok(Format::Graph),
        "toml" => Ok(Format::Toml),
        "json" => Ok(Format::Json),
        _ => Err(PyValueError::new_err(format!(
            "expected the format 'graph', 'toml' or 'json', got {name:?}"
        ))),
    }
}

/// Reads a configuration and builds its computation in the empty `graph`.
///
/// Args:
///     graph: an empty graph.
///     text: the configuration.
///     format: "graph", "toml" or "json".
///     allowed: names that it may use besides operators of torch: qualified names, with the
///         functions or classes behind them.
///     max_nodes: the largest number of nodes of the graph.
///
/// Returns the model's name or None; the modules as (path, class, args, kwargs, line); the tensors
/// as (path, is a parameter, dtype, shape, initial value, line), where the initial value is a word
/// or a list of elements; the inputs as (name, dtype or None, shape or None).
#[pyfunction]
#[pyo3(signature = (graph, text, format, allowed, max_nodes))]
pub(crate) fn read_config<'py>(
    graph: &Bound<'py, PyGraph>,
    text: &str,
    format: &str,
    allowed: &Bound<'py, PyDict>,
    max_nodes: usize,
) -> PyResult<Bound<'py, PyTuple>> {
    let py = graph.py();
    let names: Vec<String> = allowed.keys().extract()?;
    let policy = Policy::allowing(names).with_max_nodes(max_nodes);
    let mut config = Config::read_with(text, format_named(format)?, &policy)
        .map_err(|error| config_error(py, &error))?;

    let mut functions = Vec::new();
    let mut seen = FxHashSet::default();
    for id in config.graph.find_nodes(Op::CallFunction, None) {
        let Target::Function(function) = config.graph.node(id).target() else {
            continue;
        };
        if !seen.insert(function) {
            continue;
        }
        let name = config.graph.function_name(function).to_owned();
        let found = match allowed.get_item(&name)? {
            Some(callable) => Some(callable),
            None => resolve(py, &name, None)?,
        };
        let Some(callable) = found.filter(|found| found.is_callable()) else {
            let place = config.functions.iter().find(|(known, _)| *known == name);
            let error = ReadError {
                position: place.map(|(_, position)| *position).unwrap_or_default(),
                message: format!("the installed torch has no function {name}").into(),
            };
            return Err(config_error(py, &error));
        };
        functions.push((function, callable));
    }

    let modules = (config.modules.iter()).map(|module| module_to_python(py, module));
    let modules = modules.collect::<PyResult<Vec<_>>>()?;
    let tensors = (config.tensors.iter()).map(|tensor| tensor_to_python(py, tensor));
    let tensors = tensors.collect::<PyResult<Vec<_>>>()?;
    let inputs = (config.inputs.iter()).map(|input| input_to_python(py, input));
    let inputs = inputs.collect::<PyResult<Vec<_>>>()?;

    let callables = attach_functions(&mut config.graph, functions);
    let mut borrowed = graph.try_borrow_mut()?;
    if !borrowed.ir().is_empty() {
        return Err(PyRuntimeError::new_err(
            "only an empty graph can be filled from a configuration",
        ));
    }
    let (ir, host) = borrowed.parts_mut();
    *ir = config.graph;
    for (function, external, callable) in &callables {
        host.attach_external(*external, callable);
        host.attach_function(*function, callable);
    }
    drop(borrowed);
    (config.name, modules, tensors, inputs).into_pyobject(py)
}

/// Writes a configuration from the parts that `read_config` returns, as lists, and the graph.
#[pyfunction]
#[pyo3(signature = (graph, name, modules, tensors, inputs, format))]
pub(crate) fn write_config(
    graph: &Bound<'_, PyGraph>,
    name: Option<String>,
    modules: Vec<PyModuleSpec<'_>>,
    tensors: Vec<PyTensorSpec<'_>>,
    inputs: Vec<PyInput<'_>>,
    format: &str,
) -> PyResult<String> {
    let py = graph.py();
    let mut config = Config {
        name,
        ..Config::default()
    };
    for (path, class, args, kwargs) in modules {
        let args = args.iter().map(literal).collect::<PyResult<_>>()?;
        let kwargs = kwargs.copy()?;
        let kwargs = kwargs
            .iter()
            .map(|(key, value)| Ok((key.extract()?, literal(&value)?)));
        config.modules.push(ModuleSpec {
            path,
            class,
            args,
            kwargs: kwargs.collect::<PyResult<_>>()?,
            position: Position::default(),
        });
    }
    for (path, parameter, dtype, shape, initial) in tensors {
        let initial = match literal(&initial)? {
            Literal::List(elements) => Initial::Elements(elements),
            Literal::Str(word) if word == "zeros" => Initial::Zeros,
            Literal::Str(word) if word == "ones" => Initial::Ones,
            _ => Initial::Normal,
        };
        config.tensors.push(TensorSpec {
            path,
            parameter,
            dtype: dtype_of(&dtype)?,
            shape,
            initial,
            position: Position::default(),
        });
    }
    let borrowed = graph.try_borrow()?;
    config.graph = borrowed.ir().clone();
    drop(borrowed);
    let mut examples: rustc_hash::FxHashMap<String, (DType, Vec<u64>)> = Default::default();
    for (name, example) in inputs {
        if let Some((dtype, shape)) = example {
            examples.insert(name, (dtype_of(&dtype)?, shape));
        }
    }
    for id in config.graph.find_nodes(Op::Placeholder, None) {
        let node = config.graph.node(id);
        let example = examples.remove(node.target_name());
        let default = match node.args() {
            [] => None,
            [default, ..] => Some(Literal::of(&config.graph, default).ok_or_else(|| {
                ConfigError::new_err(format!(
                    "input {}: its default value cannot be written into a configuration",
                    node.name()
                ))
            })?),
        };
        config.inputs.push(Input {
            name: node.target_name().to_owned(),
            example: example.map(|(dtype, shape)| (dtype, shape.into_iter().map(Some).collect())),
            default,
            position: Position::default(),
        });
    }
    let text = config.write(format_named(format)?);
    text.map_err(|error| write_error(py, &error))
}

fn dtype_of(value: &Bound<'_, PyAny>) -> PyResult<DType> {
    match TorchValues::get(value.py())?.of(value) {
        Some(TorchValue::DType(dtype)) => Ok(dtype),
        _ => Err(PyTypeError::new_err(format!(
            "expected a torch.dtype, got {value}"
        ))),
    }
}

/// A Python value as a constant.
fn literal(value: &Bound<'_, PyAny>) -> PyResult<Literal> {
    let items = |items: Vec<Bound<'_, PyAny>>| -> PyResult<Vec<Literal>> {
        items.iter().map(literal).collect()
    };
    if value.is_none() {
        return Ok(Literal::None);
    }
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(Literal::Bool(value.is_true()));
    }
    if let Ok(value) = value.cast::<PyInt>() {
        return Ok(Literal::Int(value.extract()?));
    }
    if let Ok(value) = value.cast::<PyFloat>() {
        return Ok(Literal::Float(value.value()));
    }
    if let Ok(value) = value.cast::<PyString>() {
        return Ok(Literal::Str(value.to_cow()?.into_owned()));
    }
    if let Ok(value) = value.cast::<PyTuple>() {
        return items(value.iter().collect()).map(Literal::Tuple);
    }
    if let Ok(value) = value.cast::<PyList>() {
        return items(value.to_tuple().iter().collect()).map(Literal::List);
    }
    if let Ok(value) = value.cast::<PyDict>() {
        let value = value.copy()?;
        let entries = value
            .iter()
            .map(|(key, value)| Ok((key.extract()?, literal(&value)?)));
        return entries.collect::<PyResult<_>>().map(Literal::Dict);
    }
    match TorchValues::get(value.py())?.of(value) {
        Some(TorchValue::DType(dtype)) => Ok(Literal::DType(dtype)),
        _ => Err(PyTypeError::new_err(format!(
            "expected a number, string, dtype, list, tuple or dictionary, got a {}",
            value.get_type().name()?
        ))),
    }
}

fn literal_to_python<'py>(py: Python<'py>, value: &Literal) -> PyResult<Bound<'py, PyAny>> {
    let items = |items: &[Literal]| -> PyResult<Vec<Bound<'py, PyAny>>> {
        items
            .iter()
            .map(|item| literal_to_python(py, item))
            .collect()
    };
    Ok(match value {
        Literal::None => py.None().into_bound(py),
        Literal::Bool(value) => value.into_bound_py_any(py)?,
        Literal::Int(value) => value.into_bound_py_any(py)?,
        Literal::Float(value) => value.into_bound_py_any(py)?,
        Literal::Str(value) => value.into_bound_py_any(py)?,
        Literal::DType(dtype) => dtype_to_python(py, *dtype)?,
        Literal::List(parts) => PyList::new(py, items(parts)?)?.into_any(),
        Literal::Tuple(parts) => PyTuple::new(py, items(parts)?)?.into_any(),
        Literal::Dict(entries) => {
            let dict = PyDict::new(py);
            for (key, value) in entries {
                dict.set_item(key, literal_to_python(py, value)?)?;
            }
            dict.into_any()
        }
        _ => return Err(PyTypeError::new_err("a constant that Python does not know")),
    })
}

fn dtype_to_python(py: Python<'_>, dtype: DType) -> PyResult<Bound<'_, PyAny>> {
    let found = TorchValues::get(py)?.dtype(dtype);
    let found = found.map(|object| object.bind(py).clone());
    found.ok_or_else(|| PyTypeError::new_err(format!("the installed torch has no {dtype}")))
}

fn module_to_python<'py>(py: Python<'py>, module: &ModuleSpec) -> PyResult<Bound<'py, PyTuple>> {
    let args = literal_to_python(py, &Literal::List(module.args.clone()))?;
    let kwargs = literal_to_python(py, &Literal::Dict(module.kwargs.clone()))?;
    let line = module.position.line;
    (&module.path, &module.class, args, kwargs, line).into_pyobject(py)
}

fn tensor_to_python<'py>(py: Python<'py>, tensor: &TensorSpec) -> PyResult<Bound<'py, PyTuple>> {
    let initial = match &tensor.initial {
        Initial::Elements(elements) => literal_to_python(py, &Literal::List(elements.clone()))?,
        named => named.word().into_bound_py_any(py)?,
    };
    let dtype = dtype_to_python(py, tensor.dtype)?;
    let (shape, line) = (tensor.shape.clone(), tensor.position.line);
    (&tensor.path, tensor.parameter, dtype, shape, initial, line).into_pyobject(py)
}

fn input_to_python<'py>(py: Python<'py>, input: &Input) -> PyResult<Bound<'py, PyTuple>> {
    let (dtype, shape) = match &input.example {
        Some((dtype, shape)) => (Some(dtype_to_python(py, *dtype)?), Some(shape.clone())),
        None => (None, None),
    };
    (&input.name, dtype, shape).into_pyobject(py)
}
