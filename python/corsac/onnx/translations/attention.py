"""Attention."""

from __future__ import annotations

import math
from typing import Any

import torch

from corsac.onnx._builder import Builder, Missing, Tensor, integer
from corsac.onnx._table import translates
from corsac.onnx._types import Unsupported
from corsac.onnx.translations.matrices import linear, matmul


@translates("scaled_dot_product_attention")
def attention(
    g: Builder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(query @ key.T * scale + mask) @ value``."""
    if dropout_p:
        raise Unsupported("it uses random numbers")
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        times = integer(query.shape[-3]) // integer(key.shape[-3])
        key, value = _each_head(g, key, times), _each_head(g, value, times)
    weights = attention_weights(g, query, key, attn_mask, is_causal, scale)
    return matmul(g, weights, value)


def _each_head(g: Builder, tensor: Tensor, times: int) -> Tensor:
    *batch, heads, length, width = tensor.shape
    apart = g.reshape(tensor, (*batch, heads, 1, length, width))
    wide = g.expand(apart, (*batch, heads, times, length, width))
    return g.reshape(wide, (*batch, heads * times, length, width))


def attention_weights(
    g: Builder,
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    is_causal: bool = False,
    scale: float | None = None,
    zeros: bool = True,
) -> Tensor:
    """``softmax(query @ key.T * scale + mask)``; with ``zeros``, zeros where the mask excludes everything."""
    if scale is None:
        if not isinstance(query.shape[-1], int):
            raise Unsupported("a width that is not known")
        scale = 1 / math.sqrt(query.shape[-1])
    last = [*range(key.rank - 2), key.rank - 1, key.rank - 2]
    query = g.op("Mul", query, g.scalar(scale, query.dtype))
    scores = matmul(g, query, g.permute(key, last))
    lowest = g.scalar(-math.inf, scores.dtype)
    if is_causal:
        allowed = _causal(g, query.shape[-2], key.shape[-2])
        scores = g.op("Where", allowed, scores, lowest, dtype=scores.dtype)
    if mask is None:
        return g.op("Softmax", scores, axis=-1)
    if mask.dtype == torch.bool:
        scores = g.op("Where", mask, scores, lowest, dtype=scores.dtype)
    else:
        scores = g.op("Add", scores, g.cast(mask, scores.dtype))
    if not zeros:
        return g.op("Softmax", scores, axis=-1)
    # Where the mask excludes everything, torch's attention is zero and a plain softmax is NaN.
    zero = g.scalar(0, scores.dtype)
    hidden = g.op("Equal", scores, lowest, dtype=torch.bool)
    all_hidden = g.reduce("ReduceMin", g.cast(hidden, torch.float32), [scores.rank - 1])
    nothing = g.op("Greater", all_hidden, g.scalar(0.5, torch.float32), dtype=torch.bool)
    scores = g.op("Where", nothing, zero, scores, dtype=scores.dtype)
    weights = g.op("Softmax", scores, axis=-1)
    return g.op("Where", nothing, zero, weights, dtype=weights.dtype)


def _causal(g: Builder, rows: Any, columns: Any) -> Tensor:
    """The causal mask: the columns that each row attends to."""
    if isinstance(rows, int) and isinstance(columns, int):
        return g.known(torch.ones(rows, columns, dtype=torch.bool).tril())
    zero, one = g.scalar(0, torch.int64), g.scalar(1, torch.int64)
    row = g.op("Range", zero, g.scalar(rows, torch.int64), one, shape=(rows,))
    column = g.op("Range", zero, g.scalar(columns, torch.int64), one, shape=(columns,))
    apart = g.op("Unsqueeze", row, g.ints([1]), shape=(rows, 1))
    return g.op("GreaterOrEqual", apart, column, dtype=torch.bool)


@translates("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    g: Builder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    """``softmax(query @ key.T * scale + mask) @ value``."""
    result = attention(g, query, key, value, attn_mask, dropout_p, is_causal, scale)
    return result, Missing("sums of exponentials have no translation")


def multihead_attention(
    g: Builder,
    module: torch.nn.MultiheadAttention,
    path: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """Multi-head attention, with its projections."""
    if module.training and module.dropout:
        raise Unsupported("it uses random numbers in training")
    if module.bias_k is not None or module.add_zero_attn:
        raise Unsupported("keys and values besides those given")
    if is_causal and attn_mask is None:
        raise Unsupported("is_causal without a mask")

    def weight(name: str) -> Tensor | None:
        parameter = module.get_parameter(name) if _has(module, name) else None
        return None if parameter is None else g.weight(parameter, f"{path}.{name}")

    single = query.rank == 2
    inputs = [query, key, value]
    if single:
        inputs = [g.reshape(x, (1, *x.shape)) for x in inputs]
    elif not module.batch_first:
        inputs = [g.permute(x, (1, 0, 2)) for x in inputs]
    width, heads = module.embed_dim, module.num_heads
    batch, length = inputs[0].shape[0], inputs[0].shape[1]
    joint, bias = weight("in_proj_weight"), weight("in_proj_bias")
    projected = []
    for at, (x, name) in enumerate(zip(inputs, "qkv", strict=True)):
        if joint is None:
            part = weight(f"{name}_proj_weight")
        else:
            part = g.slice(joint, 0, at * width, (at + 1) * width)
        own = None if bias is None else g.slice(bias, 0, at * width, (at + 1) * width)
        result = linear(g, x, part, own)
        result = g.reshape(result, (batch, x.shape[1], heads, width // heads))
        projected.append(g.permute(result, (0, 2, 1, 3)))
    mask = _joint_mask(g, projected, key_padding_mask, attn_mask, single)
    weights = attention_weights(g, projected[0], projected[1], mask, zeros=not need_weights)
    seen = g.permute(matmul(g, weights, projected[2]), (0, 2, 1, 3))
    seen = g.reshape(seen, (batch, length, width))
    result = linear(g, seen, weight("out_proj.weight"), weight("out_proj.bias"))
    if single:
        result = g.reshape(result, result.shape[1:])
    elif not module.batch_first:
        result = g.permute(result, (1, 0, 2))
    if not need_weights:
        return result, None
    if average_attn_weights:
        weights = g.reduce("ReduceMean", weights, [1], keepdim=False)
    return result, g.reshape(weights, weights.shape[1:]) if single else weights


def _has(module: torch.nn.Module, name: str) -> bool:
    owner, _, own = name.rpartition(".")
    return getattr(module.get_submodule(owner), own, None) is not None


def _joint_mask(
    g: Builder,
    projected: list[Tensor],
    padding: Tensor | None,
    mask: Tensor | None,
    single: bool,
) -> Tensor | None:
    """The mask to be added to the scores."""
    batch, heads = projected[0].shape[:2]
    dtype = projected[0].dtype
    result = None
    if mask is not None:
        result = _additive(g, mask, dtype)
        if result.rank == 3:
            result = g.reshape(result, (batch, heads, *result.shape[1:]))
    if padding is not None:
        added = _additive(g, padding, dtype)
        added = g.reshape(added, (batch, 1, 1, added.shape[-1]))
        result = added if result is None else g.op("Add", result, added)
    return result


def _additive(g: Builder, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask as numbers to add; booleans are true where attention is excluded."""
    if mask.dtype != torch.bool:
        return g.cast(mask, dtype)
    lowest, zero = g.scalar(-math.inf, dtype), g.scalar(0, dtype)
    return g.op("Where", mask, lowest, zero, dtype=dtype)
