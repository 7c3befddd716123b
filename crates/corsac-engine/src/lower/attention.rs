//! Lowering of attention: products, a softmax, products.

use corsac_ops::shape::Value;
use smallvec::SmallVec;

use super::call::Call;
use super::element::broadcast;
use super::table::{Lowering, lowered, tensor};
use super::{Lowered, Lowerer, Reason};
use crate::program::{Binary, Element, Op, Scalar, ValueId};

#[rustfmt::skip]
pub(super) const LOWERINGS: &[Lowering] = &[
    lowered("MultiheadAttention", |own, call| own.multihead(call)),
    tensor("_patch_merging_pad", |own, call| own.patch_merging(call)),
    tensor("scaled_dot_product_attention", |own, call| own.attention(call)).of_any_type(),
    tensor("shifted_window_attention", |own, call| own.shifted_window_attention(call)),
];

/// Mask of the scores of attention.
enum Mask {
    None,
    /// Keys after the query are masked.
    Causal,
    /// A boolean mask, false where keys are masked, or numbers that are added to scores.
    Tensor(ValueId),
}

impl Lowerer<'_, '_> {
    /// `softmax(query @ key.T * scale + mask) @ value`
    pub(super) fn attention(&mut self, call: &Call) -> Result<ValueId, Reason> {
        if call.number("dropout_p")?.unwrap_or(0.0) != 0.0 {
            return Err("attention with dropout".to_owned());
        }
        for param in ["query", "key", "value"] {
            if self.program.element(call.tensor(param)?) != self.float {
                return Err("attention of integers".to_owned());
            }
        }
        let causal = call.flag("is_causal", false)?;
        let grouped = call.flag("enable_gqa", false)?;
        let scale = call.number("scale")?;
        let mask = call.optional("attn_mask")?;
        let [query, key, value] = ["query", "key", "value"].map(|param| call.tensor(param));
        let (query, key, value) = (query?, key?, value?);
        let mask = match (causal, mask) {
            (true, Some(_)) => return Err("attention with a mask and is_causal".to_owned()),
            (true, None) => Mask::Causal,
            (false, Some(mask)) => Mask::Tensor(mask),
            (false, None) => Mask::None,
        };
        let (q, k) = (self.shape(query), self.shape(key));
        let (Some(heads), Some(kept)) = (q.len().checked_sub(3), k.len().checked_sub(3)) else {
            return self.attend(query, key, value, mask, scale);
        };
        if !grouped || q[heads] == k[kept] {
            return self.attend(query, key, value, mask, scale);
        }
        // Grouped queries: each head of the key serves several adjacent heads of the query.
        if k[kept] == 0 || q[heads] % k[kept] != 0 {
            return Err(format!("{} heads for {}", q[heads], k[kept]));
        }
        let each = q[heads] / k[kept];
        let result = self.result_shape()?;
        let split = |shape: &[usize], own: [usize; 2]| {
            let at = shape.len() - 3;
            [&shape[..at], &own[..], &shape[at + 1..]].concat()
        };
        let own = split(&q, [k[kept], each]);
        let query = self.alias(query, own);
        let [key, value] = [key, value].map(|value| {
            let shape = self.shape(value);
            let own = split(&shape, [shape[shape.len() - 3], 1]);
            self.alias(value, own)
        });
        let mask = match mask {
            Mask::Tensor(mask) => {
                let mut own = self.shape(mask);
                if own.len() >= 3 {
                    own = match own[own.len() - 3] {
                        1 => split(&own, [1, 1]),
                        _ => split(&own, [k[kept], each]),
                    };
                }
                Mask::Tensor(self.alias(mask, own))
            }
            other => other,
        };
        let value = self.attend(query, key, value, mask, scale)?;
        Ok(self.alias(value, result))
    }

