"""Weights of quantised types, and packed ones, as plain integers with scales and zero points."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from corsac.quantization._dtypes import UNDERLYING, full_range, quint2x4, quint4x2
from corsac.quantization.quantized._steps import WeightSteps

_PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)


class UnreadableError(ValueError):
    """A part of a model that torch.ao has quantised cannot be read; the message names it."""


def is_quantised(value: Any) -> bool:
    """Whether a value is a tensor of a quantised type."""
    return isinstance(value, Tensor) and value.is_quantized


def integers_of(tensor: Tensor) -> Tensor:
    """The integers of a tensor of a quantised type: one byte each, also for those of fewer bits."""
    levels = tensor.int_repr()
    bits = {quint4x2: 4, quint2x4: 2}.get(tensor.dtype)
    if bits is None:
        return levels.clone()
    # The first number has the lowest bits.
    parts = [levels >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
    return torch.stack(parts, -1).flatten()[: tensor.numel()].reshape(tensor.shape)


def steps_of(tensor: Tensor) -> WeightSteps:
    """The scales and zero points of a tensor of a quantised type."""
    low, high = full_range(tensor.dtype)
    if tensor.dtype == quint2x4:
        high = 3
    dtype = UNDERLYING[tensor.dtype]
    if tensor.qscheme() in _PER_TENSOR:
        scale = torch.tensor(tensor.q_scale(), dtype=torch.float32)
        zero_point = torch.tensor(tensor.q_zero_point(), dtype=torch.int32)
        return WeightSteps(scale, zero_point, 0, low, high, dtype)
    zero_points = tensor.q_per_channel_zero_points()
    kept = torch.float32 if zero_points.is_floating_point() else torch.int32
    return WeightSteps(
        tensor.q_per_channel_scales().to(torch.float32),
        zero_points.to(kept),
        tensor.q_per_channel_axis(),
        low,
        high,
        dtype,
    )


def packed_steps(table: Tensor) -> WeightSteps:
    """The scales and zero points of the rows of a packed table: those of fewer than 8 bits are of half precision."""
    steps = steps_of(table)
    if table.dtype in (quint4x2, quint2x4):
        offsets = (-steps.zero_points * steps.scales).half().float()
        steps.scales = steps.scales.half().float()
        steps.zero_points = -offsets / steps.scales
    return steps


def reference_steps(
    scheme: Any,
    dtype: Any,
    scales: Tensor,
    zero_points: Tensor,
    axis: int,
    bounds: tuple[int | None, int | None] = (None, None),
) -> WeightSteps | None:
    """The steps of a float weight of a reference module; None if the weight is of half precision.

    Args:
        scheme: the quantisation scheme.
        dtype: the quantised type.
        scales: one, or one for each channel.
        zero_points: as many.
        axis: the dimension of the channels.
        bounds: the smallest and the largest integer, None for those of the type.
    """
    if scheme is None or dtype not in UNDERLYING:
        return None
    per_channel = scheme not in _PER_TENSOR
    shape = (-1,) if per_channel else ()
    kept = torch.float32 if zero_points.is_floating_point() else torch.int32
    own = (
        whole if given is None else given
        for given, whole in zip(bounds, full_range(dtype), strict=True)
    )
    return WeightSteps(
        scales.to(torch.float32).reshape(shape),
        zero_points.to(kept).reshape(shape),
        axis if per_channel else 0,
        *own,
        UNDERLYING[dtype],
    )


def packed_parts(packed: Any, rank: int | None) -> tuple[Tensor, Tensor | None] | None:
    """The weight and the bias of packed parameters.

    Args:
        packed: the parameters.
        rank: the number of dimensions of the convolution; None for a linear layer.

    Returns:
        None if they are those of another kind of layer.
    """
    kind = packed_kind(packed)
    if rank is None and kind.startswith("LinearPackedParams"):
        parts, _ = packed.__getstate__()
        return parts
    if rank is not None and kind.startswith("Conv"):
        weight, bias = packed.unpack()
        # Those of one dimension are packed as ones of images of one row.
        return (weight.squeeze(2) if rank == 1 and weight.dim() == 4 else weight), bias
    return None


def packed_kind(packed: Any) -> str:
    """The name of the class of packed parameters."""
    return str(packed._type()).rpartition(".")[2]


def constant(tensor: Tensor | None) -> nn.Parameter | None:
    """A parameter without gradients, for biases of quantised layers."""
    return None if tensor is None else nn.Parameter(tensor.detach(), requires_grad=False)


def filled(
    kind: Any,
    shell: nn.Module,
    weight: Tensor,
    bias: Tensor | None,
    steps: WeightSteps | None = None,
) -> Any:
    """A layer of :mod:`corsac.quantization.quantized` with the integers of a weight.

    Args:
        kind: the class.
        shell: a float layer on the meta device with the sizes and strides.
        weight: of a quantised type, or of floats that are kept in half precision.
        bias: floats, which are shared.
        steps: those of the weight, if they are not the ones it has.
    """
    made = kind.__new__(kind)
    nn.Module.__init__(made)
    for name, value in vars(shell).items():
        if name not in vars(made):
            setattr(made, name, value)
    made.training = False
    if "bias" in shell._parameters:
        made.register_parameter("bias", constant(bias))
    made.float_dtype = torch.float32
    if not weight.is_quantized:
        made.register_buffer("weight", weight.detach().to(torch.float16))
        made.register_buffer("weight_scale", None)
        made.register_buffer("weight_zero_point", None)
        return made
    steps = (steps or steps_of(weight)).expanded(weight, kind._output_axis)
    made.axis, made.quant_min, made.quant_max = steps.axis, steps.quant_min, steps.quant_max
    made.register_buffer("weight", integers_of(weight))
    made.register_buffer("weight_scale", steps.scales.clone())
    made.register_buffer("weight_zero_point", steps.zero_points.clone())
    return made
