//! Views, reshapes, and copies that move elements to other places.

use corsac_ir::MemoryFormat;

use super::broadcast::{same_size, shape_text, size_is};
use super::call::{Call, as_dim, axes_of, wrap_axis};
use super::dim::Dim;
use super::elementwise::like;
use super::error::Failure;
use super::promotion::{complex_of, element_bytes, real_part};
use super::rule::{Cost, Rule, rule};
use super::sharding::{self, Sizes};
use super::tensor_type::{Shape, Strides, TensorType};
use super::value::{Tensor, Value};

/// A view of `input` with these sizes and strides; `None` for strides that are not known.
pub(super) fn view_of(input: &Tensor, shape: Shape, strides: Option<Shape>) -> Tensor {
    let strides = strides.map_or(Strides::Unknown, |strides| Strides::of(&shape, strides));
    input.view(TensorType {
        shape,
        strides,
        ..(*input.ty).clone()
    })
}

/// A contiguous tensor of this shape with the elements of `input`.
pub(super) fn copy_of(input: &Tensor, shape: Shape) -> Tensor {
    Tensor::new(TensorType {
        device: input.device,
        ..TensorType::new(input.dtype, shape)
    })
}

/// The shape that `wanted` stands for, where one size may be -1.
pub(super) fn resolved(input: &Tensor, wanted: Shape) -> Result<Shape, Failure> {
    let mismatch = || {
        Failure::invalid(
            format!("a shape of {} elements", input.numel()),
            shape_text(&wanted),
        )
    };
    let mut open = None;
    for (at, size) in wanted.iter().enumerate() {
        if size.is(-1) && open.replace(at).is_some() {
            return Err(Failure::invalid(
                "at most one size of -1",
                shape_text(&wanted),
            ));
        }
    }
    let numel = input.numel();
    let Some(open) = open else {
        let product = Dim::product(&wanted);
        return if same_size(&numel, &product)? {
            Ok(wanted)
        } else {
            Err(mismatch())
        };
    };
    let rest = wanted.iter().enumerate().filter(|(at, _)| *at != open);
    let rest = Dim::product(rest.map(|(_, size)| size));
    if rest.is(0) {
        return Err(mismatch());
    }
    let size = numel.exact_div(&rest).ok_or_else(|| {
        if numel.known().is_some() && rest.known().is_some() {
            mismatch()
        } else {
            Failure::unknown(format!("whether {rest} divides {numel} is not known"))
        }
    })?;
    let mut shape = wanted;
    shape[open] = size;
    Ok(shape)
}

/// The strides of a possible view.
enum Fit {
    Strides(Shape),
    /// No strides fit: the elements have to be copied.
    None,
    Unknown,
}

/// The strides with which `shape` is a view of `input`. Source: `at::detail::computeStride`.
fn fit(input: &Tensor, shape: &Shape) -> Fit {
    if input.strides == Strides::Contiguous || input.shape.iter().any(|size| size.is(0)) {
        return Fit::Strides(super::tensor_type::contiguous_strides(shape));
    }
    let Some(old) = input.stride_list() else {
        return Fit::Unknown;
    };
    fit_known(input, &old, shape).unwrap_or(Fit::Unknown)
}

fn fit_known(input: &Tensor, old: &Shape, shape: &Shape) -> Option<Fit> {
    let mut strides = Shape::from_elem(Dim::ONE, shape.len());
    let mut left = shape.len();
    let (mut run, mut seen) = (Dim::ONE, Dim::ONE);
    let Some(mut base) = old.last().cloned() else {
        return Some(Fit::Strides(strides));
    };
    for at in (0..input.rank()).rev() {
        run = run * input.shape[at].clone();
        // A run of dimensions ends where the next one out does not continue it.
        let ends = at == 0
            || !input.shape[at - 1].is(1) && !old[at - 1].equals(&(run.clone() * base.clone()))?;
        if !ends {
            continue;
        }
        while left > 0 && (shape[left - 1].is(1) || seen.less_than(&run)?) {
            left -= 1;
            strides[left] = seen.clone() * base.clone();
            seen = seen * shape[left].clone();
        }
        if !seen.equals(&run)? {
            return Some(Fit::None);
        }
        if at > 0 {
            base = old[at - 1].clone();
            (run, seen) = (Dim::ONE, Dim::ONE);
        }
    }
    Some(if left == 0 {
        Fit::Strides(strides)
    } else {
        Fit::None
    })
}

