//! Programs with their weights, called with tensors or with arrays.

use std::ffi::CString;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corsac_engine::{
    Constant, Context, DType, Data, DataMut, Element, Elements, Executable, Half, Output,
    Precision, RunError, Source, ValueId, default_threads, threads_setting,
};
use pyo3::PyTraverseError;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyUserWarning, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyList, PyString, PyTuple};
use smallvec::SmallVec;

use super::converted::{Scratch, Target};
use super::fresh::{Fresh, Template};
use super::planted::{Place, panic_if_planted};
use super::tensors::{Described, Exchange, writable, writable_halves};
use super::weights::elements;

/// Memory of finished runs, reused by later ones: of one program, or of all programs of a model.
pub(crate) type Contexts = Arc<Mutex<Vec<Context>>>;

/// Type of a tensor that a program takes or makes.
#[derive(Clone)]
pub(super) struct Spec {
    /// Element type in the program.
    pub(super) element: Element,
    /// Element type for PyTorch.
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// Whether its truth values may be any bytes.
    any_bytes: bool,
}

impl Spec {
    fn of(dtype: DType) -> Self {
        Self {
            element: Element::F32,
            dtype,
            shape: Vec::new(),
            any_bytes: false,
        }
    }

    /// The elements of a tensor, if it has this type and can be read in place.
    fn data<'a>(&self, tensor: &Described<'a>) -> Option<Data<'a>> {
        match self.any_bytes {
            true => tensor.data_of_any_bytes(self.element, &self.shape),
            false => tensor.data(self.element, &self.shape),
        }
    }

    /// A copy of the elements of a tensor of this type: of one of 16 bits, or of narrow integers, that lies row by
    /// row, or of a small one in any layout.
    fn copied(&self, tensor: &Described<'_>, scratch: &Scratch) -> Option<Elements> {
        if !tensor.is(self.dtype, &self.shape) {
            return None;
        }
        match tensor.halves(&self.shape) {
            Some((bits, half)) => Some(Elements::F32(scratch.widened(bits, half))),
            None if self.is_narrow() => tensor.integers(&self.shape).map(Elements::I64),
            None if self.is_direct() => tensor.gathered(self.element),
            None => None,
        }
    }

    /// Type of the tensor that the program writes its elements to.
    fn written_as(&self) -> DType {
        match self.element {
            Element::Bool => DType::Bool,
            Element::F32 | Element::F64 | Element::I64 => self.dtype,
        }
    }

    /// Whether elements are integers of fewer than the 64 bits with which the program computes.
    fn is_narrow(&self) -> bool {
        self.element == Element::I64 && self.dtype != DType::Int64
    }

    /// Memory for the elements that the program makes, if PyTorch stores others.
    fn computed(&self, scratch: &Scratch) -> Option<Elements> {
        let len = self.shape.iter().product();
        match (self.is_half(), self.is_narrow()) {
            (true, _) => Some(Elements::F32(scratch.take(len))),
            (_, true) => Some(Elements::I64(vec![0; len])),
            (false, false) => None,
        }
    }

    /// Whether elements have 16 bits in PyTorch, and are converted at the border.
    fn is_half(&self) -> bool {
        Half::of(self.dtype).is_some()
    }

    /// Whether the program and PyTorch store elements alike.
    fn is_direct(&self) -> bool {
        matches!(
            self.dtype,
            DType::Float32 | DType::Float64 | DType::Int64 | DType::Bool
        )
    }
}

/// A graph as a native program, for inputs of fixed shapes.
#[pyclass(name = "NativeProgram", module = "corsac._core", frozen)]
pub(crate) struct PyProgram {
    executable: Executable,
    /// Whether a value that is returned twice is one tensor.
    strict: bool,
    /// Types of the inputs from the caller.
    inputs: Vec<Spec>,
    /// Borrowed weights, read in place: inputs after those of the caller.
    borrowed: Vec<(Py<PyAny>, Spec)>,
    outputs: Vec<Spec>,
    /// Templates of the results.
    templates: Vec<Template>,
    contexts: Contexts,
    scratch: Scratch,
    /// Indices of the inputs that it writes to.
    written: Vec<usize>,
    /// Memory of the weights, if it writes to inputs, which must not overlap it.
    weights_in: Vec<Range<usize>>,
}

