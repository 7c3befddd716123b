//! Other forms of linear layers: several merged into one, or without a bias.
//!
//! [`merge`] makes one call of several linear layers with the same input, and slices their results
//! out of its result; [`pad_input`] appends a column of ones to the inputs of linear layers with a
//! bias, so that the bias can be a column of their weights.
//!
//! Needs: a host that changes the weights as planned. Results of merged layers are views of one
//! tensor, with other strides than before: `view(-1)` of one of them, or another view that joins
//! its last dimension with others, fails, so that the host makes it a `reshape`, and users that
//! read strides or storage get a copy, `merged[..., 0:64].contiguous()`.
//!
//! Preserves: order, and names and metadata of the existing nodes. Results differ in rounding.
//!
//! ```text
//! query = self.query(x)          merged = self.merged(x)
//! key = self.key(x)         →    query = merged[..., 0:64]
//!                                key = merged[..., 64:128]
//!
//! fc = self.fc(x)           →    pad = pad(x, (0, 1), "constant", 1.0)
//!                                fc = self.fc(pad)
//! ```
//!
//! Reference: optimum, `MergeLinears` and `FuseBiasInLinear`, which ignore that layers may be
//! called twice or read elsewhere, and change the modules of the model that was traced.

use corsac_ir::{Arg, EntityId, FunctionId, Graph, InsertPoint, Node, NodeId, Op, Target, ThinVec};
use corsac_ops::{Host, ModuleInfo};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::budget::Budget;
use crate::error::PassError;
use crate::mkldnn::Writes;
use crate::modules::{Modules, hooked, parents};
use crate::report::{Refusal, Site};

/// A call of a linear layer, and whether it can be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The qualified name of the layer.
    pub layer: String,
    /// The value that it is called with, if that is its only argument.
    pub input: Option<NodeId>,
    /// Its place.
    pub site: Site,
}

const ARGUMENTS: Refusal = Refusal::because("it is called with other arguments than one tensor");

/// Refuses the layers that the budget does not allow to change; each takes one change.
pub fn limit(calls: &mut [Call], budget: &mut Budget) {
    for site in calls.iter_mut().map(|call| &mut call.site) {
        if site.is_applied() {
            site.refusal = budget.grant(()).err();
        }
    }
}

/// Refuses the groups that the budget does not allow to merge; each takes one change.
pub fn limit_groups(groups: &mut Vec<Group>, calls: &mut [Call], budget: &mut Budget) {
    let granted = budget.take_up_to(groups.len());
    for group in groups.drain(granted..) {
        for member in group.members {
            calls[member].site.refusal = Some(Refusal::BUDGET);
        }
    }
}

/// Finds the calls of `nn.Linear` in `graph`, in order, without changing the graph. `unfit` has the
/// reasons why layers, by path, cannot be changed.
#[must_use]
pub fn find(graph: &Graph, host: &dyn Host, unfit: &FxHashMap<String, String>) -> Vec<Call> {
    let modules = Modules::of_graph(graph, host);
    let nodes = graph.find_nodes(Op::CallModule, None);
    let attributes = graph.find_nodes(Op::GetAttr, None);
    let named = nodes.iter().chain(&attributes);
    let used = named.map(|&id| graph.node(id).target_name()).collect();
    let call = |id| {
        let node: Node<'_> = graph.node(id);
        let layer = node.target_name();
        let info = modules.by_path.get(layer)?;
        if info.torch_class() != Some("Linear") {
            return None;
        }
        let input = match (node.args(), node.kwargs()) {
            ([Arg::Node(input)], []) => Some(*input),
            _ => None,
        };
        let refusal = match (input, unfit.get(layer)) {
            (None, _) => Some(ARGUMENTS),
            (Some(_), Some(reason)) => Some(reason.clone().into()),
            (Some(_), None) => refusal(&modules, &used, layer, info),
        };
        Some(Call {
            layer: layer.to_owned(),
            input,
            site: Site::new(graph, id, refusal),
        })
    };
    nodes.into_iter().filter_map(call).collect()
}

/// The reason why a layer cannot be changed by itself; `used` are the paths that the graph names.
fn refusal(
    modules: &Modules,
    used: &FxHashSet<&str>,
    layer: &str,
    info: &ModuleInfo,
) -> Option<Refusal> {
    if let Some(refusal) = modules
        .called_again(layer, info)
        .or_else(|| hooked(layer, info))
    {
        return Some(refusal);
    }
    let attribute = modules.attribute_of.get(&info.identity).map(String::as_str);
    let path = attribute.or_else(|| parents(layer).find(|path| used.contains(path)))?;
    Some(format!("the graph uses {path} besides {layer}").into())
}

