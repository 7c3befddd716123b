//! Products of matrices.

use super::broadcast::{broadcast, same_size, shape_text};
use super::call::{Call, as_dim, dims_of, wrap_axis};
use super::dim::Dim;
use super::error::Failure;
use super::rule::{Cost, Rule, rule};
use super::sharding;
use super::tensor_type::{Shape, TensorType};
use super::value::{Tensor, Value};
use super::view::view_of;

fn made(like: &Tensor, shape: impl IntoIterator<Item = Dim>) -> Value {
    TensorType {
        device: like.device,
        ..TensorType::new(like.dtype, shape)
    }
    .into()
}

pub(super) fn same_dtype(a: &Tensor, b: &Tensor) -> Result<(), Failure> {
    if a.dtype == b.dtype {
        return Ok(());
    }
    Err(Failure::invalid(
        format!("two tensors of {}", a.dtype),
        b.dtype.to_string(),
    ))
}

fn contract(a: &Tensor, b: &Tensor, over: (&Dim, &Dim)) -> Result<(), Failure> {
    same_dtype(a, b)?;
    if same_size(over.0, over.1)? {
        return Ok(());
    }
    Err(Failure::invalid(
        "matrices whose inner sizes are equal",
        format!("{} and {}", a.ty, b.ty),
    ))
}

fn of_rank(tensor: &Tensor, rank: usize) -> Result<&[Dim], Failure> {
    if tensor.rank() == rank {
        return Ok(&tensor.shape);
    }
    Err(Failure::invalid(
        format!("a tensor of {rank} dimensions"),
        tensor.ty.to_string(),
    ))
}

fn matmul(call: &Call<'_>) -> Result<Value, Failure> {
    let (a, b) = (call.tensor("input")?, call.tensor("other")?);
    let (Some(inner), Some(_)) = (a.shape.last(), b.shape.last()) else {
        return Err(Failure::invalid(
            "tensors with dimensions",
            format!("{} and {}", a.ty, b.ty),
        ));
    };
    let b_inner = &b.shape[b.rank().saturating_sub(2)];
    contract(a, b, (inner, b_inner))?;
    let rows = (a.rank() > 1).then(|| a.shape[a.rank() - 2].clone());
    let columns = (b.rank() > 1).then(|| b.shape[b.rank() - 1].clone());
    let batch = |t: &Tensor| Shape::from(&t.shape[..t.rank().saturating_sub(2)]);
    let mut shape = broadcast(&batch(a), &batch(b))?;
    shape.extend(rows);
    shape.extend(columns);
    Ok(made(a, shape))
}

fn mm(call: &Call<'_>) -> Result<Value, Failure> {
    let (a, b) = (call.tensor("input")?, call.tensor("other")?);
    let ([rows, inner], [b_inner, columns]) = (of_rank(a, 2)?, of_rank(b, 2)?) else {
        unreachable!("of_rank answers two sizes");
    };
    contract(a, b, (inner, b_inner))?;
    Ok(made(a, [rows.clone(), columns.clone()]))
}

fn bmm(call: &Call<'_>) -> Result<Value, Failure> {
    let (a, b) = (call.tensor("input")?, call.tensor("other")?);
    let (sizes, others) = (of_rank(a, 3)?, of_rank(b, 3)?);
    contract(a, b, (&sizes[0], &others[0]))?;
    contract(a, b, (&sizes[2], &others[1]))?;
    Ok(made(
        a,
        [sizes[0].clone(), sizes[1].clone(), others[2].clone()],
    ))
}

fn mv(call: &Call<'_>) -> Result<Value, Failure> {
    let (a, b) = (call.tensor("input")?, call.tensor("other")?);
    let sizes = of_rank(a, 2)?;
    contract(a, b, (&sizes[1], &of_rank(b, 1)?[0]))?;
    Ok(made(a, [sizes[0].clone()]))
}

fn dot(call: &Call<'_>) -> Result<Value, Failure> {
    let (a, b) = (call.tensor("input")?, call.tensor("other")?);
    contract(a, b, (&of_rank(a, 1)?[0], &of_rank(b, 1)?[0]))?;
    Ok(made(a, []))
}

fn outer(call: &Call<'_>) -> Result<Value, Failure> {
    let (a, b) = (call.tensor("input")?, call.tensor("other")?);
    let (rows, columns) = (of_rank(a, 1)?[0].clone(), of_rank(b, 1)?[0].clone());
    if a.dtype != b.dtype {
        return Err(Failure::unknown("the element types differ"));
    }
    Ok(made(a, [rows, columns]))
}

