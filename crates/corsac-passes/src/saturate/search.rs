//! Search for the patterns of rules in an e-graph.
//!
//! Patterns are searched for in a snapshot, in which classes are represented by ids of nodes that
//! do not exist in the graph, so that patterns, conditions and computed values work as in
//! rewriting.

use std::cell::Cell;
use std::time::Instant;

use corsac_ir::{Arg, EntityId, Graph, GraphError, NodeId, Symbol, ThinVec};
use egg::Id;
use rustc_hash::FxHashMap;

use super::language::{Classes, Head};
use crate::rules::RuleSet;
use crate::rules::compiled::{Matcher, Operator, OperatorId};
use crate::rules::condition::Context;
use crate::rules::search::{Candidate, Found, Program, Targets, find};
use crate::tensors::TensorFacts;

/// Ids of nodes that stand for classes: ids above those in the graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbering {
    base: usize,
}

impl Numbering {
    pub(super) fn of(graph: &Graph) -> Self {
        Self {
            base: graph.id_bound(),
        }
    }

    pub(super) fn node(self, class: Id) -> NodeId {
        NodeId::from_index(self.base + usize::from(class))
    }

    /// The class, if the node stands for one.
    pub(super) fn class(self, node: NodeId) -> Option<Id> {
        node.index().checked_sub(self.base).map(Id::from)
    }
}

/// The time limit of a search.
#[derive(Debug)]
pub(super) struct Clock {
    pub(super) deadline: Option<Instant>,
    steps: Cell<u32>,
    over: Cell<bool>,
}

impl Clock {
    /// Number of steps between two checks of the time.
    const STEPS: u32 = 1024;

    pub(super) fn new(deadline: Option<Instant>) -> Self {
        Self {
            deadline,
            steps: Cell::new(0),
            over: Cell::new(false),
        }
    }

    /// Whether the time is over, checked every `STEPS` calls.
    pub(super) fn tick(&self) -> bool {
        let steps = self.steps.get() + 1;
        self.steps.set(steps % Self::STEPS);
        if steps == Self::STEPS {
            return self.is_over();
        }
        self.over.get()
    }

    /// Whether the time is over.
    pub(super) fn is_over(&self) -> bool {
        if self.deadline.is_some_and(|at| Instant::now() >= at) {
            self.over.set(true);
        }
        self.over.get()
    }
}

/// A call in the snapshot.
#[derive(Debug)]
struct Member {
    operator: Operator,
    args: ThinVec<Arg>,
    kwargs: ThinVec<(Symbol, Arg)>,
}

/// The contents of an e-graph at one time, as rules match them.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// By number of the class: the range of its calls in `members`.
    spans: Vec<(u32, u32)>,
    members: Vec<Member>,
    /// By operator: the classes that have a call of it, ascending.
    by_operator: FxHashMap<OperatorId, Vec<Id>>,
    pub(super) facts: TensorFacts,
}

impl Snapshot {
    pub(super) fn of(
        classes: &Classes<'_>,
        targets: &Targets,
        numbering: Numbering,
    ) -> Result<Self, GraphError> {
        let mut ids: Vec<Id> = classes.classes().map(|class| class.id).collect();
        ids.sort_unstable();
        let bound = ids.last().map_or(0, |&last| usize::from(last) + 1);
        let mut snapshot = Self {
            spans: vec![(0, 0); bound],
            members: Vec::new(),
            by_operator: FxHashMap::default(),
            facts: TensorFacts::new(),
        };
        for id in ids {
            let start = snapshot.members.len() as u32;
            let number = numbering.node(id);
            snapshot.facts.set(number, classes[id].data.fact.clone());
            for node in &classes[id].nodes {
                let Head::Call(call) = classes.analysis.heads.get(node.head) else {
                    continue;
                };
                let Some(&operator) = targets.operator_of(call.op, call.target) else {
                    continue;
                };
                let operand = |k: usize| numbering.node(classes.find(node.children[k]));
                let (args, kwargs) = call.arguments(&operand)?;
                snapshot.members.push(Member {
                    operator,
                    args,
                    kwargs,
                });
                let with = snapshot.by_operator.entry(operator.id).or_default();
                if with.last() != Some(&id) {
                    with.push(id);
                }
            }
            snapshot.spans[usize::from(id)] = (start, snapshot.members.len() as u32);
        }
        Ok(snapshot)
    }
}

/// A search in a snapshot.
pub(super) struct ClassSearch<'s> {
    pub(super) graph: &'s Graph,
    pub(super) snapshot: &'s Snapshot,
    pub(super) numbering: Numbering,
    pub(super) clock: &'s Clock,
}

impl<'s> Program<'s> for ClassSearch<'s> {
    fn graph(&self) -> &'s Graph {
        self.graph
    }

    fn candidate(&self, node: NodeId, index: usize) -> Option<Candidate<'s>> {
        if self.clock.tick() {
            return None;
        }
        let class = self.numbering.class(node)?;
        let &(start, end) = self.snapshot.spans.get(usize::from(class))?;
        let members = &self.snapshot.members[start as usize..end as usize];
        let member = members.get(index)?;
        Some(Candidate {
            operator: member.operator,
            args: &member.args,
            kwargs: &member.kwargs,
        })
    }

    /// None: rules with several roots, which search for users, are left out.
    fn users(&self, _node: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::empty()
    }
}

impl<'s> ClassSearch<'s> {
    /// The matches of a rule at which its conditions hold; `None` if there are more than `limit`.
    pub(super) fn matches(
        &self,
        set: &RuleSet,
        rule: usize,
        limit: usize,
    ) -> Option<Vec<Found<'s>>> {
        let (compiled, own) = (&set.compiled[rule], &set.rules()[rule]);
        let Matcher::Call { operators, .. } = compiled.roots[0].unnamed() else {
            return Some(Vec::new());
        };
        let mut roots: Vec<Id> = Vec::new();
        for operator in operators {
            if let Some(with) = self.snapshot.by_operator.get(operator) {
                roots.extend_from_slice(with);
            }
        }
        roots.sort_unstable();
        roots.dedup();
        let mut matches = Vec::new();
        for root in roots {
            let node = self.numbering.node(root);
            find(self, compiled, own.variables.len(), node, &mut |found| {
                let context = self.context(set, rule, found);
                if context.has_kinds() && context.check().is_ok() {
                    matches.push(found.clone());
                }
                matches.len() > limit
            });
            if matches.len() > limit {
                return None;
            }
        }
        Some(matches)
    }

    /// A match with its graph, facts and rule.
    pub(super) fn context<'a>(
        &'a self,
        set: &'a RuleSet,
        rule: usize,
        found: &'a Found<'s>,
    ) -> Context<'a, 's> {
        Context {
            graph: self.graph,
            facts: &self.snapshot.facts,
            rule: &set.rules()[rule],
            found,
        }
    }
}
