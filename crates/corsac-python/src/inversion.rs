//! Inverses of graphs of Python.

use corsac_passes::inversion::{self, Inverse, InversionError};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;

use crate::effects::Facts;
use crate::error::pass_error;
use crate::graph::PyGraph;
use crate::passes::{RawSite, raw_sites};
use crate::resolve::resolve_known;

/// A graph, or the obstacle to it, a place and a description; and the outcome of each step.
type Inverted<'py> = (
    Option<Bound<'py, PyGraph>>,
    Option<(String, String)>,
    Vec<RawSite>,
);

/// The graph that computes the input of `graph` from its result; or the node that prevents it, and
/// the reason. And every step, undone or not.
#[pyfunction]
pub(crate) fn invert<'py>(graph: &Bound<'py, PyGraph>) -> PyResult<Inverted<'py>> {
    let facts = Facts::of_graph(graph)?;
    let inverse = {
        let borrowed = graph.try_borrow()?;
        inversion::invert(borrowed.ir(), &facts)
    };
    match inverse {
        Ok(mut inverse) => {
            let sites = raw_sites(std::mem::take(&mut inverse.sites));
            Ok((Some(adopt(graph, inverse)?), None, sites))
        }
        Err(InversionError::NotInvertible {
            place,
            refusal,
            sites,
        }) => {
            let obstacle = (place, refusal.to_string());
            Ok((None, Some(obstacle), raw_sites(sites)))
        }
        Err(InversionError::Graph(error)) => Err(pass_error(error)),
        Err(error) => Err(PyRuntimeError::new_err(error.to_string())),
    }
}

/// A new `corsac.fx.Graph` with the nodes of `inverse`, and their Python objects and metadata.
fn adopt<'py>(from: &Bound<'py, PyGraph>, inverse: Inverse) -> PyResult<Bound<'py, PyGraph>> {
    let py = from.py();
    let class = py
        .import(intern!(py, "corsac.fx.graph"))?
        .getattr(intern!(py, "Graph"))?;
    let graph = class.call0()?.cast_into::<PyGraph>()?;
    let mut names = Vec::new();
    {
        let source = from.try_borrow()?;
        let mut to = graph.try_borrow_mut()?;
        let (ir, host) = to.parts_mut();
        *ir = inverse.graph;
        for (old, new) in inverse.externals {
            host.attach_external(new, &source.host().external_object(py, old));
        }
        for (old, new) in inverse.functions {
            if let Some(callable) = source.host().function_object(old) {
                host.attach_function(new, callable.bind(py));
            }
        }
        let unattached = ir.functions().filter(|(_, f)| f.external.is_none());
        names.extend(unattached.map(|(id, _)| (id, ir.function_name(id).to_owned())));
    }
    for (id, name) in names {
        let callable = resolve_known(py, &name)?;
        let mut to = graph.try_borrow_mut()?;
        let (ir, host) = to.parts_mut();
        let external = host.external(ir, &callable);
        ir.set_function_external(id, external);
        host.attach_function(id, &callable);
    }
    for added in &inverse.added {
        let meta = {
            let source = from.try_borrow()?;
            source
                .host()
                .meta(added.root)
                .map(|meta| meta.clone_ref(py))
        };
        if let Some(meta) = meta {
            PyGraph::set_meta_copy(&graph, added.node, meta.bind(py))?;
            if !added.has_its_value {
                PyGraph::forget_value(&graph, added.node)?;
            }
        }
    }
    Ok(graph)
}