    fn attend(
        &mut self,
        query: ValueId,
        key: ValueId,
        value: ValueId,
        mask: Mask,
        scale: Option<f64>,
    ) -> Result<ValueId, Reason> {
        let (q, k) = (self.shape(query), self.shape(key));
        let ([.., rows, width], [.., keys, _]) = (&q[..], &k[..]) else {
            return Err("attention over vectors".to_owned());
        };
        let scale = scale.unwrap_or_else(|| 1.0 / (*width as f64).sqrt());
        let batch = broadcast(&q[..q.len() - 2], &k[..k.len() - 2])?;
        let scores = [&batch[..], &[*rows, *keys]].concat();
        let dim = scores.len() - 1;
        let product = Op::MatMul {
            first_transposed: false,
            transposed: true,
            scale,
        };
        let mut weights = self.emit(product, [query, key], scores.clone());
        let op = match mask {
            Mask::None => Op::Softmax { dim, log: false },
            Mask::Causal => {
                weights = self.emit(Op::Causal, [weights], scores.clone());
                Op::Softmax { dim, log: false }
            }
            Mask::Tensor(mask) => {
                let mask_shape = self.shape(mask);
                if broadcast(&mask_shape, &scores)?[..] != scores {
                    return Err("a mask that is larger than the scores".to_owned());
                }
                if self.program.element(mask) == Element::Bool {
                    let never = Scalar::Float(f64::NEG_INFINITY);
                    let never = self.constant(never, self.float);
                    weights = self.choose(mask, weights, never)?;
                } else {
                    let sum = Op::Binary(Binary::Add);
                    weights = self.emit(sum, [weights, mask], scores.clone());
                }
                // Rows whose keys are all masked are 0.
                Op::SafeSoftmax
            }
        };
        let weights = self.emit(op, [weights], scores);
        self.matmul(weights, value)
    }

    /// `nn.MultiheadAttention` of a sequence with itself; the attention weights are not returned.
    fn multihead(&mut self, call: &Call) -> Result<Lowered, Reason> {
        let input = call.tensor("query")?;
        if call.tensor("key")? != input || call.tensor("value")? != input {
            return Err("attention to another sequence".to_owned());
        }
        if call.flag("need_weights", true)? {
            return Err("attention whose weights are asked for".to_owned());
        }
        let heads = call.int("num_heads")?.unwrap_or(0);
        let heads = usize::try_from(heads).map_err(|_| "num_heads is negative".to_owned())?;
        for param in ["key_padding_mask", "attn_mask", "bias_k", "bias_v"] {
            if call.get(param).is_some() {
                return Err(format!("attention with {param}"));
            }
        }
        if call.flag("add_zero_attn", false)? || call.flag("is_causal", false)? {
            return Err("attention with add_zero_attn or is_causal".to_owned());
        }
        if call.flag("training", false)? && call.number("dropout")?.unwrap_or(0.0) != 0.0 {
            return Err("attention with dropout".to_owned());
        }
        let weight = call.tensor("in_proj_weight")?;
        let shape = self.shape(input);
        let [outer, inner, width] = shape[..] else {
            return Err("attention without a batch".to_owned());
        };
        if heads == 0 || width % heads != 0 {
            return Err(format!("{width} features for {heads} heads"));
        }
        let own = width / heads;
        let inputs = [input, weight].into_iter();
        let inputs = inputs.chain(call.optional("in_proj_bias")?);
        let all = self.emit(Op::Linear, inputs, [outer, inner, 3 * width]);
        // Strides of batch and sequence, in either order.
        let row = 3 * width;
        let (batch, sequence) = match call.flag("batch_first", false)? {
            true => ([outer, inner * row], [inner, row]),
            false => ([inner, row], [outer, inner * row]),
        };
        let mut part = |number: usize| {
            let shape = [batch[0], heads, sequence[0], own];
            let strides = [batch[1], own, sequence[1], 1].map(|step| step as isize);
            let op = Op::Copy {
                offset: number * width,
                strides: SmallVec::from_slice(&strides),
            };
            self.emit(op, [all], shape)
        };
        let (query, key, value) = (part(0), part(1), part(2));
        let mixed = self.attend(query, key, value, Mask::None, None)?;
        // From [batch, heads, sequence, own] to the layout of the input.
        let (of_batch, of_head, of_row) = (width * sequence[0], own * sequence[0], own);
        let (first, second) = match call.flag("batch_first", false)? {
            true => (of_batch, of_row),
            false => (of_row, of_batch),
        };
        let strides = [first, second, of_head, 1].map(|step| step as isize);
        let op = Op::Copy {
            offset: 0,
            strides: SmallVec::from_slice(&strides),
        };
        let merged = self.emit(op, [mixed], [outer, inner, heads, own]);
        let merged = self.alias(merged, shape.clone());
        let inputs = [merged, call.tensor("out_proj.weight")?].into_iter();
        let inputs = inputs.chain(call.optional("out_proj.bias")?);
        let result = self.emit(Op::Linear, inputs, shape);
        Ok(Lowered::Items(vec![
            Lowered::Tensor(result),
            Lowered::Known(Value::None),
        ]))
    }
}
