//! Attention.

use corsac_ir::DType;

use super::broadcast::broadcast;
use super::call::Call;
use super::dim::Dim;
use super::error::Failure;
use super::matmul::same_dtype;
use super::rule::{Cost, Rule, Work, rule};
use super::sharding;
use super::tensor_type::{Shape, Strides, TensorType};
use super::value::{Tensor, Value};

/// `softmax(query key^T) value`. The layout depends on the kernel that runs, so it is known only
/// where all agree.
fn scaled_dot_product(call: &Call<'_>) -> Result<Value, Failure> {
    let (query, key) = (call.tensor("query")?, call.tensor("key")?);
    let value = call.tensor("value")?;
    same_dtype(query, key)?;
    same_dtype(query, value)?;
    let rank = query.rank();
    if rank < 2 || key.rank() < 2 || value.rank() < 2 {
        return Err(Failure::invalid(
            "tensors of two dimensions or more",
            format!("{}, {} and {}", query.ty, key.ty, value.ty),
        ));
    }
    let batch = |t: &Tensor| Shape::from(&t.shape[..t.rank() - 2]);
    let mut shape = match call.flag("enable_gqa", false)? {
        true => batch(query),
        false => broadcast(&broadcast(&batch(query), &batch(key))?, &batch(value))?,
    };
    shape.push(query.shape[rank - 2].clone());
    shape.extend(value.shape.last().cloned());
    Ok(TensorType {
        strides: attention_strides(call, &shape, [query, key, value]),
        device: query.device,
        ..TensorType::new(query.dtype, shape)
    }
    .into())
}

/// The flash kernel of the processor writes `[batch, length, heads, width]`.
fn attention_strides(call: &Call<'_>, shape: &Shape, inputs: [&Tensor; 3]) -> Strides {
    let plain = inputs
        .iter()
        .all(|t| t.rank() == 4 && t.shape[3] == inputs[0].shape[3])
        && inputs[0].shape[..2] == inputs[1].shape[..2]
        && inputs[1].shape == inputs[2].shape
        && matches!(
            inputs[0].dtype,
            DType::Float32 | DType::Float64 | DType::BFloat16 | DType::Float16
        );
    let dropout = match call.get("dropout_p") {
        None => false,
        Some(Value::Float(p)) => *p != 0.0,
        Some(Value::Int(p)) => !p.is(0),
        Some(_) => true,
    };
    let masked = call.get("attn_mask").is_some();
    let recorded = call.settings.grad && inputs.iter().any(|t| t.requires_grad);
    if !plain || dropout || masked || recorded || call.exact {
        return Strides::Unknown;
    }
    let innermost_dense = inputs
        .iter()
        .all(|t| t.stride_list().is_some_and(|strides| strides[3].is(1)));
    if !innermost_dense {
        return Strides::Unknown;
    }
    let (heads, length, width) = (shape[1].clone(), shape[2].clone(), shape[3].clone());
    let row = heads.clone() * width.clone();
    let strides = [length * row.clone(), width, row, Dim::ONE];
    Strides::of(shape, strides.into_iter().collect())
}

/// Two products, and five operations for each score.
fn scaled_dot_product_work(call: &Call<'_>, result: &Value) -> Option<Work> {
    let (query, key) = (call.tensor("query").ok()?, call.tensor("key").ok()?);
    let result = result.as_tensor()?;
    let width = query.shape.last()?.clone();
    let keys = key.shape[key.rank() - 2].clone();
    let rows = Dim::product(&result.shape[..result.rank() - 1]);
    let scores = rows * keys;
    let macs = scores.clone() * (width + result.shape.last()?.clone());
    Some(Work {
        flops: macs.clone() * Dim::Known(2) + scores * Dim::Known(5),
        macs,
    })
}