fn run_error(error: &RunError) -> PyErr {
    let text = error.to_string();
    match error {
        // PyTorch must not run the call again: raises the exception that it would raise.
        RunError::AfterWrites { step, error } => match **error {
            RunError::Index { .. } if !matches!(*step, "gather" | "scatter") => {
                PyIndexError::new_err(text)
            }
            _ => PyRuntimeError::new_err(text),
        },
        // The exception that PyTorch raises.
        RunError::OutOfMemory { .. } => PyRuntimeError::new_err(text),
        // Like a panic, for which the caller leaves the call to PyTorch.
        RunError::Mismatch { .. } | RunError::MissingValue { .. } => PanicException::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

/// Reads an array; truth values are bytes.
pub(crate) fn read(array: &Bound<'_, PyAny>, element: Element) -> PyResult<Elements> {
    let py = array.py();
    Ok(match element {
        Element::F32 => Elements::F32(PyBuffer::<f32>::get(array)?.to_vec(py)?),
        Element::F64 => Elements::F64(PyBuffer::<f64>::get(array)?.to_vec(py)?),
        Element::I64 => Elements::I64(PyBuffer::<i64>::get(array)?.to_vec(py)?),
        Element::Bool => Elements::bools(PyBuffer::<u8>::get(array)?.to_vec(py)?),
    })
}

/// Writes memory to an array of the same size; truth values are bytes.
fn write(array: &Bound<'_, PyAny>, from: &Elements) -> PyResult<()> {
    let py = array.py();
    match from {
        Elements::F32(from) => PyBuffer::<f32>::get(array)?.copy_from_slice(py, from),
        Elements::F64(from) => PyBuffer::<f64>::get(array)?.copy_from_slice(py, from),
        Elements::I64(from) => PyBuffer::<i64>::get(array)?.copy_from_slice(py, from),
        Elements::Bool(from) => PyBuffer::<u8>::get(array)?.copy_from_slice(py, from),
    }
}

/// Number of threads of a run: `CORSAC_NUM_THREADS`, or as many as PyTorch uses.
fn threads(py: Python<'_>) -> PyResult<usize> {
    static COUNT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if let Some(threads) = checked_setting(py)? {
        return Ok(threads);
    }
    let count = COUNT.import(py, "torch", "get_num_threads")?;
    Ok(count.call0()?.extract::<usize>()?.max(1))
}

/// Value of `CORSAC_NUM_THREADS`; warns once if it is no number.
pub(super) fn checked_setting(py: Python<'_>) -> PyResult<Option<usize>> {
    static SAID: AtomicBool = AtomicBool::new(false);
    let text = match threads_setting() {
        Ok(threads) => return Ok(threads),
        Err(_) if SAID.swap(true, Ordering::Relaxed) => return Ok(None),
        Err(text) => text,
    };
    let text = CString::new(format!("{text}: it is ignored"))?;
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 2)?;
    Ok(None)
}

/// Raises `ValueError` where `CORSAC_NUM_THREADS` is no number of threads.
#[pyfunction]
pub(super) fn check_threads_setting() -> PyResult<()> {
    threads_setting().map(drop).map_err(PyValueError::new_err)
}

/// Memory of inputs that are written to, and those of these inputs that count writes.
type Written<'a, 't, 'py> = (Vec<Target<'a>>, Vec<&'t Bound<'py, PyAny>>);

/// An input of a call: read in place, or copied.
enum Input<'a> {
    There(Data<'a>),
    Copied(Elements),
}

impl Input<'_> {
    fn data(&self) -> Data<'_> {
        match self {
            Self::There(data) => *data,
            Self::Copied(elements) => elements.all(),
        }
    }
}

/// A borrowed weight, with its current elements.
fn borrowed<'a>(tensor: &'a Bound<'_, PyAny>, spec: &Spec) -> PyResult<Input<'a>> {
    let described = match Exchange::get(tensor.py())? {
        Some(exchange) => exchange.described(tensor)?,
        None => None,
    };
    Ok(match described.and_then(|own| spec.data(&own)) {
        Some(data) => Input::There(data),
        None => Input::Copied(elements(tensor, spec.element)?),
    })
}

