//! Subgraph replacement, the base of `corsac.fx.subgraph_rewriter`.

use corsac_ir::matching::{Match, MatchOptions, SubgraphMatcher};
use corsac_ir::rewrite::{
    Changed, Patch, Planned, Purpose, Replaced, Replacement, RewriteError, Rewriter, redirect_users,
};
use corsac_ir::{Arg, EntityId, NodeId, Op};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::{graph_error, match_error, rewrite_error};
use crate::graph::PyGraph;
use crate::graph::node::PyNode;

/// Rewrites matches until an error, and returns it with those that were rewritten. Calls no hooks;
/// handles of nodes that are gone live as long as somebody else holds them.
pub(crate) fn replace_all(
    graph: &Bound<'_, PyGraph>,
    pattern: &Bound<'_, PyGraph>,
    matches: &[Match],
    replacement: &Bound<'_, PyGraph>,
) -> PyResult<(Vec<Replaced>, PyResult<()>)> {
    let mut done = Vec::with_capacity(matches.len());
    let mut outcome = Ok(());
    rewrite(
        graph,
        pattern,
        replacement,
        &mut Changed::default(),
        |step| {
            for matched in matches {
                let rewritten = step.rewriter.replace(
                    step.ir,
                    matched.clone(),
                    step.replacement,
                    step.translation,
                );
                match rewritten {
                    Ok(replaced) => done.push(replaced),
                    Err(error) => {
                        outcome = Err(rewrite_error(error));
                        break;
                    }
                }
            }
            Ok(())
        },
    )?;
    let batches = done.iter().map(|r| (r.returned(), r.added()));
    carry_metas(graph, replacement, batches)?;
    let bindings = done.iter().flat_map(|replaced| replaced.matched.bindings());
    PyGraph::release_erased(graph, bindings.filter_map(|(_, bound)| bound.as_node()))?;
    Ok((done, outcome))
}

/// Checks that a graph which is to be read is not the one that is to be changed.
pub(crate) fn check_distinct(
    graph: &Bound<'_, PyGraph>,
    other: &Bound<'_, PyGraph>,
    what: &str,
) -> PyResult<()> {
    if graph.is(other) {
        return Err(PyRuntimeError::new_err(format!(
            "the {what} is the graph to be changed itself: copy it first (copy.deepcopy)"
        )));
    }
    Ok(())
}

/// State of a rewrite.
struct Step<'s, 'm> {
    ir: &'s mut corsac_ir::Graph,
    rewriter: &'s mut Rewriter<'m>,
    replacement: &'s Replacement<'m>,
    translation: &'s mut corsac_ir::Translation,
}

/// Runs `change` while `graph` is borrowed to be changed and the others to be read, and attaches
/// the Python objects of the new nodes.
fn rewrite<T>(
    graph: &Bound<'_, PyGraph>,
    pattern: &Bound<'_, PyGraph>,
    replacement: &Bound<'_, PyGraph>,
    changed: &mut Changed,
    change: impl FnOnce(Step<'_, '_>) -> PyResult<T>,
) -> PyResult<T> {
    let (pattern, from) = (pattern.try_borrow()?, replacement.try_borrow()?);
    let mut translation = graph.try_borrow()?.translation(&from);
    // Nodes without users have been allowed or refused before the search.
    let matcher = SubgraphMatcher::with_effects(pattern.ir(), MatchOptions::default(), |_| true)
        .map_err(match_error)?;
    let mut rewriter = Rewriter::resume(&matcher, std::mem::take(changed));
    let replacement = Replacement::new(from.ir());
    let answer = PyGraph::edit(graph, |ir| {
        change(Step {
            ir,
            rewriter: &mut rewriter,
            replacement: &replacement,
            translation: &mut translation,
        })
    });
    *changed = rewriter.into_changed();
    PyGraph::adopt(graph, &from, &mut translation)?;
    answer
}

