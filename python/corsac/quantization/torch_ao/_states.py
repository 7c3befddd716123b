"""State dicts of models that torch.ao has quantised, with tensors of plain types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from corsac.quantization.torch_ao._weights import integers_of, is_quantised, packed_steps

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


def _add(made: dict[str, Any], name: str, value: Any) -> None:
    if not is_quantised(value):
        made[name] = value.detach() if isinstance(value, Tensor) else value
        return
    made[name] = integers_of(value)
    # Tensors of fewer than 8 bits are tables.
    steps = packed_steps(value).expanded(value, 0)
    made[f"{name}_scale"], made[f"{name}_zero_point"] = steps.scales, steps.zero_points
