//! Applying rules until none matches any more, one rewrite at a time.

mod host;
mod soundness;
mod state;

use corsac_ir::rewrite::{Patch, RewriteError};
use corsac_ir::{Arg, EntityId, FunctionId, Graph, NodeId, Op, SecondaryMap, Symbol, Target};
use corsac_ops::{Catalogue, Host};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::call::shares;
use super::hazards::Hazards;
use super::rule::{Call, Condition, Predicate, Replacement, Rule};
use super::rule_set::RuleSet;
use super::search::{Found, Search, Targets, find};
use super::vocabulary::Vocabulary;
use crate::analysis::Analysis;
use crate::budget::Budget;
use crate::edits::Added;
use crate::error::PassError;
use crate::report::{Refusal, Site};
use crate::tensors::TensorFacts;

pub use host::{Answer, MatchView, NoRuleHost, RuleHost};

/// A place where the pattern of a rule matched, with the outcome.
struct Outcome {
    /// The rule, by its place in the set.
    rule: usize,
    /// The node that matched the first root; erased by now if the rule was applied.
    node: NodeId,
    /// Its replacement, as text; `None` where the rule was not applied.
    other: Option<String>,
    refusal: Option<Refusal>,
}

/// A rewrite that can be made.
#[derive(Debug)]
pub struct Plan {
    rule: usize,
    patch: Patch,
    roots: SmallVec<[NodeId; 1]>,
    values: Vec<Arg>,
    /// For each new node, whether its value may share storage with another, and with which.
    shares: Vec<(bool, Option<NodeId>)>,
    dropped: Vec<NodeId>,
    /// Nodes that lose users.
    released: Vec<NodeId>,
}

/// Limits of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum number of rewrites; further places are reported.
    pub limit: Option<usize>,
}

impl Options {
    /// As many rewrites as the budget has left; the budget is not changed.
    #[must_use]
    pub fn within(budget: &Budget) -> Self {
        let left = budget.left();
        let limit = left.map(|left| usize::try_from(left).unwrap_or(usize::MAX));
        Self { limit }
    }
}

/// Rules being applied to one graph.
pub struct Session<'r> {
    set: &'r RuleSet,
    facts: TensorFacts,
    hazards: Hazards,
    targets: Targets,
    vocabulary: Vocabulary,
    /// A replacement that the host has made for one match.
    built: Option<Built>,
    /// By rule and new node: whether its value may share storage with an argument.
    views: Vec<Vec<bool>>,
    /// By rule: why its result cannot be used, if it cannot.
    obstacles: Vec<Option<String>>,
    stack: Vec<NodeId>,
    queued: SecondaryMap<NodeId, bool>,
    refused: FxHashMap<(NodeId, usize), usize>,
    sites: Vec<Option<Outcome>>,
    made: usize,
    limit: usize,
    limit_reason: Refusal,
    counts_uses: bool,
    /// Nodes that were added and removed, in order.
    added: Vec<Added>,
    erased: Vec<NodeId>,
}

/// A replacement by the host for one match.
struct Built {
    rule: usize,
    /// The node of the first root.
    node: NodeId,
    replacement: Replacement,
    /// For each new node, whether its value may share storage with an argument.
    views: Vec<bool>,
    /// Why it cannot be used, if it cannot.
    obstacle: Option<String>,
}

const ENDLESS: Refusal = Refusal::because("stopped: the rules may not come to an end");

