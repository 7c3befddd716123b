"""Quantised forms of layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from corsac.quantization import quantized
from corsac.quantization.one_call._layers import Layer, is_transposed
from corsac.quantization.one_call._weights import WeightForm, groups_of, steps_of
from corsac.quantization.quantized.inputs import DynamicInput, StaticInput
from corsac.quantization.quantized.integer_layers import (
    GroupedLinear,
    IntegerConv1d,
    IntegerConv2d,
    IntegerConv3d,
    IntegerLinear,
)

#: How a layer's input is quantised: in one fixed range, each row in its own, not at all.
Inputs = Literal["static", "dynamic", "float"]

_OF_FLOATS: dict[type[nn.Module], Any] = {
    nn.Linear: quantized.Linear,
    nn.Conv1d: quantized.Conv1d,
    nn.Conv2d: quantized.Conv2d,
    nn.Conv3d: quantized.Conv3d,
    nn.Embedding: quantized.Embedding,
}
_OF_INTEGERS: dict[type[nn.Module], Any] = {
    nn.Linear: IntegerLinear,
    nn.Conv1d: IntegerConv1d,
    nn.Conv2d: IntegerConv2d,
    nn.Conv3d: IntegerConv3d,
}


@dataclass(frozen=True)
class Form:
    """The form of a quantised layer."""

    inputs: Inputs
    weights: WeightForm

    def __str__(self) -> str:
        return str(self.weights) if self.inputs == "float" else f"{self.weights} {self.inputs}"

    def fitting(self, layer: Layer) -> tuple[Form | None, str]:
        """This form, or the nearest one that the layer can have, or None; and why it is another one."""
        if layer.is_table:
            return (Form("float", WeightForm()), "") if self.inputs == "float" else (None, _TABLE)
        if self.inputs == "dynamic" and not layer.is_matrix:
            return None, "only inputs of linear layers are quantised row by row"
        if self.weights.bits == 4:
            if not layer.is_matrix:
                return Form(self.inputs, WeightForm()), "int4 is for linear layers"
            columns, group = layer.weight().shape[1], self.weights.group
            if columns % group:
                why = f"{columns} input features are not in groups of {group}"
                return Form(self.inputs, WeightForm()), why
        return self, ""


_TABLE = "tables are quantised by weights= only"


def as_linear(layer: nn.Module) -> nn.Module:
    """The layer; for a linear one with its weight transposed, the same as ``nn.Linear``."""
    if not is_transposed(layer):
        return layer
    own: Any = layer
    features, outputs = own.weight.shape
    made: Any = nn.Linear(features, outputs, device="meta")
    made.weight = nn.Parameter(own.weight.detach().t().contiguous(), requires_grad=False)
    made.bias = own.bias
    made.training = layer.training
    return made


def quantised(
    layer: Layer, form: Form, steps: tuple[float, int] | None = None, tables: Tables | None = None
) -> nn.Module:
    """The layer in a form.

    Args:
        layer: the layer, which stays as it is; its bias is shared.
        form: one that the layer can have.
        steps: scale and zero point of its input, if the form is static.
        tables: integers of weights that other layers have, too.
    """
    module: Any = as_linear(layer.module)
    kind = type(module)
    quantiser = {
        "static": lambda: StaticInput(*steps) if steps else None,
        "dynamic": DynamicInput,
        "float": lambda: None,
    }[form.inputs]()
    made: Any
    if form.weights.bits == 4:
        made = GroupedLinear(module, *groups_of(module.weight, form.weights.group), quantiser)
    else:
        owner = _OF_FLOATS if quantiser is None else _OF_INTEGERS
        made = owner[kind].from_float(module, steps_of(module.weight))
        if quantiser is not None:
            made.input_quantiser = quantiser
        if tables is not None:
            tables.share(layer.module, made)
    if is_transposed(layer.module):
        own: Any = layer.module
        made.nf, made.nx = own.nf, own.nx
    return made.eval()


class Tables:
    """Integers of weights that several layers share."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[nn.Parameter, Tensor, Tensor, Tensor]] = {}

    def share(self, layer: nn.Module, made: Any) -> None:
        """Give ``made`` the integers of an earlier layer with the same weight."""
        own: Any = layer
        if is_transposed(layer):
            return
        new = own.weight, made.weight, made.weight_scale, made.weight_zero_point
        known = self._known.setdefault(id(own.weight), new)
        made.weight, made.weight_scale, made.weight_zero_point = known[1:]


def bytes_of(module: nn.Module) -> int:
    """Size of the parameters and buffers of a module."""
    tensors = {id(own): own for own in (*module.parameters(), *module.buffers())}
    return sum(own.numel() * own.element_size() for own in tensors.values())


def add_to_bias(module: Any, amount: Tensor) -> None:
    """Add numbers to the bias of a quantised layer, which gets its own."""
    old = module.bias
    new = amount if old is None else old.detach() + amount
    module.bias = nn.Parameter(new.to(torch.float32), requires_grad=False)
