//! Values of a graph that may share memory, for calls that write.

use corsac_ir::{Arg, EntityId, Graph, NodeId, Op};
use corsac_ops::Catalogue;
use corsac_ops::shape::{Propagator, Storage, Value};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Reason, is_assignment, truth};

/// Values that may share memory: by the aliasing of operators, for any strides that tensors turn
/// out to have, and by the storages of types.
///
/// Types alone describe the strides at hand, and a program is for all: `x.reshape(-1)` is a view of
/// a tensor that lies row by row, and a copy of others.
pub(super) struct Sharing {
    /// Union-find: by node, another one of its set, or itself.
    parent: Vec<u32>,
    /// By the representative of a set, its members, the last one first, each with the order of its
    /// last reader.
    members: FxHashMap<u32, Vec<(NodeId, u64)>>,
    /// By set, the first view that may repeat an element: from then on, writes are refused.
    repeated: FxHashMap<u32, NodeId>,
    /// Calls with several results in memory of their own each, which are only taken one by one or returned.
    apart: FxHashSet<NodeId>,
}

impl Sharing {
    pub(super) fn of(graph: &Graph, types: &Propagator<'_>, catalogue: &mut Catalogue<'_>) -> Self {
        let bound = u32::try_from(graph.id_bound()).unwrap_or(u32::MAX);
        let mut sharing = Self {
            parent: (0..bound).collect(),
            members: FxHashMap::default(),
            repeated: FxHashMap::default(),
            apart: FxHashSet::default(),
        };
        let mut first_in: FxHashMap<Storage, NodeId> = FxHashMap::default();
        // Values that are returned together do not share memory for that reason.
        let computed = |node: &NodeId| graph.node(*node).op() != Op::Output;
        // By what was given for one of several results, the last reader of these.
        let mut taken: FxHashMap<NodeId, u64> = FxHashMap::default();
        for node in graph.nodes().filter(computed) {
            if let Some(out) = several_out(graph, node) {
                let readers = graph.node(node).users();
                let last = readers.map(|user| graph.node(user).order()).max();
                for own in out.iter().filter_map(Arg::as_node) {
                    let known = taken.entry(own).or_insert(0);
                    *known = last.unwrap_or(0).max(*known);
                }
                continue;
            }
            let value = types.value(node);
            let truth = |arg: &Arg| truth(&types.argument(graph, arg));
            let effects = catalogue.effects_given(graph, node, &truth);
            if effects.is_plain() && is_taken_apart(graph, types, node) {
                sharing.apart.insert(node);
                continue;
            }
            value.for_each_tensor(&mut |tensor| {
                let first = *first_in.entry(tensor.storage).or_insert(node);
                sharing.join(first, node);
            });
            if is_written(graph, types, node) {
                continue;
            }
            for other in effects.aliases {
                if is_converted(types.value(other), value) || is_number(types.value(other)) {
                    continue;
                }
                match several_out(graph, other) {
                    // One of them, by its storage.
                    _ if sharing.apart.contains(&other) => {}
                    Some(_) if is_item(graph, node) => {}
                    None => sharing.join(other, node),
                    Some(out) => {
                        let out = out.iter().filter_map(Arg::as_node);
                        out.for_each(|own| sharing.join(own, node));
                    }
                }
            }
        }
        for node in graph.nodes() {
            if sharing.apart.contains(&node) {
                sharing.add_container(graph, node);
                continue;
            }
            let readers = graph.node(node).users();
            let last_read = readers.map(|user| graph.node(user).order()).max();
            let last_read = last_read.max(taken.get(&node).copied());
            let set = sharing.find(node.index());
            let members = sharing.members.entry(set).or_default();
            members.push((node, last_read.unwrap_or(0)));
            // A module's result has memory of its own: `nn.Unfold` copies what `Tensor.unfold` views.
            let is_module = graph.node(node).op() == Op::CallModule;
            let operator = catalogue.operator(graph, node).filter(|_| !is_module);
            if operator.is_some_and(|operator| operator.row().repeats_elements) {
                sharing.repeated.entry(set).or_insert(node);
            }
        }
        sharing.members.values_mut().for_each(|own| own.reverse());
        sharing
    }

