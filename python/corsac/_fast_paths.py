"""What modules of transformers call in evaluation, written with operators that can be recorded.

``nn.MultiheadAttention``, ``nn.TransformerEncoderLayer`` and ``nn.TransformerEncoder`` have paths of their own where
autograd records nothing: one operator for each layer, and, where a mask says what of sequences is padding, nested
tensors. Nested tensors are stood for by what they were made of and the mask, as long as nobody but those operators looks
at them. Results lie as those of PyTorch do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corsac._functions import getters

#: Modules that ask whether somebody overrides functions for their tensors.
MODULES = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
#: What may be asked of a nested tensor as of what stands for it.
_ALIKE = frozenset([Tensor.dim, *getters("device", "dtype", "requires_grad")])
(_IS_NESTED,) = getters("is_nested")
#: The weights of attention, by the names that operators give them.
_PROJECTIONS = ("qkv_weight", "qkv_bias", "proj_weight", "proj_bias")


def attention(
    query: Tensor,
    heads: int,
    weight: Tensor,
    bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Attention of sequences to themselves.

    Args:
        query: [batch, length, features].
        heads: how many parts of the features have weights of their own.
        weight, bias: give queries, keys and values.
        out_weight, out_bias: are applied to what they give.
        mask: what is not to be seen; broadcast to [batch, heads, length, length].
        need_weights: whether the weights are a result.
        average: whether those are averages over the heads.

    Returns:
        As many sequences, row by row; the weights, or None.
    """
    batch, length, features = query.shape
    parts = F.linear(query, weight, bias).view(batch, length, 3, heads, features // heads)
    queries, keys, values = parts.permute(2, 0, 3, 1, 4).unbind(0)
    weights = None
    if mask is None and not need_weights:
        mixed = F.scaled_dot_product_attention(queries, keys, values)
    else:
        scores = (queries @ keys.transpose(-1, -2)) / math.sqrt(features // heads)
        if mask is not None:
            # Rows of which nothing is seen are NaN, which those of other functions are not.
            scores = scores.masked_fill(mask, -math.inf)
        weights = torch.softmax(scores, -1)
        mixed = weights @ values
    merged = mixed.transpose(1, 2).reshape(batch, length, features)
    result = F.linear(merged, out_weight, out_bias)
    if not need_weights or weights is None:
        return result, None
    return result, weights.mean(1) if average else weights


class FastPaths:
    """The operators, in the place of those that PyTorch has.

    Where their operands are not those that the modules give, there is nothing in their place.
    """

    def __init__(self) -> None:
        #: What stands for nested tensors, by identity: that, the sequences, and what of them is no padding.
        self._nested: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        #: Whether the padding of the sequences that come next was found to be at their ends.
        self._is_aligned = False
        self._functions: dict[Any, Callable[..., Callable[[], Any] | None]] = {
            torch._native_multi_head_attention: self._attention,
            torch._transformer_encoder_layer_fwd: self._layer,
            torch._nested_tensor_from_mask_left_aligned: self._aligned,
            torch._nested_tensor_from_mask: self._from_mask,
            Tensor.to_padded_tensor: self._padded,
        }

    def found(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[], Any] | None:
        """What computes what ``function`` gives; None if that is only known to ``function``."""
        place = self._functions.get(function)
        if place is not None:
            try:
                return place(*args, **kwargs)
            except TypeError:
                # It is called in another way.
                return None
        if self._nested and function == _IS_NESTED and self._kept(args[0]) is not None:
            return lambda: True
        return None

    def shows(self, function: Any, args: tuple[Any, ...]) -> bool:
        """Whether ``function`` would find that a tensor is not nested."""
        if not self._nested or function in _ALIKE:
            return False
        leaves = torch.utils._pytree.tree_leaves(args)
        return any(self._kept(own) is not None for own in leaves)

    def as_nested(self, values: Any) -> Any:
        """``values`` with nested tensors where something stands for them."""

        def nested(own: Tensor) -> Tensor:
            kept = self._kept(own)
            if kept is None:
                return own
            return torch._nested_tensor_from_mask(self._sequences(own), kept, False)

        if not self._nested:
            return values
        return torch.utils._pytree.tree_map_only(Tensor, nested, values)

    def _kept(self, own: Any) -> Tensor | None:
        known = self._nested.get(id(own))
        return None if known is None else known[2]

    def _sequences(self, own: Tensor) -> Tensor:
        known = self._nested.get(id(own))
        return own if known is None else known[1]

    def _stands_for(self, own: Tensor, kept: Tensor) -> Tensor:
        shown = own.view(own.shape)
        self._nested[id(shown)] = shown, own, kept
        return shown

    def _is_known(self, own: Tensor, mask: Tensor | None, kind: int | None, heads: int) -> bool:
        """Whether it is known what of sequences a mask hides."""
        if mask is None:
            return True
        batch, length, _ = own.shape
        shapes = {0: (length, length), 1: (batch, length), 2: (batch, heads, length, length)}
        shape = shapes.get(-1 if kind is None else kind)
        return self._kept(own) is None and tuple(mask.shape) == shape

    def _hidden(self, own: Tensor, mask: Tensor | None, kind: int | None) -> Tensor | None:
        """What of sequences is not seen, as :func:`attention` takes it."""
        kept = self._kept(own)
        if kept is not None:
            mask, kind = kept.logical_not(), 1
        elif mask is not None and mask.dtype is not torch.bool:
            mask = mask.bool()
        return mask[:, None, None, :] if mask is not None and kind == 1 else mask

    def _attention(self, *args: Any, **kwargs: Any) -> Callable[[], Any] | None:
        of = _by_name(torch.ops.aten._native_multi_head_attention.default, args, kwargs)
        query, heads = of["query"], of["num_head"]
        weights = tuple(of[name] for name in _PROJECTIONS)
        mask, kind = of["mask"], of["mask_type"]
        if (
            query is not of["key"]
            or query is not of["value"]
            or not _fit(query, of["embed_dim"], heads, weights)
            or not self._is_known(query, mask, kind, heads)
            or self._kept(query) is not None
        ):
            return None
        wanted = of["need_weights"], of["average_attn_weights"]
        return lambda: attention(query, heads, *weights, self._hidden(query, mask, kind), *wanted)

    def _layer(self, *args: Any, **kwargs: Any) -> Callable[[], Any] | None:
        of = _by_name(torch.ops.aten._transformer_encoder_layer_fwd.default, args, kwargs)
        source, width, heads = of["src"], of["embed_dim"], of["num_heads"]
        weights = tuple(of[name] for name in _PROJECTIONS)
        mask, kind = of["mask"], of["mask_type"]
        if not _fit(source, width, heads, weights) or not self._is_known(source, mask, kind, heads):
            return None

        def norm(own: Tensor, which: str) -> Tensor:
            weight, bias = of[f"norm_weight_{which}"], of[f"norm_bias_{which}"]
            return F.layer_norm(own, (width,), weight, bias, of["eps"])

        def compute() -> Tensor:
            first, given = of["norm_first"], self._sequences(source)
            own = norm(given, "1") if first else given
            hidden = self._hidden(source, mask, kind)
            own = attention(own, heads, *weights, hidden, False)[0] + given
            own = own if first else norm(own, "1")
            inner = norm(own, "2") if first else own
            inner = F.linear(inner, of["ffn_weight_1"], of["ffn_bias_1"])
            inner = F.gelu(inner) if of["use_gelu"] else F.relu(inner)
            own = F.linear(inner, of["ffn_weight_2"], of["ffn_bias_2"]) + own
            own = own if first else norm(own, "2")
            kept = self._kept(source)
            return own if kept is None else self._stands_for(own, kept)

        return compute

    def _aligned(self, t: Tensor, mask: Tensor) -> Callable[[], bool] | None:
        if not _are_padded(t, mask):
            return None

        def compute() -> bool:
            lengths = mask.sum(1, keepdim=True)
            self._is_aligned = bool((torch.arange(mask.shape[1]) < lengths).eq(mask).all())
            return self._is_aligned

        return compute

    def _from_mask(
        self, t: Tensor, mask: Tensor, mask_check: bool = True
    ) -> Callable[[], Tensor] | None:
        is_aligned, self._is_aligned = self._is_aligned, False
        if mask_check or not is_aligned or not _are_padded(t, mask):
            return None
        return lambda: self._stands_for(t, mask)

    def _padded(
        self, own: Tensor, padding: float, output_size: Any = None
    ) -> Callable[[], Tensor] | None:
        kept = self._kept(own)
        # Without sizes, it would be as long as the longest of them.
        if kept is None or output_size is None or tuple(output_size) != tuple(own.shape):
            return None
        own = self._sequences(own)
        return lambda: own.masked_fill(kept.logical_not()[:, :, None], padding)


def _by_name(
    operator: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of an operator, by the names of its parameters.

    Raises:
        TypeError: it does not take them.
    """
    parameters = operator._schema.arguments
    given = {own.name: value for own, value in zip(parameters, args, strict=False)} | kwargs
    named = {own.name: given.get(own.name, own.default_value) for own in parameters}
    if len(args) > len(parameters) or not given.keys() <= named.keys():
        raise TypeError(f"{operator} takes other arguments")
    return named


def _fit(own: Tensor, width: int, heads: int, weights: tuple[Tensor, ...]) -> bool:
    """Whether sequences and weights are those that modules have."""
    shapes = ((3 * width, width), (3 * width,), (width, width), (width,))
    return (
        own.dim() == 3
        and own.numel() > 0
        and own.shape[-1] == width
        and heads > 0
        and width % heads == 0
        and all(
            isinstance(weight, Tensor) and tuple(weight.shape) == shape
            for weight, shape in zip(weights, shapes, strict=True)
        )
        and all(it.dtype is torch.float32 and not it.is_nested for it in (own, *weights))
    )


def _are_padded(own: Tensor, kept: Tensor) -> bool:
    """Whether a mask says what there is of sequences."""
    return (
        own.dim() == 3
        and own.dtype is torch.float32
        and not own.is_nested
        and kept.dtype is torch.bool
        and tuple(kept.shape) == tuple(own.shape[:2])
    )


__all__ = ["MODULES", "FastPaths", "attention"]
