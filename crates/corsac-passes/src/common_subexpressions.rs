//! Common subexpression elimination: merges nodes that compute the same value.
//!
//! Where two nodes call the same target with the same arguments and nothing between them can make a
//! difference, users of the second use the first, and the second is removed. The order of keyword
//! arguments makes no difference; `1`, `1.0` and `True` differ, and so do different type
//! annotations.
//!
//! Not merged: nodes that use random numbers, have side effects or write to something; nodes whose
//! value is written to after the first of the two was computed; nodes that read a value that is
//! written to between the two; two results that both reach the caller, who may write to one of
//! them.
//!
//! Needs: a graph in which definitions come before uses.
//!
//! Preserves: order, names and metadata of the nodes that stay; the first of two stays.
//!
//! ```text
//! a = torch.cos(x)              a = torch.cos(x)
//! b = torch.cos(x)          →   c = a + a
//! c = a + b
//! ```
//!
//! Reference: J. Cocke, "Global common subexpression elimination", 1970; hash-consing with a
//! version per set of sharing values, as in B. Alpern, M. Wegman and F. K. Zadeck, "Detecting
//! equality of variables in programs", POPL 1988.

use std::hash::{BuildHasher, Hash, Hasher};

use corsac_ir::{Arg, EntityId, Graph, Node, NodeId, Op, SecondaryMap};
use corsac_ops::{AliasClasses, ClassId, Effects, Host};
use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHashSet, FxHasher};

use crate::analysis::Analysis;
use crate::error::PassError;
use crate::pass::{Changes, Context, Needs, Pass, Plan, Setting};
use crate::report::{Refusal, Site};

/// A value that they read.
const READ_IS_WRITTEN: Refusal = Refusal::because("what it reads is written to in between");
const RESULT_IS_WRITTEN: Refusal = Refusal::because("one of the two results is written to later");
const BOTH_RETURNED: Refusal =
    Refusal::because("the caller gets both results and may write to one of them");

/// The pass.
#[derive(Clone, Debug, Default)]
pub struct CommonSubexpressions {
    /// Nodes that stay, and replace no others.
    pub keep: FxHashSet<NodeId>,
}

impl Pass for CommonSubexpressions {
    fn name(&self) -> &'static str {
        "common subexpressions"
    }

    fn set(&mut self, option: &str, setting: Setting) -> bool {
        let ("keep", Setting::Nodes(keep)) = (option, setting) else {
            return false;
        };
        self.keep = keep;
        true
    }

    fn needs(&self) -> Needs {
        Needs {
            host: true,
            ..Needs::default()
        }
    }

    /// # Errors
    /// [`PassError::UsedBeforeDefined`] if a node uses one that comes after it.
    fn plan(&self, graph: &Graph, context: &mut Context<'_>) -> Result<Plan, PassError> {
        let (mut merged, mut kept) = self.find(graph, context.host)?;
        // A merge depends on none that comes after it.
        let granted = context.budget.take_up_to(merged.len());
        let left = merged.drain(granted..);
        kept.extend(left.map(|(node, like)| (node, like, Refusal::BUDGET)));
        let site = |node, like, refusal| {
            let like = graph.node(like).name().to_owned();
            Site::new(graph, node, refusal).with_other(Some(like))
        };
        let gone = merged.iter().map(|&(node, like)| site(node, like, None));
        let kept = kept.into_iter();
        let kept = kept.map(|(node, like, refusal)| site(node, like, Some(refusal)));
        Ok(Plan {
            sites: gone.chain(kept).collect(),
            changes: Changes::Replace(merged),
            ..Plan::default()
        })
    }
}

/// Nodes that equal an earlier one, with that one: those to merge, and those that stay.
pub(crate) type Found = (Vec<(NodeId, NodeId)>, Vec<(NodeId, NodeId, Refusal)>);

/// Places in the program, counted from one; zero is before it.
type Place = u32;

