//! Search for matches of a pattern, and their replacement.

use corsac_ir::matching::{
    Match, MatchError, MatchHost, MatchOptions, Parameter, Query, Schema, SubgraphMatcher,
};
use corsac_ir::rewrite::Replaced;
use corsac_ir::{ExternalId, FunctionId, Graph, Op};
use pyo3::exceptions::PyIndexError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::collector::PausedCollector;
use crate::error::match_error;
use crate::graph::PyGraph;
use crate::graph::node::PyNode;
use crate::rewriting::{check_distinct, replace_all};

/// An operator, and its parameters: name, whether by keyword only, default value.
type OperatorSchema<'py> = (Bound<'py, PyAny>, Vec<(String, bool, Bound<'py, PyAny>)>);

/// Parts of a match: a map from nodes of the pattern to values, the values of its placeholders, the
/// values that it returns.
type MatchedNodes<'py> = (Bound<'py, PyDict>, Bound<'py, PyList>, Bound<'py, PyList>);

/// The matches of a pattern in a graph.
#[pyclass(name = "Matches", module = "corsac._core", frozen)]
pub(crate) struct PyMatches {
    pattern: Py<PyGraph>,
    graph: Py<PyGraph>,
    found: Vec<Match>,
}

/// Finds all matches of `pattern` in `graph`.
///
/// `schemas` has the operators in the pattern whose calls may pass the same arguments in different
/// ways. `same_attribute(wanted, found)` returns whether an attribute that the pattern reads may
/// stand for one that the graph reads.
#[pyfunction]
#[pyo3(signature = (
    pattern, graph, *, match_output, match_placeholder, remove_overlapping_matches,
    ignore_literals, node_name_match, schemas, same_attribute
))]
#[expect(
    clippy::too_many_arguments,
    reason = "keywords, one for each option that Python has"
)]
pub(crate) fn match_subgraph<'py>(
    pattern: &Bound<'py, PyGraph>,
    graph: &Bound<'py, PyGraph>,
    match_output: bool,
    match_placeholder: bool,
    remove_overlapping_matches: bool,
    ignore_literals: bool,
    node_name_match: &str,
    schemas: Vec<OperatorSchema<'py>>,
    same_attribute: Bound<'py, PyAny>,
) -> PyResult<PyMatches> {
    let options = MatchOptions {
        match_output,
        match_placeholder,
        remove_overlapping_matches,
        ignore_literals,
    };
    let schemas = read_schemas(pattern, graph, schemas)?;
    let (wanted, searched) = (pattern.try_borrow()?, graph.try_borrow()?);
    // Python decides which nodes may be without users, and has checked that.
    let matcher = SubgraphMatcher::with_effects(wanted.ir(), options, |_| true);
    let mut host = Objects {
        pattern: &wanted,
        graph: &searched,
        same_attribute,
        failure: None,
    };
    let query = Query {
        name: node_name_match,
        schemas: &schemas,
    };
    let found = matcher
        .map_err(match_error)?
        .find_with(searched.ir(), &mut host, query);
    if let Some(failure) = host.failure {
        return Err(failure);
    }
    Ok(PyMatches {
        pattern: pattern.clone().unbind(),
        graph: graph.clone().unbind(),
        found: found.map_err(|Failure(error)| error)?,
    })
}

/// The schemas of the operators that the pattern calls; default values become arguments of `graph`.
fn read_schemas<'py>(
    pattern: &Bound<'py, PyGraph>,
    graph: &Bound<'py, PyGraph>,
    schemas: Vec<OperatorSchema<'py>>,
) -> PyResult<Vec<(FunctionId, Schema)>> {
    let mut read = Vec::with_capacity(schemas.len());
    for (operator, parameters) in schemas {
        let id = pattern
            .try_borrow()?
            .host()
            .known_function(operator.as_unbound());
        let Some(id) = id else { continue };
        let parameters = PyGraph::change(graph, |reader| {
            let parameter = |(name, keyword_only, default): (String, bool, Bound<'py, PyAny>)| {
                Ok(Parameter {
                    name,
                    keyword_only,
                    default: reader.arg(&default, 0)?,
                })
            };
            parameters.into_iter().map(parameter).collect()
        })?;
        read.push((id, Schema { parameters }));
    }
    Ok(read)
}

/// Compares Python objects for the search.
struct Objects<'a, 'py> {
    pattern: &'a PyRef<'py, PyGraph>,
    graph: &'a PyRef<'py, PyGraph>,
    same_attribute: Bound<'py, PyAny>,
    /// Exception raised by the comparison of two functions.
    failure: Option<PyErr>,
}

struct Failure(PyErr);

impl From<MatchError> for Failure {
    fn from(error: MatchError) -> Self {
        Self(match_error(error))
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self(error)
    }
}

impl MatchHost for Objects<'_, '_> {
    type Error = Failure;

