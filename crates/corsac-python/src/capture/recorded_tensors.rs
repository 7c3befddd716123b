//! The nodes of the tensors of a program that is being recorded, and nodes of calls that are known.

use std::sync::{Mutex, MutexGuard, PoisonError};

use corsac_ir::{NodeId, Op};
use indexmap::IndexMap;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyDict, PyFrozenSet, PyList, PySequence, PySlice, PyTuple, PyWeakrefMethods, PyWeakrefReference,
};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::pure_calls::{CallNode, node_of_pure_call};
use super::recorded_constants::{Constants, Effects, Storages};
use super::recording::PyRecording;
use crate::engine::modes::{is_plainly_watched, records};
use crate::engine::{TensorFinder, requires_grad};
use crate::graph::PyGraph;
use crate::graph::node::PyNode;
use crate::graph::source::PySourceNotes;

/// Deepest nesting of tuples and lists in arguments.
const DEEPEST: usize = 4;

/// Tensors of a recorded program: their nodes, and their memory.
#[pyclass(module = "corsac._core", name = "RecordedTensors", frozen)]
pub(crate) struct PyRecordedTensors {
    recording: Py<PyRecording>,
    graph: Py<PyGraph>,
    sources: Py<PySourceNotes>,
    /// Functions that return types or sizes.
    metadata: Py<PyFrozenSet>,
    /// The default dtype as the program began.
    dtype: Py<PyAny>,
    tensors: Mutex<Tensors>,
}

#[derive(Default)]
struct Tensors {
    /// Nodes of inputs and results, by the address of the tensor, as long as it lives.
    nodes: FxHashMap<usize, (Py<PyWeakrefReference>, Py<PyNode>)>,
    /// Nodes of weights and of other existing tensors, by their address.
    weights: FxHashMap<usize, Py<PyNode>>,
    /// Storages that the program has made.
    made: FxHashSet<usize>,
    /// Tensors that are neither inputs nor results, of which types or sizes were read, by address.
    typed: IndexMap<usize, Py<PyAny>, FxBuildHasher>,
    constants: Constants,
}

/// Functions of PyTorch and Python that are called for each node.
struct Functions {
    default_dtype: Py<PyAny>,
    /// Stops dispatch modes while the object lives.
    without_dispatch: Py<PyAny>,
    get_item: Py<PyAny>,
}

impl Functions {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        static FUNCTIONS: PyOnceLock<Functions> = PyOnceLock::new();
        FUNCTIONS.get_or_try_init(py, || {
            let torch = py.import("torch")?;
            Ok(Self {
                default_dtype: torch.getattr("get_default_dtype")?.unbind(),
                without_dispatch: torch
                    .getattr("_C")?
                    .getattr("_DisableTorchDispatch")?
                    .unbind(),
                get_item: py.import("operator")?.getattr("getitem")?.unbind(),
            })
        })
    }
}

fn address(own: &Bound<'_, PyAny>) -> usize {
    own.as_ptr().addr()
}

fn is_sequence(own: &Bound<'_, PyAny>) -> bool {
    own.is_instance_of::<PyTuple>() || own.is_instance_of::<PyList>()
}

