//! Rows and elements picked by index.

use corsac_ir::DType;

use super::broadcast::{broadcast, same_size};
use super::call::Call;
use super::dim::Dim;
use super::elementwise::like;
use super::error::Failure;
use super::promotion::{Kind, kind};
use super::rule::{Cost, Rule, rule};
use super::sharding;
use super::tensor_type::{Shape, Strides, TensorType};
use super::value::{Tensor, Value};

fn indices<'a>(call: &'a Call<'_>, name: &str) -> Result<&'a Tensor, Failure> {
    let tensor = call.tensor(name)?;
    if kind(tensor.dtype) == Some(Kind::Int) {
        return Ok(tensor);
    }
    Err(Failure::invalid(
        format!("integers as {name}"),
        tensor.ty.to_string(),
    ))
}

fn made(like: &Tensor, shape: Shape) -> Value {
    TensorType {
        device: like.device,
        ..TensorType::new(like.dtype, shape)
    }
    .into()
}

fn embedding(call: &Call<'_>) -> Result<Value, Failure> {
    let weight = call.tensor("weight")?;
    let picked = indices(call, "input")?;
    let [_, width] = weight.shape.as_slice() else {
        return Err(Failure::invalid(
            "a weight of two dimensions",
            weight.ty.to_string(),
        ));
    };
    let mut shape = picked.shape.clone();
    shape.push(width.clone());
    Ok(made(weight, shape))
}

fn embedding_bag(call: &Call<'_>) -> Result<Value, Failure> {
    let (input, weight) = (indices(call, "input")?, call.tensor("weight")?);
    let [_, width] = weight.shape.as_slice() else {
        return Err(Failure::invalid(
            "a weight of two dimensions",
            weight.ty.to_string(),
        ));
    };
    let bags = match (input.shape.as_slice(), call.optional_tensor("offsets")?) {
        ([bags, _], None) => bags.clone(),
        ([_], Some(offsets)) if offsets.rank() == 1 => {
            let last = Dim::Known(i64::from(call.flag("include_last_offset", false)?));
            offsets.shape[0].clone() - last
        }
        _ => {
            return Err(Failure::invalid(
                "indices of two dimensions, or of one and offsets",
                input.ty.to_string(),
            ));
        }
    };
    Ok(made(weight, [bags, width.clone()].into_iter().collect()))
}

fn one_hot(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let classes = call.dim("num_classes")?.filter(|classes| !classes.is(-1));
    let Some(classes) = classes else {
        return Err(Failure::unknown(
            "how many classes there are depends on the elements",
        ));
    };
    let mut shape = input.shape.clone();
    shape.push(classes);
    let ty = TensorType::new(DType::Int64, shape);
    Ok(TensorType {
        device: input.device,
        ..ty
    }
    .into())
}

fn gather(call: &Call<'_>) -> Result<Value, Failure> {
    let (input, index) = (call.tensor("input")?, indices(call, "index")?);
    call.axis("dim", input.rank())?;
    if !index.numel().is(0) && input.rank().max(1) != index.rank().max(1) {
        return Err(Failure::invalid(
            format!("an index of {} dimensions", input.rank()),
            index.ty.to_string(),
        ));
    }
    Ok(made(input, index.shape.clone()))
}

fn take_along_dim(call: &Call<'_>) -> Result<Value, Failure> {
    let (input, index) = (call.tensor("input")?, indices(call, "indices")?);
    let Some(axis) = call.axis("dim", input.rank())? else {
        return Ok(made(input, Shape::from_iter([index.numel()])));
    };
    if input.rank() != index.rank() {
        return Err(Failure::invalid(
            format!("an index of {} dimensions", input.rank()),
            index.ty.to_string(),
        ));
    }
    let mut own = input.shape.clone();
    own[axis] = index.shape[axis].clone();
    let mut shape = broadcast(&own, &index.shape)?;
    shape[axis] = index.shape[axis].clone();
    Ok(made(input, shape))
}

fn index_select(call: &Call<'_>) -> Result<Value, Failure> {
    let (input, index) = (call.tensor("input")?, indices(call, "index")?);
    let axis = call.axis("dim", input.rank())?.unwrap_or(0);
    if index.rank() > 1 {
        return Err(Failure::invalid("a vector as index", index.ty.to_string()));
    }
    let mut shape = input.shape.clone();
    if let Some(size) = shape.get_mut(axis) {
        *size = index.numel();
    }
    Ok(made(input, shape))
}

