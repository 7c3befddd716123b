//! Tensors joined into one, and one split into several.

use corsac_ir::MemoryFormat;

use super::broadcast::{broadcast, same_size};
use super::call::{Call, as_dim, wrap_axis};
use super::dim::Dim;
use super::error::Failure;
use super::promotion::ResultType;
use super::rule::{Cost, Rule, rule};
use super::sharding::{self, Sizes};
use super::tensor_type::{Shape, Strides, TensorType};
use super::value::{Tensor, Value};
use super::view::{expanded, permuted, reshaped, unsqueezed, view_of};

/// The memory format that all inputs share; contiguous otherwise.
fn common_format(tensors: &[&Tensor]) -> Option<MemoryFormat> {
    let mut common = None;
    for tensor in tensors {
        let format = tensor.suggested_format()?;
        if *common.get_or_insert(format) != format {
            return Some(MemoryFormat::Contiguous);
        }
    }
    common
}

fn concatenated(tensors: &[&Tensor], axis: i64) -> Result<TensorType, Failure> {
    // Empty vectors join with anything.
    let legacy = |t: &&&Tensor| t.rank() == 1 && t.shape[0].is(0);
    let first = tensors.iter().find(|t| !legacy(t)).or(tensors.first());
    let Some(first) = first else {
        return Err(Failure::invalid("at least one tensor", "none"));
    };
    if first.rank() == 0 {
        return Err(Failure::invalid(
            "tensors with dimensions",
            first.ty.to_string(),
        ));
    }
    let axis = wrap_axis(axis, first.rank())?;
    let mut types = ResultType::default();
    let mut shape = first.shape.clone();
    shape[axis] = Dim::ZERO;
    for tensor in tensors {
        types.add(&Value::Tensor((*tensor).clone()))?;
        if legacy(&tensor) {
            continue;
        }
        let mut fits = tensor.rank() == first.rank();
        for (at, (a, b)) in tensor.shape.iter().zip(&first.shape).enumerate() {
            fits &= at == axis || same_size(a, b)?;
        }
        if !fits {
            return Err(Failure::invalid(
                format!("tensors like {} but for dimension {axis}", first.ty),
                tensor.ty.to_string(),
            ));
        }
        shape[axis] = shape[axis].clone() + tensor.shape[axis].clone();
    }
    let strides = match common_format(tensors) {
        None => Strides::Unknown,
        Some(format) => Strides::in_format(&shape, format),
    };
    Ok(TensorType {
        strides,
        device: first.device,
        ..TensorType::new(types.dtype()?, shape)
    })
}

fn cat(call: &Call<'_>) -> Result<Value, Failure> {
    let tensors = call.tensors("tensors")?;
    Ok(concatenated(&tensors, call.int("dim")?.unwrap_or(0))?.into())
}

fn stack(call: &Call<'_>) -> Result<Value, Failure> {
    let tensors = call.tensors("tensors")?;
    let Some(first) = tensors.first() else {
        return Err(Failure::invalid("at least one tensor", "none"));
    };
    let axis = wrap_axis(call.int("dim")?.unwrap_or(0), first.rank() + 1)?;
    let mut types = ResultType::default();
    for tensor in &tensors {
        types.add(&Value::Tensor((*tensor).clone()))?;
        let mut fits = tensor.rank() == first.rank();
        for (a, b) in tensor.shape.iter().zip(&first.shape) {
            fits &= same_size(a, b)?;
        }
        if !fits {
            return Err(Failure::invalid(
                format!("tensors like {}", first.ty),
                tensor.ty.to_string(),
            ));
        }
    }
    let mut shape = first.shape.clone();
    shape.insert(axis, Dim::Known(tensors.len() as i64));
    Ok(TensorType {
        device: first.device,
        ..TensorType::new(types.dtype()?, shape)
    }
    .into())
}

/// `tensor` with at least `rank` dimensions, as by `torch.atleast_2d` and the like.
fn at_least(tensor: &Tensor, rank: usize) -> Tensor {
    let mut result = tensor.clone();
    while result.rank() < rank {
        // [x] -> [1, x] -> [1, x, 1]
        let at = if result.rank() == 2 { 2 } else { 0 };
        result = unsqueezed(&result, at);
    }
    result
}

