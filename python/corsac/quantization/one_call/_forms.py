"""Quantised forms of layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from corsac.quantization.one_call._layers import Layer, base_of, is_transposed
from corsac.quantization.one_call._weights import WeightForm, groups_of, steps_of
from corsac.quantization.quantized.half_layers import (
    HalfConv1d,
    HalfConv2d,
    HalfConv3d,
    HalfEmbedding,
    HalfLayer,
    HalfLinear,
)
from corsac.quantization.quantized.inputs import DynamicInput, StaticInput
from corsac.quantization.quantized.integer_layers import (
    GroupedEmbedding,
    GroupedLayer,
    GroupedLinear,
    IntegerConv1d,
    IntegerConv2d,
    IntegerConv3d,
    IntegerEmbedding,
    IntegerLayer,
    IntegerLinear,
)

#: Quantisation of a layer's input: in one fixed range, each row in its own, not at all.
Inputs = Literal["static", "dynamic", "float"]

_CLASSES: dict[type[nn.Module], Any] = {
    nn.Linear: IntegerLinear,
    nn.Conv1d: IntegerConv1d,
    nn.Conv2d: IntegerConv2d,
    nn.Conv3d: IntegerConv3d,
    nn.Embedding: IntegerEmbedding,
}
_HALVES: dict[type[nn.Module], Any] = {
    nn.Linear: HalfLinear,
    nn.Conv1d: HalfConv1d,
    nn.Conv2d: HalfConv2d,
    nn.Conv3d: HalfConv3d,
    nn.Embedding: HalfEmbedding,
}
_GROUPED: dict[type[nn.Module], Any] = {nn.Linear: GroupedLinear, nn.Embedding: GroupedEmbedding}


@dataclass(frozen=True)
class Form:
    """The form of a quantised layer."""

    inputs: Inputs
    weights: WeightForm

    def __str__(self) -> str:
        return str(self.weights) if self.inputs == "float" else f"{self.weights} {self.inputs}"

    def fitting(self, layer: Layer) -> tuple[Form | None, str]:
        """This form, or the nearest one that the layer can have, or None; and why it is another one."""
        if layer.is_table and self.inputs != "float":
            return None, _TABLE
        if self.inputs == "dynamic" and not layer.is_matrix:
            return None, "only inputs of linear layers are quantised row by row"
        if self.weights.bits == 4:
            if not (layer.is_matrix or layer.is_table):
                return Form(self.inputs, WeightForm()), "int4 is for linear layers and tables"
            columns, group = layer.weight().shape[1], self.weights.group
            if columns % group:
                why = f"rows of {columns} features are not in groups of {group}"
                return Form(self.inputs, WeightForm()), why
        return self, ""


#: Weights, inputs and products of bfloat16.
HALF = Form("float", WeightForm(16))
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
    quantiser: nn.Module | None = None
    if form.inputs == "dynamic":
        quantiser = DynamicInput()
    elif form.inputs == "static":
        assert steps is not None
        quantiser = StaticInput(*steps)
    made: Any
    base = base_of(module)
    if form == HALF:
        made = _HALVES[base].from_float(module, None)
    else:
        if form.weights.bits == 4:
            weight = groups_of(module.weight, form.weights.group)
            made = _GROUPED[base].from_float(module, weight)
        else:
            made = _CLASSES[base].from_float(module, steps_of(module.weight))
        made.input_quantiser = quantiser
    if tables is not None:
        tables.share(layer.module, made)
    if is_transposed(layer.module):
        own: Any = layer.module
        made.nf, made.nx = own.nf, own.nx
    return made.eval()


#: The tensors of weights of layers, by their names.
_NAMES: dict[type[nn.Module], tuple[str, ...]] = {
    GroupedLayer: ("packed", "weight_scale"),
    HalfLayer: ("rounded_weight",),
    IntegerLayer: ("integers", "weight_scale", "weight_zero_point"),
}


class Tables:
    """Weights that several quantised layers share."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[str, ...]], tuple[nn.Parameter, list[Tensor]]] = {}

    def share(self, layer: nn.Module, made: Any) -> None:
        """Give ``made`` the weight of an earlier layer of the same form with the same float weight."""
        own: Any = layer
        if is_transposed(layer):
            return
        names = next(names for kind, names in _NAMES.items() if isinstance(made, kind))
        new = own.weight, [getattr(made, name) for name in names]
        _, tensors = self._known.setdefault((id(own.weight), names), new)
        for name, tensor in zip(names, tensors, strict=True):
            setattr(made, name, tensor)


def bytes_of(module: nn.Module) -> int:
    """Size of the parameters and buffers of a module."""
    tensors = {id(own): own for own in (*module.parameters(), *module.buffers())}
    return sum(own.numel() * own.element_size() for own in tensors.values())


def add_to_bias(module: Any, amount: Tensor) -> None:
    """Add numbers to the bias of a quantised layer, which gets its own."""
    old = module.bias
    new = amount if old is None else old.detach() + amount
    module.bias = nn.Parameter(new.to(torch.float32), requires_grad=False)
