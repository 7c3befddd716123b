//! Quantisation, in graphs of Python: fused layers, configurations of nodes, observers, and their
//! conversion.

use std::collections::{HashMap, HashSet};

use corsac_ir::{DType, FunctionId, Graph, NodeId};
use corsac_passes::quantise::convert::{self, Channels, Conversion, Operators, Range, Steps};
use corsac_passes::quantise::fuse::{self, Fusible};
use corsac_passes::quantise::observe::{
    self, Backend, Bounded, DTypeConfig, Observation, Observer, Part, QConfig, Quantisable,
    Request, Structure, TupleFunctions, Wholes,
};
use corsac_passes::quantise::pattern::{Call, Pattern};
use corsac_passes::quantise::qconfigs::{self, Choice, Kind, Mapping, Ordered, Scope};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::budget::{PyBudget, within};
use crate::effects::Facts;
use crate::error::pass_error;
use crate::graph::PyGraph;
use crate::graph::node::PyNode;
use crate::passes::{RawSite, finish, raw_sites};
use crate::runtime::{TorchValue, TorchValues};

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(fuse_layers, m)?)?;
    m.add_function(wrap_pyfunction!(choose_qconfigs, m)?)?;
    m.add_function(wrap_pyfunction!(observe_values, m)?)?;
    m.add_function(wrap_pyfunction!(convert_observers, m)?)?;
    m.add_function(wrap_pyfunction!(weights_of_functions, m)?)?;
    Ok(())
}

/// A pattern of a backend: `corsac.quantization._requests.DescribedPattern`.
#[derive(FromPyObject)]
pub(crate) struct RawPattern<'py> {
    pattern: Bound<'py, PyAny>,
    root: usize,
    extra: Vec<usize>,
    observation: u8,
    by_tensors: HashMap<usize, u8>,
    dtypes: Vec<usize>,
    weight: Option<usize>,
    bias: Option<usize>,
}

/// The type of a call; none for functions that the graph does not have.
fn kind(graph: &Bound<'_, PyGraph>, object: &Bound<'_, PyAny>) -> PyResult<Option<Kind>> {
    if let Ok(name) = object.cast::<PyString>() {
        return Ok(Some(Kind::Method(name.to_string())));
    }
    if let Ok(class) = object.cast::<PyType>()
        && is_module_class(class)?
    {
        return Ok(Some(Kind::Class(class_name(class)?)));
    }
    if !object.is_callable() {
        let message = format!(
            "expected a module class, a function or the name of a method, got {}",
            object.repr()?.to_string_lossy()
        );
        return Err(PyTypeError::new_err(message));
    }
    let known = graph
        .try_borrow()?
        .host()
        .known_function(object.as_unbound());
    Ok(known.map(Kind::Function))
}

fn is_module_class(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let py = class.py();
    let module = py
        .import(intern!(py, "torch.nn"))?
        .getattr(intern!(py, "Module"))?;
    class.is_subclass(&module)
}

fn class_name(class: &Bound<'_, PyType>) -> PyResult<String> {
    Ok(format!("{}.{}", class.module()?, class.qualname()?))
}

/// A pattern: a class, function or name, a class called `MatchAllNode` for anything, or a tuple of
/// one of these and patterns of its arguments. None if the graph has none of its functions.
fn pattern(graph: &Bound<'_, PyGraph>, object: &Bound<'_, PyAny>) -> PyResult<Option<Pattern>> {
    if let Ok(items) = object.cast::<PyTuple>() {
        let Some((head, rest)) = items.as_slice().split_first() else {
            return Err(PyValueError::new_err("a pattern is an empty tuple"));
        };
        let Some(Pattern { call, .. }) = pattern(graph, head)? else {
            return Ok(None);
        };
        let rest = rest.iter().map(|arg| pattern(graph, arg));
        let args = rest.collect::<PyResult<Option<Vec<Pattern>>>>()?;
        return Ok(args.map(|args| Pattern { call, args }));
    }
    if let Ok(class) = object.cast::<PyType>()
        && class.name()? == "MatchAllNode"
    {
        return Ok(Some(Call::Any.into()));
    }
    Ok(kind(graph, object)?.map(|kind| {
        let call = match kind {
            Kind::Class(name) => Call::Class(name),
            Kind::Function(function) => Call::Function(function),
            Kind::Method(name) => Call::Method(name),
        };
        call.into()
    }))
}

