//! Rules for saturation, split by direction.

use crate::rules::{Condition, Predicate, Rule, RuleSet};

/// Rules for saturation: each direction is a rule of its own.
#[derive(Clone, Debug)]
pub struct Directions {
    pub(super) set: RuleSet,
    pub(super) left_out: Vec<(String, &'static str)>,
}

impl Directions {
    /// Splits rules that go both ways in two. Rules that only rewriting can use are left out: those
    /// with several roots, with modules and attributes in the result, with conditions that the host
    /// decides, or about the number of uses of a value, which depends on the final choice.
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
    if rule.replacement.uses_state() {
        return Some("its result calls modules or reads attributes");
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