/// A view where one fits, a copy otherwise.
pub(super) fn reshaped(input: &Tensor, shape: Shape) -> Tensor {
    match fit(input, &shape) {
        Fit::Strides(strides) => view_of(input, shape, Some(strides)),
        Fit::None => copy_of(input, shape),
        // A view or a copy: a possible view is the weaker claim.
        Fit::Unknown => view_of(input, shape, None),
    }
}

fn view(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    if let [Value::DType(dtype)] = call.rest.as_slice() {
        if element_bytes(*dtype) != element_bytes(input.dtype) {
            return Err(Failure::unknown("a view as elements of another width"));
        }
        return Ok(Value::Tensor(input.view(TensorType {
            dtype: *dtype,
            ..(*input.ty).clone()
        })));
    }
    let shape = resolved(input, call.rest_dims("size")?)?;
    match fit(input, &shape) {
        Fit::Strides(strides) => Ok(Value::Tensor(view_of(input, shape, Some(strides)))),
        Fit::Unknown => Ok(Value::Tensor(view_of(input, shape, None))),
        Fit::None => Err(Failure::invalid(
            format!("a shape that strides {:?} allow", known_strides(input)),
            shape_text(&shape),
        )),
    }
}

fn known_strides(input: &Tensor) -> Vec<String> {
    let strides = input.stride_list().unwrap_or_default();
    strides.iter().map(ToString::to_string).collect()
}

fn reshape(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let shape = resolved(input, call.rest_dims("shape")?)?;
    Ok(Value::Tensor(reshaped(input, shape)))
}

fn unsafe_view(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let shape = resolved(input, call.rest_dims("size")?)?;
    Ok(Value::Tensor(reshaped(input, shape)))
}

fn view_as(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let shape = resolved(input, call.tensor("other")?.shape.clone())?;
    Ok(Value::Tensor(reshaped(input, shape)))
}

fn flatten_from(call: &Call<'_>, first: i64) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    if input.rank() == 0 {
        return Ok(Value::Tensor(reshaped(input, Shape::from_iter([Dim::ONE]))));
    }
    let start = wrap_axis(call.int("start_dim")?.unwrap_or(first), input.rank())?;
    let end = wrap_axis(call.int("end_dim")?.unwrap_or(-1), input.rank())?;
    if start > end {
        return Err(Failure::invalid(
            "a start_dim that is not behind end_dim",
            format!("{start} and {end}"),
        ));
    }
    if start == end {
        return Ok(Value::Tensor(input.clone()));
    }
    let mut shape: Shape = input.shape[..start].into();
    shape.push(Dim::product(&input.shape[start..=end]));
    shape.extend(input.shape[end + 1..].iter().cloned());
    Ok(Value::Tensor(reshaped(input, shape)))
}

fn flatten(call: &Call<'_>) -> Result<Value, Failure> {
    flatten_from(call, 0)
}

fn ravel(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    Ok(Value::Tensor(reshaped(
        input,
        Shape::from_iter([input.numel()]),
    )))
}

fn unflatten(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let axis = call.axis("dim", input.rank())?.unwrap_or(0);
    let Some(sizes) = call.dims("sizes")? else {
        return Err(Failure::invalid("an argument sizes", "none"));
    };
    if input.rank() == 0 {
        let got = input.ty.to_string();
        return Err(Failure::invalid("a tensor with dimensions", got));
    }
    let part = Tensor::new(TensorType::new(input.dtype, input.shape.get(axis).cloned()));
    let sizes = resolved(&part, sizes)?;
    let mut shape: Shape = input.shape[..axis].into();
    shape.extend(sizes);
    shape.extend(input.shape[axis + 1..].iter().cloned());
    Ok(Value::Tensor(reshaped(input, shape)))
}

