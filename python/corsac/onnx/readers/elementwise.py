"""Elementwise arithmetic, comparisons and functions."""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from corsac.onnx import functions
from corsac.onnx._emitter import Emitter
from corsac.onnx._model_reader import FEW_BITS, dtype_of
from corsac.onnx._registry import reads, reads_sizes
from corsac.onnx._spellings import BITS, COMPARISONS, FLOAT_FUNCTIONS, FUNCTIONS, LOGIC
from corsac.onnx._types import Unsupported
from corsac.onnx._values import Size, Value, is_whole
from corsac.onnx.powers_of_two import to_powers_of_two


def like(g: Emitter, result: Value, dtype: torch.dtype) -> Value:
    """The value in a type."""
    return result if result.dtype == dtype else g.method("to", result, dtype)


# -- arithmetic ------------------------------------------------------------------------------------


# Types for which PyTorch has hardly any function.
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


def _signed(g: Emitter, function: Callable[..., Any], *operands: Value, **options: Any) -> Value:
    """A function of unsigned integers that PyTorch has for signed ones only."""
    dtype = operands[0].dtype
    result = g.call(function, *(like(g, own, torch.int64) for own in operands), **options)
    return result if result.dtype == torch.bool else like(g, result, dtype)


def _commutative(g: Emitter, function: Callable[..., Any], a: Value, b: Value) -> Value:
    """A function of two values whose order does not matter: a number is the second one."""
    if a.dtype in _UNSIGNED:
        return _signed(g, function, a, b)
    first = g.operand(a, b)
    if isinstance(first, Value):
        return g.call(function, a, g.operand(b, a))
    return g.call(function, b, first)


@reads("Add", since=7)
def add(g: Emitter, a: Value, b: Value) -> Value:
    return _commutative(g, torch.add, a, b)


@reads("Mul", since=7)
def mul(g: Emitter, a: Value, b: Value) -> Value:
    from corsac.onnx.readers.quantisation import scaled_product

    product = scaled_product(g, a, b)
    return _commutative(g, torch.mul, a, b) if product is None else product


@reads("Sub", since=7)
def sub(g: Emitter, a: Value, b: Value) -> Value:
    if a.dtype in _UNSIGNED:
        return _signed(g, torch.sub, a, b)
    first = g.operand(a, b)
    if isinstance(first, Value):
        return g.call(torch.sub, a, g.operand(b, a))
    return g.call(operator.sub, first, b)


@reads("Div", since=7)
def div(g: Emitter, a: Value, b: Value) -> Value:
    if a.dtype in _UNSIGNED:
        return _signed(g, torch.div, a, b, rounding_mode="trunc")
    if is_whole(a.dtype):
        return g.call(torch.div, a, g.operand(b, a), rounding_mode="trunc")
    first = g.operand(a, b)
    if isinstance(first, Value):
        return g.call(torch.div, a, g.operand(b, a))
    return g.call(operator.truediv, first, b)


@reads("Mod", since=10)
def mod(g: Emitter, a: Value, b: Value, *, fmod: int = 0) -> Value:
    function = torch.fmod if fmod else torch.remainder
    if a.dtype in _UNSIGNED:
        return _signed(g, function, a, b)
    return g.call(function, a, g.operand(b, a))


@reads("Pow", since=7)
def power(g: Emitter, a: Value, b: Value) -> Value:
    exponent = b.number
    if isinstance(exponent, float) and exponent.is_integer() and is_whole(a.dtype):
        exponent = int(exponent)
    if exponent is not None and b.rank <= a.rank and a.rank:
        return like(g, g.call(torch.pow, a, exponent), a.dtype)
    if is_whole(a.dtype) and not is_whole(b.dtype):
        return like(g, g.call(torch.pow, like(g, a, torch.float64), b), a.dtype)
    return like(g, g.call(torch.pow, a, b), a.dtype)


def _folded(function: Callable[..., Any]) -> Callable[..., Any]:
    def read(g: Emitter, *inputs: Value) -> Value:
        if inputs[0].dtype in _UNSIGNED:
            return functools.reduce(lambda a, b: _signed(g, function, a, b), inputs)
        return functools.reduce(lambda a, b: g.call(function, a, b), inputs)

    return read


reads("Max", since=6)(_folded(torch.maximum))
reads("Min", since=6)(_folded(torch.minimum))


@reads("Sum", since=6)
def sum_(g: Emitter, *inputs: Value) -> Value:
    return functools.reduce(lambda a, b: add(g, a, b), inputs)


@reads("Mean", since=6)
def mean(g: Emitter, *inputs: Value) -> Value:
    return g.call(torch.div, sum_(g, *inputs), len(inputs))


