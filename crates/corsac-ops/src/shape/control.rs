//! Control flow that depends on elements: calls of graphs.
//!
//! Graphs take and return tensors in row-major order.

use super::call::Call;
use super::dim::Dim;
use super::error::Failure;
use super::rule::{Cost, Rule, rule};
use super::tensor_type::{Shape, TensorType};
use super::value::{Tensor, Value};
use corsac_ir::{DType, Op};

/// `cond(pred, true_fn, false_fn, operands)`: the results of one of two graphs, which have equal types.
fn cond(call: &Call<'_>) -> Result<Value, Failure> {
    expect_truth("pred", call.need("pred")?)?;
    let operands = items(call, "operands")?;
    let results = results_of(call, "true_fn", operands.clone())?;
    let others = results_of(call, "false_fn", operands)?;
    expect_same("the first graph", &results, "the second one", &others)?;
    Ok(made(&results))
}

/// `while_loop(cond_fn, body_fn, carried_inputs, additional_inputs)`: the values that the body has returned last.
fn while_loop(call: &Call<'_>) -> Result<Value, Failure> {
    let carried = tensors(call, "carried_inputs")?;
    let mut operands = carried.clone();
    operands.extend(items(call, "additional_inputs")?);
    match &results_of(call, "cond_fn", operands.clone())?[..] {
        [truth] => expect_truth("the condition of a loop", truth)?,
        several => return Err(wrong_count("a condition with one result", several)),
    }
    let results = results_of(call, "body_fn", operands)?;
    expect_same(
        "the loop begins with",
        &carried,
        "its body returns",
        &results,
    )?;
    Ok(made(&carried))
}

/// `scan(combine_fn, init, xs, additional_inputs)`: the values that the graph has returned last, and its other results
/// for each row, as rows.
fn scan(call: &Call<'_>) -> Result<Value, Failure> {
    let carried = tensors(call, "init")?;
    let mut operands = carried.clone();
    let mut length: Option<Dim> = None;
    for own in &tensors(call, "xs")? {
        let tensor = own.as_tensor();
        let Some((tensor, (rows, row))) =
            tensor.and_then(|own| Some((own, own.shape.split_first()?)))
        else {
            return Err(Failure::expected("tensors with rows as xs", own));
        };
        match &length {
            Some(known) if known.equals(rows) != Some(true) => {
                return Err(Failure::invalid(format!("{known} rows"), rows.to_string()));
            }
            _ => length = Some(rows.clone()),
        }
        operands.push(plain(tensor.dtype, row.iter().cloned().collect()));
    }
    let length = length.ok_or_else(|| Failure::invalid("tensors as xs", "none"))?;
    operands.extend(items(call, "additional_inputs")?);
    let results = results_of(call, "combine_fn", operands)?;
    let Some((last, rows)) = results.split_at_checked(carried.len()) else {
        return Err(wrong_count("a result for each value of init", &results));
    };
    expect_same("the scan begins with", &carried, "its graph returns", last)?;
    let stacked = rows.iter().map(|row| match row {
        Value::Tensor(row) => {
            let sizes = std::iter::once(&length).chain(&row.shape);
            Ok(plain(row.dtype, sizes.cloned().collect()))
        }
        other => Err(Failure::expected("tensors as results", other)),
    });
    let stacked: Vec<Value> = stacked.collect::<Result<_, _>>()?;
    Ok(Value::Tuple([&carried[..], &stacked].concat().into()))
}

/// The items given for a parameter.
fn items(call: &Call<'_>, name: &str) -> Result<Vec<Value>, Failure> {
    let Some(given) = call.get(name) else {
        return Ok(Vec::new());
    };
    let items = given.as_items();
    let items = items.ok_or_else(|| Failure::expected(format!("a tuple as {name}"), given))?;
    Ok(items.iter().map(row_major).collect())
}

