"""PyTorch's fast paths of transformer modules in evaluation, written with operators that can be recorded.

``nn.MultiheadAttention``, ``nn.TransformerEncoderLayer`` and ``nn.TransformerEncoder`` have fast paths for calls that
autograd does not record: one operator for each layer, and nested tensors if there is a padding mask. Nested tensors are
represented by the padded sequences and the mask, as long as only these operators use them. Results have PyTorch's
strides.

The stacks read two values of masks: whether padding is at the end of sequences, which zeroes it in the result, and
whether a mask is causal, which is faster. Graphs whose control flow depends on no values zero the padding if it is at
the end, and take each mask as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corsac import _core
from corsac._messages.lines import calling_frame
from corsac._pytorch.functions import getters

#: Modules with fast paths, which they take only if no function mode or tensor subclass overrides functions.
MODULES = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
#: Code of stacks of layers that read values of masks, and their layers.
_STACKS = tuple(own.forward.__code__ for own in (nn.TransformerEncoder, nn.TransformerDecoder))
_LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
_IS_CAUSAL = nn.modules.transformer._detect_is_causal_mask.__code__
#: Functions with the same result for a nested tensor and its representation.
_ALIKE = frozenset([Tensor.dim, *getters("device", "dtype", "requires_grad")])
(_IS_NESTED,) = getters("is_nested")
#: Dtypes of sequences and weights: those of native floating-point numbers.
_FLOATS = tuple(
    own for name in _core.native_dtypes() if (own := getattr(torch, name)).is_floating_point
)
#: Names of the weights of attention, as parameters of operators.
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
    """Multi-head self-attention.

    Args:
        query: [batch, length, features].
        heads: number of heads.
        weight, bias: the projection to queries, keys and values.
        out_weight, out_bias: the output projection.
        mask: true at positions not to attend to; broadcast to [batch, heads, length, length].
        need_weights: whether to return the attention weights.
        average: whether these are averaged over the heads.

    Returns:
        The result, contiguous, of the shape of ``query``; the attention weights, or None.
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
            # Fully masked rows are NaN, as on PyTorch's fast path, but unlike in its other functions.
            scores = scores.masked_fill(mask, -math.inf)
        weights = torch.softmax(scores, -1)
        mixed = weights @ values
    merged = mixed.transpose(1, 2).reshape(batch, length, features)
    result = F.linear(merged, out_weight, out_bias)
    if not need_weights or weights is None:
        return result, None
    return result, weights.mean(1) if average else weights