/// Places of the writes to each class of values.
struct Writes<'a> {
    classes: &'a AliasClasses,
    /// By class: the last write in the program.
    last: Vec<Place>,
    /// By class: the last write so far.
    latest: Vec<Place>,
    /// The last barrier so far, after which the same call may give another result.
    barrier: Place,
}

impl CommonSubexpressions {
    /// Finds nodes that compute the same value.
    pub(crate) fn find(&self, graph: &Graph, host: &dyn Host) -> Result<Found, PassError> {
        let analysis = Analysis::of_graph(graph, host)?;
        let mut writes = Writes::find(graph, &analysis);
        let mut returned = returned(graph, &analysis, |_| false);

        let (mut merged, mut kept) = Found::default();
        let mut replaced = Replacements::default();
        let mut table: HashTable<(NodeId, Place)> = HashTable::with_capacity(graph.len());
        for (index, node, effects) in analysis.walk() {
            let place = index + 1;
            let view = graph.node(node);
            if !can_be_shared(view.op(), effects) || self.keep.contains(&node) {
                writes.pass(effects, place);
                continue;
            }
            let hash = replaced.hash(view);
            let since = writes.changed_since(view, effects);
            let rewritten = writes.result_written_after(view, place);
            let found = table.find_mut(hash, |&(first, _)| replaced.equal(graph.node(first), view));
            match found {
                Some(entry) => {
                    let (first, first_place) = *entry;
                    let reason = if since > first_place {
                        Some(READ_IS_WRITTEN)
                    } else if rewritten
                        || writes.result_written_after(graph.node(first), first_place)
                    {
                        Some(RESULT_IS_WRITTEN)
                    } else if returned[node.index()]
                        && returned[first.index()]
                        && view.op() != Op::GetAttr
                    {
                        Some(BOTH_RETURNED)
                    } else {
                        None
                    };
                    match reason {
                        Some(reason) => {
                            if reason != BOTH_RETURNED {
                                *entry = (node, place);
                            }
                            kept.push((node, first, reason));
                        }
                        None => {
                            returned[first.index()] |= returned[node.index()];
                            replaced.by.set(node, Some(first));
                            merged.push((node, first));
                        }
                    }
                }
                None => {
                    table.insert_unique(hash, (node, place), |&(id, _)| {
                        replaced.hash(graph.node(id))
                    });
                }
            }
        }
        Ok((merged, kept))
    }
}

/// Whether a second equal node could be removed.
fn can_be_shared(op: Op, effects: &Effects) -> bool {
    !matches!(op, Op::Placeholder | Op::Output) && effects.is_pure() && !effects.unrepeatable
}

impl<'a> Writes<'a> {
    fn find(graph: &Graph, analysis: &'a Analysis) -> Self {
        let mut writes = Self {
            last: Vec::new(),
            latest: vec![0; graph.id_bound()],
            classes: &analysis.classes,
            barrier: 0,
        };
        for (index, effects) in analysis.special() {
            writes.pass(effects, index + 1);
        }
        writes.last = std::mem::replace(&mut writes.latest, vec![0; graph.id_bound()]);
        writes.barrier = 0;
        writes
    }

    /// Records the writes of one node.
    fn pass(&mut self, effects: &Effects, place: Place) {
        for &written in &effects.mutates {
            self.latest[self.classes.class(written).index()] = place;
        }
        if effects.writes_state {
            self.latest[ClassId::OUTSIDE.index()] = place;
        }
        if effects.barrier {
            self.barrier = place;
        }
    }

    /// The last place so far after which `node` may give another result than before.
    fn changed_since(&self, node: Node<'_>, effects: &Effects) -> Place {
        // An attribute stays the same object when it is written to.
        if node.op() == Op::GetAttr {
            return self.barrier;
        }
        let state = if effects.reads_state {
            self.latest[ClassId::OUTSIDE.index()]
        } else {
            0
        };
        node.inputs()
            .map(|input| self.latest[self.classes.class(input).index()])
            .chain([state, self.barrier])
            .max()
            .unwrap_or(0)
    }