@reads("Clip", since=11)
def clip(g: Emitter, input: Value, min: Value | None = None, max: Value | None = None) -> Value:
    if min is None and max is None:
        return input
    numbers = [None if own is None else own.number for own in (min, max)]
    if "quantised" in input.facts and None not in numbers:
        from corsac.onnx.readers.quantisation import narrowed

        levels = narrowed(g, input, *numbers)
        if levels is not None:
            return levels
    if all(
        own is not None or number is None for own, number in zip((min, max), numbers, strict=True)
    ):
        known = [own for own in numbers if own is not None]
        if len(known) == sum(own is not None for own in (min, max)):
            if numbers[0] == 0 and numbers[1] == 6 and not is_whole(input.dtype):
                return g.call(torch.nn.functional.relu6, input)
            return g.call(torch.clamp, input, min=numbers[0], max=numbers[1])
    result = input if min is None else g.call(torch.maximum, input, min)
    return result if max is None else g.call(torch.minimum, result, max)


@reads("Clip", since=6)
def clip_6(
    g: Emitter,
    input: Value,
    *,
    min: float = -3.4028234663852886e38,
    max: float = 3.4028234663852886e38,
) -> Value:
    # The defaults are of float32; torch has no clamp at numbers that a type lacks.
    limits = torch.finfo(input.dtype)
    low, high = builtins.max(min, limits.min), builtins.min(max, limits.max)
    return g.call(torch.clamp, input, min=low, max=high)


# -- comparisons and logic -------------------------------------------------------------------------


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    def read(g: Emitter, a: Value, b: Value) -> Value:
        if a.dtype in _UNSIGNED:
            return _signed(g, function, a, b)
        return g.call(function, a, g.operand(b, a))

    return read


for _name, _kind in (COMPARISONS | LOGIC | BITS).items():
    reads(_kind, since=7)(_binary(getattr(torch, _name)))


@reads("Not")
def logical_not(g: Emitter, input: Value) -> Value:
    return g.call(torch.logical_not, input)


@reads("BitwiseNot", since=18)
def bitwise_not(g: Emitter, input: Value) -> Value:
    if input.dtype in _UNSIGNED:
        return _signed(g, torch.bitwise_not, input)
    return g.call(torch.bitwise_not, input)


@reads("BitShift", since=11)
def bit_shift(g: Emitter, a: Value, b: Value, *, direction: str) -> Value:
    left = direction.upper() == "LEFT"
    function = torch.bitwise_left_shift if left else torch.bitwise_right_shift
    if a.dtype in _UNSIGNED:
        return _signed(g, function, a, b)
    return g.call(function, a, b)


@reads("Where", since=9)
def where(g: Emitter, condition: Value, a: Value, b: Value) -> Value:
    return g.call(torch.where, condition, a, b)


# -- functions of one element ----------------------------------------------------------------------