/// Gives each batch of new nodes the metadata of the nodes that the match returned, overridden by
/// that of the replacement's nodes. Metadata that describes a value goes only to the node that now
/// has that value.
fn carry_metas<'r>(
    graph: &Bound<'_, PyGraph>,
    replacement: &Bound<'_, PyGraph>,
    batches: impl Iterator<Item = (&'r [NodeId], impl ExactSizeIterator<Item = NodeId>)>,
) -> PyResult<()> {
    let py = graph.py();
    let (own, purposes): (Vec<Option<Py<PyAny>>>, Vec<Purpose>) = {
        let from = replacement.try_borrow()?;
        let replacement = Replacement::new(from.ir());
        let body = replacement.body().iter();
        let own = body.map(|&id| from.host().meta(id).map(|meta| meta.clone_ref(py)));
        (own.collect(), replacement.purposes().to_vec())
    };
    let has_none = graph.try_borrow()?.host().metas().next().is_none();
    if has_none && own.iter().all(Option::is_none) {
        return Ok(());
    }
    for (returned, added) in batches {
        for ((new, own), purpose) in added.zip(&own).zip(&purposes) {
            match returned.get(purpose.result) {
                Some(&old) if purpose.is_result => PyGraph::inherit_metas(graph, &[(new, old)])?,
                Some(&old) => PyGraph::inherit_meta_but_value(graph, new, old)?,
                None => {}
            }
            if let Some(own) = own {
                PyGraph::add_meta(graph, new, own.bind(py))?;
            }
        }
    }
    Ok(())
}

/// Replaces matches one by one, whose values Python code may change in between, and calls the hooks
/// of the graph's owning module.
#[pyclass(name = "Rewriter", module = "corsac._core")]
pub(crate) struct PyRewriter {
    graph: Py<PyGraph>,
    pattern: Py<PyGraph>,
    changed: Changed,
}

#[pymethods]
impl PyRewriter {
    #[new]
    fn new(graph: &Bound<'_, PyGraph>, pattern: &Bound<'_, PyGraph>) -> PyResult<Self> {
        check_distinct(graph, pattern, "pattern")?;
        Ok(Self {
            graph: graph.clone().unbind(),
            pattern: pattern.clone().unbind(),
            changed: Changed::default(),
        })
    }

    /// Replaces one match, given by its `nodes_map` and `placeholder_nodes`, in which the
    /// placeholders' values become those that the new nodes use. Returns the new nodes.
    fn replace<'py>(
        slf: &Bound<'py, Self>,
        nodes_map: &Bound<'py, PyDict>,
        placeholder_nodes: &Bound<'py, PyList>,
        replacement: &Bound<'py, PyGraph>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let (graph, pattern, mut changed) = {
            let mut me = slf.try_borrow_mut()?;
            let me = &mut *me;
            let graphs = (me.graph.bind(py).clone(), me.pattern.bind(py).clone());
            (graphs.0, graphs.1, std::mem::take(&mut me.changed))
        };
        check_distinct(&graph, replacement, "replacement")?;
        let bindings = read_bindings(&graph, &pattern, nodes_map, placeholder_nodes)?;
        let begun = rewrite(&graph, &pattern, replacement, &mut changed, |step| {
            let begin = || -> Result<_, RewriteError> {
                let matched = step.rewriter.match_of(bindings)?;
                let mut planned =
                    step.rewriter
                        .plan(step.ir, matched, step.replacement, step.translation)?;
                let added = planned.patch.begin(step.ir)?.map(NodeId::from_index);
                Ok((planned, added.collect::<Vec<_>>()))
            };
            begin().map_err(rewrite_error)
        });
        slf.try_borrow_mut()?.changed = changed;
        let (planned, added) = begun?;
        let Planned {
            matched,
            returned,
            patch,
        } = planned;

        let batch = (returned.as_slice(), added.iter().copied());
        carry_metas(&graph, replacement, std::iter::once(batch))?;
        let added = PyNode::all(&graph, &added)?;
        call_create_hooks(&graph, &added)?;
        redirect(&graph, &patch)?;
        for node in PyNode::all(&graph, patch.dropped())? {
            graph.call_method1(intern!(py, "erase_node"), (node,))?;
        }
        write_placeholders(&graph, &pattern, &matched, nodes_map, placeholder_nodes)?;
        PyList::new(py, added)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.graph)?;
        visit.call(&self.pattern)
    }
}

