//! Operators that work element by element.

use corsac_ir::DType;
use smallvec::SmallVec;

use super::broadcast::{broadcast, elementwise_strides};
use super::call::Call;
use super::error::Failure;
use super::promotion::{Kind, ResultType, is_inexact, kind, real_part};
use super::rule::{Cost, Rule, rule};
use super::sharding;
use super::tensor_type::{CPU, Shape, Strides, TensorType};
use super::value::{Tensor, Value};

/// The element type of a result.
#[derive(Clone, Copy)]
pub(super) enum Out {
    /// The promoted type of the operands.
    Promoted,
    /// That, where it is floating-point or complex; otherwise the default floating-point type.
    Float,
    /// Truth values.
    Bool,
    /// That of the first operand.
    First,
    /// This one.
    Given(DType),
}

/// The result of an elementwise operator on these operands.
pub(super) fn pointwise(call: &Call<'_>, operands: &[&Value], out: Out) -> Result<Value, Failure> {
    let mut tensors: SmallVec<[&Tensor; 4]> = SmallVec::new();
    let mut types = ResultType::default();
    let mut shape = Shape::new();
    for operand in operands {
        types.add(operand)?;
        if let Value::Tensor(tensor) = operand {
            shape = if tensors.is_empty() {
                tensor.shape.clone()
            } else {
                broadcast(&shape, &tensor.shape)?
            };
            tensors.push(tensor);
        }
    }
    let dtype = match out {
        Out::Bool => DType::Bool,
        Out::Given(dtype) => dtype,
        Out::First => match operands[0] {
            Value::Tensor(tensor) => tensor.dtype,
            other => return Err(Failure::expected("a tensor", other)),
        },
        Out::Promoted => promoted(call, types)?,
        Out::Float => match promoted(call, types)? {
            inexact if is_inexact(inexact) => inexact,
            _ => call.settings.default_dtype,
        },
    };
    let strides = elementwise_strides(&shape, &tensors, tensors.len() < operands.len());
    let placed = tensors.iter().find(|t| t.rank() > 0).or(tensors.first());
    Ok(Value::tensor(TensorType {
        dtype,
        device: placed.map_or(CPU, |t| t.device),
        shape,
        strides,
        requires_grad: false,
    }))
}

/// The promoted type; a floating-point number among integer tensors gives the default type, not
/// `float32`.
fn promoted(call: &Call<'_>, types: ResultType) -> Result<DType, Failure> {
    let dtype = types.dtype()?;
    let by_number = types.only_number_is_inexact();
    if by_number && kind(dtype) == Some(Kind::Float) {
        return Ok(call.settings.default_dtype);
    }
    Ok(dtype)
}

/// `dtype` where it is floating-point or complex, the default type otherwise.
pub(super) fn floating(call: &Call<'_>, dtype: DType) -> DType {
    if is_inexact(dtype) {
        dtype
    } else {
        call.settings.default_dtype
    }
}

/// A tensor like `input`, elementwise: the same shape, laid out as an elementwise result.
pub(super) fn like(input: &Tensor, dtype: DType) -> TensorType {
    TensorType {
        dtype,
        shape: input.shape.clone(),
        strides: elementwise_strides(&input.shape, &[input], false),
        device: input.device,
        requires_grad: false,
    }
}

fn unary(call: &Call<'_>, out: Out) -> Result<Value, Failure> {
    call.tensor("input")?;
    pointwise(call, &[call.need("input")?], out)
}

fn binary(call: &Call<'_>, out: Out) -> Result<Value, Failure> {
    let (input, other) = (call.need("input")?, call.need("other")?);
    if input.as_tensor().is_none() && other.as_tensor().is_none() {
        return Err(Failure::expected("a tensor", input));
    }
    pointwise(call, &[input, other], out)
}

fn promoted_binary(call: &Call<'_>) -> Result<Value, Failure> {
    binary(call, Out::Promoted)
}

fn float_binary(call: &Call<'_>) -> Result<Value, Failure> {
    binary(call, Out::Float)
}

fn comparison(call: &Call<'_>) -> Result<Value, Failure> {
    binary(call, Out::Bool)
}

fn same_unary(call: &Call<'_>) -> Result<Value, Failure> {
    unary(call, Out::First)
}

