//! Equality saturation on graphs of Python.

use std::time::Duration;

use corsac_ir::Arg;
use corsac_passes::rules::RuleSet;
use corsac_passes::saturate::{
    CostError, CostModel, CostTable, Directions, Names, Options, PricedCall, Ready, Report,
    Roofline, SaturateError, Saturation,
};
use corsac_passes::{Budget, TensorFact, simplify};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::FxHashMap;

use crate::analysis::settings;
use crate::budget::{PyBudget, within};
use crate::effects::{Facts, tensor_facts};
use crate::error::{graph_error, pass_error};
use crate::graph::PyGraph;
use crate::passes::{RawSite, finish, raw_sites};
use crate::rules::{PyRuleSet, names_of, result_functions};

/// Outcome: sites, statistics, merges by rule, rules left out with the reason.
type Found = (
    Vec<RawSite>,
    (usize, usize, usize, &'static str, f64, f64),
    Vec<(String, usize)>,
    Vec<(String, &'static str)>,
);

/// Finds the cheapest equivalent of `graph` by the rules, and changes the graph to it. Without
/// `rules`, the laws of algebra apply. `cost` is a dictionary from operators or targets to numbers,
/// or `cost(target, types)`, where `make_types(operands, result)` makes `types`.
#[pyfunction]
#[pyo3(signature = (
    graph, rules, cost, make_types, *, max_nodes, max_seconds, iterations, fast_math = false,
    budget = None,
))]
#[expect(
    clippy::too_many_arguments,
    reason = "they are the function's in Python"
)]
pub(crate) fn saturate(
    graph: &Bound<'_, PyGraph>,
    rules: Option<&Bound<'_, PyRuleSet>>,
    cost: Option<&Bound<'_, PyAny>>,
    make_types: &Bound<'_, PyAny>,
    max_nodes: usize,
    max_seconds: Option<f64>,
    iterations: usize,
    fast_math: bool,
    budget: Option<&Bound<'_, PyBudget>>,
) -> PyResult<Found> {
    let py = graph.py();
    let max_time = match max_seconds {
        None => None,
        Some(seconds) => Some(Duration::try_from_secs_f64(seconds).map_err(|_| {
            PyValueError::new_err(format!("max_seconds must be at least 0, got {seconds}"))
        })?),
    };
    let options = Options {
        max_nodes,
        max_time,
        iterations,
        settings: settings(py)?,
    };
    let none = FxHashMap::default();
    let (directions, callables) = match rules {
        Some(rules) => (
            Directions::of(rules.get().set.rules()),
            &rules.get().callables,
        ),
        None => (Directions::of(&simplify::equalities(fast_math)), &none),
    };
    let names = names(graph, directions.set(), callables)?;
    let mut model = Model::of(graph, cost, make_types)?;
    let facts = Facts::of_graph(graph)?;
    let tensors = tensor_facts(graph)?;
    let ready = PyGraph::edit(graph, |ir| Ok(Ready::new(ir, &directions, &names)))?;
    // Costs may come from Python: the budget is not held meanwhile.
    let left = within(budget, |budget| Ok(budget.left()))?;
    let mut own = left.map_or_else(Budget::unlimited, Budget::of);
    let found = {
        let borrowed = graph.try_borrow()?;
        ready.search(
            borrowed.ir(),
            &facts,
            &tensors,
            model.as_dyn(),
            options,
            &mut own,
        )
    };
    let found = found.map_err(|error| model.failure().unwrap_or_else(|| saturate_error(error)))?;
    let spent = usize::try_from(own.spent()).unwrap_or(usize::MAX);
    within(budget, |budget| Ok(budget.take_up_to(spent)))?;
    apply(graph, found)
}

fn names(
    graph: &Bound<'_, PyGraph>,
    set: &RuleSet,
    callables: &FxHashMap<String, Py<PyAny>>,
) -> PyResult<Names> {
    Ok(Names {
        functions: result_functions(graph, set, callables)?,
        own: names_of(graph, callables)?,
    })
}