/// The items given for a parameter, which are tensors.
fn tensors(call: &Call<'_>, name: &str) -> Result<Vec<Value>, Failure> {
    let items = items(call, name)?;
    match items.iter().find(|own| own.as_tensor().is_none()) {
        Some(other) => Err(Failure::expected(format!("tensors as {name}"), other)),
        None => Ok(items),
    }
}

/// The results of the graph given for a parameter.
fn results_of(call: &Call<'_>, name: &str, inputs: Vec<Value>) -> Result<Vec<Value>, Failure> {
    let given = call.need(name)?;
    let Value::Graph(graph_name) = given else {
        return Err(Failure::unknown(format!("{name} is {given}")));
    };
    let found = call
        .host
        .and_then(|host| host.graph(graph_name, &inputs, call.settings));
    let missing = || Failure::unknown(format!("there is no graph {graph_name}"));
    let (graph, types) = found.ok_or_else(missing)??;
    let placeholders = graph
        .nodes()
        .filter(|&node| graph.node(node).op() == Op::Placeholder);
    let expected = placeholders.count();
    if expected != inputs.len() {
        return Err(Failure::invalid(
            format!("{expected} operands, as the graph {graph_name} takes"),
            inputs.len().to_string(),
        ));
    }
    let output = graph
        .nodes()
        .find(|&node| graph.node(node).op() == Op::Output);
    let result = output.map_or(&Value::None, |node| types.value(node));
    if let Some(reason) = result.unknown_reason() {
        return Err(Failure::unknown(format!(
            "the graph {graph_name}: {reason}"
        )));
    }
    match result {
        Value::Tuple(items) | Value::List(items) => Ok(items.iter().map(row_major).collect()),
        one => Ok(vec![row_major(one)]),
    }
}

fn row_major(value: &Value) -> Value {
    match value {
        Value::Tensor(tensor) => plain(tensor.dtype, tensor.shape.clone()),
        other => other.clone(),
    }
}

fn plain(dtype: DType, shape: Shape) -> Value {
    TensorType::new(dtype, shape).into()
}

/// The results of a call.
fn made(types: &[Value]) -> Value {
    Value::Tuple(types.into())
}

/// Checks that a value is one truth value.
fn expect_truth(what: &str, value: &Value) -> Result<(), Failure> {
    match value {
        Value::Bool(_) => Ok(()),
        Value::Tensor(own) if own.dtype == DType::Bool && is_single(own) => Ok(()),
        other => Err(Failure::expected(
            format!("one truth value as {what}"),
            other,
        )),
    }
}

fn is_single(tensor: &Tensor) -> bool {
    tensor.shape.iter().all(|size| size.is(1))
}

/// Checks that values have equal types.
fn expect_same(
    place: &str,
    values: &[Value],
    other_place: &str,
    others: &[Value],
) -> Result<(), Failure> {
    if values.len() != others.len() {
        return Err(wrong_count(
            &format!("{} results, as {place}", values.len()),
            others,
        ));
    }
    for (at, pair) in values.iter().zip(others).enumerate() {
        let is_same = match pair {
            (Value::Tensor(own), Value::Tensor(other)) => own.ty == other.ty,
            (own, other) => own == other,
        };
        if !is_same {
            return Err(Failure::invalid(
                format!("value {at} of equal types: {} ({place})", pair.0),
                format!("{} ({other_place})", pair.1),
            ));
        }
    }
    Ok(())
}

fn wrong_count(expected: &str, found: &[Value]) -> Failure {
    Failure::invalid(expected, found.len().to_string())
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "higher_order.cond",
        "pred true_fn false_fn operands",
        cond,
        Cost::Unknown,
    )
    .detached(),
    rule(
        "higher_order.scan",
        "combine_fn init xs additional_inputs",
        scan,
        Cost::Unknown,
    )
    .detached(),
    rule(
        "higher_order.while_loop",
        "cond_fn body_fn carried_inputs additional_inputs",
        while_loop,
        Cost::Unknown,
    )
    .detached(),
];