impl<'r> Session<'r> {
    /// Prepares to apply `set` to `graph`. `functions` maps names in the rules' results to
    /// functions of the graph; other functions are called by name only. `names` has the functions
    /// of the graph that have another name in rules than their qualified one.
    ///
    /// # Errors
    /// [`PassError::UsedBeforeDefined`] if a node uses one that comes after it.
    pub fn new(
        set: &'r RuleSet,
        graph: &mut Graph,
        host: &dyn Host,
        facts: TensorFacts,
        functions: &FxHashMap<String, FunctionId>,
        names: &FxHashMap<FunctionId, String>,
        options: Options,
    ) -> Result<Self, PassError> {
        let vocabulary = Vocabulary::enter(set, graph, functions);
        let mut catalogue = Catalogue::new(host);
        let mut views = |rule: &Rule| views(&mut catalogue, graph, &vocabulary, &rule.replacement);
        let views: Vec<Vec<bool>> = set.rules().iter().map(&mut views).collect();
        let mut obstacle =
            |rule: &Rule| state::obstacle(&mut catalogue, graph, host, &rule.replacement);
        let obstacles = set.rules().iter().map(&mut obstacle).collect();
        let analysis = Analysis::of_graph(graph, host)?;
        let mut targets = Targets::of(graph, set, names);
        vocabulary.add_methods_to(&mut targets, graph, set);
        targets.add_modules(graph, set, host)?;
        let endless = graph.len() * 16 + 1024;
        let limit = options.limit.unwrap_or(endless);
        let mut queued = SecondaryMap::with_capacity(graph.id_bound());
        let mut stack = Vec::new();
        for &node in &analysis.nodes {
            let operator = targets.operator(graph, node);
            if operator.is_some_and(|operator| set.index.has_root(operator.id)) {
                stack.push(node);
                queued.set(node, true);
            }
        }
        Ok(Self {
            set,
            hazards: Hazards::of(graph, &analysis, &facts),
            facts,
            targets,
            vocabulary,
            built: None,
            views,
            obstacles,
            stack,
            queued,
            refused: FxHashMap::default(),
            sites: Vec::new(),
            made: 0,
            limit: limit.min(endless),
            limit_reason: match options.limit {
                Some(limit) if limit <= endless => Refusal::BUDGET,
                Some(_) | None => ENDLESS,
            },
            counts_uses: set.rules().iter().any(counts_uses),
            added: Vec::new(),
            erased: Vec::new(),
        })
    }

    /// Finds the next rewrite; `None` when there is none left, or the host stops the session.
    pub fn next(&mut self, graph: &Graph, host: &mut dyn RuleHost) -> Option<Plan> {
        let mut candidates = Vec::new();
        while let Some(node) = self.stack.pop() {
            self.queued.set(node, false);
            if !graph.contains(node) {
                continue;
            }
            let search = Search {
                graph,
                targets: &self.targets,
            };
            let Some(operator) = self.targets.operator(graph, node) else {
                continue;
            };
            let Some(operands) = search.operands(node, operator) else {
                continue;
            };
            self.set
                .index
                .candidates(operator.id, &operands, &mut candidates);
            for &number in &candidates {
                let rule = number as usize;
                let mut outcome: Option<Result<Plan, String>> = None;
                let mut stopped = false;
                let variables = self.set.rules()[rule].variables.len();
                let search = Search {
                    graph,
                    targets: &self.targets,
                };
                find(
                    &search,
                    &self.set.compiled[rule],
                    variables,
                    node,
                    &mut |found| {
                        match self.plan(graph, rule, found, host) {
                            Ok(plan) => outcome = Some(Ok(plan)),
                            Err(NoPlan::Stop) => stopped = true,
                            Err(NoPlan::NoMatch) => return false,
                            Err(NoPlan::Because(reason)) => {
                                outcome.get_or_insert(Err(reason));
                                return false;
                            }
                        }
                        true
                    },
                );
                if stopped {
                    return None;
                }
                match outcome {
                    Some(Ok(_)) if self.made >= self.limit => {
                        self.refuse(rule, node, self.limit_reason.clone());
                        // The other rules would not be applied here either.
                        break;
                    }
                    Some(Ok(plan)) => return Some(plan),
                    Some(Err(reason)) => self.refuse(rule, node, reason.into()),
                    None => {}
                }
            }
        }
        None
    }