/// Layers to merge into one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The value that they are called with.
    pub input: NodeId,
    /// The places of their calls in the list, in order.
    pub members: Vec<usize>,
}

/// Groups those layers of `calls` that can be merged: they are called with the same value, which is
/// not written to between the calls, and are of one `kind`, a number that the host gives each
/// layer. Calls that are in no group get a reason.
///
/// # Errors
/// If a node of `graph` uses one that comes after it.
pub fn group(
    graph: &Graph,
    host: &dyn Host,
    calls: &mut [Call],
    kind: &dyn Fn(&str) -> usize,
) -> Result<Vec<Group>, PassError> {
    let writes = Writes::of_graph(graph, host)?;
    let mut groups: Vec<Group> = Vec::new();
    let mut open: FxHashMap<(NodeId, usize), usize> = FxHashMap::default();
    for (place, call) in calls.iter().enumerate() {
        let (Some(input), None) = (call.input, &call.site.refusal) else {
            continue;
        };
        let key = (input, kind(&call.layer));
        let same = open.get(&key).copied().filter(|&at: &usize| {
            let first = calls[groups[at].members[0]].site.node;
            !writes.is_seen(input) || !writes.come_between(graph, first, call.site.node)
        });
        match same {
            Some(at) => groups[at].members.push(place),
            None => {
                open.insert(key, groups.len());
                groups.push(Group {
                    input,
                    members: vec![place],
                });
            }
        }
    }
    for group in groups.iter().filter(|g| g.members.len() < 2) {
        let input = graph.node(group.input).name();
        let alone = "no other linear layer that it could be merged with is called with";
        for &member in &group.members {
            calls[member].site.refusal = Some(format!("{alone} {input}").into());
        }
    }
    groups.retain(|group| group.members.len() > 1);
    Ok(groups)
}

/// A layer to be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its call.
    pub call: NodeId,
    /// Number of its output features.
    pub width: i64,
    /// Whether its result is copied, to keep its strides and storage of its own.
    pub copied: bool,
}

/// Replaces the calls of a group by one call of `merged`, a module that the host has made of them.
/// Returns the new node.
///
/// # Errors
/// If the graph refuses a change.
pub fn merge(
    graph: &mut Graph,
    input: NodeId,
    members: &[Member],
    merged: &str,
    getitem: FunctionId,
) -> Result<NodeId, PassError> {
    let Some(&Member { call: first, .. }) = members.first() else {
        return Ok(input);
    };
    let outer = graph.set_insert_point(InsertPoint::Before(first))?;
    let node = graph.call_module(merged, [input.into()]);
    graph.restore_insert_point(outer);
    let node = node?;
    graph.set_origin(node, graph.origin(first));
    let mut start = 0;
    for &Member {
        call,
        width,
        copied,
    } in members
    {
        let end = start + width;
        let columns = Arg::slice(Arg::Int(start), Arg::Int(end), Arg::None)?;
        let index = Arg::tuple([Arg::Ellipsis, columns])?;
        if copied {
            let outer = graph.set_insert_point(InsertPoint::Before(call))?;
            let columns = graph.call_function(getitem, [node.into(), index]);
            graph.restore_insert_point(outer);
            let columns = columns?;
            graph.set_origin(columns, graph.origin(call));
            let contiguous = Target::Name(graph.intern("contiguous"));
            graph.set_op_and_target(call, Op::CallMethod, contiguous)?;
            graph.set_arguments(call, [columns.into()].into(), ThinVec::new())?;
        } else {
            graph.set_op_and_target(call, Op::CallFunction, Target::Function(getitem))?;
            graph.set_arguments(call, [node.into(), index].into(), ThinVec::new())?;
        }
        start = end;
    }
    Ok(node)
}

/// Appends a column of ones to the input of a layer's call; `pad` is `torch.nn.functional.pad`.
/// Returns the new node.
///
/// # Errors
/// If the graph refuses a change.
pub fn pad_input(
    graph: &mut Graph,
    call: NodeId,
    input: NodeId,
    pad: FunctionId,
) -> Result<NodeId, PassError> {
    let constant = Arg::Str(graph.intern("constant"));
    let sides = Arg::tuple([Arg::Int(0), Arg::Int(1)])?;
    let outer = graph.set_insert_point(InsertPoint::Before(call))?;
    let node = graph.call_function(pad, [input.into(), sides, constant, Arg::Float(1.0)]);
    graph.restore_insert_point(outer);
    let node = node?;
    graph.set_origin(node, graph.origin(call));
    graph.replace_input(call, input, node)?;
    debug_assert!(node.index() < graph.id_bound());
    Ok(node)
}

#[cfg(test)]
mod tests;
