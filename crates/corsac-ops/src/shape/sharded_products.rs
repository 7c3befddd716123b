//! Products of matrices, convolutions, attention and lookups.

use super::matmul::labels;
use super::sharding::{Form, Relations, Side, size};
use super::value::Value;

/// Dimensions of two tensors that are broadcast together into those of the result before its last
/// `skip`.
fn batches(
    r: &mut Relations<'_, '_>,
    operands: &[usize],
    skips: &[usize],
    skip: usize,
) -> Option<()> {
    let rank = r.outputs[0].rank();
    for back in 1..=rank.checked_sub(skip)? {
        let dim = rank - skip - back;
        let own = size(r.outputs[0], dim)?;
        if own == 1 {
            continue;
        }
        let mut sides = r.sides([]);
        for (&operand, &skip) in operands.iter().zip(skips) {
            let tensor = r.inputs[operand];
            let Some(at) = tensor.rank().checked_sub(skip + back) else {
                continue;
            };
            match size(tensor, at)? {
                1 => {}
                other if other == own => sides[operand] = Side::Dim(at),
                _ => return None,
            }
        }
        r.push(sides, Side::Dim(dim), Form::Plain);
    }
    Some(())
}

/// The relations of a product of the tensors `a` and `b`, to which `bias` is added, if any.
fn product(r: &mut Relations<'_, '_>, a: usize, b: usize, bias: Option<usize>) -> Option<()> {
    let (ranks, rank) = (
        (r.inputs[a].rank(), r.inputs[b].rank()),
        r.outputs.first()?.rank(),
    );
    let (rows, columns) = (usize::from(ranks.0 > 1), usize::from(ranks.1 > 1));
    let along_bias = |r: &Relations<'_, '_>, dim: usize| -> Option<Option<(usize, Side)>> {
        let Some(bias) = bias else {
            return Some(None);
        };
        let own = r.inputs[bias];
        let Some(at) = (dim + own.rank()).checked_sub(rank) else {
            return Some(None);
        };
        Some((size(own, at)? != 1).then_some((bias, Side::Dim(at))))
    };
    // Sums over parts of what is summed over.
    let inner = (Side::Dim(ranks.0 - 1), Side::Dim(ranks.1.saturating_sub(2)));
    let summand = bias.map(|bias| (bias, Side::Sum));
    r.along(
        [(a, inner.0), (b, inner.1)].into_iter().chain(summand),
        Side::Sum,
    );
    if columns == 1 {
        let own = along_bias(r, rank - 1)?;
        let own = own.into_iter().chain([(b, Side::Dim(ranks.1 - 1))]);
        r.along(own, Side::Dim(rank - 1));
    }
    if rows == 1 {
        let dim = rank - 1 - columns;
        let own = along_bias(r, dim)?;
        r.along(
            own.into_iter().chain([(a, Side::Dim(ranks.0 - 2))]),
            Side::Dim(dim),
        );
    }
    match bias {
        None => {
            batches(
                r,
                &[a, b],
                &[2.min(ranks.0), 2.min(ranks.1)],
                rows + columns,
            )?;
            for summand in [a, b] {
                r.along([(summand, Side::Sum)], Side::Sum);
            }
        }
        Some(bias) => batches(r, &[a, b, bias], &[2, 2, 2], 2)?,
    }
    Some(())
}

/// `matmul`, `mm`, `bmm` and their like.
pub(super) fn multiplied(r: &mut Relations<'_, '_>) -> Option<()> {
    let (a, b) = (r.number("input")?, r.number("other")?);
    product(r, a, b, None)
}

/// `addmm` and `baddbmm`.
pub(super) fn added_products(r: &mut Relations<'_, '_>) -> Option<()> {
    product(r, 1, 2, Some(0))
}

/// `linear`.
pub(super) fn projected(r: &mut Relations<'_, '_>) -> Option<()> {
    let (input, weight) = (r.number("input")?, r.number("weight")?);
    let inner = r.inputs[input].rank().checked_sub(1)?;
    if r.inputs[weight].rank() != 2 {
        return None;
    }
    products_of_channels(
        r,
        [(input, Side::Dim(inner)), (weight, Side::Dim(1))],
        (weight, inner),
    );
    r.same(input, 0..inner)
}

