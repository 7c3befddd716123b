"""The configuration of each node of a graph module."""

from __future__ import annotations

import re
from typing import Any

from corsac import _core
from corsac.fx._module_attributes import get_submodule
from corsac.fx.graph_module import GraphModule
from corsac.quantization._kinds import is_a, is_activation_post_process, same_class
from corsac.quantization._requests import Choices, Numbered
from corsac.quantization.qconfig import qconfig_equals


class NodeConfigurations:
    """The configurations of nodes by their names, as ``mapping`` says.

    Args:
        model: the graph module, with fused layers.
        mapping: a ``QConfigMapping``.
        scopes: for each node, by name, the path and the class of the module that it was recorded in.
        classes: :func:`module_classes` of the model before modules were swapped.

    Attributes:
        qconfigs: the different configurations; others have numbers, their places in this list.
        chosen: the number of each node's, by name; None for those that are not quantised.
        unused: the entries of the mapping by type and number that no call has.
    """

    def __init__(
        self,
        model: GraphModule,
        mapping: Any,
        scopes: dict[str, Any],
        classes: dict[str, tuple[type, ...]],
    ) -> None:
        modules = dict(model.named_modules(remove_duplicate=False))
        numbers = Numbered()
        types = dict(mapping.object_type_qconfigs)
        for path, kinds in classes.items():
            if path in modules:
                _add_type(types, mapping.object_type_qconfigs, type(modules[path]), kinds)
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


def module_classes(model: GraphModule) -> dict[str, tuple[type, ...]]:
    """The classes of the modules that a graph calls, by path, each with those of the layers that are fused in it."""
    found = {}
    for node in model.graph.find_nodes(op="call_module"):
        module = get_submodule(model, node.target)
        layers = module._modules.values() if is_a(module, "_FusedModule") else ()
        found[node.target] = (type(module), *map(type, layers))
    return found


def _add_type(
    found: dict[Any, Any], types: dict[Any, Any], now: type, kinds: tuple[type, ...]
) -> None:
    """Add the configuration of the class of a module: of the class that it had, or of the first layer fused in it."""
    kind, *layers = kinds
    own = next((one for one in types if same_class(one, kind)), None)
    if own is not None:
        found[now] = types[own]
    elif layers and layers[0] in types:
        qconfig = found[now] = types[layers[0]]
        for layer in layers[1:]:
            other = types.get(layer, qconfig)
            if other is not qconfig and (
                other is None or qconfig is None or not qconfig_equals(other, qconfig)
            ):
                raise LookupError(
                    f"layers that are fused have one configuration, but {layers[0].__name__} and {layer.__name__} of "
                    f"{kind.__name__} have different ones: {qconfig} and {other}"
                )


def is_reuse_input(qconfig: Any) -> bool:
    """Whether a configuration gives results the observer of the input."""
    return is_a(qconfig.activation(), "ReuseInputObserver") and is_a(
        qconfig.weight(), "NoopObserver"
    )