fn joined_along(call: &Call<'_>, rank: usize, axis: i64) -> Result<Value, Failure> {
    let tensors = call.tensors("tensors")?;
    let raised: Vec<Tensor> = tensors.iter().map(|t| at_least(t, rank)).collect();
    let raised: Vec<&Tensor> = raised.iter().collect();
    Ok(concatenated(&raised, axis)?.into())
}

fn hstack(call: &Call<'_>) -> Result<Value, Failure> {
    let flat = call.tensors("tensors")?.iter().all(|t| t.rank() < 2);
    joined_along(call, 1, i64::from(!flat))
}

fn vstack(call: &Call<'_>) -> Result<Value, Failure> {
    joined_along(call, 2, 0)
}

fn dstack(call: &Call<'_>) -> Result<Value, Failure> {
    joined_along(call, 3, 2)
}

fn column_stack(call: &Call<'_>) -> Result<Value, Failure> {
    let columns = call
        .tensors("tensors")?
        .into_iter()
        .map(|tensor| match tensor.rank() {
            0 | 1 => reshaped(tensor, [tensor.numel(), Dim::ONE].into_iter().collect()),
            _ => tensor.clone(),
        });
    let columns: Vec<Tensor> = columns.collect();
    let columns: Vec<&Tensor> = columns.iter().collect();
    Ok(concatenated(&columns, 1)?.into())
}

fn atleast<const RANK: usize>(call: &Call<'_>) -> Result<Value, Failure> {
    let one = |value: &Value| match value {
        Value::Tensor(tensor) => Ok(Value::Tensor(at_least(tensor, RANK))),
        other => Err(Failure::expected("a tensor", other)),
    };
    match call.rest.as_slice() {
        [Value::Tuple(items) | Value::List(items)] => Ok(Value::Tuple(
            items.iter().map(one).collect::<Result<_, _>>()?,
        )),
        [single] => one(single),
        many => Ok(Value::Tuple(
            many.iter().map(one).collect::<Result<_, _>>()?,
        )),
    }
}

/// Parts of these lengths along `axis`: views.
fn parts(input: &Tensor, axis: usize, lengths: impl IntoIterator<Item = Dim>) -> Value {
    let strides = input.stride_list();
    let part = |length| {
        let mut shape = input.shape.clone();
        shape[axis] = length;
        Value::Tensor(view_of(input, shape, strides.clone()))
    };
    Value::Tuple(lengths.into_iter().map(part).collect())
}

/// Maximum number of parts that a tensor is split into: each is a value of its own.
const PARTS: i64 = 1 << 16;

fn not_too_many(count: i64) -> Result<i64, Failure> {
    match count <= PARTS {
        true => Ok(count),
        false => Err(Failure::unknown(format!("{count} parts are too many"))),
    }
}

fn axis_of(call: &Call<'_>, input: &Tensor) -> Result<usize, Failure> {
    let axis = wrap_axis(call.int("dim")?.unwrap_or(0), input.rank())?;
    if input.rank() == 0 {
        return Err(Failure::invalid(
            "a tensor with dimensions",
            input.ty.to_string(),
        ));
    }
    Ok(axis)
}

/// Lengths of parts of `each`, the last one shorter.
fn equal_lengths(size: &Dim, each: &Dim) -> Result<Vec<Dim>, Failure> {
    if let Some(count) = size.exact_div(each).and_then(|count| count.known())
        && count > 0
    {
        return Ok(vec![each.clone(); not_too_many(count)? as usize]);
    }
    match (size.known(), each.known()) {
        (Some(size), Some(each)) if each > 0 => {
            not_too_many(size / each)?;
            let starts = (0..size.max(1)).step_by(each as usize);
            Ok(starts
                .map(|start| Dim::Known(each.min(size - start)))
                .collect())
        }
        (Some(0), Some(0)) => Ok(vec![Dim::ZERO]),
        (_, Some(each)) if each <= 0 => {
            Err(Failure::invalid("a length above zero", each.to_string()))
        }
        _ => Err(Failure::unknown(format!(
            "how many parts of {each} are in {size}"
        ))),
    }
}