fn addmm(call: &Call<'_>) -> Result<Value, Failure> {
    let (a, b) = (call.tensor("mat1")?, call.tensor("mat2")?);
    let (sizes, others) = (of_rank(a, 2)?, of_rank(b, 2)?);
    contract(a, b, (&sizes[1], &others[0]))?;
    let shape = [sizes[0].clone(), others[1].clone()];
    broadcast_to(call.tensor("input")?, &shape)?;
    Ok(made(a, shape))
}

fn broadcast_to(tensor: &Tensor, shape: &[Dim]) -> Result<(), Failure> {
    if broadcast(&tensor.shape, shape)?.as_slice() == shape {
        return Ok(());
    }
    Err(Failure::invalid(
        format!("a tensor that broadcasts to {}", shape_text(shape)),
        tensor.ty.to_string(),
    ))
}

fn baddbmm(call: &Call<'_>) -> Result<Value, Failure> {
    let (a, b) = (call.tensor("batch1")?, call.tensor("batch2")?);
    let (sizes, others) = (of_rank(a, 3)?, of_rank(b, 3)?);
    contract(a, b, (&sizes[0], &others[0]))?;
    contract(a, b, (&sizes[2], &others[1]))?;
    let shape = [sizes[0].clone(), sizes[1].clone(), others[2].clone()];
    broadcast_to(call.tensor("input")?, &shape)?;
    Ok(made(a, shape))
}

fn linear(call: &Call<'_>) -> Result<Value, Failure> {
    let (input, weight) = (call.tensor("input")?, call.tensor("weight")?);
    let (Some(features), Some(expected)) = (input.shape.last(), weight.shape.last()) else {
        return Err(Failure::invalid(
            "tensors with dimensions",
            input.ty.to_string(),
        ));
    };
    same_dtype(weight, input)?;
    if !same_size(features, expected)? {
        return Err(Failure::invalid(
            format!("an input with {expected} features"),
            input.ty.to_string(),
        ));
    }
    let mut shape: Shape = input.shape[..input.rank() - 1].into();
    if weight.rank() == 2 {
        shape.push(weight.shape[0].clone());
    }
    Ok(made(input, shape))
}

fn bilinear(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input1")?;
    let weight = of_rank(call.tensor("weight")?, 3)?;
    let mut shape = input.shape.clone();
    let Some(last) = shape.last_mut() else {
        return Err(Failure::invalid(
            "a tensor with dimensions",
            input.ty.to_string(),
        ));
    };
    *last = weight[0].clone();
    Ok(made(input, shape))
}

fn inner(call: &Call<'_>) -> Result<Value, Failure> {
    let (a, b) = (call.tensor("input")?, call.tensor("other")?);
    let (Some(x), Some(y)) = (a.shape.last(), b.shape.last()) else {
        return Err(Failure::unknown("one of the tensors has no dimensions"));
    };
    contract(a, b, (x, y))?;
    let kept = |t: &Tensor| t.shape[..t.rank() - 1].to_vec();
    Ok(made(a, kept(a).into_iter().chain(kept(b))))
}

fn tensordot(call: &Call<'_>) -> Result<Value, Failure> {
    let (a, b) = (call.tensor("a")?, call.tensor("b")?);
    let (over_a, over_b) = tensordot_axes(call, a, b)?;
    for (&x, &y) in over_a.iter().zip(&over_b) {
        // A size of 1 is repeated.
        if !a.shape[x].is(1) && !b.shape[y].is(1) {
            contract(a, b, (&a.shape[x], &b.shape[y]))?;
        }
    }
    let kept = |t: &Tensor, over: &[usize]| -> Vec<Dim> {
        let sizes = t.shape.iter().enumerate();
        sizes
            .filter(|(at, _)| !over.contains(at))
            .map(|(_, d)| d.clone())
            .collect()
    };
    Ok(made(
        a,
        kept(a, &over_a).into_iter().chain(kept(b, &over_b)),
    ))
}

