//! New tensors, and conversions of element type, device and layout.

use corsac_ir::{DType, MemoryFormat};

use super::call::Call;
use super::dim::Dim;
use super::elementwise::like;
use super::error::Failure;
use super::promotion::{Kind, is_inexact};
use super::rule::{Cost, Rule, rule};
use super::sharding;
use super::tensor_type::{CPU, Shape, Strides, TensorType};
use super::value::{Tensor, Value};
use crate::operators::OperatorId;

/// A tensor of this shape, by the arguments `dtype`, `device` and `memory_format`.
fn filled(call: &Call<'_>, shape: Shape, default: DType) -> Result<Value, Failure> {
    let dtype = call.dtype("dtype")?.unwrap_or(default);
    let device = call.device("device")?.unwrap_or(CPU);
    if shape
        .iter()
        .any(|size| size.less_than(&Dim::ZERO) == Some(true))
    {
        return Err(Failure::invalid(
            "sizes of zero or more",
            super::broadcast::shape_text(&shape),
        ));
    }
    let mut ty = TensorType {
        device,
        ..TensorType::new(dtype, shape)
    };
    if call.signature.position("memory_format").is_some()
        && let Some(format) = call.memory_format("memory_format")?
    {
        ty.strides = Strides::in_format(&ty.shape, format);
    }
    if call.flag("requires_grad", false)? {
        ty.requires_grad = true;
    }
    Ok(ty.into())
}

fn of_size(call: &Call<'_>) -> Result<Value, Failure> {
    filled(call, call.rest_dims("size")?, call.settings.default_dtype)
}

/// The element type of a tensor made from a number.
fn number_dtype(call: &Call<'_>, value: &Value) -> Result<DType, Failure> {
    Ok(match value {
        Value::Bool(_) | Value::Number(Kind::Bool) => DType::Bool,
        Value::Int(_) | Value::Number(Kind::Int) => DType::Int64,
        Value::Float(_) | Value::Number(Kind::Float) => call.settings.default_dtype,
        Value::Complex(..) => DType::Complex64,
        Value::Tensor(tensor) => tensor.dtype,
        other => return Err(Failure::expected("a number", other)),
    })
}

fn full(call: &Call<'_>) -> Result<Value, Failure> {
    let shape = call.dims("size")?.unwrap_or_default();
    let dtype = number_dtype(call, call.need("fill_value")?)?;
    filled(call, shape, dtype)
}

fn eye(call: &Call<'_>) -> Result<Value, Failure> {
    let rows = call
        .dim("n")?
        .ok_or_else(|| Failure::invalid("an argument n", "none"))?;
    let columns = call.dim("m")?.unwrap_or_else(|| rows.clone());
    filled(
        call,
        Shape::from_iter([rows, columns]),
        call.settings.default_dtype,
    )
}

fn arange(call: &Call<'_>) -> Result<Value, Failure> {
    let (start, end) = match (call.get("start"), call.get("end")) {
        (Some(end), None) => (Value::int(0), end.clone()),
        (Some(start), Some(end)) => (start.clone(), end.clone()),
        (None, Some(end)) => (Value::int(0), end.clone()),
        (None, None) => return Err(Failure::invalid("an end", "none")),
    };
    let step = call.get("step").cloned().unwrap_or(Value::int(1));
    let (length, dtype) = match (&start, &end, &step) {
        (Value::Int(start), Value::Int(end), Value::Int(step)) => {
            let distance = end.clone() - start.clone();
            let is_against = match step.known() {
                Some(1..) => distance.less_than(&Dim::ZERO),
                _ => Dim::ZERO.less_than(&distance),
            };
            if is_against == Some(true) {
                return Err(Failure::invalid("an end behind the start", end.to_string()));
            }
            let length = match step.known() {
                Some(by @ 1..) => (distance + Dim::Known(by - 1)).floor_div(step),
                Some(by @ ..=-1) => {
                    let by = by.saturating_neg();
                    (-distance + Dim::Known(by - 1)).floor_div(&Dim::Known(by))
                }
                _ => None,
            };
            (length, DType::Int64)
        }
        _ => {
            let number = |value: &Value| match value {
                Value::Int(Dim::Known(value)) => Some(*value as f64),
                Value::Float(value) => Some(*value),
                _ => None,
            };
            let length = match (number(&start), number(&end), number(&step)) {
                (Some(start), Some(end), Some(step)) if step != 0.0 => {
                    Some(Dim::Known(((end - start) / step).ceil() as i64))
                }
                _ => None,
            };
            (length, call.settings.default_dtype)
        }
    };
    let length = length.ok_or_else(|| Failure::unknown("how many steps there are is not known"))?;
    if length.less_than(&Dim::ZERO) == Some(true) {
        return Err(Failure::invalid("an end behind the start", end.to_string()));
    }
    filled(call, Shape::from_iter([length]), dtype)
}

