//! Modules as functions and back, casts of mixed precision, and merged matrix products, in graphs
//! of Python.

use std::collections::HashSet;

use corsac_ir::{DType, FunctionId, Graph, NodeId, Op};
use corsac_ops::Precision;
use corsac_ops::shape::{Dim, TypeHost as _, Value};
use corsac_passes::autocast::{self, Casts};
use corsac_passes::functional::{self, Functional};
use corsac_passes::products::{self, Functions, Split};
use corsac_passes::{Edits, PassError, TensorFact, TensorFacts};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use crate::analysis::facts::TypeFacts;
use crate::budget::{PyBudget, within};
use crate::effects::{Facts, tensor_facts};
use crate::error::pass_error;
use crate::graph::PyGraph;
use crate::node::PyNode;
use crate::passes::{Site, site};
use crate::resolve::resolve;
use crate::rules::finish;
use crate::runtime::{TorchValue, TorchValues};

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(modules_to_functions, m)?)?;
    m.add_function(wrap_pyfunction!(find_layers, m)?)?;
    m.add_function(wrap_pyfunction!(call_layers, m)?)?;
    m.add_function(wrap_pyfunction!(cast_layers, m)?)?;
    m.add_function(wrap_pyfunction!(insert_casts, m)?)?;
    m.add_function(wrap_pyfunction!(merge_products, m)?)?;
    Ok(())
}

/// The function of `graph` for the callable with this qualified name.
pub(crate) fn function_named(graph: &Bound<'_, PyGraph>, name: &str) -> PyResult<FunctionId> {
    let callable = resolve(graph.py(), name, None)?
        .ok_or_else(|| PyRuntimeError::new_err(format!("there is no {name}")))?;
    PyGraph::function(graph, &callable)
}

/// The functions with these qualified names, added where they are new.
pub(crate) fn functions_named<'n>(
    graph: &Bound<'_, PyGraph>,
    names: impl Iterator<Item = &'n str>,
) -> PyResult<FxHashMap<String, FunctionId>> {
    names
        .map(|name| Ok((name.to_owned(), function_named(graph, name)?)))
        .collect()
}

/// Changes `graph`, and completes its records of new and erased nodes.
fn change(
    graph: &Bound<'_, PyGraph>,
    change: impl FnOnce(&mut Graph) -> Result<Edits, PassError>,
) -> PyResult<()> {
    let edits = PyGraph::edit(graph, |ir| change(ir).map_err(pass_error))?;
    finish(graph, &edits.added, &edits.erased)
}

fn apply_functional(graph: &Bound<'_, PyGraph>, found: &Functional) -> PyResult<Vec<Site>> {
    let sites = {
        let borrowed = graph.try_borrow()?;
        let sites = found.report_sites(borrowed.ir()).into_iter();
        sites
            .map(|site| (site.node, site.target, site.other, site.reason))
            .collect()
    };
    if found.changed() {
        let functions = functions_named(graph, found.functions())?;
        change(graph, |ir| {
            found.apply(ir, |ir, name| {
                let known = functions.get(name).copied();
                known.unwrap_or_else(|| ir.function(name))
            })
        })?;
    }
    Ok(sites)
}

