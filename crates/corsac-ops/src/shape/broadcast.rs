//! Broadcasting, and the layout of elementwise results.
//!
//! Source: <https://pytorch.org/docs/stable/notes/broadcasting.html>, and for the layout the
//! behaviour of `TensorIterator`.

use corsac_ir::MemoryFormat;

use super::dim::Dim;
use super::error::Failure;
use super::tensor_type::{Shape, Strides, contiguous_strides, write_shape};
use super::value::Tensor;

/// `[2, 3, n]`
pub(super) fn shape_text(shape: &[Dim]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_shape(&mut text, shape);
    text
}

/// Whether two sizes are the same, as a result of a rule: `Err` if that is not known.
pub(super) fn same_size(a: &Dim, b: &Dim) -> Result<bool, Failure> {
    a.equals(b)
        .ok_or_else(|| Failure::unknown(format!("it depends on whether {a} is {b}")))
}

/// Whether a size is this number.
pub(super) fn size_is(a: &Dim, value: i64) -> Result<bool, Failure> {
    same_size(a, &Dim::Known(value))
}

/// The shape that two shapes broadcast to.
pub(super) fn broadcast(a: &[Dim], b: &[Dim]) -> Result<Shape, Failure> {
    if a == b {
        return Ok(a.into());
    }
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let mut shape: Shape = long.into();
    let offset = long.len() - short.len();
    for (size, other) in shape[offset..].iter_mut().zip(short) {
        if size == other || other.is(1) {
            continue;
        }
        if size.is(1) {
            *size = other.clone();
        } else if !same_size(size, other)? {
            return Err(Failure::invalid(
                "shapes that broadcast",
                format!("{} and {}", shape_text(a), shape_text(b)),
            ));
        }
    }
    Ok(shape)
}

/// The strides of an elementwise result of this shape. `numbers` is true if some operands are plain
/// numbers.
pub(super) fn elementwise_strides(shape: &Shape, operands: &[&Tensor], numbers: bool) -> Strides {
    // Dimensions of size 1 may have any stride; the resulting one is not the same everywhere.
    let odd = |t: &&Tensor| matches!(t.strides, Strides::Explicit(_) | Strides::ChannelsLast);
    if operands.iter().any(odd) && shape.iter().any(|size| size.is(1)) {
        return Strides::Unknown;
    }
    same_shape_strides(shape, operands, numbers)
        .or_else(|| sorted_strides(shape, operands))
        .unwrap_or(Strides::Unknown)
}

/// Operands of one shape: contiguous if all are, channels-last if all are, the operands' strides if
/// all have the same. `None` if none of it holds.
fn same_shape_strides(shape: &Shape, operands: &[&Tensor], numbers: bool) -> Option<Strides> {
    if numbers || operands.iter().any(|t| t.shape != *shape) {
        return None;
    }
    let all = |f: &dyn Fn(&Tensor) -> Option<bool>| operands.iter().all(|t| f(t) == Some(true));
    if all(&|t| t.is_contiguous()) {
        return Some(Strides::Contiguous);
    }
    if shape.len() == 4 && all(&|t| t.is_channels_last()) {
        return Some(Strides::in_format(shape, MemoryFormat::ChannelsLast));
    }
    let first = operands.first()?;
    let alike = operands.iter().all(|t| t.strides == first.strides);
    (alike && first.is_dense()?).then(|| first.strides.clone())
}

/// Dimensions sorted by the strides of the operands; the first operand that orders two decides.
fn sorted_strides(shape: &Shape, operands: &[&Tensor]) -> Option<Strides> {
    let rank = shape.len();
    // Strides of every operand, those of broadcast dimensions zero.
    let strides = operands.iter().map(|tensor| {
        let own = tensor.stride_list()?;
        let offset = rank - own.len();
        let mut padded = Shape::from_elem(Dim::ZERO, rank);
        for (at, stride) in own.into_iter().enumerate() {
            if !tensor.shape[at].is(1) || shape[offset + at].is(1) {
                padded[offset + at] = stride;
            }
        }
        Some(padded)
    });
    let strides: Vec<Shape> = strides.collect::<Option<_>>()?;
    if strides
        .iter()
        .zip(operands)
        .all(|(_, t)| t.strides == Strides::Contiguous && (t.rank() == 0 || t.shape == *shape))
        && shape
            .iter()
            .all(|d| d.less_than(&Dim::Known(2)) == Some(false))
    {
        return Some(Strides::Contiguous);
    }
    // Innermost first.
    let mut order: Vec<usize> = (0..rank).rev().collect();
    for i in 1..rank {
        let mut at = i;
        for before in (0..i).rev() {
            match belongs_further_in(&strides, shape, order[before], order[at])? {
                Some(true) => {
                    order.swap(before, at);
                    at = before;
                }
                Some(false) => break,
                None => {}
            }
        }
    }
    if order.iter().rev().copied().eq(0..rank) {
        return Some(Strides::Contiguous);
    }
    let mut result = contiguous_strides(shape);
    let mut step = Dim::ONE;
    for &at in &order {
        result[at] = step.clone();
        step = step * shape[at].clone();
    }
    Some(Strides::of(shape, result))
}

/// Whether dimension `second` has smaller strides than `first`; `Some(None)` if no operand decides,
/// `None` if that is not known.
fn belongs_further_in(
    strides: &[Shape],
    shape: &Shape,
    first: usize,
    second: usize,
) -> Option<Option<bool>> {
    for own in strides {
        let (a, b) = (&own[first], &own[second]);
        if a.is(0) || b.is(0) {
            continue;
        }
        if a.equals(b)? {
            if shape[second].less_than(&shape[first])? {
                return Some(Some(true));
            }
            continue;
        }
        return Some(Some(b.less_than(a)?));
    }
    Some(None)
}
