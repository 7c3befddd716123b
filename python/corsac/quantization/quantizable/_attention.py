"""Attention of linear layers and operations that are observed."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corsac.quantization.quantized._weight import QuantisedWeight
from corsac.quantization.quantized.functional_modules import FloatFunctional
from corsac.quantization.stubs import DeQuantStub, QuantStub


class MultiheadAttention(nn.MultiheadAttention):
    """``nn.MultiheadAttention`` with a layer for each projection. Scores, softmax and the sums of values are floats.

    The arguments are those of ``nn.MultiheadAttention``.

    https://github.com/pytorch/pytorch/blob/main/torch/ao/nn/quantizable/modules/activation.py
    """

    _FLOAT_MODULE = nn.MultiheadAttention

    out_proj: Any

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            add_bias_kv,
            add_zero_attn,
            kdim,
            vdim,
            batch_first,
            device,
            dtype,
        )
        # PyTorch's fused operators, which take these, are not for projections that are layers.
        self._qkv_same_embed_dim = False
        for name in (
            "in_proj_weight",
            "in_proj_bias",
            "q_proj_weight",
            "k_proj_weight",
            "v_proj_weight",
        ):
            self.register_parameter(name, None)

        def linear(size: int) -> nn.Linear:
            return nn.Linear(size, embed_dim, bias=bias, device=device, dtype=dtype)

        self.linear_Q, self.linear_K = linear(self.embed_dim), linear(self.kdim)
        self.linear_V, self.out_proj = linear(self.vdim), linear(self.embed_dim)
        self.q_scaling_product = FloatFunctional()
        self.quant_attn_output, self.quant_attn_output_weights = QuantStub(), QuantStub()
        self.dequant_q, self.dequant_k, self.dequant_v = DeQuantStub(), DeQuantStub(), DeQuantStub()

    def _get_name(self) -> str:
        return "QuantizableMultiheadAttention"

    @classmethod
    def from_float(cls, other: Any) -> Any:
        """The observed attention of an ``nn.MultiheadAttention`` with a ``qconfig``; the weights are shared."""
        from corsac.quantization.quantize import prepare

        if type(other) is not cls._FLOAT_MODULE:
            raise AssertionError(f"expected a MultiheadAttention, got {type(other).__name__}")
        if not hasattr(other, "qconfig"):
            raise AssertionError("expected a MultiheadAttention with a qconfig")
        bias = other.in_proj_bias
        observed = cls(
            other.embed_dim,
            other.num_heads,
            other.dropout,
            bias is not None,
            other.bias_k is not None,
            other.add_zero_attn,
            other.kdim,
            other.vdim,
            other.batch_first,
            "meta",
        )
        observed.bias_k, observed.bias_v, observed.qconfig = (
            other.bias_k,
            other.bias_v,
            other.qconfig,
        )
        observed.out_proj.weight, observed.out_proj.bias = (
            other.out_proj.weight,
            other.out_proj.bias,
        )
        if other._qkv_same_embed_dim:
            weights = other.in_proj_weight.chunk(3)
        else:
            weights = [other.q_proj_weight, other.k_proj_weight, other.v_proj_weight]
        biases = [None] * 3 if bias is None else bias.chunk(3)
        layers = observed.linear_Q, observed.linear_K, observed.linear_V
        for layer, weight, own in zip(layers, weights, biases, strict=True):
            layer.weight = nn.Parameter(weight)
            layer.bias = None if own is None else nn.Parameter(own)
        return prepare(observed.eval(), inplace=True)

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        raise NotImplementedError(
            "a quantizable MultiheadAttention is made of a float one by from_float; "
            "corsac.quantization.quantized.static.MultiheadAttention is made of an observed one"
        )

    def dequantize(self) -> nn.MultiheadAttention:
        """The float attention, with the numbers that the weights are."""
        layers = self.linear_Q, self.linear_K, self.linear_V
        made = nn.MultiheadAttention(
            self.embed_dim,
            self.num_heads,
            self.dropout,
            self.linear_Q.bias is not None,
            self.bias_k is not None,
            self.add_zero_attn,
            self.kdim,
            self.vdim,
            self.batch_first,
        )
        with torch.no_grad():
            parts = [_float_weight(layer) for layer in layers]
            if made._qkv_same_embed_dim:
                made.in_proj_weight.copy_(torch.cat(parts))
            else:
                for name, part in zip("qkv", parts, strict=True):
                    getattr(made, f"{name}_proj_weight").copy_(part)
            made.out_proj.weight.copy_(_float_weight(self.out_proj))
            if self.linear_Q.bias is not None:
                made.in_proj_bias.copy_(torch.cat([layer.bias for layer in layers]))
                made.out_proj.bias.copy_(self.out_proj.bias)
            if self.bias_k is not None and self.bias_v is not None:
                made.bias_k.copy_(self.bias_k)  # type: ignore[union-attr]
                made.bias_v.copy_(self.bias_v)  # type: ignore[union-attr]
        return made.train(self.training)

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
        """As ``nn.MultiheadAttention``, with a batch; ``is_causal`` only says what ``attn_mask`` has."""
        if is_causal and attn_mask is None:
            raise RuntimeError(f"{self._get_name()}: expected attn_mask with is_causal, got None")
        if query.dim() != 3 or query.size(2) != self.embed_dim:
            raise ValueError(
                f"{self._get_name()}: expected queries of 3 dimensions, the last of {self.embed_dim}, got "
                f"{[*query.shape]}"
            )
        if self.batch_first:
            query, key, value = (one.transpose(0, 1) for one in (query, key, value))
        length, batch, _ = query.shape
        q = self.q_scaling_product.mul_scalar(self.linear_Q(query), self.head_dim**-0.5)
        k, v = self.linear_K(key), self.linear_V(value)
        added = 0
        if self.bias_k is not None and self.bias_v is not None:
            k = torch.cat([k, self.bias_k.repeat(1, batch, 1)])
            v = torch.cat([v, self.bias_v.repeat(1, batch, 1)])
            added += 1
        q, k, v = (self._heads(one, batch) for one in (q, k, v))
        if self.add_zero_attn:
            k, v = (F.pad(one, (0, 0, 0, 1)) for one in (k, v))
            added += 1
        q, k, v = self.dequant_q(q), self.dequant_k(k), self.dequant_v(v)
        scores = torch.bmm(q, k.transpose(1, 2))
        if attn_mask is not None:
            mask = _additive(attn_mask, added, scores)
            scores = scores + (mask if mask.dim() == 3 else mask.unsqueeze(0))
        if key_padding_mask is not None:
            mask = _additive(key_padding_mask, added, scores)
            mask = mask.unsqueeze(1).unsqueeze(2)
            by_head = scores.view(batch, self.num_heads, *scores.shape[1:])
            scores = (by_head + mask).view(scores.shape)
        weights = F.dropout(F.softmax(scores, dim=-1), self.dropout, self.training)
        output = torch.bmm(weights, v).transpose(0, 1).reshape(length, batch, self.embed_dim)
        output = self.out_proj(self.quant_attn_output(output))
        if self.batch_first:
            output = output.transpose(0, 1)
        weights = self.quant_attn_output_weights(weights)
        if not need_weights:
            return output, None
        weights = weights.view(batch, self.num_heads, *weights.shape[1:])
        return output, weights.mean(dim=1) if average_attn_weights else weights

    def _heads(self, value: Tensor, batch: int) -> Tensor:
        """A tensor of ``[batch * heads, length, head_dim]`` of one of ``[length, batch, embed_dim]``."""
        heads = value.reshape(value.size(0), batch * self.num_heads, self.head_dim)
        return heads.transpose(0, 1)


def _float_weight(layer: Any) -> Tensor:
    return layer.dequantised() if isinstance(layer, QuantisedWeight) else layer.weight


def _additive(mask: Tensor, added: int, scores: Tensor) -> Tensor:
    """A mask as numbers to add to scores, for keys that were added at the end as well."""
    if not mask.is_floating_point():
        if mask.dtype not in (torch.bool, torch.uint8):
            raise ValueError(f"expected a mask of bool or floats, got {mask.dtype}")
        mask = torch.zeros_like(mask, dtype=scores.dtype).masked_fill(mask.bool(), float("-inf"))
    return F.pad(mask, (0, added)) if added else mask