/// The nodes of a pattern, in the order of its calls, and its place in the list.
type Matched = (usize, Vec<Option<Py<PyNode>>>);

/// Fuses the layers of `graph` that match one of `patterns`: `make_modules` gets the matches, makes the fused
/// modules and returns the reason where it cannot, for each. The first layer of a pattern stays.
#[pyfunction]
#[pyo3(signature = (graph, patterns, make_modules, *, budget = None))]
pub(crate) fn fuse_layers(
    graph: &Bound<'_, PyGraph>,
    patterns: Vec<RawPattern<'_>>,
    make_modules: &Bound<'_, PyAny>,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<Vec<RawSite>> {
    let mut fusible = Vec::new();
    let mut places = Vec::new();
    for (place, raw) in patterns.into_iter().enumerate() {
        if let Some(pattern) = pattern(graph, &raw.pattern)? {
            places.push(place);
            fusible.push(Fusible {
                pattern,
                root: raw.root,
                extra: raw.extra,
            });
        }
    }
    let facts = Facts::of_graph(graph)?;
    let (mut found, matched) = within(budget, |budget| {
        let borrowed = graph.try_borrow()?;
        let found = fuse::find(borrowed.ir(), &facts, &fusible, budget);
        let handle = |&node: &NodeId| PyNode::handle(graph, borrowed.host(), node);
        let applied = found.iter().filter(|fusion| fusion.site.is_applied());
        let matched = applied.map(|fusion| {
            let nodes = fusion
                .nodes
                .iter()
                .map(|node| node.as_ref().map(handle).transpose());
            Ok((places[fusion.pattern], nodes.collect::<PyResult<Vec<_>>>()?))
        });
        let matched = matched.collect::<PyResult<Vec<Matched>>>()?;
        Ok((found, matched))
    })?;
    let reasons: Vec<Option<String>> = make_modules.call1((matched,))?.extract()?;
    let applied = found.iter_mut().filter(|fusion| fusion.site.is_applied());
    for (fusion, reason) in applied.zip(reasons) {
        fusion.site.refusal = reason.map(Into::into);
    }
    let edits = PyGraph::edit(graph, |ir| fuse::apply(ir, &found).map_err(pass_error))?;
    finish(graph, &edits.added, &edits.erased)?;
    Ok(raw_sites(
        found.into_iter().map(|fusion| fusion.site).collect(),
    ))
}

/// A configuration of calls by number: module, type, number, choice.
type RawOrdered<'py> = (String, Bound<'py, PyAny>, usize, Choice);

/// The configurations by what nodes are: `corsac.quantization._requests.Choices`.
#[derive(FromPyObject)]
pub(crate) struct RawMapping<'py> {
    overall: Choice,
    types: Vec<(Bound<'py, PyAny>, Choice)>,
    matched: HashMap<String, Choice>,
    modules: HashMap<String, Choice>,
    ordered: Vec<RawOrdered<'py>>,
}

/// Configurations by the names of nodes, and the places of entries by number that no call has.
type Chosen = (Vec<(String, Choice)>, Vec<usize>);

/// Chooses the configuration of each node of `graph`: a number, or None for those that stay as they
/// are. `scopes` has the path and the name of the class of the module that made a node, by the name of the node;
/// `observers` are paths of modules that have no configuration.
#[pyfunction]
pub(crate) fn choose_qconfigs(
    graph: &Bound<'_, PyGraph>,
    mapping: RawMapping<'_>,
    scopes: HashMap<String, (String, Option<String>)>,
    observers: HashSet<String>,
) -> PyResult<Chosen> {
    let mut own = Mapping {
        global: mapping.overall,
        matched: mapping.matched.into_iter().collect(),
        modules: mapping.modules.into_iter().collect(),
        ..Mapping::default()
    };
    for (object, choice) in &mapping.types {
        if let Some(kind) = kind(graph, object)? {
            own.kinds.insert(kind, *choice);
        }
    }
    let mut places = Vec::new();
    let mut unused = Vec::new();
    for (place, (module, object, index, choice)) in mapping.ordered.into_iter().enumerate() {
        let Some(kind) = kind(graph, &object)? else {
            unused.push(place);
            continue;
        };
        places.push(place);
        own.ordered.push(Ordered {
            module,
            kind,
            index,
            choice,
        });
    }
    let scopes = scopes.into_iter();
    let scopes = scopes.map(|(name, (path, class))| (name, Scope { path, class }));
    let scopes = scopes.collect::<FxHashMap<_, _>>();
    let facts = Facts::of_graph(graph)?;
    let borrowed = graph.try_borrow()?;
    let ir = borrowed.ir();
    let chosen = qconfigs::choose(ir, &facts, &own, &scopes, &|path| observers.contains(path));
    unused.extend(chosen.unused.into_iter().map(|at| places[at]));
    unused.sort_unstable();
    let nodes = chosen.nodes.into_iter();
    let nodes = nodes.map(|(node, choice)| (ir.node(node).name().to_owned(), choice));
    Ok((nodes.collect(), unused))
}

