"""Resizing of images."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from corsac.onnx import functions, resampling
from corsac.onnx._emitter import Emitter
from corsac.onnx._registry import reads
from corsac.onnx._types import Unsupported
from corsac.onnx._values import Size, Value


@reads("Upsample", since=9)
def upsample(g: Emitter, input: Value, scales: Value, *, mode: str = "nearest") -> Value:
    return resize(
        g,
        input,
        None,
        scales,
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@reads("Upsample", since=7)
def upsample_7(g: Emitter, input: Value, *, scales: list[float], mode: str = "nearest") -> Value:
    return upsample(g, input, g.literal(scales, torch.float32), mode=mode)


@reads("Resize", since=10)
def resize_10(g: Emitter, input: Value, scales: Value, *, mode: str = "nearest") -> Value:
    return upsample(g, input, scales, mode=mode)


@reads("Resize", since=11)
def resize(
    g: Emitter,
    input: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Value:
    along = list(range(input.rank)) if axes is None else [axis % input.rank for axis in axes]
    if scales is not None and scales.numel == 0:
        scales = None
    if sizes is not None and sizes.numel == 0:
        sizes = None
    wanted = None if sizes is None else g.ints(sizes)
    factors = _floats(g, scales) if wanted is None else None
    if wanted is None and factors is None:
        raise Unsupported("neither sizes nor scales")
    coordinates = coordinate_transformation_mode
    plain = not (antialias or exclude_outside or keep_aspect_ratio_policy != "stretch")
    if plain:
        found = _interpolated(
            g, input, along, wanted, factors, mode, coordinates, nearest_mode, cubic_coeff_a
        )
        if found is not None:
            return found
    region = None
    if coordinates == "tf_crop_and_resize" and roi is not None:
        region = _floats(g, roi)
    return g.call(
        resampling.resize, input, along, wanted, factors, region, mode, coordinates, nearest_mode,
        cubic_coeff_a, bool(exclude_outside), extrapolation_value, bool(antialias), keep_aspect_ratio_policy,
    )  # fmt: skip


def _floats(g: Emitter, value: Value | None) -> list[Any] | None:
    if value is None:
        return None
    if value.constant is not None:
        return [float(own) for own in value.constant.reshape(-1).tolist()]
    return g.ints(value)


def _interpolated(
    g: Emitter, input: Value, axes: list[int], sizes: Any, scales: Any, mode: str, coordinates: str, nearest: str,
    cubic: float,
) -> Value | None:  # fmt: skip
    """The result of ``interpolate``, if it computes the same."""
    given = sizes if sizes is not None else scales
    by_axis = dict(zip(axes, given, strict=True))
    own = g.shape(input)
    inner = range(2, input.rank)
    for at in (0, 1):
        same = own[at] if sizes is not None else 1
        if at in by_axis and not (by_axis[at] is same or _equal(by_axis[at], same)):
            return None
    rank = len(inner)
    if rank not in (1, 2, 3) or not input.dtype.is_floating_point:
        return None
    name, corners = None, None
    if mode == "nearest" and coordinates == "asymmetric" and nearest == "floor":
        name = "nearest"
    elif mode == "linear" and coordinates in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        name, corners = (
            {1: "linear", 2: "bilinear", 3: "trilinear"}[rank],
            coordinates == "align_corners",
        )
    elif mode == "cubic" and rank == 2 and abs(cubic + 0.75) < 1e-6 and coordinates in (
        "half_pixel", "align_corners"
    ):  # fmt: skip
        name, corners = "bicubic", coordinates == "align_corners"
    if name is None or (
        coordinates == "pytorch_half_pixel" and _becomes_one(own, by_axis, sizes is None)
    ):
        return None
    extra = {} if corners is None else {"align_corners": corners}
    if sizes is not None:
        return g.call(
            F.interpolate, input, [by_axis.get(at, own[at]) for at in inner], mode=name, **extra
        )
    factors = [by_axis.get(at, 1.0) for at in inner]
    if any(isinstance(factor, Size) for factor in factors):
        return None
    if all(float(factor).is_integer() for factor in factors) or corners is not True:
        return g.call(F.interpolate, input, scale_factor=factors, mode=name, **extra)
    return None


def _becomes_one(shape: list[Any], by_axis: dict[int, Any], are_factors: bool) -> bool:
    """Whether a dimension becomes 1 long: ``interpolate`` takes its middle, ONNX its first element."""
    for axis, given in by_axis.items():
        size = shape[axis]
        if are_factors:
            given = 1 if not isinstance(size, Size) and math.floor(size * given) == 1 else 2
        if _equal(given, 1) and not _equal(size, 1):
            return True
    return False


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Unsupported:
        return False


@reads("GridSample", since=16)
def grid_sample(
    g: Emitter,
    input: Value,
    grid: Value,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Value:
    name = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return g.call(F.grid_sample, input, grid, name, padding_mode, bool(align_corners))


@reads("AffineGrid", since=20)
def affine_grid(g: Emitter, theta: Value, size: Value, *, align_corners: int = 0) -> Value:
    sizes = g.ints(size)
    corners = bool(align_corners)
    if size.elements is None:
        return g.run(F.affine_grid, theta, sizes, corners, dtype=theta.dtype, rank=len(sizes))
    return g.call(F.affine_grid, theta, sizes, corners)


@reads("RoiAlign", since=10)
def roi_align(
    g: Emitter,
    input: Value,
    rois: Value,
    batches: Value,
    *,
    coordinate_transformation_mode: str | None = None,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Value:
    default = "half_pixel" if g.version >= 16 else "output_half_pixel"
    half_pixel = (coordinate_transformation_mode or default) == "half_pixel"
    cells = (output_height, output_width)
    samples = tuple(
        torch.empty(own.shape[0], theirs.shape[1], *cells, dtype=theirs.dtype, device="meta")
        for own, theirs in zip(rois.samples, input.samples, strict=True)
    )
    arguments = (
        input, rois, batches, cells, spatial_scale, sampling_ratio, mode, half_pixel,
    )  # fmt: skip
    return g.typed("call_function", resampling.roi_align, arguments, {}, samples)


@reads("NonMaxSuppression", since=10)
def non_max_suppression(g: Emitter, *inputs: Value, center_point_box: int = 0) -> Value:
    padded = [*inputs, *[None] * (5 - len(inputs))]
    return g.run(functions.non_max_suppression, *padded, center_point_box)
