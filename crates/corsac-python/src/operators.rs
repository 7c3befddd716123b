//! The operators that calls of Python compute, by their rows in the operator table.

use corsac_ir::Op;
use corsac_ops::autocast::{is_composed, precision};
use corsac_ops::shape::named_arguments;
use corsac_ops::{Family, Layout, OperatorId, Precision};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::callable::CallableNames;
use crate::graph::node::parse_op;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(operator_named, m)?)?;
    m.add_function(wrap_pyfunction!(operator_of, m)?)?;
    m.add_function(wrap_pyfunction!(operator_of_module, m)?)?;
    m.add_function(wrap_pyfunction!(operator_classes, m)?)?;
    m.add_function(wrap_pyfunction!(named_arguments_of, m)?)?;
    m.add_function(wrap_pyfunction!(precision_in_autocast, m)?)?;
    Ok(())
}

fn name_of(target: &Bound<'_, PyAny>) -> PyResult<String> {
    match target.cast::<PyString>() {
        Ok(name) => Ok(name.to_string_lossy().into_owned()),
        Err(_) => Ok(CallableNames::of(target)?.printed),
    }
}

/// The first name of the operator with this name. Raises KeyError where the table has none.
#[pyfunction]
fn operator_named(name: &str) -> PyResult<&'static str> {
    let operator = OperatorId::named(name);
    let operator = operator.ok_or_else(|| PyKeyError::new_err(format!("no operator {name}")))?;
    Ok(operator.name())
}

/// The operator that a call of a function or method computes, whatever its spelling, and whether it
/// is computed in place: `("add", True)` for `"call_method", "add_"`. None where the table has none.
#[pyfunction]
fn operator_of(op: &str, target: &Bound<'_, PyAny>) -> PyResult<(Option<&'static str>, bool)> {
    let (op, target) = (parse_op(op)?, name_of(target)?);
    let operator = OperatorId::of(op, &target);
    let found = operator_by_any_name(op, &target);
    Ok((
        found.map(OperatorId::name),
        operator.is_none() && found.is_some(),
    ))
}

/// The operator, which may be computed in place.
fn operator_by_any_name(op: Op, target: &str) -> Option<OperatorId> {
    OperatorId::of(op, target).or_else(|| OperatorId::of_in_place(op, target))
}

/// The operator that modules of a class of `torch.nn` call.
#[pyfunction]
fn operator_of_module(name: &str) -> Option<&'static str> {
    OperatorId::of_module(name).map(OperatorId::name)
}

/// The classes of the operator that a call computes, of a function, a method, or a class of modules of `torch.nn`, as
/// far as they hold: `"view"`, `"conversion"` of element types, `"type"` where only that of the first argument is read,
/// `"dropout"`, and `"strides"` or `"places"` where the result depends on those of elements in memory.
#[pyfunction]
fn operator_classes(op: &str, target: &Bound<'_, PyAny>) -> PyResult<Vec<&'static str>> {
    let (op, target) = (parse_op(op)?, name_of(target)?);
    let operator = match op {
        Op::CallModule => OperatorId::of_module(&target),
        _ => operator_by_any_name(op, &target),
    };
    let Some(operator) = operator else {
        return Ok(Vec::new());
    };
    let row = operator.row();
    let classes = [
        ("view", row.is_view),
        ("conversion", row.conversion.is_some()),
        ("type", row.reads_only_type),
        ("dropout", operator.family() == Family::Dropout),
        ("strides", row.layout == Some(Layout::Strides)),
        ("places", row.layout == Some(Layout::Places)),
    ];
    let held = classes.iter().filter(|(_, holds)| *holds);
    Ok(held.map(|(class, _)| *class).collect())
}

/// The precision in which autocast lets a call compute: `"lower"`, `"lower products"`, `"single"`, or `"widest"` of
/// its inputs;
/// `"unknown"` if it may call operators that are cast each in its own way; None if it is not cast.
#[pyfunction]
fn precision_in_autocast(op: &str, target: &Bound<'_, PyAny>) -> PyResult<Option<&'static str>> {
    let (op, target) = (parse_op(op)?, name_of(target)?);
    let is_known = operator_by_any_name(op, &target).is_some();
    if !is_known || is_composed(op, &target) {
        return Ok(Some("unknown"));
    }
    Ok(precision(op, &target).map(|precision| match precision {
        Precision::Lower => "lower",
        Precision::LowerProducts => "lower products",
        Precision::Single => "single",
        Precision::Widest => "widest",
    }))
}

/// The arguments of a call of a function or method by name, with the names of the operator's
/// parameters: those of `aten.batch_norm` and `torch.nn.functional.batch_norm` are the same. Returns
/// None where the parameters are not known. Raises TypeError for an argument without a parameter.
#[pyfunction]
fn named_arguments_of<'py>(
    op: &str,
    target: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let mut keywords: Vec<(String, Bound<'py, PyAny>)> = Vec::new();
    for entry in kwargs.items() {
        keywords.push(entry.extract()?);
    }
    let keywords = keywords
        .iter()
        .map(|(key, value)| (key.as_str(), value.clone()));
    let named = named_arguments(parse_op(op)?, &name_of(target)?, args.iter(), keywords);
    let Some(named) = named.transpose().map_err(PyTypeError::new_err)? else {
        return Ok(None);
    };
    let bound = PyDict::new(args.py());
    for (name, value) in named.given {
        bound.set_item(name, value)?;
    }
    if let Some((name, rest)) = named.rest
        && !rest.is_empty()
    {
        let is_list = |value: &Bound<'_, PyAny>| {
            value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>()
        };
        match rest.as_slice() {
            [sizes] if is_list(sizes) => bound.set_item(name, sizes)?,
            _ => bound.set_item(name, rest)?,
        }
    }
    if let Some(out) = named.out.filter(|out| !out.is_none()) {
        bound.set_item("out", out)?;
    }
    Ok(Some(bound))
}
