//! Numbers and containers between tensors: sizes read from shapes and computed with, attributes,
//! Python's operators and built-in functions.

use corsac_ir::Layout;

use super::call::{Call, as_dim, wrap_axis};
use super::dim::Dim;
use super::error::Failure;
use super::index::item;
use super::promotion::{Kind, element_bytes, is_inexact};
use super::rule::{Cost, Found, Rule, named, rule};
use super::sharding;
use super::tensor_type::TensorType;
use super::value::{Tensor, Value};
use super::view::{matrix_transposed, part, reversed};

type Numbers = fn(&Value, &Value) -> Result<Value, Failure>;

/// The rule `tensors` where an operand is a tensor, `numbers` otherwise.
fn either(call: &Call<'_>, tensors: &str, numbers: Numbers) -> Result<Value, Failure> {
    let (a, b) = (operand(call, 0)?, operand(call, 1)?);
    if a.as_tensor().is_none() && b.as_tensor().is_none() {
        return numbers(a, b);
    }
    forward(call, tensors)
}

/// The rule called `name` for the arguments of this call.
fn forward(call: &Call<'_>, name: &str) -> Result<Value, Failure> {
    let Some(Found { entry, .. }) = named(name) else {
        return Err(Failure::unknown(format!("there is no rule {name}")));
    };
    let args = call.args.iter().flatten().cloned();
    let other = Call::bind(&entry.signature, args, std::iter::empty(), call.settings)?;
    (entry.rule.infer)(&other)
}

fn operand<'a>(call: &'a Call<'_>, at: usize) -> Result<&'a Value, Failure> {
    call.args
        .get(at)
        .and_then(Option::as_ref)
        .ok_or_else(|| Failure::invalid(format!("{} operands", at + 1), at.to_string()))
}

/// The kind of a number.
fn number_kind(value: &Value) -> Result<Kind, Failure> {
    Ok(match value {
        Value::Bool(_) => Kind::Bool,
        Value::Int(_) => Kind::Int,
        Value::Float(_) => Kind::Float,
        Value::Complex(..) => Kind::Complex,
        Value::Number(kind) => *kind,
        other => return Err(Failure::expected("a number", other)),
    })
}

fn float_of(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(value) => Some(f64::from(u8::from(*value))),
        Value::Int(Dim::Known(value)) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        _ => None,
    }
}

/// Two numbers: integers by `ints`, others by `floats`; where neither has a result, only the kind.
fn arithmetic(
    a: &Value,
    b: &Value,
    ints: impl Fn(&Dim, &Dim) -> Option<Dim>,
    floats: impl Fn(f64, f64) -> f64,
) -> Result<Value, Failure> {
    let kind = number_kind(a)?.max(number_kind(b)?).max(Kind::Int);
    if let (Some(a), Some(b)) = (as_dim(a), as_dim(b)) {
        return Ok(ints(&a, &b).map_or(Value::Number(Kind::Int), Value::Int));
    }
    match (float_of(a), float_of(b)) {
        (Some(a), Some(b)) => Ok(Value::Float(floats(a, b))),
        _ => Ok(Value::Number(kind)),
    }
}

fn add_numbers(a: &Value, b: &Value) -> Result<Value, Failure> {
    if let (Some(first), Some(second)) = (a.as_items(), b.as_items()) {
        let all = first.iter().chain(second).cloned().collect();
        return Ok(match a {
            Value::List(_) => Value::List(all),
            _ => Value::Tuple(all),
        });
    }
    if let (Value::Str(a), Value::Str(b)) = (a, b) {
        return Ok(Value::Str(format!("{a}{b}").into()));
    }
    arithmetic(a, b, |a, b| Some(a.clone() + b.clone()), |a, b| a + b)
}

fn mul_numbers(a: &Value, b: &Value) -> Result<Value, Failure> {
    let (sequence, times) = if a.as_items().is_some() {
        (a, b)
    } else {
        (b, a)
    };
    if let (Some(items), Some(times)) = (sequence.as_items(), as_dim(times)) {
        let Some(times) = times.known().filter(|&n| n < 1 << 16) else {
            return Err(Failure::unknown("how often a sequence is repeated"));
        };
        let times = usize::try_from(times).unwrap_or(0);
        if items.len().saturating_mul(times) >= 1 << 20 {
            return Err(Failure::unknown("a sequence of a million items"));
        }
        let all = std::iter::repeat_n(items, times)
            .flatten()
            .cloned()
            .collect();
        return Ok(match sequence {
            Value::List(_) => Value::List(all),
            _ => Value::Tuple(all),
        });
    }
    arithmetic(a, b, |a, b| Some(a.clone() * b.clone()), |a, b| a * b)
}