pub(super) fn permuted(input: &Tensor, order: &[usize]) -> Tensor {
    let pick = |dims: &Shape| order.iter().map(|&at| dims[at].clone()).collect::<Shape>();
    let strides = input.stride_list();
    view_of(input, pick(&input.shape), strides.as_ref().map(pick))
}

fn permute(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let dims = call.rest_dims("dims")?;
    let axes = axes_of(&dims, input.rank())?;
    if axes.len() != input.rank() {
        return Err(Failure::invalid(
            format!("{} dimensions", input.rank()),
            dims.len().to_string(),
        ));
    }
    let order = dims
        .iter()
        .map(|d| wrap_axis(d.known().unwrap_or(0), input.rank()));
    Ok(Value::Tensor(permuted(
        input,
        &order.collect::<Result<Vec<_>, _>>()?,
    )))
}

fn swapped(input: &Tensor, a: usize, b: usize) -> Value {
    let mut order: Vec<usize> = (0..input.rank()).collect();
    if a < order.len() && b < order.len() {
        order.swap(a, b);
    }
    Value::Tensor(permuted(input, &order))
}

fn transpose(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let axis = |name| -> Result<usize, Failure> {
        call.axis(name, input.rank())?
            .ok_or_else(|| Failure::invalid(format!("an argument {name}"), "none"))
    };
    Ok(swapped(input, axis("dim0")?, axis("dim1")?))
}

fn t(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    match input.rank() {
        0 | 1 => Ok(Value::Tensor(input.clone())),
        2 => Ok(swapped(input, 0, 1)),
        _ => Err(Failure::invalid(
            "a tensor of at most two dimensions",
            input.ty.to_string(),
        )),
    }
}

fn adjoint(call: &Call<'_>) -> Result<Value, Failure> {
    matrix_transposed(call.tensor("input")?)
}

fn numpy_t(call: &Call<'_>) -> Result<Value, Failure> {
    call.tensor("input").map(reversed)
}

/// `x.T`: all dimensions reversed.
pub(super) fn reversed(input: &Tensor) -> Value {
    let order: Vec<usize> = (0..input.rank()).rev().collect();
    Value::Tensor(permuted(input, &order))
}

/// `x.mT`: the last two dimensions swapped.
pub(super) fn matrix_transposed(input: &Tensor) -> Result<Value, Failure> {
    match input.rank() {
        rank @ 2.. => Ok(swapped(input, rank - 2, rank - 1)),
        _ => Err(Failure::invalid(
            "a tensor of two dimensions or more",
            input.ty.to_string(),
        )),
    }
}

fn movedim(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let rank = input.rank();
    let list = |name| -> Result<Vec<usize>, Failure> {
        let dims = call.dims(name)?.unwrap_or_default();
        dims.iter()
            .map(|d| {
                let known = d
                    .known()
                    .ok_or_else(|| Failure::unknown("a dimension is not known"));
                wrap_axis(known?, rank)
            })
            .collect()
    };
    let (from, to) = (list("source")?, list("destination")?);
    for dims in [&from, &to] {
        if (1..dims.len()).any(|at| dims[..at].contains(&dims[at])) {
            return Err(Failure::invalid("each dimension once", format!("{dims:?}")));
        }
    }
    if from.len() != to.len() {
        return Err(Failure::invalid(
            format!("{} destinations", from.len()),
            to.len().to_string(),
        ));
    }
    let mut rest = (0..rank).filter(|at| !from.contains(at));
    let order: Option<Vec<usize>> = (0..rank)
        .map(|at| match to.iter().position(|&t| t == at) {
            Some(given) => Some(from[given]),
            None => rest.next(),
        })
        .collect();
    let order = order.ok_or_else(|| Failure::invalid("each dimension once", format!("{to:?}")))?;
    Ok(Value::Tensor(permuted(input, &order)))
}

