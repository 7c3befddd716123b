"""Pooling."""

from __future__ import annotations

from typing import Any

import torch

from corsac.onnx._builder import Builder, Missing, Tensor
from corsac.onnx._table import translates
from corsac.onnx._types import Size, Unsupported, is_float
from corsac.onnx.translations.convolutions import batched, per_dimension

_NO_INDICES = "indices of pooling have no translation"


def _shape(g: Builder, single: bool) -> tuple[Size, ...]:
    out = g.out[0] if isinstance(g.out, (tuple, list)) else g.out
    return (1, *out.shape) if single else tuple(out.shape)


def _behind(
    shape: tuple[Size, ...],
    input: Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> list[int]:
    """Number of elements that the last windows need after the input, in addition to the padding."""
    if not ceil_mode:
        return [0] * len(kernel)
    result = []
    for axis in range(len(kernel)):
        size, out = input.shape[axis + 2], shape[axis + 2]
        if not isinstance(size, int) or not isinstance(out, int):
            raise Unsupported("ceil_mode with a size that is not known")
        reach = (out - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1
        result.append(max(0, reach - size - 2 * padding[axis]))
    return result


def _max_pool(rank: int) -> Any:
    def max_pool(
        g: Builder,
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """The largest element of each window."""
        kernel, pads = per_dimension(kernel_size, rank), per_dimension(padding, rank)
        strides = kernel if stride in (None, [], ()) else per_dimension(stride, rank)
        dilations = per_dimension(dilation, rank)
        input, single = batched(g, input, rank)
        shape = _shape(g, single)
        more = _behind(shape, input, kernel, strides, pads, dilations, ceil_mode)
        ends = [pad + extra for pad, extra in zip(pads, more, strict=True)]
        if any(end >= d * (k - 1) + 1 for end, d, k in zip(ends, dilations, kernel, strict=True)):
            raise Unsupported("a window that is all padding")
        result = g.op(
            "MaxPool", input, kernel_shape=kernel, strides=strides, pads=[*pads, *ends],
            dilations=dilations, shape=shape,
        )  # fmt: skip
        result = g.reshape(result, shape[1:]) if single else result
        return (result, Missing(_NO_INDICES)) if return_indices else result

    return max_pool


def _max_pool_with_indices(rank: int) -> Any:
    def max_pool(
        g: Builder,
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = True,
    ) -> Any:
        """The largest element of each window; indices have no translation."""
        given = (kernel_size, stride, padding, dilation, ceil_mode, True)
        return MAX_POOLS[rank](g, input, *given)

    return max_pool


def _avg_pool(rank: int) -> Any:
    def avg_pool(
        g: Builder,
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        """The mean of each window."""
        kernel, pads = per_dimension(kernel_size, rank), per_dimension(padding, rank)
        strides = kernel if stride in (None, [], ()) else per_dimension(stride, rank)
        input, single = batched(g, input, rank)
        shape = _shape(g, single)
        more = _behind(shape, input, kernel, strides, pads, [1] * rank, ceil_mode)
        include = bool(count_include_pad)
        if include and any(pads) and any(more) and divisor_override is None:
            # Padding counts in the mean, elements after it do not.
            input = _pad_zeros(g, input, pads)
            pads = [0] * rank
        ends = [pad + extra for pad, extra in zip(pads, more, strict=True)]
        result = g.op(
            "AveragePool", input, kernel_shape=kernel, strides=strides, pads=[*pads, *ends],
            count_include_pad=int(divisor_override is not None or (include and not any(more))),
            shape=shape,
        )  # fmt: skip
        if divisor_override is not None:
            factor = torch.tensor(kernel).prod().item() / divisor_override
            result = g.op("Mul", result, g.scalar(factor, input.dtype))
        return g.reshape(result, shape[1:]) if single else result

    return avg_pool


def _pad_zeros(g: Builder, input: Tensor, pads: list[int]) -> Tensor:
    around = [0, 0, *pads]
    grown = [size + 2 * pad for size, pad in zip(input.shape, around, strict=True)]
    return g.op("Pad", input, g.ints([*around, *around]), g.scalar(0, input.dtype), shape=grown)


def _adaptive_avg_pool(rank: int) -> Any:
    def pool(g: Builder, input: Tensor, output_size: Any) -> Tensor:
        """Means over windows that divide the input into the given output size."""
        wanted = _wanted(input, output_size, rank)
        axes = list(range(input.rank - rank, input.rank))
        if all(size == 1 for size in wanted):
            return g.reduce("ReduceMean", input, axes)
        for axis, size in zip(axes, wanted, strict=True):
            have = input.shape[axis]
            if have == size:
                continue
            if not isinstance(have, int):
                raise Unsupported(f"{size} windows of a size that is not known")
            weights = torch.zeros(have, size, dtype=torch.float64)
            for at, (start, end) in enumerate(_windows(have, size)):
                weights[start:end, at] = 1 / (end - start)
            input = _along(g, input, axis, weights, size)
        return input

    return pool


def _along(g: Builder, input: Tensor, axis: int, weights: torch.Tensor, size: int) -> Tensor:
    """Multiply each line along ``axis`` by a matrix."""
    order = [at for at in range(input.rank) if at != axis] + [axis]
    last = g.permute(input, order)
    result = g.op("MatMul", last, g.known(weights.to(input.dtype)), shape=(*last.shape[:-1], size))
    back = [order.index(at) for at in range(input.rank)]
    return g.permute(result, back)


def _adaptive_max_pool(rank: int) -> Any:
    def pool(g: Builder, input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        """Maxima over windows that divide the input into the given output size."""
        wanted = _wanted(input, output_size, rank)
        for axis, size in zip(range(input.rank - rank, input.rank), wanted, strict=True):
            have = input.shape[axis]
            if have == size:
                continue
            if size == 1:
                input = g.reduce("ReduceMax", input, [axis])
                continue
            if not isinstance(have, int):
                raise Unsupported(f"{size} windows of a size that is not known")
            parts = [
                g.reduce("ReduceMax", g.slice(input, axis, start, end), [axis])
                for start, end in _windows(have, size)
            ]
            shape = [size if at == axis else s for at, s in enumerate(input.shape)]
            input = g.op("Concat", *parts, axis=axis, shape=shape)
        return (input, Missing(_NO_INDICES)) if return_indices else input

    return pool


def _wanted(input: Tensor, output_size: Any, rank: int) -> list[Any]:
    if not is_float(input.dtype):
        raise Unsupported("pooling of integers")
    sizes = list(output_size) if isinstance(output_size, (tuple, list)) else [output_size] * rank
    have = input.shape[input.rank - rank :]
    return [h if size is None else size for size, h in zip(sizes, have, strict=True)]


def _windows(have: int, size: int) -> list[tuple[int, int]]:
    """Beginnings and ends of the windows."""
    return [(at * have // size, -((at + 1) * have // -size)) for at in range(size)]


MAX_POOLS = {rank: _max_pool(rank) for rank in (1, 2, 3)}
AVG_POOLS = {rank: _avg_pool(rank) for rank in (1, 2, 3)}
ADAPTIVE_AVG_POOLS = {rank: _adaptive_avg_pool(rank) for rank in (1, 2, 3)}
ADAPTIVE_MAX_POOLS = {rank: _adaptive_max_pool(rank) for rank in (1, 2, 3)}
for _rank in (1, 2, 3):
    translates(f"max_pool{_rank}d")(MAX_POOLS[_rank])
    translates(f"max_pool{_rank}d_with_indices")(_max_pool_with_indices(_rank))
    translates(f"avg_pool{_rank}d")(AVG_POOLS[_rank])
    translates(f"adaptive_avg_pool{_rank}d")(ADAPTIVE_AVG_POOLS[_rank])
    translates(f"adaptive_max_pool{_rank}d")(ADAPTIVE_MAX_POOLS[_rank])
for _rank in (2, 3):
    translates(f"_adaptive_avg_pool{_rank}d")(ADAPTIVE_AVG_POOLS[_rank])