fn sub_numbers(a: &Value, b: &Value) -> Result<Value, Failure> {
    arithmetic(a, b, |a, b| Some(a.clone() - b.clone()), |a, b| a - b)
}

fn divide_numbers(a: &Value, b: &Value) -> Result<Value, Failure> {
    number_kind(a).and(number_kind(b))?;
    match (float_of(a), float_of(b)) {
        (Some(_), Some(0.0)) => Err(Failure::invalid("a divisor that is not zero", "0")),
        (Some(a), Some(b)) => Ok(Value::Float(a / b)),
        _ => Ok(Value::Number(Kind::Float)),
    }
}

fn floor_divide_numbers(a: &Value, b: &Value) -> Result<Value, Failure> {
    if float_of(b) == Some(0.0) {
        return Err(Failure::invalid("a divisor that is not zero", "0"));
    }
    arithmetic(a, b, Dim::floor_div, |a, b| (a / b).floor())
}

fn modulo_numbers(a: &Value, b: &Value) -> Result<Value, Failure> {
    if matches!(a, Value::Str(_)) {
        return Ok(Value::Object);
    }
    if float_of(b) == Some(0.0) {
        return Err(Failure::invalid("a divisor that is not zero", "0"));
    }
    arithmetic(a, b, Dim::modulo, |a, b| a - b * (a / b).floor())
}

fn power_numbers(a: &Value, b: &Value) -> Result<Value, Failure> {
    if let (Some(base), Some(Dim::Known(exponent @ 0..=64))) = (as_dim(a), as_dim(b)) {
        let power = (0..exponent).fold(Dim::ONE, |power, _| power * base.clone());
        return Ok(Value::Int(power));
    }
    match (float_of(a), float_of(b)) {
        (Some(a), Some(b)) => Ok(Value::Float(a.powf(b))),
        _ => Ok(Value::Number(
            number_kind(a)?.max(number_kind(b)?).max(Kind::Float),
        )),
    }
}

fn bits(a: &Value, b: &Value, f: fn(i64, i64) -> i64) -> Result<Value, Failure> {
    if let (Value::Bool(a), Value::Bool(b)) = (a, b) {
        return Ok(Value::Bool(f(i64::from(*a), i64::from(*b)) != 0));
    }
    let kind = number_kind(a)?.max(number_kind(b)?);
    let known = |value| as_dim(value).and_then(|dim| dim.known());
    match (known(a), known(b)) {
        (Some(a), Some(b)) => Ok(Value::int(f(a, b))),
        _ => Ok(Value::Number(kind)),
    }
}

/// Whether two values are equal, where that is known.
fn equal(a: &Value, b: &Value) -> Option<bool> {
    if let (Some(a), Some(b)) = (as_dim(a), as_dim(b)) {
        return a.equals(&b);
    }
    if let (Some(a), Some(b)) = (float_of(a), float_of(b)) {
        return Some(a == b);
    }
    match (a, b) {
        (Value::Tuple(a), Value::Tuple(b)) | (Value::List(a), Value::List(b)) => {
            if a.len() != b.len() {
                return Some(false);
            }
            // One pair that differs decides, even if others are not known.
            let mut all = Some(true);
            for (a, b) in a.iter().zip(b.iter()) {
                match equal(a, b) {
                    Some(true) => {}
                    Some(false) => return Some(false),
                    None => all = None,
                }
            }
            all
        }
        (Value::Unknown(_) | Value::Object | Value::Number(_), _)
        | (_, Value::Unknown(_) | Value::Object | Value::Number(_))
        | (Value::Tensor(_), _)
        | (_, Value::Tensor(_)) => None,
        (a, b) => Some(a == b),
    }
}

fn truth(known: Option<bool>) -> Value {
    known.map_or(Value::Number(Kind::Bool), Value::Bool)
}

fn equal_values(a: &Value, b: &Value) -> Result<Value, Failure> {
    Ok(truth(equal(a, b)))
}

fn unequal_values(a: &Value, b: &Value) -> Result<Value, Failure> {
    Ok(truth(equal(a, b).map(|equal| !equal)))
}

