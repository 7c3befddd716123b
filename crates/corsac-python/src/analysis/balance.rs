//! Balanced parts of a graph whose types and costs are known.

use std::ops::Range;

use corsac_ir::{NodeId, SecondaryMap};
use corsac_passes::balance::{self, Chain, Crossing, Facts, Request, WeightBytes, balance};
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;

use super::PyTypes;
use crate::effects;
use crate::error::pass_error;
use crate::graph::node::PyNode;

create_exception!(
    corsac._core,
    BalanceError,
    PyValueError,
    "A graph that cannot be cut into so many parts, or within so much memory."
);

/// The number of the part of each call; seconds and memory of each part; bytes across each border.
pub(super) type CutParts = (Vec<usize>, Vec<f64>, Vec<u64>, Vec<u64>);

/// Cuts the graph of `types`; `seconds` has the time of each node, in graph order.
pub(super) fn cut(
    types: &PyTypes,
    py: Python<'_>,
    seconds: &[f64],
    request: &Request,
    only_tensors: bool,
) -> PyResult<CutParts> {
    let graph = types.graph.bind(py);
    let host = effects::Facts::of_graph(graph)?;
    let crossing = match only_tensors {
        true => Crossing::Tensors,
        false => Crossing::Anything,
    };
    let (found, calls) = {
        let borrowed = graph.try_borrow()?;
        let ir = borrowed.ir();
        if seconds.len() != types.order.len() || ir.len() != types.order.len() {
            return Err(PyValueError::new_err(format!(
                "{} nodes need as many times, got {}",
                ir.len(),
                seconds.len()
            )));
        }
        let mut place: SecondaryMap<NodeId, usize> = SecondaryMap::with_capacity(ir.id_bound());
        for (at, &node) in types.order.iter().enumerate() {
            place.set(node, at);
        }
        let bytes = |own: i64| u64::try_from(own).unwrap_or(0);
        let sizes: Vec<WeightBytes> = (types.weights.iter())
            .map(|own| WeightBytes {
                bytes: bytes(own.bytes),
                trained: if own.trainable { bytes(own.bytes) } else { 0 },
            })
            .collect();
        let facts = Facts {
            value: &|node| types.value(node),
            weights: &|node| &types.used[place[node]],
            sizes: &sizes,
        };
        let chain = Chain::of_graph(ir, &host, &facts, crossing);
        let (mut chain, calls) = chain.map_err(pass_error)?;
        for (work, &call) in chain.work.iter_mut().zip(&calls) {
            *work = seconds[place[call]];
        }
        let found = py.detach(|| balance(&chain, request)).map(|cut| {
            let mut part_of = Vec::with_capacity(calls.len());
            for (part, end) in cut.borders.iter().chain([&calls.len()]).enumerate() {
                part_of.resize(*end, part);
            }
            let crossing = cut.borders.iter().map(|&border| chain.crossing[border]);
            (part_of, cut.seconds, cut.memory, crossing.collect())
        });
        (found, calls)
    };
    found.map_err(|error| BalanceError::new_err(message(types, py, &calls, &error)))
}

/// The message of an error, with names of nodes and source lines.
fn message(
    types: &PyTypes,
    py: Python<'_>,
    calls: &[NodeId],
    error: &balance::BalanceError,
) -> String {
    let named = |call: usize| -> PyResult<String> {
        let node = PyNode::of(types.graph.bind(py), calls[call])?.into_bound(py);
        let name = node.getattr(intern!(py, "name"))?;
        let source = node.getattr(intern!(py, "source"))?;
        Ok(match source.is_none() {
            true => format!("{name}"),
            false => format!("{name} ({source})"),
        })
    };
    let named = |call| named(call).unwrap_or_default();
    let all = |calls: &Range<usize>| match calls.len() {
        1 => format!("node {}", named(calls.start)),
        _ => format!(
            "the nodes from {} to {}, which cannot be parted,",
            named(calls.start),
            named(calls.end - 1)
        ),
    };
    match error {
        balance::BalanceError::CallTooLarge {
            calls,
            needed,
            memory,
            least,
        } => format!(
            "{} {} {needed} bytes, expected at most {memory}: the least memory for this request is {least} bytes",
            all(calls),
            if calls.len() == 1 { "needs" } else { "need" },
        ),
        balance::BalanceError::TooLittleMemory {
            parts,
            memory,
            least,
        } => format!(
            "{parts} part{} of at most {memory} bytes cannot hold the program: the least memory for this \
             request is {least} bytes",
            if *parts == 1 { "" } else { "s" }
        ),
        balance::BalanceError::TooManyParts { possible, parts } => {
            let why = match calls.len() == *possible {
                true => format!(
                    "the graph has {possible} call{}",
                    if *possible == 1 { "" } else { "s" }
                ),
                false => format!(
                    "writes, and values that cannot cross, allow {possible} part{}",
                    if *possible == 1 { "" } else { "s" }
                ),
            };
            format!("expected at least one part and no more than can be made, got {parts}: {why}")
        }
        balance::BalanceError::Time { call, seconds } => format!(
            "node {} takes {seconds} seconds, expected a finite number of at least 0",
            named(*call)
        ),
        other => other.to_string(),
    }
}
