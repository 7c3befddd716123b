//! Finds nodes that have to run after others that they do not use.
//!
//! For each node that writes to a value, finds the nodes before it that use the value, through any
//! name, and for each node that uses a value, the last one before it that writes to it. A transform
//! that splits a graph into parts, or moves nodes, has to keep these pairs in order, besides the
//! uses that the graph shows.
//!
//! Needs: a graph in which definitions come before uses. Assumes that two inputs of the program,
//! and two attributes with different names, share no storage, that unknown functions write to
//! nothing, and that inputs are no lists.
//!
//! Preserves: the graph, which is only read.
//!
//! ```text
//! y = x * 2
//! a = relu(y)
//! add_ = y.add_(1)      waits for a
//! b = relu(y)           waits for add_
//! ```

use corsac_ir::split::Waits;
use corsac_ir::{EntityId, Graph, NodeId, Op, Target};
use corsac_ops::{ClassId, Effects, Host};
use rustc_hash::FxHashMap;

use crate::analysis::Analysis;
use crate::error::PassError;

/// A place that can be written to: values that may share storage, an attribute, an input or another
/// value that comes from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Class(ClassId),
    Input(NodeId),
    Attribute(Target),
}

/// The places of all values of a program that writes to some.
pub(crate) struct Places {
    analysis: Analysis,
    /// For values from outside: the inputs and attributes that they may be.
    origins: Vec<Vec<Place>>,
}

impl Places {
    /// Finds the places; some values are known to be tensors. Of a program that writes to nothing,
    /// values from outside have none.
    pub(crate) fn with_tensors(
        graph: &Graph,
        host: &dyn Host,
        is_tensor: impl Fn(NodeId) -> bool,
    ) -> Result<Self, PassError> {
        let analysis = Analysis::with_tensors(graph, host, is_tensor)?;
        let mut places = Self {
            analysis,
            origins: vec![Vec::new(); graph.id_bound()],
        };
        if places.writers().next().is_none() {
            return Ok(places);
        }
        for (_, node, effects) in places.analysis.walk() {
            let view = graph.node(node);
            let own = match view.op() {
                Op::Placeholder => vec![Place::Input(node)],
                Op::GetAttr => vec![Place::Attribute(view.target())],
                Op::Output => continue,
                _ if places.analysis.classes.class(node) != ClassId::OUTSIDE => continue,
                Op::CallFunction | Op::CallMethod | Op::CallModule => {
                    let aliases = effects.aliases.iter().chain(&effects.mutates);
                    let mut own: Vec<Place> = aliases.flat_map(|&a| places.of(a)).collect();
                    own.dedup();
                    if own.is_empty() {
                        // A sum of inputs, which would hold their items if they were lists.
                        own.push(Place::Input(node));
                    }
                    own
                }
            };
            places.origins[node.index()] = own;
        }
        Ok(places)
    }

    /// The places of a value.
    pub(crate) fn of(&self, value: NodeId) -> impl Iterator<Item = Place> {
        let class = self.analysis.classes.class(value);
        let own = (class != ClassId::OUTSIDE).then_some(Place::Class(class));
        let outside = match own {
            Some(_) => &[],
            None => self.origins[value.index()].as_slice(),
        };
        own.into_iter().chain(outside.iter().copied())
    }

    /// The nodes that write to a value, in order.
    pub(crate) fn writers(&self) -> impl Iterator<Item = (NodeId, &Effects)> {
        let special = self.analysis.special();
        special
            .filter(|(_, effects)| writes(effects))
            .map(|(at, effects)| (self.analysis.nodes[at as usize], effects))
    }
}

/// The last writer of a place, and its readers since.
#[derive(Default)]
struct Uses {
    writer: Option<NodeId>,
    readers: Vec<NodeId>,
}

/// Constraints on the order of nodes, besides uses.
#[derive(Clone, Debug, Default)]
pub struct EffectOrder {
    /// Nodes with those that they have to wait for without using them; empty where nothing is
    /// written to.
    pub waits: Waits,
    /// The nodes that write to a value, in graph order.
    pub writers: Vec<NodeId>,
}