fn tensordot_axes(
    call: &Call<'_>,
    a: &Tensor,
    b: &Tensor,
) -> Result<(Vec<usize>, Vec<usize>), Failure> {
    let Some(dims) = call.get("dims") else {
        return Ok((
            (a.rank().saturating_sub(2)..a.rank()).collect(),
            (0..2.min(b.rank())).collect(),
        ));
    };
    if let Some(count) = as_dim(dims) {
        let count = count.known().and_then(|c| usize::try_from(c).ok());
        let count = count.filter(|&c| c <= a.rank() && c <= b.rank());
        let Some(count) = count else {
            return Err(Failure::expected("a number of dimensions", dims));
        };
        return Ok(((a.rank() - count..a.rank()).collect(), (0..count).collect()));
    }
    let Some([x, y]) = dims.as_items() else {
        return Err(Failure::expected("two lists of dimensions", dims));
    };
    let axes = |list: &Value, rank| -> Result<Vec<usize>, Failure> {
        let dims = dims_of(list, "dims")?;
        let known = dims.iter().map(|d| d.known().map(|d| wrap_axis(d, rank)));
        known
            .map(|d| d.unwrap_or_else(|| Err(Failure::unknown("a dimension is not known"))))
            .collect()
    };
    Ok((axes(x, a.rank())?, axes(y, b.rank())?))
}

/// The labels of an einsum and the size of each.
pub(super) struct Labels {
    pub(super) sizes: Vec<(char, Dim)>,
    pub(super) output: Vec<char>,
    /// Those of each operand.
    pub(super) operands: Vec<Vec<char>>,
}

pub(super) fn labels(call: &Call<'_>) -> Result<(Labels, Tensor), Failure> {
    let equation: String = match call.need("equation")? {
        Value::Str(text) => text.chars().filter(|c| !c.is_whitespace()).collect(),
        other => return Err(Failure::expected("an equation", other)),
    };
    if equation.contains("...") {
        return Err(Failure::unknown("an ellipsis in an einsum"));
    }
    let operands: &[Value] = match call.rest.as_slice() {
        [only] => only.as_items().unwrap_or(&call.rest),
        many => many,
    };
    let (inputs, output) = match equation.split_once("->") {
        Some((inputs, output)) => (inputs.to_owned(), Some(output.to_owned())),
        None => (equation, None),
    };
    let terms: Vec<&str> = inputs.split(',').collect();
    if terms.len() != operands.len() {
        return Err(Failure::invalid(
            format!("{} operands", terms.len()),
            operands.len().to_string(),
        ));
    }
    let mut sizes: Vec<(char, Dim)> = Vec::new();
    let mut first = None;
    for (term, operand) in terms.iter().zip(operands) {
        let Value::Tensor(tensor) = operand else {
            return Err(Failure::expected("a tensor", operand));
        };
        first.get_or_insert_with(|| tensor.clone());
        if term.chars().count() != tensor.rank() {
            return Err(Failure::invalid(
                format!("a tensor of {} dimensions for {term}", term.chars().count()),
                tensor.ty.to_string(),
            ));
        }
        for (label, size) in term.chars().zip(&tensor.shape) {
            match sizes.iter_mut().find(|(l, _)| *l == label) {
                None => sizes.push((label, size.clone())),
                Some((_, before)) if before.is(1) => *before = size.clone(),
                Some((_, before)) => {
                    if !size.is(1) && !same_size(before, size)? {
                        return Err(Failure::invalid(
                            format!("the size {before} for {label}"),
                            size.to_string(),
                        ));
                    }
                }
            }
        }
    }
    let output = match output {
        Some(output) => output.chars().collect(),
        None => {
            let mut once: Vec<char> = inputs
                .chars()
                .filter(|c| *c != ',' && inputs.matches(*c).count() == 1)
                .collect();
            once.sort_unstable();
            once
        }
    };
    let first = first.ok_or_else(|| Failure::invalid("an operand", "none"))?;
    let labels = Labels {
        sizes,
        output,
        operands: terms.iter().map(|term| term.chars().collect()).collect(),
    };
    Ok((labels, first))
}

fn einsum(call: &Call<'_>) -> Result<Value, Failure> {
    let (labels, first) = labels(call)?;
    let mut shape = Shape::new();
    for label in &labels.output {
        let found = labels.sizes.iter().find(|(l, _)| l == label);
        let Some((_, size)) = found else {
            return Err(Failure::invalid(
                "labels of the operands",
                label.to_string(),
            ));
        };
        shape.push(size.clone());
    }
    if labels.operands.len() == 1 && labels.output.len() == labels.sizes.len() {
        // Nothing is summed: its dimensions in another order, or a diagonal.
        return Ok(Value::Tensor(view_of(&first, shape, None)));
    }
    Ok(TensorType {
        device: first.device,
        strides: super::tensor_type::Strides::Unknown,
        ..TensorType::new(first.dtype, shape)
    }
    .into())
}

fn einsum_macs(call: &Call<'_>, _: &Value) -> Option<Dim> {
    let (labels, _) = labels(call).ok()?;
    Some(Dim::product(labels.sizes.iter().map(|(_, size)| size)))
}

