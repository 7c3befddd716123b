"""Layers with weights in graph modules: which become quantised ones, and their weights."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from corsac.fx._module_attributes import get_submodule
from corsac.fx.graph_module import GraphModule
from corsac.passes._weights import install, shallow_copy
from corsac.quantization import quantized
from corsac.quantization._dtypes import UNDERLYING
from corsac.quantization._kinds import is_a
from corsac.quantization._patterns import entries, is_supported
from corsac.quantization._preparation import ObservedState
from corsac.quantization.quantized._steps import WeightSteps

_LAYERS: dict[type[nn.Module], Any] = {
    nn.Linear: quantized.Linear,
    nn.Bilinear: quantized.Bilinear,
    nn.Conv1d: quantized.Conv1d,
    nn.Conv2d: quantized.Conv2d,
    nn.Conv3d: quantized.Conv3d,
    nn.ConvTranspose1d: quantized.ConvTranspose1d,
    nn.ConvTranspose2d: quantized.ConvTranspose2d,
    nn.ConvTranspose3d: quantized.ConvTranspose3d,
    nn.Embedding: quantized.Embedding,
    nn.EmbeddingBag: quantized.EmbeddingBag,
}
#: Packages whose reference modules are replaced by quantised layers.
_REFERENCES = ("torch.ao.nn", "corsac.quantization")
_RECURRENT: dict[type[nn.Module], Any] = {
    nn.LSTM: quantized.LSTM,
    nn.GRU: quantized.GRU,
    nn.LSTMCell: quantized.LSTMCell,
    nn.GRUCell: quantized.GRUCell,
    nn.RNNCell: quantized.RNNCell,
}


class QuantisedLayers:
    """The layers of a graph module whose weights are quantised.

    Attributes:
        float_weights: the float weights, by path and name of the parameter.
    """

    def __init__(
        self, model: GraphModule, state: ObservedState, qconfigs: dict[str, Any], backend: Any
    ) -> None:
        self._model, self._state, self._qconfigs = model, state, qconfigs
        self._dtypes: dict[Any, Any] = {}
        #: The quantised classes of a backend's own, by the float class.
        self._own: dict[Any, Any] = {}
        self._roots: set[Any] = set()
        for pattern, config in entries(backend):
            self._dtypes[pattern] = config.dtype_configs
            if config.root_module is not None and config.reference_quantized_module is not None:
                self._roots.add(config.root_module)
                if not config.reference_quantized_module.__module__.startswith(_REFERENCES):
                    self._own[config.root_module] = config.reference_quantized_module
        self._made: dict[int, nn.Module] = {}
        self.float_weights: dict[str, torch.Tensor] = {}

    def swap(self) -> None:
        """Put quantised layers in the places of those that were prepared for it, and float ones in the places of
        other layers for training."""
        calls: dict[str, list[str]] = {}
        for node in self._model.graph.find_nodes(op="call_module"):
            calls.setdefault(node.target, []).append(node.name)
        for path, names in calls.items():
            module = get_submodule(self._model, path)
            made = self._made.get(id(module))
            if made is None:
                name = next(filter(self._is_quantised, names), names[0])
                made = self._made[id(module)] = self._quantised(name, path, module)
            if made is not module:
                install(self._model, path, made)

    def _is_quantised(self, name: str) -> bool:
        """Whether a call was prepared, and has a configuration still."""
        return name in self._state.observed_node_names and self._qconfigs.get(name) is not None

    def _quantised(self, name: str, path: str, module: nn.Module) -> nn.Module:
        """The layer to put in the place of a module: itself if it stays."""
        observer = None
        if hasattr(module, "weight_fake_quant") and hasattr(module, "to_float"):
            observer = module.weight_fake_quant
            qconfig = getattr(module, "qconfig", None)
            module = module.to_float()
            module.qconfig = qconfig
        qconfig = self._qconfigs.get(name)
        if not self._is_quantised(name):
            return module
        if not is_supported(qconfig, self._dtypes.get(type(module), [])):
            return module
        dtype = getattr(qconfig.weight(), "dtype", None)
        if dtype not in UNDERLYING and dtype != torch.float16:
            return module
        return self._converted(path, module, qconfig, observer)

    def _converted(self, path: str, module: nn.Module, qconfig: Any, observer: Any) -> nn.Module:
        fused = is_a(module, "_FusedModule")
        layer = module[0] if fused else module
        kind = type_before_parametrizations(layer)
        if kind not in self._roots or is_parametrized(layer) or getattr(layer, "max_norm", None):
            return module
        name = f"{path}.0" if fused else path
        if kind in self._own:
            steps = self._steps(f"{name}.weight", layer.weight, qconfig, observer)
            made = self._own[kind].from_float(layer, _parameters(qconfig.weight(), steps))
        elif kind in _RECURRENT:
            made = self._recurrent(_RECURRENT[kind], name, layer, qconfig)
        elif kind in _LAYERS:
            self.float_weights[f"{name}.weight"] = layer.weight
            steps = self._steps(f"{name}.weight", layer.weight, qconfig, observer)
            made = _LAYERS[kind].from_float(layer, steps)
        else:
            return module
        if fused:
            whole = shallow_copy(module)
            whole._modules["0"] = made
            return whole
        made.qconfig = qconfig
        return made

    def _steps(
        self, name: str, weight: torch.Tensor, qconfig: Any, observer: Any
    ) -> WeightSteps | None:
        """The steps of a weight; None for half precision."""
        if observer is None:
            observer = qconfig.weight()
            observer.to(weight.device)
        else:
            # The prepared model stays as it is.
            observer = copy.deepcopy(observer)
        if observer.dtype == torch.float16:
            return None
        # A fake quantiser may not have run since the weight was trained.
        observer(weight)
        return WeightSteps.of_observer(observer, name, weight)

    def _recurrent(self, kind: Any, path: str, layer: nn.Module, qconfig: Any) -> nn.Module:
        steps = {}
        for name, parameter in layer._parameters.items():
            if name.startswith("weight") and parameter is not None:
                self.float_weights[f"{path}.{name}"] = parameter
                steps[name] = self._steps(f"{path}.{name}", parameter, qconfig, None)
        return kind.from_float(layer, steps)


def _parameters(observer: Any, steps: WeightSteps | None) -> dict[str, Any]:
    """The parameters of a weight, as quantised classes of other backends take them."""
    if steps is None:
        return {"qscheme": None, "dtype": observer.dtype}
    parameters = {
        "qscheme": observer.qscheme,
        "dtype": observer.dtype,
        "scale": steps.scales,
        "zero_point": steps.zero_points,
        "quant_min": steps.quant_min,
        "quant_max": steps.quant_max,
    }
    return parameters if steps.per_tensor else {**parameters, "axis": steps.axis}
