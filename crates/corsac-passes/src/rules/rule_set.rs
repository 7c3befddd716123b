//! Sets of rules.

use rustc_hash::FxHashMap;

use super::compiled::{Compiled, OperatorId, compile};
use super::index::Index;
use super::rule::{Callee, Rule};

/// Rules that are searched for together, in one traversal of a graph. Where several match at one
/// node, the first one in the set is applied.
///
/// ```
/// use corsac_passes::rules::{RuleSet, parse};
///
/// let rules = parse("double_negation: neg(neg(?x)) => ?x")?;
/// assert_eq!(RuleSet::new(rules).rules().len(), 1);
/// # Ok::<(), corsac_passes::rules::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RuleSet {
    rules: Vec<Rule>,
    pub(crate) compiled: Vec<Compiled>,
    pub(crate) operators: FxHashMap<String, OperatorId>,
    pub(crate) index: Index,
    pub(crate) depth: usize,
}

impl RuleSet {
    /// Compiles rules.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Self {
        let mut operators = FxHashMap::default();
        let compile = |rule: &Rule| Compiled {
            roots: rule
                .roots
                .iter()
                .map(|p| compile(p, &mut operators))
                .collect(),
        };
        let compiled: Vec<_> = rules.iter().map(compile).collect();
        Self {
            index: Index::new(&compiled),
            depth: rules.iter().map(Rule::depth).max().unwrap_or(0),
            rules,
            compiled,
            operators,
        }
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether a pattern has a module in it.
    #[must_use]
    pub fn mentions_modules(&self) -> bool {
        self.operators.keys().any(|name| name.starts_with("nn."))
    }

    /// The callees of new nodes, each once.
    #[must_use]
    pub fn callees(&self) -> Vec<&Callee> {
        let mut seen = rustc_hash::FxHashSet::default();
        let calls = self.rules.iter().flat_map(|rule| &rule.replacement.calls);
        calls
            .map(|call| &call.callee)
            .filter(|callee| seen.insert(*callee))
            .collect()
    }
}