/// A result of a call: a tensor with the address of its storage, or several results.
enum Found<'py> {
    Tensor(Bound<'py, PyAny>, usize),
    Several(Vec<Found<'py>>),
}

impl<'py> Found<'py> {
    fn flatten(&self, all: &mut Vec<(usize, Bound<'py, PyAny>)>) {
        match self {
            Found::Tensor(own, storage) => all.push((*storage, own.clone())),
            Found::Several(parts) => parts.iter().for_each(|part| part.flatten(all)),
        }
    }
}

/// The arguments of a node, and the tensors among them.
struct Arguments<'a, 'py> {
    of: &'a PyRecordedTensors,
    /// Returns the node of an existing tensor, a new one if it has none, or None if it may not have one.
    weight: &'a Bound<'py, PyAny>,
    finder: &'a TensorFinder<'py>,
    tensors: Vec<Bound<'py, PyAny>>,
}

impl<'py> Arguments<'_, 'py> {
    /// The argument of a node for `own`; None if it takes more than a lookup.
    fn converted(
        &mut self,
        own: &Bound<'py, PyAny>,
        depth: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = own.py();
        if self.finder.storage_of_ordinary(own).is_some() || own.is_instance(self.finder.class())? {
            self.tensors.push(own.clone());
            let node = self.of.lock().node(own);
            let node = match node {
                Some(node) => node.into_bound(py).into_any(),
                None => self.weight.call1((own,))?,
            };
            return Ok((!node.is_none()).then_some(node));
        }
        if !(is_sequence(own) && depth < DEEPEST) {
            // The key of a known call has constants only, besides tensors, sequences and slices.
            let is_slice = own.is_instance_of::<PySlice>();
            return match is_slice {
                true => self.slice(own, depth),
                false => Ok(Some(own.clone())),
            };
        }
        if own.is_instance_of::<PyList>() {
            self.of.recording.get().reads(own)?;
        }
        let parts = own.cast::<PySequence>()?;
        let mut converted = Vec::with_capacity(parts.len()?);
        for part in parts.try_iter()? {
            let Some(part) = self.converted(&part?, depth + 1)? else {
                return Ok(None);
            };
            converted.push(part);
        }
        Ok(Some(match own.is_instance_of::<PyList>() {
            true => PyList::new(py, converted)?.into_any(),
            false => PyTuple::new(py, converted)?.into_any(),
        }))
    }

    fn slice(
        &mut self,
        own: &Bound<'py, PyAny>,
        depth: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        for name in ["start", "stop", "step"] {
            let part = own.getattr(name)?;
            match self.converted(&part, depth + 1)? {
                Some(same) if same.is(&part) => {}
                // With a tensor in it.
                _ => return Ok(None),
            }
        }
        Ok(Some(own.clone()))
    }
}

impl Tensors {
    /// The node of an input or a result.
    fn computed(&self, own: &Bound<'_, PyAny>) -> Option<&Py<PyNode>> {
        let (tensor, node) = self.nodes.get(&address(own))?;
        // The address may be that of another tensor that is gone.
        let tensor = tensor.bind(own.py()).upgrade()?;
        tensor.is(own).then_some(node)
    }

    /// The node of a tensor, if it has one.
    fn node(&self, own: &Bound<'_, PyAny>) -> Option<Py<PyNode>> {
        let known = self
            .computed(own)
            .or_else(|| self.weights.get(&address(own)));
        known.map(|node| node.clone_ref(own.py()))
    }
}

impl PyRecordedTensors {
    fn lock(&self) -> MutexGuard<'_, Tensors> {
        self.tensors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The results of a call as they can be recorded without a closer look; None otherwise.
    fn found<'py>(
        &self,
        finder: &TensorFinder<'py>,
        result: &Bound<'py, PyAny>,
        is_new: bool,
        depth: usize,
    ) -> PyResult<Option<Found<'py>>> {
        if let Some(storage) = finder.storage_of_ordinary(result) {
            let py = result.py();
            let is_usual = if is_new {
                true
            } else {
                let tensors = self.lock();
                tensors.made.contains(&storage) && tensors.node(result).is_none()
            };
            let is_recorded = records(py)? && requires_grad(result)?;
            return Ok((is_usual && !is_recorded).then(|| Found::Tensor(result.clone(), storage)));
        }
        if !is_sequence(result) || depth >= DEEPEST {
            return Ok(None);
        }
        let mut parts = Vec::new();
        for part in result.try_iter()? {
            match self.found(finder, &part?, is_new, depth + 1)? {
                Some(own) => parts.push(own),
                None => return Ok(None),
            }
        }
        Ok(Some(Found::Several(parts)))
    }

    /// Notes the tensors that a node returns; `getitem` nodes take them out of several ones.
    fn note_results(&self, py: Python<'_>, node: &Py<PyNode>, found: &Found<'_>) -> PyResult<()> {
        match found {
            Found::Tensor(own, _) => self.know(own, node.clone_ref(py)),
            Found::Several(parts) => {
                node.bind(py)
                    .getattr(intern!(py, "meta"))?
                    .set_item(intern!(py, "several"), parts.len())?;
                let get_item = Functions::get(py)?.get_item.bind(py);
                for (number, part) in parts.iter().enumerate() {
                    let args = (node.clone_ref(py), number).into_pyobject(py)?;
                    let graph = self.graph.bind(py);
                    let op = Op::CallFunction;
                    let item = PyGraph::create(graph, op, get_item, Some(&args), None, None, None)?;
                    self.note_results(py, &item, part)?;
                }
                Ok(())
            }
        }
    }

    /// Makes the node of a call that has returned `result`. Returns whether that took no closer look.
    fn record<'py>(
        &self,
        py: Python<'py>,
        known: &CallNode,
        arguments: Arguments<'_, 'py>,
        nodes: (&Bound<'py, PyTuple>, Option<&Bound<'py, PyDict>>),
        (result, is_new): (&Bound<'py, PyAny>, bool),
    ) -> PyResult<bool> {
        let finder = arguments.finder;
        let Some(found) = self.found(finder, result, is_new, 0)? else {
            return Ok(false);
        };
        let (graph, target) = (self.graph.bind(py), known.target.bind(py));
        let node = PyGraph::create(graph, known.op, target, Some(nodes.0), nodes.1, None, None)?;
        self.sources.get().note(node.bind(py))?;
        self.note_results(py, &node, &found)?;
        let read = &arguments.tensors[usize::from(known.takes_type)..];
        if let Some(read) = self.storages_read(finder, read)? {
            let mut results = Vec::new();
            found.flatten(&mut results);
            self.note_effects(Effects {
                node: &node,
                written: Vec::new(),
                read,
                varies: false,
                result: result.clone(),
                results,
            });
        }
        Ok(true)
    }

    fn note_effects(&self, effects: Effects<'_, '_>) {
        let dropped = self.lock().constants.note(effects);
        // With nothing locked: this may call Python.
        drop(dropped);
    }

    /// Storages of tensors that a node reads, but for those of weights; None if one is not strided.
    fn storages_read<'py>(
        &self,
        finder: &TensorFinder<'py>,
        tensors: &[Bound<'py, PyAny>],
    ) -> PyResult<Option<Storages>> {
        let (mut read, mut of_weights) = (Storages::new(), Storages::new());
        for own in tensors {
            let Some(storage) = finder.storage(own, true)? else {
                return Ok(None);
            };
            let is_weight = self.lock().weights.contains_key(&address(own));
            let list = if is_weight {
                &mut of_weights
            } else {
                &mut read
            };
            list.push(storage);
        }
        read.retain(|own| !of_weights.contains(own));
        Ok(Some(read))
    }

    /// Whether global state is as the program began, in the usual case; false otherwise.
    fn is_as_usual(&self, py: Python<'_>) -> PyResult<bool> {
        let dtype = Functions::get(py)?.default_dtype.bind(py).call0()?;
        Ok(is_plainly_watched(py) && dtype.is(&self.dtype))
    }

    /// Calls a function that returns types or sizes.
    fn asked<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        arguments: &Bound<'py, PyTuple>,
        named: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let result = function.call(arguments, Some(named))?;
        let finder = TensorFinder::new(function.py())?;
        let mut note = |own: &Bound<'py, PyAny>| {
            self.note_typed(own);
            Ok(())
        };
        finder.each(arguments.as_any(), 0, &mut note)?;
        finder.each(named.as_any(), 0, &mut note)?;
        Ok(result)
    }

    /// Calls a function, and makes its node, for a call that is known. None if it is not known, and
    /// has not been made; with the result, whether its node has been made.
    fn repeated<'py>(
        &self,
        weight: &Bound<'py, PyAny>,
        function: &Bound<'py, PyAny>,
        arguments: &Bound<'py, PyTuple>,
        named: &Bound<'py, PyDict>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, bool)>> {
        let py = function.py();
        if self.metadata.bind(py).contains(function)? {
            return Ok(Some((self.asked(function, arguments, named)?, true)));
        }
        let Some((known, is_new)) = node_of_pure_call(function, arguments, named)? else {
            return Ok(None);
        };
        if !self.is_as_usual(py)? {
            return Ok(None);
        }
        let finder = TensorFinder::new(py)?;
        let mut converted = Arguments {
            of: self,
            weight,
            finder: &finder,
            tensors: Vec::new(),
        };
        let mut nodes = Vec::with_capacity(arguments.len());
        for own in arguments {
            let Some(own) = converted.converted(&own, 0)? else {
                return Ok(None);
            };
            nodes.push(own);
        }
        if known.is_swapped && nodes.len() > 1 {
            nodes.swap(0, 1);
        }
        let nodes = PyTuple::new(py, nodes)?;
        let keywords = (!named.is_empty()).then(|| PyDict::new(py));
        if let Some(keywords) = &keywords {
            for (name, own) in named {
                let Some(own) = converted.converted(&own, 0)? else {
                    return Ok(None);
                };
                keywords.set_item(name, own)?;
            }
        }
        let unwatched = Functions::get(py)?.without_dispatch.bind(py).call0()?;
        let result = function.call(arguments, Some(named));
        drop(unwatched);
        let result = result?;
        if is_new {
            self.note_made(&result)?;
        }
        let nodes = (&nodes, keywords.as_ref());
        let is_recorded = self.record(py, &known, converted, nodes, (&result, is_new))?;
        Ok(Some((result, is_recorded)))
    }
}

