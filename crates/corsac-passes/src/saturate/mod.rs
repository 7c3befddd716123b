//! Equality saturation: all programs that rules make of this one at once, and the cheapest of them.
//!
//! What it does: puts what may be exchanged into an e-graph, adds to it what the rules say is
//! equal, until nothing is new or a limit is reached, and takes the cheapest program that it then
//! holds ([`extract`]). Where rewriting takes the first rule that matches, and never goes back, the
//! order of rules makes no difference here, and rules may go both ways.
//!
//! Needs: a graph in which definitions come before uses. Rules that depend on types or shapes need
//! them to be known ([`TensorFacts`]); types of new calls are found by the operator catalogue.
//!
//! Stays: what does more than compute a value, and what reads or gives something that is written
//! to anywhere; views that the caller gets. Nothing is moved across a call that may change what
//! others compute. The caller gets tensors that share storage with nothing it got before.
//!
//! Preserves: names, order and everything known of the nodes that stay; what takes the place of a
//! node has its name, origin and metadata. The cost never grows: what is not cheaper is not taken.
//!
//! ```text
//! a = x @ w1                    add = w1 + w2
//! b = x @ w2                →   y = x @ add
//! y = a + b
//! ```
//!
//! With the same program, rules, cost model and limits on nodes and iterations the result is the
//! same; a run that ends because its time is over may end elsewhere the next time.
//!
//! Reference: R. Tate et al., "Equality saturation: a new approach to optimization", POPL 2009; M.
//! Willsey et al., "egg: fast and extensible equality saturation", POPL 2021, whose e-graph it is.
//! `egglog` is the same with Datalog rules; patterns, conditions and literals here are those of
//! [`crate::rules`], which leaves nothing for its rule language to do.

mod chosen;
mod cost;
mod extract;
mod language;
mod plan;
mod region;
mod search;

#[cfg(test)]
mod tests;

pub use cost::{CostError, CostModel, CostTable, PricedCall, Roofline};
pub use plan::Applied;

use std::fmt;
use std::time::{Duration, Instant};

use corsac_ir::{EntityId, FunctionId, Graph, GraphError, NodeId, SecondaryMap};
use corsac_ops::shape::Settings;
use corsac_ops::{Catalogue, Host};
use egg::Id;
use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::analysis::Analysis;
use crate::budget::Budget;
use crate::error::PassError;
use crate::pass::{Context, Pass};
use crate::report;
use crate::rules::hazards::Hazards;
use crate::rules::search::Targets;
use crate::rules::session::shares;
use crate::rules::vocabulary::Vocabulary;
use crate::rules::{Condition, Predicate, Rule, RuleSet, Value};
use crate::simplify;
use crate::tensors::{TensorFact, TensorFacts};

use chosen::{Chosen, Original, Table};
use cost::price;
use language::{Classes, ENode, Head, Types, add_call};
use plan::Plan;
use region::{Region, is_in, regions};
use search::{ClassSearch, Clock, Numbering, Snapshot};

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Rules may add so many e-nodes to those of the program.
    pub max_nodes: usize,
    /// So much time may pass before the search for the cheapest program ends.
    pub max_time: Option<Duration>,
    /// How often all rules are gone over.
    pub iterations: usize,
    /// Settings of the process that types depend on.
    pub settings: Settings,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_nodes: 10_000,
            max_time: Some(Duration::from_secs(10)),
            iterations: 30,
            settings: Settings::default(),
        }
    }
}

/// Why no more equal calls were looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// There are none: the e-graph holds everything that the rules can make.
    Saturated,
    /// The rules were gone over as often as allowed.
    Iterations,
    /// As many e-nodes were added as allowed.
    Nodes,
    /// The time was over.
    Time,
}