fn take(call: &Call<'_>) -> Result<Value, Failure> {
    let (input, index) = (call.tensor("input")?, indices(call, "index")?);
    Ok(made(input, index.shape.clone()))
}

/// A copy of the input in which some elements are replaced.
fn scattered(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    call.axis("dim", input.rank())?;
    let mut ty = like(input, input.dtype);
    if ty.strides != Strides::Contiguous {
        ty.strides = Strides::Unknown;
    }
    Ok(ty.into())
}

fn masked_scatter(call: &Call<'_>) -> Result<Value, Failure> {
    let (input, mask) = (call.tensor("input")?, call.tensor("mask")?);
    let shape = broadcast(&input.shape, &mask.shape)?;
    Ok(made(input, shape))
}

fn by_elements(_: &Call<'_>) -> Result<Value, Failure> {
    Err(Failure::unknown(
        "the result's size depends on the elements",
    ))
}

fn bucketize(call: &Call<'_>) -> Result<Value, Failure> {
    let dtype = if call.flag("out_int32", false)? {
        DType::Int32
    } else {
        DType::Int64
    };
    let input = call.tensor("input")?;
    Ok(TensorType {
        device: input.device,
        ..TensorType::new(dtype, input.shape.clone())
    }
    .into())
}

fn select_scatter(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("input")?;
    let source = call.tensor("src")?;
    if let Some(axis) = call.axis("dim", input.rank())?
        && call.signature.position("index").is_some()
    {
        let mut expected = input.shape.clone();
        expected.remove(axis);
        if expected.len() != source.rank() {
            return Err(Failure::invalid(
                format!("a tensor of {} dimensions", expected.len()),
                source.ty.to_string(),
            ));
        }
        for (a, b) in expected.iter().zip(&source.shape) {
            if !same_size(a, b)? {
                return Err(Failure::invalid(a.to_string(), b.to_string()));
            }
        }
    }
    let mut ty = like(input, input.dtype);
    if ty.strides != Strides::Contiguous {
        ty.strides = Strides::Unknown;
    }
    Ok(ty.into())
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "F.embedding",
        "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse",
        embedding,
        Cost::Gather,
    )
    .shards(sharding::looked_up),
    rule(
        "embedding",
        "weight input padding_idx scale_grad_by_freq sparse",
        embedding,
        Cost::Gather,
    )
    .shards(sharding::looked_up),
    rule(
        "F.embedding_bag",
        "input weight offsets max_norm norm_type scale_grad_by_freq mode sparse \
         per_sample_weights include_last_offset padding_idx",
        embedding_bag,
        Cost::Unknown,
    ),
    rule("one_hot", "input num_classes", one_hot, Cost::Move).detached(),
    rule(
        "gather",
        "input dim index *sparse_grad",
        gather,
        Cost::Gather,
    ),
    rule(
        "take_along_dim",
        "input indices dim",
        take_along_dim,
        Cost::Gather,
    ),
    rule(
        "index_select",
        "input dim index",
        index_select,
        Cost::Gather,
    ),
    rule("take", "input index", take, Cost::Gather),
    rule(
        "scatter",
        "input dim index src *value reduce",
        scattered,
        Cost::Move,
    )
    .writes(),
    rule(
        "scatter_add index_copy",
        "input dim index src",
        scattered,
        Cost::Move,
    )
    .writes(),
    rule(
        "index_add",
        "input dim index source *alpha",
        scattered,
        Cost::Move,
    )
    .writes(),
    rule("index_fill", "input dim index value", scattered, Cost::Move).writes(),
    rule(
        "scatter_reduce",
        "input dim index src reduce *include_self",
        scattered,
        Cost::Move,
    )
    .writes(),
    rule(
        "masked_scatter",
        "input mask source",
        masked_scatter,
        Cost::Move,
    )
    .writes(),
    rule(
        "select_scatter",
        "input src dim index",
        select_scatter,
        Cost::Move,
    ),
    rule(
        "slice_scatter",
        "input src dim start end step",
        select_scatter,
        Cost::Move,
    ),
    rule(
        "nonzero argwhere bincount",
        "input *as_tuple",
        by_elements,
        Cost::Unknown,
    ),
    rule("masked_select", "input mask", by_elements, Cost::Unknown),
    rule(
        "bucketize",
        "input boundaries *out_int32 right",
        bucketize,
        Cost::Unknown,
    )
    .detached(),
];