    fn same_function(
        &mut self,
        (pattern, wanted): (&Graph, FunctionId),
        (graph, function): (&Graph, FunctionId),
    ) -> bool {
        let py = self.same_attribute.py();
        let objects = (
            self.pattern.host().function_object(wanted),
            self.graph.host().function_object(function),
        );
        let (Some(a), Some(b)) = objects else {
            // Parsed graphs know functions by name.
            return pattern.function_name(wanted) == graph.function_name(function);
        };
        // Methods bound to an object are equal without being identical.
        a.is(b)
            || a.bind(py).eq(b).unwrap_or_else(|error| {
                self.failure.get_or_insert(error);
                false
            })
    }

    fn same_value(
        &mut self,
        (_, wanted): (&Graph, ExternalId),
        (_, value): (&Graph, ExternalId),
    ) -> Result<bool, Failure> {
        let py = self.same_attribute.py();
        let a = self.pattern.host().external_object(py, wanted);
        let b = self.graph.host().external_object(py, value);
        Ok(a.is(&b) || (a.get_type().is(b.get_type()) && a.eq(b)?))
    }

    fn same_attribute(&mut self, wanted: &str, found: &str) -> Result<bool, Failure> {
        Ok(self.same_attribute.call1((wanted, found))?.is_truthy()?)
    }
}

impl PyMatches {
    fn at(&self, index: usize) -> PyResult<&Match> {
        self.found
            .get(index)
            .ok_or_else(|| PyIndexError::new_err(format!("there is no match {index}")))
    }

    /// The values of a match for nodes of the pattern.
    fn nodes_map<'py>(&self, py: Python<'py>, matched: &Match) -> PyResult<Bound<'py, PyDict>> {
        let (pattern, graph) = (self.pattern.bind(py), self.graph.bind(py));
        let (wanted, searched) = (pattern.try_borrow()?, graph.try_borrow()?);
        let writer = searched.writer(graph);
        let map = PyDict::new(py);
        for (id, bound) in matched.bindings() {
            map.set_item(
                PyNode::handle(pattern, wanted.host(), *id)?,
                writer.arg(bound)?,
            )?;
        }
        Ok(map)
    }
}

#[pymethods]
impl PyMatches {
    fn __len__(&self) -> usize {
        self.found.len()
    }

    /// Parts of match number `index`: a map from nodes of the pattern to values, the values of the
    /// pattern's placeholders, and the values that it returns.
    fn nodes<'py>(&self, py: Python<'py>, index: usize) -> PyResult<MatchedNodes<'py>> {
        let matched = self.at(index)?;
        let map = self.nodes_map(py, matched)?;
        let graph = self.graph.bind(py);
        let searched = graph.try_borrow()?;
        let writer = searched.writer(graph);
        let (placeholders, returning) = (PyList::empty(py), PyList::empty(py));
        for bound in matched.placeholders() {
            placeholders.append(writer.arg(bound)?)?;
        }
        for bound in matched.returning() {
            returning.append(writer.arg(bound)?)?;
        }
        Ok((map, placeholders, returning))
    }

    /// Replaces all matches by `replacement`. Returns for each `result(anchor, nodes_map)`, or with
    /// `list_added` `result(anchor, nodes_map, added)`, where `nodes_map` maps nodes of the pattern
    /// to values. No hooks are called.
    fn replace<'py>(
        &self,
        py: Python<'py>,
        replacement: &Bound<'py, PyGraph>,
        anchor: &Bound<'py, PyAny>,
        result: &Bound<'py, PyAny>,
        list_added: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let (pattern, graph) = (self.pattern.bind(py), self.graph.bind(py));
        check_distinct(graph, pattern, "pattern")?;
        check_distinct(graph, replacement, "replacement")?;
        let _paused = PausedCollector::new(py)?;
        // Nodes keep their handles when they are removed from the graph, if they have one by then.
        let maps = self.found.iter().map(|matched| self.nodes_map(py, matched));
        let maps = maps.collect::<PyResult<Vec<_>>>()?;
        let (replaced, outcome) = replace_all(graph, pattern, &self.found, replacement)?;
        outcome?;

        let (wanted, searched) = (pattern.try_borrow()?, graph.try_borrow()?);
        let writer = searched.writer(graph);
        let placeholders = wanted.ir().find_nodes(Op::Placeholder, None);
        let placeholders = placeholders.into_iter();
        let placeholders = placeholders.map(|id| PyNode::handle(pattern, wanted.host(), id));
        let placeholders = placeholders.collect::<PyResult<Vec<_>>>()?;
        let describe = |(done, map): (&Replaced, Bound<'py, PyDict>)| {
            for (placeholder, bound) in placeholders.iter().zip(done.matched.placeholders()) {
                map.set_item(placeholder, writer.arg(bound)?)?;
            }
            if !list_added {
                return result.call1((anchor, map));
            }
            let added = done
                .added()
                .map(|id| PyNode::handle(graph, searched.host(), id));
            let added = PyList::new(py, added.collect::<PyResult<Vec<_>>>()?)?;
            result.call1((anchor, map, added))
        };
        let results = replaced.iter().zip(maps).map(describe);
        PyList::new(py, results.collect::<PyResult<Vec<_>>>()?)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.pattern)?;
        visit.call(&self.graph)
    }
}
