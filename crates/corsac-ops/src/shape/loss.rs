//! Losses.

use corsac_ir::DType;

use super::call::Call;
use super::elementwise::{Out, pointwise};
use super::error::Failure;
use super::rule::{Cost, Rule, rule};
use super::tensor_type::{Shape, Strides, TensorType};
use super::value::Value;

/// What `reduction` makes of losses of this shape. The layout of losses that are not reduced is
/// claimed only where it is contiguous.
fn reduced(call: &Call<'_>, mut each: TensorType) -> Result<Value, Failure> {
    let reduction = match call.get("reduction") {
        None => "mean",
        Some(Value::Str(text)) => text,
        // As operators count them.
        Some(Value::Int(number)) if number.is(0) => "none",
        Some(Value::Int(_)) => "mean",
        Some(other) => return Err(Failure::expected("none, mean or sum", other)),
    };
    match reduction {
        "none" => {
            if each.strides != Strides::Contiguous {
                each.strides = Strides::Unknown;
            }
        }
        "mean" | "sum" | "batchmean" => {
            each.shape = Shape::new();
            each.strides = Strides::Contiguous;
        }
        other => return Err(Failure::invalid("none, mean or sum", other)),
    }
    Ok(each.into())
}

/// A loss of each element.
fn elementwise(call: &Call<'_>) -> Result<Value, Failure> {
    for name in ["size_average", "reduce"] {
        if call.signature.position(name).is_some() && call.get(name).is_some() {
            return Err(Failure::unknown(format!("the deprecated argument {name}")));
        }
    }
    let both = [call.need("input")?, call.need("target")?];
    // Some compute logarithms, which integers have none of.
    let out = match call.signature.position("log_input") {
        Some(_) => Out::Float,
        None => Out::Promoted,
    };
    let each = pointwise(call, &both, out)?;
    let Some(each) = each.as_tensor() else {
        return Err(Failure::expected("a tensor", both[0]));
    };
    reduced(call, (*each.ty).clone())
}

/// A loss of each example: classes are the second dimension, or the first where there is no batch.
fn by_class(call: &Call<'_>) -> Result<Value, Failure> {
    for name in ["size_average", "reduce"] {
        if call.signature.position(name).is_some() && call.get(name).is_some() {
            return Err(Failure::unknown(format!("the deprecated argument {name}")));
        }
    }
    let (input, target) = (call.tensor("input")?, call.tensor("target")?);
    let mut shape = input.shape.clone();
    match shape.len() {
        0 => {
            return Err(Failure::invalid(
                "a tensor with dimensions",
                input.ty.to_string(),
            ));
        }
        1 => shape.remove(0),
        _ => shape.remove(1),
    };
    let by_index = matches!(target.dtype, DType::Int64 | DType::UInt8);
    if by_index && shape.len() != target.rank() {
        return Err(Failure::invalid(
            format!("a target of {} dimensions", shape.len()),
            target.ty.to_string(),
        ));
    }
    reduced(
        call,
        TensorType {
            strides: Strides::Contiguous,
            device: input.device,
            ..TensorType::new(input.dtype, shape)
        },
    )
}

const DEPRECATED: &str = "input target size_average reduce reduction";
const FEW: Cost = Cost::PerInput(3);

pub(super) const RULES: &[Rule] = &[
    rule(
        "F.mse_loss F.l1_loss",
        "input target size_average reduce reduction weight",
        elementwise,
        FEW,
    ),
    rule(
        "F.smooth_l1_loss",
        "input target size_average reduce reduction beta",
        elementwise,
        FEW,
    ),
    rule(
        "F.huber_loss",
        "input target reduction delta weight",
        elementwise,
        FEW,
    ),
    rule("F.soft_margin_loss", DEPRECATED, elementwise, FEW),
    rule(
        "F.kl_div",
        "input target size_average reduce reduction log_target",
        elementwise,
        FEW,
    ),
    rule(
        "F.poisson_nll_loss",
        "input target log_input full size_average eps reduce reduction",
        elementwise,
        FEW,
    ),
    rule(
        "F.binary_cross_entropy",
        "input target weight size_average reduce reduction",
        elementwise,
        Cost::PerInput(5),
    ),
    rule(
        "F.binary_cross_entropy_with_logits",
        "input target weight size_average reduce reduction pos_weight",
        elementwise,
        Cost::PerInput(6),
    ),
    rule(
        "aten.mse_loss aten.l1_loss",
        "input target reduction",
        elementwise,
        FEW,
    ),
    rule(
        "F.nll_loss",
        "input target weight size_average ignore_index reduce reduction",
        by_class,
        Cost::PerInput(1),
    ),
    rule(
        "F.cross_entropy",
        "input target weight size_average ignore_index reduce reduction label_smoothing",
        by_class,
        Cost::PerInput(6),
    ),
];
