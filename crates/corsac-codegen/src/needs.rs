//! Functions and values that the host has to supply.

use corsac_ir::{Arg, EntityId, ExternalId, FunctionId, Graph, SecondaryMap, Target};

/// The functions and host values that the code of a graph mentions and the host has to supply, each
/// once, in the order of their first mention.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Functions called.
    pub functions: Vec<FunctionId>,
    /// Values in arguments.
    pub values: Vec<ExternalId>,
    /// Type annotations.
    pub annotations: Vec<ExternalId>,
    /// Classes of named tuples.
    pub classes: Vec<ExternalId>,
}

impl Needs {
    /// Collects them from all nodes of `graph`.
    #[must_use]
    pub fn of(graph: &Graph) -> Self {
        let mut needs = Self::default();
        let mut known: Known = Known::default();
        for id in graph.nodes() {
            let node = graph.node(id);
            if let Some(ty) = node.ty() {
                known.annotations.add(ty, &mut needs.annotations);
            }
            if let Target::Function(function) = node.target() {
                known.functions.add(function, &mut needs.functions);
            }
            for arg in node.args() {
                needs.visit(&mut known, arg);
            }
            for (_, arg) in node.kwargs() {
                needs.visit(&mut known, arg);
            }
        }
        needs
    }

    fn visit(&mut self, known: &mut Known, arg: &Arg) {
        if let Arg::Opaque(external) = arg {
            known.values.add(*external, &mut self.values);
        } else if let Arg::NamedTuple(named) = arg {
            known.classes.add(named.0, &mut self.classes);
        }
        arg.for_each_part(&mut |part| self.visit(known, part));
    }
}

#[derive(Default)]
struct Known {
    functions: Seen<FunctionId>,
    values: Seen<ExternalId>,
    annotations: Seen<ExternalId>,
    classes: Seen<ExternalId>,
}

struct Seen<K>(SecondaryMap<K, bool>);

impl<K: EntityId> Default for Seen<K> {
    fn default() -> Self {
        Self(SecondaryMap::new())
    }
}

impl<K: EntityId> Seen<K> {
    fn add(&mut self, id: K, list: &mut Vec<K>) {
        if !self.0[id] {
            self.0.set(id, true);
            list.push(id);
        }
    }
}
