//! Recurrent layers.

use super::call::Call;
use super::dim::Dim;
use super::error::Failure;
use super::rule::{Cost, Rule, rule};
use super::tensor_type::{Shape, Strides, TensorType};
use super::value::{Tensor, Value};

/// `nn.LSTM`, `nn.GRU` and `nn.RNN`: the outputs, and the last state.
fn recurrent<const CELL: bool>(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let batch_first = call.flag("batch_first", false)?;
    let directions = 1 + i64::from(call.flag("bidirectional", false)?);
    let layers = call.dim("num_layers")?.unwrap_or(Dim::ONE);
    let hidden = call.dim("hidden_size")?.unwrap_or(Dim::ZERO);
    let projected = call.dim("proj_size")?.filter(|size| !size.is(0));
    let wide = projected.unwrap_or_else(|| hidden.clone());
    let expected = call.dim("input_size")?.unwrap_or(Dim::ZERO);
    if !matches!(input.rank(), 2 | 3)
        || input.shape.last().and_then(|own| own.equals(&expected)) == Some(false)
    {
        return Err(Failure::invalid(
            format!("a tensor of two or three dimensions with {expected} features"),
            input.ty.to_string(),
        ));
    }
    let mut shape = input.shape.clone();
    if let Some(last) = shape.last_mut() {
        *last = wide.clone() * Dim::Known(directions);
    }
    let made = |shape: Shape| TensorType {
        strides: Strides::Unknown,
        device: input.device,
        ..TensorType::new(input.dtype, shape)
    };
    let batch = (input.rank() == 3).then(|| input.shape[usize::from(!batch_first)].clone());
    let state = |width: Dim| -> TensorType {
        let mut shape = Shape::from_iter([layers.clone() * Dim::Known(directions)]);
        shape.extend(batch.clone());
        shape.push(width);
        made(shape)
    };
    let last = if CELL {
        Value::tensors([state(wide), state(hidden)])
    } else {
        state(wide).into()
    };
    Ok(Value::Tuple([made(shape).into(), last].into()))
}

/// The type of a tensor, in memory of its own.
fn like(tensor: &Tensor) -> TensorType {
    TensorType {
        device: tensor.device,
        ..TensorType::new(tensor.dtype, tensor.shape.clone())
    }
}

/// The tensors of a state.
fn state(value: &Value) -> Result<Vec<&Tensor>, Failure> {
    let tensors: Option<Vec<&Tensor>> = match value {
        Value::Tensor(tensor) => Some(vec![tensor]),
        other => other
            .as_items()
            .and_then(|items| items.iter().map(Value::as_tensor).collect()),
    };
    tensors.ok_or_else(|| Failure::expected("tensors", value))
}

/// `lstm`, `gru`, `rnn_tanh` and `rnn_relu`: of a tensor, or of the rows of all time steps one
/// after the other and the number of rows of each. A fourth argument that is no boolean means the
/// latter. The functions of `corsac._padded` take a tensor and the lengths of its sequences.
fn layers(call: &Call<'_>) -> Result<Value, Failure> {
    let packed = !matches!(call.get("fourth"), Some(Value::Bool(_)));
    let input = call.tensor("input")?;
    let given = state(call.need(if packed { "third" } else { "second" })?)?;
    let both_ways = call.flag(if packed { "ninth" } else { "eighth" }, false)?;
    let mut shape = input.shape.clone();
    let width = given.first().and_then(|own| own.shape.last());
    let (Some(last), Some(width)) = (shape.last_mut(), width) else {
        return Err(Failure::invalid("features", input.ty.to_string()));
    };
    *last = width.clone() * Dim::Known(1 + i64::from(both_ways));
    let mut results = vec![TensorType {
        strides: Strides::Unknown,
        device: input.device,
        ..TensorType::new(input.dtype, shape)
    }];
    results.extend(given.into_iter().map(like));
    Ok(Value::Tuple(results.into_iter().map(Value::from).collect()))
}

/// `lstm_cell`: the hidden state and the cell state.
fn lstm_cell(call: &Call<'_>) -> Result<Value, Failure> {
    let given = state(call.need("hx")?)?;
    Ok(Value::Tuple(
        given.into_iter().map(|own| like(own).into()).collect(),
    ))
}

fn cell(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(like(call.tensor("hx")?).into())
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "nn.LSTM.forward",
        "input hx *batch_first bidirectional num_layers hidden_size proj_size input_size",
        recurrent::<true>,
        Cost::Unknown,
    ),
    rule(
        "nn.GRU.forward nn.RNN.forward",
        "input hx *batch_first bidirectional num_layers hidden_size proj_size input_size",
        recurrent::<false>,
        Cost::Unknown,
    ),
    rule(
        "lstm gru rnn_tanh rnn_relu corsac._padded.lstm corsac._padded.gru corsac._padded.rnn_tanh corsac._padded.rnn_relu",
        "input second third fourth fifth sixth seventh eighth ninth",
        layers,
        Cost::Unknown,
    ),
    rule(
        "lstm_cell",
        "input hx w_ih w_hh b_ih b_hh",
        lstm_cell,
        Cost::Unknown,
    ),
    rule(
        "gru_cell rnn_tanh_cell rnn_relu_cell",
        "input hx w_ih w_hh b_ih b_hh",
        cell,
        Cost::Unknown,
    ),
];
