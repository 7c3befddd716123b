"""Activations and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from corsac.onnx._emitter import Emitter
from corsac.onnx._registry import reads
from corsac.onnx._values import Value
from corsac.onnx.readers.elementwise import unary

reads("Relu")(unary(torch.relu))
reads("Softsign")(unary(F.softsign))
reads("Softplus")(unary(F.softplus))
reads("HardSwish", since=14)(unary(F.hardswish))
reads("Mish", since=18)(unary(F.mish))


@reads("LeakyRelu")
def leaky_relu(g: Emitter, input: Value, *, alpha: float = 0.01) -> Value:
    return g.call(F.leaky_relu, input, alpha)


@reads("Elu")
def elu(g: Emitter, input: Value, *, alpha: float = 1.0) -> Value:
    return g.call(F.elu, input, alpha)


@reads("Celu", since=12)
def celu(g: Emitter, input: Value, *, alpha: float = 1.0) -> Value:
    return g.call(F.celu, input, alpha)


@reads("Selu")
def selu(
    g: Emitter,
    input: Value,
    *,
    alpha: float = 1.6732631921768188,
    gamma: float = 1.0507010221481323,
) -> Value:
    if math.isclose(alpha, 1.67326319, rel_tol=1e-6) and math.isclose(
        gamma, 1.05070102, rel_tol=1e-6
    ):
        return g.call(F.selu, input)
    return g.call(torch.mul, g.call(F.elu, input, alpha), gamma)


@reads("ThresholdedRelu", since=10)
def thresholded_relu(g: Emitter, input: Value, *, alpha: float = 1.0) -> Value:
    return g.call(F.threshold, input, alpha, 0.0)


@reads("PRelu", since=7)
def prelu(g: Emitter, input: Value, slope: Value) -> Value:
    if slope.constant is not None and input.rank >= 2 and slope.rank <= input.rank:
        shape = [1] * (input.rank - slope.rank) + list(slope.shape)
        if shape[1] == slope.numel and (slope.numel == 1 or shape[1] == input.shape[1]):
            flat = g.constant(slope.constant.reshape(-1), slope.name)
            return g.call(F.prelu, input, flat)
    scaled = g.call(torch.mul, slope, input)
    return g.call(torch.where, g.call(torch.lt, input, 0), scaled, input)


@reads("HardSigmoid")
def hard_sigmoid(g: Emitter, input: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Value:
    if math.isclose(alpha, 1 / 6, rel_tol=1e-6) and beta == 0.5:
        return g.call(F.hardsigmoid, input)
    scaled = g.call(torch.add, g.call(torch.mul, input, alpha), beta)
    return g.call(torch.clamp, scaled, min=0, max=1)


@reads("Gelu", since=20)
@reads("Gelu", domain="com.microsoft")
def gelu(g: Emitter, input: Value, *, approximate: str = "none") -> Value:
    return g.call(F.gelu, input, approximate=approximate)


@reads("FastGelu", domain="com.microsoft")
def fast_gelu(g: Emitter, input: Value, bias: Value | None = None) -> Value:
    if bias is not None:
        input = g.call(torch.add, input, bias)
    return g.call(F.gelu, input, approximate="tanh")


@reads("QuickGelu", domain="com.microsoft")
def quick_gelu(g: Emitter, input: Value, *, alpha: float = 1.702) -> Value:
    return g.call(torch.mul, input, g.call(torch.sigmoid, g.call(torch.mul, input, alpha)))


@reads("Swish", since=24)
def swish(g: Emitter, input: Value, *, alpha: float = 1.0) -> Value:
    return g.call(F.silu, input) if alpha == 1 else quick_gelu(g, input, alpha=alpha)


@reads("Shrink", since=9)
def shrink(g: Emitter, input: Value, *, bias: float = 0.0, lambd: float = 0.5) -> Value:
    low, high = g.call(torch.lt, input, -lambd), g.call(torch.gt, input, lambd)
    zeros = g.call(torch.zeros_like, input)
    above = g.call(torch.where, high, g.call(torch.sub, input, bias), zeros)
    return g.call(torch.where, low, g.call(torch.add, input, bias), above)


def _normalised(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def read(g: Emitter, input: Value, *, axis: int = -1) -> Value:
        return g.call(function, input, axis)

    def over_the_rest(g: Emitter, input: Value, *, axis: int = 1) -> Value:
        # Before version 13 all dimensions from the axis on are one.
        axis %= max(input.rank, 1)
        if axis == input.rank - 1:
            return g.call(function, input, axis)
        flat = g.call(torch.flatten, input, axis)
        return g.call(torch.reshape, g.call(function, flat, -1), g.shape(input))

    return read, over_the_rest


for _kind, _function in (("Softmax", F.softmax), ("LogSoftmax", F.log_softmax)):
    _new, _old = _normalised(_function)
    reads(_kind, since=13)(_new)
    reads(_kind, since=1)(_old)


@reads("Hardmax", since=13)
def hardmax(g: Emitter, input: Value, *, axis: int = -1) -> Value:
    found = g.call(torch.argmax, input, axis, keepdim=True)
    return g.call(torch.scatter, g.call(torch.zeros_like, input), axis, found, 1)
