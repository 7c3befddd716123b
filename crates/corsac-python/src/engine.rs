//! Programs of the engine, for Python: compiled from a graph, run on arrays.

use std::sync::Mutex;
use std::time::Duration;

use corsac_engine::{
    Context, Data, DataMut, Element, Elements, Executable, Output, RunError, ValueId, Weights,
    lower, on_threads, optimise, unsupported,
};
use corsac_ir::{Graph, NodeId, Op};
use corsac_ops::shape::{Propagator, Storage, Value};
use pyo3::buffer::PyBuffer;
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use rustc_hash::FxHashMap;

use crate::analysis::facts::TypeFacts;
use crate::analysis::value::TypeReader;
use crate::analysis::{settings, shape_error};
use crate::graph::PyGraph;
use crate::node::PyNode;

create_exception!(
    corsac._core,
    CompileError,
    PyRuntimeError,
    "A graph cannot be compiled: the node, and why."
);

/// A graph as a native program, for inputs of fixed shapes.
#[pyclass(name = "NativeProgram", module = "corsac._core", frozen)]
pub(crate) struct PyProgram {
    executable: Executable,
    /// Whether what is returned twice is one tensor.
    strict: bool,
    /// Memory of runs that are over, for those to come.
    idle: Mutex<Vec<Memory>>,
}

/// The memory of one run.
struct Memory {
    context: Context,
    inputs: Vec<Elements>,
    outputs: Vec<Elements>,
}

/// Weights read from tensors when they are asked for, one by one: a model is not in memory twice.
struct Loaded<'a> {
    tensors: &'a [Py<PyAny>],
    elements: Vec<Option<Element>>,
    /// What went wrong.
    error: Mutex<Option<PyErr>>,
}

impl Loaded<'_> {
    fn take(&self, number: usize) -> Option<Elements> {
        let (tensor, element) = (self.tensors.get(number)?, (*self.elements.get(number)?)?);
        match Python::attach(|py| elements(tensor.bind(py), element)) {
            Ok(found) => Some(found),
            Err(error) => {
                if let Ok(mut place) = self.error.lock() {
                    *place = Some(error);
                }
                None
            }
        }
    }
}

impl Weights for Loaded<'_> {
    fn weight(&self, number: usize) -> Option<Vec<f32>> {
        match self.take(number)? {
            Elements::F32(data) => Some(data),
            Elements::I64(_) | Elements::Bool(_) => None,
        }
    }

    fn integers(&self, number: usize) -> Option<Vec<i64>> {
        match self.take(number)? {
            Elements::I64(data) => Some(data),
            Elements::F32(_) | Elements::Bool(_) => None,
        }
    }

    fn flags(&self, number: usize) -> Option<Vec<u8>> {
        match self.take(number)? {
            Elements::Bool(data) => Some(data),
            Elements::F32(_) | Elements::I64(_) => None,
        }
    }
}

