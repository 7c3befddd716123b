"""The weights of modules: folding batch norms into them."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
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

    def fold(self, sites: list[tuple[str, str]]) -> list[str | None]:
        """Fold batch norms into layers, both by qualified name and in this order.

        Returns for each why it cannot be done; None where it was.
        """
        norms = [self._root.get_submodule(norm) for _, norm in sites]
        reasons: list[str | None] = []
        failed: set[str] = set()
        with torch.no_grad():
            for (layer, name), affine in zip(sites, _Affine.of_norms(norms), strict=True):
                if layer in failed:
                    reasons.append(f"the batch norm between {layer} and {name} stays")
                    continue
                reasons.append(self._fold(layer, name, affine))
                if reasons[-1] is not None:
                    failed.add(layer)
        return reasons

    def _fold(self, layer: str, name: str, affine: _Affine) -> str | None:
        before = self.layers.get(layer) or self._root.get_submodule(layer)
        weight, bias = before._parameters.get("weight"), before._parameters.get("bias")
        if weight is None:
            return f"{layer} has no weight"
        if weight.dtype not in _FLOATS:
            return f"the weight of {layer} is {weight.dtype}"
        if affine.factor.numel() != weight.shape[0]:
            return f"{name} normalises {affine.factor.numel()} channels, {layer} makes {weight.shape[0]}"
        if weight.device != affine.factor.device:
            return f"{layer} is on {weight.device}, {name} on {affine.factor.device}"

        new_weight = weight * affine.factor.reshape(-1, *[1] * (weight.dim() - 1))
        # A copy: the offsets of all norms lie in one tensor.
        new_bias = affine.offset.clone() if bias is None else affine.offset_with(bias)
        bias_dtype = weight.dtype if bias is None else bias.dtype
        if new_weight.dtype != weight.dtype:
            new_weight = new_weight.to(weight.dtype)
        if new_bias.dtype != bias_dtype:
            new_bias = new_bias.to(bias_dtype)
        trained = bias is not None and bias.requires_grad
        after = shallow_copy(before)
        after._parameters["weight"] = torch.nn.Parameter(new_weight, weight.requires_grad)
        after._parameters["bias"] = torch.nn.Parameter(new_bias, trained)
        self.layers[layer] = after
        return None


@dataclass(slots=True)
class _Affine:
    """A batch norm in evaluation as ``factor * x + offset``, per channel.

    Computed in the order in which torch.nn.utils.fusion does it, so that results are the same to
    the last bit.
    """

    norm: torch.nn.Module
    root: torch.Tensor  # 1 / sqrt(variance + eps)
    factor: torch.Tensor
    offset: torch.Tensor

    @classmethod
    def of_norms(cls, norms: list[torch.nn.Module]) -> list[_Affine]:
        """All at once: a model has as many of them as it has layers, and each is small."""
        alike: dict[Any, list[int]] = {}
        for i, norm in enumerate(norms):
            mean, parameters = norm._buffers["running_mean"], norm._parameters
            affine = (parameters["weight"], parameters["bias"])
            kinds = (None if p is None else p.dtype for p in affine)
            alike.setdefault((mean.dtype, mean.device, norm.eps, *kinds), []).append(i)
        found: list[Any] = [None] * len(norms)
        for group in alike.values():
            members = [norms[i] for i in group]
            means = [norm._buffers["running_mean"] for norm in members]
            variances = [norm._buffers["running_var"] for norm in members]
            root = torch.rsqrt(torch.cat(variances) + members[0].eps)
            factor, offset = root, -torch.cat(means) * root
            if members[0]._parameters["weight"] is not None:
                scale = torch.cat([norm._parameters["weight"] for norm in members])
                factor, offset = scale * root, offset * scale
            if members[0]._parameters["bias"] is not None:
                offset = offset + torch.cat([norm._parameters["bias"] for norm in members])
            sizes = [mean.numel() for mean in means]
            parts = (members, *(whole.split(sizes) for whole in (root, factor, offset)))
            for i, *part in zip(group, *parts, strict=True):
                found[i] = cls(*part)
        return found

    def offset_with(self, bias: torch.Tensor) -> torch.Tensor:
        """What is added after a layer that adds ``bias`` itself."""
        scale, shift = self.norm._parameters["weight"], self.norm._parameters["bias"]
        offset = (bias - self.norm._buffers["running_mean"]) * self.root
        if scale is not None:
            offset = offset * scale
        return offset if shift is None else offset + shift


_CONTAINERS = frozenset({dict, OrderedDict, list, set})


def shallow_copy(module: torch.nn.Module) -> Any:
    """A module of the same class with the same parameters, which can be replaced in it alone."""
    copied = type(module).__new__(type(module))
    state = copied.__dict__
    state.update(module.__dict__)
    for name, value in state.items():
        if type(value) in _CONTAINERS:
            state[name] = value.copy() if value else type(value)()
    return copied


def deep_copy(module: torch.nn.Module, memo: dict[int, Any]) -> Any:
    """What ``copy.deepcopy`` gives, sooner for modules that hold nothing but plain values."""
    if type(module).__module__.startswith("torch.nn.modules.") and all(
        type(value) in _SCALARS or (type(value) in _CONTAINERS and not value)
        for value in module.__dict__.values()
    ):
        if id(module) not in memo:
            memo[id(module)] = shallow_copy(module)
            # As copy does: what is known by its address has to stay alive.
            memo.setdefault(id(memo), []).append(module)
        return memo[id(module)]
    return copy.deepcopy(module, memo)


_SCALARS = frozenset({bool, int, float, str, type(None)})


def install(root: torch.nn.Module, path: str, module: torch.nn.Module) -> None:
    """Put ``module`` in the place of the submodule called ``path``."""
    parent, _, name = path.rpartition(".")
    root.get_submodule(parent)._modules[name] = module


def drop_unused(gm: GraphModule, paths: Iterable[str]) -> None:
    """Delete those of the submodules that the graph names no more."""
    used = {
        node.target for op in ("call_module", "get_attr") for node in gm.graph.find_nodes(op=op)
    }
    for path in set(paths):
        if not any(target == path or target.startswith(f"{path}.") for target in used):
            gm.delete_submodule(path)