fn split(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let axis = axis_of(call, input)?;
    let given = call.need("split_size")?;
    let size = &input.shape[axis];
    if let Some(each) = as_dim(given) {
        return Ok(parts(input, axis, equal_lengths(size, &each)?));
    }
    let lengths = super::call::dims_of(given, "split_size")?;
    let sum = lengths
        .iter()
        .cloned()
        .fold(Dim::ZERO, |sum, length| sum + length);
    if !same_size(&sum, size)? {
        return Err(Failure::invalid(
            format!("lengths that add up to {size}"),
            given.to_string(),
        ));
    }
    Ok(parts(input, axis, lengths))
}

fn chunk(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let axis = axis_of(call, input)?;
    let size = &input.shape[axis];
    let count = call.int("chunks")?.unwrap_or(0);
    if count < 1 {
        return Err(Failure::invalid(
            "a number of chunks above zero",
            count.to_string(),
        ));
    }
    let count = not_too_many(count)?;
    if let Some(each) = size.exact_div(&Dim::Known(count))
        && !each.is(0)
    {
        return Ok(parts(input, axis, vec![each; count as usize]));
    }
    let Some(known) = size.known() else {
        return Err(Failure::unknown(format!(
            "how {size} elements make {count} chunks"
        )));
    };
    if known == 0 {
        return Ok(parts(input, axis, vec![Dim::ZERO; count as usize]));
    }
    let each = (known + count - 1) / count;
    Ok(parts(input, axis, equal_lengths(size, &Dim::Known(each))?))
}

fn tensor_split_along(call: &Call<'_>, axis: usize) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let given = call.need("indices_or_sections")?;
    let Some(size) = input.shape.get(axis).and_then(Dim::known) else {
        return Err(Failure::unknown("the size to split is not known"));
    };
    let lengths: Vec<i64> = match as_dim(given).map(|d| d.known()) {
        Some(Some(sections)) if sections > 0 => (0..not_too_many(sections)?)
            .map(|at| size / sections + i64::from(at < size % sections))
            .collect(),
        Some(_) => return Err(Failure::expected("a number of sections", given)),
        None => {
            let bounds = super::call::dims_of(given, "indices")?;
            let mut known = Vec::new();
            for bound in &bounds {
                let bound = bound
                    .known()
                    .ok_or_else(|| Failure::unknown("an index is not known"))?;
                let wrapped = if bound < 0 {
                    bound.saturating_add(size)
                } else {
                    bound
                };
                known.push(wrapped.clamp(0, size));
            }
            known.push(size);
            let starts = std::iter::once(0).chain(known.iter().copied());
            starts
                .zip(&known)
                .map(|(start, end)| (end - start).max(0))
                .collect()
        }
    };
    Ok(parts(input, axis, lengths.into_iter().map(Dim::Known)))
}

fn tensor_split(call: &Call<'_>) -> Result<Value, Failure> {
    let axis = axis_of(call, call.tensor("input")?)?;
    tensor_split_along(call, axis)
}

fn hsplit(call: &Call<'_>) -> Result<Value, Failure> {
    let axis = usize::from(call.tensor("input")?.rank() > 1);
    tensor_split_along(call, axis)
}

fn vsplit(call: &Call<'_>) -> Result<Value, Failure> {
    tensor_split_along(call, 0)
}

fn unbind(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let axis = axis_of(call, input)?;
    let Some(count) = input.shape[axis].known() else {
        return Err(Failure::unknown(format!(
            "how many parts {} are",
            input.shape[axis]
        )));
    };
    let count = not_too_many(count)?;
    let kept: Vec<usize> = (0..input.rank()).filter(|at| *at != axis).collect();
    let part = Value::Tensor(permuted(input, &kept));
    Ok(Value::Tuple(
        vec![part; usize::try_from(count).unwrap_or(0)].into(),
    ))
}

fn sequence_of_tensors(call: &Call<'_>) -> Result<Vec<Tensor>, Failure> {
    let items = match call.rest.as_slice() {
        [Value::Tuple(items) | Value::List(items)] => items,
        many => many,
    };
    let tensors = items.iter().map(|item| match item {
        Value::Tensor(tensor) => Ok(tensor.clone()),
        other => Err(Failure::expected("a tensor", other)),
    });
    tensors.collect()
}

