//! Operators that move elements: views, pieces and what joins them, indexing.

use corsac_ir::Arg;
use smallvec::{SmallVec, smallvec};

use super::call::{Call, wrap_axis};
use super::dim::Dim;
use super::sharding::{Form, Relations, Run, Side, Sides, size, sizes};
use super::tensor_type::TensorType;
use super::value::{Tensor, Value};

/// Copies and conversions: the result has the dimensions of the argument.
pub(super) fn moved(r: &mut Relations<'_, '_>) -> Option<()> {
    let input = r.number("input")?;
    r.same(input, 0..r.outputs.first()?.rank())?;
    if r.inputs.len() == 1 {
        r.linear();
    }
    Some(())
}

/// Views with the elements in the same order: dimensions are split and merged.
pub(super) fn regrouped(r: &mut Relations<'_, '_>) -> Option<()> {
    let input = r.number("input")?;
    let (from, to) = (sizes(r.inputs[input])?, sizes(r.outputs.first()?)?);
    if from.contains(&0) || r.inputs[input].dtype != r.outputs[0].dtype {
        return None;
    }
    r.keeps_order = true;
    r.linear();
    let (mut i, mut j) = (0, 0);
    loop {
        i += from[i..].iter().take_while(|size| **size == 1).count();
        j += to[j..].iter().take_while(|size| **size == 1).count();
        if i >= from.len() || j >= to.len() {
            return Some(());
        }
        let (first, start) = (i, j);
        let (mut left, mut right) = (from[i], to[j]);
        while left != right {
            if left < right {
                i += 1;
                left *= from.get(i)?;
            } else {
                j += 1;
                right *= to.get(j)?;
            }
        }
        (i, j) = (i + 1, j + 1);
        if i - first == 1 && j - start == 1 {
            r.pair(input, first, start)?;
            continue;
        }
        let run = |tensor, first, sizes: &[i64]| Run {
            tensor: Some(tensor),
            first,
            sizes: sizes.into(),
        };
        r.regroup(
            vec![run(input, first, &from[first..i])],
            vec![run(0, start, &to[start..j])],
        );
    }
}

/// Views without dimensions of size 1, which have to be named and of that size: a part may have others.
pub(super) fn squeezed(r: &mut Relations<'_, '_>) -> Option<()> {
    let own = r.inputs[r.number("input")?];
    for dim in r.call.axes("dim", own.rank()).ok()?? {
        if size(own, dim)? != 1 {
            return None;
        }
    }
    regrouped(r)
}

/// Views with the dimensions in another order, found by sizes that all differ.
pub(super) fn reordered(r: &mut Relations<'_, '_>) -> Option<()> {
    reorder(r, "input")
}

/// Attributes of tensors: `x.T` and `x.mT`.
pub(super) fn transposed_attribute(r: &mut Relations<'_, '_>) -> Option<()> {
    match r.call.text("b").ok()?? {
        "T" | "mT" => reorder(r, "a"),
        _ => None,
    }
}

fn reorder(r: &mut Relations<'_, '_>, name: &str) -> Option<()> {
    let input = r.number(name)?;
    let own = r.inputs[input];
    let marked = (0..own.rank()).map(|dim| Dim::Known(dim as i64 + 2));
    let marked = Tensor::new(TensorType {
        device: own.device,
        ..TensorType::new(own.dtype, marked)
    });
    let at = r.call.signature.position(name)?;
    let mut args = r.call.args.clone();
    args[at] = Some(Value::Tensor(marked));
    let call = Call {
        signature: r.call.signature,
        args,
        rest: r.call.rest.clone(),
        settings: r.call.settings,
        exact: r.call.exact,
        out: None,
        host: None,
    };
    let Value::Tensor(result) = (r.infer)(&call).ok()? else {
        return None;
    };
    r.linear();
    for (dim, marked) in sizes(&result)?.into_iter().enumerate() {
        let from = usize::try_from(marked - 2).ok()?;
        r.pair(input, from, dim)?;
    }
    Some(())
}

/// Views that repeat elements along dimensions of size 1.
pub(super) fn expanded(r: &mut Relations<'_, '_>) -> Option<()> {
    let input = r.number("input")?;
    let (own, rank) = (r.inputs[input], r.outputs.first()?.rank());
    r.along([(input, Side::Sum)], Side::Sum);
    for dim in 0..rank {
        let wanted = size(r.outputs[0], dim)?;
        let given = match (dim + own.rank()).checked_sub(rank) {
            Some(at) => size(own, at)?,
            None => 1,
        };
        if wanted == 1 {
            continue;
        }
        let kept = (given == wanted).then(|| (input, Side::Dim(dim + own.rank() - rank)));
        r.along(kept, Side::Dim(dim));
    }
    Some(())
}

