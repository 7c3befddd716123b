"""Functions that were compiled, as functions."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from corsac._stand_in import StandIn

#: The attribute of a function that has the module which runs it.
_MODULE = "_corsac_module"


def as_function(module: StandIn, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls ``module``, which was made of ``function``: set as an attribute of a module it stays a
    function, and in a class it is a method."""
    call = module.__call__
    updated = ("__dict__",) if isinstance(function, types.FunctionType) else ()

    @functools.wraps(function, updated=updated)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    setattr(compiled, _MODULE, module)
    for name in ("explain", "native_programs"):
        if hasattr(type(module), name):
            setattr(compiled, name, getattr(module, name))
    return compiled


def module_of(compiled: Any) -> Any:
    """The module that runs a function, if :func:`as_function` has made it; itself otherwise."""
    if isinstance(compiled, types.FunctionType):
        return compiled.__dict__.get(_MODULE, compiled)
    return compiled


__all__ = ["as_function", "module_of"]
