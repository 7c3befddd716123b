//! `Budget`: a limit on the changes that passes make.

use corsac_passes::{Budget, first_failing};
use pyo3::prelude::*;

/// Limit on the number of changes that passes make, one after the other.
///
/// Each pass asks for one unit before each change that it could make by itself, in a fixed order,
/// and leaves the graph as it is where it gets none; its report then says so. Running with 0, 1, 2,
/// ... units gives graphs of which two neighbours differ in one change, so that a wrong one is
/// found by bisection. Without a limit every change is granted, and counted.
#[pyclass(name = "Budget", module = "corsac._core")]
pub(crate) struct PyBudget {
    budget: Budget,
}

#[pymethods]
impl PyBudget {
    #[new]
    #[pyo3(signature = (limit = None))]
    fn new(limit: Option<u64>) -> Self {
        let budget = limit.map_or_else(Budget::unlimited, Budget::of);
        Self { budget }
    }

    /// Number of changes that may be made in all; None without a limit.
    #[getter]
    fn limit(&self) -> Option<u64> {
        self.budget.limit()
    }

    /// Number of changes made so far.
    #[getter]
    fn spent(&self) -> u64 {
        self.budget.spent()
    }

    /// Number of changes that may still be made; None without a limit.
    #[getter]
    fn left(&self) -> Option<u64> {
        self.budget.left()
    }

    /// Ask for one change; returns whether it may be made.
    fn take(&mut self) -> bool {
        self.budget.take()
    }

    fn __repr__(&self) -> String {
        match self.budget.limit() {
            Some(limit) => format!("Budget({limit}, spent={})", self.budget.spent()),
            None => format!("Budget(spent={})", self.budget.spent()),
        }
    }
}

/// Runs `pass` with the rest of `budget`, or without a limit if there is none.
pub(crate) fn within<T>(
    budget: Option<&Bound<'_, PyBudget>>,
    pass: impl FnOnce(&mut Budget) -> PyResult<T>,
) -> PyResult<T> {
    match budget {
        Some(budget) => pass(&mut budget.try_borrow_mut()?.budget),
        None => pass(&mut Budget::unlimited()),
    }
}

/// Smallest number of changes in 1..=changes for which `fails(number)` is true, given that it is
/// true for `changes` and false for 0.
#[pyfunction]
#[pyo3(name = "first_failing", signature = (changes, fails))]
pub(crate) fn first_failing_change(changes: u64, fails: &Bound<'_, PyAny>) -> PyResult<u64> {
    first_failing(changes, |number| fails.call1((number,))?.is_truthy())
}
