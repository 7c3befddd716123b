"""Weights of functions in state dicts of graph modules that torch.ao has converted."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch import Tensor

from corsac.quantization._dtypes import full_range, quantised
from corsac.quantization.quantized._steps import WeightSteps
from corsac.quantization.torch_ao._graph_names import GraphNames, PackedNames, WeightNames
from corsac.quantization.torch_ao._values import Steps
from corsac.quantization.torch_ao._weights import integers_of, packed_parts, steps_of


def entries(name: str, number: int, steps: Steps) -> dict[str, Tensor]:
    """The entries of a state dict of this package for the steps of a value."""
    return {
        f"{name}_scale_{number}": torch.tensor(steps.scale, dtype=torch.float64),
        f"{name}_zero_point_{number}": torch.tensor(steps.zero_point),
        f"{name}_quant_range_{number}": torch.tensor(full_range(steps.dtype)),
    }


class FunctionWeights:
    """Takes the weights of functions out of a state dict: packed parameters, or floats with their scales.

    Args:
        state: the state dict, which is changed.
        prefix: the beginning of the names of the module.

    Attributes:
        made: what the state dict has, under the names of this package.
        errors: messages about what cannot be taken.
    """

    def __init__(self, state: dict[str, Any], prefix: str) -> None:
        self._state, self._prefix = state, prefix
        self.made: dict[str, Any] = {}
        self.errors: list[str] = []

    def take(self, names: GraphNames, kept: Container[str]) -> None:
        """Take all weights; those of floats stay if their paths are in ``kept``."""
        for weight in names.weights:
            self._weight(weight)
        for source, call in names.halves:
            packed = self._packed(call)
            if source is not None and packed is not None:
                self.made[source] = packed[0].detach()
                self._bias(call, packed[1])
        for weight in names.weights:
            if weight.source is not None and weight.source not in kept:
                self._state.pop(self._prefix + weight.source, None)

    def _weight(self, names: WeightNames) -> None:
        """Take a weight of functions: that of their packed parameters, or floats and their scales."""
        packed = [self._packed(call) for call in names.calls]
        if packed and all(packed):
            weight, *others = [own[0] for own in packed if own]
            if any(not _equal(weight, other) for other in others):
                self.errors.append(
                    f"{self._prefix}{names.conversion.attribute}: expected one weight for all calls that share it"
                )
                return
            for call, own in zip(names.calls, packed, strict=True):
                self._bias(call, own[1] if own else None)
            self._keep_weight(names, integers_of(weight), steps_of(weight))
            return
        scale, zero_point = (
            self._state.pop(self._prefix + name, None) for name in (names.scale, names.zero_point)
        )
        weight = self._state.get(self._prefix + names.source) if names.source else None
        if scale is None or zero_point is None or weight is None:
            expected = [names.scale, *(f"{one.prefix}{one.number}" for one in names.calls)]
            self.errors.append(
                f"{self._prefix}{' or '.join(expected)}: expected the weight {names.source or ''} of a function"
            )
            return
        own = names.conversion
        assert own.dtype is not None
        low, high = full_range(own.dtype)
        steps = WeightSteps(scale, zero_point, own.axis or 0, low, high, own.dtype)
        self._keep_weight(names, steps.quantise(weight), steps)

    def _packed(self, names: PackedNames) -> tuple[Tensor, Tensor | None] | None:
        """The weight and the bias of packed parameters, if the state dict has as many as there are functions."""
        found = self._state.get(f"{self._prefix}{names.prefix}{names.number}")
        return None if found is None else packed_parts(found, names.rank)

    def _bias(self, names: PackedNames, bias: Tensor | None) -> None:
        self._state.pop(f"{self._prefix}{names.prefix}{names.number}")
        if (names.bias is None) != (bias is None):
            self.errors.append(
                f"{self._prefix}{names.prefix}{names.number}: expected "
                f"{'no bias' if names.bias is None else f'the bias {names.bias}'}"
            )
        elif names.bias is not None and bias is not None:
            self.made[names.bias] = bias.detach()

    def _keep_weight(self, names: WeightNames, integers: Tensor, steps: WeightSteps) -> None:
        own = names.conversion
        assert own.attribute is not None
        if steps.dtype != own.dtype or steps.per_tensor != (own.scales is None):
            self.errors.append(
                f"{self._prefix}{own.attribute}: expected {own.dtype} with "
                f"{'one scale' if own.scales is None else 'a scale for each channel'}, got {steps.dtype} with "
                f"{'one' if steps.per_tensor else 'several'}"
            )
            return
        self.made[own.attribute] = integers
        if own.scales is None:
            whole = Steps(float(steps.scales), int(steps.zero_points), quantised(own.dtype))
            self.made |= entries(own.attribute, 0, whole)
        else:
            self.made[own.scales] = steps.scales
            self.made[str(own.zero_points)] = steps.zero_points


def _equal(left: Tensor, right: Tensor) -> bool:
    return left.qscheme() == right.qscheme() and torch.equal(left.dequantize(), right.dequantize())
