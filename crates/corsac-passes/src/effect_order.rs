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
enum Place {
    Class(ClassId),
    Input(NodeId),
    Attribute(Target),
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
    let analysis = Analysis::of_graph(graph, host)?;
    if !analysis.special().any(|(_, effects)| writes(effects)) {
        return Ok(found);
    }
    // For values from outside: the inputs and attributes that they may be.
    let mut origins: Vec<Vec<Place>> = vec![Vec::new(); graph.id_bound()];
    let mut uses: FxHashMap<Place, Uses> = FxHashMap::default();
    for (_, node, effects) in analysis.walk() {
        let view = graph.node(node);
        match view.op() {
            Op::Placeholder => {
                origins[node.index()].push(Place::Input(node));
                continue;
            }
            Op::GetAttr => {
                origins[node.index()].push(Place::Attribute(view.target()));
                continue;
            }
            Op::Output => continue,
            Op::CallFunction | Op::CallMethod | Op::CallModule => {}
        }
        let places = |value: NodeId, origins: &[Vec<Place>]| {
            let class = analysis.classes.class(value);
            match class {
                ClassId::OUTSIDE => origins[value.index()].clone(),
                class => vec![Place::Class(class)],
            }
        };
        if analysis.classes.class(node) == ClassId::OUTSIDE {
            let aliases = effects.aliases.iter().chain(&effects.mutates);
            let mut own: Vec<Place> = aliases.flat_map(|&a| places(a, &origins)).collect();
            own.dedup();
            if own.is_empty() {
                // A sum of inputs, which would hold their items if they were lists.
                own.push(Place::Input(node));
            }
            origins[node.index()] = own;
        }
        for input in graph.inputs(node) {
            for place in places(input, &origins) {
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
            for place in places(value, &origins) {
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