impl Stop {
    /// The reason in a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Saturated => "saturated",
            Self::Iterations => "iterations",
            Self::Nodes => "nodes",
            Self::Time => "time",
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A node that something cheaper takes the place of, or would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The node, erased by now if it went.
    pub node: NodeId,
    /// Why it stays, if it does.
    pub reason: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// How often the rules were gone over.
    pub iterations: usize,
    /// E-nodes at the end.
    pub e_nodes: usize,
    /// Classes of equal values at the end.
    pub classes: usize,
    /// Why it ended.
    pub stop: Stop,
    /// What all nodes cost that may be exchanged.
    pub cost_before: f64,
    /// What those cost that take their places.
    pub cost_after: f64,
    /// How many changes of the budget were used.
    pub changes: u64,
    /// Nodes that something else takes the place of.
    pub sites: Vec<Site>,
    /// How often each rule made something equal that was not, for those that did.
    pub merged: Vec<(String, usize)>,
    /// Rules that cannot be used here, and why.
    pub left_out: Vec<(String, &'static str)>,
}

/// Why a program could not be improved.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SaturateError {
    /// The graph cannot be analysed.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// The graph refused a change.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A cost is not known.
    #[error(transparent)]
    Cost(#[from] CostError),
}

/// Rules made ready for saturation: each direction by itself.
#[derive(Clone, Debug)]
pub struct Directions {
    set: RuleSet,
    left_out: Vec<(String, &'static str)>,
}

impl Directions {
    /// Splits rules that go both ways in two. Rules that only rewriting can use are left out: those
    /// with several roots, with questions to the host, or about how often a value is used, which
    /// depends on what is chosen in the end.
    #[must_use]
    pub fn of(rules: &[Rule]) -> Self {
        let mut left_out = Vec::new();
        let mut directed = Vec::new();
        for rule in rules {
            match unusable(rule) {
                Some(why) => left_out.push((rule.name.clone(), why)),
                None => {
                    let back = rule.reverse.as_deref().cloned();
                    directed.push(Rule {
                        reverse: None,
                        ..rule.clone()
                    });
                    directed.extend(back);
                }
            }
        }
        Self {
            set: RuleSet::new(directed),
            left_out,
        }
    }

    /// The rules by direction.
    #[must_use]
    pub fn set(&self) -> &RuleSet {
        &self.set
    }
}

fn unusable(rule: &Rule) -> Option<&'static str> {
    let counts = |condition: &Condition| {
        matches!(
            condition,
            Condition::Holds {
                predicate: Predicate::SingleUse,
                ..
            }
        )
    };
    if rule.roots.len() > 1 {
        return Some("it replaces several values at once");
    }
    if rule.conditions.iter().any(counts) {
        return Some("it asks how often a value is used");
    }
    let asks = |condition: &Condition| matches!(condition, Condition::Host(_));
    if rule.conditions.iter().any(asks) {
        return Some("it has a condition that the host answers");
    }
    None
}

/// What takes the place of what, for each region.
#[derive(Debug)]
pub struct Saturation {
    plans: Vec<Plan>,
    report: Report,
}

impl Saturation {
    /// What was found.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Changes the graph.
    ///
    /// # Errors
    /// If it has changed since.
    pub fn apply(self, graph: &mut Graph) -> Result<(Report, Applied), GraphError> {
        let mut now = FxHashMap::default();
        let mut applied = Applied::default();
        for plan in self.plans {
            plan.apply(graph, &mut now, &mut applied)?;
        }
        applied.replaced.sort_unstable();
        Ok((self.report, applied))
    }
}

/// Names of the graph's functions, as its host knows them.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Functions that results of rules call, by the names that the rules have for them.
    pub functions: FxHashMap<String, FunctionId>,
    /// Functions that rules know by another name than their qualified one.
    pub own: FxHashMap<FunctionId, String>,
}