fn broadcast_tensors(call: &Call<'_>) -> Result<Value, Failure> {
    let tensors = sequence_of_tensors(call)?;
    let mut shape = Shape::new();
    for tensor in &tensors {
        shape = broadcast(&shape, &tensor.shape)?;
    }
    let expand = |t: &Tensor| expanded(t, &shape).map(Value::Tensor);
    Ok(Value::Tuple(
        tensors.iter().map(expand).collect::<Result<_, _>>()?,
    ))
}

fn meshgrid(call: &Call<'_>) -> Result<Value, Failure> {
    let tensors = sequence_of_tensors(call)?;
    let columns_first = call.text("indexing")? == Some("xy") && tensors.len() > 1;
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    if columns_first {
        order.swap(0, 1);
    }
    let sizes: Shape = order.iter().map(|&at| tensors[at].numel()).collect();
    let grid = |at: usize| -> Result<Value, Failure> {
        let place = order.iter().position(|&o| o == at).unwrap_or(at);
        let mut column = Shape::from_elem(Dim::ONE, sizes.len());
        column[place] = tensors[at].numel();
        let view = reshaped(&tensors[at], column);
        Ok(Value::Tensor(match columns_first {
            // Built the other way round and then transposed.
            true => {
                let full = expanded(&view, &sizes)?;
                view_of(&full, sizes.clone(), None)
            }
            false => expanded(&view, &sizes)?,
        }))
    };
    let grids = (0..tensors.len()).map(grid);
    Ok(Value::Tuple(grids.collect::<Result<_, _>>()?))
}

fn cartesian_product(call: &Call<'_>) -> Result<Value, Failure> {
    let tensors = sequence_of_tensors(call)?;
    let Some(first) = tensors.first() else {
        return Err(Failure::invalid("at least one tensor", "none"));
    };
    let sizes: Shape = tensors.iter().map(|t| t.numel()).collect();
    let mut shape = Shape::from_iter([Dim::product(&sizes)]);
    if tensors.len() > 1 {
        shape.push(Dim::Known(tensors.len() as i64));
    }
    Ok(TensorType {
        strides: Strides::Unknown,
        ..TensorType::new(first.dtype, shape)
    }
    .into())
}

pub(super) const RULES: &[Rule] = &[
    rule("cat concat concatenate", "tensors dim", cat, Cost::Move).shards(sharding::joined),
    rule("stack", "tensors dim", stack, Cost::Move).shards(sharding::stacked),
    rule("hstack", "tensors", hstack, Cost::Move),
    rule("vstack row_stack", "tensors", vstack, Cost::Move),
    rule("dstack", "tensors", dstack, Cost::Move),
    rule("column_stack", "tensors", column_stack, Cost::Move),
    rule("atleast_1d", "tensors...", atleast::<1>, Cost::Free),
    rule("atleast_2d", "tensors...", atleast::<2>, Cost::Free),
    rule("atleast_3d", "tensors...", atleast::<3>, Cost::Free),
    rule(
        "split split_with_sizes",
        "input split_size dim",
        split,
        Cost::Free,
    )
    .shards(sharding::taken)
    .sizes(Sizes::Pieces("split_size")),
    rule("chunk", "input chunks dim", chunk, Cost::Free).shards(sharding::taken),
    rule(
        "tensor_split",
        "input indices_or_sections dim",
        tensor_split,
        Cost::Free,
    ),
    rule("hsplit", "input indices_or_sections", hsplit, Cost::Free),
    rule("vsplit", "input indices_or_sections", vsplit, Cost::Free),
    rule("unbind", "input dim", unbind, Cost::Free).shards(sharding::unbound),
    rule(
        "broadcast_tensors",
        "tensors...",
        broadcast_tensors,
        Cost::Free,
    ),
    rule("meshgrid", "tensors... *indexing", meshgrid, Cost::Free),
    rule(
        "cartesian_prod",
        "tensors...",
        cartesian_product,
        Cost::Move,
    ),
];
