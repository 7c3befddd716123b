//! Saturation of a program, region by region: enters it into e-graphs, applies rules, extracts.

use std::time::Instant;

use corsac_ir::{EntityId, Graph, NodeId, SecondaryMap};
use corsac_ops::{Catalogue, Host};
use egg::Id;
use rustc_hash::FxHashMap;

use super::chosen::{Chosen, Original, Table};
use super::cost::{CostModel, price};
use super::directions::Directions;
use super::language::{self, Classes, ENode, Head, Types, add_call};
use super::plan::Plan;
use super::region::{Region, is_in, regions};
use super::search::{ClassSearch, Clock, Numbering, Snapshot};
use super::{Names, Options, Report, SaturateError, Saturation, Stop};
use crate::analysis::Analysis;
use crate::budget::Budget;
use crate::report::{Refusal, Site};
use crate::rules::Value;
use crate::rules::call::shares;
use crate::rules::condition::Context;
use crate::rules::hazards::Hazards;
use crate::rules::search::Targets;
use crate::rules::vocabulary::Vocabulary;
use crate::tensors::{TensorFact, TensorFacts};

const OUT_OF_ORDER: Refusal =
    Refusal::because("something would have to be computed before what it uses");

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

    /// Finds the cheapest program. The graph, into which the names were entered, does not change.
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

/// Back-off of a rule that matches too often, so that others get their turn.
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
    /// By rule: how often it made different classes equal.
    merged: Vec<usize>,
    /// Number of e-nodes that rules have added so far.
    added: usize,
    report: Report,
}

impl Search<'_, '_> {
    /// Plans the change of one region.
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
        // Sums of many costs are rounded: a difference within the rounding does not count.
        let is_cheaper = after < before - before.abs() * 1e-9;
        let chosen = Chosen::new(&table, &solution);
        let plan = is_cheaper.then(|| Plan::of(self.graph, region, &chosen));
        let changes = twins + solution.switches;
        let refusal = match &plan {
            None => None,
            Some(None) => Some(OUT_OF_ORDER),
            Some(Some(_)) if changes > left => Some(Refusal::BUDGET),
            Some(Some(_)) => None,
        };
        match (plan.flatten(), refusal) {
            (Some(plan), None) => {
                self.report.cost_after += after;
                self.report.changes += changes;
                budget.take_up_to(usize::try_from(changes).unwrap_or(usize::MAX));
                let sites = plan.replaced();
                let sites = sites.map(|node| Site::new(self.graph, node, None));
                self.report.sites.extend(sites);
                Ok(Some(plan))
            }
            (plan, refusal) => {
                self.report.cost_after += before;
                let nodes = plan.iter().flat_map(Plan::replaced);
                let sites = nodes.map(|node| Site::new(self.graph, node, refusal.clone()));
                self.report.sites.extend(sites);
                Ok(None)
            }
        }
    }

    /// Enters the free nodes of a region, with other nodes that they use as leaves.
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

    /// Adds the equalities that follow from the rules.
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
                // Nothing else is left to do: now the rules that were put off have their turn.
                backoff.iter_mut().for_each(|b| b.until = 0);
            }
        }
        self.added += classes.total_size().saturating_sub(start);
        if self.report.stop == Stop::Saturated {
            self.report.stop = stop;
        }
        Ok(())
    }

    /// Adds the result of a rule at a match, and makes it equal to the matched class; returns
    /// whether that is new.
    fn unite(
        &self,
        classes: &mut Classes<'_>,
        numbering: Numbering,
        rule: usize,
        context: &Context<'_, '_>,
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
            // A computed value is undefined: the rule does not apply.
            let (Some(args), Some(kwargs)) = (args, kwargs) else {
                return Ok(false);
            };
            let vocabulary = &self.ready.vocabulary;
            let Some(callee) = vocabulary.target(context.graph, &call.callee) else {
                return Ok(false);
            };
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
        // Values of different types are never equal, even if a rule makes them so.
        if !classes[from].data.agrees(&classes[to].data) {
            return Ok(false);
        }
        Ok(classes.union(from, to))
    }
}

/// The cost of an e-node.
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
