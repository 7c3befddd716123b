//! Algebraic simplification: two tables of laws, applied as rewrite rules.
//!
//! The laws of `rules/tables/exact.rules` hold to the last bit, those of
//! `rules/tables/fast_math.rules`, for `fast_math`, up to rounding.
//!
//! Needs: a graph in which definitions come before uses. Laws that depend on types or shapes need
//! them to be known ([`TensorFacts`](crate::TensorFacts)), and are not applied otherwise.
//!
//! Preserves: results, writes, and shared storage where it is observable; names, order and metadata
//! of the nodes that stay. A new node gets the origin of the one that it replaces.
//!
//! ```text
//! a = x.neg()                   y = torch.abs(x)
//! b = a.abs()               →   return y
//! c = b.abs()
//! return c
//! ```
//!
//! Reference: D. Goldberg, "What every computer scientist should know about floating-point
//! arithmetic", ACM Computing Surveys 1991, section 3.2.3, on which laws survive rounding; the
//! shape of the table is that of tinygrad's `symbolic.py`.

use crate::rules::{Rule, parse};

/// The laws that hold to the last bit, as text.
pub const EXACT: &str = include_str!("rules/tables/exact.rules");

/// The laws that hold up to rounding, as text.
pub const FAST_MATH: &str = include_str!("rules/tables/fast_math.rules");

/// Equalities that hold to the last bit and that only saturation can use, as text.
pub const EQUALITIES: &str = include_str!("rules/tables/saturate.rules");

/// Equalities that hold up to rounding and that only saturation can use, as text.
pub const FAST_MATH_EQUALITIES: &str = include_str!("rules/tables/saturate_fast_math.rules");

/// The rules of a table.
fn read(table: &str) -> Vec<Rule> {
    match parse(table) {
        Ok(rules) => rules,
        Err(error) => panic!("a table of laws cannot be read: {error}"),
    }
}

/// The laws: the exact ones, or with `fast_math` all of them.
///
/// # Panics
/// If a table does not parse: they are part of the program, and a test reads them.
#[must_use]
pub fn laws(fast_math: bool) -> Vec<Rule> {
    // Fused forms first: they cover more at once.
    let mut rules = if fast_math {
        read(FAST_MATH)
    } else {
        Vec::new()
    };
    rules.extend(read(EXACT));
    rules
}

/// The laws with the equalities that only [saturation](crate::saturate) can use: the exact ones, or
/// with `fast_math` all of them.
///
/// # Panics
/// As [`laws`].
#[must_use]
pub fn equalities(fast_math: bool) -> Vec<Rule> {
    let mut rules = laws(fast_math);
    rules.extend(read(EQUALITIES));
    if fast_math {
        rules.extend(read(FAST_MATH_EQUALITIES));
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_rules_with_names_of_their_own() {
        let rules = laws(true);
        let names: std::collections::HashSet<_> = rules.iter().map(|r| &r.name).collect();
        assert_eq!(names.len(), rules.len());
        assert!(rules.iter().all(|rule| !rule.name.starts_with("line ")));
        assert!(laws(false).len() < rules.len());
    }
}