/// Sums over the parts of two arguments, and outputs by the first dimension of a weight, with a bias.
fn products_of_channels(
    r: &mut Relations<'_, '_>,
    inner: [(usize, Side); 2],
    (weight, output): (usize, usize),
) {
    let bias = r.number("bias");
    let summand = bias.map(|bias| (bias, Side::Sum));
    r.along(inner.into_iter().chain(summand), Side::Sum);
    let own = bias.map(|bias| (bias, Side::Dim(0)));
    r.along(
        [(weight, Side::Dim(0))].into_iter().chain(own),
        Side::Dim(output),
    );
}

/// `einsum`: a letter of an operand and of the result goes together, one that the result lacks is
/// summed over.
pub(super) fn summed_labels(r: &mut Relations<'_, '_>) -> Option<()> {
    let (labels, _) = labels(r.call).ok()?;
    for (letter, _) in &labels.sizes {
        let mut sides = r.sides([]);
        let mut is_plain = true;
        for (operand, own) in labels.operands.iter().enumerate() {
            is_plain &= own.iter().filter(|own| *own == letter).count() <= 1;
            if let Some(at) = own.iter().position(|own| own == letter)
                && size(r.inputs[operand], at)? != 1
            {
                sides[operand] = Side::Dim(at);
            }
        }
        let output = labels.output.iter().position(|own| own == letter);
        if is_plain {
            r.push(sides, output.map_or(Side::Sum, Side::Dim), Form::Plain);
        }
    }
    Some(())
}

/// Convolutions: output channels, and sums over input channels.
pub(super) fn convolved(r: &mut Relations<'_, '_>) -> Option<()> {
    let (input, weight) = (r.number("input")?, r.number("weight")?);
    let channels = r
        .outputs
        .first()?
        .rank()
        .checked_sub(r.inputs[weight].rank() - 1)?;
    let groups = r.call.int("groups").ok()?.unwrap_or(1);
    if groups == 1 {
        let inner = [(input, Side::Dim(channels)), (weight, Side::Dim(1))];
        products_of_channels(r, inner, (weight, channels));
    } else if size(r.inputs[input], channels)? == groups {
        // Each channel by itself.
        let own = [(input, Side::Dim(channels)), (weight, Side::Dim(0))];
        let bias = r.number("bias").map(|bias| (bias, Side::Dim(0)));
        r.along(own.into_iter().chain(bias), Side::Dim(channels));
    }
    Some(())
}

/// Scaled dot products of queries, keys and values: everything before the last two dimensions.
pub(super) fn scored(r: &mut Relations<'_, '_>) -> Option<()> {
    let parts = [r.number("query")?, r.number("key")?, r.number("value")?];
    let rank = r.outputs.first()?.rank();
    if parts.iter().any(|&part| r.inputs[part].rank() != rank) {
        return None;
    }
    let grouped = r.call.flag("enable_gqa", false).ok()?;
    for dim in 0..rank - 2 {
        let own = size(r.outputs[0], dim)?;
        if own == 1 {
            continue;
        }
        let mut sides = r.sides([]);
        for part in parts {
            match size(r.inputs[part], dim)? {
                1 => {}
                other if other == own || grouped => sides[part] = Side::Dim(dim),
                _ => return None,
            }
        }
        if let Some(mask) = r.number("attn_mask")
            && let Some(at) = (dim + r.inputs[mask].rank()).checked_sub(rank)
            && size(r.inputs[mask], at)? != 1
        {
            sides[mask] = Side::Dim(at);
        }
        r.push(sides, Side::Dim(dim), Form::Plain);
    }
    Some(())
}

/// Embeddings: a part of the columns of the table, or of its rows.
pub(super) fn looked_up(r: &mut Relations<'_, '_>) -> Option<()> {
    let (input, table) = (r.number("input")?, r.number("weight")?);
    let asks = |name| !matches!(r.option(name), None | Some(Value::Bool(false)));
    if asks("max_norm") || asks("scale_grad_by_freq") || asks("sparse") {
        return None;
    }
    let last = r.outputs.first()?.rank() - 1;
    r.pair(table, 1, last)?;
    let rows = r.sides([(table, Side::Dim(0))]);
    r.push(rows, Side::Sum, Form::Lookup);
    r.same(input, 0..last)?;
    r.along([(table, Side::Sum)], Side::Sum);
    Some(())
}
