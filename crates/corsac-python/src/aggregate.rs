//! `map_arg` and `map_aggregate`: a function applied to the leaves of nested containers.

use corsac_ir::MAX_DEPTH;
use pyo3::exceptions::{PyAssertionError, PyRecursionError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySlice, PyTuple};

use crate::graph::node::PyNode;
use crate::runtime::{immutable_dict, immutable_list};

/// Applies `fn` to each node in `a`, which may be nested tuples, lists, dictionaries and slices.
/// The result has the same structure, with immutable lists and dictionaries.
#[pyfunction]
pub(crate) fn map_arg<'py>(
    a: &Bound<'py, PyAny>,
    r#fn: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if !r#fn.is_callable() {
        return Err(PyAssertionError::new_err(
            "map_arg(a, fn): fn must be a callable",
        ));
    }
    let apply = |leaf: &Bound<'py, PyAny>| match leaf.cast::<PyNode>() {
        Ok(node) => r#fn.call1((node,)),
        Err(_) => Ok(leaf.clone()),
    };
    map_leaves(a, &apply, 0)
}

/// Applies `fn` to each value in `a` that is not itself a tuple, list, dictionary or slice. The
/// result has the same structure, with immutable lists and dictionaries.
#[pyfunction]
pub(crate) fn map_aggregate<'py>(
    a: &Bound<'py, PyAny>,
    r#fn: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    map_leaves(a, &|leaf| r#fn.call1((leaf,)), 0)
}

type Leaf<'a, 'py> = &'a dyn Fn(&Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>;

fn map_leaves<'py>(
    value: &Bound<'py, PyAny>,
    leaf: Leaf<'_, 'py>,
    depth: u16,
) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    if depth > MAX_DEPTH {
        return Err(PyRecursionError::new_err(format!(
            "an argument nests containers more than {MAX_DEPTH} deep"
        )));
    }
    if let Ok(tuple) = value.cast::<PyTuple>() {
        let items = tuple.iter().map(|item| map_leaves(&item, leaf, depth + 1));
        let items = PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?;
        if !tuple.is_exact_instance_of::<PyTuple>()
            && tuple.get_type().hasattr(intern!(py, "_fields"))?
        {
            return tuple.get_type().call1(items);
        }
        return Ok(items.into_any());
    }
    if let Ok(list) = value.cast::<PyList>() {
        let items = list.iter().map(|item| map_leaves(&item, leaf, depth + 1));
        return immutable_list(py, PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)?);
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        let mapped = PyDict::new(py);
        for (key, item) in dict.iter() {
            mapped.set_item(key, map_leaves(&item, leaf, depth + 1)?)?;
        }
        return immutable_dict(py, mapped);
    }
    if let Ok(slice) = value.cast::<PySlice>() {
        let parts = [
            intern!(py, "start"),
            intern!(py, "stop"),
            intern!(py, "step"),
        ];
        let parts = parts.map(|part| map_leaves(&slice.getattr(part)?, leaf, depth + 1));
        let parts = PyTuple::new(py, parts.into_iter().collect::<PyResult<Vec<_>>>()?)?;
        return py.get_type::<PySlice>().call1(parts);
    }
    leaf(value)
}