fn run_error(error: &RunError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// The elements of a tensor, row by row.
fn elements(tensor: &Bound<'_, PyAny>, element: Element) -> PyResult<Elements> {
    let py = tensor.py();
    let array = tensor
        .call_method0(intern!(py, "detach"))?
        .call_method0(intern!(py, "contiguous"))?
        // A number has a buffer without a shape.
        .call_method1(intern!(py, "view"), (-1,))?
        .call_method0(intern!(py, "numpy"))?;
    Ok(match element {
        Element::F32 => Elements::F32(PyBuffer::<f32>::get(&array)?.to_vec(py)?),
        Element::I64 => Elements::I64(PyBuffer::<i64>::get(&array)?.to_vec(py)?),
        Element::Bool => {
            let bytes = array.call_method1(intern!(py, "view"), (intern!(py, "uint8"),))?;
            Elements::flags(PyBuffer::<u8>::get(&bytes)?.to_vec(py)?)
        }
    })
}

/// Reads an array into memory of the same size; truth values are bytes.
fn read(array: &Bound<'_, PyAny>, to: &mut Elements) -> PyResult<()> {
    let py = array.py();
    match to {
        Elements::F32(to) => PyBuffer::<f32>::get(array)?.copy_to_slice(py, to),
        Elements::I64(to) => PyBuffer::<i64>::get(array)?.copy_to_slice(py, to),
        Elements::Bool(to) => {
            PyBuffer::<u8>::get(array)?.copy_to_slice(py, to)?;
            to.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            Ok(())
        }
    }
}

/// Writes memory to an array of the same size; truth values are bytes.
fn write(array: &Bound<'_, PyAny>, from: &Elements) -> PyResult<()> {
    let py = array.py();
    match from {
        Elements::F32(from) => PyBuffer::<f32>::get(array)?.copy_from_slice(py, from),
        Elements::I64(from) => PyBuffer::<i64>::get(array)?.copy_from_slice(py, from),
        Elements::Bool(from) => PyBuffer::<u8>::get(array)?.copy_from_slice(py, from),
    }
}

/// Calls `work` with `graph` and the types of its values for tensors like `inputs`.
fn with_types<'py, T>(
    graph: &Bound<'py, PyGraph>,
    inputs: &Bound<'py, PyTuple>,
    facts: &TypeFacts,
    work: impl FnOnce(&Graph, &Propagator<'_>) -> PyResult<T>,
) -> PyResult<T> {
    let py = graph.py();
    let reader = TypeReader::new(py)?;
    let inputs = inputs.iter().map(|input| reader.value(&input));
    let inputs = inputs.collect::<PyResult<Vec<Value>>>()?;
    let mut types = Propagator::new(facts, settings(py)?);
    let borrowed = graph.try_borrow()?;
    match types.run(borrowed.ir(), &inputs) {
        Ok(()) => work(borrowed.ir(), &types),
        Err(error) => {
            drop(borrowed);
            Err(shape_error(graph, &error))
        }
    }
}

/// The nodes whose values are returned although they share memory with an input, a weight or
/// another result, and why that cannot be: results of programs are new tensors.
fn shared_results(graph: &Graph, types: &Propagator<'_>) -> Vec<(NodeId, String)> {
    let mut owners: FxHashMap<Storage, String> = FxHashMap::default();
    let mut returned = Vec::new();
    for node in graph.nodes() {
        let view = graph.node(node);
        match view.op() {
            Op::Placeholder => types.value(node).for_each_tensor(&mut |tensor| {
                owners.insert(tensor.storage, format!("the input {}", view.name()));
            }),
            Op::Output => view.args().iter().for_each(|arg| {
                arg.for_each_node(&mut |node| {
                    if !returned.contains(&node) {
                        returned.push(node);
                    }
                });
            }),
            _ => {}
        }
    }
    returned.sort_by_key(|&node| graph.node(node).order());
    let mut found = Vec::new();
    for node in returned {
        let mut own = Vec::new();
        let mut shared = None;
        types.value(node).for_each_tensor(&mut |tensor| {
            if tensor.storage.index() < types.weight_count() {
                shared = Some("a weight".to_owned());
            } else if let Some(owner) = owners.get(&tensor.storage) {
                shared = Some(owner.clone());
            } else {
                own.push(tensor.storage);
            }
        });
        if let Some(owner) = shared {
            let reason = format!("it is returned and shares memory with {owner}");
            found.push((node, reason));
        }
        for storage in own {
            owners.insert(storage, format!("the result {}", graph.node(node).name()));
        }
    }
    found
}

/// Compiles `graph`, whose `owning_module` has the weights, for tensors like `inputs`.
///
/// Raises `CompileError` for what the engine does not know, and `ShapeInferenceError` for a call
/// that fails when it runs. Results are new tensors; `strict` makes it a `CompileError` if one would
/// share memory with an input, a weight or another result in PyTorch, and what is returned twice one
/// tensor.
#[pyfunction]
#[pyo3(signature = (graph, inputs, *, strict = false))]
fn compile_graph<'py>(
    graph: &Bound<'py, PyGraph>,
    inputs: &Bound<'py, PyTuple>,
    strict: bool,
) -> PyResult<PyProgram> {
    let py = graph.py();
    let facts = TypeFacts::of_graph(graph)?;
    let program = with_types(graph, inputs, &facts, |ir, types| {
        if strict && let Some((node, reason)) = shared_results(ir, types).first() {
            let (name, target) = (ir.node(*node).name(), ir.node(*node).target_name());
            let text = format!("node {name} ({target}) cannot be compiled: {reason}");
            return Err(CompileError::new_err(text));
        }
        let lowered = lower(ir, types);
        let mut program = lowered.map_err(|error| CompileError::new_err(error.to_string()))?;
        optimise(&mut program);
        Ok(program)
    })?;
    let mut wanted = vec![None; facts.tensors.len()];
    for value in &program.values {
        if let corsac_engine::Source::Weight(number) = value.source {
            wanted[number] = Some(value.element);
        }
    }
    let weights = Loaded {
        tensors: &facts.tensors,
        elements: wanted,
        error: Mutex::default(),
    };
    let executable = py.detach(|| Executable::new(program, &weights));
    if let Some(error) = weights.error.into_inner().ok().flatten() {
        return Err(error);
    }
    let executable = executable.map_err(|error| run_error(&error))?;
    Ok(PyProgram::new(executable, strict))
}

