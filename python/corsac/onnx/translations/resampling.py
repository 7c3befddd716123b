"""Padding and resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from corsac.onnx._builder import Builder, Tensor, integer
from corsac.onnx._table import translates
from corsac.onnx._types import Unsupported
from corsac.onnx.translations.pooling import ADAPTIVE_AVG_POOLS


@translates("pad", "constant_pad_nd")
def pad(
    g: Builder, input: Tensor, pad: Sequence[int], mode: str = "constant", value: Any = None
) -> Tensor:
    """Padding, or cropping for negative amounts."""
    amounts = [integer(amount) for amount in pad]
    pairs = list(zip(amounts[::2], amounts[1::2], strict=True))[::-1]
    pairs = [(0, 0)] * (input.rank - len(pairs)) + pairs
    if not any(amounts):
        return input
    if mode == "circular":
        return _circular(g, input, pairs)
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
    if mode not in modes:
        raise Unsupported(f"padding {mode!r}")
    if min(amounts) < 0 and mode != "constant":
        raise Unsupported("padding by less than nothing")
    begins, ends = zip(*pairs, strict=True)
    fill = g.scalar(0 if value is None else value, input.dtype) if mode == "constant" else None
    return g.op("Pad", input, g.ints([*begins, *ends]), fill, mode=modes[mode], shape=g.out.shape)


def _circular(g: Builder, input: Tensor, pairs: list[tuple[int, int]]) -> Tensor:
    for axis, (begin, end) in enumerate(pairs):
        size = input.shape[axis]
        if begin == end == 0:
            continue
        if not isinstance(size, int) or min(begin, end) < 0:
            raise Unsupported("circular padding of a size that is not known")
        parts = [g.slice(input, axis, size - begin, size)] if begin else []
        parts.append(input)
        parts += [g.slice(input, axis, 0, end)] if end else []
        shape = [size + begin + end if at == axis else s for at, s in enumerate(input.shape)]
        input = g.op("Concat", *parts, axis=axis, shape=shape)
    return input


@translates("interpolate", "upsample")
def interpolate(
    g: Builder,
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resampling to another resolution."""
    rank = input.rank - 2
    if antialias:
        raise Unsupported("antialiasing")
    if mode == "area":
        return ADAPTIVE_AVG_POOLS[rank](g, input, tuple(g.out.shape[2:]))
    factors = scale_factor if isinstance(scale_factor, (tuple, list)) else [scale_factor] * rank
    scales = None if size is not None or recompute_scale_factor else list(factors)
    return resize(g, input, mode, bool(align_corners), scales)


@translates("upsample_nearest")
def upsample_nearest(
    g: Builder, input: Tensor, size: Any = None, scale_factor: Any = None
) -> Tensor:
    """Resampling to another resolution."""
    return interpolate(g, input, size, scale_factor)


@translates("upsample_bilinear")
def upsample_bilinear(
    g: Builder, input: Tensor, size: Any = None, scale_factor: Any = None
) -> Tensor:
    """Resampling to another resolution."""
    return interpolate(g, input, size, scale_factor, "bilinear", True)


def resize(
    g: Builder, input: Tensor, mode: str, align_corners: bool, scales: list[Any] | None
) -> Tensor:
    """Resample to the shape that analysis found, or by ``scales``."""
    linear = {"linear": 1, "bilinear": 2, "trilinear": 3}
    attributes: dict[str, Any] = {}
    if mode in ("nearest", "nearest-exact"):
        attributes |= {"mode": "nearest"}
        exact = mode == "nearest-exact"
        attributes["nearest_mode"] = "round_prefer_ceil" if exact else "floor"
        coordinates = "half_pixel" if exact else "asymmetric"
    elif mode in linear or mode == "bicubic":
        attributes["mode"] = "linear" if mode in linear else "cubic"
        if mode == "bicubic":
            attributes["cubic_coeff_a"] = -0.75
        coordinates = "align_corners" if align_corners else "half_pixel"
    else:
        raise Unsupported(f"the mode {mode!r}")
    attributes["coordinate_transformation_mode"] = coordinates
    if scales is not None and not align_corners:
        _check_scales(input, scales)
        given = [1.0, 1.0, *(float(scale) for scale in scales)]
        factors = g.known(torch.tensor(given, dtype=torch.float32))
        return g.op("Resize", input, None, factors, shape=g.out.shape, **attributes)
    sizes = g.ints(g.out.shape)
    return g.op("Resize", input, None, None, sizes, shape=g.out.shape, **attributes)


def _check_scales(input: Tensor, scales: list[Any]) -> None:
    """Check that runtimes, whose scales are in single precision, compute the same sizes."""
    for size, scale in zip(input.shape[2:], scales, strict=True):
        if not isinstance(scale, (int, float)):
            raise Unsupported("a scale that is not known")
        if not isinstance(size, int):
            if scale != int(scale):
                raise Unsupported("a fraction of a size that is not known")
            continue
        if math.floor(size * scale) != math.floor(np.float32(size) * np.float32(scale)):
            raise Unsupported("a scale that single precision rounds to another size")


def _aten_upsample(mode: str) -> Any:
    def upsample(g: Builder, input: Tensor, *arguments: Any, **named: Any) -> Tensor:
        """Resampling to another resolution."""
        aligned = named.get("align_corners", False)
        rest = list(arguments)
        output_size = rest.pop(0) if rest else named.get("output_size", named.get("input_size"))
        if rest and isinstance(rest[0], bool):
            aligned = rest.pop(0)
        scales = rest.pop(0) if rest else named.get("scale_factors")
        if rest or (scales is not None and not isinstance(scales, (tuple, list))):
            raise Unsupported("scales beside sizes")
        if scales is None and output_size is None:
            raise Unsupported("no size")
        return resize(g, input, mode, bool(aligned), None if scales is None else list(scales))

    return upsample


for _name, _mode in (
    ("upsample_nearest1d", "nearest"),
    ("upsample_nearest2d", "nearest"),
    ("upsample_nearest3d", "nearest"),
    ("_upsample_nearest_exact1d", "nearest-exact"),
    ("_upsample_nearest_exact2d", "nearest-exact"),
    ("upsample_linear1d", "linear"),
    ("upsample_bilinear2d", "bilinear"),
    ("upsample_trilinear3d", "trilinear"),
    ("upsample_bicubic2d", "bicubic"),
):
    translates(_name)(_aten_upsample(_mode))