fn float_unary(call: &Call<'_>) -> Result<Value, Failure> {
    unary(call, Out::Float)
}

fn predicate(call: &Call<'_>) -> Result<Value, Failure> {
    unary(call, Out::Bool)
}

fn absolute(call: &Call<'_>) -> Result<Value, Failure> {
    let dtype = real_part(call.tensor("input")?.dtype);
    unary(call, Out::Given(dtype))
}

fn divide(call: &Call<'_>) -> Result<Value, Failure> {
    match call.text("rounding_mode")? {
        None => binary(call, Out::Float),
        Some(_) => binary(call, Out::Promoted),
    }
}

fn power(call: &Call<'_>) -> Result<Value, Failure> {
    let (base, exponent) = (call.need("input")?, call.need("exponent")?);
    if exponent.as_tensor().is_none() && base.as_tensor().is_none() {
        return Err(Failure::expected("a tensor", base));
    }
    if exponent.as_tensor().is_none() && base.as_tensor().is_some() {
        // The exponent is no operand of the loop, so it does not affect the layout.
        let mut types = ResultType::default();
        types.add(base)?;
        types.add(exponent)?;
        let dtype = promoted(call, types)?;
        return pointwise(call, &[base], Out::Given(dtype));
    }
    pointwise(call, &[base, exponent], Out::Promoted)
}

fn float_power(call: &Call<'_>) -> Result<Value, Failure> {
    let operands = [call.need("input")?, call.need("exponent")?];
    let mut types = ResultType::default();
    for operand in operands {
        types.add(operand)?;
    }
    let dtype = match kind(types.dtype()?) {
        Some(Kind::Complex) => DType::Complex128,
        _ => DType::Float64,
    };
    pointwise(call, &operands, Out::Given(dtype))
}

/// An activation, possibly with `inplace`.
fn activation(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    if call.flag("inplace", false)? {
        return Ok(Value::Tensor(input.clone()));
    }
    Ok(like(input, input.dtype).into())
}

fn dropout_when(call: &Call<'_>, by_default: bool) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let training = call.flag("training", by_default)?;
    let inplace = call.flag("inplace", false)?;
    if !training || inplace {
        return Ok(Value::Tensor(input.clone()));
    }
    match call.get("p") {
        Some(Value::Float(0.0)) => Ok(Value::Tensor(input.clone())),
        _ => Ok(like(input, input.dtype).into()),
    }
}

fn dropout(call: &Call<'_>) -> Result<Value, Failure> {
    dropout_when(call, true)
}

fn alpha_dropout(call: &Call<'_>) -> Result<Value, Failure> {
    dropout_when(call, false)
}

fn native_dropout(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    Ok(Value::tensors([
        like(input, input.dtype),
        like(input, DType::Bool),
    ]))
}

fn prelu(call: &Call<'_>) -> Result<Value, Failure> {
    call.tensor("weight")?;
    activation_of(call)
}

fn activation_of(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    Ok(like(input, input.dtype).into())
}

/// Half of the channels gate the other half.
fn glu(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let axis = call
        .axis("dim", input.rank())?
        .unwrap_or(input.rank().saturating_sub(1));
    let Some(size) = input.shape.get(axis) else {
        return Err(Failure::invalid(
            "a tensor with dimensions",
            input.ty.to_string(),
        ));
    };
    let two = super::dim::Dim::Known(2);
    let half = size.exact_div(&two).ok_or_else(|| match size.known() {
        Some(_) => Failure::invalid("an even size to halve", size.to_string()),
        None => Failure::unknown(format!("it depends on whether {size} is even")),
    })?;
    let mut ty = like(input, input.dtype);
    ty.shape[axis] = half;
    ty.strides = match input.is_contiguous() {
        Some(true) => Strides::Contiguous,
        _ => Strides::Unknown,
    };
    Ok(ty.into())
}

fn clamp(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.need("input")?;
    let bounds = [call.get("min"), call.get("max")];
    let given: SmallVec<[&Value; 3]> = std::iter::once(input)
        .chain(bounds.into_iter().flatten())
        .collect();
    if given.len() == 1 {
        return Err(Failure::invalid("min or max", "neither"));
    }
    let mut types = ResultType::default();
    for value in &given {
        types.add(value)?;
    }
    let dtype = promoted(call, types)?;
    // Bounds that are numbers are no operands of the loop.
    let operands: SmallVec<[&Value; 3]> = given
        .into_iter()
        .filter(|v| v.as_tensor().is_some())
        .collect();
    pointwise(call, &operands, Out::Given(dtype))
}