impl PyProgram {
    pub(crate) fn new(executable: Executable, strict: bool, contexts: Contexts) -> Self {
        let program = executable.program();
        let inputs = program.input_dtypes.iter();
        let mut inputs: Vec<Spec> = inputs.map(|&dtype| Spec::of(dtype)).collect();
        for value in &program.values {
            if let Source::Input(number) = value.source {
                inputs[number].element = value.element;
                inputs[number].any_bytes =
                    value.element == Element::Bool && program.takes_any_bytes(number);
                inputs[number].shape.clone_from(&value.shape);
            }
        }
        let outputs = program.outputs().into_iter().zip(&program.output_dtypes);
        let outputs = outputs.map(|(value, &dtype)| Spec {
            element: program.element(value),
            dtype,
            shape: program.shape(value).to_vec(),
            any_bytes: false,
        });
        let outputs: Vec<Spec> = outputs.collect();
        Self {
            written: program.written.iter().map(|&(number, _)| number).collect(),
            weights_in: Vec::new(),
            inputs,
            borrowed: Vec::new(),
            templates: outputs
                .iter()
                .map(|own| Template::new(own.written_as(), &own.shape))
                .collect(),
            outputs,
            executable,
            strict,
            contexts,
            scratch: Scratch::default(),
        }
    }

    /// The same program with its last inputs bound to these borrowed weights.
    pub(super) fn with_borrowed(mut self, tensors: Vec<Py<PyAny>>) -> Self {
        let specs = self.inputs.split_off(self.inputs.len() - tensors.len());
        self.borrowed = tensors.into_iter().zip(specs).collect();
        self
    }

    /// The same program with the memory of its weights, which no input that is written to may
    /// overlap.
    pub(super) fn with_weights_in(mut self, memory: Vec<Range<usize>>) -> Self {
        self.weights_in = memory;
        self
    }

    /// Whether it writes to inputs.
    pub(super) fn writes_inputs(&self) -> bool {
        !self.written.is_empty()
    }

    /// Types of its inputs.
    pub(super) fn inputs(&self) -> &[Spec] {
        &self.inputs
    }