    /// Whether the value of `node`, computed at `place`, is written to afterwards.
    fn result_written_after(&self, node: Node<'_>, place: Place) -> bool {
        node.op() != Op::GetAttr && self.last[self.classes.class(node.id()).index()] > place
    }
}

/// By node: whether the caller gets its value, or one that may share storage with it. Values for
/// which `is_tensor` holds contain no others.
pub(crate) fn returned(
    graph: &Graph,
    analysis: &Analysis,
    is_tensor: impl Fn(NodeId) -> bool,
) -> Vec<bool> {
    let mut returned = vec![false; graph.id_bound()];
    // Plain nodes pass nothing on.
    for (index, effects) in analysis.special().rev() {
        let node = analysis.nodes[index as usize];
        // Values in a container are returned if the container is.
        let stores = !effects.mutates.is_empty() && effects.aliases.len() > effects.mutates.len();
        let is_single = analysis.classes.is_single(node) || is_tensor(node);
        let holds = effects.concatenates && !is_single;
        let passed_on = graph.node(node).op() == Op::Output || stores;
        if passed_on || (returned[node.index()] && holds) {
            graph.inputs(node).for_each(|n| returned[n.index()] = true);
        } else if returned[node.index()] {
            for alias in &effects.aliases {
                returned[alias.index()] = true;
            }
        }
    }
    returned
}

/// Nodes with their replacements.
#[derive(Default)]
pub(crate) struct Replacements {
    by: SecondaryMap<NodeId, Option<NodeId>>,
}

impl Replacements {
    fn of(&self, node: NodeId) -> NodeId {
        self.by[node].unwrap_or(node)
    }

    fn hash(&self, node: Node<'_>) -> u64 {
        let mut state = FxBuildHasher.build_hasher();
        node.op().hash(&mut state);
        node.target().hash(&mut state);
        node.ty().hash(&mut state);
        for arg in node.args() {
            self.hash_arg(arg, &mut state);
        }
        // The sum does not depend on the order of keywords.
        let mut sum = 0_u64;
        for (key, arg) in node.kwargs() {
            let mut state = FxBuildHasher.build_hasher();
            key.hash(&mut state);
            self.hash_arg(arg, &mut state);
            sum = sum.wrapping_add(state.finish());
        }
        sum.hash(&mut state);
        state.finish()
    }

    pub(crate) fn hash_arg(&self, arg: &Arg, state: &mut FxHasher) {
        std::mem::discriminant(arg).hash(state);
        match arg {
            Arg::None | Arg::Ellipsis => {}
            Arg::Bool(x) => x.hash(state),
            Arg::Int(x) => x.hash(state),
            Arg::BigInt(x) => x.hash(state),
            Arg::Float(x) => x.to_bits().hash(state),
            Arg::Complex(x) => (x.0.to_bits(), x.1.to_bits()).hash(state),
            Arg::Str(x) => x.hash(state),
            Arg::Bytes(x) => x.hash(state),
            Arg::DType(x) => x.hash(state),
            Arg::Device(x) => x.hash(state),
            Arg::Layout(x) => x.hash(state),
            Arg::MemoryFormat(x) => x.hash(state),
            Arg::Node(x) => self.of(*x).hash(state),
            Arg::Opaque(x) => x.hash(state),
            Arg::NamedTuple(x) => {
                x.0.hash(state);
                x.1.len().hash(state);
                x.1.iter().for_each(|item| self.hash_arg(item, state));
            }
            Arg::Tuple(x) | Arg::List(x) | Arg::Slice(x) | Arg::Range(x) => {
                x.len().hash(state);
                x.iter().for_each(|item| self.hash_arg(item, state));
            }
            Arg::Dict(x) => {
                x.len().hash(state);
                for (key, value) in x.iter() {
                    self.hash_arg(key, state);
                    self.hash_arg(value, state);
                }
            }
        }
    }

