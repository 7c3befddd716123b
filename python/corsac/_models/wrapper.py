"""Wrapper modules in the place of compiled models."""

from __future__ import annotations

import functools
import textwrap
import types
from collections.abc import Callable
from typing import Any, Self

import torch

#: Attributes that a wrapper shares with the model: its state, and the hooks of saving and loading it.
_SHARED = (
    "_parameters",
    "_buffers",
    "_modules",
    "_non_persistent_buffers_set",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
#: Attributes that hold the hooks of a module.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
#: Attributes that each module has for itself: hooks and their options.
_OF_EACH = frozenset(torch.nn.Module().__dict__).difference([*_SHARED, "training"])


class ModelWrapper(torch.nn.Module):
    """A module in the place of ``model``, whose parameters, buffers and submodules are its own.

    Other attributes are read, set and deleted on the model itself, which also saves and loads its state. The special
    methods of its class (containers, context managers), and its overrides of methods of :class:`torch.nn.Module`, are
    forwarded.
    """

    def __new__(cls, model: Callable[..., Any], *_: Any, **__: Any) -> Self:
        names = _own_names(type(model)) if root_of(model) is model else ()
        return super().__new__(_class_with(cls, names) if names else cls)

    def __init__(self, model: Callable[..., Any]) -> None:
        super().__init__()
        root = root_of(model)
        state = self.__dict__
        state["_model"], state["_callable"] = root, model
        # The same dictionaries: registering, moving or loading here changes the model.
        for name in _SHARED:
            state[name] = getattr(root, name)
        state["training"] = root.training

    @property
    def training(self) -> bool:
        """Whether the model is in training mode."""
        return self._model.training

    @training.setter
    def training(self, mode: bool) -> None:
        state = self.__dict__
        # Guards on modules read it there.
        state["training"] = mode
        if "_model" in state:
            state["_model"].training = mode

    def train(self, mode: bool = True) -> Self:
        self._model.train(mode)
        self.__dict__["training"] = mode
        return self

    def apply(self, fn: Callable[[torch.nn.Module], None]) -> Self:
        self._model.apply(fn)
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self._model.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self._model.load_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._model._load_from_state_dict(*args, **kwargs)

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
        elif name == "training":
            super().__setattr__(name, value)
        else:
            setattr(self._model, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._model, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._callable)})

    def __repr__(self) -> str:
        text = repr(self._callable)
        if "\n" in text:
            text = f"\n{textwrap.indent(text, '  ')}\n"
        return f"{type(self).__name__}({text})"


#: Special methods of containers and context managers, which Python looks up on classes only.
_SPECIAL = (
    "__add__",
    "__bool__",
    "__contains__",
    "__delitem__",
    "__enter__",
    "__exit__",
    "__getitem__",
    "__iadd__",
    "__imul__",
    "__iter__",
    "__len__",
    "__mul__",
    "__radd__",
    "__reversed__",
    "__rmul__",
    "__setitem__",
)
#: Methods of modules that are about calls, and are the wrapper's own.
_OF_CALLS = {
    "_call_impl",
    "_compiled_call_impl",
    "_slow_forward",
    "_wrapped_call_impl",
    "compile",
    "forward",
    *(name for name in vars(torch.nn.Module) if name.endswith("_hook") and "register" in name),
}
#: Names that are forwarded where the class of the model defines or overrides them.
_OF_MODULES = (
    *_SPECIAL,
    *(
        name
        for name in vars(torch.nn.Module)
        if not name.startswith("__") and name not in _OF_CALLS and name not in vars(ModelWrapper)
    ),
)


class _OfTheModel:
    """A forwarded attribute of a wrapper class."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, wrapper: ModelWrapper | None, cls: type[ModelWrapper]) -> Any:
        if wrapper is None:
            return getattr(torch.nn.Module, self._name, self)
        value = getattr(wrapper._model, self._name)
        return _method(self._name).__get__(wrapper) if callable(value) else value


def _method(name: str) -> Callable[..., Any]:
    """A method that calls the model's, and returns the wrapper where that returns the model."""

    def method(wrapper: ModelWrapper, *args: Any, **kwargs: Any) -> Any:
        model = wrapper._model
        result = getattr(model, name)(*args, **kwargs)
        return wrapper if result is model else result

    method.__name__ = method.__qualname__ = name
    return method


def _own_names(cls: type) -> tuple[str, ...]:
    """The names to forward for a class of models."""
    base = torch.nn.Module
    return tuple(
        name for name in _OF_MODULES if getattr(cls, name, None) is not getattr(base, name, None)
    )


@functools.cache
def _class_with(cls: type[ModelWrapper], names: tuple[str, ...]) -> type[ModelWrapper]:
    """A wrapper class that forwards these names."""
    own = {name: _method(name) if name in _SPECIAL else _OfTheModel(name) for name in names}
    return type(cls.__name__, (cls,), {"__module__": cls.__module__, "__doc__": cls.__doc__, **own})


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


__all__ = ["ModelWrapper", "Shell", "root_of"]