    /// Runs it, with the interpreter released meanwhile.
    fn run_on(
        &self,
        py: Python<'_>,
        threads: usize,
        inputs: &[Data<'_>],
        outputs: &mut [DataMut<'_>],
        times: Option<&mut [f64]>,
    ) -> PyResult<()> {
        let weights = self
            .borrowed
            .iter()
            .map(|(tensor, spec)| borrowed(tensor.bind(py), spec));
        let weights = weights.collect::<PyResult<Vec<Input<'_>>>>()?;
        let all: Vec<Data<'_>>;
        let inputs = match weights[..] {
            [] => inputs,
            [..] => {
                let weights = weights.iter().map(Input::data);
                all = inputs.iter().copied().chain(weights).collect();
                &all
            }
        };
        let executable = &self.executable;
        let idle = self.contexts.lock().ok().and_then(|mut idle| idle.pop());
        let mut context = idle.unwrap_or_default();
        let own = &mut context;
        let run = || {
            executable.on_threads(threads, || {
                panic_if_planted(Place::Run);
                match times {
                    None => executable.run_typed(own, inputs, outputs),
                    Some(times) => {
                        let mut observe =
                            |step: usize, time: Duration| times[step] += time.as_secs_f64();
                        executable.run_observed(own, inputs, outputs, Some(&mut observe))
                    }
                }
            })
        };
        let run = match executable.is_brief() {
            true => run(),
            false => py.detach(run),
        };
        if let Ok(mut idle) = self.contexts.lock() {
            idle.push(context);
        }
        run.map_err(|error| run_error(&error))
    }

    fn run_arrays(
        &self,
        py: Python<'_>,
        inputs: &[Bound<'_, PyAny>],
        outputs: &[Bound<'_, PyAny>],
        threads: usize,
        times: Option<&mut [f64]>,
    ) -> PyResult<()> {
        self.check_count("arrays", inputs.len(), outputs.len())?;
        if !self.written.is_empty() {
            return Err(PyValueError::new_err("the program writes to its inputs"));
        }
        let given = inputs.iter().zip(&self.inputs);
        let given = given.map(|(array, spec)| {
            let mut elements = read(array, spec.element)?;
            elements.all_mut().round_to(spec.dtype);
            Ok(elements)
        });
        let given = given.collect::<PyResult<Vec<_>>>()?;
        let data: Vec<Data<'_>> = given.iter().map(Elements::all).collect();
        let results = self.outputs.iter();
        let results =
            results.map(|spec| Elements::zeros(spec.element, spec.shape.iter().product()));
        let mut results: Vec<Elements> = results.collect();
        let mut places: Vec<DataMut<'_>> = results.iter_mut().map(Elements::all_mut).collect();
        self.run_on(py, threads, &data, &mut places, times)?;
        for ((to, mut from), spec) in outputs.iter().zip(results).zip(&self.outputs) {
            from.all_mut().round_to(spec.dtype);
            write(to, &from)?;
        }
        Ok(())
    }

    fn check_count(&self, what: &str, inputs: usize, outputs: usize) -> PyResult<()> {
        if (inputs, outputs) == (self.inputs.len(), self.outputs.len()) {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "the program takes {} {what} and makes {}, not {inputs} and {outputs}",
            self.inputs.len(),
            self.outputs.len(),
        )))
    }

    /// Calls it with descriptions of its inputs, which have its types; `tensors` are the same
    /// inputs. `None` if it may not write to one that it writes to.
    pub(super) fn call_described<'py>(
        &self,
        py: Python<'py>,
        exchange: &Exchange,
        described: &[Described<'_>],
        tensors: &[Bound<'py, PyAny>],
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut inputs: SmallVec<[Input<'_>; 4]> = SmallVec::with_capacity(described.len());
        let given = described.iter().zip(tensors).zip(&self.inputs);
        for (number, ((own, tensor), spec)) in given.enumerate() {
            let is_written = self.written.contains(&number);
            let there = (spec.is_direct() && !is_written).then(|| spec.data(own));
            inputs.push(match there.flatten() {
                Some(data) => Input::There(data),
                None if is_written => Input::Copied(Elements::default()),
                None => Input::Copied(match spec.copied(own, &self.scratch) {
                    Some(elements) => elements,
                    None => elements(tensor, spec.element)?,
                }),
            });
        }
        let given = (&inputs[..], tensors);
        let results = if self.writes_inputs() {
            match self.written_inputs(py, described, tensors)? {
                Ok(written) => self
                    .call_writing(py, exchange, given, written, None)
                    .map(Some),
                Err(_) => Ok(None),
            }
        } else {
            let results = self.call_inputs(py, exchange, given, Vec::new(), None);
            results.map(Some)
        };
        for (input, spec) in inputs.into_iter().zip(&self.inputs) {
            if let (Input::Copied(Elements::F32(own)), true) = (input, spec.is_half()) {
                self.scratch.give(own);
            }
        }
        results
    }

    fn call_inputs<'py>(
        &self,
        py: Python<'py>,
        exchange: &Exchange,
        (inputs, tensors): (&[Input<'_>], &[Bound<'py, PyAny>]),
        written: Vec<DataMut<'_>>,
        times: Option<&mut [f64]>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let data: SmallVec<[Data<'_>; 4]> = inputs.iter().map(Input::data).collect();
        let results = self.outputs.iter().zip(&self.templates);
        let results = results
            .map(|(spec, template)| exchange.empty(py, spec.written_as(), &spec.shape, template));
        let mut results = results.collect::<PyResult<SmallVec<[Fresh<'py>; 2]>>>()?;
        let threads = match self.executable.is_small() {
            true => 1,
            false => threads(py)?,
        };
        let wide = self.outputs.iter().map(|spec| spec.computed(&self.scratch));
        let mut wide: SmallVec<[Option<Elements>; 2]> = wide.collect();
        {
            let places = results.iter_mut().zip(&mut wide);
            let places = places.map(|(fresh, wide)| match wide {
                Some(wide) => wide.all_mut(),
                None => fresh.data_mut(),
            });
            let mut places: SmallVec<[DataMut<'_>; 2]> = places.chain(written).collect();
            self.run_on(py, threads, &data, &mut places, times)?;
        }
        for (fresh, wide) in results.iter_mut().zip(wide) {
            if let Some(wide) = wide {
                fresh.set(&wide);
                if let Elements::F32(own) = wide {
                    self.scratch.give(own);
                }
            }
        }
        let results = results.into_iter().zip(&self.outputs);
        let results = results.map(|(fresh, spec)| match fresh.is(spec.dtype) {
            true => Ok(fresh.into_tensor()),
            false => fresh.converted(spec.dtype),
        });
        let results = results.collect::<PyResult<SmallVec<[Bound<'py, PyAny>; 2]>>>()?;
        self.filled(py, tensors, &results)
    }

    /// The same for a program that writes to inputs.
    fn call_writing<'py>(
        &self,
        py: Python<'py>,
        exchange: &Exchange,
        inputs: (&[Input<'_>], &[Bound<'py, PyAny>]),
        (mut written, counting): Written<'_, '_, 'py>,
        times: Option<&mut [f64]>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let places = written.iter_mut().map(Target::data_mut).collect();
        let results = self.call_inputs(py, exchange, inputs, places, times);
        if results.is_ok() {
            let written = written.into_iter();
            written.for_each(|own| own.finish(&self.scratch));
        }
        if !counting.is_empty() {
            let counting = PyTuple::new(py, counting)?;
            py.import(intern!(py, "torch.autograd.graph"))?
                .call_method1(intern!(py, "increment_version"), (counting,))?;
        }
        results
    }

    /// Memory of the inputs that it writes to, and those of these inputs that count writes; or the
    /// index of an input that it may not write to, and the reason.
    fn written_inputs<'a, 't, 'py>(
        &self,
        py: Python<'py>,
        described: &[Described<'a>],
        tensors: &'t [Bound<'py, PyAny>],
    ) -> PyResult<Result<Written<'a, 't, 'py>, (usize, &'static str)>> {
        let mut written = Vec::with_capacity(self.written.len());
        let mut counting = Vec::with_capacity(self.written.len());
        let in_inference = py
            .import(intern!(py, "torch"))?
            .call_method0(intern!(py, "is_inference_mode_enabled"))?
            .is_truthy()?;
        for &number in &self.written {
            let tensor = &tensors[number];
            let made_there = tensor
                .call_method0(intern!(py, "is_inference"))?
                .is_truthy()?;
            if made_there && !in_inference {
                return Ok(Err((number, "was made in inference mode")));
            }
            if !made_there {
                counting.push(tensor);
            }
            let spec = &self.inputs[number];
            let typed = (spec.element, &spec.shape[..]);
            let elsewhere = &self.weights_in;
            let target = match spec.is_half() {
                true => writable_halves(described, number, &spec.shape, elsewhere).map(
                    |(bits, half)| {
                        let wide = self.scratch.widened(bits, half);
                        Target::Half(bits, half, wide)
                    },
                ),
                false if spec.is_direct() => {
                    writable(described, number, typed, elsewhere).map(Target::Direct)
                }
                false => None,
            };
            match target {
                Some(target) => written.push(target),
                None => {
                    let why = "shares memory with others or does not lie row by row";
                    return Ok(Err((number, why)));
                }
            }
        }
        Ok(Ok((written, counting)))
    }

    fn call_observed<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        times: Option<&mut [f64]>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(exchange) = Exchange::get(py)? else {
            return Err(PyRuntimeError::new_err(
                "this PyTorch has no __dlpack_c_exchange_api__, which calls with tensors need",
            ));
        };
        let is_tensor = py.import(intern!(py, "torch"))?.getattr("Tensor")?;
        let mut tensors = Vec::with_capacity(arguments.len());
        for argument in arguments.iter() {
            if argument.is_instance(&is_tensor)? {
                tensors.push(argument);
            }
        }
        self.check_count("tensors", tensors.len(), self.outputs.len())?;
        let mut inputs = Vec::with_capacity(tensors.len());
        let mut all = Vec::with_capacity(tensors.len());
        for (number, (tensor, spec)) in tensors.iter().zip(&self.inputs).enumerate() {
            let is_written = self.written.contains(&number);
            let described = match is_written {
                true => exchange.described_by_torch(tensor)?,
                false => exchange.described(tensor)?,
            };
            let there = described
                .as_ref()
                .filter(|_| spec.is_direct() && !is_written);
            let input = match there.and_then(|own| spec.data(own)) {
                Some(data) => Input::There(data),
                None => {
                    self.check_type(number, tensor)?;
                    let copied = described.as_ref();
                    let copied = copied.and_then(|own| spec.copied(own, &self.scratch));
                    Input::Copied(match copied {
                        _ if is_written => Elements::default(),
                        Some(elements) => elements,
                        None => elements(tensor, spec.element)?,
                    })
                }
            };
            inputs.push(input);
            all.push(described);
        }
        if self.written.is_empty() {
            return self.call_inputs(py, exchange, (&inputs, &tensors), Vec::new(), times);
        }
        let Some(described) = all.into_iter().collect::<Option<Vec<_>>>() else {
            let text = "an input of a program that writes to inputs may lie anywhere";
            return Err(PyValueError::new_err(text));
        };
        match self.written_inputs(py, &described, &tensors)? {
            Ok(written) => self.call_writing(py, exchange, (&inputs, &tensors), written, times),
            Err((number, why)) => {
                let text = format!("input {number}, which is written to, {why}");
                Err(PyValueError::new_err(text))
            }
        }
    }

    /// Checks that a tensor has the type and shape of an input, in any layout.
    fn check_type(&self, number: usize, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = tensor.py();
        let spec = &self.inputs[number];
        let sizes: Vec<usize> = tensor.getattr(intern!(py, "shape"))?.extract()?;
        let dtype = tensor.getattr(intern!(py, "dtype"))?.str()?;
        let dtype = dtype.to_str()?.trim_start_matches("torch.");
        if (dtype, &sizes) == (spec.dtype.name(), &spec.shape) {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "input {number} is {}{:?}, not {dtype}{sizes:?}",
            spec.dtype.name(),
            spec.shape
        )))
    }

    /// The value that the graph returns, with `results` in place of tensors.
    fn filled<'py>(
        &self,
        py: Python<'py>,
        inputs: &[Bound<'py, PyAny>],
        results: &[Bound<'py, PyAny>],
    ) -> PyResult<Bound<'py, PyAny>> {
        match &self.executable.program().output {
            Some(Output::Value(_)) => Ok(results[0].clone()),
            Some(output) => {
                let mut number = self.numbers();
                structure(py, output, inputs, &mut |value| {
                    Ok(results[number(value)].clone())
                })
            }
            None => Ok(py.None().into_bound(py)),
        }
    }

    /// A function from each returned value, in order, to the index of its result.
    fn numbers(&self) -> impl FnMut(&ValueId) -> usize {
        let results = self.executable.program().outputs();
        let mut next = 0..results.len();
        let strict = self.strict;
        move |value| {
            let first = results.iter().position(|own| own == value);
            let own = next.next().unwrap_or_default();
            first.filter(|_| strict).unwrap_or(own)
        }
    }
}

#[pymethods]
impl PyProgram {
    /// Run the program on tensors: of its types, on the CPU, in any layout. Arguments that are not
    /// tensors were compiled in, and are ignored. Results are new tensors. The interpreter is
    /// released meanwhile, unless a run is shorter than that takes.
    #[pyo3(signature = (*arguments))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.call_observed(py, arguments, None)
    }