    /// Sets the replacement of the match of `rule` at `node`, where the host makes one for each
    /// match: it has answered a condition at the match with [`Answer::Stop`], and is asked again.
    /// `functions` maps the names in it to functions of the graph.
    ///
    /// # Errors
    /// If a setting of a module that it calls cannot be entered into the graph.
    pub fn set_replacement(
        &mut self,
        graph: &mut Graph,
        host: &dyn Host,
        (rule, node): (usize, NodeId),
        replacement: Replacement,
        functions: &FxHashMap<String, FunctionId>,
    ) -> Result<(), PassError> {
        self.vocabulary.add(&replacement, graph, functions);
        let modules: Vec<Symbol> = replacement
            .modules()
            .map(|path| graph.intern(path))
            .collect();
        self.targets
            .add_modules_at(graph, self.set, host, &modules)?;
        for call in &replacement.calls {
            match self.vocabulary.target(graph, &call.callee) {
                Some((_, Target::Function(id))) => self.targets.set_function(graph, self.set, id),
                Some((Op::CallMethod, Target::Name(name))) => {
                    self.targets.set_method(graph, self.set, name);
                }
                Some(_) | None => {}
            }
        }
        let mut catalogue = Catalogue::new(host);
        let views = views(&mut catalogue, graph, &self.vocabulary, &replacement);
        let obstacle = state::obstacle(&mut catalogue, graph, host, &replacement);
        self.built = Some(Built {
            rule,
            node,
            replacement,
            views,
            obstacle,
        });
        self.enqueue(graph, node);
        Ok(())
    }

    fn refuse(&mut self, rule: usize, node: NodeId, refusal: Refusal) {
        let site = Outcome {
            rule,
            node,
            other: None,
            refusal: Some(refusal),
        };
        match self.refused.get(&(node, rule)) {
            Some(&at) => self.sites[at] = Some(site),
            None => {
                self.refused.insert((node, rule), self.sites.len());
                self.sites.push(Some(site));
            }
        }
    }

    /// Makes a rewrite.
    ///
    /// # Errors
    /// If the graph has changed since the plan was made.
    pub fn apply(&mut self, graph: &mut Graph, plan: Plan) -> Result<(), RewriteError> {
        let Plan {
            rule,
            patch,
            roots,
            values,
            shares,
            dropped,
            released,
        } = plan;
        let redirected: Vec<NodeId> = roots.iter().flat_map(|&root| graph.users(root)).collect();
        let added = patch.apply(graph)?;
        let new = |index: usize| NodeId::from_index(added.start + index);
        let first_added = self.added.len();
        for (index, &(may_share, like)) in shares.iter().enumerate() {
            self.hazards.add(new(index), roots[0]);
            match graph.node(new(index)).op() {
                Op::CallModule => self.hazards.set_reads_state(new(index)),
                Op::GetAttr => self.hazards.set_outside(new(index)),
                Op::Placeholder | Op::CallFunction | Op::CallMethod | Op::Output => {}
            }
            if may_share {
                self.hazards.set_shares(new(index), like);
            }
            self.added.push(Added {
                node: new(index),
                root: roots[0],
                has_its_value: false,
            });
        }
        for (&root, value) in roots.iter().zip(&values) {
            if let Some(value) = value.as_node() {
                let is_new = added.contains(&value.index());
                let may_share = is_new && shares[value.index() - added.start].0;
                self.hazards.replace(root, value, is_new);
                if is_new {
                    if may_share {
                        self.hazards.set_shares(value, None);
                    }
                    self.facts.inherit(value, root);
                    let at = first_added + value.index() - added.start;
                    (self.added[at].root, self.added[at].has_its_value) = (root, true);
                }
            }
        }
        self.made += 1;
        self.built = None;
        for &node in &dropped {
            for rule in 0..self.set.rules().len() {
                if let Some(at) = self.refused.remove(&(node, rule)) {
                    self.sites[at] = None;
                }
            }
        }
        self.sites.push(Some(Outcome {
            rule,
            node: roots[0],
            other: Some(shown(graph, &values)),
            refusal: None,
        }));
        self.erased.extend(dropped);

        for node in released {
            if graph.contains(node) {
                self.enqueue_users(graph, graph.users(node).collect());
            }
        }
        self.enqueue_users(graph, redirected);
        for index in (0..shares.len()).rev() {
            self.enqueue(graph, new(index));
        }
        Ok(())
    }

    fn enqueue(&mut self, graph: &Graph, node: NodeId) {
        let operator = self.targets.operator(graph, node);
        let is_root = operator.is_some_and(|operator| self.set.index.has_root(operator.id));
        if is_root && !std::mem::replace(self.queued.get_mut(node), true) {
            self.stack.push(node);
        }
    }

