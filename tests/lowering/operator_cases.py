"""Calls of operators, with their inputs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Case:
    """A program of a few calls.

    ``stays``: the backends for which a node stays on the host, since it would not be exact.
    """

    name: str
    program: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    stays: tuple[str, ...] = ()


BOTH = ("onnxruntime", "openvino")
OPENVINO = ("openvino",)


def floats(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def positive(*shape: int) -> torch.Tensor:
    return floats(*shape).abs() + 0.1


def ints(
    *shape: int, low: int = -9, high: int = 9, dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + 1)
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def booleans(*shape: int) -> torch.Tensor:
    return ints(*shape) > 0


def _elementwise() -> Iterator[Case]:
    a, b, row = floats(3, 4), floats(3, 4) * 2 + 0.3, floats(4)
    i, j, small = ints(3, 4), ints(3, 4, low=1), ints(3, 4, dtype=torch.int32)
    yes, no = booleans(3, 4), booleans(4)
    for name in ("add", "sub", "mul", "truediv", "pow", "mod", "floordiv"):
        function = getattr(operator, name)
        rests = OPENVINO if name in ("mod", "floordiv") else ()
        yield Case(f"{name} of floats", function, (a.abs() + 0.5, b), rests)
        yield Case(f"{name} by a row", function, (a.abs() + 0.5, row), rests)
        yield Case(f"{name} by a number", lambda x, f=function: f(x, 3), (a,), rests)
        yield Case(f"a number {name}", lambda x, f=function: f(3.5, x), (a.abs() + 1,), rests)
        if name != "pow":
            grows = OPENVINO if name == "mul" else ()
            number = lambda x, f=function: f(x, 3)  # noqa: E731
            yield Case(f"{name} of integers by a number", number, (i,), grows)
            yield Case(f"{name} of int32 by a number", number, (small,))
            number = lambda x, f=function: f(x, -2.5)  # noqa: E731
            yield Case(f"{name} of integers by a float", number, (i,), rests)
    for name in ("add", "sub", "mul"):
        function = getattr(torch, name)
        grows = OPENVINO if name == "mul" else ()
        yield Case(f"{name} of integers", function, (i, j), grows)
        yield Case(f"{name} of int32 and int64", function, (small, j), grows)
        yield Case(f"{name} of integers and floats", function, (i, a))
    yield Case("floordiv of integers by integers", operator.floordiv, (i, j), BOTH)
    yield Case("alpha", lambda x, y: torch.add(x, y, alpha=2) - torch.sub(y, x, alpha=0.5), (a, b))
    yield Case("rsub", lambda x: torch.rsub(x, 1) + (2 - x), (a,))
    yield Case("add of booleans", torch.add, (yes, no))
    yield Case("mul of booleans", operator.mul, (yes, no))
    yield Case("booleans and a number", lambda x: x * 2.5 + 1, (yes,))
    for mode in (None, "floor", "trunc"):
        program = lambda x, y, m=mode: torch.div(x, y, rounding_mode=m)  # noqa: E731
        yield Case(f"div {mode}", program, (a * 5, b), OPENVINO if mode == "floor" else ())
        program = lambda x, m=mode: torch.div(x, -3, rounding_mode=m)  # noqa: E731
        yield Case(f"div {mode} of integers", program, (i,))
    exact = torch.tensor([1.0, -1.0, 6.0, -6.0, 0.3, 7.0])
    step = torch.tensor([0.1, 0.1, 0.2, 0.2, -0.1, -2.0])
    yield Case("floor_divide is Python's", torch.floor_divide, (exact, step), OPENVINO)
    yield Case("remainder has the divisor's sign", torch.remainder, (exact, step), OPENVINO)
    yield Case("fmod has the dividend's sign", torch.fmod, (exact * 7, step * 9), OPENVINO)
    yield Case("fmod of integers", lambda x: torch.fmod(x, 4), (i,))
    yield Case("remainder of integers", lambda x: x % -4, (i,))
    for exponent in (2, 3, 0.5, -1, -0.5, 2.5):
        yield Case(f"pow {exponent}", lambda x, e=exponent: x.abs() ** e, (a + 2,))
    yield Case("pow of integers", lambda x: x**3, (small,))
    yield Case("square of integers", lambda x: x**2, (i,), OPENVINO)
    yield Case("in place", lambda x: (x + 1).mul_(2).add_(x).clamp_(max=1), (a,))
    yield Case("iadd", lambda x: operator.iadd(x * 2, x), (a,))
    yield Case("in place keeps the dtype", lambda x, y: (x + 0).add_(y), (a, a.double()), OPENVINO)
    yield Case("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), (a, b, row))
    yield Case("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z), (a, b, row.abs() + 1))
    yield Case("lerp", lambda x, y: torch.lerp(x, y, 0.3), (a, b))
    yield Case("maximum", lambda x, y: torch.maximum(x, y) - torch.minimum(x, y), (a, b))
    yield Case("max of two", lambda x, y: torch.max(x, y) + torch.min(x, other=y), (i, j))
    yield Case("clamp", lambda x: x.clamp(-0.5, 0.5) + torch.clamp(x, max=0.1), (a,))
    yield Case("clamp of integers", lambda x: x.clamp(min=-2, max=3), (i,))
    yield Case("clamp of integers by floats", lambda x: x.clamp(min=-2.5), (i,))
    yield Case("clamp by tensors", torch.clamp, (a, row - 1, row + 0.5))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        function = getattr(torch, name)
        yield Case(f"{name} of floats", function, (a.round(), b.round()))
        yield Case(f"{name} of integers", function, (i, j))
        yield Case(f"{name} of mixed", lambda x, f=function: f(x, 0.5), (i,))
        yield Case(f"{name} of booleans", function, (yes, no))
    for name in ("logical_and", "logical_or", "logical_xor"):
        yield Case(name, getattr(torch, name), (i, a.round()))
    for name in ("and_", "or_", "xor"):
        function = getattr(operator, name)
        yield Case(f"{name} of booleans", function, (yes, no))
        yield Case(f"{name} of integers", function, (small, small + 3))
    yield Case("not", lambda x, y: (~x, ~y, torch.logical_not(y)), (yes, small))
    yield Case("where", torch.where, (yes, a, row))
    yield Case("where with numbers", lambda c, x: torch.where(c, x, -1e9), (yes, a))
    yield Case("where promotes", torch.where, (yes, i, a))
    yield Case("where as a method", lambda x, c, y: x.where(c, y), (a, no, b))
    yield Case("masked_fill", lambda x, m: x.masked_fill(m, float("-inf")), (a, no))
    yield Case("masked_fill in place", lambda x, m: (x * 1).masked_fill_(m, 2), (i, yes), OPENVINO)


def _functions() -> Iterator[Case]:
    a, near, above = floats(3, 5) * 2, torch.tensor([1e-6, -1e-5, 0.3, -0.6, 2.0]), positive(3, 5)
    i = ints(3, 5)
    for name in ("exp", "sin", "cos", "tanh", "sigmoid", "erf", "atan", "sinh", "cosh", "asinh",
                 "neg", "abs", "floor", "ceil", "round", "trunc", "frac", "sign", "square",
                 "exp2", "isnan", "isinf", "isfinite"):  # fmt: skip
        yield Case(name, getattr(torch, name), (a,))
    for name in ("sqrt", "rsqrt", "log", "log2", "log10", "reciprocal"):
        yield Case(name, getattr(torch, name), (above,))
    for name in ("tan", "asin", "acos", "atanh"):
        yield Case(name, getattr(torch, name), (a.tanh() * 0.9,))
    yield Case("acosh", torch.acosh, (above + 1,))
    yield Case("log1p of small numbers", torch.log1p, (near.abs(),))
    yield Case("expm1 of small numbers", torch.expm1, (near,))
    yield Case("logaddexp", torch.logaddexp, (a, a.flip(0)))
    for name in ("exp", "sqrt", "sigmoid", "tanh"):
        yield Case(f"{name} of integers", getattr(torch, name), (i.abs(),))
    for name in ("neg", "abs", "sign", "floor", "round", "trunc"):
        yield Case(f"{name} of integers", getattr(torch, name), (i,))
    special = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, 1.0])
    for name in ("isnan", "isinf", "isfinite"):
        yield Case(f"{name} of special values", getattr(torch, name), (special,))


def _activations() -> Iterator[Case]:
    a, image = floats(2, 6) * 3, floats(2, 4, 3, 3)
    modules = (
        nn.ReLU(), nn.ReLU6(), nn.ReLU(inplace=True), nn.Sigmoid(), nn.Tanh(), nn.ELU(),
        nn.ELU(0.7), nn.SELU(), nn.CELU(), nn.CELU(1.7), nn.GELU(), nn.GELU("tanh"), nn.SiLU(),
        nn.Mish(), nn.Softplus(), nn.Softplus(2, 3), nn.Softsign(), nn.Softshrink(),
        nn.Softshrink(0.3), nn.Hardshrink(), nn.Tanhshrink(), nn.LogSigmoid(), nn.Hardtanh(),
        nn.Hardtanh(-0.3, 2.0), nn.Hardsigmoid(), nn.Hardswish(), nn.LeakyReLU(),
        nn.LeakyReLU(0.3), nn.RReLU(), nn.Threshold(0.2, -4.0), nn.GLU(), nn.GLU(0), nn.PReLU(),
        nn.Softmax(-1), nn.Softmax(0), nn.LogSoftmax(1), nn.Softmin(1), nn.Identity(),
        nn.Dropout(), nn.AlphaDropout(),
    )  # fmt: skip
    for module in modules:
        first = nn.Softsign() if getattr(module, "inplace", False) else nn.Identity()
        yield Case(f"nn.{module}", nn.Sequential(first, module), (a,))
    yield Case("nn.PReLU(4)", nn.Sequential(nn.PReLU(4)), (image,))
    yield Case("nn.Softmax2d", nn.Sequential(nn.Softmax2d()), (image,))
    yield Case("nn.Dropout2d", nn.Sequential(nn.Dropout2d()), (image,))
    for name in ("relu", "relu6", "elu", "selu", "celu", "gelu", "silu", "mish", "softplus",
                 "softsign", "softshrink", "hardshrink", "tanhshrink", "logsigmoid", "hardtanh",
                 "hardsigmoid", "hardswish", "leaky_relu", "glu"):  # fmt: skip
        yield Case(f"F.{name}", getattr(F, name), (a,))
    yield Case(
        "F.softmax in double", lambda x: F.softmax(x, -1, dtype=torch.float64), (a,), OPENVINO
    )
    yield Case("softmax of integers", lambda x: x.softmax(0, dtype=torch.float32), (ints(3, 4),))
    yield Case("log_softmax", lambda x: torch.log_softmax(x, dim=0), (a,))
    yield Case("relu of integers", torch.relu, (ints(3, 4),))
    yield Case("F.dropout in evaluation", lambda x: F.dropout(x, 0.3, training=False) + 1, (a,))
    yield Case("relu of double", torch.relu, (a.double(),), OPENVINO)


def _reductions() -> Iterator[Case]:
    a, i, yes = floats(2, 3, 4), ints(2, 3, 4), booleans(2, 3, 4)
    dims: tuple[tuple[Any, ...], ...] = ((), (0,), (-1,), ((0, 2),), ((0, 1), True), (1, True))
    for name in ("sum", "mean", "amax", "amin", "std", "var", "logsumexp"):
        for given in dims:
            if name in ("logsumexp",) and not given:
                continue
            function = getattr(torch, name)
            keep = {"keepdim": True} if len(given) == 2 else {}
            program = lambda x, f=function, d=given[:1], k=keep: f(x, *d, **k)  # noqa: E731
            yield Case(f"{name}{given}", program, (a,))
    yield Case("sum of integers", lambda x: x.sum(1), (i,), OPENVINO)
    yield Case("sum of int32", lambda x: x.int().sum(1, dtype=torch.int32), (i,))
    yield Case("sum of booleans", lambda x: x.sum(-1), (yes,), OPENVINO)
    yield Case("mean in float", lambda x: x.mean(1, dtype=torch.float32), (i,))
    yield Case("prod", lambda x: torch.prod(x, 1), (a,))
    yield Case("prod of all", torch.prod, (a,))
    yield Case("amax of integers", lambda x: x.amax((0, 1)), (i,))
    yield Case("var", lambda x: x.var(1, unbiased=False) + x.var(dim=1, correction=2), (a,))
    yield Case("std of all", lambda x: x.std(False), (a,))
    yield Case("var_mean", lambda x: torch.var_mean(x, (1, 2), keepdim=True), (a,))
    yield Case("any", lambda x: (x.any(), x.any(1), x.any(-1, True)), (yes,))
    yield Case("all", lambda x: (x.all(), torch.all(x, 1), x.all(-1, True)), (yes,))
    yield Case("any of floats", lambda x: x.any(1), (a.round(),))
    for name in ("argmax", "argmin"):
        function = getattr(torch, name)
        yield Case(name, lambda x, f=function: (f(x), f(x, 1), f(x, -1, True)), (a,))
    ties = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    yield Case("argmax takes the first", lambda x: x.argmax(1), (ties,))
    yield Case("max", lambda x: x.max(1), (a,))
    yield Case("max values", lambda x: x.max(dim=1, keepdim=True)[0] + x.min(-1, True).values, (a,))
    yield Case("max of all", lambda x: (x.max(), x.min()), (a,))
    for p in (1, 2, 3, float("inf"), "fro"):
        yield Case(f"norm {p}", lambda x, p=p: torch.norm(x, p, dim=1), (a,))
    yield Case("vector_norm", lambda x: torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True), (a,))
    norms = lambda x: (torch.linalg.norm(x), torch.linalg.norm(x, 1, 0))  # noqa: E731
    yield Case("linalg.norm", norms, (floats(3, 4),))
    yield Case("norm of all", lambda x: x.norm(), (a,))
    yield Case("normalize", lambda x: F.normalize(x, dim=-1) + F.normalize(x, 1.0, 0), (a,))
    yield Case("cumsum", lambda x: torch.cumsum(x, 1) + x.cumsum(-1), (a,))
    yield Case("cumsum of booleans", lambda x: x.cumsum(1), (yes,), OPENVINO)
    yield Case("topk", lambda x: torch.topk(x, 2), (a,))
    yield Case("topk smallest", lambda x: x.topk(3, dim=1, largest=False), (a,))
    yield Case("sort", lambda x: torch.sort(x, 1), (a,))
    yield Case("argsort", lambda x: x.argsort(-1, descending=True), (a,))


def _matrices() -> Iterator[Case]:
    for left, right in (((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (7, 4, 5)),
                        ((4,), (4, 5)), ((2, 3, 4), (4,)), ((4,), (4,)), ((3, 4), (2, 4, 5))):  # fmt: skip
        yield Case(f"matmul {left} {right}", torch.matmul, (floats(*left), floats(*right)))
    a, b, c = floats(2, 3, 4), floats(2, 4, 5), floats(2, 3, 5)
    yield Case("bmm", torch.bmm, (a, b))
    yield Case(
        "mm and mv", lambda x, y: (x @ y.t(), x.mm(y.T), x.mv(y[0])), (floats(3, 4), floats(5, 4))
    )
    yield Case("matmul of integers", lambda x, y: x.int() @ y.int(), (ints(3, 4), ints(4, 5)))
    yield Case("baddbmm", lambda x, y, z: torch.baddbmm(x, y, z, beta=0.5, alpha=2), (c, a, b))
    yield Case("baddbmm of nothing", lambda x, y, z: torch.baddbmm(x, y, z, beta=0), (c, a, b))
    yield Case("baddbmm by name", lambda x, y, z: x.baddbmm(batch2=z, batch1=y), (c, a, b))
    yield Case("addmm", torch.addmm, (floats(5), floats(3, 4), floats(4, 5)))
    yield Case(
        "addmm with factors",
        lambda x, y, z: x.addmm(y, z, beta=2, alpha=3),
        (floats(3, 5), floats(3, 4), floats(4, 5)),
    )
    yield Case("outer", torch.outer, (floats(3), floats(4)))
    for bias in (True, False):
        yield Case(f"nn.Linear {bias}", nn.Sequential(nn.Linear(4, 5, bias)), (floats(3, 4),))
        yield Case(f"nn.Linear of rank 3 {bias}", nn.Sequential(nn.Linear(4, 5, bias)), (a,))
    yield Case("F.linear", F.linear, (floats(4), floats(5, 4), floats(5)))
    for equation, *shapes in (("ij,jk->ik", (3, 4), (4, 5)), ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
                              ("ii->i", (4, 4)), ("...i,i->...", (2, 3, 4), (4,)), ("ij->ji", (3, 4))):  # fmt: skip
        given = tuple(floats(*shape) for shape in shapes)
        yield Case(
            f"einsum {equation}", lambda *x, e=equation: torch.einsum(e, *x[:1], *x[1:]), given
        )


CASES = [
    *_elementwise(),
    *_functions(),
    *_activations(),
    *_reductions(),
    *_matrices(),
]