/// `nn.MultiheadAttention`: the result, and the weights if requested.
fn multi_head(call: &Call<'_>) -> Result<Value, Failure> {
    let (query, key) = (call.tensor("query")?, call.tensor("key")?);
    let batch_first = call.flag("batch_first", false)?;
    let width = call.dim("embed_dim")?.unwrap_or(Dim::ZERO);
    if !matches!(query.rank(), 2 | 3) {
        return Err(Failure::invalid(
            "a query of two or three dimensions",
            query.ty.to_string(),
        ));
    }
    if query.shape.last().and_then(|own| own.equals(&width)) == Some(false) {
        return Err(Failure::invalid(
            format!("a query of {width} features"),
            query.ty.to_string(),
        ));
    }
    let output = TensorType {
        strides: Strides::Unknown,
        device: query.device,
        ..TensorType::new(query.dtype, query.shape.clone())
    };
    if !call.flag("need_weights", true)? {
        return Ok(Value::Tuple([output.into(), Value::None].into()));
    }
    let length_at = usize::from(query.rank() == 3 && batch_first);
    let mut shape = Shape::new();
    if query.rank() == 3 {
        shape.push(query.shape[1 - length_at].clone());
    }
    if !call.flag("average_attn_weights", true)? {
        shape.push(call.dim("num_heads")?.unwrap_or(Dim::ONE));
    }
    shape.push(query.shape[length_at].clone());
    shape.push(key.shape[length_at].clone());
    let extra = ["bias_k", "add_zero_attn"]
        .iter()
        .any(|name| match call.get(name) {
            None | Some(Value::Bool(false)) => false,
            Some(_) => true,
        });
    if extra {
        return Err(Failure::unknown("keys that the module adds"));
    }
    let weights = TensorType {
        strides: Strides::Unknown,
        device: query.device,
        ..TensorType::new(query.dtype, shape)
    };
    Ok(Value::tensors([output, weights]))
}

/// Projections of query, key and value, attention, and the projection of the result.
fn multi_head_work(call: &Call<'_>, result: &Value) -> Option<Work> {
    let (query, key) = (call.tensor("query").ok()?, call.tensor("key").ok()?);
    let value = call.tensor("value").ok()?;
    let width = call.dim("embed_dim").ok()??;
    let length_at = usize::from(query.rank() == 3 && call.flag("batch_first", false).ok()?);
    let batch = if query.rank() == 3 {
        query.shape[1 - length_at].clone()
    } else {
        Dim::ONE
    };
    let (queries, keys) = (query.shape[length_at].clone(), key.shape[length_at].clone());
    let heads = call.dim("num_heads").ok()??;
    let projections = [query, key, value, first_tensor(result)?]
        .iter()
        .fold(Dim::ZERO, |sum, t| sum + t.numel() * width.clone());
    let scores = batch * queries * keys;
    let macs = projections + scores.clone() * width * Dim::Known(2);
    Some(Work {
        flops: macs.clone() * Dim::Known(2) + scores * heads * Dim::Known(5),
        macs,
    })
}

fn first_tensor(value: &Value) -> Option<&Tensor> {
    let mut first = None;
    value.for_each_tensor(&mut |tensor| first = first.or(Some(tensor)));
    first
}

/// A layer or stack of a transformer: a tensor of the input's type.
fn encoder(call: &Call<'_>) -> Result<Value, Failure> {
    let input = call.tensor("src")?;
    Ok(TensorType {
        strides: Strides::Unknown,
        device: input.device,
        ..TensorType::new(input.dtype, input.shape.clone())
    }
    .into())
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "scaled_dot_product_attention",
        "query key value attn_mask dropout_p is_causal *scale enable_gqa",
        scaled_dot_product,
        Cost::By(scaled_dot_product_work),
    )
    .shards(sharding::scored),
    rule(
        "nn.MultiheadAttention.forward",
        "query key value key_padding_mask need_weights attn_mask average_attn_weights is_causal \
         *batch_first embed_dim num_heads bias_k add_zero_attn",
        multi_head,
        Cost::By(multi_head_work),
    ),
    rule(
        "nn.TransformerEncoder.forward nn.TransformerEncoderLayer.forward",
        "src mask src_key_padding_mask is_causal",
        encoder,
        Cost::Unknown,
    ),
];
