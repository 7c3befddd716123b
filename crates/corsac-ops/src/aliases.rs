//! Values that may share storage.

use corsac_ir::{Arg, EntityId, Graph, NodeId, Op};

use crate::catalogue::Catalogue;
use crate::effects::Effects;

/// A set of values that may share storage, or hold one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(u32);

impl ClassId {
    /// Values that the program did not make itself: inputs, attributes, and values that opaque
    /// calls have seen. The caller may pass one tensor twice, so they all count as sharing.
    pub const OUTSIDE: Self = Self(0);

    /// The index for dense tables.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A partition of the values of a graph into sets that may share storage.
///
/// It does not depend on the place in the program: values that come to share storage anywhere
/// count as sharing it everywhere. Reference: B. Steensgaard, "Points-to analysis in almost linear
/// time", POPL 1996.
#[derive(Clone, Debug)]
pub struct AliasClasses {
    /// By node index; the sentinel's entry stands for the outside.
    parent: Vec<u32>,
    single: Vec<bool>,
}

impl AliasClasses {
    /// Every value of `graph` on its own, before any node is taken into account.
    #[must_use]
    pub fn new(graph: &Graph) -> Self {
        let len = u32::try_from(graph.id_bound()).unwrap_or(u32::MAX);
        Self {
            parent: (0..len).collect(),
            single: vec![false; len as usize],
        }
    }

    /// The values of `graph`, with all its nodes taken into account.
    #[must_use]
    pub fn of_graph(graph: &Graph, catalogue: &mut Catalogue<'_>) -> Self {
        let mut classes = Self::new(graph);
        for node in graph.nodes() {
            let effects = catalogue.effects(graph, node);
            classes.add(graph, catalogue, node, &effects);
        }
        classes.finish();
        classes
    }

    /// Finds the representative of each set, once every node was taken into account.
    ///
    /// An entry points at a smaller one, so one pass in ascending order does it.
    pub fn finish(&mut self) {
        for at in 0..self.parent.len() {
            self.parent[at] = self.parent[self.parent[at] as usize];
        }
    }

    /// Takes `node` into account, which has `effects`; nodes come in graph order.
    pub fn add(
        &mut self,
        graph: &Graph,
        catalogue: &mut Catalogue<'_>,
        node: NodeId,
        effects: &Effects,
    ) {
        if effects.outside {
            self.union(node.index(), ClassId::OUTSIDE.index());
        }
        for alias in &effects.aliases {
            self.union(node.index(), alias.index());
        }
        if effects.opaque {
            self.union(node.index(), ClassId::OUTSIDE.index());
            for seen in &effects.mutates {
                self.union(seen.index(), ClassId::OUTSIDE.index());
            }
        }
        self.single[node.index()] = effects.single;
        if effects.concatenates {
            let args = graph.node(node).args();
            let numbers = args.iter().any(|arg| match arg {
                Arg::Node(operand) => self.single[operand.index()],
                arg => matches!(arg, Arg::Float(_) | Arg::Complex(_)),
            });
            self.single[node.index()] = numbers;
            if !numbers && is_taken_apart(graph, catalogue, node) {
                for operand in graph.node(node).inputs() {
                    self.union(node.index(), operand.index());
                }
            }
        }
    }

    /// The set that the value of `node` is in, after [`AliasClasses::finish`].
    #[must_use]
    pub fn class(&self, node: NodeId) -> ClassId {
        ClassId(self.parent[node.index()])
    }

    /// Whether the value of `node` is known to be one tensor or number: nothing that could hold
    /// other values.
    #[must_use]
    pub fn is_single(&self, node: NodeId) -> bool {
        self.single[node.index()]
    }

    /// Whether two values may share storage.
    #[must_use]
    pub fn may_alias(&self, a: NodeId, b: NodeId) -> bool {
        self.class(a) == self.class(b)
    }

    /// The set of an entry, with the path to it halved.
    fn find(&mut self, mut at: usize) -> usize {
        while self.parent[at] as usize != at {
            let grandparent = self.parent[self.parent[at] as usize];
            self.parent[at] = grandparent;
            at = grandparent as usize;
        }
        at
    }

    fn union(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        // The smaller entry stands for the set, so that the outside is its own.
        let (low, high) = (a.min(b), a.max(b));
        self.parent[high] = low as u32;
    }
}

/// Whether a user of `node` reads its value as a container, or writes to the items of it, as `out=`
/// and `torch._foreach_add_` do with a list. Methods write to tensors.
fn is_taken_apart(graph: &Graph, catalogue: &mut Catalogue<'_>, node: NodeId) -> bool {
    graph.users(node).any(|user| {
        let op = graph.node(user).op();
        let looks = catalogue
            .behaviour(graph, user)
            .is_some_and(|b| b.aliases_all || b.concatenates);
        looks || op == Op::CallFunction && catalogue.effects(graph, user).mutates.contains(&node)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Unhosted;

    #[test]
    fn views_share_with_their_base_and_inputs_with_each_other() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let w = graph.get_attr("w").unwrap();
        let clone = graph.call_method("clone", [x.into()]).unwrap();
        let chunks = graph
            .call_method("chunk", [clone.into(), 2.into()])
            .unwrap();
        let getitem = graph.function("operator.getitem");
        let first = graph
            .call_function(getitem, [chunks.into(), 0.into()])
            .unwrap();
        let classes = AliasClasses::of_graph(&graph, &mut Catalogue::new(&Unhosted));
        assert!(classes.may_alias(x, w));
        assert!(classes.may_alias(first, clone));
        assert!(!classes.may_alias(x, clone));
        assert_eq!(classes.class(x), ClassId::OUTSIDE);
    }

    #[test]
    fn a_sum_of_lists_holds_what_they_hold_and_a_sum_of_tensors_is_new() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let y = graph.placeholder("y").unwrap();
        let add = graph.function("operator.add");
        let getitem = graph.function("operator.getitem");
        let tensor = graph.call_function(add, [x.into(), y.into()]).unwrap();
        let list = graph.call_function(add, [x.into(), y.into()]).unwrap();
        graph
            .call_function(getitem, [list.into(), 0.into()])
            .unwrap();
        let classes = AliasClasses::of_graph(&graph, &mut Catalogue::new(&Unhosted));
        assert!(!classes.may_alias(tensor, x));
        assert!(classes.may_alias(list, x));
    }

    #[test]
    fn an_opaque_call_lets_its_arguments_out() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let clone = graph.call_method("clone", [x.into()]).unwrap();
        let mine = graph.function("mine.keep");
        let kept = graph.call_function(mine, [clone.into()]).unwrap();
        let classes = AliasClasses::of_graph(&graph, &mut Catalogue::new(&Unhosted));
        assert_eq!(classes.class(clone), ClassId::OUTSIDE);
        assert_eq!(classes.class(kept), ClassId::OUTSIDE);
    }
}
