//! Indexing by square brackets, `select` and `slice`.

use corsac_ir::DType;

use super::broadcast::{broadcast, same_size};
use super::call::{Call, as_dim, wrap_axis};
use super::dim::Dim;
use super::error::Failure;
use super::promotion::{Kind, kind};
use super::rule::{Cost, Rule, rule};
use super::sharding::{self, Sizes};
use super::tensor_type::{Shape, Strides, TensorType};
use super::value::{Tensor, Value};
use super::view::{unsqueezed, view_of};

/// Bounds of a slice inside `size` elements: start, and number of elements.
fn slice_bounds(
    size: &Dim,
    start: Option<Dim>,
    stop: Option<Dim>,
    step: i64,
) -> Result<Dim, Failure> {
    let undecided = || Failure::unknown(format!("which part of {size} elements is taken"));
    let clamp = |bound: Dim| -> Result<Dim, Failure> {
        let bound = match bound.less_than(&Dim::ZERO) {
            Some(true) => bound + size.clone(),
            Some(false) => bound,
            // From the end, if the summand is at least the size.
            None => return Err(undecided()),
        };
        let above = match bound.less_than(&Dim::ZERO) {
            Some(true) => Dim::ZERO,
            Some(false) => bound,
            None => bound.larger(&Dim::ZERO),
        };
        Ok(above.smaller(size))
    };
    let start = start.map_or(Ok(Dim::ZERO), clamp)?;
    let stop = stop.map_or_else(|| Ok(size.clone()), clamp)?;
    let length = (stop - start).larger(&Dim::ZERO);
    (length + Dim::Known(step - 1))
        .floor_div(&Dim::Known(step))
        .ok_or_else(|| Failure::invalid("a step above zero", "0"))
}

/// Every `step`-th element along `axis` between the bounds: a view.
fn sliced(
    input: &Tensor,
    axis: usize,
    start: Option<Dim>,
    stop: Option<Dim>,
    step: i64,
) -> Result<Tensor, Failure> {
    if step < 1 {
        return Err(Failure::invalid("a step above zero", step.to_string()));
    }
    let mut shape = input.shape.clone();
    shape[axis] = slice_bounds(&input.shape[axis], start, stop, step)?;
    let strides = input.stride_list().map(|mut strides| {
        strides[axis] = strides[axis].clone() * Dim::Known(step);
        strides
    });
    Ok(view_of(input, shape, strides))
}

/// One element along `axis`: a view with a dimension less.
fn selected(input: &Tensor, axis: usize, index: &Dim) -> Result<Tensor, Failure> {
    let size = &input.shape[axis];
    let outside = match index.less_than(&Dim::ZERO) {
        Some(true) => index.less_than(&-size.clone()),
        _ => index.less_than(size).map(|inside| !inside),
    };
    if outside == Some(true) {
        return Err(Failure::invalid(
            format!("an index into {size} elements"),
            index.to_string(),
        ));
    }
    Ok(one_of(input, axis))
}

/// One element along `axis`, whichever that is: a view with a dimension less.
fn one_of(input: &Tensor, axis: usize) -> Tensor {
    let mut shape = input.shape.clone();
    shape.remove(axis);
    let strides = input.stride_list().map(|mut strides| {
        strides.remove(axis);
        strides
    });
    view_of(input, shape, strides)
}

/// A bound of a slice: nothing, or an integer.
fn bound(value: &Value) -> Result<Option<Dim>, Failure> {
    match value {
        Value::None => Ok(None),
        value => as_dim(value)
            .map(Some)
            .ok_or_else(|| Failure::expected("an integer as the bound of a slice", value)),
    }
}

fn step_of(value: &Value) -> Result<i64, Failure> {
    let step = bound(value)?.unwrap_or(Dim::ONE);
    step.known()
        .ok_or_else(|| Failure::unknown("the step of the slice is not known"))
}

