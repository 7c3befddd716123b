"""Elementwise arithmetic, comparisons and functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from corsac.analysis import Dim
from corsac.onnx._builder import Builder, Tensor
from corsac.onnx._spellings import BITS, COMPARISONS, FLOAT_FUNCTIONS, FUNCTIONS, LOGIC
from corsac.onnx._table import translates
from corsac.onnx._types import INTEGERS, Unsupported, common_dtype, is_float

# -- arithmetic ------------------------------------------------------------------------------------


@translates("add")
def add(g: Builder, input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input + alpha * other``; for booleans, or."""
    a, b = g.together(input, other)
    if a.dtype == torch.bool:
        _no_alpha(alpha)
        return g.op("Or", a, b)
    return g.op("Add", a, _times(g, b, alpha))


@translates("sub")
def sub(g: Builder, input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input - alpha * other``."""
    a, b = g.together(input, other)
    return g.op("Sub", a, _times(g, b, alpha))


@translates("rsub")
def rsub(g: Builder, input: Any, other: Any, alpha: Any = 1) -> Tensor:
    """``other - alpha * input``."""
    return sub(g, other, input, alpha=alpha)


@translates("mul")
def mul(g: Builder, input: Any, other: Any) -> Tensor:
    """The product; for booleans, and."""
    a, b = g.together(input, other)
    return g.op("And" if a.dtype == torch.bool else "Mul", a, b)


def _no_alpha(alpha: Any) -> None:
    if alpha != 1:
        raise Unsupported("alpha with booleans")


def _times(g: Builder, tensor: Tensor, factor: Any) -> Tensor:
    return tensor if factor == 1 else g.op("Mul", tensor, g.scalar(factor, tensor.dtype))


@translates("div")
def div(g: Builder, input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """The quotient, rounded according to ``rounding_mode``."""
    if rounding_mode == "floor":
        return floor_divide(g, input, other)
    dtype = common_dtype(input, other)
    if rounding_mode == "trunc":
        a, b = g.together(input, other)
        if not is_float(dtype):
            _check_divisor(other)
            return g.op("Div", a, b)
        return trunc(g, g.op("Div", a, b))
    if not is_float(dtype):
        dtype = torch.get_default_dtype()
    return g.op("Div", g.tensor(input, dtype), g.tensor(other, dtype))


def _check_divisor(other: Any) -> None:
    # Runtimes abort on an integer division by zero, where torch raises.
    constant = other.constant if isinstance(other, Tensor) else other
    if constant is None or not torch.as_tensor(2 if isinstance(other, Dim) else constant).all():
        raise Unsupported("an integer divisor that may be zero")


@translates("floor_divide")
def floor_divide(g: Builder, input: Any, other: Any) -> Tensor:
    """The quotient, rounded down as in Python."""
    a, b = g.together(input, other)
    if not is_float(a.dtype):
        _check_divisor(other)
        if a.dtype == torch.uint8:
            return g.op("Div", a, b)
        return g.op("Div", g.op("Sub", a, g.op("Mod", a, b)), b)
    # As torch and Python do it: subtract the remainder, then divide.
    rest = g.op("Mod", a, b, fmod=1)
    one, zero = g.scalar(1, a.dtype), g.scalar(0, a.dtype)
    quotient = g.op("Div", g.op("Sub", a, rest), b)
    differ = g.op(
        "And",
        _not_equal(g, rest, zero),
        g.op("Xor", _compare(g, "Less", b, zero), _compare(g, "Less", rest, zero)),
        dtype=torch.bool,
    )
    quotient = g.op("Where", differ, g.op("Sub", quotient, one), quotient, dtype=a.dtype)
    whole = g.op("Floor", quotient)
    over = _compare(g, "Greater", g.op("Sub", quotient, whole), g.scalar(0.5, a.dtype))
    whole = g.op("Where", over, g.op("Add", whole, one), whole, dtype=a.dtype)
    by_zero = g.op("Equal", b, zero, dtype=torch.bool)
    return g.op("Where", by_zero, g.op("Div", a, b), whole, dtype=a.dtype)


@translates("remainder")
def remainder(g: Builder, input: Any, other: Any) -> Tensor:
    """The remainder, with the sign of the divisor."""
    a, b = g.together(input, other)
    if not is_float(a.dtype):
        _check_divisor(other)
        return g.op("Mod", a, b)
    rest = g.op("Mod", a, b, fmod=1)
    zero = g.scalar(0, a.dtype)
    signs = g.op("Xor", _compare(g, "Less", b, zero), _compare(g, "Less", rest, zero))
    differ = g.op("And", _not_equal(g, rest, zero), signs, dtype=torch.bool)
    return g.op("Where", differ, g.op("Add", rest, b), rest, dtype=a.dtype)


@translates("fmod")
def fmod(g: Builder, input: Any, other: Any) -> Tensor:
    """The remainder, with the sign of the dividend."""
    a, b = g.together(input, other)
    if not is_float(a.dtype):
        _check_divisor(other)
    return g.op("Mod", a, b, fmod=1)


@translates("pow")
def power(g: Builder, input: Any, exponent: Any) -> Tensor:
    """Powers; squares and roots by their own operators."""
    a, b = g.together(input, exponent)
    if not is_float(a.dtype):
        if not isinstance(exponent, int) or exponent < 0:
            raise Unsupported("an integer power that is not known to be positive")
        if exponent == 2:
            return g.op("Mul", a, a)
        return g.op("Pow", a, b)
    if exponent == 2:
        return g.op("Mul", a, a)
    if exponent == 0.5:
        return g.op("Sqrt", a)
    if exponent == -1:
        return g.op("Reciprocal", a)
    return g.op("Pow", a, b)


@translates("addcmul")
def addcmul(g: Builder, input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
    return add(g, input, mul(g, tensor1, tensor2), alpha=value)


@translates("addcdiv")
def addcdiv(g: Builder, input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``."""
    return add(g, input, div(g, tensor1, tensor2), alpha=value)


@translates("lerp")
def lerp(g: Builder, input: Any, end: Any, weight: Any) -> Tensor:
    """``input + weight * (end - input)``."""
    return add(g, input, mul(g, weight, sub(g, end, input)))


@translates("maximum")
def maximum(g: Builder, input: Any, other: Any) -> Tensor:
    """The elementwise maximum."""
    return _extremum(g, "Max", input, other)


@translates("minimum")
def minimum(g: Builder, input: Any, other: Any) -> Tensor:
    """The elementwise minimum."""
    return _extremum(g, "Min", input, other)


def _extremum(g: Builder, kind: str, input: Any, other: Any) -> Tensor:
    a, b = g.together(input, other)
    if a.dtype == torch.bool:
        return g.op("Or" if kind == "Max" else "And", a, b)
    return g.op(kind, a, b)


@translates("clamp")
def clamp(g: Builder, input: Any, min: Any = None, max: Any = None) -> Tensor:
    """The input clamped between bounds, which may be tensors."""
    bounds = [bound for bound in (min, max) if bound is not None]
    result, *_ = g.together(input, *bounds)
    if min is not None:
        result = maximum(g, result, g.tensor(min, result.dtype))
    return result if max is None else minimum(g, result, g.tensor(max, result.dtype))


@translates("clamp_min")
def clamp_min(g: Builder, input: Any, min: Any) -> Tensor:
    """The input clamped from below."""
    return clamp(g, input, min)


@translates("clamp_max")
def clamp_max(g: Builder, input: Any, max: Any) -> Tensor:
    """The input clamped from above."""
    return clamp(g, input, None, max)


# -- comparisons and logic -------------------------------------------------------------------------


def _compare(g: Builder, kind: str, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype == torch.bool and kind != "Equal":
        a, b = g.cast(a, torch.int32), g.cast(b, torch.int32)
    return g.op(kind, a, b, dtype=torch.bool)


def _not_equal(g: Builder, a: Tensor, b: Tensor) -> Tensor:
    return g.op("Not", _compare(g, "Equal", a, b))


def _comparison(kind: str) -> Callable[..., Tensor]:
    def compare(g: Builder, input: Any, other: Any) -> Tensor:
        """A comparison, in the common dtype."""
        if kind == "NotEqual":
            return _not_equal(g, *g.together(input, other))
        return _compare(g, kind, *g.together(input, other))

    return compare


translates("ne")(_comparison("NotEqual"))
for _name, _kind in COMPARISONS.items():
    translates(_name)(_comparison(_kind))


def truth(g: Builder, value: Any) -> Tensor:
    """Whether elements are not zero."""
    return g.cast(g.tensor(value), torch.bool)


def _logical(kind: str) -> Callable[..., Tensor]:
    def combine(g: Builder, input: Any, other: Any) -> Tensor:
        """A logical operation on elements as truth values."""
        return g.op(kind, truth(g, input), truth(g, other))

    return combine


for _name, _kind in LOGIC.items():
    translates(_name)(_logical(_kind))


@translates("logical_not")
def logical_not(g: Builder, input: Any) -> Tensor:
    """Whether elements are zero."""
    return g.op("Not", truth(g, input))


def _bitwise(logic: str, bits: str) -> Callable[..., Tensor]:
    def combine(g: Builder, input: Any, other: Any) -> Tensor:
        """A bitwise operation."""
        a, b = g.together(input, other)
        return g.op(logic if a.dtype == torch.bool else bits, a, b)

    return combine


for _name, _kind in BITS.items():
    translates(_name)(_bitwise(_kind.removeprefix("Bitwise"), _kind))


@translates("bitwise_not")
def bitwise_not(g: Builder, input: Any) -> Tensor:
    """The bitwise complement."""
    tensor = g.tensor(input)
    return g.op("Not" if tensor.dtype == torch.bool else "BitwiseNot", tensor)


# -- selection -------------------------------------------------------------------------------------


@translates("where")
def where(g: Builder, condition: Any, input: Any = None, other: Any = None) -> Tensor:
    """``input`` where the condition is true, else ``other``."""
    if input is None or other is None:
        raise Unsupported("a result whose size depends on the elements")
    a, b = g.together(input, other)
    return g.op("Where", truth(g, condition), a, b, dtype=a.dtype)


@translates("masked_fill")
def masked_fill(g: Builder, input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """The input, replaced by a number where the mask is true."""
    return g.op("Where", mask, g.tensor(value, input.dtype), input, dtype=input.dtype)


# -- functions of one element ----------------------------------------------------------------------


def _in_floats(g: Builder, input: Any) -> Tensor:
    """The operand, cast for a function with a floating-point result."""
    tensor = g.tensor(input)
    return tensor if is_float(tensor.dtype) else g.cast(tensor, torch.get_default_dtype())


def _float_function(kind: str) -> Callable[..., Tensor]:
    def compute(g: Builder, input: Any) -> Tensor:
        """A function with a floating-point result."""
        return g.op(kind, _in_floats(g, input))

    return compute


for _name, _kind in FLOAT_FUNCTIONS.items():
    translates(_name)(_float_function(_kind))


@translates("rsqrt")
def rsqrt(g: Builder, input: Any) -> Tensor:
    """The reciprocal of the square root."""
    return g.op("Reciprocal", g.op("Sqrt", _in_floats(g, input)))


@translates("exp2")
def exp2(g: Builder, input: Any) -> Tensor:
    """Powers of two."""
    tensor = _in_floats(g, input)
    return g.op("Pow", g.scalar(2, tensor.dtype), tensor, shape=tensor.shape)


@translates("log2")
def log2(g: Builder, input: Any) -> Tensor:
    """The logarithm to base two."""
    result = g.op("Log", _in_floats(g, input))
    return g.op("Mul", result, g.scalar(1 / math.log(2), result.dtype))


@translates("log10")
def log10(g: Builder, input: Any) -> Tensor:
    """The logarithm to base ten."""
    result = g.op("Log", _in_floats(g, input))
    return g.op("Mul", result, g.scalar(1 / math.log(10), result.dtype))


@translates("log1p")
def log1p(g: Builder, input: Any) -> Tensor:
    """``log(1 + input)``, accurate for small numbers too."""
    x = _in_floats(g, input)
    one = g.scalar(1, x.dtype)
    sum_ = g.op("Add", x, one)
    # The quotient compensates for the rounding of the sum (Kahan).
    exact = g.op("Div", g.op("Mul", g.op("Log", sum_), x), g.op("Sub", sum_, one))
    small = g.op("Equal", sum_, one, dtype=torch.bool)
    infinite = g.op("Equal", x, g.scalar(math.inf, x.dtype), dtype=torch.bool)
    keep = g.op("Or", small, infinite)
    return g.op("Where", keep, x, exact, dtype=x.dtype)


@translates("expm1")
def expm1(g: Builder, input: Any) -> Tensor:
    """``exp(input) - 1``, accurate for small numbers too: computed from the hyperbolic tangent."""
    x = _in_floats(g, input)
    one, two = g.scalar(1, x.dtype), g.scalar(2, x.dtype)
    # exp(x) - 1 = 2 t / (1 - t), t = tanh(x / 2); for large numbers exp is accurate itself.
    half = g.op("Tanh", g.op("Div", x, two))
    small = g.op("Div", g.op("Mul", two, half), g.op("Sub", one, half))
    large = g.op("Sub", g.op("Exp", x), one)
    is_small = _compare(g, "Less", g.op("Abs", x), g.scalar(0.5, x.dtype))
    return g.op("Where", is_small, small, large, dtype=x.dtype)


def _same_dtype(kind: str) -> Callable[..., Tensor]:
    def compute(g: Builder, input: Any) -> Tensor:
        """A function with a result of the operand's dtype."""
        tensor = g.tensor(input)
        if tensor.dtype == torch.bool:
            raise Unsupported(f"{kind} of booleans")
        if tensor.dtype in INTEGERS and kind in ("Floor", "Ceil", "Round"):
            return tensor
        return g.op(kind, tensor)

    return compute


for _name, _kind in FUNCTIONS.items():
    if _name != "round":
        translates(_name, *(["sgn"] if _name == "sign" else []))(_same_dtype(_kind))


@translates("round")
def round_(g: Builder, input: Any, *, decimals: int = 0) -> Tensor:
    """The nearest integer, halves rounded to even."""
    if decimals != 0:
        raise Unsupported("rounding to decimals")
    return _same_dtype("Round")(g, input)


@translates("trunc")
def trunc(g: Builder, input: Any) -> Tensor:
    """The integer towards zero."""
    tensor = g.tensor(input)
    if not is_float(tensor.dtype):
        return tensor
    negative = _compare(g, "Less", tensor, g.scalar(0, tensor.dtype))
    up, down = g.op("Ceil", tensor), g.op("Floor", tensor)
    return g.op("Where", negative, up, down, dtype=tensor.dtype)


@translates("frac")
def frac(g: Builder, input: Any) -> Tensor:
    """The fractional part."""
    return g.op("Sub", g.tensor(input), trunc(g, input))


@translates("square")
def square(g: Builder, input: Any) -> Tensor:
    """The square."""
    return mul(g, input, input)


@translates("isnan")
def isnan(g: Builder, input: Tensor) -> Tensor:
    """Whether elements are NaN."""
    if not is_float(input.dtype):
        return g.expand(g.scalar(False, torch.bool), input.shape)
    return g.op("IsNaN", input, dtype=torch.bool)


@translates("isinf")
def isinf(g: Builder, input: Tensor) -> Tensor:
    """Whether elements are infinite."""
    if not is_float(input.dtype):
        return g.expand(g.scalar(False, torch.bool), input.shape)
    return g.op("IsInf", input, dtype=torch.bool)


@translates("isfinite")
def isfinite(g: Builder, input: Tensor) -> Tensor:
    """Whether elements are neither NaN nor infinite."""
    return g.op("Not", g.op("Or", isnan(g, input), isinf(g, input)))


@translates("logaddexp")
def logaddexp(g: Builder, input: Any, other: Any) -> Tensor:
    """The logarithm of the sum of exponentials."""
    a, b = g.together(input, other)
    apart = g.op("Neg", g.op("Abs", g.op("Sub", a, b)))
    return g.op("Add", g.op("Max", a, b), log1p(g, g.op("Exp", apart)))
