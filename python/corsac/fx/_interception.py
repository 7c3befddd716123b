"""Intercepts calls and attribute reads of modules while a trace is active.

``torch.nn.Module.__call__`` and ``__getattr__`` are functions. While at least one trace is active in the
process, their code is replaced by code that enters the extension module, which looks for a trace of the
calling thread and otherwise calls the original. After the last trace the original code is restored.

The code is replaced rather than the attribute of the class: for a class with thousands of subclasses, as
``Module`` is, updating all of them takes most of a millisecond.
"""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any

import torch
from torch.fx import _symbolic_trace as _torch_trace

from corsac import _core

_MARK = "the native function stands here"


def _call_template(self, *args, **kwargs):
    intercept = "the native function stands here"
    return intercept(self, args, kwargs)


def _getattr_template(self, name):
    intercept = "the native function stands here"
    return intercept(self, name)


def _entering(template: FunctionType, native: Any, instead_of: FunctionType) -> CodeType:
    """The code of ``template`` that calls ``native``, named like the function whose code it replaces."""
    code = template.__code__
    consts = tuple(native if const == _MARK else const for const in code.co_consts)
    return code.replace(
        co_consts=consts,
        co_name=instead_of.__code__.co_name,
        co_qualname=instead_of.__code__.co_qualname,
    )


def _twin(function: FunctionType) -> FunctionType:
    """A copy of ``function``, which keeps the original code when that of ``function`` is replaced."""
    twin = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


def _underlying(attribute: str, known: Any) -> FunctionType:
    """The function behind an attribute of ``Module``, as it was when torch.fx was imported."""
    function = known if isinstance(known, FunctionType) else getattr(torch.nn.Module, attribute)
    if not isinstance(function, FunctionType) or function.__code__.co_freevars:
        raise RuntimeError(
            f"torch.nn.Module.{attribute} is no plain function: corsac.fx cannot trace with it"
        )
    return function


_module_call = _underlying("__call__", getattr(_torch_trace, "_orig_module_call", None))
_module_getattr = _underlying("__getattr__", getattr(_torch_trace, "_orig_module_getattr", None))

original_call = _twin(_module_call)
original_getattr = _twin(_module_getattr)

_core.register_interception(
    (_module_call, _entering(_call_template, _core.intercept_call, _module_call)),
    (_module_getattr, _entering(_getattr_template, _core.intercept_getattr, _module_getattr)),
    original_call,
    original_getattr,
    _torch_trace._wrapped_fns_to_patch,
    _torch_trace._wrapped_methods_to_patch,
)
