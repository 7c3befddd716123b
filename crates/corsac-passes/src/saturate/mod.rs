//! Equality saturation: the cheapest of all programs that rules make of one.
//!
//! Enters the nodes that may be exchanged into an e-graph, adds the equalities that follow from the
//! rules, until nothing is new or a limit is reached, and extracts the cheapest program
//! (`extract.rs`). While rewriting takes the first rule that matches, and never goes back, the
//! order of rules makes no difference here, and rules may go both ways.
//!
//! Needs: a graph in which definitions come before uses. Rules that depend on types or shapes need
//! them to be known ([`TensorFacts`]); types of new calls are found by the operator catalogue.
//!
//! Not exchanged: nodes with effects, nodes that read or compute a value that is written to
//! anywhere, and views that the caller gets. No node is moved across a barrier, a call that may
//! change the results of others. Values that the caller gets share storage with no more than
//! before.
//!
//! Preserves: names, order and metadata of the nodes that stay; a replacement has the name, origin
//! and metadata of the node. The cost never grows: only cheaper programs are taken.
//!
//! ```text
//! a = x @ w1                    add = w1 + w2
//! b = x @ w2                →   y = x @ add
//! y = a + b
//! ```
//!
//! With the same program, rules, cost model and limits on nodes and iterations the result is the
//! same; a run that ends because its time is over may have another result the next time.
//!
//! Reference: R. Tate et al., "Equality saturation: a new approach to optimization", POPL 2009; M.
//! Willsey et al., "egg: fast and extensible equality saturation", POPL 2021, whose e-graph is
//! used. `egglog` adds Datalog rules, which are not needed: patterns, conditions and literals here
//! are those of [`crate::rules`].

mod chosen;
mod cost;
mod directions;
mod extract;
mod language;
mod plan;
mod region;
mod run;
mod search;

#[cfg(test)]
mod tests;

pub use cost::{CostError, CostModel, CostTable, PricedCall, Roofline};
pub use directions::Directions;
pub use plan::Applied;
pub use run::Ready;

use std::fmt;
use std::time::Duration;

use corsac_ir::{FunctionId, Graph, GraphError};
use corsac_ops::Host;
use corsac_ops::shape::Settings;
use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::budget::Budget;
use crate::error::PassError;
use crate::report::Site;
use crate::tensors::TensorFacts;

use plan::Plan;

/// Limits and settings of saturation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Maximum number of e-nodes that rules add to those of the program.
    pub max_nodes: usize,
    /// Maximum time until the search for the cheapest program ends.
    pub max_time: Option<Duration>,
    /// Maximum number of iterations over all rules.
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

/// Why saturation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// The e-graph holds all equalities that follow from the rules.
    Saturated,
    /// The maximum number of iterations was reached.
    Iterations,
    /// The maximum number of e-nodes was reached.
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

/// Outcome of saturation.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Number of iterations over the rules.
    pub iterations: usize,
    /// E-nodes at the end.
    pub e_nodes: usize,
    /// Classes of equal values at the end.
    pub classes: usize,
    /// Why it ended.
    pub stop: Stop,
    /// The cost of all nodes that may be exchanged.
    pub cost_before: f64,
    /// The cost of the nodes in their place.
    pub cost_after: f64,
    /// Number of changes of the budget used.
    pub changes: u64,
    /// Nodes that are, or would be, replaced.
    pub sites: Vec<Site>,
    /// For each rule that made different classes equal, how often it did.
    pub merged: Vec<(String, usize)>,
    /// Rules that cannot be used here, with the reason.
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

/// The planned replacements, for each region.
#[derive(Debug)]
pub struct Saturation {
    plans: Vec<Plan>,
    report: Report,
}

impl Saturation {
    /// The outcome so far.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Changes the graph.
    ///
    /// # Errors
    /// If the graph has changed since.
    pub fn apply(self, graph: &mut Graph) -> Result<(Report, Applied), GraphError> {
        let mut now = FxHashMap::default();
        let mut applied = Applied::default();
        for plan in self.plans {
            plan.apply(graph, &mut now, &mut applied)?;
        }
        applied.replaced.sort_unstable();
        let mut report = self.report;
        for site in &mut report.sites {
            site.other = applied.in_place_of(graph, site.node);
        }
        Ok((report, applied))
    }
}

/// Names of the graph's functions, as its host knows them.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Functions that results of rules call, by their names in the rules.
    pub functions: FxHashMap<String, FunctionId>,
    /// Functions that have another name in rules than their qualified one.
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