/// The nodes of `graph` that the engine does not know, for tensors like `inputs`, with the reasons.
/// `strict` is as for `compile_graph`.
#[pyfunction]
#[pyo3(signature = (graph, inputs, *, strict = false))]
fn explain_compilation<'py>(
    graph: &Bound<'py, PyGraph>,
    inputs: &Bound<'py, PyTuple>,
    strict: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let py = graph.py();
    let facts = TypeFacts::of_graph(graph)?;
    let unknown = with_types(graph, inputs, &facts, |ir, types| {
        let mut unknown = unsupported(ir, types);
        if strict {
            unknown.extend(shared_results(ir, types));
        }
        Ok(unknown)
    })?;
    let borrowed = graph.try_borrow()?;
    let reasons = PyDict::new(py);
    for (node, reason) in unknown {
        reasons.set_item(PyNode::handle(graph, borrowed.host(), node)?, reason)?;
    }
    Ok(reasons)
}

impl PyProgram {
    pub(crate) fn new(executable: Executable, strict: bool) -> Self {
        Self {
            executable,
            strict,
            idle: Mutex::default(),
        }
    }

    fn memory(&self) -> Memory {
        let idle = self.idle.lock().ok().and_then(|mut idle| idle.pop());
        idle.unwrap_or_else(|| {
            let program = self.executable.program();
            let mut inputs = vec![Elements::default(); program.inputs];
            for value in &program.values {
                if let corsac_engine::Source::Input(number) = value.source {
                    inputs[number] = Elements::zeros(value.element, value.len());
                }
            }
            let outputs = program.outputs().into_iter();
            Memory {
                context: self.executable.context(),
                inputs,
                outputs: outputs
                    .map(|v| Elements::zeros(program.element(v), program.value(v).len()))
                    .collect(),
            }
        })
    }

    fn run_observed(
        &self,
        py: Python<'_>,
        inputs: &[Bound<'_, PyAny>],
        outputs: &[Bound<'_, PyAny>],
        threads: usize,
        times: Option<&mut [f64]>,
    ) -> PyResult<()> {
        let program = self.executable.program();
        if (inputs.len(), outputs.len()) != (program.inputs, program.outputs().len()) {
            return Err(PyValueError::new_err(format!(
                "the program takes {} arrays and makes {}, not {} and {}",
                program.inputs,
                program.outputs().len(),
                inputs.len(),
                outputs.len()
            )));
        }
        let mut memory = self.memory();
        for (from, to) in inputs.iter().zip(&mut memory.inputs) {
            read(from, to)?;
        }
        let Memory {
            context,
            inputs,
            outputs: results,
        } = &mut memory;
        let run = py.detach(|| {
            let inputs: Vec<Data<'_>> = inputs.iter().map(Elements::all).collect();
            let results = results.iter_mut().map(Elements::all_mut);
            let mut results: Vec<DataMut<'_>> = results.collect();
            let executable = &self.executable;
            on_threads(threads.max(1), || match times {
                None => executable.run_typed(context, &inputs, &mut results),
                Some(times) => {
                    let mut observe =
                        |step: usize, time: Duration| times[step] = time.as_secs_f64();
                    executable.run_observed(context, &inputs, &mut results, Some(&mut observe))
                }
            })
        });
        run.map_err(|error| run_error(&error))?;
        for (to, from) in outputs.iter().zip(&memory.outputs) {
            write(to, from)?;
        }
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(memory);
        }
        Ok(())
    }
}

#[pymethods]
impl PyProgram {
    /// Runs the program on arrays in row-major order, and writes the results to others: float32,
    /// int64, and bytes for truth values. The interpreter is free meanwhile. `threads` is how many
    /// take part, one at least.
    fn run(
        &self,
        py: Python<'_>,
        inputs: Vec<Bound<'_, PyAny>>,
        outputs: Vec<Bound<'_, PyAny>>,
        threads: usize,
    ) -> PyResult<()> {
        self.run_observed(py, &inputs, &outputs, threads, None)
    }

