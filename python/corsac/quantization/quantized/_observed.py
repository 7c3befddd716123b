"""Layers that were observed: their floats, and the steps of their weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from corsac.quantization._kinds import is_a
from corsac.quantization.quantized._steps import WeightSteps


def float_layer(mod: nn.Module) -> nn.Module:
    """The layer in ``mod``, a layer, a fused module, or one for training, without fake quantisation."""
    if hasattr(mod, "weight_fake_quant") and hasattr(mod, "to_float"):
        mod = mod.to_float()  # type: ignore[operator]
    return mod[0] if is_a(mod, "_FusedModule") else mod  # type: ignore[index]


def weight_steps(
    mod: nn.Module, layer: nn.Module, use_precomputed_fake_quant: bool = False
) -> WeightSteps | None:
    """The steps of the weight of ``layer``, the float layer of ``mod``; None for half precision.

    Args:
        mod: has ``weight_fake_quant``, or a ``qconfig``.
        layer: the layer with the weight.
        use_precomputed_fake_quant: takes the parameters that a fake quantiser has, without another look at the weight.
    """
    weight: Any = layer.weight
    name = f"{type(layer).__name__}.weight"
    observer = weight_observer(mod, layer)
    if observer.dtype == torch.float16:
        return None
    if not (use_precomputed_fake_quant and hasattr(mod, "weight_fake_quant")):
        observer(weight.detach())
    return WeightSteps.of_observer(observer, name, weight.detach())


def weight_observer(mod: nn.Module, layer: nn.Module) -> Any:
    """The fake quantiser of a module for training, a new observer of others."""
    if hasattr(mod, "weight_fake_quant"):
        return mod.weight_fake_quant
    qconfig = getattr(mod, "qconfig", None) or getattr(layer, "qconfig", None)
    if qconfig is None:
        raise ValueError(
            f"{type(mod).__name__}: expected a qconfig, or weight_fake_quant, got none"
        )
    observer: Any = qconfig.weight()
    if observer is None or not hasattr(observer, "dtype"):
        raise ValueError(
            f"{type(mod).__name__}: expected a qconfig with an observer of weights, got {type(observer).__name__}"
        )
    weight: Any = next(iter(layer.parameters()), None)
    return observer if weight is None else observer.to(weight.device)