#[pymethods]
impl PyRecordedTensors {
    /// `recording` watches the program, `graph` gets the nodes, and `sources` their lines;
    /// `metadata` are the functions that return types or sizes.
    #[new]
    fn new(
        py: Python<'_>,
        recording: Py<PyRecording>,
        graph: Py<PyGraph>,
        sources: Py<PySourceNotes>,
        metadata: Py<PyFrozenSet>,
    ) -> PyResult<Self> {
        let dtype = Functions::get(py)?.default_dtype.call0(py)?;
        Ok(Self {
            recording,
            graph,
            sources,
            metadata,
            dtype,
            tensors: Mutex::default(),
        })
    }

    /// Calls a function of PyTorch and makes its node, if an equal call is known to be one node and
    /// to do nothing but compute. Returns None if the call has not been made, or else the result,
    /// and whether the node has been made. `weight` returns the node of an existing tensor, or None.
    fn repeat<'py>(
        &self,
        weight: &Bound<'py, PyAny>,
        function: &Bound<'py, PyAny>,
        arguments: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, bool)>> {
        let py = function.py();
        let named = named.cloned().unwrap_or_else(|| PyDict::new(py));
        let recording = self.recording.get();
        let result = match recording.operator(py) {
            true => self.repeated(weight, function, arguments, &named),
            false => Ok(None),
        };
        recording.recorded(py);
        result
    }

    /// Notes the node of a tensor.
    fn know(&self, own: &Bound<'_, PyAny>, node: Py<PyNode>) -> PyResult<()> {
        let reference = PyWeakrefReference::new(own)?.unbind();
        let before = self.lock().nodes.insert(address(own), (reference, node));
        drop(before);
        Ok(())
    }

    /// The node of an input or a result; None for other tensors.
    fn node_of(&self, own: &Bound<'_, PyAny>) -> Option<Py<PyNode>> {
        let tensors = self.lock();
        tensors.computed(own).map(|node| node.clone_ref(own.py()))
    }

    /// The node of a weight, or of another existing tensor that is no input; None for others.
    fn weight_node(&self, own: &Bound<'_, PyAny>) -> Option<Py<PyNode>> {
        let tensors = self.lock();
        Some(tensors.weights.get(&address(own))?.clone_ref(own.py()))
    }

    /// Notes the node of an existing tensor that is no input, and lives as long as the recording.
    fn add_weight(&self, own: &Bound<'_, PyAny>, node: Py<PyNode>) {
        let before = self.lock().weights.insert(address(own), node);
        drop(before);
    }

    /// Forgets the node of an existing tensor, and returns it.
    fn take_weight(&self, own: &Bound<'_, PyAny>) -> Option<Py<PyNode>> {
        self.lock().weights.remove(&address(own))
    }

    /// Notes that types or sizes of a tensor were read, unless it is an input or a result.
    fn note_typed(&self, own: &Bound<'_, PyAny>) {
        let kept = own.clone().unbind();
        let mut tensors = self.lock();
        let is_known = tensors.computed(own).is_some();
        if !is_known {
            tensors.typed.entry(address(own)).or_insert(kept);
        }
    }

    /// The tensors that are neither inputs nor results, of which types or sizes were read.
    fn typed(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        let tensors = self.lock();
        tensors
            .typed
            .values()
            .map(|own| own.clone_ref(py))
            .collect()
    }

    /// Notes that the tensors in `values` are new memory. Returns their storages.
    fn note_made(&self, values: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        let storages = TensorFinder::new(values.py())?.all_in(values)?;
        self.lock().made.extend(&storages);
        Ok(storages)
    }

    /// Whether the program has made a storage.
    fn is_made(&self, storage: usize) -> bool {
        self.lock().made.contains(&storage)
    }

    /// Notes a new node, which may be a constant: the tensors that it has written to and read, its
    /// result, and whether it reads something else that differs between calls.
    fn note_constant<'py>(
        &self,
        node: Py<PyNode>,
        written: Vec<Bound<'py, PyAny>>,
        read: Vec<Bound<'py, PyAny>>,
        result: Bound<'py, PyAny>,
        varies: bool,
    ) -> PyResult<()> {
        let finder = TensorFinder::new(result.py())?;
        let Some(read) = self.storages_read(&finder, &read)? else {
            return Ok(());
        };
        let (mut results, mut is_strided) = (Vec::new(), true);
        finder.each(&result, 0, &mut |own| {
            match finder.storage(own, true)? {
                Some(storage) => results.push((storage, own.clone())),
                None => is_strided = false,
            }
            Ok(())
        })?;
        if !is_strided {
            return Ok(());
        }
        let mut written_at = Vec::new();
        for own in written {
            written_at.extend(finder.storage(&own, true)?.map(|storage| (storage, own)));
        }
        self.note_effects(Effects {
            node: &node,
            written: written_at,
            read,
            varies,
            result,
            results,
        });
        Ok(())
    }

    /// The nodes whose results do not depend on inputs.
    fn constants(&self, py: Python<'_>) -> Vec<Py<PyNode>> {
        self.lock().constants.nodes(py)
    }

    /// The nodes of constants that involve writes, in order, with their results, if none of
    /// `returned` shares their memory.
    fn written_constants(
        &self,
        returned: &Bound<'_, PyList>,
    ) -> PyResult<Vec<(Py<PyNode>, Py<PyAny>)>> {
        let storages = TensorFinder::new(returned.py())?.all_in(returned.as_any())?;
        Ok(self.lock().constants.written(returned.py(), storages))
    }

    /// Treats all placeholders as inputs: values computed from them are no constants.
    fn depend_on_inputs(&self, py: Python<'_>) -> PyResult<()> {
        let graph = self.graph.bind(py).try_borrow()?;
        let ir = graph.ir();
        let is_input = |id: &NodeId| ir.node(*id).op() == Op::Placeholder;
        let inputs: Vec<NodeId> = ir.nodes().filter(is_input).collect();
        self.lock()
            .constants
            .depend_on(inputs, |node| ir.users(node).collect());
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.recording)?;
        visit.call(&self.graph)?;
        visit.call(&self.sources)?;
        if let Ok(tensors) = self.tensors.try_lock() {
            for (reference, node) in tensors.nodes.values() {
                visit.call(reference)?;
                visit.call(node)?;
            }
            tensors
                .weights
                .values()
                .try_for_each(|own| visit.call(own))?;
            tensors.typed.values().try_for_each(|own| visit.call(own))?;
            tensors.constants.traverse(&visit)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        let tensors = std::mem::take(&mut *self.lock());
        drop(tensors);
    }
}
