//! Plans of tensor parallelism for a graph whose types are known.

use corsac_ir::{NodeId, Op, SecondaryMap};
use corsac_ops::shape::{Form, ShardedCall};
use corsac_passes::tensor_parallel::{
    Placement, Placements, Planned, Problem, WeightFacts, plan as cheapest,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use rustc_hash::FxHashMap;

use super::PyTypes;

/// The name of a weight, whether it may be sharded, whether it is trained, the dimension along which
/// it has to be, if any, and whether no call may use the whole of it then.
pub(super) type GivenWeight = (String, bool, bool, Option<usize>, bool);

/// The nodes, the cost, and the views that cannot be sharded.
pub(super) type Answer<'py> = (Bound<'py, PyList>, f64, Vec<(usize, i64)>);

/// The cheapest plan for the graph of `types`; `nodes` has the cost of each node, whether its
/// value has to be whole, and whether it is a view, the last pair whether gradients are computed, and the costs of a
/// byte of a weight and of another value that is kept.
pub(super) fn plan<'py>(
    types: &PyTypes,
    py: Python<'py>,
    ranks: i64,
    nodes: &[(f64, bool, bool)],
    weights: Vec<GivenWeight>,
    (training, kept): (bool, (f64, f64)),
) -> PyResult<Answer<'py>> {
    let wrong = |message: String| PyValueError::new_err(message);
    if ranks < 1 {
        return Err(wrong(format!("ranks: expected at least 1, got {ranks}")));
    }
    let order = &types.order;
    if nodes.len() != order.len() || types.sharded.len() != order.len() {
        let (own, given, calls) = (order.len(), nodes.len(), types.sharded.len());
        return Err(wrong(format!(
            "{own} nodes, {given} costs, {calls} calls on parts"
        )));
    }
    let graph = types.graph.bind(py).try_borrow()?;
    let ir = graph.ir();
    let mut place: SecondaryMap<NodeId, usize> = SecondaryMap::with_capacity(ir.id_bound());
    for (at, &node) in order.iter().enumerate() {
        place.set(node, at);
    }
    let mut facts = Vec::with_capacity(weights.len());
    let mut by_name: FxHashMap<String, usize> = FxHashMap::default();
    for (name, shards, trained, along, fixed) in weights {
        by_name.insert(name, facts.len());
        facts.push(WeightFacts {
            shards,
            trained,
            along,
            fixed,
        });
    }
    let weight = |node: NodeId| {
        let view = ir.node(node);
        let is_attribute = view.op() == Op::GetAttr;
        is_attribute
            .then(|| by_name.get(view.target_name()).copied())
            .flatten()
    };
    let problem = Problem {
        value: &|node| types.value(node),
        call: &|node| types.sharded[place[node]].as_ref(),
        work: &|node| nodes[place[node]].0,
        whole: &|node| nodes[place[node]].1,
        view: &|node| nodes[place[node]].2,
        weight: &weight,
        weights: &facts,
        ranks,
        training,
        kept: kept.0,
        activations: kept.1,
    };
    let found = cheapest(ir, &problem).map_err(wrong)?;
    let nodes = found.nodes.iter().map(|planned| {
        let call = types.sharded[place[planned.node]].as_ref();
        written(py, planned, call, &|node| place[node])
    });
    let nodes = PyList::new(py, nodes.collect::<PyResult<Vec<_>>>()?)?;
    let uneven = found.uneven.iter().map(|own| (place[own.node], own.size));
    Ok((nodes, found.cost, uneven.collect()))
}

fn written<'py>(
    py: Python<'py>,
    planned: &Planned,
    call: Option<&ShardedCall>,
    place: &dyn Fn(NodeId) -> usize,
) -> PyResult<Bound<'py, PyTuple>> {
    let all = |own: &Placements| -> PyResult<Bound<'py, PyList>> {
        let own = own.iter().map(|placement| match placement {
            Placement::Replicate => Ok(py.None().into_bound(py)),
            Placement::Partial => Ok(PyString::new(py, "sum").into_any()),
            Placement::Shard { dim, pieces } => (*dim, pieces.to_vec())
                .into_pyobject(py)
                .map(Bound::into_any),
        });
        PyList::new(py, own.collect::<PyResult<Vec<_>>>()?)
    };
    let inputs = planned
        .inputs
        .iter()
        .map(|(node, own)| Ok((place(*node), all(own)?)));
    let inputs = inputs.collect::<PyResult<Vec<_>>>()?;
    let form = match planned.form {
        Form::Plain if call.is_some_and(|call| call.keeps_order) => "view",
        Form::Plain => "plain",
        Form::Mean => "mean",
        Form::Lookup => "lookup",
        Form::Classes => "classes",
        Form::Sizes => "sizes",
    };
    let is_sharded = |&(of_input, tensor, dim): &(bool, usize, usize)| {
        let own = match of_input {
            false => planned.output.get(tensor),
            true => {
                let input = call.and_then(|call| call.inputs.get(tensor));
                input.and_then(|(node, number)| {
                    let mut inputs = planned.inputs.iter();
                    inputs.find(|(own, _)| own == node)?.1.get(*number)
                })
            }
        };
        matches!(own, Some(Placement::Shard { dim: at, .. }) if *at == dim)
    };
    let places = call.map_or(&[][..], |call| &call.sizes);
    let places = places.iter().filter(|own| is_sharded(&own.of)).map(|own| {
        let first = match (&own.position, &own.keyword) {
            (Some(position), _) => position.into_pyobject(py)?.into_any(),
            (None, Some(name)) => PyString::new(py, name).into_any(),
            (None, None) => py.None().into_bound(py),
        };
        Ok((first, own.items.to_vec()))
    });
    let places = places.collect::<PyResult<Vec<_>>>()?;
    let (output, replicated, split) = (all(&planned.output)?, planned.replicated, planned.split);
    (inputs, output, replicated, split, form, places).into_pyobject(py)
}
