"""Compiled functions, as functions around the module that runs them."""

from __future__ import annotations

import functools
import reprlib
import types
from collections.abc import Callable
from typing import Any

from corsac._models.wrapper import ModelWrapper

#: Attribute of a compiled function that holds its module.
_MODULE = "_corsac_module"


def as_function(module: ModelWrapper, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls ``module``, the compiled form of ``function``: as an attribute of a module it stays a
    function, and in a class it is a method. For a bound method, a bound method."""
    call = module._call_with
    if isinstance(function, types.MethodType):
        owner, own = function.__self__, function.__func__

        @functools.wraps(own)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            # A copy of the owner has the same method, but other weights.
            return call(args, kwargs) if self is owner else own(self, *args, **kwargs)

        return types.MethodType(_described(method, module), owner)
    updated = ("__dict__",) if isinstance(function, types.FunctionType) else ()

    @functools.wraps(function, updated=updated)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs)

    return _described(compiled, module)


def check_callable(model: Any) -> None:
    """Check that ``model`` can be called.

    Raises:
        TypeError: it cannot.
    """
    if callable(model):
        return
    hint = ""
    if isinstance(model, str):
        hint = (
            "; a model is named on the command line only, such as `corsac save "
            "torchvision.models:resnet50 --input 1,3,224,224 --out resnet50.safetensors`"
        )
    raise TypeError(f"expected a module or a function, got {reprlib.repr(model)}{hint}")


def _described(compiled: Callable[..., Any], module: ModelWrapper) -> Callable[..., Any]:
    """``compiled`` with the module and its reporting methods as attributes."""
    setattr(compiled, _MODULE, module)
    for name in ("explain", "native_programs"):
        if hasattr(type(module), name):
            setattr(compiled, name, getattr(module, name))
    return compiled


def module_of(compiled: Any) -> Any:
    """The module that runs a function made by :func:`as_function`; other callables themselves. For the method of a copy
    of its owner, the original method, bound to the copy."""
    if isinstance(compiled, types.MethodType):
        own = compiled.__func__
        module = getattr(own, "__dict__", {}).get(_MODULE)
        if module is None or module._model is compiled.__self__:
            return compiled if module is None else module
        return types.MethodType(own.__wrapped__, compiled.__self__)  # type: ignore[attr-defined]
    if isinstance(compiled, types.FunctionType):
        return compiled.__dict__.get(_MODULE, compiled)
    return compiled


__all__ = ["as_function", "check_callable", "module_of"]