    /// Enqueues nodes to be visited, with the users above them from which a pattern may reach them.
    fn enqueue_users(&mut self, graph: &Graph, mut nodes: Vec<NodeId>) {
        let mut seen: FxHashSet<NodeId> = FxHashSet::default();
        let depth = self.set.depth.max(1);
        for level in 1..=depth {
            for &node in &nodes {
                self.enqueue(graph, node);
            }
            if level < depth {
                let above = nodes.iter().flat_map(|&node| graph.users(node));
                nodes = above.filter(|&node| seen.insert(node)).collect();
            }
        }
    }

    /// Applies rules until none is left.
    ///
    /// # Errors
    /// As [`Session::apply`].
    pub fn run(&mut self, graph: &mut Graph, host: &mut dyn RuleHost) -> Result<(), RewriteError> {
        while let Some(plan) = self.next(graph, host) {
            self.apply(graph, plan)?;
        }
        Ok(())
    }

    /// The places where patterns matched, with the rules, by their place in the set.
    #[must_use]
    pub fn sites(&self, graph: &Graph) -> Vec<(usize, Site)> {
        let sites = self.sites.iter().flatten().map(|at| {
            let site = Site::new(graph, at.node, at.refusal.clone());
            (at.rule, site.with_other(at.other.clone()))
        });
        sites.collect()
    }

    /// Number of rewrites made.
    #[must_use]
    pub fn made(&self) -> usize {
        self.made
    }

    /// The nodes that were removed, in that order.
    #[must_use]
    pub fn erased(&self) -> &[NodeId] {
        &self.erased
    }

    /// The nodes that were added, in that order; some may have been removed again.
    #[must_use]
    pub fn added(&self) -> &[Added] {
        &self.added
    }
}

enum NoPlan {
    /// The pattern matches, but the rule is not applied, for this reason.
    Because(String),
    /// An argument is not of the kind that the pattern is about.
    NoMatch,
    /// The host has failed.
    Stop,
}

impl From<String> for NoPlan {
    fn from(reason: String) -> Self {
        Self::Because(reason)
    }
}

/// For each new node of a replacement, whether its value may share storage with an argument.
fn views(
    catalogue: &mut Catalogue<'_>,
    graph: &Graph,
    vocabulary: &Vocabulary,
    replacement: &Replacement,
) -> Vec<bool> {
    let may_share = |call: &Call| {
        // Targets that depend on the match are looked up there.
        let Some((op, target)) = vocabulary.target(graph, &call.callee) else {
            return true;
        };
        let behaviour = catalogue.behaviour_of(graph, op, target);
        let has_keyword = |name: &str| call.kwargs.iter().any(|(key, _)| key == name);
        behaviour.is_none_or(|behaviour| shares(behaviour, call.args.len(), &has_keyword))
    };
    replacement.calls.iter().map(may_share).collect()
}

/// The nodes of a match that are unused once its roots are replaced; users first.
fn unused_after(graph: &Graph, found: &Found<'_>, used: &[NodeId]) -> Vec<NodeId> {
    let mut covered: Vec<NodeId> = found.covered.to_vec();
    covered.sort_unstable_by_key(|&node| std::cmp::Reverse(graph.node(node).order()));
    let mut dropped: Vec<NodeId> = Vec::with_capacity(covered.len());
    for node in covered {
        let unused = || {
            let mut users = graph.users(node);
            users.all(|user| dropped.contains(&user))
        };
        if found.roots.contains(&node) || !used.contains(&node) && unused() {
            dropped.push(node);
        }
    }
    dropped
}

fn counts_uses(rule: &Rule) -> bool {
    rule.conditions.iter().any(|condition| match condition {
        Condition::Holds { predicate, .. } => *predicate == Predicate::SingleUse,
        Condition::Host(_) => true,
        Condition::Compare(..) => false,
    })
}

fn shown(graph: &Graph, values: &[Arg]) -> String {
    let shown = values.iter().map(|value| match value {
        Arg::Node(node) => graph.node(*node).name().to_owned(),
        Arg::Int(value) => value.to_string(),
        Arg::Float(value) => value.to_string(),
        _ => "a literal".to_owned(),
    });
    shown.collect::<Vec<_>>().join(", ")
}
