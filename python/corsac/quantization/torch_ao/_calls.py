"""Operators of ``torch.ops.quantized``, as functions of floats with rounded results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from corsac.quantization.torch_ao import _functions
from corsac.quantization.torch_ao._values import Levels, Packed, Steps

if TYPE_CHECKING:
    from corsac.quantization.torch_ao._graphs import Reader

#: Readers of calls, by the name of the operator: each a function of the reader and the arguments.
QUANTISED: dict[str, Callable[..., Any]] = {}


def _reads(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            QUANTISED[name] = function
        return function

    return register


def _own_type(reader: Reader, value: Any, scale: Any, zero_point: Any) -> Steps:
    """Steps of a result, of the type of the input."""
    return reader.steps(scale, zero_point, reader.steps_of(value).dtype)


def _arithmetic(name: str, function: Any, after: Any) -> Callable[..., Any]:
    def of_scalar(reader: Reader, value: Any, number: Any) -> Levels:
        steps = reader.steps_of(value)
        number = float(reader.number(number))
        result = reader.function(function, value, number)
        if after is not None:
            result = reader.function(after, result)
        return reader.in_steps(result, _functions.scalar_steps(name, number, steps))

    def read(
        reader: Reader,
        qa: Any,
        qb: Any = None,
        scale: Any = None,
        zero_point: Any = None,
        b: Any = None,
    ) -> Levels:
        qb = b if qb is None else qb
        if not isinstance(qb, Levels):
            if isinstance(qa, Levels):
                return of_scalar(reader, qa, qb)
            return of_scalar(reader, qb, qa)
        reader.levels(qa), reader.levels(qb)
        result = reader.function(function, qa, qb)
        if after is not None:
            result = reader.function(after, result)
        return reader.in_steps(result, _own_type(reader, qa, scale, zero_point))

    return read


for _name, _function in (("add", torch.add), ("mul", torch.mul)):
    for _end, _after in (("", None), ("_relu", F.relu)):
        _reads(f"{_name}{_end}", f"{_name}_scalar{_end}")(_arithmetic(_name, _function, _after))


@_reads("matmul")
def _matmul(reader: Reader, qa: Any, qb: Any, scale: Any, zero_point: Any) -> Levels:
    reader.levels(qa), reader.levels(qb)
    result = reader.function(torch.matmul, qa, qb)
    return reader.in_steps(result, _own_type(reader, qa, scale, zero_point))


def _cat(after: Any) -> Callable[..., Any]:
    def read(
        reader: Reader, qx: Any, dim: int, scale: Any = None, zero_point: Any = None
    ) -> Levels:
        steps = None if scale is None else _own_type(reader, qx[0], scale, zero_point)
        node = reader.function(torch.cat, qx, dim)
        if after is not None:
            node = reader.function(after, node)
        return reader.joined(qx, node, steps)

    return read


_reads("cat")(_cat(None))
_reads("cat_relu")(_cat(F.relu))


def _linear(reader: Reader, X: Any, packed: Packed) -> Any:
    return reader.function(F.linear, X, packed.weight, packed.bias)


def _static_linear(after: Any) -> Callable[..., Any]:
    def read(
        reader: Reader, X: Any, W_prepack: Any, Y_scale_i: Any, Y_zero_point_i: Any, *more: Any
    ) -> Levels:
        steps = _own_type(reader, X, Y_scale_i, Y_zero_point_i)
        result = _linear(reader, X, reader.packed(W_prepack))
        if after is not None:
            result = reader.function(after, result, *more)
        return reader.in_steps(result, steps)

    return read


for _name, _after in (
    ("linear", None),
    ("linear_relu", F.relu),
    ("linear_tanh", torch.tanh),
    ("linear_leaky_relu", F.leaky_relu),
):
    _reads(_name)(_static_linear(_after))


def _dynamic_linear(after: Any) -> Callable[..., Any]:
    def read(reader: Reader, X: Any, W_prepack: Any, reduce_range: bool = False) -> Any:
        result = reader.dynamic_linear(X, reader.packed(W_prepack), reduce_range)
        return result if after is None else reader.function(after, result)

    return read


for _end in ("", "_fp16"):
    _reads(f"linear_dynamic{_end}")(_dynamic_linear(None))
    _reads(f"linear_relu_dynamic{_end}")(_dynamic_linear(F.relu))


def _convolution(reader: Reader, x: Any, packed: Packed, rank: int) -> Any:
    name = f"conv_transpose{rank}d" if packed.transposed else f"conv{rank}d"
    options = packed.convolution or {}
    return reader.function(getattr(F, name), x, packed.weight, packed.bias, **options)


def _static_convolution(rank: int, after: Any) -> Callable[..., Any]:
    def read(
        reader: Reader, qx: Any, packed_weight: Any, output_scale: Any, output_zero_point: Any
    ) -> Levels:
        steps = _own_type(reader, qx, output_scale, output_zero_point)
        result = _convolution(reader, qx, reader.packed(packed_weight, rank), rank)
        if after is not None:
            result = reader.function(after, result)
        return reader.in_steps(result, steps)

    return read


def _dynamic_convolution(rank: int) -> Callable[..., Any]:
    def read(reader: Reader, qx: Any, packed_weight: Any, reduce_range: bool = False) -> Any:
        # Rows of images are no rows of the product.
        given = reader.rounded(qx, reduce_range, rows=False)
        return _convolution(reader, given, reader.packed(packed_weight, rank), rank)

    return read


for _rank in (1, 2, 3):
    _reads(f"conv{_rank}d", f"conv_transpose{_rank}d")(_static_convolution(_rank, None))
    _reads(f"conv{_rank}d_relu")(_static_convolution(_rank, F.relu))
    _reads(f"conv{_rank}d_dynamic", f"conv_transpose{_rank}d_dynamic")(_dynamic_convolution(_rank))


def _convolution_and_sum(after: Any) -> Callable[..., Any]:
    def read(
        reader: Reader, qx: Any, qaccum: Any, packed: Any, output_scale: Any, output_zero_point: Any
    ) -> Levels:
        steps = _own_type(reader, qx, output_scale, output_zero_point)
        result = _convolution(reader, qx, reader.packed(packed, 2), 2)
        result = reader.function(torch.add, result, reader.levels(qaccum).real)
        if after is not None:
            result = reader.function(after, result)
        return reader.in_steps(result, steps)

    return read


_reads("conv2d_add")(_convolution_and_sum(None))
_reads("conv2d_add_relu")(_convolution_and_sum(F.relu))


@_reads("linear_prepack")
def _linear_prepack(reader: Reader, W: Any, B: Any = None) -> Packed:
    if not isinstance(W, Levels):
        raise reader.error("a weight of a quantised type")
    return Packed(W.real, B)


def _prepack(transposed: bool) -> Callable[..., Any]:
    def read(
        reader: Reader,
        weight: Any,
        bias: Any,
        stride: Any,
        padding: Any,
        *rest: Any,
    ) -> Packed:
        if not isinstance(weight, Levels):
            raise reader.error("a weight of a quantised type")
        names = ("output_padding", "dilation", "groups") if transposed else ("dilation", "groups")
        options = {"stride": tuple(stride), "padding": tuple(padding)}
        options |= {
            name: own if name == "groups" else tuple(own)
            for name, own in zip(names, rest, strict=True)
        }
        return Packed(weight.real, bias, False, options, transposed)

    return read


for _rank in (1, 2, 3):
    _reads(f"conv{_rank}d_prepack")(_prepack(False))
    _reads(f"conv_transpose{_rank}d_prepack")(_prepack(True))


@_reads("hardswish")
def _hardswish(reader: Reader, input: Any, output_scale: Any, output_zero_point: Any) -> Levels:
    steps = _own_type(reader, input, output_scale, output_zero_point)
    return reader.in_steps(reader.function(F.hardswish, input), steps)


@_reads("sigmoid")
def _sigmoid(reader: Reader, qx: Any, output_scale: Any, output_zero_point: Any) -> Levels:
    steps = _own_type(reader, qx, output_scale, output_zero_point)
    return reader.in_steps(reader.function(torch.sigmoid, qx), steps)


@_reads("softmax")
def _softmax(
    reader: Reader, qx: Any, dim: int, output_scale: Any, output_zero_point: Any
) -> Levels:
    steps = _own_type(reader, qx, output_scale, output_zero_point)
    return reader.in_steps(reader.function(F.softmax, qx, dim=dim), steps)


@_reads("elu")
def _elu(
    reader: Reader,
    self: Any,
    output_scale: Any,
    output_zero_point: Any,
    alpha: float = 1.0,
    scale: float = 1.0,
    input_scale: float = 1.0,
) -> Levels:
    if (scale, input_scale) != (1, 1):
        raise reader.error(
            "a scale and an input_scale of 1", f"quantized.elu with {scale} and {input_scale}"
        )
    steps = _own_type(reader, self, output_scale, output_zero_point)
    return reader.in_steps(reader.function(F.elu, self, alpha), steps)


@_reads("celu")
def _celu(
    reader: Reader, self: Any, output_scale: Any, output_zero_point: Any, alpha: float = 1.0
) -> Levels:
    steps = _own_type(reader, self, output_scale, output_zero_point)
    return reader.in_steps(reader.function(F.celu, self, alpha), steps)


@_reads("leaky_relu")
def _leaky_relu(
    reader: Reader,
    qx: Any,
    negative_slope: float,
    inplace: bool,
    output_scale: Any,
    output_zero_point: Any,
) -> Levels:
    steps = _own_type(reader, qx, output_scale, output_zero_point)
    return reader.in_steps(reader.function(F.leaky_relu, qx, negative_slope), steps)


@_reads("prelu")
def _prelu(
    reader: Reader, qx: Any, weight: Any, output_scale: Any, output_zero_point: Any
) -> Levels:
    steps = _own_type(reader, qx, output_scale, output_zero_point)
    return reader.in_steps(reader.function(F.prelu, qx, weight), steps)


@_reads("layer_norm")
def _layer_norm(
    reader: Reader,
    input: Any,
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: float,
    output_scale: Any,
    output_zero_point: Any,
) -> Levels:
    steps = _own_type(reader, input, output_scale, output_zero_point)
    result = reader.function(F.layer_norm, input, normalized_shape, weight, bias, eps)
    return reader.in_steps(result, steps)


@_reads("group_norm")
def _group_norm(
    reader: Reader,
    qx: Any,
    num_groups: int,
    weight: Any,
    bias: Any,
    eps: float,
    output_scale: Any,
    output_zero_point: Any,
) -> Levels:
    steps = _own_type(reader, qx, output_scale, output_zero_point)
    result = reader.function(F.group_norm, qx, num_groups, weight, bias, eps)
    return reader.in_steps(result, steps)


@_reads("instance_norm")
def _instance_norm(
    reader: Reader,
    qx: Any,
    weight: Any,
    bias: Any,
    eps: float,
    output_scale: Any,
    output_zero_point: Any,
) -> Levels:
    steps = _own_type(reader, qx, output_scale, output_zero_point)
    result = reader.function(F.instance_norm, qx, weight=weight, bias=bias, eps=eps)
    return reader.in_steps(result, steps)


def _batch_norm(after: Any) -> Callable[..., Any]:
    def read(
        reader: Reader,
        qx: Any,
        weight: Any,
        bias: Any,
        mean: Any,
        var: Any,
        eps: float,
        output_scale: Any,
        output_zero_point: Any,
    ) -> Levels:
        steps = _own_type(reader, qx, output_scale, output_zero_point)
        result = reader.function(
            F.batch_norm, qx, mean, var, weight=weight, bias=bias, training=False, eps=eps
        )
        if after is not None:
            result = reader.function(after, result)
        return reader.in_steps(result, steps)

    return read


for _rank in ("", "1d", "2d", "3d"):
    _reads(f"batch_norm{_rank}")(_batch_norm(None))
    _reads(f"batch_norm{_rank}_relu")(_batch_norm(F.relu))


def _of_own_steps(function: Any) -> Callable[..., Any]:
    """A function whose result is in the steps of its input."""

    def read(reader: Reader, qx: Any, *args: Any, **kwargs: Any) -> Levels:
        steps = reader.steps_of(qx)
        return reader.in_steps(reader.function(function, qx, *args, **kwargs), steps)

    return read


_reads("clamp")(_of_own_steps(torch.clamp))
_reads("threshold")(_of_own_steps(F.threshold))


@_reads("relu6")
def _relu6(reader: Reader, qx: Any, inplace: bool = False) -> Levels:
    made = reader.in_steps(reader.function(F.relu6, qx), reader.steps_of(qx))
    if inplace:
        qx.write(made)
    return made


@_reads("max_pool1d")
def _max_pool1d(reader: Reader, qx: Any, *args: Any, **kwargs: Any) -> Levels:
    return Levels(reader.function(F.max_pool1d, qx, *args, **kwargs), reader.steps_of(qx))


@_reads("max_pool2d")
def _max_pool2d(reader: Reader, qx: Any, *args: Any, **kwargs: Any) -> Levels:
    return Levels(reader.function(F.max_pool2d, qx, *args, **kwargs), reader.steps_of(qx))


@_reads("dropout")
def _dropout(
    reader: Reader, self: Any, output_scale: Any, output_zero_point: Any, *more: Any
) -> Levels:
    return reader.levels(self)
