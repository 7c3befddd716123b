"""Sums, means, extrema and sorting."""

from __future__ import annotations

import math
from typing import Any

import torch

from corsac.onnx._builder import Builder, Tensor
from corsac.onnx._table import translates
from corsac.onnx._types import Unsupported, is_float, is_static, positive_dim
from corsac.onnx.translations.elementwise import maximum, minimum, truth


def axes_of(input: Tensor, dim: Any) -> list[int]:
    """The dimensions in ``dim``; all of them if it is None or empty."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return list(range(input.rank))
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    if not all(isinstance(at, int) for at in dims):
        raise Unsupported("dimensions that are not known")
    return [positive_dim(at, input.rank) for at in dims]


def _reduced(g: Builder, kind: str, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    axes = axes_of(input, dim)
    return g.reduce(kind, input, axes, keepdim) if input.rank else input


def _accumulated(g: Builder, input: Tensor, dtype: Any) -> Tensor:
    """The input, cast to the dtype in which torch accumulates."""
    if dtype is None:
        dtype = input.dtype if is_float(input.dtype) else torch.int64
    return g.cast(input, dtype)


@translates("sum")
def sum_(
    g: Builder, input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The sum; for integers as int64."""
    return _reduced(g, "ReduceSum", _accumulated(g, input, dtype), dim, keepdim)