/// An observer: `corsac.quantization._requests.DescribedObserver`.
#[derive(FromPyObject)]
pub(crate) struct RawObserver {
    dtype: String,
    dynamic: bool,
    kind: usize,
}

impl From<RawObserver> for Observer {
    fn from(raw: RawObserver) -> Self {
        Self {
            dtype: raw.dtype,
            dynamic: raw.dynamic,
            class: raw.kind,
        }
    }
}

/// A configuration: `corsac.quantization._requests.DescribedQConfig`.
#[derive(FromPyObject)]
pub(crate) struct RawQConfig {
    activation: Option<RawObserver>,
    weight: Option<RawObserver>,
    reuses_input: bool,
}

/// Element types of a backend: input, output, weight, bias and whether they are dynamic.
type RawDTypes = (
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    bool,
);

/// The request of observers: `corsac.quantization._requests.ObserverRequest`.
#[derive(FromPyObject)]
pub(crate) struct RawRequest<'py> {
    patterns: Vec<RawPattern<'py>>,
    dtypes: Vec<RawDTypes>,
    broken: Vec<(usize, usize, String)>,
    qconfigs: Vec<RawQConfig>,
    choices: HashMap<String, Choice>,
    custom: HashSet<String>,
    tuples: HashMap<String, String>,
    tuple_functions: [Bound<'py, PyAny>; 2],
    standalone: HashMap<String, Vec<usize>>,
    quantised_inputs: Vec<usize>,
    taken: HashSet<String>,
}

fn observation(number: u8) -> Observation {
    match number {
        1 => Observation::Shared,
        2 => Observation::Unobserved,
        _ => Observation::Own,
    }
}

/// The nodes called by the names in `names`, each with its value.
fn by_node<T>(graph: &Graph, mut names: HashMap<String, T>) -> FxHashMap<NodeId, T> {
    let nodes = graph.nodes();
    let found = nodes.filter_map(|node| Some((node, names.remove(graph.node(node).name())?)));
    found.collect()
}

/// An observer: its name, the number of the configuration, whether it is one of weights, and the
/// name of the observer that it shares, or its own, and of the value; none where it was removed again.
type RawPlaced = (String, usize, bool, String, Option<String>);

/// Observers, the names of nodes that are to be quantised, the nodes of custom modules, the names
/// of stubs, and those of nodes whose configuration breaks the bounds of element types, both by number; and the sites.
type RawObserved = (
    Vec<RawPlaced>,
    Vec<String>,
    Vec<Py<PyNode>>,
    Vec<String>,
    Vec<(String, usize, usize)>,
    Vec<RawSite>,
);

