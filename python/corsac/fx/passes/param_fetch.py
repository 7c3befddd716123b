"""Stores on nodes the attributes of their modules that a backend needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..graph_module import GraphModule

__all__ = [
    "default_matching",
    "extract_attrs_for_lowering",
    "lift_lowering_attrs_to_nodes",
]


def default_matching(name: str, target_version: int) -> str:
    """The name of the attribute ``name`` in a module of ``target_version``: the same."""
    return name


_CONVOLUTION = "weight bias kernel_size stride padding dilation groups padding_mode"
_POOLING = "kernel_size stride padding dilation return_indices ceil_mode"

module_fetch_book: dict[type, tuple[int, list[str], Callable[[str, int], str]]] = {
    cls: (version, attributes.split(), default_matching)
    for cls, version, attributes in (
        (nn.Linear, 1, "weight bias"),
        (nn.Conv2d, 1, _CONVOLUTION),
        (nn.BatchNorm2d, 2, "weight bias running_mean running_var eps"),
        (nn.AdaptiveAvgPool2d, 1, ""),
        (nn.MaxPool2d, 1, _POOLING),
        (nn.ReLU, 1, "inplace"),
    )
}
"""For each class of modules the newest known version, the attributes to record, and a function that returns
their names in a version. Backends may add to it.
"""


def extract_attrs_for_lowering(mod: nn.Module) -> dict[str, Any]:
    """The attributes of ``mod`` listed in :data:`module_fetch_book`, and its class as ``name``.

    Raises:
        RuntimeError: the book lacks the class, or this version of it.
    """
    name = torch.typename(mod)
    try:
        version, attributes, called = module_fetch_book[type(mod)]
    except KeyError:
        raise RuntimeError(
            f"{name} is not in the module_fetch_book yet: add it as module_fetch_book[{name}]"
        ) from None
    if version < mod._version:
        raise RuntimeError(
            f"module_fetch_book knows version {version} of {name}, but this module is of version "
            f"{mod._version}"
        )
    values = {attribute: getattr(mod, called(attribute, mod._version)) for attribute in attributes}
    return {"name": name, **values}


def lift_lowering_attrs_to_nodes(fx_module: GraphModule) -> None:
    """Set ``node.attrs_for_lowering`` of all nodes that call modules, also in submodules with a graph.

    Raises:
        RuntimeError: a module is unknown; see :func:`extract_attrs_for_lowering`.
    """
    modules = dict(fx_module.named_modules())
    for node in fx_module.graph.find_nodes(op="call_module"):
        module = modules[node.target]
        if isinstance(module, GraphModule):
            lift_lowering_attrs_to_nodes(module)
        else:
            node.attrs_for_lowering = extract_attrs_for_lowering(module)