    /// Whether two nodes call the same thing with the same arguments.
    fn equal(&self, a: Node<'_>, b: Node<'_>) -> bool {
        (a.op(), a.target(), a.ty()) == (b.op(), b.target(), b.ty())
            && self.equal_all(a.args(), b.args())
            && a.kwargs().len() == b.kwargs().len()
            && a.kwargs().iter().all(|(key, x)| {
                let other = b.kwargs().iter().find(|(k, _)| k == key);
                other.is_some_and(|(_, y)| self.equal_arg(x, y))
            })
    }

    pub(crate) fn equal_all(&self, a: &[Arg], b: &[Arg]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(x, y)| self.equal_arg(x, y))
    }

    pub(crate) fn equal_arg(&self, a: &Arg, b: &Arg) -> bool {
        match (a, b) {
            (Arg::Node(x), Arg::Node(y)) => self.of(*x) == self.of(*y),
            // By bits: a zero has a sign, and a NaN is the same as itself.
            (Arg::Float(x), Arg::Float(y)) => x.to_bits() == y.to_bits(),
            (Arg::Complex(x), Arg::Complex(y)) => {
                (x.0.to_bits(), x.1.to_bits()) == (y.0.to_bits(), y.1.to_bits())
            }
            (Arg::Tuple(x), Arg::Tuple(y))
            | (Arg::List(x), Arg::List(y))
            | (Arg::Slice(x), Arg::Slice(y))
            | (Arg::Range(x), Arg::Range(y)) => self.equal_all(x, y),
            (Arg::NamedTuple(x), Arg::NamedTuple(y)) => x.0 == y.0 && self.equal_all(&x.1, &y.1),
            (Arg::Dict(x), Arg::Dict(y)) => {
                x.len() == y.len()
                    && x.iter()
                        .zip(y.iter())
                        .all(|((k, v), (l, w))| self.equal_arg(k, l) && self.equal_arg(v, w))
            }
            (a, b) => a == b,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::testing::run_on;
    use corsac_ops::Unhosted;

    /// Runs the pass, which merges what it finds.
    fn eliminated(graph: &mut Graph) -> Found {
        let pass = CommonSubexpressions::default();
        let found = pass.find(graph, &Unhosted).unwrap();
        let report = run_on(&pass, graph, &Unhosted);
        assert_eq!(report.edits.erased.len(), found.0.len());
        found
    }

    fn cat(graph: &mut Graph, items: &[NodeId]) -> NodeId {
        let function = graph.function("torch.cat");
        let items: Vec<Arg> = items.iter().map(|&n| n.into()).collect();
        let list = Arg::list(items.into_iter().collect::<corsac_ir::ThinVec<_>>()).unwrap();
        let cat = graph.call_function(function, [list]).unwrap();
        graph.output(cat).unwrap();
        cat
    }

    #[test]
    fn chains_of_equal_nodes_become_one_and_the_first_stays() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let cos = |graph: &mut Graph| {
            let cos = graph.call_method("cos", [x.into()]).unwrap();
            let neg = graph.call_method("neg", [cos.into()]).unwrap();
            (cos, neg)
        };
        let (first, second) = (cos(&mut graph), cos(&mut graph));
        let cat = cat(&mut graph, &[first.1, second.1, first.1]);
        let (merged, _) = eliminated(&mut graph);
        assert_eq!(merged, [(second.0, first.0), (second.1, first.1)]);
        assert_eq!(graph.inputs(cat).collect::<Vec<_>>(), [first.1]);
        assert_eq!(graph.len(), 5);
    }

    #[test]
    fn numbers_of_different_types_are_different() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let args: [Arg; 5] = [1.into(), 1.0.into(), true.into(), 0.0.into(), (-0.0).into()];
        let nodes: Vec<_> = args
            .map(|arg| graph.call_method("add", [x.into(), arg]).unwrap())
            .into();
        cat(&mut graph, &nodes);
        assert_eq!(eliminated(&mut graph).0, []);
    }

    #[test]
    fn a_nan_is_itself_and_keywords_have_no_order() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let (min, max) = (graph.intern("min"), graph.intern("max"));
        let target = corsac_ir::Target::Name(graph.intern("clamp"));
        let mut clamp = |kwargs: [(corsac_ir::Symbol, Arg); 2]| {
            let spec = corsac_ir::NodeSpec {
                op: Op::CallMethod,
                target,
                args: [x.into()].into(),
                kwargs: kwargs.into(),
                ty: None,
            };
            graph.create(spec, None).unwrap()
        };
        let a = clamp([(min, f64::NAN.into()), (max, 1.into())]);
        let b = clamp([(max, 1.into()), (min, f64::NAN.into())]);
        cat(&mut graph, &[a, b]);
        assert_eq!(eliminated(&mut graph).0, [(b, a)]);
    }

    #[test]
    fn a_write_between_two_reads_keeps_both() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let m = graph.call_method("clone", [x.into()]).unwrap();
        let a = graph.call_method("cos", [m.into()]).unwrap();
        let view = graph.call_method("view", [m.into(), (-1).into()]).unwrap();
        graph.call_method("zero_", [view.into()]).unwrap();
        let b = graph.call_method("cos", [m.into()]).unwrap();
        let c = graph.call_method("cos", [m.into()]).unwrap();
        cat(&mut graph, &[a, b, c]);
        let (merged, kept) = eliminated(&mut graph);
        assert_eq!(merged, [(c, b)]);
        assert_eq!(kept, [(b, a, READ_IS_WRITTEN)]);
    }

    #[test]
    fn a_result_that_is_written_to_is_not_shared() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let a = graph.call_method("cos", [x.into()]).unwrap();
        let b = graph.call_method("cos", [x.into()]).unwrap();
        graph.call_method("add_", [a.into(), 1.into()]).unwrap();
        cat(&mut graph, &[a, b]);
        let (merged, kept) = eliminated(&mut graph);
        assert_eq!(merged, []);
        assert_eq!(kept[0].2, RESULT_IS_WRITTEN);
    }

    #[test]
    fn two_results_stay_two() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let a = graph.call_method("cos", [x.into()]).unwrap();
        let b = graph.call_method("cos", [x.into()]).unwrap();
        let flat = graph.call_method("view", [b.into(), (-1).into()]).unwrap();
        graph
            .output(Arg::tuple([a.into(), flat.into()]).unwrap())
            .unwrap();
        let (_, kept) = eliminated(&mut graph);
        assert_eq!(kept[0].2, BOTH_RETURNED);
    }

    #[test]
    fn a_sum_that_is_returned_is_new_unless_it_is_of_lists() {
        for (maker, reason) in [("cos", None), ("unbind", Some(BOTH_RETURNED))] {
            let mut graph = Graph::new();
            let x = graph.placeholder("x").unwrap();
            let add = graph.function("operator.add");
            let a = graph.call_method(maker, [x.into()]).unwrap();
            let b = graph.call_method(maker, [x.into()]).unwrap();
            let sum = graph.call_function(add, [a.into(), b.into()]).unwrap();
            graph.output(sum).unwrap();
            let (_, kept) = eliminated(&mut graph);
            assert_eq!(kept.first().map(|k| k.2.clone()), reason, "{maker}");
        }
    }

    #[test]
    fn attributes_are_the_same_object_until_something_unknown_is_called() {
        let mut graph = Graph::new();
        let mine = graph.function("mine.swap");
        let a = graph.get_attr("w").unwrap();
        graph.call_method("zero_", [a.into()]).unwrap();
        let b = graph.get_attr("w").unwrap();
        graph.call_function(mine, []).unwrap();
        let c = graph.get_attr("w").unwrap();
        cat(&mut graph, &[a, b, c]);
        let (merged, _) = eliminated(&mut graph);
        assert_eq!(merged, [(b, a)]);
    }

    #[test]
    fn random_and_unknown_calls_are_not_shared() {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let mut nodes = Vec::new();
        for name in ["torch.rand_like", "mine.f", "torch.bernoulli"] {
            let function = graph.function(name);
            for _ in 0..2 {
                nodes.push(graph.call_function(function, [x.into()]).unwrap());
            }
        }
        cat(&mut graph, &nodes);
        assert_eq!(eliminated(&mut graph).0, []);
    }
}
