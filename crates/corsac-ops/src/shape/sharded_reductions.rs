//! Reductions, softmax, normalisation, losses.

use corsac_ir::DType;
use smallvec::SmallVec;

use super::promotion::{Kind, kind};
use super::sharding::{Form, Relations, Side, size};
use super::value::Value;

/// The dimensions that a call reduces, and whether they stay with size 1.
fn axes(r: &Relations<'_, '_>) -> Option<(SmallVec<[usize; 4]>, bool)> {
    let rank = r.inputs[r.number("input")?].rank();
    let axes = match r.call.get("dim") {
        None | Some(Value::Bool(_)) => SmallVec::new(),
        Some(_) => r.call.axes("dim", rank).ok()?.unwrap_or_default(),
    };
    let all = || (0..rank).collect();
    let axes = if axes.is_empty() { all() } else { axes };
    Some((axes, r.call.flag("keepdim", false).ok()?))
}

/// Reductions: the dimensions that stay.
pub(super) fn reduced(r: &mut Relations<'_, '_>) -> Option<()> {
    let (axes, keepdim) = axes(r)?;
    let input = r.number("input")?;
    if r.inputs.len() != 1 {
        return None;
    }
    for dim in 0..r.inputs[input].rank() {
        if axes.contains(&dim) {
            continue;
        }
        let gone = axes.iter().filter(|&&axis| axis < dim).count();
        r.pair(input, dim, if keepdim { dim } else { dim - gone })?;
    }
    Some(())
}

fn over_parts(r: &mut Relations<'_, '_>, form: Form) -> Option<()> {
    reduced(r)?;
    r.linear();
    for dim in axes(r)?.0 {
        if size(r.inputs[0], dim)? != 1 {
            r.push(r.sides([(0, Side::Dim(dim))]), Side::Sum, form);
        }
    }
    Some(())
}

/// Sums, among operators that reduce.
pub(super) fn summed(r: &mut Relations<'_, '_>) -> Option<()> {
    if !crate::is_operator!(r.operator, "sum") {
        return reduced(r);
    }
    over_parts(r, Form::Plain)
}

/// Means.
pub(super) fn averaged(r: &mut Relations<'_, '_>) -> Option<()> {
    if !crate::is_operator!(r.operator, "mean") {
        return reduced(r);
    }
    over_parts(r, Form::Mean)
}

/// Operators that have results of the same sizes and compute along the dimension `dim`.
pub(super) fn without_axis(r: &mut Relations<'_, '_>) -> Option<()> {
    let input = r.number("input")?;
    let rank = r.inputs[input].rank();
    let axis = r.call.axis("dim", rank).ok()??;
    r.same(input, (0..rank).filter(|&dim| dim != axis))
}

/// Running sums, which are linear.
pub(super) fn accumulated(r: &mut Relations<'_, '_>) -> Option<()> {
    without_axis(r)?;
    if crate::is_operator!(r.operator, "cumsum") {
        r.linear();
    }
    Some(())
}

/// Triangles of matrices.
pub(super) fn kept(r: &mut Relations<'_, '_>) -> Option<()> {
    let input = r.number("input")?;
    r.linear();
    r.same(input, 0..r.inputs[input].rank().checked_sub(2)?)
}

/// Layer norms: the dimensions before the normalised ones.
pub(super) fn normalised(r: &mut Relations<'_, '_>) -> Option<()> {
    let input = r.number("input")?;
    let over = r.call.dims("normalized_shape").ok()??.len();
    r.same(input, 0..r.inputs[input].rank().checked_sub(over)?)
}

/// `cross_entropy` with numbers of classes and without weights: a part of the classes.
pub(super) fn classified(r: &mut Relations<'_, '_>) -> Option<()> {
    let (input, target) = (r.number("input")?, r.number("target")?);
    let smooths = match r.call.get("label_smoothing") {
        None => false,
        Some(Value::Float(amount)) => *amount != 0.0,
        Some(value) => *value != Value::int(0),
    };
    let is_number = kind(r.inputs[target].dtype) == Some(Kind::Int);
    let is_whole = r.inputs[input].rank() == 2
        && r.call.get("size_average").is_none()
        && r.call.get("reduce").is_none();
    if smooths
        || !is_number
        || !is_whole
        || r.inputs.len() != 2
        || r.inputs[input].dtype == DType::Float16
    {
        return None;
    }
    let parts = r.sides([(input, Side::Dim(1))]);
    r.push(parts, Side::Whole, Form::Classes);
    Some(())
}