/// Puts observers on the values of `graph` that are to be quantised. The modules have to be made after
/// that.
#[pyfunction]
pub(crate) fn observe_values(
    graph: &Bound<'_, PyGraph>,
    request: RawRequest<'_>,
) -> PyResult<RawObserved> {
    let mut backend = Backend::default();
    for raw in request.patterns {
        let Some(pattern) = pattern(graph, &raw.pattern)? else {
            continue;
        };
        let by_tensors = raw.by_tensors.into_iter();
        backend.patterns.push(Quantisable {
            pattern,
            root: raw.root,
            observation: observation(raw.observation),
            by_tensors: by_tensors
                .map(|(count, number)| (count, observation(number)))
                .collect(),
            dtypes: raw.dtypes,
            weight: raw.weight,
            bias: raw.bias,
        });
    }
    let dtypes = request.dtypes.into_iter();
    backend.dtypes = dtypes
        .map(|(input, output, weight, bias, dynamic)| DTypeConfig {
            input,
            output,
            weight,
            bias,
            dynamic,
        })
        .collect();
    for (qconfig, dtypes, bounded) in request.broken {
        let bounded = match bounded.as_str() {
            "input" => Bounded::Input,
            "output" => Bounded::Output,
            "weight" => Bounded::Weight,
            other => {
                return Err(PyValueError::new_err(format!(
                    "nothing is bounded as {other}"
                )));
            }
        };
        backend.broken.insert((qconfig, dtypes, bounded));
    }
    let qconfigs = request.qconfigs.into_iter().map(|raw| QConfig {
        activation: raw.activation.map(Into::into),
        weight: raw.weight.map(Into::into),
        reuses_input: raw.reuses_input,
    });
    let mut tuples = FxHashMap::default();
    for (path, structure) in request.tuples {
        let structure = match structure.as_str() {
            "recurrent" => Structure::RECURRENT,
            "pair" => Structure::PAIR,
            other => return Err(PyValueError::new_err(format!("no results are {other}"))),
        };
        tuples.insert(path, structure);
    }
    let [getitem, tuple] = &request.tuple_functions;
    let tuple_functions = TupleFunctions {
        getitem: PyGraph::function(graph, getitem)?,
        tuple: PyGraph::function(graph, tuple)?,
    };
    let own = Request {
        tuple_functions: Some(tuple_functions),
        qconfigs: qconfigs.collect(),
        choices: by_node(graph.try_borrow()?.ir(), request.choices),
        wholes: Wholes {
            custom: request.custom.into_iter().collect(),
            tuples,
            standalone: request.standalone.into_iter().collect(),
        },
        quantised_inputs: request.quantised_inputs,
        taken: request.taken.into_iter().collect(),
    };
    let facts = Facts::of_graph(graph)?;
    let observed = PyGraph::edit(graph, |ir| {
        observe::observe(ir, &facts, &backend, &own).map_err(pass_error)
    })?;
    let placed = &observed.placed;
    let borrowed = graph.try_borrow()?;
    let name = |node: NodeId| borrowed.ir().node(node).name().to_owned();
    let raw = placed.iter().map(|one| {
        let value = one.node.and_then(|node| borrowed.ir().inputs(node).next());
        (
            one.name.clone(),
            one.qconfig,
            one.part == Part::Weight,
            placed[one.module].name.clone(),
            value.map(name),
        )
    });
    let raw = raw.collect();
    let nodes = observed.nodes.iter().map(|&node| name(node)).collect();
    let unbounded = observed.unbounded.iter();
    let unbounded = unbounded.map(|&(node, qconfig, dtypes)| (name(node), qconfig, dtypes));
    let unbounded = unbounded.collect();
    drop(borrowed);
    let custom = PyNode::all(graph, &observed.custom)?;
    let sites = raw_sites(observed.sites);
    Ok((raw, nodes, custom, observed.stubs, unbounded, sites))
}

/// The replacement of an observer: `corsac.quantization._requests.Conversion`.
#[derive(FromPyObject)]
pub(crate) struct RawConversion<'py> {
    kind: String,
    attribute: Option<String>,
    scale: Option<f64>,
    zero_point: Option<i64>,
    axis: Option<i64>,
    scales: Option<String>,
    zero_points: Option<String>,
    quant_min: i64,
    quant_max: i64,
    dtype: Bound<'py, PyAny>,
}

/// The element type that an object is, if it is one.
fn element_type(object: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    Ok(match TorchValues::get(object.py())?.of(object) {
        Some(TorchValue::DType(dtype)) => Some(dtype),
        Some(_) | None => None,
    })
}

impl RawConversion<'_> {
    fn read(self) -> PyResult<Conversion> {
        let range = element_type(&self.dtype)?.map(|dtype| Range {
            min: self.quant_min,
            max: self.quant_max,
            dtype,
        });
        let steps = match (
            self.scale,
            self.zero_point,
            self.axis,
            self.scales,
            self.zero_points,
        ) {
            (Some(scale), Some(zero_point), None, None, None) => {
                Some(Steps::Tensor { scale, zero_point })
            }
            (None, None, Some(axis), Some(scales), Some(zero_points)) => {
                Some(Steps::Channels(Channels {
                    axis,
                    scales,
                    zero_points,
                }))
            }
            _ => None,
        };
        match (self.kind.as_str(), self.attribute, steps, range) {
            ("dropped", None, _, _) => Ok(Conversion::Dropped),
            ("half", None, _, _) => Ok(Conversion::Half),
            ("static", None, Some(steps), Some(range)) => Ok(Conversion::Static(steps, range)),
            ("dynamic", None, None, Some(range)) => Ok(Conversion::Dynamic(range)),
            ("constant", Some(name), Some(steps), Some(range)) => {
                Ok(Conversion::Constant(name, steps, range))
            }
            (kind, ..) => Err(PyValueError::new_err(format!(
                "a conversion of the kind {kind} has other fields"
            ))),
        }
    }
}