/// `tensor[index]`. With `single`, integers in tensors of no dimensions count as those of Python,
/// so that the result is a view; operators treat them as any other tensor of indices.
fn tensor_item(input: &Tensor, index: &Value, single: bool) -> Result<Value, Failure> {
    let items: &[Value] = match index {
        Value::Tuple(items) => items,
        _ => std::slice::from_ref(index),
    };
    let taken = items.iter().map(|item| match item {
        Value::None | Value::Ellipsis | Value::Bool(_) => Ok(0),
        Value::Tensor(mask) if matches!(mask.dtype, DType::Bool | DType::UInt8) => Err(
            Failure::unknown("the result's size depends on the elements of a mask"),
        ),
        Value::Unknown(reason) => Err(Failure::unknown(&**reason)),
        _ => Ok(1),
    });
    let taken: usize = taken.sum::<Result<usize, Failure>>()?;
    if taken > input.rank() {
        return Err(Failure::invalid(
            format!("at most {} indices", input.rank()),
            taken.to_string(),
        ));
    }
    let mut result = input.clone();
    let mut axis = 0;
    // Tensors that index, with the dimension each is for.
    let mut advanced: Vec<(usize, Tensor)> = Vec::new();
    for item in items {
        match item {
            Value::None => {
                result = unsqueezed(&result, axis);
                axis += 1;
            }
            Value::Ellipsis => axis += input.rank() - taken,
            Value::Slice(parts) => {
                let (start, stop) = (bound(&parts[0])?, bound(&parts[1])?);
                let step = step_of(&parts[2])?;
                result = sliced(&result, axis, start, stop, step)?;
                axis += 1;
            }
            Value::Int(index) => result = selected(&result, axis, index)?,
            Value::Tensor(index)
                if single && index.rank() == 0 && kind(index.dtype) == Some(Kind::Int) =>
            {
                result = one_of(&result, axis);
            }
            Value::Tensor(index) if kind(index.dtype) == Some(Kind::Int) => {
                advanced.push((axis, index.clone()));
                axis += 1;
            }
            Value::List(places) | Value::Tuple(places) => {
                let known = places.iter().all(|place| matches!(place, Value::Int(_)));
                if !known {
                    return Err(Failure::unknown("an index that is a list of other things"));
                }
                let count = Dim::Known(places.len() as i64);
                advanced.push((axis, Tensor::new(TensorType::new(DType::Int64, [count]))));
                axis += 1;
            }
            other => return Err(Failure::expected("an index", other)),
        }
    }
    if advanced.is_empty() {
        return Ok(Value::Tensor(result));
    }
    picked(&result, &advanced)
}

/// Elements picked by tensors of indices, which are broadcast together. Their dimensions come in
/// the place of the first index if all are adjacent, and in front otherwise.
fn picked(input: &Tensor, advanced: &[(usize, Tensor)]) -> Result<Value, Failure> {
    let mut places = Shape::new();
    for (_, index) in advanced {
        places = broadcast(&places, &index.shape)?;
    }
    let axes: Vec<usize> = advanced.iter().map(|(axis, _)| *axis).collect();
    let adjacent = axes.windows(2).all(|pair| pair[1] == pair[0] + 1);
    let at = if adjacent { axes[0] } else { 0 };
    let mut shape: Shape = input
        .shape
        .iter()
        .enumerate()
        .filter(|(axis, _)| !axes.contains(axis))
        .map(|(_, size)| size.clone())
        .collect();
    shape.insert_many(at, places);
    let plain = input.is_contiguous() == Some(true)
        && advanced
            .iter()
            .all(|(_, index)| index.is_contiguous() == Some(true));
    Ok(TensorType {
        strides: if plain {
            Strides::Contiguous
        } else {
            Strides::Unknown
        },
        device: input.device,
        ..TensorType::new(input.dtype, shape)
    }
    .into())
}

/// `items[index]`.
fn sequence_item(items: &[Value], whole: &Value, index: &Value) -> Result<Value, Failure> {
    match index {
        Value::Int(Dim::Known(at)) => {
            let len = items.len() as i64;
            let wrapped = if *at < 0 { at + len } else { *at };
            usize::try_from(wrapped)
                .ok()
                .and_then(|at| items.get(at).cloned())
                .ok_or_else(|| {
                    Failure::invalid(format!("an index into {len} items"), at.to_string())
                })
        }
        Value::Slice(parts) => {
            let step = step_of(&parts[2])?;
            let known = |value: &Value| -> Result<Option<i64>, Failure> {
                let Some(dim) = bound(value)? else {
                    return Ok(None);
                };
                dim.known()
                    .map(Some)
                    .ok_or_else(|| Failure::unknown("a bound of the slice is not known"))
            };
            let chosen = slice_items(items, known(&parts[0])?, known(&parts[1])?, step)
                .ok_or_else(|| Failure::invalid("a step that is not zero", "0"))?;
            Ok(match whole {
                Value::List(_) => Value::List(chosen.into()),
                _ => Value::Tuple(chosen.into()),
            })
        }
        other => Err(Failure::expected("an integer or a slice", other)),
    }
}

/// Python's slicing of a sequence.
fn slice_items(
    items: &[Value],
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
) -> Option<Vec<Value>> {
    let len = items.len() as i64;
    let clamp = |bound: i64, low: i64, high: i64| {
        let bound = if bound < 0 {
            bound.saturating_add(len)
        } else {
            bound
        };
        bound.clamp(low, high)
    };
    let (mut at, stop) = match step {
        0 => return None,
        1.. => (
            start.map_or(0, |s| clamp(s, 0, len)),
            stop.map_or(len, |s| clamp(s, 0, len)),
        ),
        _ => (
            start.map_or(len - 1, |s| clamp(s, -1, len - 1)),
            stop.map_or(-1, |s| clamp(s, -1, len - 1)),
        ),
    };
    let mut chosen = Vec::new();
    while if step > 0 { at < stop } else { at > stop } {
        chosen.push(items[at as usize].clone());
        at = at.checked_add(step)?;
    }
    Some(chosen)
}