def unary(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reader of an operator that is a function of one tensor."""

    def read(g: Emitter, input: Value) -> Value:
        return g.call(function, input)

    return read


for _name, _kind in (FLOAT_FUNCTIONS | FUNCTIONS).items():
    reads(_kind, since=6)(unary(getattr(torch, _name)))
reads("IsNaN", since=9)(unary(torch.isnan))


@reads("IsInf", since=10)
def isinf(g: Emitter, input: Value, *, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    if detect_negative and detect_positive:
        return g.call(torch.isinf, input)
    if detect_positive:
        return g.call(torch.eq, input, math.inf)
    if detect_negative:
        return g.call(torch.eq, input, -math.inf)
    return g.call(torch.zeros_like, input, dtype=torch.bool)


@reads("Identity", "Dropout", since=1)
def identity(g: Emitter, input: Any, *ignored: Any, ratio: float = 0.5, seed: int = 0) -> Any:
    training = ignored[1] if len(ignored) > 1 else None
    if training is not None:
        if training.number is None:
            raise Unsupported("a mode of training that depends on the inputs")
        if training.number and not (ignored[0] is not None and ignored[0].number == 0):
            raise Unsupported("it uses random numbers in training")
    if len(g.outputs) > 1:
        return input, g.call(torch.ones_like, input, dtype=torch.bool)
    return input


@reads("Cast", since=6)
def cast(g: Emitter, input: Value, *, to: int, saturate: int = 1, round_mode: str = "up") -> Value:
    dtype = dtype_of(to)
    if to in FEW_BITS:
        return _of_few_bits(g, input, dtype, FEW_BITS[to])
    if dtype.itemsize == 1 and dtype.is_floating_point:
        return of_8_bits(g, input, dtype, bool(saturate), round_mode)
    if "product" in input.facts:
        # Of integers, which is multiplied by its scales later.
        result = like(g, input, dtype)
        result.facts["product"] = input.facts["product"]
        return result
    return like(g, input, dtype)


@reads("CastLike", since=15)
def cast_like(
    g: Emitter, input: Value, target: Value, *, saturate: int = 1, round_mode: str = "up"
) -> Value:
    if "bits" in target.facts:
        return _of_few_bits(g, input, target.dtype, target.facts["bits"])
    if target.dtype.itemsize == 1 and target.dtype.is_floating_point:
        return of_8_bits(g, input, target.dtype, bool(saturate), round_mode)
    return like(g, input, target.dtype)


def _of_few_bits(g: Emitter, input: Value, dtype: torch.dtype, bits: int) -> Value:
    """Integers of ``bits`` bits, which are stored with 8."""
    low = g.call(torch.bitwise_and, like(g, input, torch.int32), 2**bits - 1)
    if dtype == torch.int8:
        sign = 2 ** (bits - 1)
        low = g.call(torch.sub, g.call(torch.bitwise_xor, low, sign), sign)
    result = like(g, low, dtype)
    result.facts["bits"] = bits
    return result


def of_8_bits(
    g: Emitter, input: Value, dtype: torch.dtype, saturate: bool, round_mode: str = "up"
) -> Value:
    """Floating-point numbers of 8 bits; those that are too large are the largest ones if ``saturate``."""
    if dtype == torch.float8_e8m0fnu:
        return g.call(to_powers_of_two, input, round_mode, saturate)
    largest = torch.finfo(dtype).max
    if not saturate and dtype == torch.float8_e4m3fn:
        # There is no infinity: what would be rounded to more than the largest number is NaN.
        wide = like(g, input, torch.float32)
        fits = g.call(torch.le, g.call(torch.abs, wide), largest + 16)
        input = g.call(torch.where, fits, wide, g.literal(float("nan"), torch.float32))
    if saturate and input.dtype.is_floating_point and input.dtype.itemsize > 1:
        input = g.call(torch.clamp, input, -largest, largest)
    return like(g, input, dtype)


@reads("BitCast", since=26)
def bit_cast(g: Emitter, input: Value, *, to: int) -> Value:
    return g.method("view", input, dtype_of(to))


# -- on sizes --------------------------------------------------------------------------------------


@reads_sizes("Add")
def add_sizes(g: Emitter, a: Any, b: Any) -> Any:
    return a + b


@reads_sizes("Sub")
def sub_sizes(g: Emitter, a: Any, b: Any) -> Any:
    return a - b


@reads_sizes("Mul")
def mul_sizes(g: Emitter, a: Any, b: Any) -> Any:
    return a * b


@reads_sizes("Div")
def div_sizes(g: Emitter, a: Any, b: Any) -> Any:
    return np.frompyfunc(lambda x, y: _quotient(g, x, y), 2, 1)(a, b)


def _quotient(g: Emitter, a: Any, b: Any) -> Any:
    """A quotient of sizes, rounded towards zero."""
    if _is_positive(a) and _is_positive(b):
        return a // b
    function = functions.truncated_quotient
    if isinstance(a, Size) or isinstance(b, Size):
        return g.number(function, a, b)
    return function(a, b)


def _is_positive(number: Any) -> bool:
    try:
        return number >= 0
    except Unsupported:
        return False


@reads_sizes("Mod")
def mod_sizes(g: Emitter, a: Any, b: Any, fmod: int = 0) -> Any:
    return a - div_sizes(g, a, b) * b if fmod else a % b


@reads_sizes("Neg")
def neg_sizes(g: Emitter, a: Any) -> Any:
    return -a


@reads_sizes("Identity")
def identity_sizes(g: Emitter, a: Any) -> Any:
    return a


@reads_sizes("Max")
def max_sizes(g: Emitter, *inputs: Any) -> Any:
    return functools.reduce(_greater, inputs)


def _greater(a: Any, b: Any) -> Any:
    return np.frompyfunc(lambda x, y: x if x >= y else y, 2, 1)(a, b)


def _compared(function: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    def read(g: Emitter, a: Any, b: Any) -> Any:
        try:
            found = np.frompyfunc(function, 2, 1)(a, b)
        except Unsupported:
            return None
        return g.literal(np.asarray(found).astype(bool).tolist(), torch.bool)

    return read


for _name, _kind in COMPARISONS.items():
    reads_sizes(_kind)(_compared(getattr(operator, _name)))


@reads_sizes("Where")
def where_sizes(g: Emitter, condition: Any, a: Any, b: Any) -> Any:
    return np.frompyfunc(lambda own, x, y: x if own else y, 3, 1)(condition, a, b)


@reads_sizes("Cast")
def cast_sizes(g: Emitter, a: Any, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    dtype = dtype_of(to)
    return g.sizes(a, dtype) if is_whole(dtype) and dtype != torch.bool else None
