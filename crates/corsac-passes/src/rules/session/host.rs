//! Conditions that the host decides, and its view of matches.

use corsac_ir::{Arg, Graph, NodeId};

use super::super::condition::Context;
use super::super::rule::{Rule, Value};

/// The decision of the host on a condition of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It holds.
    Yes,
    /// It does not hold, with the reason.
    No(String),
    /// Rewriting must stop, for example because the host has failed.
    Stop,
}

/// Decides conditions that only the host can decide
/// ([`Condition::Host`](crate::rules::Condition::Host)). The graph cannot change meanwhile.
pub trait RuleHost {
    /// Whether the condition that the host gave the number `condition` holds at a match.
    fn holds(&mut self, condition: usize, matched: &MatchView<'_, '_>) -> Answer;
}

/// A host that is never asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRuleHost;

impl RuleHost for NoRuleHost {
    fn holds(&mut self, _condition: usize, _matched: &MatchView<'_, '_>) -> Answer {
        Answer::No("no host answers the condition of this rule".to_owned())
    }
}

/// A match as the host sees it.
pub struct MatchView<'a, 'g> {
    pub(super) context: Context<'a, 'g>,
    pub(super) number: usize,
}

impl MatchView<'_, '_> {
    /// The graph.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        self.context.graph
    }

    /// The rule.
    #[must_use]
    pub fn rule(&self) -> &Rule {
        self.context.rule
    }

    /// The rule, by its place in the set.
    #[must_use]
    pub fn rule_number(&self) -> usize {
        self.number
    }

    /// The nodes that the roots of the pattern stand for.
    #[must_use]
    pub fn roots(&self) -> &[NodeId] {
        &self.context.found.roots
    }

    /// The variables of the rule with their values, in order; `None` for a value that the graph
    /// cannot express.
    pub fn values(&self) -> impl Iterator<Item = (&str, Option<Arg>)> {
        let names = self.context.rule.variables.iter();
        names.zip(0..).map(|(name, index)| {
            let value = Value::Variable(crate::rules::rule::Var(index));
            (name.as_str(), self.context.value(&value).ok())
        })
    }
}