/// A dimension cut into pieces: `split`, `chunk`.
pub(super) fn taken(r: &mut Relations<'_, '_>) -> Option<()> {
    let input = r.number("input")?;
    let own = r.inputs[input];
    let axis = r.call.axis("dim", own.rank()).ok()?.unwrap_or(0);
    others(r, input, axis)?;
    let outputs = r.outputs.iter().enumerate().map(|(number, output)| {
        Some(Run {
            tensor: Some(number),
            first: axis,
            sizes: smallvec![size(output, axis)?],
        })
    });
    let outputs = outputs.collect::<Option<Vec<_>>>()?;
    let whole = run_of(own, input, axis)?;
    r.linear();
    r.regroup(vec![whole], outputs);
    Some(())
}

/// The relations of the dimensions besides `axis`, which all results have at the same places.
fn others(r: &mut Relations<'_, '_>, input: usize, axis: usize) -> Option<()> {
    let rank = r.inputs[input].rank();
    r.same(input, (0..rank).filter(|&dim| dim != axis))
}

fn run_of(tensor: &Tensor, number: usize, dim: usize) -> Option<Run> {
    Some(Run {
        tensor: Some(number),
        first: dim,
        sizes: smallvec![size(tensor, dim)?],
    })
}

/// A dimension taken apart into tensors without it.
pub(super) fn unbound(r: &mut Relations<'_, '_>) -> Option<()> {
    let input = r.number("input")?;
    let axis = r.call.axis("dim", r.inputs[input].rank()).ok()?;
    without(r, input, axis.unwrap_or(0))
}

/// One element along a dimension.
pub(super) fn selected(r: &mut Relations<'_, '_>) -> Option<()> {
    let input = r.number("input")?;
    let axis = r.call.axis("dim", r.inputs[input].rank()).ok()??;
    without(r, input, axis)
}

fn without(r: &mut Relations<'_, '_>, input: usize, axis: usize) -> Option<()> {
    r.linear();
    for dim in 0..r.inputs[input].rank() {
        if dim != axis {
            r.pair(input, dim, dim - usize::from(dim > axis))?;
        }
    }
    Some(())
}

/// Tensors joined along a dimension.
pub(super) fn joined(r: &mut Relations<'_, '_>) -> Option<()> {
    let rank = r.outputs.first()?.rank();
    let axis = wrap_axis(r.call.int("dim").ok()?.unwrap_or(0), rank).ok()?;
    if r.inputs.iter().any(|input| input.rank() != rank) {
        return None;
    }
    for dim in 0..rank {
        if dim != axis && size(r.outputs[0], dim)? != 1 {
            let sides = Sides::from_elem(Side::Dim(dim), r.inputs.len());
            r.push(sides, Side::Dim(dim), Form::Plain);
        }
    }
    r.linear();
    let inputs = r.inputs.iter().enumerate();
    let inputs = inputs.map(|(number, input)| run_of(input, number, axis));
    let inputs = inputs.collect::<Option<Vec<_>>>()?;
    let outputs = vec![run_of(r.outputs[0], 0, axis)?];
    r.regroup(inputs, outputs);
    Some(())
}

/// Tensors joined along a new dimension.
pub(super) fn stacked(r: &mut Relations<'_, '_>) -> Option<()> {
    let rank = r.outputs.first()?.rank();
    let axis = wrap_axis(r.call.int("dim").ok()?.unwrap_or(0), rank).ok()?;
    r.linear();
    for dim in (0..rank).filter(|&dim| dim != axis) {
        if size(r.outputs[0], dim)? != 1 {
            let from = Side::Dim(dim - usize::from(dim > axis));
            r.push(
                Sides::from_elem(from, r.inputs.len()),
                Side::Dim(dim),
                Form::Plain,
            );
        }
    }
    Some(())
}

/// `narrow` and `slice`: a range along a dimension.
pub(super) fn narrowed(r: &mut Relations<'_, '_>) -> Option<()> {
    let input = r.number("input")?;
    let own = r.inputs[input];
    let axis = r.call.axis("dim", own.rank()).ok()?.unwrap_or(0);
    let start = r.call.int("start").ok()?.unwrap_or(0);
    let step = match r.option("step") {
        Some(_) => r.call.int("step").ok()??,
        None => 1,
    };
    others(r, input, axis)?;
    r.linear();
    range(r, input, axis, axis, start, step)
}

