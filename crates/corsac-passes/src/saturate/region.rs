//! Finds the nodes that may be exchanged for equal ones.
//!
//! A node may be exchanged if it only computes a value, no value that it reads or computes is
//! written to anywhere in the program, and it is no view that the caller gets. The nodes between
//! two barriers, calls that may change the results of others such as a switch of modes, make a
//! region.

use corsac_ir::{EntityId, Graph, NodeId, Op};

use crate::analysis::Analysis;
use crate::rules::hazards::Hazards;

/// A stretch of the program without barriers.
#[derive(Clone, Debug, Default)]
pub(super) struct Region {
    /// Its nodes, in order; the barrier that it ends with is the last.
    pub(super) nodes: Vec<NodeId>,
    /// Those that may be exchanged, in order.
    pub(super) free: Vec<NodeId>,
}

/// The regions of a program that have nodes to exchange.
pub(super) fn regions(graph: &Graph, analysis: &Analysis, hazards: &Hazards) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    let mut current = 0;
    let mut region = Region::default();
    for &node in &analysis.nodes {
        let passed = hazards.barriers_before(node);
        region.nodes.push(node);
        if is_free(graph, hazards, node) {
            region.free.push(node);
        }
        if passed > current {
            current = passed;
            regions.push(std::mem::take(&mut region));
        }
    }
    regions.push(region);
    regions.retain(|region| !region.free.is_empty());
    regions
}

fn is_free(graph: &Graph, hazards: &Hazards, node: NodeId) -> bool {
    let view = graph.node(node);
    matches!(view.op(), Op::CallFunction | Op::CallMethod)
        && view.ty().is_none()
        && hazards.is_pure(node)
        && !hazards.reads_state(node)
        && !(hazards.shares(node) && hazards.is_returned(node))
        && !hazards.is_written(node)
        && !view.inputs().any(|input| hazards.is_written(input))
}

/// For each node, by index: whether it is free in `region`.
pub(super) fn is_in(graph: &Graph, region: &Region) -> Vec<bool> {
    let mut is_in = vec![false; graph.id_bound()];
    region
        .free
        .iter()
        .for_each(|node| is_in[node.index()] = true);
    is_in
}
