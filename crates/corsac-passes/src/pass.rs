//! The protocol of passes: a plan with every place that a pass considers, and its application.

use std::sync::LazyLock;

use corsac_ir::canonical::{ByOccurrence, ExternalIdentity};
use corsac_ir::{DType, FunctionId, Graph, NodeId};
use corsac_ops::shape::{NoModules, TypeHost, Value};
use corsac_ops::{Host, Unhosted};
use rustc_hash::FxHashSet;

use crate::budget::Budget;
use crate::edits::{Edits, replace};
use crate::error::PassError;
use crate::report::{Refusal, Site};
use crate::tensors::TensorFacts;

/// The inputs of passes besides the graph, and their budget.
pub struct Context<'a> {
    /// Facts that only the host has: modules, functions, effects, for passes with [`Needs::host`].
    pub host: &'a dyn Host,
    /// The attributes of modules, for passes with [`Needs::attributes`].
    pub types: &'a dyn TypeHost,
    /// Shapes and element types where they are known, for passes with [`Needs::tensors`].
    pub tensors: &'a TensorFacts,
    /// Texts of opaque values, for passes with [`Needs::texts`].
    pub texts: &'a dyn ExternalIdentity,
    /// The changes that may still be made.
    pub budget: &'a mut Budget,
}

static NO_TENSORS: LazyLock<TensorFacts> = LazyLock::new(TensorFacts::new);

impl<'a> Context<'a> {
    /// A context with a budget, and without facts of a host.
    pub fn within(budget: &'a mut Budget) -> Self {
        Self {
            host: &Unhosted,
            types: &NoModules,
            tensors: &NO_TENSORS,
            texts: &ByOccurrence,
            budget,
        }
    }
}

/// The facts that a pass reads; a host need not collect others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Modules, functions and their effects.
    pub host: bool,
    /// Attributes of modules.
    pub attributes: bool,
    /// Shapes and element types of values, of attributes too if those are read.
    pub tensors: bool,
    /// Texts of opaque values.
    pub texts: bool,
}

/// The value of an option.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Setting {
    /// Whether something is done.
    Flag(bool),
    /// A function of the graph.
    Function(FunctionId),
    /// Nodes of the graph.
    Nodes(FxHashSet<NodeId>),
    /// Names, such as those of classes.
    Names(FxHashSet<String>),
    /// An element type.
    DType(DType),
}

impl Setting {
    /// Sets a flag; returns false if it is of another kind.
    pub(crate) fn put_flag(self, option: &mut bool) -> bool {
        let Self::Flag(flag) = self else {
            return false;
        };
        *option = flag;
        true
    }
}

/// A transform that preserves the results of a program.
pub trait Pass {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// Sets one of its options; returns false if it has none of this name and kind.
    fn set(&mut self, _option: &str, _setting: Setting) -> bool {
        false
    }

    /// The facts that it reads.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Finds the places to change, within the budget, without changing the graph.
    ///
    /// # Errors
    /// If the graph does not meet the needs of the pass.
    fn plan(&self, graph: &Graph, context: &mut Context<'_>) -> Result<Plan, PassError>;
}

/// The changes of a plan.
pub(crate) type Apply =
    dyn FnOnce(&mut Graph, &Functions<'_>, &mut [Site], Vec<Request>) -> Result<Edits, PassError>;

/// Finds a function of the graph by its qualified name, among those of [`Plan::functions`].
pub type Functions<'f> = dyn Fn(&mut Graph, &str) -> FunctionId + 'f;

/// A change that a pass is going to make.
pub enum Changes {
    /// Erases nodes, in this order.
    Erase(Vec<NodeId>),
    /// Replaces each first node by the second, which stays, and erases it.
    Replace(Vec<(NodeId, NodeId)>),
    /// Other changes; they may refuse sites that depend on earlier ones, and use what the host has
    /// made for [requests](Plan::requests).
    Other(Box<Apply>),
}

/// Objects that the host has to make before the graph is changed, such as a module or weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The site that it is for, by its place in the plan.
    pub site: usize,
    /// Facts for the host, by name.
    pub facts: Vec<(&'static str, Value)>,
    /// The qualified names of what the host has made.
    pub names: Vec<String>,
}

impl Request {
    pub(crate) fn new(site: usize, facts: Vec<(&'static str, Value)>) -> Self {
        let names = Vec::new();
        Self { site, facts, names }
    }
}

/// A qualified name as a fact, or none.
pub(crate) fn path(name: Option<String>) -> Value {
    name.map_or(Value::None, |name| Value::Str(name.into()))
}

/// The host makes nothing.
const NOTHING_MADE: Refusal = Refusal::because("nothing takes its place");

impl Default for Changes {
    fn default() -> Self {
        Self::Erase(Vec::new())
    }
}

/// Every place that a pass considers, and its changes.
#[derive(Default)]
pub struct Plan {
    /// The places, in the order of the report.
    pub sites: Vec<Site>,
    /// The qualified names of the functions that new calls have as targets.
    pub functions: Vec<String>,
    /// Objects that the host has to make first: it adds names to each, or refuses its site.
    pub requests: Vec<Request>,
    /// The changes.
    pub changes: Changes,
}

/// Places that a pass has considered, and the nodes that it has added and erased.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The places.
    pub sites: Vec<Site>,
    /// The added and erased nodes.
    pub edits: Edits,
}

impl Report {
    /// Whether a change was made.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.sites.iter().any(Site::is_applied)
    }

    /// The refusal of each site.
    #[must_use]
    pub fn refusals(&self) -> Vec<Option<Refusal>> {
        self.sites.iter().map(|site| site.refusal.clone()).collect()
    }
}

impl Plan {
    /// A plan with changes that only its closure knows, and the functions that it calls.
    pub(crate) fn other(
        sites: Vec<Site>,
        functions: Vec<String>,
        apply: impl FnOnce(
            &mut Graph,
            &Functions<'_>,
            &mut [Site],
            Vec<Request>,
        ) -> Result<Edits, PassError>
        + 'static,
    ) -> Self {
        Self {
            sites,
            functions,
            requests: Vec::new(),
            changes: Changes::Other(Box::new(apply)),
        }
    }