fn less_than(a: &Value, b: &Value) -> Result<Option<bool>, Failure> {
    number_kind(a).and(number_kind(b))?;
    if let (Some(a), Some(b)) = (as_dim(a), as_dim(b)) {
        return Ok(a.less_than(&b));
    }
    Ok(float_of(a).zip(float_of(b)).map(|(a, b)| a < b))
}

fn less_values(a: &Value, b: &Value) -> Result<Value, Failure> {
    less_than(a, b).map(truth)
}

fn greater_values(a: &Value, b: &Value) -> Result<Value, Failure> {
    less_than(b, a).map(truth)
}

fn less_equal_values(a: &Value, b: &Value) -> Result<Value, Failure> {
    Ok(truth(less_than(b, a)?.map(|greater| !greater)))
}

fn greater_equal_values(a: &Value, b: &Value) -> Result<Value, Failure> {
    Ok(truth(less_than(a, b)?.map(|less| !less)))
}

macro_rules! operators {
    ($($name:ident: $tensors:literal, $numbers:expr;)*) => {
        $(fn $name(call: &Call<'_>) -> Result<Value, Failure> {
            either(call, $tensors, $numbers)
        })*
    };
}

operators! {
    add: "add", add_numbers;
    sub: "sub", sub_numbers;
    mul: "mul", mul_numbers;
    divide: "div", divide_numbers;
    floor_divide: "floor_divide", floor_divide_numbers;
    modulo: "remainder", modulo_numbers;
    power: "pow", power_numbers;
    bit_and: "bitwise_and", |a, b| bits(a, b, |a, b| a & b);
    bit_or: "bitwise_or", |a, b| bits(a, b, |a, b| a | b);
    bit_xor: "bitwise_xor", |a, b| bits(a, b, |a, b| a ^ b);
    eq: "eq", equal_values;
    ne: "ne", unequal_values;
    lt: "lt", less_values;
    le: "le", less_equal_values;
    gt: "gt", greater_values;
    ge: "ge", greater_equal_values;
}

