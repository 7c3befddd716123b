//! Attention: products, a softmax, products.

use corsac_ops::shape::Value;
use smallvec::SmallVec;

use super::call::Call;
use super::operators::broadcast;
use super::{Lowered, Lowerer, Reason};
use crate::program::{Binary, Op, ValueId};

impl Lowerer<'_, '_> {
    /// `softmax(query @ key.T * scale + mask) @ value`
    pub(super) fn attention(&mut self, call: &Call) -> Result<ValueId, Reason> {
        if call.number("dropout_p")?.unwrap_or(0.0) != 0.0 {
            return Err("attention with dropout".to_owned());
        }
        if call.flag("is_causal", false)? || call.flag("enable_gqa", false)? {
            return Err("attention with is_causal or enable_gqa".to_owned());
        }
        let scale = call.number("scale")?.map(|scale| scale as f32);
        let mask = call.optional("attn_mask")?;
        let [query, key, value] = ["query", "key", "value"].map(|param| call.tensor(param));
        self.attend(query?, key?, value?, mask, scale)
    }

    fn attend(
        &mut self,
        query: ValueId,
        key: ValueId,
        value: ValueId,
        mask: Option<ValueId>,
        scale: Option<f32>,
    ) -> Result<ValueId, Reason> {
        let (q, k) = (self.shape(query), self.shape(key));
        let ([.., rows, width], [.., keys, _]) = (&q[..], &k[..]) else {
            return Err("attention over vectors".to_owned());
        };
        let scale = scale.unwrap_or_else(|| 1.0 / (*width as f32).sqrt());
        let batch = broadcast(&q[..q.len() - 2], &k[..k.len() - 2])?;
        let scores = [&batch[..], &[*rows, *keys]].concat();
        let dim = scores.len() - 1;
        let product = Op::MatMul {
            transposed: true,
            scale,
        };
        let mut weights = self.emit(product, [query, key], scores.clone());
        if let Some(mask) = mask {
            let mask_shape = self.shape(mask);
            if broadcast(&mask_shape, &scores)?[..] != scores {
                return Err("a mask that is larger than the scores".to_owned());
            }
            weights = self.emit(Op::Binary(Binary::Add), [weights, mask], scores.clone());
        }
        let weights = self.emit(Op::Softmax { dim, log: false }, [weights], scores);
        self.matmul(weights, value)
    }

    /// `nn.MultiheadAttention` of a sequence with itself, without the weights of attention in the
    /// result.
    pub(super) fn multihead(&mut self, call: &Call) -> Result<Lowered, Reason> {
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
        // Batch and sequence, wherever they are.
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
        let mixed = self.attend(query, key, value, None, None)?;
        // From [batch, heads, sequence, own] to what the input looks like.
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
