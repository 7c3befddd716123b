"""``model.dequantize()``: the way back to the float model."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from corsac.quantization.one_call._layers import merge_attentions
from corsac.quantization.quantized._weight import QuantisedWeight

#: Attributes that float layers do not have.
_OWN = ("axis", "quant_min", "quant_max", "group", "input_quantiser")


class Dequantizer:
    """Gives the float model of a quantised one. It is the method ``dequantize`` of the quantised model.

    The float model is kept, but not in copies that are pickled: these give a model with the weights that the integers
    stand for.
    """

    def __init__(self, model: nn.Module, original: nn.Module | None) -> None:
        self._model = model
        self._original = original

    def __call__(self) -> nn.Module:
        """The float model: the one that was quantised, or one with the weights that the integers stand for."""
        if self._original is not None:
            return self._original
        made = copy.deepcopy(self._model)
        for name in ("dequantize", "quantization_report"):
            vars(made).pop(name, None)
        known: dict[int, nn.Module] = {}
        for name, module in [*made.named_modules(remove_duplicate=False)]:
            if not isinstance(module, QuantisedWeight):
                continue
            layer = known.setdefault(id(module), _float(module))
            if not name:
                return layer
            parent, _, own = name.rpartition(".")
            made.get_submodule(parent)._modules[own] = layer
        return merge_attentions(made)

    def __deepcopy__(self, memo: dict[int, Any]) -> Dequantizer:
        made = Dequantizer.__new__(Dequantizer)
        memo[id(self)] = made
        made._model = copy.deepcopy(self._model, memo)
        made._original = self._original
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {"_model": self._model, "_original": None}


def _float(module: Any) -> nn.Module:
    """The float layer with the weight that the integers stand for."""
    kind = module._float
    made: Any = kind.__new__(kind)
    nn.Module.__init__(made)
    for name, value in vars(module).items():
        if name not in vars(made) and name not in _OWN:
            setattr(made, name, value)
    made.training = module.training
    weight = module.dequantised().detach()
    made.weight = nn.Parameter(weight, requires_grad=False)
    if kind is not nn.Embedding:
        made.register_parameter("bias", module.bias)
    return made