pub(super) fn unsqueezed(input: &Tensor, axis: usize) -> Tensor {
    let mut shape = input.shape.clone();
    shape.insert(axis, Dim::ONE);
    let strides = input.stride_list().map(|mut strides| {
        let step = match strides.get(axis) {
            Some(stride) => stride.clone() * input.shape[axis].clone(),
            None => Dim::ONE,
        };
        strides.insert(axis, step);
        strides
    });
    view_of(input, shape, strides)
}

fn unsqueeze(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let axis = call.axis("dim", input.rank() + 1)?;
    let axis = axis.ok_or_else(|| Failure::invalid("an argument dim", "none"))?;
    Ok(Value::Tensor(unsqueezed(input, axis)))
}

fn squeeze(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let axes = match call.axes("dim", input.rank())? {
        Some(axes) => axes,
        None => (0..input.rank()).collect(),
    };
    let mut kept = Vec::new();
    for (at, size) in input.shape.iter().enumerate() {
        if !(axes.contains(&at) && size_is(size, 1)?) {
            kept.push(at);
        }
    }
    Ok(Value::Tensor(permuted(input, &kept)))
}

pub(super) fn expanded(input: &Tensor, wanted: &[Dim]) -> Result<Tensor, Failure> {
    let refuse = || {
        Failure::invalid(
            format!("sizes that {} expands to", shape_text(&input.shape)),
            shape_text(wanted),
        )
    };
    let new = wanted.len().checked_sub(input.rank()).ok_or_else(refuse)?;
    let own = input.stride_list();
    let mut shape = Shape::from_elem(Dim::ONE, wanted.len());
    let mut strides = Shape::from_elem(Dim::ONE, wanted.len());
    for at in (0..wanted.len()).rev() {
        let (size, stride) = match at.checked_sub(new) {
            Some(old) => (
                input.shape[old].clone(),
                own.as_ref().map_or(Dim::ONE, |own| own[old].clone()),
            ),
            None => {
                let step = shape.get(at + 1).cloned().unwrap_or(Dim::ONE)
                    * strides.get(at + 1).cloned().unwrap_or(Dim::ONE);
                (Dim::ONE, step)
            }
        };
        let target = match wanted[at].is(-1) {
            true if at < new => return Err(refuse()),
            true => size.clone(),
            false => wanted[at].clone(),
        };
        if size.is(1) && !target.is(1) {
            strides[at] = Dim::ZERO;
        } else if same_size(&size, &target)? {
            strides[at] = stride;
        } else {
            return Err(refuse());
        }
        shape[at] = target;
    }
    Ok(view_of(input, shape, own.map(|_| strides)))
}

fn expand(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    Ok(Value::Tensor(expanded(input, &call.rest_dims("size")?)?))
}

fn expand_as(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    Ok(Value::Tensor(expanded(
        input,
        &call.tensor("other")?.shape,
    )?))
}

/// The same tensor.
fn identity(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(Value::Tensor(call.tensor("input")?.clone()))
}

fn detach(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    Ok(Value::Tensor(input.view(TensorType {
        requires_grad: false,
        ..(*input.ty).clone()
    })))
}

fn contiguous(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let format = call
        .memory_format("memory_format")?
        .unwrap_or(MemoryFormat::Contiguous);
    let lies = match format {
        MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d => input.is_channels_last(),
        _ => input.is_contiguous(),
    };
    Ok(Value::Tensor(match lies {
        Some(true) => input.clone(),
        Some(false) => Tensor::new(TensorType {
            strides: Strides::in_format(&input.shape, format),
            ..(*input.ty).clone()
        }),
        None => view_of(input, input.shape.clone(), None),
    }))
}

fn narrow(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let axis = call.axis("dim", input.rank())?.unwrap_or(0);
    let length = call.dim("length")?;
    let (Some(length), Some(_)) = (length, input.shape.get(axis)) else {
        return Err(Failure::invalid(
            "a tensor with dimensions, and a length",
            "less",
        ));
    };
    if input.shape[axis].less_than(&length) == Some(true) {
        return Err(Failure::invalid(
            format!("a length of at most {}", input.shape[axis]),
            length.to_string(),
        ));
    }
    let mut shape = input.shape.clone();
    shape[axis] = length;
    Ok(Value::Tensor(view_of(input, shape, input.stride_list())))
}