/// Finds the cheapest program that `rules` make of `graph`, and changes the graph.
///
/// ```
/// use corsac_ir::Graph;
/// use corsac_ops::Unhosted;
/// use corsac_passes::rules::parse;
/// use corsac_passes::saturate::{Directions, Options, Roofline, saturate};
/// use corsac_passes::{Budget, TensorFacts};
///
/// let mut graph = Graph::new();
/// let [x, a, b] = ["x", "a", "b"].map(|name| graph.placeholder(name).unwrap());
/// let left = graph.call_method("matmul", [x.into(), a.into()])?;
/// let right = graph.call_method("matmul", [x.into(), b.into()])?;
/// let sum = graph.call_method("add", [left.into(), right.into()])?;
/// graph.output(sum)?;
///
/// let rules = parse("factor: add(matmul(?x, ?a), matmul(?x, ?b)) <=> matmul(?x, add(?a, ?b))")?;
/// let (report, _) = saturate(
///     &mut graph,
///     &Directions::of(&rules),
///     &Unhosted,
///     &TensorFacts::new(),
///     &mut Roofline::default(),
///     Options::default(),
///     &mut Budget::unlimited(),
/// )?;
/// assert!(report.cost_after < report.cost_before);
/// assert_eq!(graph.len(), 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`SaturateError`]; the graph is then as it was.
pub fn saturate(
    graph: &mut Graph,
    rules: &Directions,
    host: &dyn Host,
    facts: &TensorFacts,
    cost: &mut dyn CostModel,
    options: Options,
    budget: &mut Budget,
) -> Result<(Report, Applied), SaturateError> {
    let names = Names::default();
    let ready = Ready::new(graph, rules, &names);
    let found = ready.search(graph, host, facts, cost, options, budget)?;
    let (report, applied) = found.apply(graph)?;
    Ok((report, applied))
}

/// Rules whose names are entered into one graph.
pub struct Ready<'r> {
    rules: &'r Directions,
    vocabulary: Vocabulary,
    targets: Targets,
}

impl<'r> Ready<'r> {
    /// Enters names of `rules` into `graph`.
    #[must_use]
    pub fn new(graph: &mut Graph, rules: &'r Directions, names: &Names) -> Self {
        let vocabulary = Vocabulary::enter(&rules.set, graph, &names.functions);
        let mut targets = Targets::of(graph, &rules.set, &names.own);
        vocabulary.add_methods_to(&mut targets, graph, &rules.set);
        Self {
            rules,
            vocabulary,
            targets,
        }
    }

    /// Finds the cheapest program. The graph, into which the names were entered, stays as it is.
    ///
    /// # Errors
    /// [`SaturateError`]
    pub fn search(
        &self,
        graph: &Graph,
        host: &dyn Host,
        facts: &TensorFacts,
        cost: &mut dyn CostModel,
        options: Options,
        budget: &mut Budget,
    ) -> Result<Saturation, SaturateError> {
        let deadline = options.max_time.map(|time| Instant::now() + time);
        let analysis = Analysis::of_graph(graph, host)?;
        let hazards = Hazards::of(graph, &analysis, facts);
        let mut search = Search {
            ready: self,
            graph,
            facts,
            hazards: &hazards,
            catalogue: Catalogue::new(host),
            options,
            clock: Clock::new(deadline),
            merged: vec![0; self.rules.set.rules().len()],
            added: 0,
            report: Report {
                iterations: 0,
                e_nodes: 0,
                classes: 0,
                stop: Stop::Saturated,
                cost_before: 0.0,
                cost_after: 0.0,
                changes: 0,
                sites: Vec::new(),
                merged: Vec::new(),
                left_out: self.rules.left_out.clone(),
            },
        };
        let mut plans = Vec::new();
        for region in regions(graph, &analysis, &hazards) {
            plans.extend(search.region(&region, cost, budget)?);
        }
        let mut report = search.report;
        let rules = self.rules.set.rules();
        for (rule, count) in rules.iter().zip(search.merged) {
            match report
                .merged
                .iter_mut()
                .find(|(name, _)| *name == rule.name)
            {
                Some((_, sum)) => *sum += count,
                None if count > 0 => report.merged.push((rule.name.clone(), count)),
                None => {}
            }
        }
        Ok(Saturation { plans, report })
    }
}

/// How a rule that matches too often is put off, so that others get their turn.
/// Source: the back-off scheduler of egg, with its numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Backoff {
    times: u32,
    until: usize,
}

impl Backoff {
    const MATCHES: usize = 1000;
    const ITERATIONS: usize = 5;

    fn limit(self) -> usize {
        Self::MATCHES << self.times.min(16)
    }