    /// The values besides `argument` that may show a write of `node` to it, and are read afterwards
    /// or, as inputs, by the caller. Calls come in order: values that are not read from `node` on
    /// are forgotten.
    ///
    /// # Errors
    /// If writes to the memory are refused, an attribute shares it, or `node` reads it by another
    /// name.
    pub(super) fn shown(
        &mut self,
        graph: &Graph,
        node: NodeId,
        argument: NodeId,
    ) -> Result<Vec<NodeId>, Reason> {
        let now = graph.node(node).order();
        let set = self.find(argument.index());
        if let Some(&view) = self.repeated.get(&set)
            && graph.node(view).order() < now
        {
            let name = graph.node(view).name();
            return Err(format!("{name} may have an element in several places"));
        }
        let Some(members) = self.members.get_mut(&set) else {
            return Ok(Vec::new());
        };
        let mut shown = Vec::new();
        let mut kept = Vec::new();
        let mut reason = None;
        while let Some((other, last_read)) = members.pop() {
            let view = graph.node(other);
            if view.order() >= now {
                members.push((other, last_read));
                break;
            }
            let is_input = view.op() == Op::Placeholder;
            let is_outside = is_input || view.op() == Op::GetAttr;
            if is_outside || last_read >= now {
                kept.push((other, last_read));
            }
            if view.op() == Op::GetAttr {
                reason = Some(format!("it writes to the attribute {}", view.name()));
            } else if other != argument && last_read == now {
                reason = Some(format!(
                    "it writes to what {} may share memory with, which it reads",
                    view.name()
                ));
            } else if is_input || (other != argument && last_read > now) {
                shown.push(other);
            }
        }
        members.extend(kept.into_iter().rev());
        reason.map_or(Ok(shown), Err)
    }

    /// Adds a call with results in memory of their own to the set of each: it is read where that one is taken, or all
    /// are returned.
    fn add_container(&mut self, graph: &Graph, node: NodeId) {
        let mut returned = None;
        let mut last_taken: FxHashMap<u32, u64> = FxHashMap::default();
        for user in graph.node(node).users() {
            let order = graph.node(user).order();
            if graph.node(user).op() == Op::Output {
                returned = Some(order);
            } else {
                let last = last_taken.entry(self.find(user.index())).or_insert(order);
                *last = order.max(*last);
            }
        }
        for (set, last) in last_taken {
            let members = self.members.entry(set).or_default();
            members.push((node, returned.unwrap_or(last)));
        }
    }

    /// Whether a call has several results, in memory of their own each.
    pub(super) fn has_results_apart(&self, call: NodeId) -> bool {
        self.apart.contains(&call)
    }

    fn find(&mut self, mut at: usize) -> u32 {
        while self.parent[at] as usize != at {
            self.parent[at] = self.parent[self.parent[at] as usize];
            at = self.parent[at] as usize;
        }
        self.parent[at]
    }

    fn join(&mut self, a: NodeId, b: NodeId) {
        let (a, b) = (self.find(a.index()), self.find(b.index()));
        self.parent[a.max(b) as usize] = a.min(b);
    }
}

/// Whether a node is `x[index] = value` for a tensor, which keeps no reference to the other
/// arguments, as a list would.
fn is_written(graph: &Graph, types: &Propagator<'_>, node: NodeId) -> bool {
    let view = graph.node(node);
    let first = view.args().first().and_then(Arg::as_node);
    is_assignment(view.target_name())
        && first.is_some_and(|first| types.value(first).as_tensor().is_some())
}

/// The tensors given by `out=` for several results.
pub(super) fn several_out(graph: &Graph, node: NodeId) -> Option<&[Arg]> {
    match graph.node(node).kwarg("out") {
        Some(Arg::Tuple(items) | Arg::List(items)) => Some(items),
        _ => None,
    }
}

/// Whether a call has several results, and these are only taken one by one or returned.
fn is_taken_apart(graph: &Graph, types: &Propagator<'_>, node: NodeId) -> bool {
    let is_taken = |user: NodeId| {
        graph.node(user).op() == Op::Output
            || (is_item(graph, user) && types.value(user).as_tensor().is_some())
    };
    types.value(node).as_tensor().is_none() && graph.node(node).users().all(is_taken)
}

/// Whether a node is `x[index]`.
fn is_item(graph: &Graph, node: NodeId) -> bool {
    let target = graph.node(node).target_name();
    matches!(target, "operator.getitem" | "_operator.getitem")
}

/// Whether a value is no tensor: a number or text, such as the size of a view.
fn is_number(value: &Value) -> bool {
    matches!(
        value,
        Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::None | Value::Str(_)
    )
}

/// Whether a tensor is converted to another element type, in memory of its own.
fn is_converted(from: &Value, to: &Value) -> bool {
    match (from, to) {
        (Value::Tensor(from), Value::Tensor(to)) => {
            from.dtype != to.dtype && from.storage != to.storage
        }
        _ => false,
    }
}