fn apply(graph: &Bound<'_, PyGraph>, found: Saturation) -> PyResult<Found> {
    let (report, applied) = PyGraph::edit(graph, |ir| found.apply(ir).map_err(graph_error))?;
    finish(graph, &applied.added, &applied.erased)?;
    let Report {
        iterations,
        e_nodes,
        classes,
        stop,
        cost_before,
        cost_after,
        sites,
        merged,
        left_out,
        ..
    } = report;
    let numbers = (
        iterations,
        e_nodes,
        classes,
        stop.as_str(),
        cost_before,
        cost_after,
    );
    Ok((raw_sites(sites), numbers, merged, left_out))
}

fn saturate_error(error: SaturateError) -> PyErr {
    match error {
        SaturateError::Pass(error) => pass_error(error),
        SaturateError::Graph(error) => graph_error(error),
        other => PyValueError::new_err(other.to_string()),
    }
}

/// Source of costs.
enum Model<'a, 'py> {
    Estimated(Roofline),
    Table(CostTable),
    Asked(Asked<'a, 'py>),
}

impl<'a, 'py> Model<'a, 'py> {
    fn of(
        graph: &'a Bound<'py, PyGraph>,
        cost: Option<&Bound<'py, PyAny>>,
        make_types: &'a Bound<'py, PyAny>,
    ) -> PyResult<Self> {
        let Some(cost) = cost else {
            return Ok(Self::Estimated(Roofline::default()));
        };
        if let Ok(table) = cost.cast::<PyDict>() {
            return Ok(Self::Table(CostTable {
                by_name: table.extract()?,
                default: 1.0,
            }));
        }
        if !cost.is_callable() {
            let kind = cost.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "cost must be a dictionary or a callable, got {kind}"
            )));
        }
        Ok(Self::Asked(Asked {
            graph,
            cost: cost.clone(),
            make_types,
            failure: None,
        }))
    }

    fn as_dyn(&mut self) -> &mut dyn CostModel {
        match self {
            Self::Estimated(model) => model,
            Self::Table(model) => model,
            Self::Asked(model) => model,
        }
    }

    /// The exception that Python raised, if any.
    fn failure(&mut self) -> Option<PyErr> {
        match self {
            Self::Asked(asked) => asked.failure.take(),
            Self::Estimated(_) | Self::Table(_) => None,
        }
    }
}

/// Costs from a function of Python.
struct Asked<'a, 'py> {
    graph: &'a Bound<'py, PyGraph>,
    cost: Bound<'py, PyAny>,
    make_types: &'a Bound<'py, PyAny>,
    failure: Option<PyErr>,
}

impl<'py> Asked<'_, 'py> {
    fn ask(&self, call: &PricedCall<'_>) -> PyResult<f64> {
        let py = self.graph.py();
        let operands = call.operands.iter().map(|fact| self.describe(fact));
        let operands = operands.collect::<PyResult<Vec<_>>>()?;
        let operands = PyTuple::new(py, operands)?;
        let types = self
            .make_types
            .call1((operands, self.describe(call.result)?))?;
        self.cost.call1((call.target, types))?.extract()
    }

    /// Element type and shape, each `None` where it is unknown.
    fn describe(&self, fact: &TensorFact) -> PyResult<Bound<'py, PyAny>> {
        let py = self.graph.py();
        let dtype = match fact.dtype {
            Some(dtype) => {
                let borrowed = self.graph.try_borrow()?;
                Some(borrowed.writer(self.graph).arg(&Arg::DType(dtype))?)
            }
            None => None,
        };
        let shape = fact.shape.as_ref();
        let shape = shape.map(|shape| PyTuple::new(py, shape)).transpose()?;
        Ok((dtype, shape).into_pyobject(py)?.into_any())
    }
}

impl CostModel for Asked<'_, '_> {
    fn cost(&mut self, call: &PricedCall<'_>) -> Result<f64, CostError> {
        self.ask(call).map_err(|failure| {
            self.failure = Some(failure);
            CostError::Host {
                target: call.target.to_owned(),
            }
        })
    }
}
