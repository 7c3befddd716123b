"""Operations of nodes: what they compute, by one name for modules, functions and methods."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from corsac.fx._module_attributes import get_submodule
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node
from corsac.quantization._kinds import is_a, is_activation_post_process
from corsac.quantization.ns.loggers import OutputLogger

#: Names of fused modules: layer, batch norm, sum, activation, number of dimensions.
_FUSED = re.compile(r"(Conv|Linear|BN)(Bn)?(Add)?(ReLU|LeakyReLU|Tanh)?(\dd)?")
#: Modules that mark where values are rounded.
_STUBS = ("QuantStub", "DeQuantStub", "Quantize", "DeQuantize")
_NAMESPACES = ("corsac", "quantized_decomposed")
#: Methods that move values, or read facts of tensors.
_MOVES = frozenset(
    [
        "to",
        "dequantize",
        "reshape",
        "view",
        "unsqueeze_",
        "unsqueeze",
        "transpose",
        "squeeze_",
        "squeeze",
        "size",
        "shape",
        "resize_",
        "repeat_interleave",
        "repeat",
        "permute",
        "numel",
        "mean",
        "detach_",
        "detach",
        "contiguous",
        "clamp",
        "chunk",
    ]
)


def unmatchable_types() -> dict[str, set[Any]]:
    """The functions, modules and methods that are not compared, by the kind of node."""
    import operator

    return {
        "funs_unmatchable": {operator.getitem, getattr},
        "mods_unmatchable": {nn.Identity},
        "meths_unmatchable": set(_MOVES),
    }


def is_quantisation(node: Node) -> bool:
    """Whether a node quantises or dequantises, or computes the parameters of that."""
    target: Any = node.target
    return node.op == "call_function" and getattr(target, "namespace", None) in _NAMESPACES


def module_of(model: GraphModule, node: Node) -> Any:
    """The module that a node calls; None for other nodes."""
    return get_submodule(model, str(node.target)) if node.op == "call_module" else None


def is_watcher(model: GraphModule, node: Node) -> bool:
    """Whether a node calls an observer, a fake quantiser or a logger."""
    module = module_of(model, node)
    return module is not None and (
        is_activation_post_process(module) or isinstance(module, OutputLogger)
    )


def target_type(model: GraphModule, node: Node) -> str:
    """The type of what a node calls, or the function."""
    if node.op == "call_module":
        return torch.typename(module_of(model, node))
    return torch.typename(node.target)


def operations(model: GraphModule, node: Node, unmatchable: dict[str, set[Any]]) -> list[str]:
    """The names of what a node computes, in order: "conv2d", "relu"; nothing for nodes that are not compared."""
    target: Any = node.target
    if node.op == "call_function":
        if target in unmatchable["funs_unmatchable"] or is_quantisation(node):
            return []
        name = getattr(target, "_opname", None) or getattr(target, "__name__", str(target))
        return [_plain(re.sub(r"^i(?=add$|mul$|sub$)", "", name))]
    if node.op == "call_method":
        return [] if target in unmatchable["meths_unmatchable"] else [_plain(target)]
    if node.op != "call_module":
        return []
    module = module_of(model, node)
    if type(module) in unmatchable["mods_unmatchable"] or is_watcher(model, node):
        return []
    if is_a(module, *_STUBS):
        return []
    if is_a(module, "_FusedModule") or ".fused" in type(module).__module__:
        found = _FUSED.fullmatch(type(module).__name__)
        if found is not None:
            return _parts(*found.groups())
    return [_plain(type(module).__name__.removeprefix("NonDynamicallyQuantizable"))]


def _parts(*groups: str | None) -> list[str]:
    layer, norm, total, activation, dimensions = groups
    end = dimensions or ""
    names = [f"batchnorm{end}" if layer == "BN" else f"{(layer or '').lower()}{end}"]
    if norm:
        names.append(f"batchnorm{end or '1d'}")
    return names + [part.lower() for part in (total, activation) if part]


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def path_of(model: GraphModule, node: Node) -> str | None:
    """The path of the module that a node is of; None where a graph does not say."""
    from corsac.quantization._preparation import state_of

    state = state_of(model)
    scopes = model.__dict__.get("_node_name_to_scope") or (
        state.node_name_to_scope if state is not None else {}
    )
    if node.name in scopes:
        return scopes[node.name][0]
    return str(node.target) if node.op == "call_module" else None