    /// Like a call; returns its result, and the seconds that each step took.
    #[pyo3(signature = (*arguments))]
    fn profile<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
    ) -> PyResult<(Bound<'py, PyAny>, Vec<f64>)> {
        let mut times = vec![0.0; self.step_count()];
        let results = self.call_observed(py, arguments, Some(&mut times))?;
        Ok((results, times))
    }

    /// Run the program on arrays in row-major order, and write the results to others: float32, also
    /// for numbers of 16 bits, float64, int64 for all integers, and bytes for truth values. The
    /// interpreter is released meanwhile. The number of threads is `CORSAC_NUM_THREADS`, or that of
    /// the cores: PyTorch may be absent.
    fn run(
        &self,
        py: Python<'_>,
        inputs: Vec<Bound<'_, PyAny>>,
        outputs: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        checked_setting(py)?;
        let run = || self.run_arrays(py, &inputs, &outputs, default_threads(), None);
        // There is no fallback for the call: a fault of the engine is an error.
        let failed = |text: &str| PyRuntimeError::new_err(format!("the engine failed: {text}"));
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
            Ok(Err(error)) if error.is_instance_of::<PanicException>(py) => {
                Err(failed(&error.value(py).to_string()))
            }
            Ok(done) => done,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                Err(failed(text.unwrap_or("it gave no reason")))
            }
        }
    }

    /// The steps, one line of text each.
    #[getter]
    fn steps(&self) -> Vec<String> {
        self.executable.program().all_steps()
    }

    /// The shapes of the results, in order.
    #[getter]
    fn output_shapes(&self) -> Vec<Vec<usize>> {
        self.outputs.iter().map(|spec| spec.shape.clone()).collect()
    }

    /// The element types of the results, by PyTorch's names.
    #[getter]
    fn output_dtypes(&self) -> Vec<&'static str> {
        self.outputs.iter().map(|spec| spec.dtype.name()).collect()
    }

    /// The value that the graph returns, with `results` in place of tensors.
    fn returned<'py>(
        &self,
        py: Python<'py>,
        results: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if results.len() != self.outputs.len() {
            let expected = self.outputs.len();
            return Err(PyValueError::new_err(format!(
                "the program returns {expected} results, not {}",
                results.len()
            )));
        }
        self.filled(py, &[], &results)
    }

    /// Number of steps of a run.
    #[getter]
    fn step_count(&self) -> usize {
        self.executable.program().step_count()
    }

    /// Whether it writes to inputs.
    #[getter]
    fn writes(&self) -> bool {
        self.writes_inputs()
    }

    /// Precision of multiplications in convolutions and linear layers: `"bf16"` where it was
    /// requested and the processor supports it.
    #[getter]
    fn precision(&self) -> &'static str {
        match self.executable.program().precision.effective() {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        }
    }

    /// Bytes of the values of a run, without weights and inputs.
    #[getter]
    fn arena_bytes(&self) -> usize {
        self.executable.plan().size_bytes()
    }

    fn __str__(&self) -> String {
        self.executable.program().to_string()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.borrowed
            .iter()
            .try_for_each(|(tensor, _)| visit.call(tensor))
    }
}

