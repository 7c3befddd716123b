"""Signatures of callables, and equivalent calls with fewer arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._jit_internal import boolean_dispatched

from corsac.fx.operator_schemas import (
    _torchscript_schema_to_signature,
    get_signature_for_torch_op,
)

Signature = inspect.Signature


def of_function(function: Callable[..., Any]) -> list[Signature] | None:
    """The signatures of a function, one for each overload; None if they are unknown."""
    if function in boolean_dispatched:
        # Both forms take the same arguments.
        function = boolean_dispatched[function]["if_false"]
    try:
        return [inspect.signature(function)]
    except (TypeError, ValueError):
        return get_signature_for_torch_op(function) or None


def of_method(name: str) -> list[Signature] | None:
    """The signatures of a tensor's method, with the tensor as the first argument; None if there are none."""
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    return [_torchscript_schema_to_signature(schema) for schema in schemas] or None


def accepts(
    signatures: list[Signature] | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    """Whether one of the signatures takes these arguments. An unknown one (None) is assumed to take
    positional arguments only."""
    if signatures is None:
        return not kwargs
    return any(_binds(signature, args, kwargs) for signature in signatures)


def without_defaults(
    signatures: list[Signature] | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same call without arguments that only repeat the defaults: keyword arguments, and the
    last of the positional ones."""
    for signature in signatures or ():
        if not _binds(signature, args, kwargs):
            continue
        parameters = list(signature.parameters.values())
        named = signature.parameters
        kept = {
            key: value
            for key, value in kwargs.items()
            if key not in named or not is_same_literal(value, named[key].default)
        }
        count = len(args)
        while 0 < count <= len(parameters) and _repeats(parameters[count - 1], args[count - 1]):
            count -= 1
        return args[:count], kept
    return args, dict(kwargs)


def is_same_literal(a: Any, b: Any) -> bool:
    """Whether two arguments are the same number, string, flag or None."""
    return type(a) is type(b) and isinstance(a, int | float | str | bool | None) and bool(a == b)


def _repeats(parameter: inspect.Parameter, value: Any) -> bool:
    variadic = parameter.kind is inspect.Parameter.VAR_POSITIONAL
    return not variadic and is_same_literal(value, parameter.default)


def _binds(signature: Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True