    /// Like `run`; answers how many seconds each step took.
    fn profile(
        &self,
        py: Python<'_>,
        inputs: Vec<Bound<'_, PyAny>>,
        outputs: Vec<Bound<'_, PyAny>>,
        threads: usize,
    ) -> PyResult<Vec<f64>> {
        let mut times = vec![0.0; self.step_count()];
        self.run_observed(py, &inputs, &outputs, threads, Some(&mut times))?;
        Ok(times)
    }

    /// The steps, a line of text each.
    #[getter]
    fn steps(&self) -> Vec<String> {
        let program = self.executable.program();
        let steps = program.steps.iter();
        steps.map(|step| program.line(step)).collect()
    }

    /// The shapes of the results, in order.
    #[getter]
    fn output_shapes(&self) -> Vec<Vec<usize>> {
        let program = self.executable.program();
        let outputs = program.outputs().into_iter();
        outputs.map(|value| program.shape(value).to_vec()).collect()
    }

    /// The element types of the results, by PyTorch's names for them.
    #[getter]
    fn output_dtypes(&self) -> Vec<&'static str> {
        let program = self.executable.program();
        let outputs = program.outputs().into_iter();
        outputs.map(|value| program.element(value).name()).collect()
    }

    /// What the graph returns, with the numbers of results in the places of tensors.
    fn output<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let results = self.executable.program().outputs();
        let mut next = 0..results.len();
        let mut number = |value: &ValueId| {
            let first = results.iter().position(|own| own == value);
            let own = next.next().unwrap_or_default();
            first.filter(|_| self.strict).unwrap_or(own)
        };
        match &self.executable.program().output {
            Some(output) => structure(py, output, &mut number),
            None => Ok(py.None().into_bound(py)),
        }
    }

    /// How many steps a run takes.
    #[getter]
    fn step_count(&self) -> usize {
        self.executable.program().steps.len()
    }

    /// How many bytes the values of a run take, weights and inputs aside.
    #[getter]
    fn arena_bytes(&self) -> usize {
        self.executable.plan().size_bytes()
    }

    fn __str__(&self) -> String {
        self.executable.program().to_string()
    }
}

fn structure<'py>(
    py: Python<'py>,
    output: &Output,
    number: &mut dyn FnMut(&ValueId) -> usize,
) -> PyResult<Bound<'py, PyAny>> {
    let mut all = |items: &[Output]| -> PyResult<Vec<Bound<'py, PyAny>>> {
        items
            .iter()
            .map(|item| structure(py, item, number))
            .collect()
    };
    Ok(match output {
        Output::Value(value) => number(value).into_pyobject(py)?.into_any(),
        Output::Tuple(items) => PyTuple::new(py, all(items)?)?.into_any(),
        Output::List(items) => PyList::new(py, all(items)?)?.into_any(),
        Output::Dict(entries) => {
            let dict = PyDict::new(py);
            for (key, item) in entries {
                dict.set_item(key, structure(py, item, number)?)?;
            }
            dict.into_any()
        }
        Output::None => py.None().into_bound(py),
    })
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("CompileError", m.py().get_type::<CompileError>())?;
    m.add_class::<PyProgram>()?;
    m.add_function(wrap_pyfunction!(compile_graph, m)?)?;
    m.add_function(wrap_pyfunction!(explain_compilation, m)?)
}
