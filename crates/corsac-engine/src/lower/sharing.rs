//! Which values of a graph may share memory, for calls that write.

use corsac_ir::{Arg, EntityId, Graph, NodeId, Op};
use corsac_ops::shape::{Propagator, Storage, Value};
use corsac_ops::{Catalogue, operator_name};
use rustc_hash::FxHashMap;

use super::{Reason, truth};

/// Values that may share memory: by what operators say of it, whatever strides tensors turn out to have, and
/// by the storages of types.
///
/// Types alone say what is so for the strides at hand, and a program is for all: `x.reshape(-1)` is a view of
/// a tensor that lies row by row, and a copy of others.
pub(super) struct Sharing {
    /// By node, another one of its set, or itself.
    parent: Vec<u32>,
    /// By the node that stands for a set, its members, the last one first, with the place of the last reader.
    members: FxHashMap<u32, Vec<(NodeId, u64)>>,
    /// By set, the first view in which an element may have several places: nothing may be written then.
    repeated: FxHashMap<u32, NodeId>,
}

impl Sharing {
    pub(super) fn of(graph: &Graph, types: &Propagator<'_>, catalogue: &mut Catalogue<'_>) -> Self {
        let bound = u32::try_from(graph.id_bound()).unwrap_or(u32::MAX);
        let mut sharing = Self {
            parent: (0..bound).collect(),
            members: FxHashMap::default(),
            repeated: FxHashMap::default(),
        };
        let mut first_in: FxHashMap<Storage, NodeId> = FxHashMap::default();
        // What is returned together does not share memory for that.
        let computed = |node: &NodeId| graph.node(*node).op() != Op::Output;
        for node in graph.nodes().filter(computed) {
            let value = types.value(node);
            value.for_each_tensor(&mut |tensor| {
                let first = *first_in.entry(tensor.storage).or_insert(node);
                sharing.join(first, node);
            });
            let truth = |arg: &Arg| truth(&types.argument(graph, arg));
            for other in catalogue.effects_given(graph, node, &truth).aliases {
                if !is_converted(types.value(other), value) {
                    sharing.join(other, node);
                }
            }
        }
        for node in graph.nodes() {
            let readers = graph.node(node).users();
            let last_read = readers.map(|user| graph.node(user).order()).max();
            let set = sharing.find(node.index());
            let members = sharing.members.entry(set).or_default();
            members.push((node, last_read.unwrap_or(0)));
            let view = graph.node(node);
            if operator_name(view.op(), view.target_name()).is_some_and(repeats) {
                sharing.repeated.entry(set).or_insert(node);
            }
        }
        sharing.members.values_mut().for_each(|own| own.reverse());
        sharing
    }

    /// That nobody sees what `node` writes to `argument`, except by that name, and that it is no error to write
    /// there. Calls come in order: what nobody reads from `node` on is forgotten.
    pub(super) fn check_write(
        &mut self,
        graph: &Graph,
        node: NodeId,
        argument: NodeId,
    ) -> Result<(), Reason> {
        let now = graph.node(node).order();
        let set = self.find(argument.index());
        if let Some(&view) = self.repeated.get(&set)
            && graph.node(view).order() < now
        {
            let name = graph.node(view).name();
            return Err(format!("{name} may have an element in several places"));
        }
        let Some(before) = self.members.get_mut(&set) else {
            return Ok(());
        };
        let mut own = None;
        let mut reason = None;
        while let Some(&(other, last_read)) = before.last() {
            let view = graph.node(other);
            if view.order() >= now {
                break;
            }
            reason = match view.op() {
                Op::Placeholder => Some(format!("it writes to the input {}", view.name())),
                Op::GetAttr => Some(format!("it writes to the attribute {}", view.name())),
                _ if argument != other && last_read >= now => Some(format!(
                    "it writes to what {} may share memory with, which is read",
                    view.name()
                )),
                _ => None,
            };
            if reason.is_some() {
                break;
            }
            before.pop();
            if argument == other && last_read > now {
                own = Some((other, last_read));
            }
        }
        before.extend(own);
        reason.map_or(Ok(()), Err)
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

/// Whether an operator gives views in which an element may have several places.
fn repeats(operator: &str) -> bool {
    matches!(
        operator,
        "expand"
            | "expand_as"
            | "broadcast_to"
            | "broadcast_tensors"
            | "meshgrid"
            | "cartesian_prod"
            | "unfold"
            | "as_strided"
    )
}

/// Whether a tensor is made of another one with elements of another type, in memory of its own.
fn is_converted(from: &Value, to: &Value) -> bool {
    match (from, to) {
        (Value::Tensor(from), Value::Tensor(to)) => {
            from.dtype != to.dtype && from.storage != to.storage
        }
        _ => false,
    }
}