/// Replaces calls of modules in `graph` by calls of functions; with `classes`, qualified names,
/// only of modules of these. Returns every call of such a module.
#[pyfunction]
#[pyo3(signature = (graph, classes = None, *, budget = None))]
pub(crate) fn modules_to_functions(
    graph: &Bound<'_, PyGraph>,
    classes: Option<HashSet<String>>,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<Vec<Site>> {
    let types = TypeFacts::of_graph(graph)?;
    let wanted = |class: &str| classes.as_ref().is_none_or(|known| known.contains(class));
    let found = within(budget, |budget| {
        let borrowed = graph.try_borrow()?;
        Ok(functional::find(borrowed.ir(), &types, &wanted, budget))
    })?;
    apply_functional(graph, &found)
}

/// A call that a module can make: the node, the class, the paths of weight and bias.
type Layer = (Py<PyNode>, &'static str, Option<String>, Option<String>);

/// The calls of functions in `graph` that modules can make, and all calls of such functions, with
/// the reason where none can. `parameters` has the paths of all parameters.
#[pyfunction]
#[pyo3(signature = (graph, parameters, *, budget = None))]
pub(crate) fn find_layers(
    graph: &Bound<'_, PyGraph>,
    parameters: HashSet<String>,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<(Vec<Layer>, Vec<Site>)> {
    let borrowed = graph.try_borrow()?;
    let ir = borrowed.ir();
    let is_parameter = |path: &str| parameters.contains(path);
    let found = within(budget, |budget| {
        Ok(functional::find_layers(ir, &is_parameter, budget))
    })?;
    let (mut layers, mut sites) = (Vec::new(), Vec::new());
    for at in found {
        let reason = match at.outcome {
            Ok(layer) => {
                let node = PyNode::handle(graph, borrowed.host(), layer.node)?;
                layers.push((node, layer.class, layer.weight, layer.bias));
                None
            }
            Err(refusal) => Some(refusal.to_string()),
        };
        sites.push(site(ir, at.node, None, reason));
    }
    Ok((layers, sites))
}

/// Replaces the calls of these nodes of `graph` by calls of modules, by path.
#[pyfunction]
pub(crate) fn call_layers(
    graph: &Bound<'_, PyGraph>,
    modules: Vec<(Bound<'_, PyNode>, String)>,
) -> PyResult<()> {
    let own = modules.iter().map(|(node, path)| {
        let node = PyGraph::own(graph, node)?;
        Ok((node, path.as_str()))
    });
    let own: Vec<(NodeId, &str)> = own.collect::<PyResult<_>>()?;
    change(graph, |ir| functional::call_layers(ir, &own))
}

/// Replaces the modules whose weights autocast casts by calls of functions. Returns every call of
/// such a module.
#[pyfunction]
#[pyo3(signature = (graph, *, budget = None))]
pub(crate) fn cast_layers(
    graph: &Bound<'_, PyGraph>,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<Vec<Site>> {
    let types = TypeFacts::of_graph(graph)?;
    let found = within(budget, |budget| {
        let borrowed = graph.try_borrow()?;
        Ok(autocast::find_layers(borrowed.ir(), &types, budget))
    })?;
    apply_functional(graph, &found)
}

/// Inserts the casts of autocast: `cast(value, dtype)`, `widest(list)`. Returns every call that it
/// casts for, with the type, and every call that is unknown to it.
#[pyfunction]
#[pyo3(signature = (graph, dtype, cast, widest, *, budget = None))]
pub(crate) fn insert_casts(
    graph: &Bound<'_, PyGraph>,
    dtype: &Bound<'_, PyAny>,
    cast: &Bound<'_, PyAny>,
    widest: &Bound<'_, PyAny>,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<Vec<Site>> {
    let Some(TorchValue::DType(dtype)) = TorchValues::get(graph.py())?.of(dtype) else {
        return Err(PyTypeError::new_err(format!("{dtype} is no torch.dtype")));
    };
    let (facts, types) = (Facts::of_graph(graph)?, TypeFacts::of_graph(graph)?);
    let casts = Casts::ByHost {
        cast: PyGraph::function(graph, cast)?,
        widest: PyGraph::function(graph, widest)?,
    };
    let done = within(budget, |budget| {
        PyGraph::edit(graph, |ir| {
            autocast::insert(ir, &facts, &types, dtype, &casts, budget).map_err(pass_error)
        })
    })?;
    finish(graph, &done.edits.added, &done.edits.erased)?;
    for &node in &done.stale {
        PyGraph::forget_value(graph, node)?;
    }
    let borrowed = graph.try_borrow()?;
    let sites = done.sites.into_iter().map(|at| {
        let (other, reason) = match at.outcome {
            Ok(precision) => (Some(shown(precision, dtype)), None),
            Err(refusal) => (None, Some(refusal.to_string())),
        };
        site(borrowed.ir(), at.node, other, reason)
    });
    Ok(sites.collect())
}

fn shown(precision: Precision, lower: DType) -> String {
    match precision {
        Precision::Lower => format!("torch.{}", lower.name()),
        Precision::Single => format!("torch.{}", DType::Float32.name()),
        Precision::Widest => "widest".to_owned(),
    }
}

/// Adds the shapes of attributes that are not known yet.
fn add_attributes(graph: &Bound<'_, PyGraph>, tensors: &mut TensorFacts) -> PyResult<()> {
    let types = TypeFacts::of_graph(graph)?;
    let borrowed = graph.try_borrow()?;
    for node in borrowed.ir().find_nodes(Op::GetAttr, None) {
        let path = borrowed.ir().node(node).target_name();
        let Some(Value::Tensor(tensor)) = types.attribute(path) else {
            continue;
        };
        let shape = tensor.shape.iter().map(Dim::known).collect();
        if tensors.get(node).is_none() {
            let fact = TensorFact {
                shape,
                ..TensorFact::default()
            };
            tensors.set(node, fact);
        }
    }
    Ok(())
}

/// Merges matrix products in `graph` with the same right-hand side into one. `split(product,
/// inputs)` splits the product, by default with `torch.split` and the sizes. Returns every product.
#[pyfunction]
#[pyo3(signature = (graph, split = None, *, budget = None))]
pub(crate) fn merge_products(
    graph: &Bound<'_, PyGraph>,
    split: Option<&Bound<'_, PyAny>>,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<Vec<Site>> {
    let facts = Facts::of_graph(graph)?;
    let mut tensors = tensor_facts(graph)?;
    add_attributes(graph, &mut tensors)?;
    let mut found = within(budget, |budget| {
        let borrowed = graph.try_borrow()?;
        let found = products::find(borrowed.ir(), &facts, &tensors);
        let mut found = found.map_err(pass_error)?;
        found.limit(budget);
        Ok(found)
    })?;
    if !found.groups.is_empty() {
        let functions = Functions {
            cat: function_named(graph, "torch.cat")?,
            matmul: function_named(graph, "torch.matmul")?,
            getitem: function_named(graph, "operator.getitem")?,
            split: match split {
                Some(split) => Split::ByInputs(PyGraph::function(graph, split)?),
                None => Split::Sizes(function_named(graph, "torch.split")?),
            },
        };
        change(graph, |ir| found.merge(ir, &functions))?;
    }
    let borrowed = graph.try_borrow()?;
    let sites = found.sites.iter().map(|at| {
        let reason = at.refusal.as_ref().map(ToString::to_string);
        site(borrowed.ir(), at.node, None, reason)
    });
    Ok(sites.collect())
}
