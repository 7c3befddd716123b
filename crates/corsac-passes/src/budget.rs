//! The number of changes that passes may make.

use crate::report::Refusal;

/// The number of changes that passes may make, one after the other.
///
/// A budget makes it possible to find a wrong change: each pass takes one unit before each change
/// that it could make by itself, in a fixed order, and leaves the graph as it is where none is
/// left. Running with 0, 1, 2, … units therefore gives a sequence of graphs of which two neighbours
/// differ in one change ([`first_failing`]). Known as optimisation fuel, from D. Whalley,
/// "Automatic isolation of compiler errors", TOPLAS 1994.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    limit: Option<u64>,
    spent: u64,
}

impl Budget {
    /// Any number of changes.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// At most `limit` changes.
    #[must_use]
    pub fn of(limit: u64) -> Self {
        Self {
            limit: Some(limit),
            spent: 0,
        }
    }

    /// Takes one change; returns whether one was left.
    #[must_use]
    pub fn take(&mut self) -> bool {
        self.take_up_to(1) == 1
    }

    /// Takes one change for `value`; refuses it where none is left.
    pub(crate) fn grant<T>(&mut self, value: T) -> Result<T, Refusal> {
        self.take().then_some(value).ok_or(Refusal::BUDGET)
    }

    /// Takes up to `wanted` changes; returns how many may be made.
    pub fn take_up_to(&mut self, wanted: usize) -> usize {
        let granted = match self.left() {
            Some(left) => wanted.min(usize::try_from(left).unwrap_or(usize::MAX)),
            None => wanted,
        };
        self.spent += granted as u64;
        granted
    }

    /// Maximum number of changes; `None` if unlimited.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Number of changes made.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// Number of changes left; `None` if unlimited.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        Some(self.limit?.saturating_sub(self.spent))
    }
}

/// The smallest number of changes in `1..=changes` with which `fails` returns true, given that it
/// does with all of them and does not with none; calls it about `log2(changes)` times.
///
/// Returns some number that fails while one less does not, if more changes hide a failure again.
///
/// # Errors
/// Those of `fails`.
pub fn first_failing<E>(
    changes: u64,
    mut fails: impl FnMut(u64) -> Result<bool, E>,
) -> Result<u64, E> {
    let (mut good, mut bad) = (0, changes);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fails(middle)? {
            bad = middle;
        } else {
            good = middle;
        }
    }
    Ok(bad)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn no_more_is_granted_than_there_is() {
        let mut budget = Budget::of(3);
        assert!(budget.take());
        assert_eq!(budget.take_up_to(5), 2);
        assert!(!budget.take());
        assert_eq!((budget.spent(), budget.left()), (3, Some(0)));
        let mut any = Budget::unlimited();
        assert_eq!(any.take_up_to(1000), 1000);
        assert_eq!((any.spent(), any.left()), (1000, None));
    }

    #[test]
    fn the_first_bad_change_is_found_in_logarithmic_time() {
        for changes in 1..70 {
            for culprit in 1..=changes {
                let mut asked = 0;
                let found = first_failing(changes, |n| {
                    asked += 1;
                    Ok::<_, Infallible>(n >= culprit)
                });
                assert_eq!(found, Ok(culprit));
                assert!(asked <= 7, "{asked} of {changes}");
            }
        }
    }
}