    fn put_off(&mut self, iteration: usize) {
        self.until = iteration + (Self::ITERATIONS << self.times.min(16));
        self.times += 1;
    }
}

struct Search<'a, 'r> {
    ready: &'a Ready<'r>,
    graph: &'a Graph,
    facts: &'a TensorFacts,
    hazards: &'a Hazards,
    catalogue: Catalogue<'a>,
    options: Options,
    clock: Clock,
    /// By rule: how often it made something equal.
    merged: Vec<usize>,
    /// How many e-nodes rules have added so far.
    added: usize,
    report: Report,
}

impl Search<'_, '_> {
    /// What is to be changed in one region.
    fn region(
        &mut self,
        region: &Region,
        cost: &mut dyn CostModel,
        budget: &mut Budget,
    ) -> Result<Option<Plan>, SaturateError> {
        let types = Types::new(self.graph, self.facts, self.options.settings);
        let mut classes = Classes::new(types);
        let mut leaves = FxHashMap::default();
        let originals = self.enter(region, &mut classes, &mut leaves)?;
        self.saturate(&mut classes)?;
        self.report.e_nodes += classes.total_number_of_nodes();
        self.report.classes += classes.number_of_classes();

        let is_free = is_in(self.graph, region);
        let is_needed = |node: NodeId| {
            let mut users = self.graph.users(node).peekable();
            users.peek().is_none() || users.any(|user| !is_free[user.index()])
        };
        let mut prices: FxHashMap<ENode, f64> = FxHashMap::default();
        let mut price_of = |class: Id, node: &ENode| -> Result<f64, SaturateError> {
            if let Some(&known) = prices.get(node) {
                return Ok(known);
            }
            let cost = price_of(&classes, cost, class, node)?;
            prices.insert(node.clone(), cost);
            Ok(cost)
        };
        let (graph, catalogue) = (self.graph, &mut self.catalogue);
        let mut is_fresh = |node: &ENode| match classes.analysis.heads.get(node.head) {
            Head::Leaf(_) => false,
            Head::Call(call) => {
                let behaviour = catalogue.behaviour_of(graph, call.op, call.target);
                let has_keyword = |name: &str| {
                    let mut keys = call.kwargs.iter();
                    keys.any(|(key, _)| graph.text(*key) == name)
                };
                behaviour.is_some_and(|b| !shares(b, call.args.len(), &has_keyword))
            }
        };
        let table = Table::new(
            &classes,
            &originals,
            &leaves,
            self.hazards,
            &mut price_of,
            &mut is_fresh,
            &is_needed,
        )?;
        let before = table.cost_now;
        self.report.cost_before += before;
        // Nodes that compute the same become one: the first change.
        let twins = u64::from(table.has_twins());
        let left = budget.left().unwrap_or(u64::MAX);
        let granted = left.saturating_sub(twins);
        let solution = table.problem.solve(&self.clock, granted);
        let after = solution.cost + table.cost_kept;
        // Sums of many costs are rounded: what is not cheaper by more than that is not cheaper.
        let is_cheaper = after < before - before.abs() * 1e-9;
        let chosen = Chosen::new(&table, &solution);
        let plan = is_cheaper.then(|| Plan::of(self.graph, region, &chosen));
        let changes = twins + solution.switches;
        let refusal = match &plan {
            None => None,
            Some(None) => Some("something would have to be computed before what it uses"),
            Some(Some(_)) if changes > left => Some(Budget::EXHAUSTED),
            Some(Some(_)) => None,
        };
        match (plan.flatten(), refusal) {
            (Some(plan), None) => {
                self.report.cost_after += after;
                self.report.changes += changes;
                budget.take_up_to(usize::try_from(changes).unwrap_or(usize::MAX));
                let sites = plan.replaced().map(|node| Site { node, reason: None });
                self.report.sites.extend(sites);
                Ok(Some(plan))
            }
            (plan, refusal) => {
                self.report.cost_after += before;
                let nodes = plan.iter().flat_map(Plan::replaced);
                let sites = nodes.map(|node| Site {
                    node,
                    reason: refusal.map(str::to_owned),
                });
                self.report.sites.extend(sites);
                Ok(None)
            }
        }
    }

