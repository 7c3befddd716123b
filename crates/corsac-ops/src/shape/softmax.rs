//! Softmax and its relatives.

use corsac_ir::DType;

use super::call::Call;
use super::elementwise::like;
use super::error::Failure;
use super::promotion::is_inexact;
use super::rule::{Cost, Rule, rule};
use super::sharding;
use super::tensor_type::Strides;
use super::value::Value;

fn along(call: &Call<'_>, dtype: Option<DType>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    call.axis("dim", input.rank())?;
    let dtype = dtype.unwrap_or(input.dtype);
    if !is_inexact(dtype) {
        return Err(Failure::invalid(
            "a floating-point element type",
            dtype.to_string(),
        ));
    }
    let mut ty = like(input, dtype);
    ty.strides = Strides::Contiguous;
    Ok(ty.into())
}

fn softmax(call: &Call<'_>) -> Result<Value, Failure> {
    along(call, call.dtype("dtype")?)
}

fn exact(call: &Call<'_>) -> Result<Value, Failure> {
    let widens = call.flag("half_to_float", false)?;
    along(call, widens.then_some(DType::Float32))
}

fn gumbel(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let mut ty = like(input, input.dtype);
    if ty.strides != Strides::Contiguous {
        ty.strides = Strides::Unknown;
    }
    Ok(ty.into())
}

// Largest element, difference, exponential, sum, quotient.
const FIVE: Cost = Cost::PerOutput(5);

pub(super) const RULES: &[Rule] = &[
    rule(
        "softmax log_softmax _safe_softmax",
        "input dim dtype",
        softmax,
        FIVE,
    )
    .shards(sharding::without_axis),
    rule(
        "F.softmax F.log_softmax F.softmin",
        "input dim _stacklevel dtype",
        softmax,
        FIVE,
    )
    .shards(sharding::without_axis),
    rule(
        "_softmax _log_softmax",
        "input dim half_to_float",
        exact,
        FIVE,
    )
    .shards(sharding::without_axis),
    rule(
        "F.gumbel_softmax",
        "input tau hard eps dim",
        gumbel,
        Cost::PerOutput(8),
    ),
];