/// Replaces the observers of `graph`, by path, as `conversions` says; those between nodes called as in
/// `left_alone` are removed. `operators` are the functions of new nodes; `floats` is the element type of
/// dequantised values, if it is not float32.
#[pyfunction]
#[pyo3(signature = (
    graph, conversions, left_alone, quantised_inputs, quantised_outputs, operators, floats = None
))]
pub(crate) fn convert_observers(
    graph: &Bound<'_, PyGraph>,
    conversions: HashMap<String, RawConversion<'_>>,
    left_alone: HashSet<String>,
    quantised_inputs: Vec<usize>,
    quantised_outputs: Vec<usize>,
    operators: [Bound<'_, PyAny>; 8],
    floats: Option<Bound<'_, PyAny>>,
) -> PyResult<()> {
    let functions = operators.iter().map(|one| PyGraph::function(graph, one));
    let functions = functions.collect::<PyResult<Vec<FunctionId>>>()?;
    let &[
        quantise,
        dequantise,
        quantise_channels,
        dequantise_channels,
        choose,
        quantise_rows,
        dequantise_rows,
        getitem,
    ] = functions.as_slice()
    else {
        return Err(PyValueError::new_err("expected eight operators"));
    };
    let operators = Operators {
        quantise,
        dequantise,
        quantise_channels,
        dequantise_channels,
        choose,
        quantise_rows,
        dequantise_rows,
        getitem,
    };
    let observers = conversions
        .into_iter()
        .map(|(path, raw)| Ok((path, raw.read()?)));
    let observers = observers.collect::<PyResult<FxHashMap<_, _>>>()?;
    let left_alone = {
        let names = left_alone.into_iter().map(|name| (name, ())).collect();
        by_node(graph.try_borrow()?.ir(), names)
            .into_keys()
            .collect()
    };
    let request = convert::Request {
        observers,
        left_alone,
        quantised_inputs,
        quantised_outputs,
        floats: match floats {
            Some(floats) => element_type(&floats)?,
            None => None,
        },
    };
    let edits = PyGraph::edit(graph, |ir| {
        convert::convert(ir, &request, &operators).map_err(pass_error)
    })?;
    finish(graph, &edits.added, &edits.erased)
}

/// An observed weight of a function: the observer, the nodes that compute its input, in order, and
/// the node of an attribute if it is the input.
type ObservedWeight = (String, Vec<Py<PyNode>>, Option<String>);

/// The weights of functions in `graph` that are observed by one of `observers`, by path, and do not
/// depend on the inputs of the program.
#[pyfunction]
pub(crate) fn weights_of_functions(
    graph: &Bound<'_, PyGraph>,
    observers: HashSet<String>,
) -> PyResult<Vec<ObservedWeight>> {
    let found: Vec<(String, Vec<NodeId>, Option<String>)> = {
        let borrowed = graph.try_borrow()?;
        let ir = borrowed.ir();
        let facts = FxHashSet::from_iter(observers.iter().map(String::as_str));
        let constants = convert::constant_inputs(ir, &facts);
        let attribute = |nodes: &[NodeId]| match nodes {
            [one] => {
                let view = ir.node(*one);
                (view.op() == corsac_ir::Op::GetAttr).then(|| view.target_name().to_owned())
            }
            _ => None,
        };
        let named = constants.into_iter().map(|(observer, nodes)| {
            let path = ir.node(observer).target_name().to_owned();
            let attribute = attribute(&nodes);
            (path, nodes, attribute)
        });
        named.collect()
    };
    let handles = found
        .into_iter()
        .map(|(path, nodes, attribute)| Ok((path, PyNode::all(graph, &nodes)?, attribute)));
    handles.collect()
}
