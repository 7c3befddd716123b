"""The table of translations: from the operator or module to the function that translates it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from corsac import _core
from corsac.fx import Node
from corsac.onnx._builder import Builder
from corsac.onnx._types import Unsupported

#: A translation is called with the builder and the arguments of torch's function, and returns the value.
Translation = Callable[..., Any]

_FUNCTIONS: dict[str, Translation] = {}
_MODULES: dict[type[torch.nn.Module], Translation] = {}


def translates(*names: str) -> Callable[[Translation], Translation]:
    """Register a translation of operators, by their names in the operator table.

    It serves calls in every spelling, in place too, and gets the arguments under the names of the operator's
    parameters; by position where these have none.
    """

    def register(translation: Translation) -> Translation:
        for name in names:
            if name != _core.operator_named(name) or name in _FUNCTIONS:
                raise AssertionError(f"{name} has a translation, or another name")
            _FUNCTIONS[name] = translation
        return translation

    return register


def translates_module(*classes: type[torch.nn.Module]) -> Callable[[Translation], Translation]:
    """Register a translation of modules, which is called with the builder, the module, its path, and the
    arguments of the module."""

    def register(translation: Translation) -> Translation:
        for cls in classes:
            _MODULES[cls] = translation
        return translation

    return register


def table() -> dict[str, str]:
    """All translations by name, each with the first line of its docstring."""
    rows = {name: _summary(function) for name, function in _FUNCTIONS.items()}
    rows |= {f"nn.{cls.__name__}": _summary(function) for cls, function in _MODULES.items()}
    return dict(sorted(rows.items(), key=lambda row: row[0].lower()))


def _summary(function: Translation) -> str:
    return (function.__doc__ or "").strip().partition("\n")[0]


def translation_of(operator: str | None) -> Translation | None:
    """The translation of the operator with this name."""
    return _FUNCTIONS.get(operator or "")


def operator_of(node: Node) -> str | None:
    """The name of the operator that a call of a function or method computes."""
    return _core.operator_of(node.op, node.target)[0]


def translate_call(g: Builder, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Translate a call of a function or method."""
    translation = translation_of(operator_of(node))
    if translation is None:
        raise NoTranslation(f"no translation of {node._pretty_print_target(node.target)}")
    try:
        named = _core.named_arguments_of(node.op, node.target, args, kwargs)
    except TypeError as error:
        raise Unsupported(f"no translation of these arguments ({error})") from error
    return call(translation, g, *((args, kwargs) if named is None else ((), named)))


class NoTranslation(Unsupported):
    """The table has no row for it."""


def translate_module(
    g: Builder,
    module: torch.nn.Module,
    path: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Translate a call of a module."""
    translation = module_translation(module)
    if translation is None:
        raise NoTranslation(f"no translation of {type(module).__module__}.{type(module).__name__}")
    return call(translation, g, (module, path, *args), kwargs)


def module_translation(module: torch.nn.Module) -> Translation | None:
    """The translation of the class that defines the ``forward`` of ``module``."""
    if "forward" in module.__dict__:
        return None
    for cls in type(module).__mro__:
        if cls in _MODULES and type(module).forward is cls.forward:
            return _MODULES[cls]
    return None


def call(
    translation: Translation, g: Builder, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a translation; report arguments that it does not have as unsupported."""
    try:
        _signature(translation).bind(g, *args, **kwargs)
    except TypeError as error:
        raise Unsupported(f"no translation of these arguments ({error})") from error
    return translation(g, *args, **kwargs)


_signature = functools.cache(inspect.signature)
