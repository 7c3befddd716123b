"""The configuration of each node of a graph module."""

from __future__ import annotations

import re
from typing import Any

import torch

from corsac import _core
from corsac.quantization._kinds import is_a, is_activation_post_process
from corsac.quantization._requests import Choices, Numbered
from corsac.quantization.qconfig import qconfig_equals


class NodeConfigurations:
    """The configurations of nodes by their names, as ``mapping`` says.

    Args:
        model: the graph module, with fused layers.
        mapping: a ``QConfigMapping``.
        scopes: for each node, by name, the path and the class of the module that it was recorded in.

    Attributes:
        qconfigs: the different configurations; others have numbers, their places in this list.
        chosen: the number of each node's, by name; None for those that are not quantised.
        unused: the entries of the mapping by type and number that no call has.
    """

    def __init__(self, model: torch.nn.Module, mapping: Any, scopes: dict[str, Any]) -> None:
        modules = dict(model.named_modules(remove_duplicate=False))
        numbers = Numbered()
        types = _with_fused_types(mapping.object_type_qconfigs, modules.values())
        ordered = mapping.module_name_object_type_order_qconfigs
        paths = {*modules, "", *(path for path, _ in scopes.values())}
        request = Choices(
            overall=numbers.number(mapping.global_qconfig),
            types=[(kind, numbers.number(qconfig)) for kind, qconfig in types.items()],
            matched={
                path: numbers.number(qconfig)
                for path in paths
                for qconfig in _first_match(mapping.module_name_regex_qconfigs, path)
            },
            modules={
                path: numbers.number(qconfig)
                for path, qconfig in mapping.module_name_qconfigs.items()
            },
            ordered=[(*key, numbers.number(qconfig)) for key, qconfig in ordered.items()],
        )
        observers = {path for path, module in modules.items() if is_activation_post_process(module)}
        chosen, unused = _core.choose_qconfigs(model.graph, request, scopes, observers)
        self.qconfigs: list[Any] = numbers.objects
        self.chosen: dict[str, int | None] = dict(chosen)
        self.unused = [list(ordered)[place] for place in unused]

    def of_node(self, name: str) -> Any:
        """The configuration of a node, by its name; None if it is not quantised."""
        number = self.chosen.get(name)
        return None if number is None else self.qconfigs[number]

    def by_name(self) -> dict[str, Any]:
        """The configurations of nodes by their names."""
        return {name: self.of_node(name) for name in self.chosen}


def _first_match(expressions: dict[str, Any], path: str) -> list[Any]:
    matching = (qconfig for text, qconfig in expressions.items() if re.match(text, path))
    return [*next(([qconfig] for qconfig in matching), [])]


def _with_fused_types(types: dict[Any, Any], modules: Any) -> dict[Any, Any]:
    """Configurations by type, with those of fused layers: that of the first layer."""
    if not types:
        return {}
    found = dict(types)
    for module in modules:
        if not is_a(module, "_FusedModule") or type(module) in types:
            continue
        kinds = [type(layer) for layer in module._modules.values()]
        if not kinds or kinds[0] not in types:
            continue
        qconfig = types[kinds[0]]
        for kind in kinds[1:]:
            other = types.get(kind, qconfig)
            if other is not qconfig and (
                other is None or qconfig is None or not qconfig_equals(other, qconfig)
            ):
                raise LookupError(
                    f"layers that are fused have one configuration, but {kinds[0].__name__} and {kind.__name__} of "
                    f"{type(module).__name__} have different ones: {qconfig} and {other}"
                )
        found[type(module)] = qconfig
    return found


def is_reuse_input(qconfig: Any) -> bool:
    """Whether a configuration gives results the observer of the input."""
    return is_a(qconfig.activation(), "ReuseInputObserver") and is_a(
        qconfig.weight(), "NoopObserver"
    )
