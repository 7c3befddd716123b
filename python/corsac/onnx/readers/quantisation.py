"""Quantised tensors: all of ONNX's forms become quantise and dequantise operators on plain integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from corsac.onnx._emitter import Emitter
from corsac.onnx._model_reader import FEW_BITS, dtype_of, unpacked
from corsac.onnx._registry import MICROSOFT, reads
from corsac.onnx._types import Unsupported, name_of
from corsac.onnx._values import Value, is_whole
from corsac.onnx.readers.elementwise import like, of_8_bits

_FLOAT = torch.float32
_INTEGERS = (torch.uint8, torch.int8, torch.uint16, torch.int16, torch.int32)


@dataclass(frozen=True)
class Levels:
    """Integers, and the numbers for which they stand.

    Attributes:
        integers: the integers.
        scales: a constant of rank 0, or 1 along ``axis``, or the scales of blocks along it.
        zero_points: a constant of the shape of the scales; None for zeros.
        axis: the dimension of the channels; None if there is one scale.
        block: the number of integers along ``axis`` with one scale; 0 for channels.
        bounds: the smallest and the largest integer.
        dtype: the type of the numbers.
    """

    integers: Value
    scales: Value
    zero_points: Value | None
    axis: int | None
    block: int
    bounds: tuple[int, int]
    dtype: torch.dtype

    def zeros(self) -> torch.Tensor | None:
        """Zero points; None if all are 0."""
        if self.zero_points is None or self.zero_points.constant is None:
            return None
        found = self.zero_points.constant
        return found if bool(found.to(torch.int64).any()) else None


def _corsac() -> Any:
    return torch.ops.corsac


def _bounds(dtype: torch.dtype, bits: int | None) -> tuple[int, int]:
    if bits is not None:
        half = 2 ** (bits - 1)
        return (0, 2 * half - 1) if dtype == torch.uint8 else (-half, half - 1)
    if dtype not in _INTEGERS:
        raise Unsupported(f"levels of {name_of(dtype)}")
    limits = torch.iinfo(dtype)
    return limits.min, limits.max


def _is_known(*values: Value | None) -> bool:
    return all(own is None or own.constant is not None for own in values)


# -- quantise --------------------------------------------------------------------------------------


@reads("QuantizeLinear", since=10)
@reads("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(
    g: Emitter,
    input: Value,
    scale: Value,
    zero_point: Value | None = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
) -> Value:
    """Levels of numbers."""
    if output_dtype:
        dtype, bits = dtype_of(output_dtype), FEW_BITS.get(output_dtype)
    elif zero_point is None:
        dtype, bits = torch.uint8, None
    else:
        dtype, bits = zero_point.dtype, zero_point.facts.get("bits")
    if dtype.is_floating_point:
        steps = g.call(torch.div, input, _spread(g, scale, input, axis, block_size))
        return of_8_bits(g, steps, dtype, bool(saturate))
    bounds = _bounds(dtype, bits)
    result = quantised(g, input, scale, zero_point, axis, block_size, bounds, dtype)
    if bits:
        result.facts["bits"] = bits
    return result


def quantised(
    g: Emitter,
    input: Value,
    scale: Value,
    zero_point: Value | None,
    axis: int,
    block: int,
    bounds: tuple[int, int],
    dtype: torch.dtype,
) -> Value:
    """Levels of numbers, with the fact how they were made."""
    if is_whole(input.dtype):
        input = like(g, input, _FLOAT)
    if _is_known(scale, zero_point) and not block:
        zero = None if zero_point is None else zero_point.constant
        if scale.numel == 1:
            number = 0 if zero is None else int(zero.reshape(-1)[0])
            result = g.kept(
                _corsac().quantize_per_tensor, _narrow_float(g, input), float(scale.constant), number, *bounds,
                dtype,
            )  # fmt: skip
        else:
            result = g.kept(
                _corsac().quantize_per_channel, _narrow_float(g, input), _parameters(g, scale),
                _zero_points(g, zero_point), _axis(axis, input), *bounds, dtype,
            )  # fmt: skip
        again = (input, scale, zero_point, axis, block, dtype)
        result.facts["quantised"] = again
        result.facts["bounds"] = bounds
        return result
    scales = _spread(g, scale, input, axis, block)
    steps = g.call(torch.round, g.call(torch.div, input, scales))
    if zero_point is not None:
        zeros = like(g, _spread(g, zero_point, input, axis, block), steps.dtype)
        steps = g.call(torch.add, steps, zeros)
    result = like(g, g.call(torch.clamp, steps, *bounds), dtype)
    result.facts["bounds"] = bounds
    return result


def _narrow_float(g: Emitter, input: Value) -> Value:
    return like(g, input, _FLOAT) if input.dtype == torch.float64 else input


def _axis(axis: int, input: Value) -> int:
    return axis % max(input.rank, 1)


def _parameters(g: Emitter, scale: Value) -> Value:
    return g.constant(scale.constant.to(_FLOAT), scale.name, role="buffer")


def _zero_points(g: Emitter, zero_point: Value | None) -> Value | None:
    if zero_point is None or not bool(zero_point.constant.to(torch.int64).any()):
        return None
    return g.constant(zero_point.constant.to(torch.int32), zero_point.name, role="buffer")


def _spread(g: Emitter, parameters: Value, input: Value, axis: int, block: int) -> Value:
    """Parameters in a shape that broadcasts against the input."""
    if block:
        repeated = g.call(torch.repeat_interleave, parameters, block, axis)
        size = g.size(input, axis)
        return g.call(torch.ops.aten.slice.Tensor, repeated, axis, 0, size, 1)
    if parameters.rank == 0 or parameters.numel == 1:
        return parameters if parameters.rank == 0 else g.call(torch.reshape, parameters, [])
    shape = [1] * input.rank
    shape[axis] = -1
    return g.call(torch.reshape, parameters, shape)


def narrowed(g: Emitter, input: Value, low: int, high: int) -> Value | None:
    """Levels cut off at bounds, as one operator with the rounding before; None if there is none."""
    made = input.facts.get("quantised")
    if made is None:
        return None
    numbers, scale, zero_point, axis, block, dtype = made
    bounds = (max(low, input.facts["bounds"][0]), min(high, input.facts["bounds"][1]))
    return quantised(g, numbers, scale, zero_point, axis, block, bounds, dtype)


# -- dequantise ------------------------------------------------------------------------------------


@reads("DequantizeLinear", since=10)
@reads("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(
    g: Emitter,
    input: Value,
    scale: Value,
    zero_point: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Value:
    """Numbers of levels."""
    dtype = dtype_of(output_dtype) if output_dtype else scale.dtype
    if input.dtype.is_floating_point and input.dtype.itemsize == 1:
        return _arithmetic(g, input, scale, zero_point, axis, block_size, dtype)
    if input.dtype not in _INTEGERS:
        raise Unsupported(f"levels of {name_of(input.dtype)}")
    if zero_point is not None and zero_point.dtype != input.dtype:
        raise Unsupported(
            f"a zero point of {name_of(zero_point.dtype)} for levels of {name_of(input.dtype)}"
        )
    known = _is_known(scale, zero_point)
    if input.dtype == torch.int32 and input.constant is not None and known and not block_size:
        # A bias: as numbers, which are as many bytes.
        return g.constant(_numbers(input, scale, zero_point, axis).to(dtype), input.name)
    if not known:
        return _arithmetic(g, input, scale, zero_point, axis, block_size, dtype)
    bounds = input.facts.get("bounds") or _bounds(input.dtype, input.facts.get("bits"))
    along = None if scale.numel == 1 and not block_size else _axis(axis, input)
    levels = Levels(input, scale, zero_point, along, block_size, bounds, dtype)
    return dequantised(g, levels)


def _numbers(input: Value, scale: Value, zero_point: Value | None, axis: int) -> torch.Tensor:
    shape = [1] * input.rank
    if scale.numel != 1:
        shape[_axis(axis, input)] = -1
    zero = 0 if zero_point is None else zero_point.constant.to(torch.int32).reshape(shape)
    return (input.constant - zero).to(_FLOAT) * scale.constant.to(_FLOAT).reshape(shape)


def _arithmetic(
    g: Emitter,
    input: Value,
    scale: Value,
    zero_point: Value | None,
    axis: int,
    block: int,
    dtype: torch.dtype,
) -> Value:
    numbers = like(g, input, _FLOAT)
    if zero_point is not None:
        zeros = like(g, _spread(g, zero_point, input, axis, block), _FLOAT)
        numbers = g.call(torch.sub, numbers, zeros)
    scales = like(g, _spread(g, scale, input, axis, block), _FLOAT)
    return like(g, g.call(torch.mul, numbers, scales), dtype)


def dequantised(g: Emitter, levels: Levels) -> Value:
    """Numbers of levels, with the fact from which ones."""
    integers = levels.integers
    samples = tuple(torch.empty_like(own, dtype=levels.dtype) for own in integers.samples)
    outputs = list(g.outputs)

    def make() -> Value:
        g.outputs, before = outputs, g.outputs
        try:
            return like(g, _dequantise(g, levels), levels.dtype)
        finally:
            g.outputs = before

    value = g.later(samples, make)
    value.facts["levels"] = levels
    return value


def _dequantise(g: Emitter, levels: Levels) -> Value:
    integers, scale = levels.integers, levels.scales
    if levels.block:
        return _dequantise_blocks(g, levels)
    if levels.axis is None:
        zeros = levels.zeros()
        zero = 0 if zeros is None else int(zeros.reshape(-1)[0])
        return g.kept(
            _corsac().dequantize_per_tensor, integers, float(scale.constant), zero, *levels.bounds,
            integers.dtype,
        )  # fmt: skip
    return g.kept(
        _corsac().dequantize_per_channel, integers, _parameters(g, scale),
        _zero_points(g, levels.zero_points), levels.axis, *levels.bounds, integers.dtype,
    )  # fmt: skip


def _dequantise_blocks(g: Emitter, levels: Levels) -> Value:
    integers, block = levels.integers, levels.block
    rows = integers.rank == 2 and integers.constant is not None
    if rows and levels.axis == 0:
        turned = _turned(g, levels)
        if turned is not None:
            return g.kept(torch.t, _dequantise(g, turned))
    if rows and levels.axis == 1 and integers.shape[1] % block == 0:
        packed = _packed(g, integers, levels)
        return g.kept(
            _corsac().dequantize_per_channel_group, packed, _parameters(g, levels.scales),
            _zero_points(g, levels.zero_points), *levels.bounds, integers.dtype, block, _FLOAT,
        )  # fmt: skip
    return _arithmetic(
        g, integers, levels.scales, levels.zero_points, levels.axis or 0, block, levels.dtype
    )


def _packed(g: Emitter, integers: Value, levels: Levels) -> Value:
    """Integers of 4 bits as two in a byte."""
    from corsac.quantization._operators import pack_int4

    if levels.bounds != (-8, 7) or integers.dtype != torch.int8 or integers.shape[-1] % 2:
        return integers
    packed = g.constant(pack_int4(integers.constant), integers.name, role="buffer")
    return g.kept(_corsac().unpack_int4, packed)


def _turned(g: Emitter, levels: Levels) -> Levels | None:
    """The levels of the transpose of a matrix that is a constant."""
    integers, axis = levels.integers, levels.axis
    if integers.constant is None or integers.rank != 2:
        return None
    if levels.block and (axis != 0 or integers.shape[0] % levels.block):
        return None
    turned = g.constant(integers.constant.t().contiguous(), integers.name, role="buffer")
    turned.facts |= integers.facts
    if not levels.block:
        return replace(levels, integers=turned, axis=None if axis is None else 1 - axis)
    scales = g.constant(levels.scales.constant.t().contiguous(), levels.scales.name, role="buffer")
    zeros = levels.zero_points
    if zeros is not None:
        zeros = g.constant(zeros.constant.t().contiguous(), zeros.name, role="buffer")
    return replace(levels, integers=turned, scales=scales, zero_points=zeros, axis=1)


def weight_of_product(g: Emitter, weight: Value) -> Value | None:
    """The transpose of a dequantised matrix, as ``linear`` takes it."""
    levels = weight.facts.get("levels")
    if levels is None or weight.rank != 2:
        return None
    if "turned" not in weight.facts:
        turned = _turned(g, levels)
        weight.facts["turned"] = None if turned is None else dequantised(g, turned)
    return weight.facts["turned"]


# -- operators on levels ---------------------------------------------------------------------------


def _read(g: Emitter, input: Value, scale: Value, zero_point: Value | None, axis: int = 1) -> Value:
    return dequantize_linear(g, input, scale, zero_point, axis=axis)


def _written(g: Emitter, numbers: Value, scale: Value, zero_point: Value | None) -> Value:
    return quantize_linear(g, numbers, scale, zero_point)


@reads("QLinearMatMul", since=10)
def qlinear_matmul(
    g: Emitter, a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value, b_zero: Value,
    y_scale: Value, y_zero: Value,
) -> Value:  # fmt: skip
    from corsac.onnx.readers.matrices import matmul

    first = _read(g, a, a_scale, a_zero, max(a.rank - 2, 0))
    second = _read(g, b, b_scale, b_zero, max(b.rank - 1, 0))
    return _written(g, matmul(g, first, second), y_scale, y_zero)


@reads("QLinearConv", since=10)
def qlinear_conv(
    g: Emitter, x: Value, x_scale: Value, x_zero: Value, w: Value, w_scale: Value, w_zero: Value,
    y_scale: Value, y_zero: Value, bias: Value | None = None, **attributes: Any,
) -> Value:  # fmt: skip
    from corsac.onnx.readers.convolutions import conv

    if bias is not None:
        bias = _bias(g, bias, x_scale, w_scale)
    numbers = conv(
        g, _read(g, x, x_scale, x_zero), _read(g, w, w_scale, w_zero, 0), bias, **attributes
    )
    return _written(g, numbers, y_scale, y_zero)


def _bias(g: Emitter, bias: Value, x_scale: Value, w_scale: Value) -> Value:
    if not _is_known(bias, x_scale, w_scale):
        return g.call(torch.mul, bias, g.call(torch.mul, x_scale, w_scale))
    scale = (x_scale.constant * w_scale.constant).reshape(-1)
    return g.constant(bias.constant.to(_FLOAT) * scale, bias.name)


@reads("QGemm", domain=MICROSOFT)
def qgemm(
    g: Emitter, a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value, b_zero: Value,
    c: Value | None = None, y_scale: Value | None = None, y_zero: Value | None = None,
    *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Value:  # fmt: skip
    from corsac.onnx.readers.matrices import gemm

    if c is not None:
        c = _bias(g, c, a_scale, b_scale)
        if alpha != 1:
            c = g.call(torch.mul, c, alpha)
    second = _read(g, b, b_scale, b_zero, 0 if transB else 1)
    numbers = gemm(
        g, _read(g, a, a_scale, a_zero), second, c, alpha=alpha, transA=transA, transB=transB
    )
    return numbers if y_scale is None else _written(g, numbers, y_scale, y_zero)


def _of_two(function: Callable[..., Any]) -> Callable[..., Any]:
    def read(
        g: Emitter, a: Value, a_scale: Value, a_zero: Value | None, b: Value, b_scale: Value,
        b_zero: Value | None, y_scale: Value, y_zero: Value | None = None,
    ) -> Value:  # fmt: skip
        numbers = g.call(function, _read(g, a, a_scale, a_zero), _read(g, b, b_scale, b_zero))
        return _written(g, numbers, y_scale, y_zero)

    return read


reads("QLinearAdd", domain=MICROSOFT)(_of_two(torch.add))
reads("QLinearMul", domain=MICROSOFT)(_of_two(torch.mul))


@reads("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(
    g: Emitter,
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None = None,
) -> Value:
    numbers = g.call(torch.sigmoid, _read(g, x, x_scale, x_zero))
    return _written(g, numbers, y_scale, y_zero)


@reads("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(
    g: Emitter, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value | None = None,
    *, alpha: float = 0.01,
) -> Value:  # fmt: skip
    numbers = g.call(F.leaky_relu, _read(g, x, x_scale, x_zero), alpha)
    return _written(g, numbers, y_scale, y_zero)


@reads("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(
    g: Emitter, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value | None = None,
    *, axis: int = -1, opset: int,
) -> Value:  # fmt: skip
    from corsac.onnx._registry import reader_of

    reader = reader_of("", "Softmax", opset)
    assert reader is not None
    return _written(g, reader(g, _read(g, x, x_scale, x_zero), axis=axis), y_scale, y_zero)


@reads("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(
    g: Emitter, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value | None = None,
    *, channels_last: int = 0,
) -> Value:  # fmt: skip
    numbers = _read(g, x, x_scale, x_zero)
    first = 1 if channels_last else 2
    along = list(range(first, first + x.rank - 2))
    return _written(g, g.call(torch.mean, numbers, along, True), y_scale, y_zero)


@reads("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(
    g: Emitter, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value | None = None,
    *, channels_last: int = 0, **attributes: Any,
) -> Value:  # fmt: skip
    from corsac.onnx.readers.pooling import average_pool

    if channels_last:
        raise Unsupported("channels in the last dimension")
    return _written(g, average_pool(g, _read(g, x, x_scale, x_zero), **attributes), y_scale, y_zero)


@reads("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(g: Emitter, y_scale: Value, y_zero: Value, *parts: Value, axis: int) -> Value:
    triples = [parts[at : at + 3] for at in range(0, len(parts), 3)]
    numbers = g.call(torch.cat, [_read(g, *own) for own in triples], axis)
    return _written(g, numbers, y_scale, y_zero)


# -- dynamic quantisation --------------------------------------------------------------------------


@reads("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(g: Emitter, input: Value) -> Any:
    """Levels for the range of the input, their scale and their zero point."""
    ops = _corsac()
    row = g.call(torch.reshape, input, [1, -1])
    scales, zeros = g.call(ops.choose_qparams_per_token, row, 0, 255)
    levels = g.call(ops.quantize_per_token, row, scales, zeros, 0, 255, torch.uint8)
    numbers = g.call(ops.dequantize_per_token, levels, scales, zeros, 0, 255, torch.uint8, _FLOAT)
    scale = g.call(torch.reshape, scales, [])
    whole = g.call(torch.reshape, zeros, [])
    zero = like(g, whole, torch.uint8)
    # Divided by the scale, as ONNX defines it.
    steps = g.call(torch.add, g.call(torch.round, g.call(torch.div, input, scale)), whole)
    result = like(g, g.call(torch.clamp, steps, 0, 255), torch.uint8)
    result.facts["numbers"] = g.call(torch.reshape, numbers, g.shape(input))
    scale.facts["scales"] = (result, None)
    result.facts["zero"] = zero
    return result, scale, zero


def _shifted(g: Emitter, levels: Value, zero_point: Value | None, axis: int | None) -> Value:
    """Levels less their zero point, as float64, in which products of them are exact."""
    numbers = like(g, levels, torch.float64)
    if zero_point is None or zero_point.number == 0:
        return numbers
    zeros = like(g, zero_point, torch.float64)
    if zeros.rank == 1 and zeros.numel != 1 and axis is not None:
        shape = [1] * levels.rank
        shape[axis] = -1
        zeros = g.call(torch.reshape, zeros, shape)
    return g.call(torch.sub, numbers, zeros)


def _product(
    g: Emitter, a: Value, b: Value, zeros: tuple[Value | None, Value | None], axis: int, along: int,
    exact: Value, compute: Callable[[Value, Value], Value],
) -> Value:  # fmt: skip
    """A product of integers; multiplied by its scales it is ``compute`` of numbers.

    The channels are the dimension ``axis`` of ``b``, and of the product ``along``, counted from the end.
    """
    if "numbers" in a.facts and a.facts["zero"] is zeros[0] and _is_known(b, zeros[1]):
        exact.facts["product"] = (a, b, zeros[1], axis, along, compute)
    return exact


@reads("MatMulInteger", since=10)
def matmul_integer(
    g: Emitter, a: Value, b: Value, a_zero: Value | None = None, b_zero: Value | None = None
) -> Value:
    from corsac.onnx.readers.matrices import matmul

    numbers = [
        _shifted(g, a, a_zero, a.rank - 2 if a.rank > 1 else None),
        _shifted(g, b, b_zero, b.rank - 1),
    ]
    exact = like(g, g.call(torch.matmul, *numbers), torch.int32)
    return _product(
        g, a, b, (a_zero, b_zero), b.rank - 1, -1, exact, lambda x, weight: matmul(g, x, weight)
    )


@reads("ConvInteger", since=10)
def conv_integer(
    g: Emitter, x: Value, w: Value, x_zero: Value | None = None, w_zero: Value | None = None,
    **attributes: Any,
) -> Value:  # fmt: skip
    from corsac.onnx.readers.convolutions import conv

    numbers = _shifted(g, x, x_zero, None), _shifted(g, w, w_zero, 0)
    exact = like(g, conv(g, numbers[0], numbers[1], None, **attributes), torch.int32)
    return _product(
        g,
        x,
        w,
        (x_zero, w_zero),
        0,
        1 - w.rank,
        exact,
        lambda a, weight: conv(g, a, weight, None, **attributes),
    )


def scaled_product(g: Emitter, a: Value, b: Value) -> Value | None:
    """``a * b`` where these are scales, or a product of integers and its scales; None if they are neither."""
    for first, second in ((a, b), (b, a)):
        scales = first.facts.get("scales")
        if scales is not None and scales[1] is None and second.constant is not None:
            result = g.call(torch.mul, a, b)
            result.facts["scales"] = (scales[0], second)
            return result
        if scales is None or scales[1] is None or "product" not in second.facts:
            continue
        levels, weight, zero, axis, along, compute = second.facts["product"]
        if levels is not scales[0]:
            continue
        scale = scales[1]
        if scale.numel != 1 and (scale.rank < -along or scale.shape[along] != scale.numel):
            # Not one for each channel.
            return None
        known = Levels(
            weight,
            scale,
            zero,
            None if scale.numel == 1 else axis,
            0,
            _bounds(weight.dtype, None),
            _FLOAT,
        )
        if scale.numel != 1 and scale.rank != 1:
            known = replace(known, scales=g.constant(scale.constant.reshape(-1), scale.name))
        if zero is not None and zero.numel != scale.numel:
            return None
        return compute(levels.facts["numbers"], dequantised(g, known))
    return None


@reads("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    g: Emitter,
    a: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value | None = None,
    bias: Value | None = None,
) -> Value:
    from corsac.onnx.readers.matrices import matmul

    levels, _, _ = dynamic_quantize_linear(g, a)
    weight = _read(g, b, b_scale, b_zero, b.rank - 1)
    result = matmul(g, levels.facts["numbers"], weight)
    return result if bias is None else g.call(torch.add, result, bias)


@reads("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    g: Emitter, a: Value, b: Value, a_scale: Value, b_scale: Value, a_zero: Value | None = None,
    b_zero: Value | None = None, bias: Value | None = None,
) -> Value:  # fmt: skip
    from corsac.onnx.readers.matrices import matmul

    first = a.facts.get("numbers") or _read(g, a, a_scale, a_zero, max(a.rank - 2, 0))
    result = matmul(g, first, _read(g, b, b_scale, b_zero, b.rank - 1))
    return result if bias is None else g.call(torch.add, result, bias)


# -- weights in blocks -----------------------------------------------------------------------------


def weight_of_blocks(
    g: Emitter, weight: Value, scales: Value, zero_points: Value | None, groups: Value | None,
    columns: int, rows: int, bits: int, block: int,
) -> Value:  # fmt: skip
    """The matrix [rows, columns] of ``MatMulNBits``."""
    if groups is not None:
        raise Unsupported("g_idx: columns in another order than that of their scales")
    if bits not in (2, 4, 8):
        raise Unsupported(f"weights of {bits} bits, expected 2, 4 or 8")
    if not _is_known(weight, scales, zero_points):
        raise Unsupported("a weight that is no initialiser")
    blocks = -(-columns // block)
    blob = block * bits // 8
    if weight.numel != rows * blocks * blob or weight.dtype != torch.uint8:
        raise Unsupported(
            f"a weight of shape {list(weight.shape)}, expected uint8 of {[rows, blocks, blob]}"
        )
    if scales.numel != rows * blocks:
        raise Unsupported(f"{scales.numel} scales, expected {rows * blocks}")
    steps = g.constant(scales.constant.to(_FLOAT).reshape(rows, blocks), scales.name, role="buffer")
    half = 2 ** (bits - 1)
    zeros = _zeros_of_blocks(g, zero_points, rows, blocks, bits)
    data = weight.constant.reshape(rows, blocks * blob)
    if bits == 4:
        packed = g.constant(data ^ 0x88, weight.name, role="buffer")
        levels = g.kept(_corsac().unpack_int4, packed)
    else:
        whole = (
            (data ^ 0x80).view(torch.int8) if bits == 8 else (unpacked(data, 2) - 2).to(torch.int8)
        )
        levels = g.constant(whole, weight.name, role="buffer")
    matrix = g.kept(
        _corsac().dequantize_per_channel_group, levels, steps, zeros, -half, half - 1, torch.int8, block,
        _FLOAT,
    )  # fmt: skip
    if blocks * block != columns:
        matrix = g.kept(torch.ops.aten.slice.Tensor, matrix, 1, 0, columns, 1)
    return matrix


def _zeros_of_blocks(
    g: Emitter, zero_points: Value | None, rows: int, blocks: int, bits: int
) -> Value | None:
    if zero_points is None:
        return None
    half = 2 ** (bits - 1)
    found = zero_points.constant
    if found.dtype == torch.uint8 and bits < 8:
        found = unpacked(found.reshape(rows, -1), bits)[:, :blocks]
    shifted = found.reshape(rows, blocks).to(_FLOAT) - half
    if not bool(shifted.any()):
        return None
    whole = shifted.to(torch.int32)
    dtype = torch.int32 if torch.equal(whole.to(_FLOAT), shifted) else _FLOAT
    return g.constant(shifted.to(dtype), zero_points.name, role="buffer")
