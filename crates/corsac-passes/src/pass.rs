//! Running passes one after the other, each within a budget and checked by the verifier.

use corsac_ir::{Graph, LintReport};
use corsac_ops::Host;
use corsac_ops::shape::TypeHost;
use thiserror::Error;

use crate::budget::Budget;
use crate::common_subexpressions;
use crate::conv_bn;
use crate::dead_code;
use crate::division;
use crate::dropout;
use crate::error::PassError;
use crate::functional;
use crate::no_ops;
use crate::normal_form;
use crate::products;
use crate::reinplace;
use crate::report::Report;
use crate::saturate;
use crate::simplify;
use crate::tensors::TensorFacts;
use crate::weights::Weights;

/// The inputs of passes besides the graph, and their budget.
pub struct Context<'a> {
    /// Facts that only the host has: modules, functions, effects.
    pub host: &'a dyn Host,
    /// The attributes of modules, for passes that write them into the program.
    pub types: &'a dyn TypeHost,
    /// Shapes and element types, where they are known.
    pub tensors: &'a TensorFacts,
    /// The weights, for passes that change them; without weights, these do nothing.
    pub weights: Option<&'a mut dyn Weights>,
    /// The changes that may still be made.
    pub budget: Budget,
}

/// A transform that preserves the results of a program.
pub trait Pass {
    /// Its name in reports.
    fn name(&self) -> &str;

    /// Changes `graph`, within the budget, and reports the places.
    ///
    /// # Errors
    /// If the graph does not meet the needs of the pass; it is then unchanged.
    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> Result<Report, PassError>;
}

/// The passes of this crate, for selection by name on a command line or in a configuration. A pass
/// that is missing here is missing from the tests that run over all passes.
#[must_use]
pub fn registry() -> Vec<Box<dyn Pass>> {
    vec![
        Box::new(dropout::RemoveDropout::default()),
        Box::new(no_ops::RemoveNoOps),
        Box::new(simplify::pass(false)),
        Box::new(saturate::Saturate::default()),
        Box::new(division::MultiplyByInverses),
        Box::new(products::MergeProducts),
        Box::new(functional::ModulesToFunctions),
        Box::new(normal_form::Keywords),
        Box::new(normal_form::Operators),
        Box::new(conv_bn::FuseBatchNorms::default()),
        Box::new(common_subexpressions::CommonSubexpressions),
        Box::new(dead_code::DeadCode::default()),
        Box::new(reinplace::Reinplace::default()),
    ]
}

/// Why a sequence of passes stopped.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum RunError {
    /// A pass refused the graph.
    #[error("{pass}: {error}")]
    Refused {
        /// The pass.
        pass: String,
        /// The reason.
        error: PassError,
    },
    /// A pass left a graph that is not well formed.
    #[error("{pass} left a graph that is not well formed: {faults}")]
    Malformed {
        /// The pass.
        pass: String,
        /// The faults that the verifier found.
        faults: LintReport,
    },
}

/// Runs `passes` in order; the verifier checks the graph after each.
///
/// ```
/// use corsac_ir::Graph;
/// use corsac_ops::Unhosted;
/// use corsac_ops::shape::NoModules;
/// use corsac_passes::{Budget, Context, TensorFacts, registry, run_passes};
///
/// let mut graph = Graph::new();
/// let x = graph.placeholder("x")?;
/// let a = graph.call_method("cos", [x.into()])?;
/// let b = graph.call_method("cos", [x.into()])?;
/// graph.call_method("sin", [b.into()])?;
/// graph.output(a)?;
/// let mut context = Context {
///     host: &Unhosted,
///     types: &NoModules,
///     tensors: &TensorFacts::default(),
///     weights: None,
///     budget: Budget::of(1),
/// };
/// let reports = run_passes(&registry(), &mut graph, &mut context)?;
/// assert_eq!(reports.iter().map(|r| r.applied().count()).sum::<usize>(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`RunError`], at the first pass that fails.
pub fn run_passes(
    passes: &[Box<dyn Pass>],
    graph: &mut Graph,
    context: &mut Context<'_>,
) -> Result<Vec<Report>, RunError> {
    let mut reports = Vec::with_capacity(passes.len());
    for pass in passes {
        let report = pass
            .run(graph, context)
            .map_err(|error| RunError::Refused {
                pass: pass.name().to_owned(),
                error,
            })?;
        graph.verify().map_err(|faults| RunError::Malformed {
            pass: pass.name().to_owned(),
            faults,
        })?;
        reports.push(report);
    }
    Ok(reports)
}