/// The relation of a range along a dimension.
fn range(
    r: &mut Relations<'_, '_>,
    input: usize,
    axis: usize,
    output: usize,
    start: i64,
    step: i64,
) -> Option<()> {
    let (all, own) = (size(r.inputs[input], axis)?, size(r.outputs[0], output)?);
    if own == all {
        return r.pair(input, axis, output);
    }
    if step != 1 {
        return Some(());
    }
    let start = if start < 0 { start + all } else { start }.clamp(0, all);
    let dropped = |len: i64| Run {
        tensor: None,
        first: 0,
        sizes: smallvec![len],
    };
    let mut outputs = vec![run_of(r.outputs[0], 0, output)?];
    if start > 0 {
        outputs.insert(0, dropped(start));
    }
    if start + own < all {
        outputs.push(dropped(all - start - own));
    }
    let whole = run_of(r.inputs[input], input, axis)?;
    r.regroup(vec![whole], outputs);
    Some(())
}

/// `tensor[index]` without tensors among the indices.
pub(super) fn indexed(r: &mut Relations<'_, '_>) -> Option<()> {
    let ([input], Some(Value::Tensor(_))) = (r.inputs.as_slice(), r.call.get("a")) else {
        return None;
    };
    let index = r.call.get("b").unwrap_or(&Value::None);
    let items: &[Value] = match index {
        Value::Tuple(items) => items,
        _ => std::slice::from_ref(index),
    };
    let plain = |item: &Value| matches!(item, Value::Int(_) | Value::Slice(_));
    let taken = items.iter().filter(|item| plain(item)).count();
    let hidden = input.rank().checked_sub(taken)?;
    let mut ranges: Vec<(usize, usize, i64, i64)> = Vec::new();
    let (mut from, mut to) = (0, 0);
    let mut skip = |from: &mut usize, to: &mut usize, many: usize| {
        for _ in 0..many {
            ranges.push((*from, *to, 0, 1));
            (*from, *to) = (*from + 1, *to + 1);
        }
    };
    let mut has_ellipsis = false;
    let mut bounds = Vec::new();
    for item in items {
        match item {
            Value::None => to += 1,
            Value::Ellipsis => {
                has_ellipsis = true;
                skip(&mut from, &mut to, hidden);
            }
            Value::Slice(parts) => {
                let number = |value: &Value, default: i64| match value {
                    Value::None => Some(default),
                    Value::Int(dim) => dim.known(),
                    _ => None,
                };
                bounds.push((from, to, number(&parts[0], 0)?, number(&parts[2], 1)?));
                (from, to) = (from + 1, to + 1);
            }
            Value::Int(_) => from += 1,
            _ => return None,
        }
    }
    if !has_ellipsis {
        skip(&mut from, &mut to, hidden);
    }
    ranges.extend(bounds);
    r.linear();
    for (from, to, start, step) in ranges {
        range(r, 0, from, to, start, step)?;
    }
    Some(())
}

/// The slices among the indices of `tensor[index]`: the dimension that each is for, and the place of
/// the slice in the argument.
pub(super) fn slices(input: &Tensor, index: &Arg) -> Option<Vec<(usize, SmallVec<[usize; 2]>)>> {
    let items = index.as_items();
    let single = std::slice::from_ref(index);
    let plain = items.unwrap_or(single);
    let takes = |item: &Arg| !matches!(item, Arg::None | Arg::Ellipsis);
    let taken = plain.iter().filter(|item| takes(item)).count();
    let mut dim = 0;
    let mut found = Vec::new();
    for (at, item) in plain.iter().enumerate() {
        match item {
            Arg::None => {}
            Arg::Ellipsis => dim += input.rank().checked_sub(taken)?,
            Arg::Slice(_) => {
                found.push((dim, items.iter().map(|_| at).collect()));
                dim += 1;
            }
            _ => dim += 1,
        }
    }
    Some(found)
}

/// `repeat`: dimensions that are repeated once go together.
pub(super) fn repeated(r: &mut Relations<'_, '_>) -> Option<()> {
    let input = r.number("input")?;
    let rank = r.outputs.first()?.rank();
    r.linear();
    for dim in 0..r.inputs[input].rank() {
        let to = dim + rank - r.inputs[input].rank();
        if size(r.inputs[input], dim)? == size(r.outputs[0], to)? {
            r.pair(input, dim, to)?;
        }
    }
    Some(())
}

/// `repeat_interleave` with a number: each element several times, so that a part stays a part.
pub(super) fn grouped(r: &mut Relations<'_, '_>) -> Option<()> {
    let input = r.number("input")?;
    let rank = r.inputs[input].rank();
    r.call.axis("dim", rank).ok()??;
    if r.inputs.len() != 1 || r.call.get("output_size").is_some() {
        return None;
    }
    r.linear();
    r.same(input, 0..rank)
}