fn unfold_windows(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let axis = call.axis("dimension", input.rank())?.unwrap_or(0);
    let (size, step) = (
        call.int("size")?.unwrap_or(0),
        call.int("step")?.unwrap_or(1),
    );
    let Some(own) = input.shape.get(axis) else {
        return Err(Failure::unknown("a tensor without dimensions"));
    };
    let count = super::convolution::windows(own, 0, &Dim::Known(size), 1, step)?;
    let mut shape = input.shape.clone();
    shape[axis] = count;
    shape.push(Dim::Known(size));
    let strides = input.stride_list().map(|mut strides| {
        let stride = strides[axis].clone();
        strides[axis] = stride.clone() * Dim::Known(step);
        strides.push(stride);
        strides
    });
    Ok(Value::Tensor(view_of(input, shape, strides)))
}

fn diagonal(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let rank = input.rank();
    let a = wrap_axis(call.int("dim1")?.unwrap_or(0), rank)?;
    let b = wrap_axis(call.int("dim2")?.unwrap_or(1), rank)?;
    let offset = call.int("offset")?.unwrap_or(0);
    if a == b || rank < 2 {
        return Err(Failure::invalid("two dimensions", input.ty.to_string()));
    }
    let (rows, columns) = (input.shape[a].known(), input.shape[b].known());
    let (Some(rows), Some(columns)) = (rows, columns) else {
        return Err(Failure::unknown(
            "the sizes of the diagonal depend on symbols",
        ));
    };
    let length = if offset >= 0 {
        rows.min(columns.saturating_sub(offset))
    } else {
        rows.saturating_add(offset).min(columns)
    };
    let kept: Vec<usize> = (0..rank).filter(|at| *at != a && *at != b).collect();
    let mut shape: Shape = kept.iter().map(|&at| input.shape[at].clone()).collect();
    shape.push(Dim::Known(length.max(0)));
    let strides = input.stride_list().map(|own| {
        let mut strides: Shape = kept.iter().map(|&at| own[at].clone()).collect();
        strides.push(own[a].clone() + own[b].clone());
        strides
    });
    Ok(Value::Tensor(view_of(input, shape, strides)))
}

fn as_strided(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let (Some(shape), Some(strides)) = (call.dims("size")?, call.dims("stride")?) else {
        return Err(Failure::invalid("size and stride", "less"));
    };
    Ok(Value::Tensor(view_of(input, shape, Some(strides))))
}

fn repeat(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let times = call.rest_dims("repeats")?;
    if times.len() < input.rank() {
        return Err(Failure::invalid(
            format!("{} numbers or more", input.rank()),
            times.len().to_string(),
        ));
    }
    Ok(Value::Tensor(copy_of(input, repeated(input, &times))))
}

fn repeated(input: &Tensor, times: &[Dim]) -> Shape {
    let rank = times.len().max(input.rank());
    let at = |dims: &[Dim], at: usize| match (at + dims.len()).checked_sub(rank) {
        Some(own) => dims[own].clone(),
        None => Dim::ONE,
    };
    (0..rank)
        .map(|i| at(&input.shape, i) * at(times, i))
        .collect()
}

fn tile(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let times = call.rest_dims("dims")?;
    Ok(Value::Tensor(copy_of(input, repeated(input, &times))))
}

fn repeat_interleave(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let times = call.need("repeats")?;
    let output = call.dim("output_size")?;
    let (mut shape, axis) = match call.axis("dim", input.rank())? {
        Some(axis) => (input.shape.clone(), axis),
        None => (Shape::from_iter([input.numel()]), 0),
    };
    let size = match (output, as_dim(times)) {
        (Some(size), _) => size,
        (None, Some(times)) => shape.get(axis).cloned().unwrap_or(Dim::ONE) * times,
        (None, None) => return Err(Failure::unknown("the size depends on the elements")),
    };
    match shape.get_mut(axis) {
        Some(slot) => *slot = size,
        None => shape.push(size),
    }
    Ok(Value::Tensor(copy_of(input, shape)))
}

