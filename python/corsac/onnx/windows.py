"""Operators on windows of images that PyTorch has for two dimensions only, or not at all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch


def col2im(
    input: torch.Tensor,
    image_shape: Sequence[int],
    block_shape: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    strides: Sequence[int],
) -> torch.Tensor:
    """Images of which ``input`` has the windows as columns; elements in several windows are added."""
    rank = len(block_shape)
    padded = [size + pads[at] + pads[at + rank] for at, size in enumerate(image_shape)]
    counts = [
        (size - (block_shape[at] - 1) * dilations[at] - 1) // strides[at] + 1
        for at, size in enumerate(padded)
    ]
    channels = input.shape[1] // math.prod(block_shape)
    windows = input.reshape(input.shape[0], channels, *block_shape, *counts)
    result = input.new_zeros(input.shape[0], channels, *padded)
    for place in itertools.product(*(range(own) for own in block_shape)):
        parts = tuple(
            slice(at * dilation, at * dilation + (count - 1) * stride + 1, stride)
            for at, dilation, count, stride in zip(place, dilations, counts, strides, strict=True)
        )
        result[(slice(None), slice(None), *parts)] += windows[(slice(None), slice(None), *place)]
    inner = tuple(slice(pads[at], pads[at] + size) for at, size in enumerate(image_shape))
    return result[(slice(None), slice(None), *inner)]


def deform_conv(
    input: torch.Tensor,
    weight: torch.Tensor,
    offset: torch.Tensor,
    bias: torch.Tensor | None,
    mask: torch.Tensor | None,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    group: int,
    offset_group: int,
) -> torch.Tensor:
    """A convolution of images that reads each element of its windows at a place moved by ``offset``."""
    batch, channels, height, width = input.shape
    out_channels, _, rows, columns = weight.shape
    out_height, out_width = offset.shape[-2:]
    taps = rows * columns
    offset = offset.reshape(batch, offset_group, taps, 2, out_height, out_width)
    device = input.device
    y0 = torch.arange(out_height, device=device) * strides[0] - pads[0]
    x0 = torch.arange(out_width, device=device) * strides[1] - pads[1]
    tap_y = torch.arange(rows, device=device).repeat_interleave(columns) * dilations[0]
    tap_x = torch.arange(columns, device=device).repeat(rows) * dilations[1]
    y = offset[:, :, :, 0] + y0[:, None] + tap_y[:, None, None]
    x = offset[:, :, :, 1] + x0 + tap_x[:, None, None]
    # Places as grid_sample takes them, of all taps below each other.
    grid = torch.stack((x * 2 / max(width - 1, 1) - 1, y * 2 / max(height - 1, 1) - 1), -1)
    grid = grid.reshape(batch * offset_group, taps * out_height, out_width, 2)
    if height == 1 or width == 1:
        raise ValueError("deform_conv of images of one row or column")
    images = input.reshape(batch * offset_group, channels // offset_group, height, width)
    found = torch.nn.functional.grid_sample(
        images, grid, mode="bilinear", padding_mode="zeros", align_corners=True
    )
    found = found.reshape(
        batch, offset_group, channels // offset_group, taps, out_height, out_width
    )
    if mask is not None:
        found = found * mask.reshape(batch, offset_group, 1, taps, out_height, out_width)
    found = found.reshape(batch, group, channels // group * taps, out_height * out_width)
    kernels = weight.reshape(group, out_channels // group, -1)
    result = (kernels @ found).reshape(batch, out_channels, out_height, out_width)
    return result if bias is None else result + bias[:, None, None]
