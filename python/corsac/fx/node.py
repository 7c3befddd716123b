"""Nodes, the steps of a graph, and functions on their arguments."""

from __future__ import annotations

import builtins
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar

import torch
import torch.fx.node as _torch_node

from corsac._core import Node, map_aggregate, map_arg
from corsac._core import Users as _Users
from corsac.fx.operator_schemas import ArgsKwargsPair, normalize_function, normalize_module

__all__ = ["Node", "has_side_effect", "map_aggregate", "map_arg"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

BaseArgumentTypes = _torch_node.BaseArgumentTypes
base_types = _torch_node.base_types
Target: TypeAlias = Callable[..., Any] | str
Argument: TypeAlias = (
    "tuple[Argument, ...] | Sequence[Argument] | Mapping[str, Argument] | slice | range | Node "
    "| BaseArgumentTypes | None"
)

ArgumentT = TypeVar("ArgumentT", bound=Any)

Mapping.register(_Users)

# Functions that dead-code elimination keeps: PyTorch's own set, shared in both directions, since libraries
# register with torch.fx.
_side_effectful_functions: set[Callable[..., Any]] = _torch_node._side_effectful_functions
_side_effectful_need_to_be_preserved_pre_dispatch = (
    _torch_node._side_effectful_need_to_be_preserved_pre_dispatch
)


def _is_impure(node: Node, impure_random: bool) -> bool:
    """Whether torch.fx's dead-code elimination would keep an unused ``node``."""
    if node.op in ("placeholder", "output"):
        return True
    if node.op == "call_module":
        owner = node.graph.owning_module
        if owner is None:
            raise AssertionError(
                f"node {node} calls a module, and its graph has no owning module to look it up in"
            )
        return getattr(owner.get_submodule(node.target), "_is_impure", False)
    if node.op == "call_function":
        try:
            from torch._library.utils import is_impure
        except ImportError:  # an older torch
            schema = getattr(node.target, "_schema", None)
            mutates = schema is not None and schema.is_mutable
            return mutates or node.target in _side_effectful_functions
        return is_impure(
            node.target, args=node.args, kwargs=node.kwargs, impure_random=impure_random
        )
    return False


def _normalized_arguments(
    node: Node,
    root: torch.nn.Module,
    arg_types: tuple[Any] | None,
    kwarg_types: dict[str, Any] | None,
    normalize_to_only_use_kwargs: bool,
) -> ArgsKwargsPair | None:
    """The arguments of ``node`` matched to the parameters of its target."""
    if node.op == "call_function":
        return normalize_function(
            node.target,
            node.args,
            node.kwargs,
            arg_types,
            kwarg_types,
            normalize_to_only_use_kwargs=normalize_to_only_use_kwargs,
        )
    if node.op == "call_module":
        return normalize_module(
            root,
            node.target,
            node.args,
            node.kwargs,
            normalize_to_only_use_kwargs=normalize_to_only_use_kwargs,
        )
    return None


def has_side_effect(fn: Callable[_P, _R]) -> Callable[_P, _R]:
    """Register ``fn`` as a function whose calls dead-code elimination keeps.

    The registration is shared with :mod:`torch.fx`. Returns ``fn``, for use as a decorator.
    """
    _side_effectful_functions.add(fn)
    return fn


def _type_repr(obj: object) -> str:
    """The short form of a type annotation: ``torch.Tensor`` rather than ``<class ...>``."""
    if isinstance(obj, type) and not isinstance(obj, types.GenericAlias):
        if obj.__module__ == "builtins":
            return obj.__qualname__
        return f"{obj.__module__}.{obj.__qualname__}"
    if obj is ...:
        return "..."
    if isinstance(obj, types.FunctionType):
        return obj.__name__
    return repr(obj)


def _format_arg(arg: object, max_list_len: float = float("inf")) -> str:
    """An argument in the format of :meth:`Node.format_node`: nodes with a percent sign, strings bare.

    Args:
        arg: the argument.
        max_list_len: maximum number of items of the outermost list or tuple to show.
    """
    own = getattr(arg, "_custom_fx_repr_fn", None)
    if own is not None:
        return own()
    if isinstance(arg, list | tuple):
        shown = [_format_arg(item) for number, item in enumerate(arg) if number < max_list_len]
        text = ", ".join(shown)
        if isinstance(arg, tuple) and len(arg) == 1:
            text += ","
        if len(arg) >= max_list_len + 1:
            text += f", ...[total_len={len(arg)}]"
        return f"[{text}]" if isinstance(arg, list) else f"({text})"
    if isinstance(arg, dict):
        entries = ", ".join(f"{key}: {_format_arg(value)}" for key, value in arg.items())
        return f"{{{entries}}}"
    if isinstance(arg, Node):
        return f"%{arg}"
    if isinstance(arg, torch.device):
        return _torch_node._format_arg(arg)
    return str(arg)


def _get_qualified_name(func: Callable[..., Any]) -> str:
    """The name under which generated code finds ``func``."""
    name = func.__name__
    if getattr(builtins, name, None) is func:
        return name
    is_method = isinstance(func, (types.MethodDescriptorType, types.WrapperDescriptorType))
    if (is_method and func is getattr(torch.Tensor, name, None)) or (
        func.__module__ == "torch._tensor" and func.__qualname__ == f"Tensor.{name}"
    ):
        return f"torch.Tensor.{name}"
    if name == "<lambda>":
        try:
            name = inspect.getsource(func).split("=")[0].strip()
        except Exception as error:
            raise RuntimeError("Unable to represent lambda") from error
    module = func.__module__
    if module is None:
        for guess in (torch, torch.nn.functional):
            if getattr(guess, name, None) is func:
                module = guess.__name__
                break
        else:
            raise RuntimeError(f"cannot find module for {func}")
    module = module.replace("torch._ops", "torch.ops")
    if (module, name) == ("torch", "segment_reduce"):
        name = "_segment_reduce"
    if module == "torch.nn.functional" and name in ("_ScalingType", "_SwizzleType"):
        name = name.removeprefix("_")
    return f"{module}.{name}"
