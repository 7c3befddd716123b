//! Normalisation over a batch, a layer or groups of channels.

use corsac_ir::MemoryFormat;

use super::broadcast::same_size;
use super::call::Call;
use super::dim::Dim;
use super::elementwise::{floating, like};
use super::error::Failure;
use super::rule::{Cost, Rule, rule};
use super::sharding;
use super::tensor_type::{Shape, Strides, TensorType};
use super::value::{Tensor, Value};

/// `input` laid out in its memory format.
fn in_own_format(input: &Tensor) -> TensorType {
    let mut ty = like(input, input.dtype);
    ty.strides = match input.suggested_format() {
        Some(MemoryFormat::Contiguous) => Strides::Contiguous,
        Some(format) => Strides::in_format(&input.shape, format),
        None => Strides::Unknown,
    };
    ty
}

fn one_per_channel(call: &Call<'_>, name: &str, channels: &Dim) -> Result<(), Failure> {
    let Some(tensor) = call.optional_tensor(name)? else {
        return Ok(());
    };
    if same_size(&tensor.numel(), channels)? {
        return Ok(());
    }
    Err(Failure::invalid(
        format!("{channels} elements as {name}, one for each channel"),
        tensor.ty.to_string(),
    ))
}

fn channels(input: &Tensor) -> Result<&Dim, Failure> {
    input
        .shape
        .get(1)
        .ok_or_else(|| Failure::invalid("a tensor of two dimensions or more", input.ty.to_string()))
}

fn batch_norm(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let channels = channels(input)?;
    for name in ["running_mean", "running_var", "weight", "bias"] {
        one_per_channel(call, name, channels)?;
    }
    Ok(in_own_format(input).into())
}

/// The result and the statistics of the batch, whose size in evaluation differs between devices.
fn native_batch_norm(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let training = match call.signature.position("training") {
        Some(_) => call.flag("training", false)?,
        None => false,
    };
    let statistics: Value = if training {
        TensorType {
            device: input.device,
            ..TensorType::new(input.dtype, [channels(input)?.clone()])
        }
        .into()
    } else {
        Value::unknown("statistics of a batch in evaluation")
    };
    let items = [in_own_format(input).into(), statistics.clone(), statistics];
    Ok(Value::Tuple(items.into()))
}

fn instance_norm(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let mut ty = in_own_format(input);
    if ty.strides != Strides::Contiguous {
        ty.strides = Strides::Unknown;
    }
    Ok(ty.into())
}

/// The sizes at the end that are normalised over.
fn normalised(call: &Call<'_>, input: &Tensor) -> Result<Shape, Failure> {
    let Some(sizes) = call.dims("normalized_shape")? else {
        return Err(Failure::invalid("an argument normalized_shape", "none"));
    };
    let at_end = input
        .shape
        .len()
        .checked_sub(sizes.len())
        .map(|at| &input.shape[at..]);
    let mut fits = at_end.is_some();
    for (own, size) in at_end.unwrap_or_default().iter().zip(&sizes) {
        fits &= same_size(own, size)?;
    }
    if fits {
        return Ok(sizes);
    }
    Err(Failure::invalid(
        format!(
            "a tensor whose last sizes are {}",
            super::broadcast::shape_text(&sizes)
        ),
        input.ty.to_string(),
    ))
}

fn contiguous_like(input: &Tensor) -> TensorType {
    TensorType {
        device: input.device,
        ..TensorType::new(input.dtype, input.shape.clone())
    }
}

fn layer_norm(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    normalised(call, input)?;
    Ok(contiguous_like(input).into())
}

fn rms_norm(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    normalised(call, input)?;
    Ok(like(input, input.dtype).into())
}

fn native_layer_norm(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let sizes = normalised(call, input)?;
    let kept = input.rank() - sizes.len();
    let shape = input.shape.iter().enumerate();
    let shape = shape.map(|(at, size)| if at < kept { size.clone() } else { Dim::ONE });
    let statistics = TensorType {
        device: input.device,
        ..TensorType::new(input.dtype, shape)
    };
    Ok(Value::tensors([
        contiguous_like(input),
        statistics.clone(),
        statistics,
    ]))
}

fn group_norm(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let channels = channels(input)?;
    let groups = call.dim("num_groups")?.unwrap_or(Dim::ONE);
    if channels
        .modulo(&groups)
        .and_then(|rest| rest.known())
        .is_some_and(|rest| rest != 0)
    {
        return Err(Failure::invalid(
            format!("channels that {groups} groups divide"),
            channels.to_string(),
        ));
    }
    for name in ["weight", "bias"] {
        one_per_channel(call, name, channels)?;
    }
    Ok(in_own_format(input).into())
}

fn local_response_norm(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    if input.numel().is(0) {
        return Ok(Value::Tensor(input.clone()));
    }
    let mut ty = like(input, floating(call, input.dtype));
    if ty.strides != Strides::Contiguous {
        ty.strides = Strides::Unknown;
    }
    Ok(ty.into())
}

// A batch norm is a factor and an offset per channel. Statistics of a layer have to be computed:
// mean 1, variance 2, difference and factor 2, weight and bias 2.
pub(super) const RULES: &[Rule] = &[
    rule(
        "F.batch_norm",
        "input running_mean running_var weight bias training momentum eps",
        batch_norm,
        Cost::PerOutput(2),
    ),
    rule(
        "batch_norm",
        "input weight bias running_mean running_var training momentum eps cudnn_enabled",
        batch_norm,
        Cost::PerOutput(2),
    ),
    rule(
        "native_batch_norm",
        "input weight bias running_mean running_var training momentum eps",
        native_batch_norm,
        Cost::PerInput(2),
    ),
    rule(
        "_native_batch_norm_legit_no_training",
        "input weight bias running_mean running_var momentum eps",
        native_batch_norm,
        Cost::PerInput(2),
    ),
    rule(
        "F.instance_norm",
        "input running_mean running_var weight bias use_input_stats momentum eps",
        instance_norm,
        Cost::PerInput(7),
    ),
    rule(
        "instance_norm",
        "input weight bias running_mean running_var use_input_stats momentum eps cudnn_enabled",
        instance_norm,
        Cost::PerInput(7),
    ),
    rule(
        "layer_norm",
        "input normalized_shape weight bias eps cudnn_enable",
        layer_norm,
        Cost::PerInput(7),
    )
    .shards(sharding::normalised),
    rule(
        "native_layer_norm",
        "input normalized_shape weight bias eps",
        native_layer_norm,
        Cost::PerInput(7),
    ),
    rule(
        "rms_norm",
        "input normalized_shape weight eps",
        rms_norm,
        Cost::PerInput(4),
    )
    .shards(sharding::normalised),
    rule(
        "group_norm",
        "input num_groups weight bias eps cudnn_enabled",
        group_norm,
        Cost::PerInput(7),
    ),
    rule(
        "local_response_norm",
        "input size alpha beta k",
        local_response_norm,
        Cost::Unknown,
    ),
];
