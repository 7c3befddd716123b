"""``nn.MultiheadAttention`` of linear layers that are called."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SplitAttention(nn.MultiheadAttention):
    """``nn.MultiheadAttention`` whose projections are layers, which can be quantised: ``q_proj``, ``k_proj``,
    ``v_proj`` and ``out_proj``.

    It is for inference: attention weights are not dropped out.

    Args:
        attention: the original, for which :meth:`reason` is empty.
    """

    q_proj: nn.Module
    k_proj: nn.Module
    v_proj: nn.Module

    def __init__(self, attention: nn.MultiheadAttention) -> None:
        nn.Module.__init__(self)
        for name, value in vars(attention).items():
            if not name.startswith("_") or name == "_qkv_same_embed_dim":
                setattr(self, name, value)
        self.training = attention.training
        for name in ("in_proj_weight", "in_proj_bias"):
            self.register_parameter(name, None)
        self.bias_k = self.bias_v = None
        for name, weight, bias in _projections(attention):
            setattr(self, name, _linear(weight, bias))
        out = attention.out_proj
        self.out_proj: Any = _linear(out.weight, out.bias)

    @staticmethod
    def reason(attention: nn.MultiheadAttention) -> str:
        """Why an attention cannot be split; empty if it can."""
        if type(attention) is not nn.MultiheadAttention:
            return f"{type(attention).__name__} is a subclass, which may compute something else"
        if not attention._qkv_same_embed_dim:
            return "it has other sizes for keys or values"
        if attention.bias_k is not None or attention.add_zero_attn:
            return "it adds keys and values"
        inside = [*attention.modules()]
        if any(own._forward_hooks or own._forward_pre_hooks for own in inside):
            return "it has hooks, which may change what it computes"
        if any(torch.nn.utils.parametrize.is_parametrized(own) for own in inside):
            return "its weight is parametrised"
        return ""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As ``nn.MultiheadAttention``; ``is_causal`` only says what ``attn_mask`` has."""
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal says what attn_mask has, and there is none")
        is_batched = query.dim() == 3
        if not is_batched:
            query, key, value = (own.unsqueeze(0) for own in (query, key, value))
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (own.transpose(0, 1) for own in (query, key, value))
        heads = (-1, self.num_heads, self.head_dim)
        q = self.q_proj(query).unflatten(-1, heads[1:]).transpose(1, 2)
        k = self.k_proj(key).unflatten(-1, heads[1:]).transpose(1, 2)
        v = self.v_proj(value).unflatten(-1, heads[1:]).transpose(1, 2)
        mask = self._mask(attn_mask, key_padding_mask, q.dtype)
        weights = None
        if need_weights:
            scores = (q / math.sqrt(self.head_dim)) @ k.transpose(-2, -1)
            weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
            result = weights @ v
            if average_attn_weights:
                weights = weights.mean(dim=1)
        else:
            result = F.scaled_dot_product_attention(q, k, v, mask)
        result = self.out_proj(result.transpose(1, 2).flatten(2))
        if not is_batched:
            return result.squeeze(0), None if weights is None else weights.squeeze(0)
        return result if self.batch_first else result.transpose(0, 1), weights

    def _mask(
        self, attention: Tensor | None, padding: Tensor | None, dtype: torch.dtype
    ) -> Tensor | None:
        """Numbers that are added to scores [batch, heads, queries, keys]."""
        mask = _added(attention, dtype)
        if mask is not None and mask.dim() == 3:
            mask = mask.unflatten(0, (-1, self.num_heads))
        padding = _added(padding, dtype)
        if padding is None:
            return mask
        padding = padding[:, None, None, :]
        return padding if mask is None else mask + padding

    def merged(self) -> nn.MultiheadAttention:
        """The original class with the same weights, if the projections are float."""
        made = nn.MultiheadAttention(
            self.embed_dim,
            self.num_heads,
            self.dropout,
            self.out_proj.bias is not None,
            batch_first=self.batch_first,
            device="meta",
        )
        parts: list[Any] = [self.q_proj, self.k_proj, self.v_proj]
        weight = torch.cat([own.weight.detach() for own in parts])
        made.in_proj_weight = nn.Parameter(weight, requires_grad=False)
        if made.in_proj_bias is not None:
            bias = torch.cat([own.bias.detach() for own in parts])
            made.in_proj_bias = nn.Parameter(bias, requires_grad=False)
        made.out_proj.weight, made.out_proj.bias = self.out_proj.weight, self.out_proj.bias
        return made.train(self.training)


def _projections(attention: nn.MultiheadAttention) -> list[tuple[str, Tensor, Tensor | None]]:
    weights = attention.in_proj_weight.detach().chunk(3)
    bias = attention.in_proj_bias
    biases = (None, None, None) if bias is None else bias.detach().chunk(3)
    names = ("q_proj", "k_proj", "v_proj")
    # Views would be written to with the original.
    return [
        (name, weight.clone(), None if own is None else own.clone())
        for name, weight, own in zip(names, weights, biases, strict=True)
    ]


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    made = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    made.weight = _parameter(weight)
    if bias is not None:
        made.bias = _parameter(bias)
    return made.eval()


def _parameter(tensor: Tensor) -> nn.Parameter:
    if isinstance(tensor, nn.Parameter):
        return tensor
    return nn.Parameter(tensor, requires_grad=False)


def _added(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A mask as numbers to add; of booleans, True is left out."""
    if mask is None or mask.is_floating_point():
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf"))
