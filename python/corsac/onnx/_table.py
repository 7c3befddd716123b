"""The table of translations: from the called function or module to the function that translates it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from corsac.fx import Node
from corsac.fx.node import _get_qualified_name
from corsac.onnx._builder import Builder
from corsac.onnx._types import Unsupported

#: A translation is called with the builder and the arguments of torch's function, and returns the value.
Translation = Callable[..., Any]

_FUNCTIONS: dict[str, Translation] = {}
_MODULES: dict[type[torch.nn.Module], Translation] = {}

#: Alternative names of parameters.
_KEYWORDS = {"self": "input", "x": "input", "axis": "dim", "axes": "dims", "keepdims": "keepdim"}

# Prefixes of names, by the place where a function is found.
_PREFIXES = (
    ("torch.ops.aten.", "aten."),
    ("torch.nn.functional.", "F."),
    ("torch.functional.", "torch."),
    ("torch._tensor.Tensor.", "Tensor."),
    ("torch.special.", "special."),
    ("torch.linalg.", "linalg."),
    ("torch._C._nn.", "F."),
    ("torch._C._special.special_", "special."),
    ("torch._C._linalg.linalg_", "linalg."),
    ("_operator.", "operator."),
    ("torch.", "torch."),
)


def translates(*names: str) -> Callable[[Translation], Translation]:
    """Register a translation of functions.

    A bare name means the function of ``torch``, of ``torch.nn.functional``, of ``operator``, the method and
    the ``aten`` operator, with their in-place forms. A prefix ``F.``, ``torch.``, ``Tensor.``, ``aten.``,
    ``operator.`` or other restricts it, and takes precedence.
    """

    def register(translation: Translation) -> Translation:
        for name in names:
            if name in _FUNCTIONS:
                raise AssertionError(f"{name} has a translation")
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


def has_translation(operator: torch._ops.OpOverload) -> bool:
    """Whether an operator has a row in the table."""
    name = operator._opname
    return operator.namespace == "aten" and (f"aten.{name}" in _FUNCTIONS or name in _FUNCTIONS)


def function_names(node: Node) -> tuple[str, str]:
    """The name of the called function with its prefix, ``F.relu``, and without, ``relu``; in-place marks are
    removed."""
    if node.op == "call_method":
        name = str(node.target)
        return f"Tensor.{_plain(name)}", _plain(name)
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        qualified = f"torch.ops.{target.namespace}.{target._opname}"
    else:
        qualified = _get_qualified_name(target)
    for prefix, short in _PREFIXES:
        if qualified.startswith(prefix):
            name = qualified.removeprefix(prefix)
            if short == "operator." and name.startswith("i") and name in _IN_PLACE_OPERATORS:
                name = name[1:]
            name = name.strip("_") if short == "operator." else _plain(name)
            # Only these namespaces are torch's: torch.ops.mine.add is not torch.add.
            return f"{short}{name}", "" if "." in name else name
    return qualified, ""


_IN_PLACE_OPERATORS = {
    f"i{name}"
    for name in [
        "add",
        "and",
        "concat",
        "floordiv",
        "lshift",
        "matmul",
        "mod",
        "mul",
        "or",
        "pow",
        "rshift",
        "sub",
        "truediv",
        "xor",
    ]
}


def _plain(name: str) -> str:
    if name.startswith("__") and name.endswith("__"):
        return name.strip("_")
    return name[:-1] if name.endswith("_") else name


def translate_call(g: Builder, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Translate a call of a function or method."""
    full, bare = function_names(node)
    translation = _FUNCTIONS.get(full) or _FUNCTIONS.get(bare)
    if translation is None:
        raise NoTranslation(f"no translation of {node._pretty_print_target(node.target)}")
    return call(translation, g, args, kwargs)


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
    kwargs = {_KEYWORDS.get(key, key): value for key, value in kwargs.items()}
    code = translation.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    unknown = [key for key in kwargs if key not in names and not code.co_flags & 0x08]
    if unknown:
        raise Unsupported(f"no translation of the argument {unknown[0]}")
    takes_more = code.co_flags & 0x04
    if len(args) + 1 > code.co_argcount and not takes_more:
        raise Unsupported(f"no translation of {len(args)} positional arguments")
    needed = names[1 + len(args) : code.co_argcount - len(translation.__defaults__ or ())]
    missing = [name for name in needed if name not in kwargs]
    if missing:
        raise Unsupported(f"no translation without the argument {missing[0]}")
    return translation(g, *args, **kwargs)
