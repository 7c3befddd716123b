//! Equality saturation: all programs that rules make of this one at once, and the cheapest of them.
//!
//! What it does: puts what may be exchanged into an e-graph, adds to it what the rules say is
//! equal, until nothing is new or a limit is reached, and takes the cheapest program that it then
//! holds (`extract.rs`). Where rewriting takes the first rule that matches, and never goes back, the
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

use corsac_ir::{FunctionId, Graph, GraphError, NodeId};
use corsac_ops::Host;
use corsac_ops::shape::Settings;
use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::budget::Budget;
use crate::error::PassError;
use crate::pass::{Context, Pass};
use crate::report;
use crate::simplify;
use crate::tensors::TensorFacts;

use plan::Plan;

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
