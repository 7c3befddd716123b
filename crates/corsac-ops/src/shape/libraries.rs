//! Functions of torchvision and timm that their models are traced with as one call.

use super::call::Call;
use super::dim::Dim;
use super::elementwise::like;
use super::error::Failure;
use super::rule::{Cost, Rule, Work, rule};
use super::tensor_type::{Strides, TensorType};
use super::value::Value;

/// Drops whole branches in training: the input itself in evaluation.
fn stochastic_depth(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let never = match call.get("p") {
        Some(Value::Float(p)) => *p == 0.0,
        Some(Value::Int(p)) => p.is(0),
        _ => false,
    };
    if never || !call.flag("training", true)? {
        return Ok(Value::Tensor(input.clone()));
    }
    Ok(like(input, input.dtype).into())
}

/// As the input; the layout depends on whether the windows are padded and shifted.
fn window_attention(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    if input.rank() != 4 {
        return Err(Failure::invalid(
            "a tensor of four dimensions",
            input.ty.to_string(),
        ));
    }
    Ok(TensorType {
        strides: Strides::Unknown,
        device: input.device,
        ..TensorType::new(input.dtype, input.shape.clone())
    }
    .into())
}

/// Tokens of the padded image, elements of a window, channels, heads.
fn window_work(call: &Call<'_>, _: &Value) -> Option<Work> {
    let input = call.tensor("input").ok()?;
    let window = call.dims("window_size").ok()??;
    let heads = call.dim("num_heads").ok()??;
    let [batch, height, width, channels] = input.shape.as_slice() else {
        return None;
    };
    let padded = |size: &Dim, to: &Dim| -> Option<Dim> {
        Some((size.clone() + to.clone() - Dim::ONE).floor_div(to)? * to.clone())
    };
    let tokens = batch.clone() * padded(height, &window[0])? * padded(width, window.get(1)?)?;
    let area = Dim::product(&window);
    let scores = tokens.clone() * area;
    let projections = tokens * channels.clone() * channels.clone() * Dim::Known(4);
    let macs = projections + scores.clone() * channels.clone() * Dim::Known(2);
    Some(Work {
        flops: macs.clone() * Dim::Known(2) + scores * heads * Dim::Known(5),
        macs,
    })
}

/// `[.., h, w, c]` to `[.., h / 2, w / 2, 4 c]`, rounded up.
fn patch_merging(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let Some(at) = input.rank().checked_sub(3) else {
        return Err(Failure::invalid(
            "a tensor of three dimensions or more",
            input.ty.to_string(),
        ));
    };
    let mut shape = input.shape.clone();
    for axis in [at, at + 1] {
        let half = (shape[axis].clone() + Dim::ONE).floor_div(&Dim::Known(2));
        shape[axis] = half.unwrap_or(Dim::ZERO);
    }
    shape[at + 2] = shape[at + 2].clone() * Dim::Known(4);
    Ok(TensorType {
        strides: Strides::Unknown,
        device: input.device,
        ..TensorType::new(input.dtype, shape)
    }
    .into())
}

/// A bias for each head and each pair of places in a window.
fn relative_position_bias(call: &Call<'_>) -> Result<Value, Failure> {
    let biases = call.tensor("relative_position_bias_table")?;
    let Some(window) = call.dims("window_size")? else {
        return Err(Failure::invalid("an argument window_size", "none"));
    };
    let area = Dim::product(window.iter().take(2));
    let heads = biases.shape.last().cloned().unwrap_or(Dim::ONE);
    Ok(TensorType {
        device: biases.device,
        ..TensorType::new(biases.dtype, [Dim::ONE, heads, area.clone(), area])
    }
    .into())
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "torchvision.ops.stochastic_depth.stochastic_depth",
        "input p mode training",
        stochastic_depth,
        Cost::PerOutput(1),
    ),
    rule(
        "torchvision.models.swin_transformer.shifted_window_attention",
        "input qkv_weight proj_weight relative_position_bias window_size num_heads shift_size \
         attention_dropout dropout qkv_bias proj_bias logit_scale training",
        window_attention,
        Cost::By(window_work),
    ),
    rule(
        "torchvision.models.swin_transformer._patch_merging_pad",
        "input",
        patch_merging,
        Cost::Move,
    ),
    rule(
        "torchvision.models.swin_transformer._get_relative_position_bias",
        "relative_position_bias_table relative_position_index window_size",
        relative_position_bias,
        Cost::Gather,
    ),
];