@translates("mean")
def mean(
    g: Builder, input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The mean."""
    return _reduced(g, "ReduceMean", _accumulated(g, input, dtype), dim, keepdim)


@translates("prod")
def prod(
    g: Builder, input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The product; for integers as int64."""
    return _reduced(g, "ReduceProd", _accumulated(g, input, dtype), dim, keepdim)


@translates("amax")
def amax(g: Builder, input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The largest element."""
    return _extremum(g, "ReduceMax", input, dim, keepdim)


@translates("amin")
def amin(g: Builder, input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The smallest element."""
    return _extremum(g, "ReduceMin", input, dim, keepdim)


def _extremum(g: Builder, kind: str, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    if input.dtype == torch.bool:
        found = _reduced(g, kind, g.cast(input, torch.int32), dim, keepdim)
        return g.cast(found, torch.bool)
    return _reduced(g, kind, input, dim, keepdim)


@translates("any")
def any_(g: Builder, input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether any element is not zero."""
    return g.cast(_extremum(g, "ReduceMax", truth(g, input), dim, keepdim), g.out.dtype)


@translates("all")
def all_(g: Builder, input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether no element is zero."""
    return g.cast(_extremum(g, "ReduceMin", truth(g, input), dim, keepdim), g.out.dtype)


@translates("argmax")
def argmax(g: Builder, input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The index of the first largest element."""
    return _arg(g, "ArgMax", input, dim, keepdim)


@translates("argmin")
def argmin(g: Builder, input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The index of the first smallest element."""
    return _arg(g, "ArgMin", input, dim, keepdim)


def _arg(g: Builder, kind: str, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    if dim is None or input.rank == 0:
        flat = g.op("Reshape", input, g.ints([-1]), shape=(0,))
        found = g.op(kind, flat, axis=0, keepdims=0, dtype=torch.int64, shape=())
        return g.reshape(found, g.out.shape)
    axis = positive_dim(dim, input.rank)
    shape = g.out.shape if keepdim else [s for at, s in enumerate(input.shape) if at != axis]
    return g.op(kind, input, axis=axis, keepdims=int(keepdim), dtype=torch.int64, shape=shape)


@translates("max")
def max_(g: Builder, input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None):
    """The largest element, with its index if a dimension is given; or the larger of two tensors."""
    return _max_or_min(g, "Max", input, dim, keepdim, other)


@translates("min")
def min_(g: Builder, input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None):
    """The smallest element, with its index if a dimension is given; or the smaller of two tensors."""
    return _max_or_min(g, "Min", input, dim, keepdim, other)


def _max_or_min(
    g: Builder, kind: str, input: Tensor, dim: Any, keepdim: bool, other: Any
) -> Any:  # fmt: skip
    if isinstance(dim, Tensor) or other is not None:
        combine = maximum if kind == "Max" else minimum
        return combine(g, input, dim if other is None else other)
    values = _extremum(g, f"Reduce{kind}", input, dim, keepdim)
    if dim is None:
        return values
    numbers = g.cast(input, torch.int32) if input.dtype == torch.bool else input
    if not input.rank:
        return values, g.scalar(0, torch.int64)
    axis = positive_dim(dim, input.rank)
    found = g.op(
        f"Arg{kind}", numbers, axis=axis, keepdims=int(keepdim), dtype=torch.int64,
        shape=values.shape,
    )  # fmt: skip
    return values, found


# -- moments ---------------------------------------------------------------------------------------


@translates("var")
def var(
    g: Builder,
    input: Tensor,
    dim: Any = None,
    unbiased: Any = True,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Tensor:
    """The variance."""
    return _var_mean(g, input, dim, unbiased, keepdim, correction)[0]


@translates("std")
def std(
    g: Builder,
    input: Tensor,
    dim: Any = None,
    unbiased: Any = True,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Tensor:
    """The standard deviation."""
    return g.op("Sqrt", var(g, input, dim, unbiased, keepdim, correction=correction))


@translates("var_mean")
def var_mean(
    g: Builder,
    input: Tensor,
    dim: Any = None,
    unbiased: Any = True,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> tuple[Tensor, Tensor]:
    """The variance and the mean."""
    return _var_mean(g, input, dim, unbiased, keepdim, correction)


@translates("std_mean")
def std_mean(
    g: Builder,
    input: Tensor,
    dim: Any = None,
    unbiased: Any = True,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean."""
    variance, mean = _var_mean(g, input, dim, unbiased, keepdim, correction)
    return g.op("Sqrt", variance), mean


def _var_mean(
    g: Builder, input: Tensor, dim: Any, unbiased: Any, keepdim: bool, correction: Any
) -> tuple[Tensor, Tensor]:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = int(bool(unbiased))
    axes = axes_of(input, dim)
    count = math.prod(input.shape[axis] for axis in axes)
    if not isinstance(count, int) or count - correction <= 0:
        raise Unsupported("the variance of a number of elements that is not known, or too small")
    mean = g.reduce("ReduceMean", input, axes)
    apart = g.op("Sub", input, mean, shape=input.shape)
    sum_ = g.reduce("ReduceSum", g.op("Mul", apart, apart), axes, keepdim)
    variance = g.op("Div", sum_, g.scalar(count - correction, input.dtype))
    return variance, mean if keepdim else g.reshape(mean, sum_.shape)


@translates("logsumexp")
def logsumexp(g: Builder, input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials."""
    if not is_float(input.dtype):
        input = g.cast(input, torch.get_default_dtype())
    axes = axes_of(input, dim)
    largest = g.reduce("ReduceMax", input, axes)
    apart = g.op("Exp", g.op("Sub", input, largest, shape=input.shape))
    result = g.op("Add", g.op("Log", g.reduce("ReduceSum", apart, axes)), largest)
    return result if keepdim else g.reshape(result, g.out.shape)


@translates("norm")
def norm(
    g: Builder, input: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    """Vector norms."""
    input = input if dtype is None else g.cast(input, dtype)
    if p in ("fro", None):
        p = 2
    if isinstance(p, str) or not is_float(input.dtype):
        raise Unsupported(f"the norm {p!r}")
    if dim is None and not keepdim:
        input = g.op("Reshape", input, g.ints([-1]), shape=(math.prod(input.shape),))
    size = g.op("Abs", input)
    if p == 1:
        return _reduced(g, "ReduceSum", size, dim, keepdim)
    if p == math.inf or p == -math.inf:
        return _reduced(g, "ReduceMax" if p > 0 else "ReduceMin", size, dim, keepdim)
    if p == 2:
        return g.op("Sqrt", _reduced(g, "ReduceSum", g.op("Mul", input, input), dim, keepdim))
    if p == 0:
        raise Unsupported("the norm 0")
    powers = g.op("Pow", size, g.scalar(p, input.dtype))
    return g.op("Pow", _reduced(g, "ReduceSum", powers, dim, keepdim), g.scalar(1 / p, input.dtype))


@translates("linalg_vector_norm")
def vector_norm(
    g: Builder, input: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False,
    dtype: Any = None,
) -> Tensor:  # fmt: skip
    """Vector norms."""
    return norm(g, input, ord, dim, keepdim, dtype)


@translates("linalg_norm")
def linalg_norm(
    g: Builder, input: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False,
    dtype: Any = None,
) -> Tensor:  # fmt: skip
    """Vector norms."""
    if ord not in (None, "fro") and len(axes_of(input, dim)) != 1:
        raise Unsupported("the norm of a matrix")
    return norm(g, input, 2 if ord is None else ord, dim, keepdim, dtype)


@translates("normalize")
def normalize(
    g: Builder, input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12
) -> Tensor:
    """Vectors scaled to length one."""
    length = norm(g, input, p, dim, True)
    return g.op("Div", input, g.op("Max", length, g.scalar(eps, input.dtype)), shape=input.shape)


# -- along a dimension -----------------------------------------------------------------------------


@translates("cumsum")
def cumsum(g: Builder, input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Cumulative sums."""
    input = _accumulated(g, input, dtype)
    if not input.rank:
        return input
    axis = g.scalar(positive_dim(dim, input.rank), torch.int64)
    return g.op("CumSum", input, axis, shape=input.shape)


@translates("topk")
def topk(
    g: Builder, input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    """The largest elements, in order, with their indices."""
    axis = positive_dim(dim, input.rank)
    values, found = g.ops(
        "TopK", input, g.ints([k]), axis=axis, largest=int(largest), sorted=1,
        outputs=[(item.dtype, item.shape) for item in g.out],
    )  # fmt: skip
    return values, found


@translates("sort")
def sort(
    g: Builder, input: Tensor, dim: int = -1, descending: bool = False, *, stable: Any = None
) -> tuple[Tensor, Tensor]:
    """All elements in order, with their indices."""
    if not is_static(input.shape) or not input.rank:
        raise Unsupported("sorting a size that is not known")
    size = input.shape[positive_dim(dim, input.rank)]
    return topk(g, input, size, dim, descending)


@translates("argsort")
def argsort(
    g: Builder, input: Tensor, dim: int = -1, descending: bool = False, *, stable: Any = None
) -> Tensor:
    """The indices that sort the elements."""
    axis = positive_dim(dim, input.rank)
    if not input.rank or not isinstance(input.shape[axis], int):
        raise Unsupported("sorting a size that is not known")
    _, found = g.ops(
        "TopK", input, g.ints([input.shape[axis]]), axis=axis, largest=int(descending), sorted=1,
        outputs=[(input.dtype, input.shape), (torch.int64, input.shape)],
    )  # fmt: skip
    return found
