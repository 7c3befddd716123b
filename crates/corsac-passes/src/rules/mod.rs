//! Rewrite rules as data.
//!
//! A [`Rule`] is a pattern, a condition and a result; [`parse()`] reads it from its text form, one
//! rule on a line ([`mod@parse`] has the grammar), and `docs/rules.md` explains the language:
//!
//! ```text
//! sub_zero: sub(?x, 0) => ?x  if same_dtype(?x, result)
//! ```
//!
//! A [`RuleSet`] compiles rules into one matcher, and a [`Session`] applies them to a graph: every
//! node is visited once, and again only where a rewrite could have enabled a rule, so that time
//! grows with the graph and the rewrites, and hardly with the number of rules.
//!
//! Operators match by identity, not by spelling: a pattern `add(?x, ?y)` matches `torch.add`,
//! `operator.add`, `Tensor.add` and `torch.ops.aten.add.Tensor`, with arguments by position or
//! keyword ([`corsac_ops::operator_name`], [`corsac_ops::signature`]).
//!
//! A rewrite is made only where it makes no observable difference in writes and in shared storage;
//! where a pattern matches and a rule is not applied, the [`Site`] has the reason.
//!
//! ```
//! use corsac_ir::Graph;
//! use corsac_ops::Unhosted;
//! use corsac_passes::{Budget, TensorFacts};
//! use corsac_passes::rules::{RuleSet, parse, rewrite};
//!
//! let mut graph = Graph::new();
//! let x = graph.placeholder("x")?;
//! let neg = graph.call_method("neg", [x.into()])?;
//! let torch_neg = graph.function("torch.neg");
//! let twice = graph.call_function(torch_neg, [neg.into()])?;
//! let y = graph.call_method("relu", [twice.into()])?;
//! graph.output(y)?;
//!
//! let rules = RuleSet::new(parse("double_negation: neg(neg(?x)) => ?x")?);
//! let mut budget = Budget::unlimited();
//! let sites = rewrite(&mut graph, &rules, &Unhosted, TensorFacts::new(), &mut budget)?;
//! assert_eq!(sites.len(), 1);
//! assert_eq!(graph.len(), 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod call;
pub(crate) mod compiled;
pub(crate) mod condition;
mod dtypes;
pub(crate) mod hazards;
mod index;
pub mod parse;
pub(crate) mod rule;
pub(crate) mod rule_set;
pub(crate) mod search;
pub(crate) mod session;
mod sizes;
mod traced;
pub(crate) mod vocabulary;

#[cfg(test)]
mod tests;

pub use parse::{RuleError, parse};
pub use rule::{
    Call, Callee, Comparison, Condition, Function, Item, Key, Literal, Operand, Pattern, Place,
    Predicate, Replacement, Rule, Value, Var, is_commutative,
};
pub use rule_set::RuleSet;
pub use session::{Answer, MatchView, NoRuleHost, Options, Plan, RuleHost, Session};
pub use traced::{
    FunctionNames, ModulePattern, TracedRuleError, from_graphs, replacement_from_graph,
};

use corsac_ir::Graph;
use corsac_ir::rewrite::RewriteError;
use corsac_ops::Host;
use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::budget::Budget;
use crate::error::PassError;
use crate::report::Site;
use crate::tensors::TensorFacts;

/// Why rules could not be applied.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RulesError {
    /// The graph cannot be analysed.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// A rewrite was refused: the graph has changed meanwhile.
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
}

/// Applies rules to a graph until none matches any more, or the budget is used up. Returns the places
/// where patterns matched, with the rules, by their place in the set.
///
/// # Errors
/// [`RulesError::Pass`] if a node uses one that comes after it.
pub fn rewrite(
    graph: &mut Graph,
    set: &RuleSet,
    host: &dyn Host,
    facts: TensorFacts,
    budget: &mut Budget,
) -> Result<Vec<(usize, Site)>, RulesError> {
    let (functions, names) = (FxHashMap::default(), FxHashMap::default());
    let options = Options::within(budget);
    let mut session = Session::new(set, graph, host, facts, &functions, &names, options)?;
    let outcome = session.run(graph, &mut NoRuleHost);
    budget.take_up_to(session.made());
    outcome?;
    Ok(session.sites(graph))
}
