"""Integer arithmetic written out, in the places of quantised operators of converted graphs.

Layers multiply integers of 16 bits and add in 32. A result is scaled once, rounded half to even, and clamped:
``clamp(round(sum * (input_scale * weight_scale / scale) + bias / scale) + zero_point)``. What is left of quantise and
dequantise operators becomes the arithmetic that it is.

Reference: ``reference_representation_rewrite`` of ``torchao.quantization.pt2e``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from corsac.quantization import _operators  # noqa: F401  registers torch.ops.corsac
from corsac.quantization.pt2e._constants import remove_unread
from corsac.quantization.pt2e._nodes import CONVOLUTIONS, argument, calls, is_node

aten = torch.ops.aten
_OUT_DTYPE = torch.ops.higher_order.out_dtype
corsac = torch.ops.corsac
_QUANTISE = (corsac.quantize_per_tensor.default, corsac.quantize_per_tensor.tensor)
_DEQUANTISE = (corsac.dequantize_per_tensor.default, corsac.dequantize_per_tensor.tensor)
_RELU = (aten.relu.default, aten.relu_.default)
_ADD = (aten.add.Tensor, aten.add_.Tensor)
#: Layers that PyTorch has with sums of another type than the operands.
_SUMMED_WIDE = (aten.linear.default, aten.conv2d.default)
_LAYERS = (aten.linear.default, *CONVOLUTIONS)


@dataclass
class _Levels:
    """A node of integers, with what they mean. Scale and zero point are numbers or nodes."""

    node: Any
    scale: Any
    zero_point: Any
    low: int
    high: int
    dtype: torch.dtype
    axis: int | None = None

    @classmethod
    def of(cls, call: Any) -> _Levels:
        """Those of a quantise or dequantise operator."""
        value, scale, zero_point, *rest = call.args
        axis = rest.pop(0) if len(rest) == 4 else None
        return cls(value, scale, zero_point, *rest, axis=axis)

    @property
    def is_of_bytes(self) -> bool:
        return self.dtype in (torch.int8, torch.uint8)


def write_arithmetic(model: Any) -> None:
    """Replace the quantised operators of a converted graph module, which is changed."""
    _Arithmetic(model).run()
    remove_unread(model.graph)


class _Arithmetic:
    def __init__(self, model: Any) -> None:
        self._graph = model.graph
        self._origin: Any = None

    def run(self) -> None:
        for node in [*self._graph.nodes]:
            if calls(node, *_LAYERS):
                self._layer(node)
            elif calls(node, *_ADD):
                self._add(node)
            elif calls(node, *_RELU, aten.max_pool2d.default, aten.adaptive_avg_pool2d.default):
                self._moved(node)
        remove_unread(self._graph)
        for node in [*self._graph.nodes]:
            if calls(node, *_QUANTISE, corsac.quantize_per_channel.default):
                self._at(node)
                self._replace(node, self._quantised(node))
            elif calls(node, *_DEQUANTISE, corsac.dequantize_per_channel.default):
                self._at(node)
                self._replace(node, self._dequantised(node))

    def _at(self, node: Any) -> None:
        """Let new nodes be before ``node``, and have its place in the program."""
        self._origin = node

    def _call(self, target: Any, *args: Any) -> Any:
        with self._graph.inserting_before(self._origin):
            made = self._graph.call_function(target, args)
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack"):
            if key in self._origin.meta:
                made.meta[key] = self._origin.meta[key]
        return made

    def _replace(self, node: Any, by: Any) -> None:
        """Put ``by`` in the place of a node, with its name and what is known of its value."""
        by.meta.update({key: value for key, value in node.meta.items() if key not in by.meta})
        node.replace_all_uses_with(by)
        name = node.name
        self._graph.erase_node(node)
        by.name = name

    def _product(self, left: Any, right: Any) -> Any:
        """``left * right`` of numbers or nodes."""
        if is_node(left):
            return self._call(aten.mul.Tensor, left, right)
        return self._call(aten.mul.Tensor, right, left) if is_node(right) else left * right

    def _single(self, scale: Any) -> Any:
        """A scale, which may be a tensor of double precision, in single precision."""
        return self._call(aten.to.dtype, scale, torch.float32) if is_node(scale) else scale

    def _ratio(self, left: Any, right: float) -> Any:
        return self._call(aten.div.Tensor, left, right) if is_node(left) else left / right

    def _centred(self, levels: _Levels, dtype: torch.dtype, dimensions: int = 0) -> Any:
        """Integers of a type, less the zero point, which there may be one of for each first index."""
        wide = self._call(aten.to.dtype, levels.node, dtype)
        zero_point = levels.zero_point
        if zero_point is None or (not is_node(zero_point) and zero_point == 0):
            return wide
        if is_node(zero_point) and dimensions:
            zero_point = self._call(aten.reshape.default, zero_point, [-1] + [1] * dimensions)
        centred = self._call(aten.sub.Tensor, wide, zero_point)
        return self._call(aten.to.dtype, centred, dtype) if is_node(zero_point) else centred

    def _follower(self, node: Any) -> tuple[Any, bool]:
        """The operator that quantises a value, if it is all that reads it, and whether ReLU is between."""
        (user, *others) = node.users or (None,)
        rectified = not others and calls(user, *_RELU)
        if rectified:
            (user, *others) = user.users or (None,)
        is_quantised = not others and calls(user, corsac.quantize_per_tensor.default)
        return (user if is_quantised else None), rectified

    def _rounded(self, value: Any, into: _Levels, rectified: bool) -> Any:
        """Integers of a float in steps, from zero on."""
        whole = self._call(aten.round.default, value)
        if into.zero_point:
            whole = self._call(aten.add.Tensor, whole, into.zero_point)
        low = max(into.low, into.zero_point) if rectified else into.low
        clamped = self._call(aten.clamp.default, whole, low, into.high)
        return self._call(aten.to.dtype, clamped, into.dtype)

    def _layer(self, node: Any) -> None:
        values, weight, bias = (argument(node, name) for name in ("input", "weight", "bias"))
        of_weight = (*_DEQUANTISE, corsac.dequantize_per_channel.default)
        if not calls(values, *_DEQUANTISE) or not calls(weight, *of_weight):
            return
        x, w = _Levels.of(values), _Levels.of(weight)
        known = values.kwargs.get("out_dtype") or weight.kwargs.get("out_dtype")
        if w.axis not in (None, 0) or known not in (None, torch.float32):
            return
        if not (x.is_of_bytes and w.is_of_bytes):
            # Sums do not fit 32 bits.
            return
        if calls(node, *CONVOLUTIONS) and {*argument(node, "dilation")} != {1}:
            # PyTorch has no integer kernel for it.
            return
        spatial = 0 if calls(node, aten.linear.default) else int(node.target._schema.name[-2])
        self._at(node)
        summed_wide = node.target in _SUMMED_WIDE
        dtype = torch.int16 if summed_wide else torch.int32
        dimensions = 0 if w.axis is None else spatial + 1
        integers = self._centred(x, dtype), self._centred(w, dtype, dimensions)
        names = [own.name for own in node.target._schema.arguments[3:]]
        rest = [argument(node, name) for name in names]
        before = (_OUT_DTYPE, node.target, torch.int32) if summed_wide else (node.target,)
        total = self._call(*before, *integers, None, *rest)
        value = self._call(aten.to.dtype, total, torch.float32)
        follower, rectified = self._follower(node)
        into = None if follower is None else _Levels.of(follower)
        scale = self._product(x.scale, w.scale)
        if into is not None:
            scale = self._ratio(scale, into.scale)
        if is_node(scale) and w.axis is not None and spatial:
            scale = self._call(aten.reshape.default, scale, [-1] + [1] * spatial)
        value = self._call(aten.mul.Tensor, value, self._single(scale))
        if bias is not None:
            if spatial:
                bias = self._call(aten.reshape.default, bias, [-1] + [1] * spatial)
            if into is not None:
                bias = self._ratio(bias, into.scale)
            value = self._call(aten.add.Tensor, value, bias)
        if into is None:
            self._replace(node, value)
        else:
            self._replace_until(follower, node, self._rounded(value, into, rectified))

    def _replace_until(self, last: Any, first: Any, by: Any) -> None:
        """Put ``by`` in the place of a chain of calls."""
        chain = [last]
        while chain[-1] is not first:
            chain.append(chain[-1].args[0])
        self._replace(last, by)
        for node in chain[1:]:
            self._graph.erase_node(node)

    def _add(self, node: Any) -> None:
        left, right = node.args[:2]
        pair = calls(left, _DEQUANTISE[0]) and calls(right, _DEQUANTISE[0])
        follower, rectified = self._follower(node)
        if not pair or follower is None or node.kwargs.get("alpha", 1) != 1:
            return
        into, operands = _Levels.of(follower), (_Levels.of(left), _Levels.of(right))
        if any(levels.dtype == torch.int32 for levels in operands):
            # Differences to the zero point do not fit 32 bits.
            return
        self._at(node)
        parts = []
        for levels in operands:
            centred = self._centred(levels, torch.int32)
            parts.append(self._call(aten.mul.Tensor, centred, levels.scale / into.scale))
        total = self._call(aten.add.Tensor, *parts)
        self._replace_until(follower, node, self._rounded(total, into, rectified))

    def _moved(self, node: Any) -> None:
        """ReLU, the largest of a window, or the mean of one."""
        (value, *rest) = node.args
        follower, rectified = self._follower(node)
        if not calls(value, _DEQUANTISE[0]) or follower is None:
            return
        levels, into = _Levels.of(value), _Levels.of(follower)
        if levels.dtype == torch.int32:
            return
        self._at(node)
        if calls(node, aten.max_pool2d.default):
            moved = self._call(node.target, self._centred(levels, torch.int32), *rest)
        elif calls(node, aten.adaptive_avg_pool2d.default):
            floats = self._call(aten.to.dtype, self._centred(levels, torch.int32), torch.float32)
            moved = self._call(node.target, floats, *rest)
        else:
            rectified = True
            moved = self._centred(levels, torch.int32)
        scaled = self._call(aten.mul.Tensor, moved, levels.scale / into.scale)
        self._replace_until(follower, node, self._rounded(scaled, into, rectified))

    def _quantised(self, node: Any) -> Any:
        """A quantise operator as arithmetic, with its numbers."""
        levels = _Levels.of(node)
        own = levels.node.meta.get("val")
        is_float = isinstance(own, torch.Tensor) and own.dtype == torch.float32
        value = levels.node if is_float else self._call(aten.to.dtype, levels.node, torch.float32)
        value, scale = self._last(value, levels), self._single(levels.scale)
        inverse = self._call(aten.reciprocal.default, scale) if is_node(scale) else 1.0 / scale
        whole = self._call(aten.round.default, self._call(aten.mul.Tensor, value, inverse))
        if is_node(levels.zero_point) or levels.zero_point:
            whole = self._call(aten.add.Tensor, whole, levels.zero_point)
        clamped = self._call(aten.clamp.default, whole, levels.low, levels.high)
        return self._call(aten.to.dtype, self._last(clamped, levels), levels.dtype)

    def _dequantised(self, node: Any) -> Any:
        """A dequantise operator as arithmetic, with its numbers."""
        levels = _Levels.of(node)
        value = self._last(self._call(aten.to.dtype, levels.node, torch.float32), levels)
        if is_node(levels.zero_point) or levels.zero_point:
            value = self._call(aten.sub.Tensor, value, levels.zero_point)
        value = self._call(aten.mul.Tensor, value, self._single(levels.scale))
        value = self._last(value, levels)
        out_dtype = node.kwargs.get("out_dtype") or torch.float32
        return value if out_dtype == torch.float32 else self._call(aten.to.dtype, value, out_dtype)

    def _last(self, value: Any, levels: _Levels) -> Any:
        """A value with its channels as the last dimension, or back."""
        if levels.axis is None:
            return value
        return self._call(aten.transpose.int, value, levels.axis, -1)