fn linspace(call: &Call<'_>) -> Result<Value, Failure> {
    let steps = call
        .dim("steps")?
        .ok_or_else(|| Failure::invalid("steps", "none"))?;
    filled(call, Shape::from_iter([steps]), call.settings.default_dtype)
}

fn randint(call: &Call<'_>) -> Result<Value, Failure> {
    // (high, size) or (low, high, size)
    let size = call
        .get("size")
        .or_else(|| call.get("high").filter(|high| high.as_items().is_some()));
    let Some(size) = size else {
        return Err(Failure::invalid("a size", "none"));
    };
    filled(call, super::call::dims_of(size, "size")?, DType::Int64)
}

fn randperm(call: &Call<'_>) -> Result<Value, Failure> {
    let n = call
        .dim("n")?
        .ok_or_else(|| Failure::invalid("an argument n", "none"))?;
    filled(call, Shape::from_iter([n]), DType::Int64)
}

/// The shape and element type of nested lists of numbers.
fn literal(
    call: &Call<'_>,
    value: &Value,
    shape: &mut Shape,
    depth: usize,
) -> Result<DType, Failure> {
    let Some(items) = value.as_items() else {
        if let Value::Tensor(tensor) = value
            && tensor.rank() > 0
        {
            return Err(Failure::unknown("a list of tensors"));
        }
        return number_dtype(call, value);
    };
    if shape.len() == depth {
        shape.push(Dim::Known(items.len() as i64));
    }
    let mut dtype: Option<DType> = None;
    for item in items {
        let own = literal(call, item, shape, depth + 1)?;
        dtype = Some(match dtype {
            None => own,
            Some(before) => super::promotion::promote(before, own)
                .ok_or_else(|| Failure::unknown("a list of different types"))?,
        });
    }
    Ok(dtype.unwrap_or(call.settings.default_dtype))
}

fn tensor(call: &Call<'_>) -> Result<Value, Failure> {
    let data = call.need("data")?;
    if let Value::Tensor(tensor) = data {
        let dtype = call.dtype("dtype")?.unwrap_or(tensor.dtype);
        return filled(call, tensor.shape.clone(), dtype);
    }
    let mut shape = Shape::new();
    let dtype = literal(call, data, &mut shape, 0)?;
    filled(call, shape, dtype)
}

/// `torch.scalar_tensor(s)`: of the default type, whatever kind of number it is.
fn scalar_tensor(call: &Call<'_>) -> Result<Value, Failure> {
    match call.need("s")? {
        Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Number(_) => {
            filled(call, Shape::new(), call.settings.default_dtype)
        }
        other => Err(Failure::unknown(format!("the type of a tensor of {other}"))),
    }
}

/// The layout of `clone`: that of the input where it is dense.
fn preserved(input: &Tensor) -> TensorType {
    match input.is_dense() {
        Some(true) => TensorType {
            requires_grad: false,
            ..(*input.ty).clone()
        },
        Some(false) => like(input, input.dtype),
        None => TensorType {
            strides: Strides::Unknown,
            requires_grad: false,
            ..(*input.ty).clone()
        },
    }
}

fn in_format(input: &Tensor, format: Option<MemoryFormat>) -> TensorType {
    match format {
        None | Some(MemoryFormat::Preserve) => preserved(input),
        Some(format) => TensorType {
            strides: Strides::in_format(&input.shape, format),
            requires_grad: false,
            ..(*input.ty).clone()
        },
    }
}

fn clone(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    Ok(in_format(input, call.memory_format("memory_format")?).into())
}

/// `zeros_like` and so on.
fn filled_like(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let mut ty = in_format(input, call.memory_format("memory_format")?);
    ty.dtype = call.dtype("dtype")?.unwrap_or(input.dtype);
    ty.device = call.device("device")?.unwrap_or(input.device);
    ty.requires_grad = call.flag("requires_grad", false)?;
    Ok(ty.into())
}

/// `x.new_zeros(size)` and so on.
fn new_filled(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    new_of(call, input, call.rest_dims("size")?)
}

