"""Names, expressions and types of configurations that nothing of a model matches, as sentences for warnings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from corsac._messages.near_names import did_you_mean
from corsac.fx.graph_module import GraphModule
from corsac.quantization._kinds import same_class
from corsac.quantization.qconfig_mapping import get_default_qconfig_mapping


def unmatched_names(mapping: Any, model: nn.Module) -> Iterator[str]:
    """Sentences about names and expressions of a ``QConfigMapping`` that no module of a model matches.

    Raises:
        ValueError: an expression is none.
    """
    names = [name for name, _ in model.named_modules()]
    wanted = [
        *mapping.module_name_qconfigs,
        *(name for name, _, _ in mapping.module_name_object_type_order_qconfigs),
    ]
    yield from unknown_modules(wanted, model)
    for expression in mapping.module_name_regex_qconfigs:
        try:
            re.compile(expression)
        except re.error as error:
            raise ValueError(
                f"module_name_regex: expected a regular expression, got {expression!r}: {error}"
            ) from error
        if not any(re.match(expression, name) for name in names):
            hint = did_you_mean(expression, names)
            yield f"no module of the model matches {expression!r}{hint}"


def unknown_modules(wanted: Iterable[str], model: nn.Module) -> Iterator[str]:
    """Sentences about names that no module of a model has."""
    names = [name for name, _ in model.named_modules(remove_duplicate=False)]
    for name in dict.fromkeys(wanted):
        if name not in names:
            yield f"the model has no module {name!r}{did_you_mean(name, names)}"


def unknown_types(wanted: Iterable[type], model: nn.Module) -> Iterator[str]:
    """Sentences about classes that no module of a model is of."""
    types = {type_before_parametrizations(module) for module in model.modules()}
    for kind in dict.fromkeys(wanted):
        if not any(same_class(kind, own) for own in types):
            hint = did_you_mean(kind.__name__, sorted(own.__name__ for own in types))
            yield f"the model has no module of type {kind.__name__}{hint}"


class Calls:
    """What graphs call: classes of modules, functions and methods."""

    def __init__(self, classes: Iterable[type] = ()) -> None:
        self._targets: set[Any] = {*classes}

    def add(self, model: nn.Module) -> None:
        """Add the classes of the modules of a model, and the functions and methods that its graph calls."""
        self._targets.update(type_before_parametrizations(module) for module in model.modules())
        if isinstance(model, GraphModule):
            nodes = (node for node in model.graph.nodes if node.op.startswith("call_"))
            self._targets.update(node.target for node in nodes if node.op != "call_module")

    def unmatched(self, types: Iterable[Any]) -> Iterator[str]:
        """Sentences about object types that are none of these. Those of the default mappings, which are for all models,
        are left out."""
        types = [*types]
        known = {*(get_default_qconfig_mapping().object_type_qconfigs if types else ())}
        for wanted in types:
            if wanted not in known and not any(same_class(wanted, own) for own in self._targets):
                yield f"object_type: nothing in the model matches {_shown(wanted)}{self._near(wanted)}"

    def _near(self, wanted: Any) -> str:
        texts: dict[str, list[str]] = {}
        for own in self._targets:
            texts.setdefault(_name(own), []).append(_shown(own))
        shown = {name: " or ".join(sorted(own)) for name, own in texts.items()}
        return did_you_mean(_name(wanted), shown, shown=shown)


def _name(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", repr(target))


def _shown(target: Any) -> str:
    if isinstance(target, str):
        return f"the method {target!r}"
    if isinstance(target, type):
        return f"the class {target.__name__}"
    return f"the function {_name(target)}" if hasattr(target, "__name__") else repr(target)
