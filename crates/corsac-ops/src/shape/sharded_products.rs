//! Products of matrices, convolutions, attention and lookups.

use super::sharding::{Form, Relations, Side, size};

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
        let mut sides = r.whole();
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
        r.push(sides, Side::Dim(dim));
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
    let along_bias = |r: &Relations<'_, '_>, dim: usize| -> Option<Side> {
        let Some(bias) = bias else {
            return Some(Side::Whole);
        };
        let own = r.inputs[bias];
        let Some(at) = (dim + own.rank()).checked_sub(rank) else {
            return Some(Side::Whole);
        };
        Some(match size(own, at)? {
            1 => Side::Whole,
            _ => Side::Dim(at),
        })
    };
    // Sums over parts of what is summed over.
    let mut sides = r.whole();
    sides[a] = Side::Dim(ranks.0 - 1);
    sides[b] = Side::Dim(ranks.1.saturating_sub(2));
    if let Some(bias) = bias {
        sides[bias] = Side::Sum;
    }
    r.push(sides, Side::Sum);
    if columns == 1 {
        let mut sides = r.whole();
        sides[b] = Side::Dim(ranks.1 - 1);
        if let Some(bias) = bias {
            sides[bias] = along_bias(r, rank - 1)?;
        }
        r.push(sides, Side::Dim(rank - 1));
    }
    if rows == 1 {
        let dim = rank - 1 - columns;
        let mut sides = r.whole();
        sides[a] = Side::Dim(ranks.0 - 2);
        if let Some(bias) = bias {
            sides[bias] = along_bias(r, dim)?;
        }
        r.push(sides, Side::Dim(dim));
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
                let mut sides = r.whole();
                sides[summand] = Side::Sum;
                r.push(sides, Side::Sum);
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
    let (inner, bias) = (r.inputs[input].rank().checked_sub(1)?, r.number("bias"));
    if r.inputs[weight].rank() != 2 {
        return None;
    }
    let mut sides = r.whole();
    (sides[input], sides[weight]) = (Side::Dim(inner), Side::Dim(1));
    if let Some(bias) = bias {
        sides[bias] = Side::Sum;
    }
    r.push(sides, Side::Sum);
    let mut sides = r.whole();
    sides[weight] = Side::Dim(0);
    if let Some(bias) = bias {
        sides[bias] = Side::Dim(0);
    }
    r.push(sides, Side::Dim(inner));
    for dim in 0..inner {
        if size(r.inputs[input], dim)? != 1 {
            r.pair(input, dim, dim);
        }
    }
    Some(())
}

/// `einsum`: a letter of an operand and of the result goes together, one that the result lacks is
/// summed over.
pub(super) fn summed_labels(r: &mut Relations<'_, '_>) -> Option<()> {
    let equation = r.call.text("equation").ok()??;
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (operands, result) = equation.split_once("->")?;
    let operands: Vec<&str> = operands.split(',').collect();
    if equation.contains('.') || operands.len() != r.inputs.len() {
        return None;
    }
    let mut letters: Vec<char> = operands.concat().chars().collect();
    letters.sort_unstable();
    letters.dedup();
    for letter in letters {
        let mut sides = r.whole();
        let mut is_plain = true;
        for (operand, labels) in operands.iter().enumerate() {
            is_plain &= labels.matches(letter).count() <= 1;
            if let Some(at) = labels.chars().position(|own| own == letter)
                && size(r.inputs[operand], at)? != 1
            {
                sides[operand] = Side::Dim(at);
            }
        }
        let output = result.chars().position(|own| own == letter);
        if is_plain {
            r.push(sides, output.map_or(Side::Sum, Side::Dim));
        }
    }
    Some(())
}

/// Convolutions: output channels, and sums over input channels.
pub(super) fn convolved(r: &mut Relations<'_, '_>) -> Option<()> {
    let (input, weight, bias) = (r.number("input")?, r.number("weight")?, r.number("bias"));
    let channels = r
        .outputs
        .first()?
        .rank()
        .checked_sub(r.inputs[weight].rank() - 1)?;
    let groups = r.call.int("groups").ok()?.unwrap_or(1);
    if groups != 1 {
        if size(r.inputs[input], channels)? == groups {
            // Each channel by itself.
            let mut sides = r.whole();
            (sides[input], sides[weight]) = (Side::Dim(channels), Side::Dim(0));
            if let Some(bias) = bias {
                sides[bias] = Side::Dim(0);
            }
            r.push(sides, Side::Dim(channels));
        }
        return Some(());
    }
    let mut sides = r.whole();
    sides[weight] = Side::Dim(0);
    if let Some(bias) = bias {
        sides[bias] = Side::Dim(0);
    }
    r.push(sides, Side::Dim(channels));
    let mut sides = r.whole();
    (sides[input], sides[weight]) = (Side::Dim(channels), Side::Dim(1));
    if let Some(bias) = bias {
        sides[bias] = Side::Sum;
    }
    r.push(sides, Side::Sum);
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
        let mut sides = r.whole();
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
        r.push(sides, Side::Dim(dim));
    }
    Some(())
}

/// Embeddings: a part of the columns of the table, or of its rows.
pub(super) fn looked_up(r: &mut Relations<'_, '_>) -> Option<()> {
    let (input, table) = (r.number("input")?, r.number("weight")?);
    let asks = |name| match r.call.signature.position(name) {
        Some(_) => r.call.flag(name, false).ok(),
        None => Some(false),
    };
    let renormalised =
        r.call.signature.position("max_norm").is_some() && r.call.get("max_norm").is_some();
    if renormalised || asks("scale_grad_by_freq")? || asks("sparse")? {
        return None;
    }
    let last = r.outputs.first()?.rank() - 1;
    r.pair(table, 1, last);
    let mut sides = r.whole();
    sides[table] = Side::Dim(0);
    r.push_form(sides, Side::Sum, Form::Lookup);
    for dim in 0..last {
        if size(r.inputs[input], dim)? != 1 {
            r.pair(input, dim, dim);
        }
    }
    let mut sides = r.whole();
    sides[table] = Side::Sum;
    r.push(sides, Side::Sum);
    Some(())
}