    /// Whether there is a change to make.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.sites.iter().any(Site::is_applied)
    }

    /// Changes the graph; `function` finds functions of the graph.
    ///
    /// # Errors
    /// If the graph is not the one that the plan was made for.
    pub fn apply(
        mut self,
        graph: &mut Graph,
        function: &Functions<'_>,
    ) -> Result<Report, PassError> {
        for request in &self.requests {
            let refusal = &mut self.sites[request.site].refusal;
            if request.names.is_empty() && refusal.is_none() {
                *refusal = Some(NOTHING_MADE);
            }
        }
        if !self.changes() {
            let (sites, edits) = (self.sites, Edits::default());
            return Ok(Report { sites, edits });
        }
        let edits = match self.changes {
            Changes::Erase(nodes) => {
                for &node in &nodes {
                    graph.erase(node)?;
                }
                Edits::of_erased(nodes)
            }
            Changes::Replace(pairs) => {
                replace(graph, &pairs)?;
                Edits::of_erased(pairs.into_iter().map(|(node, _)| node).collect())
            }
            Changes::Other(apply) => apply(graph, function, &mut self.sites, self.requests)?,
        };
        Ok(Report {
            sites: self.sites,
            edits,
        })
    }
}

/// Runs a pass on a graph whose functions are known by name only; the verifier checks the result in
/// debug builds.
///
/// ```
/// use corsac_ir::Graph;
/// use corsac_passes::{Budget, Context, registry, run};
///
/// let mut graph = Graph::new();
/// let x = graph.placeholder("x")?;
/// let a = graph.call_method("cos", [x.into()])?;
/// let b = graph.call_method("cos", [x.into()])?;
/// graph.call_method("sin", [b.into()])?;
/// graph.output(a)?;
/// let mut budget = Budget::of(1);
/// for pass in registry() {
///     run(&*pass, &mut graph, &mut Context::within(&mut budget))?;
/// }
/// assert_eq!((budget.spent(), graph.len()), (1, 4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the graph does not meet the needs of the pass; it is then unchanged.
pub fn run(
    pass: &dyn Pass,
    graph: &mut Graph,
    context: &mut Context<'_>,
) -> Result<Report, PassError> {
    let plan = pass.plan(graph, context)?;
    let report = plan.apply(graph, &|graph, name| graph.function(name))?;
    debug_assert!(graph.verify().is_ok(), "{} broke the graph", pass.name());
    Ok(report)
}

#[cfg(test)]
pub(crate) mod testing {
    //! Runs of passes with few facts.

    use super::{Budget, Context, Graph, Host, Pass, Report, TensorFacts, run as run_in_context};

    fn run(
        pass: &dyn Pass,
        graph: &mut Graph,
        (host, tensors): (&dyn Host, &TensorFacts),
        budget: &mut Budget,
    ) -> Report {
        let mut context = Context {
            host,
            tensors,
            ..Context::within(budget)
        };
        run_in_context(pass, graph, &mut context).unwrap()
    }

    /// Without known shapes.
    pub(crate) fn run_on(pass: &dyn Pass, graph: &mut Graph, host: &dyn Host) -> Report {
        run_with(pass, graph, host, &TensorFacts::new())
    }

    /// With these shapes and element types.
    pub(crate) fn run_with(
        pass: &dyn Pass,
        graph: &mut Graph,
        host: &dyn Host,
        tensors: &TensorFacts,
    ) -> Report {
        run(pass, graph, (host, tensors), &mut Budget::unlimited())
    }

    /// With at most `limit` changes.
    pub(crate) fn run_within(
        limit: u64,
        pass: &dyn Pass,
        graph: &mut Graph,
        host: &dyn Host,
    ) -> Report {
        let facts = (host, &TensorFacts::new());
        run(pass, graph, facts, &mut Budget::of(limit))
    }
}