fn same_layout(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    Ok(like(input, input.dtype).into())
}

fn flip(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    axes_of(&call.rest_dims("dims")?, input.rank())?;
    same_layout(call)
}

/// `fliplr` is along the second dimension, and `flipud` along the first.
fn flip_image<const RANK: usize>(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    if input.rank() < RANK {
        let expected = format!("a tensor of {RANK} dimensions or more");
        return Err(Failure::invalid(expected, input.ty.to_string()));
    }
    same_layout(call)
}

fn roll(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let mut ty = like(input, input.dtype);
    if ty.strides != Strides::Contiguous {
        ty.strides = match input.suggested_format() {
            Some(format) if format != MemoryFormat::Contiguous => ty.strides,
            _ => Strides::Unknown,
        };
    }
    Ok(ty.into())
}

fn rot90(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let dims = match call.dims("dims")? {
        Some(dims) => dims,
        None => Shape::from_iter([Dim::ZERO, Dim::ONE]),
    };
    let axes = axes_of(&dims, input.rank())?;
    let [a, b] = axes.as_slice() else {
        return Err(Failure::invalid("two dimensions", dims.len().to_string()));
    };
    let mut ty = like(input, input.dtype);
    if call.int("k")?.unwrap_or(1).rem_euclid(2) == 1 {
        ty.shape.swap(*a, *b);
    }
    ty.strides = Strides::Unknown;
    Ok(ty.into())
}

fn triangle(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    if input.rank() < 2 {
        return Err(Failure::invalid(
            "a tensor of two dimensions or more",
            input.ty.to_string(),
        ));
    }
    Ok(Value::Tensor(copy_of(input, input.shape.clone())))
}

fn as_real(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let dtype = real_part(input.dtype);
    if dtype == input.dtype {
        return Err(Failure::invalid("a complex tensor", input.ty.to_string()));
    }
    let two = Dim::Known(2);
    let mut shape = input.shape.clone();
    shape.push(two.clone());
    let strides = input.stride_list().map(|own| {
        let mut strides: Shape = own.into_iter().map(|s| s * two.clone()).collect();
        strides.push(Dim::ONE);
        strides
    });
    let view = view_of(input, shape, strides);
    let ty = TensorType {
        dtype,
        ..(*view.ty).clone()
    };
    Ok(Value::Tensor(view.view(ty)))
}

fn as_complex(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let Some(dtype) = complex_of(input.dtype) else {
        return Err(Failure::invalid(
            "a floating-point tensor",
            input.ty.to_string(),
        ));
    };
    if !input.shape.last().is_some_and(|size| size.is(2)) {
        return Err(Failure::invalid(
            "a tensor whose last size is 2",
            input.ty.to_string(),
        ));
    }
    let keep = input.rank() - 1;
    let strides = input.stride_list().and_then(|own| {
        let halves = own[..keep]
            .iter()
            .map(|stride| stride.exact_div(&Dim::Known(2)));
        halves.collect::<Option<Shape>>()
    });
    let view = view_of(input, input.shape[..keep].into(), strides);
    let ty = TensorType {
        dtype,
        ..(*view.ty).clone()
    };
    Ok(Value::Tensor(view.view(ty)))
}

/// The real or the imaginary part: a view of every second number.
pub(super) fn part(input: &Tensor) -> Value {
    let dtype = real_part(input.dtype);
    if dtype == input.dtype {
        return Value::Tensor(input.clone());
    }
    let strides = input.stride_list().map(|own| {
        own.into_iter()
            .map(|s| s * Dim::Known(2))
            .collect::<Shape>()
    });
    let view = view_of(input, input.shape.clone(), strides);
    let ty = TensorType {
        dtype,
        ..(*view.ty).clone()
    };
    Value::Tensor(view.view(ty))
}

fn real(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(part(call.tensor("input")?))
}

