"""Functions that graphs of ONNX models call where PyTorch has none, or where arguments are tensors of the program."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch


def reshape(input: torch.Tensor, shape: Sequence[int], allow_zero: bool = False) -> torch.Tensor:
    """``input`` in another shape, in which 0 stands for the size that it has there."""
    if not allow_zero:
        shape = [input.shape[at] if size == 0 else size for at, size in enumerate(shape)]
    return input.reshape(list(shape))


def slice_(
    input: torch.Tensor,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> torch.Tensor:
    """Parts of dimensions, as Python's slices; steps may be negative."""
    for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis, step = at if axes is None else axes[at], 1 if steps is None else steps[at]
        size = input.shape[axis]
        if step < 0 and end < -size:
            end = None
        places = range(size)[slice(start, end, step)]
        if step > 0:
            input = torch.ops.aten.slice.Tensor(input, axis, places.start, places.stop, step)
        else:
            input = input.index_select(
                axis, torch.tensor(list(places), dtype=torch.int64, device=input.device)
            )
    return input


def expand(input: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """``input`` broadcast together with ``shape``."""
    return input.expand(torch.broadcast_shapes(tuple(input.shape), tuple(shape)))


def pad(
    input: torch.Tensor,
    pads: Sequence[int],
    mode: str = "constant",
    value: float | torch.Tensor = 0,
    axes: Sequence[int] | None = None,
) -> torch.Tensor:
    """``input`` with elements added at (or removed from) the beginnings and ends of dimensions."""
    axes = list(range(input.dim())) if axes is None else [axis % input.dim() for axis in axes]
    for at, axis in enumerate(axes):
        before, after = pads[at], pads[at + len(axes)]
        size = input.shape[axis]
        if mode == "constant":
            number = value.item() if isinstance(value, torch.Tensor) else value
            begin, end = max(-before, 0), size - max(-after, 0)
            input = input.narrow(axis, begin, max(end - begin, 0))
            parts = []
            for count in (before, after):
                shape = list(input.shape)
                shape[axis] = max(count, 0)
                parts.append(input.new_full(shape, number))
            input = torch.cat((parts[0], input, parts[1]), axis)
            continue
        places = torch.arange(-before, size + after, device=input.device)
        if mode == "edge":
            places = places.clamp(0, size - 1)
        elif mode == "wrap":
            places = places.remainder(size)
        elif size > 1:
            places = (places + size - 1).remainder(2 * size - 2) - size + 1
            places = places.abs()
        else:
            places = places * 0
        input = input.index_select(axis, places)
    return input


def unsqueeze(input: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """``input`` with dimensions of size 1 at these places of the result."""
    rank = input.dim() + len(axes)
    for axis in sorted(own % rank for own in axes):
        input = input.unsqueeze(axis)
    return input


def full(shape: Sequence[int], number: float, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of one number."""
    return torch.full(list(shape), number, dtype=dtype)


def truncated_quotient(a: int, b: int) -> int:
    """A quotient of integers, rounded towards zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def cumulative_before(name: str, input: torch.Tensor, axis: int, reverse: bool) -> torch.Tensor:
    """Sums (or products) of the elements before each one."""
    first = torch.full_like(input.narrow(axis, 0, 1), 0 if name == "cumsum" else 1)
    moved = torch.cat([first, input.narrow(axis, 0, input.shape[axis] - 1)], axis)
    result = getattr(torch, name)(moved, axis, dtype=input.dtype)
    return result.flip([axis]) if reverse else result


def tile(input: torch.Tensor, repeats: Sequence[int]) -> torch.Tensor:
    """``input`` repeated along dimensions."""
    return input.repeat(list(repeats))


def reduce(
    name: str, input: torch.Tensor, axes: Sequence[int] | None, keepdim: bool, of_none: bool
) -> torch.Tensor:
    """A reduction over dimensions; over all if there are none, unless ``of_none``."""
    if not axes:
        if of_none:
            return input if name in KEEPING else _REDUCTIONS[name](input.unsqueeze(-1), [-1], False)
        axes = list(range(input.dim()))
    if not input.dim():
        return _REDUCTIONS[name](input.unsqueeze(-1), [-1], False)
    return _REDUCTIONS[name](input, list(axes), keepdim)


def _prod(input: torch.Tensor, axes: Sequence[int], keepdim: bool) -> torch.Tensor:
    for axis in sorted((axis % input.dim() for axis in axes), reverse=True):
        input = torch.prod(input, axis, keepdim, dtype=input.dtype)
    return input


def _sum(input: torch.Tensor, axes: Sequence[int], keepdim: bool) -> torch.Tensor:
    return torch.sum(input, axes, keepdim, dtype=input.dtype)


def _mean(input: torch.Tensor, axes: Sequence[int], keepdim: bool) -> torch.Tensor:
    if input.is_floating_point():
        return torch.mean(input, axes, keepdim)
    return torch.mean(input.double(), axes, keepdim).to(input.dtype)


def _of_floats(function):
    def compute(input: torch.Tensor, axes: Sequence[int], keepdim: bool) -> torch.Tensor:
        if input.is_floating_point():
            return function(input, axes, keepdim)
        return function(input.double(), axes, keepdim).to(input.dtype)

    return compute


def _extremum(function):
    def compute(input: torch.Tensor, axes: Sequence[int], keepdim: bool) -> torch.Tensor:
        if input.dtype == torch.bool:
            return _or_lowest(function, input.to(torch.uint8), axes, keepdim).to(torch.bool)
        return _or_lowest(function, input, axes, keepdim)

    return compute


def _or_lowest(function, input: torch.Tensor, axes: Sequence[int], keepdim: bool) -> torch.Tensor:
    if all(input.shape[axis] for axis in axes):
        return function(input, axes, keepdim)
    shape = [
        1 if at in {axis % input.dim() for axis in axes} else size
        for at, size in enumerate(input.shape)
    ]
    limits = torch.finfo if input.is_floating_point() else torch.iinfo
    low, high = (
        (-torch.inf, torch.inf)
        if limits is torch.finfo
        else (limits(input.dtype).min, limits(input.dtype).max)
    )
    result = input.new_full(shape, low if function is torch.amax else high)
    return result if keepdim else result.squeeze(tuple(axes))


_REDUCTIONS = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceProd": _prod,
    "ReduceMax": _extremum(torch.amax),
    "ReduceMin": _extremum(torch.amin),
    "ReduceL1": lambda input, axes, keepdim: _sum(input.abs(), axes, keepdim),
    "ReduceL2": _of_floats(lambda input, axes, keepdim: _sum(input.square(), axes, keepdim).sqrt()),
    "ReduceLogSum": _of_floats(lambda input, axes, keepdim: _sum(input, axes, keepdim).log()),
    "ReduceLogSumExp": _of_floats(torch.logsumexp),
    "ReduceSumSquare": lambda input, axes, keepdim: _sum(input.square(), axes, keepdim),
}
#: Reductions that leave elements as they are where they reduce over nothing.
KEEPING = {"ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin"}


def gather_nd(input: torch.Tensor, indices: torch.Tensor, batch_dims: int = 0) -> torch.Tensor:
    """Elements or parts of ``input`` at the places that the last dimension of ``indices`` lists."""
    count = indices.shape[-1]
    places = list(indices.unbind(-1))
    own = [
        torch.arange(input.shape[at], device=input.device).reshape(
            [-1 if dim == at else 1 for dim in range(indices.dim() - 1)]
        )
        for at in range(batch_dims)
    ]
    found = [
        torch.where(place < 0, place + input.shape[batch_dims + at], place)
        for at, place in enumerate(places)
    ]
    return input[(*own, *found)] if batch_dims + count else input


def scatter_nd(
    input: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, reduction: str = "none"
) -> torch.Tensor:
    """``input`` with parts at the places that the last dimension of ``indices`` lists replaced or combined."""
    result = input.clone()
    count = indices.shape[-1]
    flat = indices.reshape(-1, count)
    parts = updates.reshape(flat.shape[0], *input.shape[count:])
    combine = {"add": torch.add, "mul": torch.mul, "max": torch.maximum, "min": torch.minimum}
    if reduction == "none":
        result[tuple(flat.unbind(-1))] = parts
        return result
    for place, part in zip(flat.tolist(), parts, strict=True):
        result[tuple(place)] = combine[reduction](result[tuple(place)], part)
    return result


def tensor_scatter(
    cache: torch.Tensor, update: torch.Tensor, places: torch.Tensor | None, axis: int, wraps: bool
) -> torch.Tensor:
    """``cache`` with ``update`` along ``axis``, from a place on that each element of the batch has."""
    axis %= cache.dim()
    length = update.shape[axis]
    along = torch.arange(length, device=cache.device)
    starts = torch.zeros(cache.shape[0], dtype=torch.int64) if places is None else places
    found = starts.reshape(-1, 1) + along
    found = found.remainder(cache.shape[axis]) if wraps else found
    shape = [1] * cache.dim()
    shape[0], shape[axis] = cache.shape[0], length
    return cache.scatter(axis, found.to(torch.int64).reshape(shape).expand(update.shape), update)


def one_hot(
    indices: torch.Tensor, depth: int, values: torch.Tensor, axis: int = -1
) -> torch.Tensor:
    """``values[1]`` at the places in ``indices`` along a new dimension, else ``values[0]``."""
    axis %= indices.dim() + 1
    places = torch.arange(depth, device=indices.device)
    wrapped = indices.to(torch.int64).remainder(depth).unsqueeze(axis)
    wrapped = torch.where(
        (indices >= -depth) & (indices < depth), wrapped.squeeze(axis), -1
    ).unsqueeze(axis)
    shape = [1] * (indices.dim() + 1)
    shape[axis] = int(depth)
    return torch.where(wrapped == places.reshape(shape), values[1], values[0])


def compress(input: torch.Tensor, condition: torch.Tensor, axis: int | None = None) -> torch.Tensor:
    """The parts along a dimension (of all elements, if there is none) where the condition is true."""
    if axis is None:
        input, axis = input.reshape(-1), 0
    places = torch.nonzero(condition).squeeze(-1)
    return input.index_select(axis, places)


def nonzero(input: torch.Tensor) -> torch.Tensor:
    """Places of elements that are not zero, one in each column."""
    return torch.nonzero(input).t()


def reverse_sequence(
    input: torch.Tensor, lengths: torch.Tensor, batch_axis: int = 1, time_axis: int = 0
) -> torch.Tensor:
    """``input`` with the beginning of each sequence, of the given length, in reverse."""
    moved = input.movedim((batch_axis, time_axis), (0, 1))
    time = torch.arange(moved.shape[1], device=input.device)
    lengths = lengths.to(torch.int64).reshape(-1, 1)
    places = torch.where(time < lengths, lengths - 1 - time, time)
    rows = torch.arange(moved.shape[0], device=input.device).reshape(-1, 1)
    return moved[rows, places].movedim((0, 1), (batch_axis, time_axis))


def range_(start: torch.Tensor, limit: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    """Numbers from ``start`` to below ``limit``, ``delta`` apart."""
    numbers = (start.item(), limit.item(), delta.item())
    return torch.arange(*numbers, dtype=start.dtype, device=start.device)


def unique(
    input: torch.Tensor, axis: int | None = None, is_sorted: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Different elements (or parts), places where they are first, for each element its place there, and counts."""
    values, inverse, counts = torch.unique(
        input, sorted=True, return_inverse=True, return_counts=True, dim=axis
    )
    flat = inverse.reshape(-1)
    positions = torch.arange(flat.numel())
    first = torch.full((counts.numel(),), flat.numel()).scatter_reduce(0, flat, positions, "amin")
    if not is_sorted:
        order = first.argsort()
        values = values.index_select(axis or 0, order)
        first, counts = first[order], counts[order]
        place = torch.empty_like(order)
        place[order] = torch.arange(order.numel())
        flat = place[flat]
    return values, first, flat, counts


def top_k(
    input: torch.Tensor, k: int, axis: int = -1, largest: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest (or smallest) elements in order, of equal ones those that come first, and their places."""
    values, places = torch.sort(input, dim=axis, descending=largest, stable=True)
    return values.narrow(axis, 0, k), places.narrow(axis, 0, k)


def max_unpool(
    input: torch.Tensor, indices: torch.Tensor, output_shape: Sequence[int]
) -> torch.Tensor:
    """Elements at the places that ``indices`` has for a tensor of this shape, else zeros."""
    result = input.new_zeros(list(output_shape)).reshape(-1)
    return result.scatter(0, indices.reshape(-1), input.reshape(-1)).reshape(list(output_shape))


def non_max_suppression(
    boxes: torch.Tensor,
    scores: torch.Tensor,
    max_output_boxes_per_class: torch.Tensor | None = None,
    iou_threshold: torch.Tensor | None = None,
    score_threshold: torch.Tensor | None = None,
    center_point_box: int = 0,
) -> torch.Tensor:
    """Boxes with the largest scores of each class that overlap with no better one: batch, class and box of each."""
    most = 0 if max_output_boxes_per_class is None else int(max_output_boxes_per_class)
    overlap = 0.0 if iou_threshold is None else float(iou_threshold)
    least = None if score_threshold is None else float(score_threshold)
    found: list[tuple[int, int, int]] = []
    if center_point_box:
        x, y, width, height = boxes.unbind(-1)
        boxes = torch.stack((y - height / 2, x - width / 2, y + height / 2, x + width / 2), -1)
    low = torch.minimum(boxes[..., :2], boxes[..., 2:])
    high = torch.maximum(boxes[..., :2], boxes[..., 2:])
    areas = (high - low).prod(-1)
    for batch, kind in itertools.product(range(scores.shape[0]), range(scores.shape[1])):
        kept: list[int] = []
        for box in torch.argsort(scores[batch, kind], descending=True, stable=True).tolist():
            if len(kept) >= most or (least is not None and scores[batch, kind, box] <= least):
                break
            sides = torch.minimum(high[batch, box], high[batch, kept]) - torch.maximum(
                low[batch, box], low[batch, kept]
            )
            common = sides.clamp(min=0).prod(-1)
            union = areas[batch, box] + areas[batch, kept] - common
            if not bool((common / union > overlap).any()):
                kept.append(box)
        found += [(batch, kind, box) for box in kept]
    return torch.tensor(found, dtype=torch.int64).reshape(-1, 3)


def max_unpool_to(
    input: torch.Tensor, indices: torch.Tensor, usual: Sequence[int], output_shape: Sequence[int]
) -> torch.Tensor:
    """:func:`max_unpool` for places in the usual shape, with zeros after each dimension up to ``output_shape``."""
    result = max_unpool(input, indices, usual)
    flat = [
        own
        for size, wanted in zip(reversed(list(usual)), reversed(list(output_shape)), strict=True)
        for own in (0, wanted - size)
    ]
    return torch.nn.functional.pad(result, flat)


def max_pool_with_places(
    input: torch.Tensor,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    rank: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest elements of windows, and their places in their channels."""
    function = getattr(torch.nn.functional, f"max_pool{rank}d")
    return function(input, kernel, strides, pads, dilations, return_indices=True)


def window_sums(
    input: torch.Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> torch.Tensor:
    """Sums of the elements in windows of each channel."""
    for at, (size, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True)):
        whole = input.shape[2 + at]
        count = (whole - (size - 1) * dilation - 1) // stride + 1
        parts = [
            torch.ops.aten.slice.Tensor(
                input, 2 + at, place * dilation, place * dilation + (count - 1) * stride + 1, stride
            )
            for place in range(size)
        ]
        input = torch.stack(parts).sum(0)
    return input
