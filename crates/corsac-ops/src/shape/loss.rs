//! Losses.

use corsac_ir::DType;

use super::call::Call;
use super::dim::Dim;
use super::elementwise::{Out, pointwise};
use super::error::Failure;
use super::rule::{Cost, Rule, rule};
use super::sharding;
use super::tensor_type::{Shape, Strides, TensorType};
use super::value::Value;

/// Losses of this shape after the argument `reduction`. The layout of losses that are not reduced
/// is known only where it is contiguous.
fn reduced(call: &Call<'_>, mut each: TensorType) -> Result<Value, Failure> {
    let reduction = match call.get("reduction") {
        None => "mean",
        Some(Value::Str(text)) => text,
        // Numbers of the reductions in operators.
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

/// That nothing is said in ways that are no longer to be used.
fn not_deprecated(call: &Call<'_>) -> Result<(), Failure> {
    for name in ["size_average", "reduce"] {
        if call.signature.position(name).is_some() && call.get(name).is_some() {
            return Err(Failure::unknown(format!("the deprecated argument {name}")));
        }
    }
    Ok(())
}

/// A loss of each element.
fn elementwise(call: &Call<'_>) -> Result<Value, Failure> {
    not_deprecated(call)?;
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
    not_deprecated(call)?;
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

/// A loss of each element of two or three tensors.
fn of_several(call: &Call<'_>) -> Result<Value, Failure> {
    not_deprecated(call)?;
    let names = ["input", "input1", "input2", "target"].into_iter();
    let given = names.filter(|name| call.signature.position(name).is_some());
    let given = given.map(|name| call.need(name));
    let given = given.collect::<Result<Vec<_>, _>>()?;
    let each = pointwise(call, &given, Out::Float)?;
    let Some(each) = each.as_tensor() else {
        return Err(Failure::expected("a tensor", given[0]));
    };
    reduced(call, (*each.ty).clone())
}

/// A loss of each row of several tensors.
fn of_rows(call: &Call<'_>) -> Result<Value, Failure> {
    not_deprecated(call)?;
    let all = [
        "input", "input1", "input2", "anchor", "positive", "negative",
    ];
    let given = all.into_iter();
    let given = given.filter(|name| call.signature.position(name).is_some());
    let given = given.map(|name| call.need(name));
    let mut given = given.collect::<Result<Vec<_>, _>>()?;
    if call.signature.position("weight").is_some() {
        given.push(call.need("target")?);
        given.extend(call.get("weight"));
    }
    let each = pointwise(call, &given, Out::Float)?;
    let Some(each) = each.as_tensor() else {
        return Err(Failure::expected("a tensor", given[0]));
    };
    let mut ty = (*each.ty).clone();
    if ty.shape.pop().is_none() {
        return Err(Failure::invalid("rows", each.ty.to_string()));
    }
    ty.strides = Strides::Contiguous;
    reduced(call, ty)
}

/// The same, of the distance that there is without a function for it.
fn of_rows_by_distance(call: &Call<'_>) -> Result<Value, Failure> {
    match call.get("distance_function") {
        None => of_rows(call),
        Some(_) => Err(Failure::unknown("a distance that is a function")),
    }
}

/// A loss of each row of scores of classes.
fn by_scores(call: &Call<'_>) -> Result<Value, Failure> {
    not_deprecated(call)?;
    let (input, target) = (call.tensor("input")?, call.tensor("target")?);
    let several = call.signature.position("p").is_none();
    let ranks = match (input.rank(), several) {
        (2, true) => 2..=2,
        (0..=2, _) => 0..=1,
        _ => {
            let expected = "scores of at most two dimensions";
            return Err(Failure::invalid(expected, input.ty.to_string()));
        }
    };
    if !ranks.contains(&target.rank()) {
        return Err(Failure::invalid(
            format!("a target of {} dimensions", ranks.end()),
            target.ty.to_string(),
        ));
    }
    // A target without dimensions is one of a number; so are several labels of one row.
    let is_number = target.rank() == usize::from(several) || target.rank() == 0;
    let shape: Shape = match (is_number, input.rank()) {
        (true, _) => Shape::new(),
        (false, 2) => input.shape.iter().take(1).cloned().collect(),
        (false, _) => [1.into()].into_iter().collect(),
    };
    let each = TensorType {
        device: input.device,
        ..TensorType::new(input.dtype, shape)
    };
    reduced(call, each)
}

/// A loss of each element, given means and variances.
fn gaussian(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let variance = match call.need("var")? {
        number @ Value::Float(_) => number.clone(),
        Value::Tensor(own) => {
            let mut shape = own.shape.clone();
            let others = input.shape.iter().zip(&shape).filter(|(a, b)| a != b);
            if input.shape != shape
                && input.shape.split_last().map(|(_, rest)| rest) == Some(&shape[..])
            {
                shape.push(1.into());
            } else if input.shape != shape
                && (input.rank() != own.rank() || !others.map(|(_, own)| own).eq([&Dim::from(1)]))
            {
                return Err(Failure::unknown("a variance of other sizes"));
            }
            let mut ty = (*own.ty).clone();
            if ty.shape != shape {
                ty.strides = Strides::Unknown;
                ty.shape = shape;
            }
            Value::Tensor(own.view(ty))
        }
        _ => {
            return Err(Failure::unknown(
                "a variance that is no tensor and no float",
            ));
        }
    };
    let given = [call.need("input")?, call.need("target")?, &variance];
    let each = pointwise(call, &given, Out::Float)?;
    let Some(each) = each.as_tensor() else {
        return Err(Failure::expected("a tensor", given[0]));
    };
    reduced(call, (*each.ty).clone())
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
    rule(
        "F.margin_ranking_loss",
        "input1 input2 target margin size_average reduce reduction",
        of_several,
        FEW,
    ),
    rule(
        "F.hinge_embedding_loss",
        "input target margin size_average reduce reduction",
        of_several,
        FEW,
    ),
    rule(
        "F.cosine_embedding_loss",
        "input1 input2 target margin size_average reduce reduction",
        of_rows,
        Cost::PerInput(6),
    ),
    rule(
        "F.triplet_margin_loss",
        "anchor positive negative margin p eps swap size_average reduce reduction",
        of_rows,
        Cost::PerInput(4),
    ),
    rule(
        "F.triplet_margin_with_distance_loss",
        "anchor positive negative *distance_function margin swap reduction",
        of_rows_by_distance,
        Cost::PerInput(4),
    ),
    rule(
        "F.multi_margin_loss",
        "input target p margin weight size_average reduce reduction",
        by_scores,
        Cost::PerInput(4),
    ),
    rule(
        "aten.multi_margin_loss",
        "input target p margin weight reduction",
        by_scores,
        Cost::PerInput(4),
    ),
    rule(
        "F.multilabel_margin_loss",
        DEPRECATED,
        by_scores,
        Cost::PerInput(4),
    ),
    rule(
        "aten.multilabel_margin_loss",
        "input target reduction",
        by_scores,
        Cost::PerInput(4),
    ),
    rule(
        "F.gaussian_nll_loss",
        "input target var full eps reduction",
        gaussian,
        Cost::PerInput(6),
    ),
    rule(
        "F.multilabel_soft_margin_loss",
        "input target weight size_average reduce reduction",
        of_rows,
        Cost::PerInput(8),
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
    )
    .shards(sharding::classified),
];
