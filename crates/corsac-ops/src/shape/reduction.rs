//! Operators that reduce dimensions, and those that accumulate along one.

use corsac_ir::DType;

use super::broadcast::{broadcast, elementwise_strides};
use super::call::{Call, wrap_axis};
use super::dim::Dim;
use super::elementwise::{Out, floating as elementwise_floating, like, pointwise};
use super::error::Failure;
use super::promotion::{Kind, is_inexact, kind, real_part};
use super::rule::{Cost, Rule, rule};
use super::sharding;
use super::tensor_type::{Shape, Strides, TensorType};
use super::value::{Tensor, Value};

/// `shape` with `axes` taken away, or kept with size 1.
fn reduced_shape(shape: &[Dim], axes: &[usize], keepdim: bool) -> Shape {
    let kept =
        shape
            .iter()
            .enumerate()
            .filter_map(|(at, size)| match (axes.contains(&at), keepdim) {
                (true, true) => Some(Dim::ONE),
                (true, false) => None,
                (false, _) => Some(size.clone()),
            });
    kept.collect()
}

/// `input` reduced over the dimensions in the argument `dim`: all where none are given.
fn reduced(call: &Call<'_>, input: &Tensor, dtype: DType) -> Result<TensorType, Failure> {
    let rank = input.rank();
    let axes = match call.get("dim") {
        None | Some(Value::Bool(_)) => (0..rank).collect(),
        Some(_) => {
            let axes = call.axes("dim", rank)?.unwrap_or_default();
            if axes.is_empty() {
                (0..rank).collect()
            } else {
                axes
            }
        }
    };
    let keepdim = call.flag("keepdim", false)?;
    let ty = TensorType::new(dtype, reduced_shape(&input.shape, &axes, keepdim));
    Ok(TensorType {
        device: input.device,
        ..ty
    })
}

/// Sums of integers are 64 bits wide.
fn summed(call: &Call<'_>, input: &Tensor) -> Result<DType, Failure> {
    Ok(match call.dtype("dtype")? {
        Some(dtype) => dtype,
        None if kind(input.dtype) <= Some(Kind::Int) => DType::Int64,
        None => input.dtype,
    })
}

fn sum(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    Ok(reduced(call, input, summed(call, input)?)?.into())
}

fn mean(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let dtype = call.dtype("dtype")?.unwrap_or(input.dtype);
    if !is_inexact(dtype) {
        return Err(Failure::invalid(
            "a floating-point or complex element type",
            dtype.to_string(),
        ));
    }
    Ok(reduced(call, input, dtype)?.into())
}

fn same(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    Ok(reduced(call, input, input.dtype)?.into())
}

fn floating(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let dtype = if is_inexact(input.dtype) {
        input.dtype
    } else {
        call.settings.default_dtype
    };
    Ok(reduced(call, input, dtype)?.into())
}

fn deviation(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    Ok(reduced(call, input, real_part(input.dtype))?.into())
}

fn deviation_and_mean(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    Ok(Value::tensors([
        reduced(call, input, real_part(input.dtype))?,
        reduced(call, input, input.dtype)?,
    ]))
}

fn truth(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let dtype = match input.dtype {
        DType::UInt8 => DType::UInt8,
        _ => DType::Bool,
    };
    if call.dims("dim")?.is_some_and(|dims| dims.is_empty()) {
        // Along none, which other operators take for all.
        return Ok(like(input, dtype).into());
    }
    Ok(reduced(call, input, dtype)?.into())
}

fn index(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    Ok(reduced(call, input, DType::Int64)?.into())
}

fn norm(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let dtype = call.dtype("dtype")?.unwrap_or(input.dtype);
    Ok(reduced(call, input, real_part(dtype))?.into())
}

/// Over all dimensions, or over one with indices beside the values; of two tensors, the larger
/// elements.
fn extreme(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let other = call.get("other");
    let second = other.or_else(|| call.get("dim").filter(|v| v.as_tensor().is_some()));
    if let Some(other) = second {
        return pointwise(call, &[call.need("input")?, other], Out::Promoted);
    }
    let values = reduced(call, input, input.dtype)?;
    if call.get("dim").is_none() {
        return Ok(values.into());
    }
    let indices = TensorType {
        dtype: DType::Int64,
        ..values.clone()
    };
    Ok(values_and_indices(values, indices))
}