fn new_full(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    new_of(call, input, call.dims("size")?.unwrap_or_default())
}

fn new_of(call: &Call<'_>, input: &Tensor, shape: Shape) -> Result<Value, Failure> {
    let dtype = call.dtype("dtype")?.unwrap_or(input.dtype);
    let device = call.device("device")?.unwrap_or(input.device);
    Ok(TensorType {
        device,
        ..TensorType::new(dtype, shape)
    }
    .into())
}

/// `input` as another type, on another device, in another format: itself if nothing changes.
fn converted(call: &Call<'_>, dtype: DType, device: corsac_ir::Device) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let format = call.memory_format("memory_format")?;
    let format = format.filter(|format| *format != MemoryFormat::Preserve);
    let copies = call.flag("copy", false)?;
    let lies = match format {
        None => Some(true),
        Some(MemoryFormat::Contiguous) => input.is_contiguous(),
        Some(_) => input.is_channels_last(),
    };
    if dtype == input.dtype && device == input.device && !copies && lies == Some(true) {
        return Ok(Value::Tensor(input.clone()));
    }
    Ok(TensorType {
        dtype,
        device,
        ..in_format(input, format)
    }
    .into())
}

fn to(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let mut dtype = call.dtype("dtype")?.unwrap_or(input.dtype);
    let mut device = call.device("device")?.unwrap_or(input.device);
    for value in ["a", "b"].iter().filter_map(|name| call.get(name)) {
        match value {
            Value::DType(given) => dtype = *given,
            Value::Device(given) => device = *given,
            Value::Tensor(other) => (dtype, device) = (other.dtype, other.device),
            Value::Bool(_) => {}
            Value::Str(text) => {
                device = text
                    .parse()
                    .map_err(|()| Failure::unknown(format!("{text} is no device known here")))?;
            }
            other => return Err(Failure::expected("an element type or a device", other)),
        }
    }
    converted(call, dtype, device)
}

/// Methods named after the type that they convert to.
macro_rules! conversions {
    ($($name:ident => $operator:literal),* $(,)?) => {
        $(fn $name(call: &Call<'_>) -> Result<Value, Failure> {
            let dtype = const { OperatorId::constant($operator).own_dtype() };
            converted(call, dtype, call.tensor("input")?.device)
        })*
    };
}

conversions! {
    to_float => "float",
    to_double => "double",
    to_half => "half",
    to_bfloat16 => "bfloat16",
    to_int => "int",
    to_long => "long",
    to_short => "short",
    to_char => "char",
    to_byte => "byte",
    to_bool => "bool",
}

fn to_cpu(call: &Call<'_>) -> Result<Value, Failure> {
    converted(call, call.tensor("input")?.dtype, CPU)
}

fn type_as(call: &Call<'_>) -> Result<Value, Failure> {
    let (input, other) = (call.tensor("input")?, call.tensor("other")?);
    if input.dtype == other.dtype && input.device == other.device {
        return Ok(Value::Tensor(input.clone()));
    }
    Ok(TensorType {
        dtype: other.dtype,
        device: other.device,
        ..preserved(input)
    }
    .into())
}

fn to_copy(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    Ok(TensorType {
        dtype: call.dtype("dtype")?.unwrap_or(input.dtype),
        device: call.device("device")?.unwrap_or(input.device),
        ..in_format(input, call.memory_format("memory_format")?)
    }
    .into())
}

fn of_dtype(call: &Call<'_>) -> Result<Value, Failure> {
    match call.get("dtype") {
        Some(Value::DType(dtype)) => converted(call, *dtype, call.tensor("input")?.device),
        Some(other) => Err(Failure::unknown(format!("the type {other}"))),
        None => Ok(Value::Object),
    }
}

fn convert_element_type(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let dtype = call.dtype("dtype")?.unwrap_or(input.dtype);
    Ok(TensorType {
        dtype,
        ..preserved(input)
    }
    .into())
}

fn item(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    super::promotion::kind(input.dtype)
        .map(Value::Number)
        .ok_or_else(|| Failure::unknown("an element of this type"))
}

fn bernoulli(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    if !is_inexact(input.dtype) {
        return Err(Failure::invalid(
            "a floating-point tensor",
            input.ty.to_string(),
        ));
    }
    Ok(like(input, input.dtype).into())
}