/// Builds the structure of `output`, with results of `item` in place of tensors.
pub(crate) fn structure<'py>(
    py: Python<'py>,
    output: &Output,
    inputs: &[Bound<'py, PyAny>],
    item: &mut dyn FnMut(&ValueId) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut all = |items: &[Output]| -> PyResult<Vec<Bound<'py, PyAny>>> {
        let items = items.iter();
        items.map(|own| structure(py, own, inputs, item)).collect()
    };
    Ok(match output {
        Output::Value(value) => item(value)?,
        Output::Tuple(items) => PyTuple::new(py, all(items)?)?.into_any(),
        Output::List(items) => PyList::new(py, all(items)?)?.into_any(),
        Output::Dict(entries) => {
            let dict = PyDict::new(py);
            for (key, own) in entries {
                dict.set_item(key, structure(py, own, inputs, item)?)?;
            }
            dict.into_any()
        }
        Output::Input(number) => {
            let given = inputs.get(*number).cloned();
            given.ok_or_else(|| PyValueError::new_err("the program gives its inputs back"))?
        }
        Output::Constant(constant) => match constant {
            Constant::None => py.None().into_bound(py),
            Constant::Bool(truth) => PyBool::new(py, *truth).to_owned().into_any(),
            Constant::Int(number) => number.into_pyobject(py)?.into_any(),
            Constant::Float(number) => number.into_pyobject(py)?.into_any(),
            Constant::Str(text) => PyString::new(py, text).into_any(),
        },
    })
}