/// Reads the values of pattern nodes.
fn read_bindings(
    graph: &Bound<'_, PyGraph>,
    pattern: &Bound<'_, PyGraph>,
    nodes_map: &Bound<'_, PyDict>,
    placeholder_nodes: &Bound<'_, PyList>,
) -> PyResult<Vec<(NodeId, Arg)>> {
    let from = pattern.try_borrow()?;
    PyGraph::change(graph, |reader| {
        let mut bindings = Vec::with_capacity(nodes_map.len());
        for (key, value) in nodes_map.iter() {
            let key = key
                .cast::<PyNode>()
                .map_err(|_| PyTypeError::new_err("the keys of nodes_map must be nodes"))?;
            let id = PyGraph::own(pattern, key)?;
            if from.ir().node(id).op() != Op::Placeholder {
                bindings.push((id, reader.arg(&value, 0)?));
            }
        }
        let placeholders = from.ir().find_nodes(Op::Placeholder, None);
        for (id, value) in placeholders.into_iter().zip(placeholder_nodes.iter()) {
            bindings.push((id, reader.arg(&value, 0)?));
        }
        Ok(bindings)
    })
}

/// Writes the values of placeholders back.
fn write_placeholders(
    graph: &Bound<'_, PyGraph>,
    pattern: &Bound<'_, PyGraph>,
    matched: &Match,
    nodes_map: &Bound<'_, PyDict>,
    placeholder_nodes: &Bound<'_, PyList>,
) -> PyResult<()> {
    let now = {
        let (from, to) = (pattern.try_borrow()?, graph.try_borrow()?);
        let writer = to.writer(graph);
        let placeholders = from.ir().find_nodes(Op::Placeholder, None);
        let pairs = placeholders.into_iter().zip(matched.placeholders());
        let pairs = pairs.map(|(id, bound)| {
            Ok((
                PyNode::handle(pattern, from.host(), id)?,
                writer.arg(bound)?,
            ))
        });
        pairs.collect::<PyResult<Vec<_>>>()?
    };
    for (index, (placeholder, value)) in now.into_iter().enumerate() {
        placeholder_nodes.set_item(index, &value)?;
        nodes_map.set_item(placeholder, value)?;
    }
    Ok(())
}

pub(crate) fn call_create_hooks(graph: &Bound<'_, PyGraph>, added: &[Py<PyNode>]) -> PyResult<()> {
    let py = graph.py();
    let hooks = graph
        .try_borrow()?
        .hooks(py, intern!(py, "_create_node_hooks"))?;
    for node in added {
        for hook in hooks.iter().flatten() {
            hook.call1((node,))?;
        }
    }
    Ok(())
}

/// Redirects the uses of the nodes that the match returned, after the replace hooks.
fn redirect(graph: &Bound<'_, PyGraph>, patch: &Patch) -> PyResult<()> {
    let py = graph.py();
    for (old, new) in patch.redirections() {
        let users = patch.users_to_redirect(graph.try_borrow()?.ir(), *old, new);
        if let Some(new) = new.as_node() {
            let handle = PyNode::all(graph, &[*old, new])?;
            let name = handle[1].bind(py).getattr(intern!(py, "name"))?;
            let old = handle[0].bind(py);
            old.get()
                .call_replace_hooks(py, &name, &PyNode::all(graph, &users)?, old)?;
        }
        PyGraph::edit(graph, |ir| {
            redirect_users(ir, *old, new, &users).map_err(graph_error)
        })?;
    }
    Ok(())
}
