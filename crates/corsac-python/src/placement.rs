//! Placement of parts of graphs of Python on devices.

use corsac_ir::{NodeId, SecondaryMap};
use corsac_passes::placement::{
    Bytes, Device, PlacedPart, PlacementError, Program, Times, by_cost, by_exchange, by_size,
    with_embeddings,
};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::graph::PyGraph;
use crate::graph::node::PyNode;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(place_by_size, m)?)?;
    m.add_function(wrap_pyfunction!(place_by_cost, m)?)?;
    m.add_function(wrap_pyfunction!(place_by_exchange, m)?)?;
    m.add_function(wrap_pyfunction!(place_with_embeddings, m)?)?;
    Ok(())
}

/// The bytes of each node of a graph, in order: of its value, and with the parameters that it uses.
type Sizes = Vec<(i64, i64)>;
/// The memory of each device in bytes, and its number.
type Devices = Vec<(i64, i64)>;
/// The nodes of each part, and the numbers of its devices.
type Parts = Vec<(Vec<Py<PyNode>>, Vec<i64>)>;

/// A map from the nodes of a graph to the entries of `list`, which are in their order.
fn by_node<T: Clone + Default>(graph: &PyGraph, list: &[T]) -> PyResult<SecondaryMap<NodeId, T>> {
    let ir = graph.ir();
    let mut map = SecondaryMap::with_capacity(ir.id_bound());
    let mut known = list.iter();
    for node in ir.nodes() {
        let value = known.next().ok_or_else(|| {
            PyValueError::new_err(format!("{} values for {} nodes", list.len(), ir.len()))
        })?;
        map.set(node, value.clone());
    }
    Ok(map)
}

fn devices_of(devices: &Devices) -> Vec<Device> {
    let devices = devices.iter();
    devices.map(|&(bytes, id)| Device { bytes, id }).collect()
}

fn refused(error: PlacementError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// Reads the graph, and calls `place` to find the parts.
fn placed(
    graph: &Bound<'_, PyGraph>,
    sizes: &Sizes,
    place: impl FnOnce(&PyGraph, &Program<'_>) -> PyResult<Vec<PlacedPart>>,
) -> PyResult<Parts> {
    let borrowed = graph.try_borrow()?;
    let sizes = by_node(&borrowed, sizes)?;
    let program = Program::of(borrowed.ir(), |node| {
        let (output, total) = *sizes.get(node);
        Bytes { output, total }
    });
    let parts = place(&borrowed, &program)?.into_iter().map(|part| {
        let nodes = part.nodes.into_iter();
        let nodes = nodes.map(|node| PyNode::handle(graph, borrowed.host(), node));
        Ok((nodes.collect::<PyResult<_>>()?, part.devices))
    });
    parts.collect()
}

fn times_of(graph: &PyGraph, program: &Program<'_>, seconds: &[f64], rate: f64) -> PyResult<Times> {
    let seconds = by_node(graph, seconds)?;
    Ok(Times::of(program, rate, |node| *seconds.get(node)))
}

/// Parts of `graph` that fill one device after the other. `sizes` has the bytes of each node, of
/// its value and with its parameters; `devices` the bytes and the number of each device.
#[pyfunction]
pub(crate) fn place_by_size(
    graph: &Bound<'_, PyGraph>,
    sizes: Sizes,
    devices: Devices,
) -> PyResult<Parts> {
    placed(graph, &sizes, |_, program| {
        by_size(program, &devices_of(&devices)).map_err(refused)
    })
}

/// Parts of `graph`, combined as long as that saves time. `seconds` has the time of each node,
/// `rate` is in bytes a second between devices.
#[pyfunction]
pub(crate) fn place_by_cost(
    graph: &Bound<'_, PyGraph>,
    sizes: Sizes,
    devices: Devices,
    seconds: Vec<f64>,
    rate: f64,
) -> PyResult<Parts> {
    placed(graph, &sizes, |borrowed, program| {
        let times = times_of(borrowed, program, &seconds, rate)?;
        Ok(by_cost(program, &devices_of(&devices), &times))
    })
}

/// Parts of `graph` as by size, with calls swapped or moved where that saves time.
#[pyfunction]
pub(crate) fn place_by_exchange(
    graph: &Bound<'_, PyGraph>,
    sizes: Sizes,
    devices: Devices,
    seconds: Vec<f64>,
    rate: f64,
) -> PyResult<Parts> {
    placed(graph, &sizes, |borrowed, program| {
        let times = times_of(borrowed, program, &seconds, rate)?;
        by_exchange(program, &devices_of(&devices), &times).map_err(refused)
    })
}

/// Parts of `graph` with embeddings on devices of their own, `bytes` large each, and copies of the
/// rest on all of these. `embeddings` has for each node whether it is one.
#[pyfunction]
pub(crate) fn place_with_embeddings(
    graph: &Bound<'_, PyGraph>,
    sizes: Sizes,
    devices: Devices,
    bytes: i64,
    embeddings: Vec<bool>,
) -> PyResult<Parts> {
    placed(graph, &sizes, |borrowed, program| {
        let embeddings = by_node(borrowed, &embeddings)?;
        with_embeddings(program, &devices_of(&devices), bytes, |node| {
            *embeddings.get(node)
        })
        .map_err(refused)
    })
}
