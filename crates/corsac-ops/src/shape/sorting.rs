//! Sorting, and elements picked by their order.

use corsac_ir::DType;

use super::call::Call;
use super::dim::Dim;
use super::elementwise::like;
use super::error::Failure;
use super::reduction::values_and_indices;
use super::rule::{Cost, Rule, rule};
use super::tensor_type::{Strides, TensorType};
use super::value::Value;

fn with_indices(values: TensorType) -> Value {
    let indices = TensorType {
        dtype: DType::Int64,
        ..values.clone()
    };
    values_and_indices(values, indices)
}

fn sort(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    call.axis("dim", input.rank())?;
    Ok(with_indices(as_input(input)))
}

/// Laid out as the input where that is contiguous; otherwise the layout is unknown.
fn as_input(input: &super::value::Tensor) -> TensorType {
    let mut ty = like(input, input.dtype);
    if ty.strides != Strides::Contiguous {
        ty.strides = Strides::Unknown;
    }
    ty
}

fn argsort(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    call.axis("dim", input.rank())?;
    Ok(TensorType {
        dtype: DType::Int64,
        ..as_input(input)
    }
    .into())
}

fn topk(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let k = call
        .dim("k")?
        .ok_or_else(|| Failure::invalid("an argument k", "none"))?;
    let last = input.rank().saturating_sub(1);
    let axis = call.axis("dim", input.rank())?.unwrap_or(last);
    let mut shape = input.shape.clone();
    if let Some(size) = shape.get_mut(axis) {
        if size.less_than(&k) == Some(true) {
            return Err(Failure::invalid(
                format!("k of at most {size}"),
                k.to_string(),
            ));
        }
        *size = k;
    }
    Ok(with_indices(TensorType {
        device: input.device,
        ..TensorType::new(input.dtype, shape)
    }))
}

fn one_along(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let given = call.axis("dim", input.rank())?;
    let axis = given.unwrap_or(input.rank().saturating_sub(1));
    let mut shape = input.shape.clone();
    if axis < shape.len() {
        if call.flag("keepdim", false)? {
            shape[axis] = Dim::ONE;
        } else {
            shape.remove(axis);
        }
    }
    Ok(with_indices(TensorType {
        device: input.device,
        ..TensorType::new(input.dtype, shape)
    }))
}

/// The median of all elements, or along a dimension with indices.
fn median(call: &Call<'_>) -> Result<Value, Failure> {
    if call.get("dim").is_some() {
        return one_along(call);
    }
    let input = call.tensor("input")?;
    Ok(TensorType {
        device: input.device,
        ..TensorType::new(input.dtype, [])
    }
    .into())
}

fn searchsorted(call: &Call<'_>) -> Result<Value, Failure> {
    let dtype = if call.flag("out_int32", false)? {
        DType::Int32
    } else {
        DType::Int64
    };
    let sorted = call.tensor("sorted_sequence")?;
    let shape = match call.need("input")? {
        Value::Tensor(tensor) => tensor.shape.clone(),
        _ => super::tensor_type::Shape::new(),
    };
    Ok(TensorType {
        device: sorted.device,
        ..TensorType::new(dtype, shape)
    }
    .into())
}

pub(super) const RULES: &[Rule] = &[
    rule("sort", "input dim descending *stable", sort, Cost::Unknown),
    rule(
        "argsort",
        "input dim descending *stable",
        argsort,
        Cost::Unknown,
    )
    .detached(),
    rule(
        "msort",
        "input",
        |call| {
            let input = call.tensor("input")?;
            Ok(as_input(input).into())
        },
        Cost::Unknown,
    ),
    rule("topk", "input k dim largest sorted", topk, Cost::Unknown),
    rule("kthvalue", "input k dim keepdim", one_along, Cost::Unknown),
    rule("mode", "input dim keepdim", one_along, Cost::Unknown),
    rule(
        "median nanmedian",
        "input dim keepdim",
        median,
        Cost::Unknown,
    ),
    rule(
        "searchsorted",
        "sorted_sequence input *out_int32 right side sorter",
        searchsorted,
        Cost::Unknown,
    )
    .detached(),
];
