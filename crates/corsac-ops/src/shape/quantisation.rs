//! Conversions between numbers and quantised integers.

use corsac_ir::DType;

use super::call::Call;
use super::dim::Dim;
use super::elementwise::like;
use super::error::Failure;
use super::rule::{Cost, Rule, rule};
use super::tensor_type::TensorType;
use super::value::{Tensor, Value};

/// A tensor of floating-point numbers.
fn numbers<'c>(call: &'c Call<'_>) -> Result<&'c Tensor, Failure> {
    let input = call.tensor("input")?;
    match input.dtype {
        DType::Float32 | DType::BFloat16 | DType::Float16 => Ok(input),
        other => Err(Failure::invalid(
            "floating-point numbers of 32 or 16 bits",
            other.to_string(),
        )),
    }
}

/// Integers like the input, of the type given.
fn quantized(call: &Call<'_>) -> Result<Value, Failure> {
    let input = numbers(call)?;
    let dtype = call.dtype("dtype")?;
    let dtype = dtype.ok_or_else(|| Failure::invalid("an argument dtype", "none"))?;
    Ok(like(input, dtype).into())
}

/// Numbers like the input, which is of the type given.
fn dequantized(call: &Call<'_>, default: &str) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    if let Some(dtype) = call.dtype("dtype")?
        && dtype != input.dtype
    {
        return Err(Failure::invalid(
            format!("integers of {dtype}"),
            input.dtype.to_string(),
        ));
    }
    let dtype = call.dtype(default)?.unwrap_or(DType::Float32);
    Ok(like(input, dtype).into())
}

fn dequantized_as_given(call: &Call<'_>) -> Result<Value, Failure> {
    dequantized(call, "out_dtype")
}

/// The same for operators that call the type of the result otherwise.
fn dequantized_to_output(call: &Call<'_>) -> Result<Value, Failure> {
    dequantized(call, "output_dtype")
}

/// A scale and a zero point for each row.
fn parameters(call: &Call<'_>) -> Result<Value, Failure> {
    let input = numbers(call)?;
    let mut shape = input.shape.clone();
    match shape.last_mut() {
        Some(last) => *last = Dim::ONE,
        None => return Err(Failure::invalid("a tensor with dimensions", "a number")),
    }
    let of = |dtype| -> Value {
        TensorType {
            device: input.device,
            ..TensorType::new(dtype, shape.clone())
        }
        .into()
    };
    Ok(Value::Tuple(
        [of(DType::Float32), of(DType::Int32)].into_iter().collect(),
    ))
}

/// Twice as many integers in the last dimension.
fn unpacked(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let mut shape = input.shape.clone();
    match (shape.last_mut(), input.dtype) {
        (Some(last), DType::UInt8) => *last = last.clone() * Dim::Known(2),
        _ => return Err(Failure::invalid("rows of uint8", input.ty.to_string())),
    }
    Ok(TensorType {
        device: input.device,
        ..TensorType::new(DType::Int8, shape)
    }
    .into())
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "corsac.quantize_per_tensor quantized_decomposed.quantize_per_tensor",
        "input scale zero_point quant_min quant_max dtype",
        quantized,
        Cost::PerOutput(4),
    )
    .detached(),
    rule(
        "corsac.quantize_per_channel quantized_decomposed.quantize_per_channel",
        "input scales zero_points axis quant_min quant_max dtype",
        quantized,
        Cost::PerOutput(4),
    )
    .detached(),
    rule(
        "corsac.quantize_per_token",
        "input scales zero_points quant_min quant_max dtype",
        quantized,
        Cost::PerOutput(4),
    )
    .detached(),
    rule(
        "corsac.dequantize_per_tensor quantized_decomposed.dequantize_per_tensor",
        "input scale zero_point quant_min quant_max dtype *out_dtype",
        dequantized_as_given,
        Cost::PerOutput(2),
    )
    .detached(),
    rule(
        "corsac.dequantize_per_channel quantized_decomposed.dequantize_per_channel",
        "input scales zero_points axis quant_min quant_max dtype *out_dtype",
        dequantized_as_given,
        Cost::PerOutput(2),
    )
    .detached(),
    rule(
        "corsac.dequantize_per_token",
        "input scales zero_points quant_min quant_max dtype output_dtype",
        dequantized_to_output,
        Cost::PerOutput(2),
    )
    .detached(),
    rule(
        "corsac.dequantize_per_channel_group quantized_decomposed.dequantize_per_channel_group",
        "input scales zero_points quant_min quant_max dtype group_size output_dtype",
        dequantized_to_output,
        Cost::PerOutput(2),
    )
    .detached(),
    rule(
        "corsac.choose_qparams_per_token",
        "input quant_min quant_max",
        parameters,
        Cost::PerInput(2),
    )
    .detached(),
    rule("corsac.unpack_int4", "input", unpacked, Cost::Move).detached(),
];
