//! Finding the places where a pattern occurs, and replacing them.

use corsac_ir::matching::{
    Match, MatchError, MatchHost, MatchOptions, Parameter, Query, Schema, SubgraphMatcher,
};
use corsac_ir::rewrite::{Replaced, Replacement, Rewriter};
use corsac_ir::{ExternalId, FunctionId, Graph, NodeId, Op};
use pyo3::exceptions::{PyIndexError, PyRuntimeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::{match_error, rewrite_error};
use crate::graph::PyGraph;
use crate::node::PyNode;

/// An operator, and its parameters: name, whether by keyword only, default value.
type OperatorSchema<'py> = (Bound<'py, PyAny>, Vec<(String, bool, Bound<'py, PyAny>)>);

/// What a match maps nodes of the pattern to, what its placeholders stand for, what it returns.
type MatchedNodes<'py> = (Bound<'py, PyDict>, Bound<'py, PyList>, Bound<'py, PyList>);

/// A rewritten match: what it maps nodes of the pattern to, and the nodes that were added.
type ReplacedNodes<'py> = (Bound<'py, PyDict>, Bound<'py, PyList>);

/// The places in a graph where a pattern was found.
#[pyclass(name = "Matches", module = "corsac._core", frozen)]
pub(crate) struct PyMatches {
    pattern: Py<PyGraph>,
    graph: Py<PyGraph>,
    options: MatchOptions,
    found: Vec<Match>,
}

/// Finds all places in `graph` where `pattern` occurs.
///
/// `schemas` has the operators in the pattern whose calls may pass the same arguments in different
/// ways. `same_attribute(wanted, found)` says whether an attribute that the pattern reads may
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
    // Which nodes may be without users is Python's to say, and has been checked there.
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
        options,
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

/// Answers the search by comparing Python objects.
struct Objects<'a, 'py> {
    pattern: &'a PyRef<'py, PyGraph>,
    graph: &'a PyRef<'py, PyGraph>,
    same_attribute: Bound<'py, PyAny>,
    /// What comparing two functions raised.
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

    /// What a match maps nodes of the pattern to.
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

    /// Rewrites the accepted matches, as far as that goes.
    fn rewrite(
        &self,
        py: Python<'_>,
        accepted: &[usize],
        replacement: &Bound<'_, PyGraph>,
        body: &mut Vec<NodeId>,
    ) -> PyResult<(Vec<Replaced>, PyResult<()>)> {
        let (pattern, graph) = (self.pattern.bind(py).try_borrow()?, self.graph.bind(py));
        let matcher = SubgraphMatcher::with_effects(pattern.ir(), self.options, |_| true)
            .map_err(match_error)?;
        let new = replacement.try_borrow()?;
        let mut translation = graph.try_borrow()?.translation(&new);
        let analysed = Replacement::new(new.ir());
        body.extend_from_slice(analysed.body());
        let mut rewriter = Rewriter::new(&matcher);
        let mut replaced = Vec::with_capacity(accepted.len());
        let mut outcome = Ok(());
        let mut released = Vec::new();
        {
            let mut changed = graph.try_borrow_mut()?;
            for &index in accepted {
                let matched = self.at(index)?.clone();
                match rewriter.replace(changed.ir_mut(), matched, &analysed, &mut translation) {
                    Ok(done) => replaced.push(done),
                    Err(error) => {
                        outcome = Err(rewrite_error(error));
                        break;
                    }
                }
            }
            let host = changed.host_mut();
            for done in &replaced {
                for (id, bound) in done.matched.bindings() {
                    let op = pattern.ir().node(*id).op();
                    if let Some(erased) = bound.as_node()
                        && !matches!(op, Op::Placeholder | Op::Output)
                    {
                        released.push(host.release_handle(erased));
                    }
                }
            }
        }
        drop(released);
        PyGraph::adopt(graph, &new, &mut translation)?;
        Ok((replaced, outcome))
    }
}

#[pymethods]
impl PyMatches {
    fn __len__(&self) -> usize {
        self.found.len()
    }

    /// What match number `index` maps nodes of the pattern to, what the placeholders of the
    /// pattern stand for, and what it returns.
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

    /// Puts `replacement` in the place of the matches whose numbers are given, in that order.
    /// No hooks are called.
    fn replace<'py>(
        &self,
        py: Python<'py>,
        accepted: Vec<usize>,
        replacement: &Bound<'py, PyGraph>,
    ) -> PyResult<Vec<ReplacedNodes<'py>>> {
        let graph = self.graph.bind(py);
        if graph.is(replacement) || graph.is(&self.pattern) {
            return Err(PyRuntimeError::new_err(
                "the pattern or the replacement is the graph that is to be changed: copy it first",
            ));
        }
        // Nodes keep their handles when they are taken out of the graph, if they have one by then.
        let maps = accepted
            .iter()
            .map(|&index| self.nodes_map(py, self.at(index)?))
            .collect::<PyResult<Vec<_>>>()?;
        let mut body = Vec::new();
        let (replaced, outcome) = self.rewrite(py, &accepted, replacement, &mut body)?;
        let has_meta = {
            let new = replacement.try_borrow()?;
            body.iter().any(|&id| new.host().meta(id).is_some())
        };
        let pattern = self.pattern.bind(py);
        let mut answer = Vec::with_capacity(replaced.len());
        for (done, map) in replaced.iter().zip(maps) {
            if has_meta {
                let copies: Vec<_> = body.iter().copied().zip(done.added()).collect();
                PyGraph::copy_metas(graph, replacement, |old| {
                    let copy = copies.iter().find(|(from, _)| *from == old);
                    copy.map(|&(_, to)| to)
                })?;
            }
            let (wanted, searched) = (pattern.try_borrow()?, graph.try_borrow()?);
            let writer = searched.writer(graph);
            for (id, bound) in done.matched.bindings() {
                if wanted.ir().node(*id).op() == Op::Placeholder {
                    let placeholder = PyNode::handle(pattern, wanted.host(), *id)?;
                    map.set_item(placeholder, writer.arg(bound)?)?;
                }
            }
            let added = PyList::empty(py);
            for id in done.added() {
                added.append(PyNode::handle(graph, searched.host(), id)?)?;
            }
            answer.push((map, added));
        }
        outcome.map(|()| answer)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.pattern)?;
        visit.call(&self.graph)
    }
}