fn chain(call: &Call<'_>) -> Result<Value, Failure> {
    let items = match call.rest.as_slice() {
        [only] => only.as_items().unwrap_or(&call.rest),
        many => many,
    };
    let ends = (items.first(), items.last());
    let (Some(Value::Tensor(a)), Some(Value::Tensor(b))) = ends else {
        return Err(Failure::unknown("the operands are not known"));
    };
    Ok(made(
        a,
        [of_rank(a, 2)?[0].clone(), of_rank(b, 2)?[1].clone()],
    ))
}

fn cdist(call: &Call<'_>) -> Result<Value, Failure> {
    let (a, b) = (call.tensor("x1")?, call.tensor("x2")?);
    if a.rank() < 2 || b.rank() < 2 {
        return Err(Failure::invalid(
            "tensors of two dimensions or more",
            a.ty.to_string(),
        ));
    }
    let (m, n) = (a.rank() - 2, b.rank() - 2);
    let mut shape = broadcast(&a.shape[..m], &b.shape[..n])?;
    shape.extend([a.shape[m].clone(), b.shape[n].clone()]);
    Ok(made(a, shape))
}

/// Number of elements of the result of a product, times the size that it sums over.
fn over(result: &Value, inner: Option<&Dim>) -> Option<Dim> {
    Some(result.as_tensor()?.numel() * inner?.clone())
}

fn input_macs(call: &Call<'_>, result: &Value) -> Option<Dim> {
    over(result, call.tensor("input").ok()?.shape.last())
}

fn mat_macs(call: &Call<'_>, result: &Value) -> Option<Dim> {
    over(result, call.tensor("mat1").ok()?.shape.last())
}

fn batch_macs(call: &Call<'_>, result: &Value) -> Option<Dim> {
    over(result, call.tensor("batch1").ok()?.shape.last())
}

fn bilinear_macs(call: &Call<'_>, result: &Value) -> Option<Dim> {
    let weight = call.tensor("weight").ok()?;
    let inner = weight.shape[1].clone() * weight.shape[2].clone() + weight.shape[2].clone();
    over(result, Some(&inner))
}

fn outer_macs(_: &Call<'_>, result: &Value) -> Option<Dim> {
    over(result, Some(&Dim::ONE))
}

fn tensordot_macs(call: &Call<'_>, result: &Value) -> Option<Dim> {
    let (a, b) = (call.tensor("a").ok()?, call.tensor("b").ok()?);
    let (axes, _) = tensordot_axes(call, a, b).ok()?;
    over(
        result,
        Some(&Dim::product(axes.iter().map(|&at| &a.shape[at]))),
    )
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "matmul linalg.matmul operator.matmul operator.__matmul__",
        "input other",
        matmul,
        Cost::Macs(input_macs),
    )
    .shards(sharding::multiplied),
    rule("mm", "input other", mm, Cost::Macs(input_macs)).shards(sharding::multiplied),
    rule("bmm", "input other", bmm, Cost::Macs(input_macs)).shards(sharding::multiplied),
    rule("mv", "input other", mv, Cost::Macs(input_macs)).shards(sharding::multiplied),
    rule("dot vdot", "input other", dot, Cost::Macs(input_macs)).shards(sharding::multiplied),
    rule("outer ger", "input other", outer, Cost::Macs(outer_macs)),
    rule("inner", "input other", inner, Cost::Macs(input_macs)),
    rule(
        "addmm",
        "input mat1 mat2 *beta alpha",
        addmm,
        Cost::Macs(mat_macs),
    )
    .writes()
    .shards(sharding::added_products),
    rule(
        "baddbmm",
        "input batch1 batch2 *beta alpha",
        baddbmm,
        Cost::Macs(batch_macs),
    )
    .writes()
    .shards(sharding::added_products),
    rule(
        "linear",
        "input weight bias",
        linear,
        Cost::Macs(input_macs),
    )
    .shards(sharding::projected),
    rule(
        "bilinear",
        "input1 input2 weight bias",
        bilinear,
        Cost::Macs(bilinear_macs),
    ),
    rule(
        "tensordot",
        "a b dims",
        tensordot,
        Cost::Macs(tensordot_macs),
    ),
    rule(
        "einsum",
        "equation operands...",
        einsum,
        Cost::Macs(einsum_macs),
    )
    .shards(sharding::summed_labels),
    rule(
        "chain_matmul linalg.multi_dot",
        "tensors...",
        chain,
        Cost::Unknown,
    ),
    rule("cdist", "x1 x2 p compute_mode", cdist, Cost::Unknown),
];