    /// Enters the free nodes of a region, and what they use as leaves.
    fn enter(
        &self,
        region: &Region,
        classes: &mut Classes<'_>,
        leaves: &mut FxHashMap<NodeId, Id>,
    ) -> Result<Vec<Original>, SaturateError> {
        let mut class_of: SecondaryMap<NodeId, Option<Id>> =
            SecondaryMap::with_capacity(self.graph.id_bound());
        let mut originals = Vec::with_capacity(region.free.len());
        for &node in &region.free {
            let view = self.graph.node(node);
            for input in view.inputs() {
                if class_of[input].is_none() {
                    let head = classes.analysis.heads.leaf(input);
                    let children = smallvec::SmallVec::new();
                    let id = classes.add(ENode { head, children });
                    class_of.set(input, Some(id));
                    leaves.insert(input, id);
                }
            }
            let class = |input: NodeId| class_of[input].expect("inputs were entered");
            let callee = (view.op(), view.target());
            let (id, e_node) = add_call(classes, callee, view.args(), view.kwargs(), &class)?;
            if let Some(fact) = self.facts.get(node) {
                let mut known = classes[id].data.clone();
                known.fact.shape = fact.shape.clone().or(known.fact.shape);
                known.fact.dtype = fact.dtype.or(known.fact.dtype);
                if known != classes[id].data {
                    classes.set_analysis_data(id, known);
                }
            }
            class_of.set(node, Some(id));
            originals.push(Original {
                node,
                class: id,
                e_node,
            });
        }
        classes.rebuild();
        Ok(originals)
    }

    /// Adds what the rules say is equal.
    fn saturate(&mut self, classes: &mut Classes<'_>) -> Result<(), SaturateError> {
        let set = &self.ready.rules.set;
        let numbering = Numbering::of(self.graph);
        let mut backoff = vec![Backoff::default(); set.rules().len()];
        let start = classes.total_size();
        let most = start.saturating_add(self.options.max_nodes.saturating_sub(self.added));
        let mut stop = Stop::Iterations;
        for iteration in 0..self.options.iterations {
            self.report.iterations = self.report.iterations.max(iteration + 1);
            let (size, mut unions) = (classes.total_size(), 0);
            let snapshot = Snapshot::of(classes, &self.ready.targets, numbering)?;
            let search = ClassSearch {
                graph: self.graph,
                snapshot: &snapshot,
                numbering,
                clock: &self.clock,
            };
            let mut put_off = false;
            let mut found = Vec::new();
            for (rule, backoff) in backoff.iter_mut().enumerate() {
                if backoff.until > iteration {
                    put_off = true;
                    continue;
                }
                match search.matches(set, rule, backoff.limit()) {
                    Some(matches) => found.push((rule, matches)),
                    None => {
                        backoff.put_off(iteration);
                        put_off = true;
                    }
                }
            }
            let mut over = None;
            'rules: for (rule, matches) in &found {
                for matched in matches {
                    if classes.total_size() >= most {
                        over = Some(Stop::Nodes);
                        break 'rules;
                    }
                    if self.clock.tick() {
                        over = Some(Stop::Time);
                        break 'rules;
                    }
                    let context = search.context(set, *rule, matched);
                    if self.unite(classes, numbering, *rule, &context)? {
                        unions += 1;
                        self.merged[*rule] += 1;
                    }
                }
            }
            classes.rebuild();
            if let Some(over) = over {
                stop = over;
                break;
            }
            if self.clock.is_over() {
                stop = Stop::Time;
                break;
            }
            if unions == 0 && classes.total_size() == size {
                if !put_off {
                    stop = Stop::Saturated;
                    break;
                }
                // Nothing else is left to do: those that were put off have their turn.
                backoff.iter_mut().for_each(|b| b.until = 0);
            }
        }
        self.added += classes.total_size().saturating_sub(start);
        if self.report.stop == Stop::Saturated {
            self.report.stop = stop;
        }
        Ok(())
    }

    /// Adds the result of a rule at a match, and makes it equal to what was matched.
    fn unite(
        &self,
        classes: &mut Classes<'_>,
        numbering: Numbering,
        rule: usize,
        context: &crate::rules::condition::Context<'_, '_>,
    ) -> Result<bool, SaturateError> {
        let own = &self.ready.rules.set.rules()[rule];
        let mut new: Vec<NodeId> = Vec::with_capacity(own.replacement.calls.len());
        for call in &own.replacement.calls {
            let number = |index: usize| new.get(index).copied();
            let value = |value: &Value| context.value_with(value, &number).ok();
            let args: Option<corsac_ir::ThinVec<_>> = call.args.iter().map(value).collect();
            let kwargs = call.kwargs.iter();
            let kwargs =
                kwargs.map(|(key, v)| Some((self.ready.vocabulary.symbol(key), value(v)?)));
            let kwargs: Option<corsac_ir::ThinVec<_>> = kwargs.collect();
            // A value that is not defined: the rule does not apply.
            let (Some(args), Some(kwargs)) = (args, kwargs) else {
                return Ok(false);
            };
            let callee = self.ready.vocabulary.target(&call.callee);
            let class = |node: NodeId| numbering.class(node).unwrap_or_default();
            let (id, _) = add_call(classes, callee, &args, &kwargs, &class)?;
            new.push(numbering.node(id));
        }
        let number = |index: usize| new.get(index).copied();
        let value = own.replacement.values.first();
        let value = value.and_then(|value| context.value_with(value, &number).ok());
        let to = value.and_then(|value| numbering.class(value.as_node()?));
        let from = context.found.roots.first();
        let from = from.and_then(|&root| numbering.class(root));
        let (Some(from), Some(to)) = (from, to) else {
            return Ok(false);
        };
        // Two values of different types are not equal, whatever a rule says.
        if !classes[from].data.agrees(&classes[to].data) {
            return Ok(false);
        }
        Ok(classes.union(from, to))
    }
}

