"""Wrapper modules in the place of compiled models."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Self

import torch

#: Attributes that a wrapper shares with the model.
_SHARED = ("_parameters", "_buffers", "_modules")
#: Attributes that hold the hooks of a module.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
#: Attributes that each module has for itself: hooks and their options.
_OF_EACH = frozenset(torch.nn.Module().__dict__).difference([*_SHARED, "training"])


class StandIn(torch.nn.Module):
    """A module in the place of ``model``, whose parameters, buffers and submodules are its own.

    Other attributes are read, set and deleted on the model itself.
    """

    def __init__(self, model: Callable[..., Any]) -> None:
        super().__init__()
        root = root_of(model)
        state = self.__dict__
        state["_model"], state["_callable"] = root, model
        # The same dictionaries: registering, moving or loading here changes the model.
        for name in _SHARED:
            state[name] = getattr(root, name)
        state["training"] = root.training

    def train(self, mode: bool = True) -> Self:
        self._model.train(mode)
        self.__dict__["training"] = mode
        return self

    def _call_with(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the module with arguments as a tuple and a dictionary."""
        return self(*args, **kwargs)

    def _with_own_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the module with its own hooks only: global module hooks run in the model."""
        if any(self.__dict__[name] for name in _HOOKS):
            return super().__call__(*args, **kwargs)
        return self.forward(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__
        if "_callable" in state:
            return getattr(state["_callable"], name)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        state = self.__dict__
        if name in _OF_EACH or (name in state and name not in self._model.__dict__):
            state[name] = value
        else:
            setattr(self._model, name, value)
            if name == "training":
                state[name] = value

    def __delattr__(self, name: str) -> None:
        delattr(self._model, name)


def root_of(model: Callable[..., Any]) -> torch.nn.Module:
    """The module that owns the weights of a model: itself, the owner of a bound method, or a :class:`Shell`."""
    owner = model.__self__ if isinstance(model, types.MethodType) else model
    # Modules of TorchScript have their weights in C++.
    if isinstance(owner, torch.nn.Module) and not isinstance(owner, torch.jit.ScriptModule):
        return owner
    return Shell(model)


class Shell(torch.nn.Module):
    """A function as a module, so that its graph has an owner."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.__dict__["forward"] = function
        self.training = False


__all__ = ["Shell", "StandIn", "root_of"]