/// The results of `torch.max(x, dim)`, `torch.sort` and the like.
pub(super) fn values_and_indices(values: TensorType, indices: TensorType) -> Value {
    let items = [("values", values.into()), ("indices", indices.into())];
    Value::Named(items.into())
}

fn extremes(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let ty = reduced(call, input, input.dtype)?;
    let items = [("min", ty.clone().into()), ("max", ty.into())];
    Ok(Value::Named(items.into()))
}

fn accumulated(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    call.axis("dim", input.rank())?;
    let mut ty = like(input, summed(call, input)?);
    ty.strides = Strides::Contiguous;
    Ok(ty.into())
}

/// Differences of neighbours along a dimension, one fewer each time, of the input with `prepend`
/// and `append` joined to it. With `n = 0` nothing is joined either.
fn difference(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let last = input.rank().saturating_sub(1);
    let times = call.int("n")?.unwrap_or(1);
    let axis = call.axis("dim", input.rank())?.unwrap_or(last);
    let mut shape = input.shape.clone();
    let Some(size) = shape.get_mut(axis) else {
        return Err(Failure::invalid("a tensor with dimensions", "a number"));
    };
    let mut is_joined = false;
    for param in ["prepend", "append"] {
        if let Some(beside) = call.get(param).and_then(Value::as_tensor) {
            if beside.rank() != input.rank() {
                let expected = format!("{param} of {} dimensions", input.rank());
                return Err(Failure::invalid(expected, beside.to_string()));
            }
            *size = size.clone() + beside.shape[axis].clone();
            is_joined = true;
        }
    }
    if times == 0 {
        return Ok(like(input, input.dtype).into());
    }
    *size = (size.clone() - Dim::from(times)).larger(&Dim::ZERO);
    let is_empty = size.is(0);
    let strides = match (is_joined, input.stride_list()) {
        // The difference of two views of the input.
        (false, Some(strides)) if !is_empty => {
            let view = input.view(TensorType {
                strides: Strides::of(&shape, strides),
                shape: shape.clone(),
                ..TensorType::clone(&input.ty)
            });
            elementwise_strides(&shape, &[&view], false)
        }
        _ if is_empty || input.strides == Strides::Contiguous => Strides::Contiguous,
        _ => Strides::Unknown,
    };
    Ok(TensorType {
        device: input.device,
        strides,
        ..TensorType::new(input.dtype, shape)
    }
    .into())
}

fn accumulated_log(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    call.axis("dim", input.rank())?;
    let mut ty = like(input, input.dtype);
    ty.strides = Strides::Contiguous;
    Ok(ty.into())
}

fn accumulated_extreme(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    call.axis("dim", input.rank())?;
    let mut ty = like(input, input.dtype);
    ty.strides = Strides::Contiguous;
    let indices = TensorType {
        dtype: DType::Int64,
        ..ty.clone()
    };
    Ok(values_and_indices(ty, indices))
}

fn cosine_similarity(call: &Call<'_>) -> Result<Value, Failure> {
    let (a, b) = (call.tensor("x1")?, call.tensor("x2")?);
    let both = pointwise(call, &[call.need("x1")?, call.need("x2")?], Out::Float)?;
    let shape = broadcast(&a.shape, &b.shape)?;
    let axis = wrap_axis(call.int("dim")?.unwrap_or(1), shape.len())?;
    let dtype = both.as_tensor().map_or(a.dtype, |t| t.dtype);
    Ok(TensorType {
        device: a.device,
        ..TensorType::new(dtype, reduced_shape(&shape, &[axis], false))
    }
    .into())
}

fn pairwise_distance(call: &Call<'_>) -> Result<Value, Failure> {
    let (a, b) = (call.tensor("x1")?, call.tensor("x2")?);
    let shape = broadcast(&a.shape, &b.shape)?;
    let last = shape.len().saturating_sub(1);
    let keepdim = call.flag("keepdim", false)?;
    Ok(TensorType {
        device: a.device,
        ..TensorType::new(
            elementwise_floating(call, a.dtype),
            reduced_shape(&shape, &[last], keepdim),
        )
    }
    .into())
}

/// `input / norm(input)`: laid out as the input.
fn normalize(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    Ok(like(input, input.dtype).into())
}

const ONE: Cost = Cost::PerInput(1);