/// What an e-node costs.
fn price_of(
    classes: &Classes<'_>,
    model: &mut dyn CostModel,
    class: Id,
    node: &ENode,
) -> Result<f64, SaturateError> {
    let Head::Call(call) = classes.analysis.heads.get(node.head) else {
        return Ok(0.0);
    };
    let operands = node.children.iter();
    let operands: Vec<&TensorFact> = operands.map(|&c| &classes[c].data.fact).collect();
    let result = &classes[class].data.fact;
    let inferred = language::infer(classes, node);
    let graph = classes.analysis.graph;
    Ok(price(model, graph, call, operands, result, &inferred)?)
}

/// Equality saturation with the laws of [`simplify`], as a pass.
#[derive(Clone, Debug, Default)]
pub struct Saturate {
    /// Whether laws may be used that hold up to rounding only.
    pub fast_math: bool,
    /// How far to go.
    pub options: Options,
}

impl Pass for Saturate {
    fn name(&self) -> &'static str {
        "saturate"
    }

    fn run(
        &self,
        graph: &mut Graph,
        context: &mut Context<'_>,
    ) -> Result<report::Report, PassError> {
        let nodes_before = graph.len();
        let rules = Directions::of(&simplify::equalities(self.fast_math));
        let outcome = saturate(
            graph,
            &rules,
            context.host,
            context.tensors,
            &mut Roofline::default(),
            self.options,
            &mut context.budget,
        );
        let (found, applied) = match outcome {
            Ok((found, applied)) => (found, applied),
            Err(SaturateError::Pass(error)) => return Err(error),
            Err(SaturateError::Graph(error)) => return Err(error.into()),
            Err(SaturateError::Cost(error)) => unreachable!("costs are estimated: {error}"),
        };
        let sites = found.sites.into_iter();
        let sites = sites.map(|site| {
            let other = applied.in_place_of(graph, site.node);
            report::Site::new(graph, site.node, other, site.reason)
        });
        Ok(report::Report {
            pass: self.name().to_owned(),
            sites: sites.collect(),
            nodes_before,
            nodes_after: graph.len(),
        })
    }
}
