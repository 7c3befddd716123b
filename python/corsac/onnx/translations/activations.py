"""Activations and softmax."""

from __future__ import annotations

import math
from typing import Any

import torch

from corsac.onnx._builder import Builder, Tensor
from corsac.onnx._table import translates
from corsac.onnx._types import Unsupported, is_float, positive_dim
from corsac.onnx.translations.elementwise import clamp, log1p


def _floats(input: Tensor, what: str) -> None:
    if not is_float(input.dtype):
        raise Unsupported(f"{what} of integers")


@translates("relu")
def relu(g: Builder, input: Tensor, inplace: bool = False) -> Tensor:
    """Not below zero."""
    if input.dtype == torch.float32 or input.dtype == torch.float16:
        return g.op("Relu", input)
    return g.op("Max", input, g.scalar(0, input.dtype))


@translates("relu6")
def relu6(g: Builder, input: Tensor, inplace: bool = False) -> Tensor:
    """``clamp(input, 0, 6)``."""
    return clamp(g, input, 0, 6)


@translates("hardtanh")
def hardtanh(
    g: Builder, input: Tensor, min_val: Any = -1.0, max_val: Any = 1.0, inplace: bool = False
) -> Tensor:
    """The input clamped between two bounds."""
    _floats(input, "hardtanh")
    return clamp(g, input, min_val, max_val)


@translates("threshold")
def threshold(
    g: Builder, input: Tensor, threshold: Any, value: Any, inplace: bool = False
) -> Tensor:
    """The input where it is above the threshold, else ``value``."""
    above = g.op("Greater", input, g.scalar(threshold, input.dtype), dtype=torch.bool)
    return g.op("Where", above, input, g.scalar(value, input.dtype), dtype=input.dtype)


@translates("leaky_relu")
def leaky_relu(
    g: Builder, input: Tensor, negative_slope: float = 0.01, inplace: bool = False
) -> Tensor:
    """The input, times a slope below zero."""
    return g.op("LeakyRelu", input, alpha=float(negative_slope))


@translates("prelu", "_prelu_kernel")
def prelu(g: Builder, input: Tensor, weight: Tensor) -> Tensor:
    """The input, times a learned slope below zero, one for all or one per channel."""
    if weight.shape == (1,) or input.rank <= 1:
        slope = g.reshape(weight, (1,) * input.rank) if weight.shape == (1,) else weight
    else:
        shape = [1] * input.rank
        shape[1] = weight.shape[0] if weight.rank == 1 else input.shape[1]
        slope = g.reshape(weight, shape)
    return g.op("PRelu", input, slope, shape=input.shape)