fn reflected(
    call: &Call<'_>,
    f: fn(&Call<'_>) -> Result<Value, Failure>,
) -> Result<Value, Failure> {
    let swapped = Call {
        args: call.args.iter().rev().cloned().collect(),
        rest: Vec::new(),
        out: None,
        ..*call
    };
    f(&swapped)
}

fn neg(call: &Call<'_>) -> Result<Value, Failure> {
    match operand(call, 0)? {
        Value::Tensor(_) => forward(call, "neg"),
        Value::Int(dim) => Ok(Value::Int(-dim.clone())),
        Value::Float(value) => Ok(Value::Float(-value)),
        other => number_kind(other).map(Value::Number),
    }
}

fn abs(call: &Call<'_>) -> Result<Value, Failure> {
    match operand(call, 0)? {
        Value::Tensor(_) => forward(call, "abs"),
        Value::Int(dim) if dim.lower_bound() >= 0 => Ok(Value::Int(dim.clone())),
        Value::Int(Dim::Known(value)) => Ok(Value::int(value.saturating_abs())),
        Value::Float(value) => Ok(Value::Float(value.abs())),
        other => number_kind(other).map(Value::Number),
    }
}

/// Whether Python counts a value as true.
fn is_true(value: &Value) -> Option<bool> {
    match value {
        Value::None => Some(false),
        Value::Bool(value) => Some(*value),
        Value::Int(dim) => dim.equals(&Dim::ZERO).map(|zero| !zero),
        Value::Float(value) => Some(*value != 0.0),
        Value::Str(text) => Some(!text.is_empty()),
        Value::Tuple(items) | Value::List(items) => Some(!items.is_empty()),
        _ => None,
    }
}

fn negation(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(truth(is_true(operand(call, 0)?).map(|value| !value)))
}

fn truth_of(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(truth(is_true(operand(call, 0)?)))
}

fn is_same(call: &Call<'_>) -> Result<Value, Failure> {
    let (a, b) = (operand(call, 0)?, operand(call, 1)?);
    Ok(match (a, b) {
        (Value::Unknown(_), _) | (_, Value::Unknown(_)) => Value::Number(Kind::Bool),
        (Value::None, b) => Value::Bool(*b == Value::None),
        (a, Value::None) => Value::Bool(*a == Value::None),
        _ => Value::Number(Kind::Bool),
    })
}

fn is_not_same(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(match is_same(call)? {
        Value::Bool(same) => Value::Bool(!same),
        other => other,
    })
}

// -- Built-in functions ---------------------------------------------------------------------------

fn to_int(call: &Call<'_>) -> Result<Value, Failure> {
    match operand(call, 0)? {
        Value::Float(value) if value.is_finite() => Ok(Value::int(value.trunc() as i64)),
        Value::Tensor(_) => Ok(Value::Number(Kind::Int)),
        other => match as_dim(other) {
            Some(dim) => Ok(Value::Int(dim)),
            None => number_kind(other).map(|_| Value::Number(Kind::Int)),
        },
    }
}

fn to_float(call: &Call<'_>) -> Result<Value, Failure> {
    let value = operand(call, 0)?;
    Ok(match float_of(value) {
        Some(value) => Value::Float(value),
        None if value.as_tensor().is_some() => Value::Number(Kind::Float),
        None => number_kind(value).map(|_| Value::Number(Kind::Float))?,
    })
}

fn len(call: &Call<'_>) -> Result<Value, Failure> {
    match operand(call, 0)? {
        Value::Tensor(tensor) => match tensor.shape.first() {
            Some(size) => Ok(Value::Int(size.clone())),
            None => Err(Failure::invalid(
                "a tensor with dimensions",
                tensor.ty.to_string(),
            )),
        },
        Value::Tuple(items) | Value::List(items) => Ok(Value::int(items.len() as i64)),
        Value::Named(items) => Ok(Value::int(items.len() as i64)),
        Value::Dict(entries) => Ok(Value::int(entries.len() as i64)),
        Value::Str(text) => Ok(Value::int(text.chars().count() as i64)),
        other => Err(Failure::expected("something with a length", other)),
    }
}

/// The operands of `min(a, b, ..)` or of `min([a, b, ..])`.
fn several<'a>(call: &'a Call<'_>) -> Result<&'a [Value], Failure> {
    match call.rest.as_slice() {
        [only] => only
            .as_items()
            .ok_or_else(|| Failure::expected("several numbers, or a list of them", only)),
        many => Ok(many),
    }
}

fn extreme(
    call: &Call<'_>,
    dims: fn(&Dim, &Dim) -> Dim,
    floats: fn(f64, f64) -> f64,
) -> Result<Value, Failure> {
    let values = several(call)?;
    let Some((first, others)) = values.split_first() else {
        return Err(Failure::invalid("at least one number", "none"));
    };
    others.iter().try_fold(first.clone(), |a, b| {
        arithmetic(&a, b, |a, b| Some(dims(a, b)), floats)
    })
}

fn smallest(call: &Call<'_>) -> Result<Value, Failure> {
    extreme(call, Dim::smaller, f64::min)
}

fn largest(call: &Call<'_>) -> Result<Value, Failure> {
    extreme(call, Dim::larger, f64::max)
}

fn sum(call: &Call<'_>) -> Result<Value, Failure> {
    let given = call.need("a")?;
    let Some(items) = given.as_items() else {
        return Err(Failure::expected("a list", given));
    };
    let start = call.get("start").cloned().unwrap_or(Value::int(0));
    let plus = named("operator.add");
    items.iter().try_fold(start, |a, b| match plus {
        Some(Found { entry, .. }) => {
            let both = [a, b.clone()].into_iter();
            let call = Call::bind(&entry.signature, both, std::iter::empty(), call.settings)?;
            (entry.rule.infer)(&call)
        }
        None => add_numbers(&a, b),
    })
}

fn product(call: &Call<'_>) -> Result<Value, Failure> {
    let given = call.need("a")?;
    let Some(items) = given.as_items() else {
        return Err(Failure::expected("a list", given));
    };
    items
        .iter()
        .try_fold(Value::int(1), |a, b| mul_numbers(&a, b))
}

fn round(call: &Call<'_>) -> Result<Value, Failure> {
    match (operand(call, 0)?, call.get("ndigits")) {
        (Value::Tensor(_), _) => forward(call, "round"),
        (Value::Float(value), None) => Ok(Value::int(value.round_ties_even() as i64)),
        (Value::Int(dim), None) => Ok(Value::Int(dim.clone())),
        (other, _) => number_kind(other).map(Value::Number),
    }
}

fn items_of(value: &Value) -> Result<Vec<Value>, Failure> {
    match value {
        Value::Tuple(items) | Value::List(items) => Ok(items.to_vec()),
        Value::Named(items) => Ok(items.iter().map(|(_, item)| item.clone()).collect()),
        Value::Dict(entries) => Ok(entries.iter().map(|(key, _)| key.clone()).collect()),
        other => Err(Failure::expected("a container", other)),
    }
}

fn to_tuple(call: &Call<'_>) -> Result<Value, Failure> {
    let items = call.get("a").map_or(Ok(Vec::new()), items_of)?;
    Ok(Value::Tuple(items.into()))
}

fn to_list(call: &Call<'_>) -> Result<Value, Failure> {
    let items = call.get("a").map_or(Ok(Vec::new()), items_of)?;
    Ok(Value::List(items.into()))
}

fn to_slice(call: &Call<'_>) -> Result<Value, Failure> {
    let part = |at| call.args.get(at).cloned().flatten().unwrap_or(Value::None);
    Ok(Value::Slice(match call.args.iter().flatten().count() {
        1 => [Value::None, part(0), Value::None].into(),
        _ => [part(0), part(1), part(2)].into(),
    }))
}

fn attribute(call: &Call<'_>) -> Result<Value, Failure> {
    let value = operand(call, 0)?;
    let name = match operand(call, 1)? {
        Value::Str(name) => name,
        other => return Err(Failure::expected("the name of an attribute", other)),
    };
    match value {
        Value::Tensor(tensor) => tensor_attribute(tensor, name),
        Value::Named(items) => items
            .iter()
            .find(|(own, _)| *own == &**name)
            .map(|(_, item)| item.clone())
            .ok_or_else(|| Failure::unknown(format!("the attribute {name}"))),
        other => Err(Failure::unknown(format!("the attribute {name} of {other}"))),
    }
}

fn tensor_attribute(tensor: &Tensor, name: &str) -> Result<Value, Failure> {
    Ok(match name {
        "shape" => Value::sizes(&tensor.shape),
        "dtype" => Value::DType(tensor.dtype),
        "device" => Value::Device(tensor.device),
        "layout" => Value::Layout(Layout::Strided),
        "ndim" => Value::int(tensor.rank() as i64),
        "requires_grad" => Value::Bool(tensor.requires_grad),
        "itemsize" => Value::int(element_bytes(tensor.dtype)),
        "nbytes" => Value::Int(tensor.size_bytes()),
        "is_cuda" => Value::Bool(tensor.device.kind == corsac_ir::DeviceKind::Cuda),
        "is_cpu" => Value::Bool(tensor.device.kind == corsac_ir::DeviceKind::Cpu),
        "is_meta" => Value::Bool(tensor.device.kind == corsac_ir::DeviceKind::Meta),
        "is_sparse" | "is_quantized" | "is_nested" | "is_mkldnn" => Value::Bool(false),
        "T" => reversed(tensor),
        "mT" => matrix_transposed(tensor)?,
        "H" | "mH" if !matches!(super::promotion::kind(tensor.dtype), Some(Kind::Complex)) => {
            matrix_transposed(tensor)?
        }
        "data" => Value::Tensor(tensor.view(TensorType {
            requires_grad: false,
            ..(*tensor.ty).clone()
        })),
        "real" => part(tensor),
        other => {
            return Err(Failure::unknown(format!(
                "the attribute {other} of a tensor"
            )));
        }
    })
}

fn instance(_: &Call<'_>) -> Result<Value, Failure> {
    Ok(Value::Number(Kind::Bool))
}

fn nothing(_: &Call<'_>) -> Result<Value, Failure> {
    Ok(Value::None)
}

fn assertion(call: &Call<'_>) -> Result<Value, Failure> {
    if is_true(call.need("condition")?) == Some(false) {
        let message = call
            .get("message")
            .map_or_else(String::new, |m| format!(": {m}"));
        return Err(Failure::invalid(
            format!("what is asserted{message}"),
            "False",
        ));
    }
    Ok(Value::None)
}

// -- Properties of tensors ------------------------------------------------------------------------

fn size(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let Some(dim) = call.int("dim")? else {
        return Ok(Value::sizes(&input.shape));
    };
    if input.rank() == 0 {
        return Err(Failure::invalid(
            "a tensor with dimensions",
            input.ty.to_string(),
        ));
    }
    Ok(Value::Int(
        input.shape[wrap_axis(dim, input.rank())?].clone(),
    ))
}

fn stride(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let Some(strides) = input.stride_list() else {
        return Err(Failure::unknown("the strides are not known"));
    };
    match call.axis("dim", input.rank())? {
        None => Ok(Value::sizes(&strides)),
        Some(axis) => item(&Value::sizes(&strides), &Value::int(axis as i64)),
    }
}

fn rank(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(Value::int(call.tensor("input")?.rank() as i64))
}

fn numel(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(Value::Int(call.tensor("input")?.numel()))
}

fn element_size(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(Value::int(element_bytes(call.tensor("input")?.dtype)))
}

fn is_floating(call: &Call<'_>) -> Result<Value, Failure> {
    let dtype = call.tensor("input")?.dtype;
    Ok(Value::Bool(
        super::promotion::kind(dtype) == Some(Kind::Float),
    ))
}

fn is_complex(call: &Call<'_>) -> Result<Value, Failure> {
    let dtype = call.tensor("input")?.dtype;
    Ok(Value::Bool(
        is_inexact(dtype) && super::promotion::kind(dtype) == Some(Kind::Complex),
    ))
}

fn is_contiguous(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(truth(call.tensor("input")?.is_contiguous()))
}

fn is_tensor(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(match operand(call, 0)? {
        Value::Unknown(_) | Value::Object => Value::Number(Kind::Bool),
        value => Value::Bool(value.as_tensor().is_some()),
    })
}

// -- Python's math --------------------------------------------------------------------------------

fn math(call: &Call<'_>, f: fn(f64) -> f64) -> Result<Value, Failure> {
    let value = operand(call, 0)?;
    Ok(match float_of(value) {
        Some(value) => Value::Float(f(value)),
        None => number_kind(value).map(|_| Value::Number(Kind::Float))?,
    })
}

fn math_sqrt(call: &Call<'_>) -> Result<Value, Failure> {
    math(call, f64::sqrt)
}

fn math_log(call: &Call<'_>) -> Result<Value, Failure> {
    math(call, f64::ln)
}

fn math_exp(call: &Call<'_>) -> Result<Value, Failure> {
    math(call, f64::exp)
}

fn to_whole(call: &Call<'_>, f: fn(f64) -> f64) -> Result<Value, Failure> {
    let value = operand(call, 0)?;
    if let Some(dim) = as_dim(value) {
        return Ok(Value::Int(dim));
    }
    Ok(match float_of(value).filter(|v| v.is_finite()) {
        Some(value) => Value::int(f(value) as i64),
        None => number_kind(value).map(|_| Value::Number(Kind::Int))?,
    })
}

fn math_floor(call: &Call<'_>) -> Result<Value, Failure> {
    to_whole(call, f64::floor)
}

fn math_ceil(call: &Call<'_>) -> Result<Value, Failure> {
    to_whole(call, f64::ceil)
}

const ONE: Cost = Cost::PerOutput(1);

pub(super) const RULES: &[Rule] = &[
    rule(
        "operator.add operator.__add__ operator.concat",
        "a b",
        add,
        ONE,
    )
    .writes()
    .shards(sharding::added),
    rule("operator.sub operator.__sub__", "a b", sub, ONE)
        .writes()
        .shards(sharding::added),
    rule("operator.mul operator.__mul__", "a b", mul, ONE)
        .writes()
        .shards(sharding::scaled),
    rule(
        "operator.truediv operator.__truediv__ operator.div",
        "a b",
        divide,
        ONE,
    )
    .writes()
    .shards(sharding::divided),
    rule(
        "operator.floordiv operator.__floordiv__",
        "a b",
        floor_divide,
        ONE,
    )
    .writes()
    .shards(sharding::elementwise),
    rule("operator.mod operator.__mod__", "a b", modulo, ONE)
        .writes()
        .shards(sharding::elementwise),
    rule(
        "operator.pow operator.__pow__ builtins.pow math.pow",
        "a b",
        power,
        ONE,
    )
    .writes()
    .shards(sharding::elementwise),
    rule("operator.and_ operator.__and__", "a b", bit_and, ONE)
        .writes()
        .shards(sharding::elementwise),
    rule("operator.or_ operator.__or__", "a b", bit_or, ONE)
        .writes()
        .shards(sharding::elementwise),
    rule("operator.xor operator.__xor__", "a b", bit_xor, ONE)
        .writes()
        .shards(sharding::elementwise),
    rule("operator.eq operator.__eq__", "a b", eq, ONE)
        .detached()
        .shards(sharding::elementwise),
    rule("operator.ne operator.__ne__", "a b", ne, ONE)
        .detached()
        .shards(sharding::elementwise),
    rule("operator.lt operator.__lt__", "a b", lt, ONE)
        .detached()
        .shards(sharding::elementwise),
    rule("operator.le operator.__le__", "a b", le, ONE)
        .detached()
        .shards(sharding::elementwise),
    rule("operator.gt operator.__gt__", "a b", gt, ONE)
        .detached()
        .shards(sharding::elementwise),
    rule("operator.ge operator.__ge__", "a b", ge, ONE)
        .detached()
        .shards(sharding::elementwise),
    rule("operator.radd", "a b", |call| reflected(call, add), ONE).shards(sharding::added),
    rule("operator.rmul", "a b", |call| reflected(call, mul), ONE).shards(sharding::scaled),
    rule("operator.rsub", "a b", |call| reflected(call, sub), ONE).shards(sharding::added),
    rule(
        "operator.rtruediv",
        "a b",
        |call| reflected(call, divide),
        ONE,
    )
    .shards(sharding::elementwise),
    rule("operator.neg operator.__neg__", "a", neg, ONE).shards(sharding::negated),
    rule(
        "operator.abs operator.__abs__ builtins.abs math.fabs",
        "a",
        abs,
        ONE,
    )
    .shards(sharding::elementwise),
    rule("operator.not_ torch.sym_not", "a", negation, Cost::Free),
    rule("operator.truth builtins.bool", "a", truth_of, Cost::Free),
    rule("operator.is_", "a b", is_same, Cost::Free),
    rule("operator.is_not", "a b", is_not_same, Cost::Free),
    rule(
        "builtins.int torch.sym_int operator.index",
        "a",
        to_int,
        Cost::Free,
    ),
    rule("builtins.float torch.sym_float", "a", to_float, Cost::Free),
    rule("builtins.len operator.__len__", "a", len, Cost::Free),
    rule("builtins.min torch.sym_min", "a...", smallest, Cost::Free),
    rule("builtins.max torch.sym_max", "a...", largest, Cost::Free),
    rule("builtins.sum torch.sym_sum", "a start", sum, ONE),
    rule("math.prod", "a", product, Cost::Free),
    rule("builtins.round", "a ndigits", round, Cost::Free),
    rule("builtins.tuple torch.Size", "a", to_tuple, Cost::Free),
    rule("builtins.list", "a", to_list, Cost::Free),
    rule("builtins.slice", "a b c", to_slice, Cost::Free),
    rule("builtins.getattr", "a b default", attribute, Cost::Free)
        .shards(sharding::transposed_attribute),
    rule(
        "builtins.isinstance builtins.hasattr builtins.issubclass",
        "a b",
        instance,
        Cost::Free,
    ),
    rule("builtins.print", "a...", nothing, Cost::Free),
    rule(
        "torch._assert torch._check",
        "condition message",
        assertion,
        Cost::Free,
    ),
    rule("math.sqrt torch.sym_sqrt", "a", math_sqrt, Cost::Free),
    rule("math.log", "a", math_log, Cost::Free),
    rule("math.exp", "a", math_exp, Cost::Free),
    rule("math.floor math.trunc", "a", math_floor, Cost::Free),
    rule("math.ceil", "a", math_ceil, Cost::Free),
    rule(
        "Tensor.size aten.size aten.sym_size",
        "input dim",
        size,
        Cost::Free,
    ),
    rule(
        "Tensor.stride aten.stride aten.sym_stride",
        "input dim",
        stride,
        Cost::Free,
    ),
    rule(
        "Tensor.dim Tensor.ndimension aten.dim",
        "input",
        rank,
        Cost::Free,
    ),
    rule(
        "numel Tensor.nelement aten.sym_numel",
        "input",
        numel,
        Cost::Free,
    ),
    rule("Tensor.element_size", "input", element_size, Cost::Free),
    rule("is_floating_point", "input", is_floating, Cost::Free),
    rule("is_complex", "input", is_complex, Cost::Free),
    rule(
        "Tensor.is_contiguous",
        "input memory_format",
        is_contiguous,
        Cost::Free,
    ),
    rule("torch.is_tensor", "a", is_tensor, Cost::Free),
];
