"""Resizing with all of ONNX's conventions for coordinates, one dimension after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch


def resize(
    input: torch.Tensor,
    axes: Sequence[int],
    sizes: Sequence[int] | None,
    scales: Sequence[float] | None,
    roi: Sequence[float] | None,
    mode: str,
    coordinates: str,
    nearest: str,
    cubic: float,
    exclude_outside: bool,
    extrapolation: float,
    antialias: bool,
    policy: str,
) -> torch.Tensor:
    """``input`` with other sizes along ``axes``; arguments are the attributes of ONNX's ``Resize``."""
    shape = [input.shape[axis] for axis in axes]
    if sizes is None:
        assert scales is not None
        sizes = [math.floor(size * scale) for size, scale in zip(shape, scales, strict=True)]
    else:
        scales = [wanted / size for wanted, size in zip(sizes, shape, strict=True)]
        if policy != "stretch":
            one = (min if policy == "not_larger" else max)(scales)
            scales = [one] * len(axes)
            sizes = [math.floor(size * one + 0.5) for size in shape]
    outside = None
    for at, axis in enumerate(axes):
        begin, end = (roi[at], roi[at + len(axes)]) if roi else (0.0, 1.0)
        places = _places(sizes[at], shape[at], scales[at], coordinates, begin, end)
        if coordinates == "tf_crop_and_resize":
            beyond = (places < 0) | (places > shape[at] - 1)
            along = beyond.reshape([-1 if dim == axis else 1 for dim in range(input.dim())])
            outside = along if outside is None else outside | along
        if mode == "nearest":
            input = input.index_select(axis, _nearest(places, shape[at], nearest))
        elif sizes[at] != shape[at] or scales[at] != 1 or coordinates == "tf_crop_and_resize":
            weights = _weights(
                places, shape[at], scales[at], mode, cubic, exclude_outside, antialias
            )
            moved = input.movedim(axis, -1)
            found = moved.to(torch.float64) @ weights.t()
            if not input.is_floating_point():
                limits = torch.iinfo(input.dtype)
                found = found.round().clamp(limits.min, limits.max)
            input = found.to(input.dtype).movedim(-1, axis)
    return input if outside is None else torch.where(outside, extrapolation, input)


def _places(
    count: int, size: int, scale: float, coordinates: str, begin: float, end: float
) -> torch.Tensor:
    """Coordinates in the input of the elements of the output."""
    x = torch.arange(count, dtype=torch.float64)
    length = size * scale
    if coordinates == "align_corners":
        return x * 0 if length == 1 else x * (size - 1) / (length - 1)
    if coordinates == "asymmetric":
        return x / scale
    if coordinates == "tf_crop_and_resize":
        if count == 1:
            return 0.5 * (begin + end) * (size - 1) + x * 0
        return begin * (size - 1) + x * (end - begin) * (size - 1) / (length - 1)
    if coordinates == "pytorch_half_pixel" and length == 1:
        return x * 0 - 0.5
    if coordinates == "half_pixel_symmetric":
        adjustment = count / length
        offset = size / 2 * (1 - adjustment)
        return offset + (x + 0.5) / scale - 0.5
    if coordinates in ("half_pixel", "pytorch_half_pixel"):
        return (x + 0.5) / scale - 0.5
    raise ValueError(f"the coordinates {coordinates!r} of Resize are not known")


def _nearest(places: torch.Tensor, size: int, nearest: str) -> torch.Tensor:
    rounding = {
        "round_prefer_floor": lambda x: torch.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: torch.floor(x + 0.5),
        "floor": torch.floor,
        "ceil": torch.ceil,
    }[nearest]
    return rounding(places).to(torch.int64).clamp(0, size - 1)


def _weights(
    places: torch.Tensor,
    size: int,
    scale: float,
    mode: str,
    cubic: float,
    exclude_outside: bool,
    antialias: bool,
) -> torch.Tensor:
    """The share of each input element in each output element."""
    stretch = min(scale, 1.0) if antialias else 1.0
    reach = (1 if mode == "linear" else 2) / stretch
    steps = torch.arange(-math.ceil(reach) + 1, math.ceil(reach) + 1)
    taps = torch.floor(places)[:, None] + steps
    distance = (taps - places[:, None]).abs() * stretch
    if mode == "linear":
        found = (1 - distance).clamp(min=0)
    else:
        near = ((cubic + 2) * distance - (cubic + 3)) * distance * distance + 1
        far = ((cubic * distance - 5 * cubic) * distance + 8 * cubic) * distance - 4 * cubic
        found = torch.where(distance <= 1, near, torch.where(distance < 2, far, 0.0))
    if exclude_outside:
        found = torch.where((taps < 0) | (taps >= size), 0.0, found)
    found = found / found.sum(1, keepdim=True)
    rows = torch.zeros(places.numel(), size, dtype=torch.float64)
    return rows.scatter_add(1, taps.to(torch.int64).clamp(0, size - 1), found)


def roi_align(
    input: torch.Tensor,
    rois: torch.Tensor,
    batches: torch.Tensor,
    output: tuple[int, int],
    scale: float,
    sampling: int,
    mode: str,
    half_pixel: bool,
) -> torch.Tensor:
    """Parts of images, pooled to one size from numbers interpolated at places in each cell."""
    height, width = input.shape[-2:]
    results = []
    for box, batch in zip((rois * scale).tolist(), batches.tolist(), strict=True):
        x1, y1, x2, y2 = (own - 0.5 if half_pixel else own for own in box)
        box_width, box_height = x2 - x1, y2 - y1
        if not half_pixel:
            box_width, box_height = max(box_width, 1.0), max(box_height, 1.0)
        rows = _cells(y1, box_height, output[0], sampling)
        columns = _cells(x1, box_width, output[1], sampling)
        found = _bilinear(input[batch], rows.reshape(-1), columns.reshape(-1), height, width, mode)
        found = found.reshape(-1, *rows.shape, *columns.shape)
        results.append(found.mean((2, 4)) if mode == "avg" else found.amax((2, 4)))
    if not results:
        return input.new_zeros(0, input.shape[1], *output)
    return torch.stack(results)


def _cells(start: float, length: float, count: int, sampling: int) -> torch.Tensor:
    """Places in each of ``count`` cells."""
    cell = length / count
    each = sampling or max(math.ceil(cell), 1)
    return start + cell * (torch.arange(count)[:, None] + (torch.arange(each) + 0.5) / each)


def _bilinear(
    image: torch.Tensor,
    rows: torch.Tensor,
    columns: torch.Tensor,
    height: int,
    width: int,
    mode: str,
) -> torch.Tensor:
    def along(places: torch.Tensor, size: int) -> tuple[torch.Tensor, ...]:
        beyond = (places < -1) | (places > size)
        inside = places.clamp(0, size - 1)
        low = inside.floor().long()
        high = (low + 1).clamp(max=size - 1)
        share = inside - low
        outside = (~beyond).to(share.dtype)
        return low, high, (1 - share) * outside, share * outside

    low_y, high_y, wy0, wy1 = along(rows, height)
    low_x, high_x, wx0, wx1 = along(columns, width)
    parts = [
        image[:, y][:, :, x] * (wy[:, None] * wx)
        for y, wy in ((low_y, wy0), (high_y, wy1))
        for x, wx in ((low_x, wx0), (high_x, wx1))
    ]
    combined = torch.stack(parts)
    return combined.amax(0) if mode == "max" else combined.sum(0)
