"""State dicts of models that torch.ao has quantised, with tensors of plain types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from corsac.quantization._dtypes import qint8
from corsac.quantization.torch_ao._weights import (
    integers_of,
    is_quantised,
    packed_steps,
    reference_steps,
)

_PACKED = "_packed_params."


def plain_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state dict in which each tensor of a quantised type is one of integers, with the entries ``NAME_scale`` and
    ``NAME_zero_point``; parameters that were packed have the names of the layer's parameters.
    """
    made: dict[str, Any] = {}
    for name, value in state.items():
        prefix, packed, last = name.rpartition(_PACKED)
        if packed and last == "dtype":
            continue
        if packed and isinstance(value, tuple):
            weight, bias = value
            _add(made, f"{prefix}weight", weight)
            if bias is not None:
                made[f"{prefix}bias"] = bias.detach()
        elif packed and last == "_packed_weight":
            _add(made, f"{prefix}weight", value)
        else:
            _add(made, name, value)
    return made


def unpack_layer(state: dict[str, Any], prefix: str, axis: int) -> None:
    """Replace what torch.ao has in a state dict for a linear layer, a convolution or a table by plain tensors.

    Args:
        state: the state dict, which is changed; one that has no packed parameters stays as it is.
        prefix: the beginning of the names of the layer.
        axis: the dimension of the scales.
    """
    packed = state.pop(f"{prefix}{_PACKED}_packed_params", None)
    table = state.pop(f"{prefix}{_PACKED}_packed_weight", None)
    state.pop(f"{prefix}{_PACKED}dtype", None)
    _round(state, f"{prefix}weight", axis)
    weight = state.get(f"{prefix}weight") if table is None else table
    if packed is not None:
        weight, bias = packed
        if bias is not None:
            state[f"{prefix}bias"] = bias.detach()
    if packed is not None or is_quantised(weight):
        _add(state, f"{prefix}weight", weight, axis)
        if state.get(f"{prefix}bias", weight) is None:
            del state[f"{prefix}bias"]
        # Those of results, which dynamic layers of torch.ao keep as well.
        for name in ("scale", "zero_point"):
            state.pop(f"{prefix}{name}", None)


def unpack_recurrent(state: dict[str, Any], prefix: str, names: list[str]) -> None:
    """Replace what torch.ao has in a state dict for a dynamic recurrent layer or cell by plain tensors.

    Args:
        state: the state dict, which is changed; one that has no packed parameters stays as it is.
        prefix: the beginning of the names of the layer.
        names: the names of the layer's weights, those of inputs and states in turn.
    """
    pairs = [
        (f"{prefix}_packed_{name}", f"{prefix}{name}")
        for name in names
        if f"{prefix}_packed_{name}" in state
    ]
    packed = [(state.pop(key), name) for key, name in pairs]
    for name in names:
        _round(state, f"{prefix}{name}", 0)
    for number, own in enumerate(zip(names[::2], names[1::2], strict=True)):
        cell = state.pop(f"{prefix}_all_weight_values.{number}.param", None)
        if cell is not None:
            parts = cell.__getstate__()[0][4]
            packed += [(part, f"{prefix}{name}") for part, name in zip(parts, own, strict=True)]
    for part, name in packed:
        weight, bias = part.__getstate__()[0]
        _add(state, name, weight)
        if bias is not None:
            before, _, end = name.rpartition("weight_")
            state[f"{before}bias_{end}"] = bias.detach()


def _round(state: dict[str, Any], name: str, axis: int) -> None:
    """Replace a float weight of a reference module, with what it has for its steps, by its integers."""
    if f"{name}_axis" not in state:
        return
    axis_of_steps = int(state.pop(f"{name}_axis"))
    scales, zero_points = (state.pop(f"{name}_{part}") for part in ("scale", "zero_point"))
    # Recurrent layers do not save the scheme and the type, of which they have one.
    whole = torch.per_tensor_affine if scales.numel() == 1 else torch.per_channel_affine
    scheme = state.pop(f"{name}_qscheme", whole)
    dtype = state.pop(f"{name}_dtype", qint8)
    steps = reference_steps(scheme, dtype, scales, zero_points, axis_of_steps)
    weight = state[name].detach()
    if steps is None:
        state[name] = weight.half()
        return
    state[name] = steps.quantise(weight)
    steps = steps.expanded(weight, axis)
    state[f"{name}_scale"], state[f"{name}_zero_point"] = steps.scales, steps.zero_points


def _add(made: dict[str, Any], name: str, value: Any, axis: int = 0) -> None:
    if not is_quantised(value):
        made[name] = value.detach() if isinstance(value, Tensor) else value
        return
    made[name] = integers_of(value)
    # Tensors of fewer than 8 bits are tables.
    steps = packed_steps(value).expanded(value, axis)
    made[f"{name}_scale"], made[f"{name}_zero_point"] = steps.scales, steps.zero_points