class FastPaths:
    """Replacements of the operators of PyTorch's fast paths.

    There are none for operands other than those that the modules pass.

    Args:
        reads: whether control flow may depend on values.
    """

    def __init__(self, *, reads: bool) -> None:
        self._reads = reads
        #: Representations of nested tensors, by id: that tensor, the sequences, the mask of what is not padding, and
        #: whether that is at their ends.
        self.nested: dict[int, tuple[Tensor, Tensor, Tensor, Tensor]] = {}
        #: Whether the padding of the next sequences is at their ends: not None if it is, or may be.
        self._is_aligned: Tensor | None = None
        self._functions: dict[Any, Callable[..., Callable[[], Any] | None]] = {
            torch._native_multi_head_attention: self._attention,
            torch._transformer_encoder_layer_fwd: self._layer,
            torch._nested_tensor_from_mask_left_aligned: self._aligned,
            torch._nested_tensor_from_mask: self._from_mask,
            Tensor.to_padded_tensor: self._padded,
        }

    def is_one(self, function: Any) -> bool:
        """Whether ``function`` is an operator of a fast path."""
        return function in self._functions

    def found(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[], Any] | None:
        """A function that computes the result of ``function``; None if there is no replacement."""
        if function is Tensor.__bool__ and not self._reads and _asks_for_causal_mask():
            return lambda: False
        place = self._functions.get(function)
        if place is not None:
            try:
                return place(*args, **kwargs)
            except TypeError:
                # It is called with other arguments.
                return None
        if self.nested and function == _IS_NESTED and self._kept(args[0]) is not None:
            return lambda: True
        return None

    def shows(self, function: Any, args: tuple[Any, ...]) -> bool:
        """Whether ``function`` could tell a representation from a nested tensor."""
        if not self.nested or function in _ALIKE:
            return False
        leaves = torch.utils._pytree.tree_leaves(args)
        return any(self._kept(own) is not None for own in leaves)

    def as_nested(self, values: Any) -> Any:
        """``values`` with nested tensors in the place of their representations."""

        def nested(own: Tensor) -> Tensor:
            kept = self._kept(own)
            if kept is None:
                return own
            return torch._nested_tensor_from_mask(self._sequences(own), kept, False)

        if not self.nested:
            return values
        return torch.utils._pytree.tree_map_only(Tensor, nested, values)

    def _kept(self, own: Any) -> Tensor | None:
        known = self.nested.get(id(own))
        return None if known is None else known[2]

    def _sequences(self, own: Tensor) -> Tensor:
        known = self.nested.get(id(own))
        return own if known is None else known[1]

    def _stands_for(self, own: Tensor, kept: Tensor, is_aligned: Tensor) -> Tensor:
        shown = own.view(own.shape)
        self.nested[id(shown)] = shown, own, kept, is_aligned
        return shown

    def _is_known(self, own: Tensor, mask: Tensor | None, kind: int | None, heads: int) -> bool:
        """Whether there is no mask, or one of a supported kind and shape."""
        if mask is None:
            return True
        batch, length, _ = own.shape
        shapes = {0: (length, length), 1: (batch, length), 2: (batch, heads, length, length)}
        shape = shapes.get(-1 if kind is None else kind)
        return self._kept(own) is None and tuple(mask.shape) == shape

    def _hidden(self, own: Tensor, mask: Tensor | None, kind: int | None) -> Tensor | None:
        """The mask of positions not to attend to, for :func:`attention`."""
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
            known = self.nested.get(id(source))
            return own if known is None else self._stands_for(own, *known[2:])

        return compute

    def _aligned(self, t: Tensor, mask: Tensor) -> Callable[[], bool] | None:
        if not _are_padded(t, mask) or not (self._reads or _is_plain_stack(calling_frame())):
            return None

        def compute() -> bool:
            lengths = mask.sum(1, keepdim=True)
            is_aligned = (torch.arange(mask.shape[1]) < lengths).eq(mask).all()
            self._is_aligned = None if self._reads and not is_aligned else is_aligned
            return self._is_aligned is not None

        return compute

    def _from_mask(
        self, t: Tensor, mask: Tensor, mask_check: bool = True
    ) -> Callable[[], Tensor] | None:
        is_aligned, self._is_aligned = self._is_aligned, None
        if mask_check or is_aligned is None or not _are_padded(t, mask):
            return None
        return lambda: self._stands_for(t, mask, is_aligned)

    def _padded(
        self, own: Tensor, padding: float, output_size: Any = None
    ) -> Callable[[], Tensor] | None:
        known = self.nested.get(id(own))
        # Without sizes, the result would be as long as the longest sequence, which depends on values.
        if known is None or output_size is None or tuple(output_size) != tuple(own.shape):
            return None
        _, sequences, kept, is_aligned = known

        def compute() -> Tensor:
            padded = kept.logical_not()
            if not self._reads:
                padded = padded & is_aligned
            return sequences.masked_fill(padded[:, :, None], padding)

        return compute


def _asks_for_causal_mask() -> bool:
    """Whether a stack of PyTorch's layers asks if its mask is causal."""
    frame = calling_frame()
    return frame is not None and frame.f_code is _IS_CAUSAL and _is_plain_stack(frame.f_back)


def _is_plain_stack(frame: FrameType | None) -> bool:
    """Whether a frame runs a stack of PyTorch's layers, without hooks, which do the same on each path."""
    if frame is None or frame.f_code not in _STACKS:
        return False
    layers = list(frame.f_locals["self"].layers)
    attentions = [getattr(own, "self_attn", None) for own in layers]
    return all(type(own) in _LAYERS for own in layers) and all(
        type(own) in (*_LAYERS, nn.MultiheadAttention)
        and "forward" not in vars(own)
        and not own._forward_hooks
        and not own._forward_pre_hooks
        for own in (*layers, *attentions)
    )


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
    """Whether sequences and weights have the shapes and dtypes that modules pass."""
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
        and all(it.dtype is own.dtype and not it.is_nested for it in (own, *weights))
        and own.dtype in _FLOATS
    )


def _are_padded(own: Tensor, kept: Tensor) -> bool:
    """Whether ``kept`` is a padding mask for the sequences ``own``."""
    return (
        own.dim() == 3
        and own.dtype in _FLOATS
        and not own.is_nested
        and kept.dtype is torch.bool
        and tuple(kept.shape) == tuple(own.shape[:2])
    )


__all__ = ["MODULES", "FastPaths", "attention"]