fn complex(call: &Call<'_>) -> Result<Value, Failure> {
    let (a, b) = (call.need("real")?, call.need("imag")?);
    let dtype = super::promotion::complex_of(call.tensor("real")?.dtype)
        .ok_or_else(|| Failure::expected("a floating-point tensor", a))?;
    super::elementwise::pointwise(call, &[a, b], super::elementwise::Out::Given(dtype))
}

const OPTIONS: &str = "size... *dtype layout device requires_grad pin_memory generator \
                       memory_format names";
const LIKE: &str = "input *dtype layout device requires_grad pin_memory memory_format";
const NEW: &str = "input size... *dtype layout device requires_grad pin_memory";
const CONVERT: &str = "input *memory_format copy";

pub(super) const RULES: &[Rule] = &[
    rule("torch.zeros torch.ones torch.empty torch.rand torch.randn aten.zeros aten.ones aten.empty aten.rand aten.randn", OPTIONS, of_size, Cost::Move).detached(),
    rule("torch.full aten.full", "size fill_value *dtype layout device requires_grad pin_memory", full, Cost::Move).detached(),
    rule("torch.eye aten.eye", "n m *dtype layout device requires_grad pin_memory", eye, Cost::Move).detached(),
    rule("torch.arange aten.arange", "start end step *dtype layout device requires_grad pin_memory", arange, Cost::Move).detached(),
    rule("torch.linspace aten.linspace torch.logspace", "start end steps base *dtype layout device requires_grad pin_memory", linspace, Cost::Move).detached(),
    rule("torch.randint aten.randint", "low high size *dtype layout device requires_grad pin_memory generator", randint, Cost::Move).detached(),
    rule("torch.randperm aten.randperm", "n *dtype layout device requires_grad pin_memory generator", randperm, Cost::Move).detached(),
    rule("torch.tensor", "data *dtype device requires_grad pin_memory", tensor, Cost::Move).detached(),
    rule("torch.scalar_tensor aten.scalar_tensor", "s *dtype layout device requires_grad pin_memory", scalar_tensor, Cost::Move).detached(),
    rule("zeros_like ones_like empty_like rand_like randn_like", LIKE, filled_like, Cost::Move).detached().shards(sharding::elementwise),
    rule("full_like", "input fill_value *dtype layout device requires_grad pin_memory memory_format", filled_like, Cost::Move).detached().shards(sharding::elementwise),
    rule("randint_like", "input low high *dtype layout device requires_grad pin_memory memory_format", filled_like, Cost::Move).detached(),
    rule("new_zeros new_ones new_empty", NEW, new_filled, Cost::Move).detached(),
    rule("new_full", "input size fill_value *dtype layout device requires_grad pin_memory", new_full, Cost::Move).detached(),
    rule("clone", "input *memory_format", clone, Cost::Move).shards(sharding::moved),
    rule("Tensor.to aten.to", "input a b *dtype device layout non_blocking copy memory_format", to, Cost::Free).shards(sharding::moved),
    rule("aten._to_copy", "input *dtype layout device pin_memory non_blocking memory_format", to_copy, Cost::Move).shards(sharding::moved),
    rule("prims.convert_element_type", "input dtype", convert_element_type, Cost::Move).shards(sharding::moved),
    rule("Tensor.float", CONVERT, to_float, Cost::Free).shards(sharding::moved),
    rule("Tensor.double", CONVERT, to_double, Cost::Free).shards(sharding::moved),
    rule("Tensor.half", CONVERT, to_half, Cost::Free).shards(sharding::moved),
    rule("Tensor.bfloat16", CONVERT, to_bfloat16, Cost::Free).shards(sharding::moved),
    rule("Tensor.int", CONVERT, to_int, Cost::Free),
    rule("Tensor.long", CONVERT, to_long, Cost::Free),
    rule("Tensor.short", CONVERT, to_short, Cost::Free),
    rule("Tensor.char", CONVERT, to_char, Cost::Free),
    rule("Tensor.byte", CONVERT, to_byte, Cost::Free),
    rule("Tensor.bool", CONVERT, to_bool, Cost::Free),
    rule("Tensor.cpu", CONVERT, to_cpu, Cost::Free),
    rule("type_as", "input other", type_as, Cost::Free).shards(sharding::moved),
    rule("Tensor.type", "input dtype *memory_format copy", of_dtype, Cost::Free),
    rule("Tensor.item", "input", item, Cost::Free),
    rule("bernoulli", "input p *generator", bernoulli, Cost::PerOutput(1)).detached(),
    rule("complex", "real imag", complex, Cost::Move),
];