@translates("rrelu")
def rrelu(
    g: Builder,
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """The input, times the mean slope below zero (evaluation only)."""
    if training:
        raise Unsupported("it uses random numbers in training")
    return leaky_relu(g, input, (lower + upper) / 2)


@translates("elu")
def elu(g: Builder, input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """The input above zero, ``alpha * (exp(input) - 1)`` below."""
    _floats(input, "elu")
    return g.op("Elu", input, alpha=float(alpha))


@translates("celu")
def celu(g: Builder, input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """The input above zero, ``alpha * (exp(input / alpha) - 1)`` below."""
    scale = g.scalar(alpha, input.dtype)
    return g.op("Mul", g.op("Elu", g.op("Div", input, scale), alpha=1.0), scale)


@translates("selu")
def selu(g: Builder, input: Tensor, inplace: bool = False) -> Tensor:
    """ELU with fixed constants."""
    return g.op("Selu", input, alpha=1.6732632423543772, gamma=1.0507009873554805)


@translates("gelu")
def gelu(g: Builder, input: Tensor, *, approximate: str = "none") -> Tensor:
    """The input times the normal distribution function."""
    if g.opset >= 20:
        return g.op("Gelu", input, approximate=approximate)
    half = g.op("Mul", input, g.scalar(0.5, input.dtype))
    one = g.scalar(1, input.dtype)
    if approximate == "none":
        inner = g.op("Erf", g.op("Mul", input, g.scalar(math.sqrt(0.5), input.dtype)))
    else:
        cube = g.op("Mul", g.op("Mul", input, input), input)
        cubed = g.op("Mul", cube, g.scalar(0.044715, input.dtype))
        scale = g.scalar(math.sqrt(2 / math.pi), input.dtype)
        inner = g.op("Tanh", g.op("Mul", g.op("Add", input, cubed), scale))
    return g.op("Mul", half, g.op("Add", inner, one))


@translates("silu")
def silu(g: Builder, input: Tensor, inplace: bool = False) -> Tensor:
    """The input times the logistic function."""
    return g.op("Mul", input, g.op("Sigmoid", input))


@translates("mish")
def mish(g: Builder, input: Tensor, inplace: bool = False) -> Tensor:
    """The input times the hyperbolic tangent of softplus."""
    return g.op("Mul", input, g.op("Tanh", softplus(g, input)))


@translates("softplus")
def softplus(g: Builder, input: Tensor, beta: Any = 1, threshold: Any = 20) -> Tensor:
    """``log(1 + exp(beta * input)) / beta``; the input itself above the threshold."""
    scale = g.scalar(beta, input.dtype)
    scaled = input if beta == 1 else g.op("Mul", input, scale)
    soft = log1p(g, g.op("Exp", scaled))
    soft = soft if beta == 1 else g.op("Div", soft, scale)
    above = g.op("Greater", scaled, g.scalar(threshold, input.dtype), dtype=torch.bool)
    return g.op("Where", above, input, soft, dtype=input.dtype)


@translates("logsigmoid")
def logsigmoid(g: Builder, input: Tensor) -> Tensor:
    """The logarithm of the logistic function."""
    away = g.op("Exp", g.op("Neg", g.op("Abs", input)))
    below = g.op("Min", input, g.scalar(0, input.dtype))
    return g.op("Sub", below, log1p(g, away))


@translates("softsign")
def softsign(g: Builder, input: Tensor) -> Tensor:
    """``input / (1 + |input|)``."""
    return g.op("Div", input, g.op("Add", g.op("Abs", input), g.scalar(1, input.dtype)))


@translates("tanhshrink")
def tanhshrink(g: Builder, input: Tensor) -> Tensor:
    """``input - tanh(input)``."""
    return g.op("Sub", input, g.op("Tanh", input))


@translates("softshrink")
def softshrink(g: Builder, input: Tensor, lambd: float = 0.5) -> Tensor:
    """The input moved towards zero by ``lambd``, at most to zero."""
    return g.op("Sub", input, clamp(g, input, -lambd, lambd))


@translates("hardshrink")
def hardshrink(g: Builder, input: Tensor, lambd: float = 0.5) -> Tensor:
    """The input, zero where its magnitude is at most ``lambd``."""
    within = g.op("LessOrEqual", g.op("Abs", input), g.scalar(lambd, input.dtype), dtype=torch.bool)
    return g.op("Where", within, g.scalar(0, input.dtype), input, dtype=input.dtype)


@translates("hardsigmoid")
def hardsigmoid(g: Builder, input: Tensor, inplace: bool = False) -> Tensor:
    """``clamp(input + 3, 0, 6) / 6``."""
    return g.op("HardSigmoid", input, alpha=1 / 6, beta=0.5)


@translates("hardswish")
def hardswish(g: Builder, input: Tensor, inplace: bool = False) -> Tensor:
    """The input times hardsigmoid."""
    if input.dtype == torch.float32:
        return g.op("HardSwish", input)
    return g.op("Mul", input, hardsigmoid(g, input))


@translates("glu")
def glu(g: Builder, input: Tensor, dim: int = -1) -> Tensor:
    """One half of the input times the logistic function of the other."""
    dim = positive_dim(dim, input.rank)
    size = input.shape[dim]
    if not isinstance(size, int):
        raise Unsupported("halves of a size that is not known")
    first, second = (g.slice(input, dim, at * (size // 2), (at + 1) * (size // 2)) for at in (0, 1))
    return g.op("Mul", first, g.op("Sigmoid", second))


# -- softmax ---------------------------------------------------------------------------------------


def _over(g: Builder, kind: str, input: Tensor, dim: int | None, dtype: Any) -> Tensor:
    if dim is None:
        # Torch's fallback for a missing dim, with a warning.
        dim = 0 if input.rank in (0, 1, 3) else 1
    input = input if dtype is None else g.cast(input, dtype)
    if input.rank == 0:
        input = g.reshape(input, (1,))
        return g.reshape(g.op(kind, input, axis=0), ())
    return g.op(kind, input, axis=positive_dim(dim, input.rank))


@translates("softmax")
def softmax(
    g: Builder, input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Softmax: exponentials that sum to one."""
    return _over(g, "Softmax", input, dim, dtype)


@translates("log_softmax")
def log_softmax(
    g: Builder, input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Logarithm of the softmax."""
    return _over(g, "LogSoftmax", input, dim, dtype)


@translates("_softmax")
def aten_softmax(g: Builder, input: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Softmax: exponentials that sum to one."""
    return _over(g, "Softmax", input, dim, g.out.dtype if half_to_float else None)


@translates("_log_softmax")
def aten_log_softmax(g: Builder, input: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Logarithm of the softmax."""
    return _over(g, "LogSoftmax", input, dim, g.out.dtype if half_to_float else None)


@translates("softmin")
def softmin(
    g: Builder, input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Softmax of the negated input."""
    return _over(g, "Softmax", g.op("Neg", input), dim, dtype)


# -- dropout ---------------------------------------------------------------------------------------


@translates("dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout",
            "stochastic_depth")  # fmt: skip
def dropout(
    g: Builder,
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    mode: str = "",
) -> Tensor:
    """The input itself (evaluation only)."""
    if training and p != 0:
        raise Unsupported("it uses random numbers in training")
    return input


@translates("alpha_dropout", "feature_alpha_dropout")
def alpha_dropout(
    g: Builder, input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """The input itself (evaluation only)."""
    return dropout(g, input, p, training)