/// `value[index]`.
pub(super) fn item(value: &Value, index: &Value) -> Result<Value, Failure> {
    match value {
        Value::Tensor(tensor) => tensor_item(tensor, index, true),
        Value::Tuple(items) | Value::List(items) => sequence_item(items, value, index),
        Value::Named(items) => {
            let plain: Vec<Value> = items.iter().map(|(_, item)| item.clone()).collect();
            sequence_item(&plain, value, index)
        }
        Value::Dict(entries) => entries
            .iter()
            .find(|(key, _)| key == index)
            .map(|(_, value)| value.clone())
            .ok_or_else(|| Failure::invalid("a key of the dictionary", index.to_string())),
        other => Err(Failure::expected("a tensor or a container", other)),
    }
}

fn getitem(call: &Call<'_>) -> Result<Value, Failure> {
    item(
        call.need("a")?,
        call.args[1].as_ref().unwrap_or(&Value::None),
    )
}

fn setitem(call: &Call<'_>) -> Result<Value, Failure> {
    match call.need("a")? {
        Value::Tensor(_) => Ok(Value::None),
        other => Err(Failure::expected("a tensor", other)),
    }
}

fn select(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let axis = wrap_axis(call.int("dim")?.unwrap_or(0), input.rank())?;
    let index = call
        .dim("index")?
        .ok_or_else(|| Failure::invalid("an index", "none"))?;
    if input.rank() == 0 {
        return Err(Failure::invalid(
            "a tensor with dimensions",
            input.ty.to_string(),
        ));
    }
    Ok(Value::Tensor(selected(input, axis, &index)?))
}

fn slice(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let axis = wrap_axis(call.int("dim")?.unwrap_or(0), input.rank())?;
    if input.rank() == 0 {
        return Err(Failure::invalid(
            "a tensor with dimensions",
            input.ty.to_string(),
        ));
    }
    let step = call.int("step")?.unwrap_or(1);
    let (start, stop) = (call.dim("start")?, call.dim("end")?);
    Ok(Value::Tensor(sliced(input, axis, start, stop, step)?))
}

fn index_by_list(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let given = call.need("indices")?;
    let Some(items) = given.as_items() else {
        return Err(Failure::expected("a list of tensors", given));
    };
    let whole = Value::Slice([Value::None, Value::None, Value::None].into());
    let items = items.iter().map(|item| match item {
        Value::None => whole.clone(),
        item => item.clone(),
    });
    tensor_item(input, &Value::Tuple(items.collect()), false)
}

fn index_put(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let mut ty = super::elementwise::like(input, input.dtype);
    if ty.strides != Strides::Contiguous {
        ty.strides = Strides::Unknown;
    }
    Ok(ty.into())
}

/// A slice as long as another tensor, at a position known only when it runs.
fn narrow_copy(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let axis = wrap_axis(call.int("dim")?.unwrap_or(0), input.rank())?;
    let length = call
        .dim("length")?
        .ok_or_else(|| Failure::invalid("a length", "none"))?;
    let mut shape = input.shape.clone();
    let Some(size) = shape.get_mut(axis) else {
        return Err(Failure::invalid(
            "a tensor with dimensions",
            input.ty.to_string(),
        ));
    };
    if same_size(size, &length) != Ok(true) {
        *size = length;
    }
    Ok(TensorType {
        device: input.device,
        ..TensorType::new(input.dtype, shape)
    }
    .into())
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "operator.getitem operator.__getitem__",
        "a b",
        getitem,
        Cost::Gather,
    )
    .shards(sharding::indexed)
    .sizes(Sizes::Slices("b")),
    rule(
        "operator.setitem operator.__setitem__",
        "a b c",
        setitem,
        Cost::Move,
    ),
    rule("select", "input dim index", select, Cost::Free).shards(sharding::selected),
    rule("slice", "input dim start end step", slice, Cost::Free)
        .shards(sharding::narrowed)
        .sizes(Sizes::Bounds(["start", "end"])),
    rule(
        "aten.index aten._unsafe_index",
        "input indices",
        index_by_list,
        Cost::Gather,
    ),
    rule(
        "index_put",
        "input indices values accumulate",
        index_put,
        Cost::Move,
    )
    .writes(),
    rule(
        "narrow_copy",
        "input dim start length",
        narrow_copy,
        Cost::Move,
    ),
];
