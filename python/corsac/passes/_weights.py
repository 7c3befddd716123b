"""The weights of modules: folding batch norms into them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from corsac.fx.graph_module import GraphModule

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class FoldedLayers:
    """Layers with batch norms folded into their weights: new modules, by qualified name.

    The modules of ``root`` stay as they are.
    """

    def __init__(self, root: torch.nn.Module) -> None:
        self._root = root
        self.layers: dict[str, torch.nn.Module] = {}

    def fold(self, layer: str, norm: str) -> str | None:
        """Fold the batch norm ``norm`` into the layer ``layer``; why not, if it cannot be done."""
        before = self.layers.get(layer) or self._root.get_submodule(layer)
        statistics = self._root.get_submodule(norm)
        weight, bias = before._parameters.get("weight"), before._parameters.get("bias")
        mean, variance = statistics._buffers["running_mean"], statistics._buffers["running_var"]
        scale, shift = statistics._parameters["weight"], statistics._parameters["bias"]
        if weight is None or mean is None or variance is None:
            return "its weights are not there"
        if weight.dtype not in _FLOATS:
            return f"the weight of {layer} is {weight.dtype}"
        if mean.numel() != weight.shape[0]:
            return f"{norm} normalises {mean.numel()} channels, {layer} makes {weight.shape[0]}"
        if weight.device != mean.device:
            return f"{layer} is on {weight.device}, {norm} on {mean.device}"

        with torch.no_grad():
            # As torch.nn.utils.fusion does, so that results are the same to the last bit.
            factor = torch.rsqrt(variance + statistics.eps)
            new_bias = -mean if bias is None else bias - mean
            new_bias = new_bias * factor
            if scale is not None:
                factor, new_bias = scale * factor, new_bias * scale
            if shift is not None:
                new_bias = new_bias + shift
            new_weight = weight * factor.reshape(-1, *[1] * (weight.dim() - 1))
        trained = bias is not None and bias.requires_grad
        after = shallow_copy(before)
        after._parameters["weight"] = torch.nn.Parameter(
            new_weight.to(weight.dtype), weight.requires_grad
        )
        after._parameters["bias"] = torch.nn.Parameter(
            new_bias.to(weight.dtype if bias is None else bias.dtype), trained
        )
        self.layers[layer] = after
        return None


def shallow_copy(module: torch.nn.Module) -> Any:
    """A module of the same class with the same parameters, which can be replaced in it alone."""
    copied = type(module).__new__(type(module))
    copied.__dict__.update(
        (name, value.copy() if isinstance(value, (dict, list, set)) else value)
        for name, value in module.__dict__.items()
    )
    return copied


def install(root: torch.nn.Module, path: str, module: torch.nn.Module) -> None:
    """Put ``module`` in the place of the submodule called ``path``."""
    parent, _, name = path.rpartition(".")
    setattr(root.get_submodule(parent), name, module)


def drop_unused(gm: GraphModule, paths: Iterable[str]) -> None:
    """Delete those of the submodules that the graph names no more."""
    used = {
        node.target for op in ("call_module", "get_attr") for node in gm.graph.find_nodes(op=op)
    }
    for path in set(paths):
        if not any(target == path or target.startswith(f"{path}.") for target in used):
            gm.delete_submodule(path)