pub(super) const RULES: &[Rule] = &[
    rule("Tensor.view aten.view", "input size...", view, Cost::Free)
        .shards(sharding::regrouped)
        .sizes(Sizes::OfResult("size")),
    rule("reshape", "input shape...", reshape, Cost::Free)
        .shards(sharding::regrouped)
        .sizes(Sizes::OfResult("shape")),
    rule(
        "_unsafe_view _reshape_alias",
        "input size...",
        unsafe_view,
        Cost::Free,
    )
    .shards(sharding::regrouped)
    .sizes(Sizes::OfResult("size")),
    rule("view_as reshape_as", "input other", view_as, Cost::Free),
    rule("flatten", "input start_dim end_dim", flatten, Cost::Free).shards(sharding::regrouped),
    rule("ravel", "input", ravel, Cost::Free).shards(sharding::regrouped),
    rule("unflatten", "input dim sizes", unflatten, Cost::Free)
        .shards(sharding::regrouped)
        .sizes(Sizes::From("dim", "sizes")),
    rule("permute", "input dims...", permute, Cost::Free).shards(sharding::reordered),
    rule(
        "transpose swapaxes swapdims",
        "input dim0 dim1",
        transpose,
        Cost::Free,
    )
    .shards(sharding::reordered),
    rule("t", "input", t, Cost::Free).shards(sharding::reordered),
    rule("numpy_T", "input", numpy_t, Cost::Free).shards(sharding::reordered),
    rule("adjoint", "input", adjoint, Cost::Free).shards(sharding::reordered),
    rule(
        "movedim moveaxis",
        "input source destination",
        movedim,
        Cost::Free,
    )
    .shards(sharding::reordered),
    rule("unsqueeze", "input dim", unsqueeze, Cost::Free).shards(sharding::regrouped),
    rule("squeeze", "input dim", squeeze, Cost::Free).shards(sharding::squeezed),
    rule(
        "expand broadcast_to",
        "input size... *implicit",
        expand,
        Cost::Free,
    )
    .shards(sharding::expanded)
    .sizes(Sizes::OfResult("size")),
    rule("expand_as", "input other", expand_as, Cost::Free).shards(sharding::elementwise),
    rule(
        "alias lift_fresh positive operator.pos operator.__pos__",
        "input",
        identity,
        Cost::Free,
    )
    .shards(sharding::moved),
    rule(
        "nn.Identity.forward",
        "input others...",
        identity,
        Cost::Free,
    ),
    rule(
        "requires_grad_",
        "input requires_grad",
        identity,
        Cost::Free,
    )
    .writes(),
    rule("detach", "input", detach, Cost::Free)
        .detached()
        .shards(sharding::moved),
    rule("contiguous", "input memory_format", contiguous, Cost::Free).shards(sharding::moved),
    rule("narrow", "input dim start length", narrow, Cost::Free)
        .shards(sharding::narrowed)
        .sizes(Sizes::Bounds(["start", "length"])),
    rule(
        "Tensor.unfold aten.unfold",
        "input dimension size step",
        unfold_windows,
        Cost::Free,
    ),
    rule("diagonal", "input offset dim1 dim2", diagonal, Cost::Free),
    rule(
        "as_strided",
        "input size stride storage_offset",
        as_strided,
        Cost::Free,
    ),
    rule("repeat", "input repeats...", repeat, Cost::Move).shards(sharding::repeated),
    rule("tile", "input dims...", tile, Cost::Move),
    rule(
        "repeat_interleave",
        "input repeats dim *output_size",
        repeat_interleave,
        Cost::Move,
    )
    .shards(sharding::grouped),
    rule("flip", "input dims...", flip, Cost::Move),
    rule("fliplr", "input", flip_image::<2>, Cost::Move),
    rule("flipud", "input", flip_image::<1>, Cost::Move),
    rule("roll", "input shifts dims", roll, Cost::Move),
    rule("rot90", "input k dims", rot90, Cost::Move),
    rule("tril triu", "input diagonal", triangle, Cost::Move)
        .writes()
        .shards(sharding::kept),
    rule("view_as_real", "input", as_real, Cost::Free),
    rule("view_as_complex", "input", as_complex, Cost::Free),
    rule("real imag", "input", real, Cost::Free),
];