fn select_where(call: &Call<'_>) -> Result<Value, Failure> {
    let condition = call.need("condition")?;
    let (input, other) = (call.need("input")?, call.need("other")?);
    let mut types = ResultType::default();
    types.add(input)?;
    types.add(other)?;
    let dtype = promoted(call, types)?;
    pointwise(call, &[condition, input, other], Out::Given(dtype))
}

fn masked_fill(call: &Call<'_>) -> Result<Value, Failure> {
    let (input, mask) = (call.tensor("input")?, call.tensor("mask")?);
    call.need("value")?;
    let mut ty = like(input, input.dtype);
    ty.shape = broadcast(&input.shape, &mask.shape)?;
    ty.strides = Strides::Contiguous;
    Ok(ty.into())
}

fn ternary(call: &Call<'_>) -> Result<Value, Failure> {
    let operands = [
        call.need("input")?,
        call.need("tensor1")?,
        call.need("tensor2")?,
    ];
    pointwise(call, &operands, Out::Promoted)
}

fn lerp(call: &Call<'_>) -> Result<Value, Failure> {
    let (input, end, weight) = (call.need("input")?, call.need("end")?, call.need("weight")?);
    match weight {
        Value::Tensor(_) => pointwise(call, &[input, end, weight], Out::First),
        _ => pointwise(call, &[input, end], Out::First),
    }
}

const ONE: Cost = Cost::PerOutput(1);

