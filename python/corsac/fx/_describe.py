"""References to Python objects in generated code.

A description is a list: strings are source text, and tuples ``(name, object, is_builtin, is_import)`` are
globals: the preferred name, the object, whether it is the builtin of that name, and whether the code needs it
even if this text does not contain the name.
"""

from __future__ import annotations

import ast
import builtins
import enum
import keyword
import types
import typing
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.graph import _custom_builtins, inplace_methods, magic_methods

from .node import _get_qualified_name, _type_repr
from .tensor_type import TensorType

# Names that values may not have, with their objects, and the globals of all generated code: PyTorch's own
# tables, since libraries register with torch.fx.
try:
    from torch.fx.graph import _illegal_names
except ImportError:  # before torch 2.9
    _illegal_names = {name: object() for name in keyword.kwlist}
    _illegal_names.update(vars(builtins))
    _illegal_names.update({name: entry.obj for name, entry in _custom_builtins.items()})

try:
    from torch._library.opaque_object import get_opaque_obj_repr, is_opaque_constant_type
except ImportError:  # before torch 2.10
    get_opaque_obj_repr = None

    def is_opaque_constant_type(cls: type) -> bool:
        return False


Global = tuple[str, object, bool, bool]
Description = list[str | Global]

#: The classes behind ``list[int]`` and the like that have an equivalent in ``typing``.
_TYPING_ORIGINS: dict[Any, Any] = {
    list: typing.List,  # noqa: UP006
    dict: typing.Dict,  # noqa: UP006
    set: typing.Set,  # noqa: UP006
    frozenset: typing.FrozenSet,  # noqa: UP006
    tuple: typing.Tuple,  # noqa: UP006
}

#: Modules whose functions live as long as the process.
_PERMANENT_MODULES = ("builtins", "_operator", "math")

#: Kinds of functions that live as long if they come from such a module, or from torch.
_PERMANENT_KINDS = (
    types.BuiltinFunctionType,
    types.FunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
)

_BLUE = "\033[34m"
_RESET = "\033[0m"


def is_from_torch(obj: object) -> bool:
    """Whether generated code can write ``obj`` by its qualified name, ``torch`` being a global.

    False for functions of dynamo and inductor, modules, and most objects without a ``__module__``.
    """
    module = getattr(obj, "__module__", None)
    if module is not None:
        if not isinstance(module, str):
            return False
        first, *rest = module.split(".")
        hidden = any(part in ("_dynamo", "_inductor") for part in rest[:-1])
        return first == "torch" and all(rest) and not hidden
    name = getattr(obj, "__name__", None)
    if name is None or name == "torch":
        return False
    return any(getattr(space, name, None) is obj for space in (torch, torch.nn.functional))


def reference(name: str, obj: object) -> str | Global:
    """``obj`` by its qualified name if it is torch's, else as a global with ``name`` as preferred name."""
    if is_from_torch(obj) and obj is not torch.device:
        qualified = _get_qualified_name(obj)
        if all(
            part.isidentifier() and not keyword.iskeyword(part) for part in qualified.split(".")
        ):
            return qualified
    return (name, obj, _illegal_names.get(name) is obj, False)


def _qualified_name(function: Callable[..., Any]) -> str:
    if hasattr(function, "__name__"):
        return _get_qualified_name(function)
    # A callable object, such as functools.partial: named after its class.
    cls = type(function)
    return f"{cls.__module__}.{cls.__qualname__}"


def describe_function(
    function: Callable[..., Any],
) -> tuple[Description, str | None, list[int] | None, bool]:
    """Describe a called function.

    Returns:
        Its description; the name of the Python operator that it implements; the positions of list arguments
        that it empties; whether all this holds for the life of the process.
    """
    operator = None
    module = getattr(function, "__module__", None)
    if module == "_operator":
        name = function.__name__
        operator = name if name in magic_methods or name in inplace_methods else None
    boxed = getattr(function, "_boxed_arg_indices", None)
    positions = list(boxed) if boxed else None
    described = reference(_qualified_name(function), function)
    permanent = isinstance(function, _PERMANENT_KINDS) and (
        module in _PERMANENT_MODULES or isinstance(described, str)
    )
    return [described], operator, positions, permanent


def describe_class(cls: type) -> Description:
    """Describe a named tuple class."""
    return [reference(_get_qualified_name(cls), cls)]


def describe_type(annotation: Any) -> Description:
    """Describe a type annotation."""
    if isinstance(annotation, tuple) and annotation == ():
        return ["()"]
    name = _type_repr(annotation)
    if isinstance(annotation, types.UnionType) and "|" in name:
        # TorchScript finds no globals inside `a | b`.
        return _generic(typing.Union, typing.get_args(annotation))
    origin = getattr(annotation, "__origin__", None)
    if not origin:
        return [reference(name, annotation)]
    if isinstance(annotation, typing._GenericAlias):  # type: ignore[attr-defined]
        origin = _TYPING_ORIGINS.get(origin, origin)
    is_tensor = isinstance(annotation, TensorType)
    return _generic(origin, annotation.dims if is_tensor else typing.get_args(annotation))


def _generic(origin: Any, args: tuple[Any, ...]) -> Description:
    described: Description = [reference(_type_repr(origin), origin)]
    for index, arg in enumerate(args):
        described.append("," if index else "[")
        described.extend(describe_type(arg))
    if args:
        described.append("]")
    return described


def describe_value(value: Any, colored: bool) -> Description:
    """Describe a value in an argument that is not a plain literal."""
    if isinstance(value, torch._ops.OpOverload | torch._ops.HigherOrderOperator):
        return [reference(_get_qualified_name(value), value)]
    if isinstance(value, enum.Enum):
        cls = type(value)
        member = value.name
        if isinstance(member, str) and member.isidentifier():
            return [reference(cls.__name__, cls), f".{member}"]
        # A combination of flags.
        return [reference(cls.__name__, cls), f"({value.value!r})"]
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).split(".")[-1]
        return [f"torch.Tensor(size={list(value.size())}, dtype={dtype})"]
    if is_opaque_constant_type(type(value)):
        text, classes = get_opaque_obj_repr(value)
        return [text, *((name, cls, False, True) for name, cls in classes.items())]
    # For a subclass of str, the text itself: its own ``repr`` may differ.
    text = str.__repr__(value) if isinstance(value, str) else repr(value)
    if not _is_expression(text):
        return [reference(_name_for(value), value)]
    return [f"{_BLUE}{text}{_RESET}" if colored else text]


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _name_for(value: Any) -> str:
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return _get_qualified_name(value)
    return f"_{type(value).__name__}"