/// Finds the constraints on the order of nodes of `graph`.
///
/// # Errors
/// [`PassError::UsedBeforeDefined`] if a node uses one that comes after it.
pub fn find(graph: &Graph, host: &dyn Host) -> Result<EffectOrder, PassError> {
    let mut found = EffectOrder::default();
    let EffectOrder { waits, writers } = &mut found;
    let places = Places::with_tensors(graph, host, |_| false)?;
    if places.writers().next().is_none() {
        return Ok(found);
    }
    let mut uses: FxHashMap<Place, Uses> = FxHashMap::default();
    for (_, node, effects) in places.analysis.walk() {
        match graph.node(node).op() {
            Op::Placeholder | Op::GetAttr | Op::Output => continue,
            Op::CallFunction | Op::CallMethod | Op::CallModule => {}
        }
        for input in graph.inputs(node) {
            for place in places.of(input) {
                let used = uses.entry(place).or_default();
                if let Some(writer) = used.writer.filter(|&writer| writer != input) {
                    waits.add(writer, node);
                }
                used.readers.push(node);
            }
        }
        if !writes(effects) {
            continue;
        }
        writers.push(node);
        for &value in &effects.mutates {
            for place in places.of(value) {
                let used = uses.entry(place).or_default();
                for reader in used.readers.drain(..).filter(|&reader| reader != node) {
                    waits.add(reader, node);
                }
                used.writer = Some(node);
            }
        }
    }
    Ok(found)
}

fn writes(effects: &Effects) -> bool {
    !effects.mutates.is_empty() && !effects.opaque
}

#[cfg(test)]
mod tests {
    use corsac_ir::Arg;
    use corsac_ops::Unhosted;

    use super::*;

    #[test]
    fn writers_wait_for_readers_and_readers_for_writers() {
        let mut graph = Graph::new();
        let [x, other] = ["x", "other"].map(|name| graph.placeholder(name).unwrap());
        let y = graph.call_method("neg", [x.into()]).unwrap();
        let before = graph.call_method("relu", [y.into()]).unwrap();
        let view = graph.call_method("view", [y.into(), (-1).into()]).unwrap();
        let zero = graph.call_method("zero_", [view.into()]).unwrap();
        let after = graph.call_method("relu", [y.into()]).unwrap();
        let apart = graph.call_method("relu", [other.into()]).unwrap();
        let written = graph.call_method("zero_", [x.into()]).unwrap();
        graph.output(after).unwrap();
        let EffectOrder { waits, writers } = find(&graph, &Unhosted).unwrap();
        assert_eq!(writers, [zero, written]);
        assert_eq!(waits.of(zero), [before, view]);
        assert_eq!(waits.of(after), [zero]);
        assert_eq!(waits.of(written), [y]);
        for free in [y, before, view, apart] {
            assert_eq!(waits.of(free), []);
        }
    }

    #[test]
    fn what_is_computed_from_an_input_is_none() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let (mul, setitem) = ("operator.mul", "operator.setitem");
        let [mul, setitem] = [mul, setitem].map(|name| graph.function(name));
        let y = graph.call_function(mul, [x.into(), 2.into()]).unwrap();
        let before = graph.call_method("relu", [y.into()]).unwrap();
        let apart = graph.call_method("relu", [x.into()]).unwrap();
        let set = [y.into(), 0.into(), 5.into()];
        let set = graph.call_function(setitem, set).unwrap();
        let after = graph.call_method("relu", [y.into()]).unwrap();
        graph
            .output(Arg::tuple([before.into(), apart.into(), after.into()]).unwrap())
            .unwrap();
        let EffectOrder { waits, .. } = find(&graph, &Unhosted).unwrap();
        assert_eq!(waits.of(set), [before]);
        assert_eq!(waits.of(after), [set]);
    }

    #[test]
    fn nobody_waits_where_nothing_is_written_to() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let y = graph.call_method("relu", [x.into()]).unwrap();
        graph.output(y).unwrap();
        assert!(find(&graph, &Unhosted).unwrap().waits.is_empty());
    }
}