pub(super) const RULES: &[Rule] = &[
    rule(
        "add sub subtract",
        "input other alpha",
        promoted_binary,
        ONE,
    )
    .writes()
    .shards(sharding::added),
    rule("rsub", "input other alpha", promoted_binary, ONE).shards(sharding::added),
    rule(
        "mul multiply maximum minimum fmax fmin fmod remainder floor_divide hypot nextafter \
         bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm \
         operator.lshift operator.rshift operator.__lshift__ operator.__rshift__ logaddexp \
         logaddexp2",
        "input other",
        promoted_binary,
        ONE,
    )
    .writes()
    .shards(sharding::scaled),
    rule("div divide", "input other *rounding_mode", divide, ONE)
        .writes()
        .shards(sharding::divided),
    rule(
        "true_divide atan2 arctan2 copysign xlogy xlog1py special_zeta",
        "input other",
        float_binary,
        ONE,
    )
    .writes()
    .shards(sharding::elementwise),
    rule("pow", "input exponent", power, ONE)
        .writes()
        .shards(sharding::elementwise),
    rule("float_power", "input exponent", float_power, ONE)
        .writes()
        .shards(sharding::elementwise),
    rule(
        "eq ne not_equal lt less le less_equal gt greater ge greater_equal logical_and \
         logical_or logical_xor",
        "input other",
        comparison,
        ONE,
    )
    .writes()
    .detached()
    .shards(sharding::elementwise),
    rule(
        "isclose",
        "input other rtol atol equal_nan",
        comparison,
        Cost::PerOutput(4),
    )
    .detached()
    .shards(sharding::elementwise),
    rule(
        "isnan isinf isfinite isneginf isposinf signbit logical_not isreal",
        "input",
        predicate,
        ONE,
    )
    .writes()
    .detached()
    .shards(sharding::elementwise),
    rule(
        "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh arcsin arccos arctan arcsinh \
         arccosh arctanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sigmoid expit \
         erf erfc erfinv lgamma digamma i0 sinc deg2rad rad2deg i0e i1 i1e ndtri erfcx \
         log_ndtr ndtr entr bessel_j0 bessel_j1 special.gammaln special.psi",
        "input",
        float_unary,
        ONE,
    )
    .writes()
    .shards(sharding::elementwise),
    rule("logit", "input eps", float_unary, ONE)
        .writes()
        .shards(sharding::elementwise),
    rule(
        "neg negative floor ceil trunc fix frac sign sgn square bitwise_not conj_physical",
        "input",
        same_unary,
        ONE,
    )
    .writes()
    .shards(sharding::elementwise),
    rule(
        "operator.__invert__ operator.invert",
        "input",
        same_unary,
        ONE,
    )
    .shards(sharding::elementwise),
    rule("round", "input *decimals", same_unary, ONE)
        .writes()
        .shards(sharding::elementwise),
    rule("nan_to_num", "input nan posinf neginf", same_unary, ONE)
        .writes()
        .shards(sharding::elementwise),
    rule("abs absolute", "input", absolute, ONE)
        .writes()
        .shards(sharding::elementwise),
    rule(
        "relu relu6 silu mish hardswish hardsigmoid selu",
        "input inplace",
        activation,
        ONE,
    )
    .writes()
    .shards(sharding::elementwise),
    rule("celu elu", "input alpha inplace", activation, ONE)
        .writes()
        .shards(sharding::elementwise),
    rule(
        "leaky_relu",
        "input negative_slope inplace",
        activation,
        ONE,
    )
    .writes()
    .shards(sharding::elementwise),
    rule(
        "aten.elu",
        "input alpha scale input_scale",
        activation_of,
        ONE,
    )
    .writes()
    .shards(sharding::elementwise),
    rule("hardtanh", "input min_val max_val inplace", activation, ONE)
        .writes()
        .shards(sharding::elementwise),
    rule(
        "threshold F._threshold",
        "input threshold value inplace",
        activation,
        ONE,
    )
    .writes()
    .shards(sharding::elementwise),
    rule(
        "rrelu",
        "input lower upper training inplace",
        activation,
        ONE,
    ),
    rule("gelu", "input *approximate", activation_of, ONE).shards(sharding::elementwise),
    rule("softplus", "input beta threshold", activation_of, ONE).shards(sharding::elementwise),
    rule("softshrink hardshrink", "input lambd", activation_of, ONE).shards(sharding::elementwise),
    rule(
        "tanhshrink softsign logsigmoid log_sigmoid",
        "input",
        float_unary,
        Cost::PerOutput(2),
    )
    .shards(sharding::elementwise),
    rule("prelu _prelu_kernel", "input weight", prelu, ONE),
    rule("glu", "input dim", glu, Cost::PerOutput(2)),
    rule(
        "dropout dropout1d dropout2d dropout3d feature_dropout",
        "input p training inplace",
        dropout,
        ONE,
    )
    .writes()
    .shards(sharding::dropped),
    rule(
        "alpha_dropout feature_alpha_dropout",
        "input p training inplace",
        alpha_dropout,
        ONE,
    )
    .writes(),
    rule("native_dropout", "input p train", native_dropout, ONE).shards(sharding::elementwise),
    rule("clamp clip", "input min max", clamp, ONE)
        .writes()
        .shards(sharding::elementwise),
    rule("clamp_min", "input min max", clamp, ONE)
        .writes()
        .shards(sharding::elementwise),
    rule("clamp_max", "input max min", clamp, ONE)
        .writes()
        .shards(sharding::elementwise),
    rule("where", "condition input other", select_where, ONE).shards(sharding::elementwise),
    rule("Tensor.where", "input condition other", select_where, ONE).shards(sharding::elementwise),
    rule("masked_fill", "input mask value", masked_fill, Cost::Move)
        .writes()
        .shards(sharding::elementwise),
    rule(
        "addcmul addcdiv",
        "input tensor1 tensor2 *value",
        ternary,
        Cost::PerOutput(3),
    )
    .writes()
    .shards(sharding::elementwise),
    rule("lerp", "input end weight", lerp, Cost::PerOutput(3))
        .writes()
        .shards(sharding::elementwise),
    rule("fill", "input value", same_unary, Cost::Move).writes(),
    rule("aten.zero zero_", "input", same_unary, Cost::Move).writes(),
    rule(
        "aten.copy copy_",
        "input src non_blocking",
        same_unary,
        Cost::Move,
    )
    .writes(),
    rule(
        "normal_ uniform_ bernoulli_ random_ exponential_ geometric_ log_normal_ cauchy_",
        "input a b *generator *mean *std *from *to *p *lambd",
        same_unary,
        ONE,
    )
    .writes(),
];