pub(super) const RULES: &[Rule] = &[
    rule("sum nansum prod", "input dim keepdim *dtype", sum, ONE).shards(sharding::summed),
    rule("mean nanmean", "input dim keepdim *dtype", mean, ONE).shards(sharding::averaged),
    rule("amax amin", "input dim keepdim", same, ONE).shards(sharding::reduced),
    rule(
        "logsumexp",
        "input dim keepdim",
        floating,
        Cost::PerInput(4),
    )
    .shards(sharding::reduced),
    rule(
        "std var",
        "input dim unbiased keepdim *correction",
        deviation,
        Cost::PerInput(4),
    )
    .shards(sharding::reduced),
    rule(
        "std_mean var_mean",
        "input dim unbiased keepdim *correction",
        deviation_and_mean,
        Cost::PerInput(4),
    ),
    rule("all any", "input dim keepdim", truth, ONE)
        .detached()
        .shards(sharding::reduced),
    rule("argmax argmin", "input dim keepdim", index, ONE)
        .detached()
        .shards(sharding::reduced),
    rule("count_nonzero", "input dim *keepdim", index, ONE).detached(),
    rule(
        "norm",
        "input p dim keepdim *dtype",
        norm,
        Cost::PerInput(2),
    ),
    rule(
        "linalg.vector_norm linalg.norm linalg_vector_norm",
        "input ord dim keepdim *dtype",
        norm,
        Cost::PerInput(2),
    ),
    rule("max min", "input dim keepdim *other", extreme, ONE),
    rule("aminmax", "input *dim keepdim", extremes, Cost::PerInput(2)),
    rule("cumsum cumprod", "input dim *dtype", accumulated, ONE).shards(sharding::accumulated),
    rule("diff", "input n dim prepend append", difference, ONE),
    rule(
        "logcumsumexp",
        "input dim",
        accumulated_log,
        Cost::PerInput(3),
    ),
    rule("cummax cummin", "input dim", accumulated_extreme, ONE),
    rule(
        "cosine_similarity",
        "x1 x2 dim eps",
        cosine_similarity,
        Cost::PerInput(6),
    ),
    rule(
        "pairwise_distance",
        "x1 x2 p eps keepdim",
        pairwise_distance,
        Cost::PerInput(4),
    ),
    rule(
        "F.normalize",
        "input p dim eps",
        normalize,
        Cost::PerInput(3),
    ),
];

#[cfg(test)]
mod tests {
    use corsac_ir::Graph;

    use super::{Strides, TensorType, Value};
    use crate::shape::tensor_type::tests::tensor;
    use crate::shape::{NoModules, Propagator, Settings};

    /// The type of `n` differences along the first dimension, as in PyTorch 2.15.
    fn differences(of: &TensorType, n: i64, is_joined: bool) -> TensorType {
        let mut graph = Graph::new();
        let x = graph.placeholder("x").unwrap();
        let beside = graph.placeholder("beside").unwrap();
        let mut args = vec![x.into(), n.into(), 0.into()];
        if is_joined {
            args.extend([beside.into(), beside.into()]);
        }
        let found = graph.call_method("diff", args).unwrap();
        let mut types = Propagator::new(&NoModules, Settings::default());
        let inputs = [of.clone(), tensor(&[2, 4], &[4, 1])].map(Value::tensor);
        types.run(&graph, &inputs).unwrap();
        TensorType::clone(&types.value(found).as_tensor().unwrap().ty)
    }

    #[test]
    fn differences_lie_as_what_they_are_of() {
        let (rows, columns) = (tensor(&[5, 4], &[4, 1]), tensor(&[5, 4], &[1, 5]));
        assert_eq!(differences(&rows, 1, false), tensor(&[4, 4], &[4, 1]));
        assert_eq!(differences(&columns, 1, false), tensor(&[4, 4], &[1, 4]));
        assert_eq!(differences(&columns, 2, false), tensor(&[3, 4], &[1, 3]));
        assert_eq!(differences(&columns, 9, false), tensor(&[0, 4], &[4, 1]));
        assert_eq!(differences(&rows, 1, true), tensor(&[8, 4], &[4, 1]));
        // Joining may lay them out anew.
        assert_eq!(differences(&columns, 1, true).strides, Strides::Unknown);
    }

    #[test]
    fn no_differences_are_the_input_and_join_nothing() {
        for input in [tensor(&[5, 4], &[4, 1]), tensor(&[5, 4], &[1, 5])] {
            assert_eq!(differences(&input, 0, false), input);
            assert_eq!(differences(&input, 0, true), input);
        }
    }
}
