"""Reads and sets attributes by qualified name in a module hierarchy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.modules import module as _nn_module

from corsac import _core


def _install(value: Any, module: torch.nn.Module, field: str, persistent: bool = True) -> None:
    """Set ``module.field``; a tensor that is not a parameter becomes a buffer."""
    kind = type(value)
    if persistent and field not in module._modules and _is_free(module, field):
        # The effect of registering them, in a third of the time.
        if kind is torch.nn.Parameter and _put_parameter(module, field, value):
            return
        if kind is torch.Tensor and _put_buffer(module, field, value):
            return
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        module.register_buffer(field, value, persistent=persistent)
    else:
        setattr(module, field, value)


class _AttributeCopier:
    """Copies attributes of one module hierarchy into another, by qualified name.

    Missing containers on the path are created as empty modules. A container that both hierarchies already
    share is left alone: everything below it exists.
    """

    def __init__(self, source: Any, destination: torch.nn.Module) -> None:
        self._containers: dict[str, tuple[Any, torch.nn.Module] | None] = {
            "": (source, destination)
        }

    def _container(self, prefix: str) -> tuple[Any, torch.nn.Module] | None:
        try:
            return self._containers[prefix]
        except KeyError:
            pass
        parent_prefix, _, item = prefix.rpartition(".")
        parents = self._container(parent_prefix)
        pair = None
        if parents is not None:
            source, destination = parents
            inner = _registered_module(source, item)
            if inner is None:
                inner = getattr(source, item)
            existing = _registered_module(destination, item)
            if existing is None and not _is_free(destination, item):
                existing = getattr(destination, item, None)
            if existing is None:
                existing = torch.nn.Module()
                if isinstance(inner, torch.nn.Module):
                    existing.__dict__["training"] = inner.training
                _set_module(destination, item, existing)
                pair = (inner, existing)
            elif inner is not existing:
                pair = (inner, existing)
        self._containers[prefix] = pair
        return pair

    def copy(self, target: str) -> None:
        """Set in the destination the source's attribute ``target``."""
        prefix, _, field = target.rpartition(".")
        containers = self._container(prefix)
        if containers is None:
            return
        source, destination = containers
        child = _registered_module(source, field)
        if child is not None:
            _set_module(destination, field, child)
        elif not _share_registered(source, destination, field):
            persistent = field not in getattr(source, "_non_persistent_buffers_set", ())
            _install(getattr(source, field), destination, field, persistent)


# Reading and setting attributes of a module goes through Python functions that try all kinds of attributes,
# one microsecond each. Most attributes here are submodules of ordinary modules.

_CLASS_ATTRIBUTES = frozenset(dir(torch.nn.Module))


def _registered_module(owner: Any, name: str) -> torch.nn.Module | None:
    """The submodule ``name``, if reading the attribute would return it."""
    state = getattr(owner, "__dict__", _EMPTY)
    modules = state.get("_modules", _EMPTY)
    return modules[name] if name in modules and name not in state else None


def get_submodule(root: torch.nn.Module, path: str) -> torch.nn.Module:
    """The result of ``root.get_submodule(path)``, faster where every step is a registered module.

    Raises:
        AttributeError: there is no module of this name.
    """
    module: torch.nn.Module | None = root
    for name in path.split(".") if path else ():
        module = _registered_module(module, name)
        if module is None:
            return root.get_submodule(path)
    return module


def _is_free(module: torch.nn.Module, name: str) -> bool:
    """Whether ``module`` has no attribute ``name`` and setting one would have no special effect.

    It may have a submodule of that name.
    """
    cls = type(module)
    return (
        (cls is torch.nn.Module or cls.__setattr__ is torch.nn.Module.__setattr__)
        and name not in module.__dict__
        and name not in module._parameters
        and name not in module._buffers
        and (name not in _CLASS_ATTRIBUTES if cls is torch.nn.Module else not hasattr(cls, name))
    )


def _set_module(owner: torch.nn.Module, name: str, module: torch.nn.Module) -> None:
    """Do the same as ``setattr(owner, name, module)``."""
    if _is_free(owner, name) and not _nn_module._global_module_registration_hooks:
        owner._modules[name] = module
    else:
        setattr(owner, name, module)


def _put_parameter(module: torch.nn.Module, name: str, parameter: torch.Tensor) -> bool:
    """Register a parameter under a free name, unless there are registration hooks; return whether it was."""
    if _nn_module._global_parameter_registration_hooks:
        return False
    module._parameters[name] = parameter
    return True


def _put_buffer(module: torch.nn.Module, name: str, buffer: torch.Tensor) -> bool:
    """Register a buffer under a free name, unless there are registration hooks; return whether it was."""
    if _nn_module._global_buffer_registration_hooks:
        return False
    module._buffers[name] = buffer
    return True


def _share_registered(source: Any, destination: torch.nn.Module, name: str) -> bool:
    """Register a parameter or buffer of ``source`` in ``destination``, if nothing else is needed; return
    whether it was."""
    state = getattr(source, "__dict__", _EMPTY)
    if name in state or name in destination._modules or not _is_free(destination, name):
        return False
    parameter = state.get("_parameters", _EMPTY).get(name)
    if parameter is not None:
        return _put_parameter(destination, name, parameter)
    buffer = state.get("_buffers", _EMPTY).get(name)
    if buffer is None or not _put_buffer(destination, name, buffer):
        return False
    if name in source._non_persistent_buffers_set:
        destination._non_persistent_buffers_set.add(name)
    return True


_EMPTY: dict[str, Any] = {}


def _copy_attr(from_module: torch.nn.Module, to_module: torch.nn.Module, target: str) -> None:
    """Set ``from_module``'s attribute ``target`` on ``to_module`` under the same name."""
    _AttributeCopier(from_module, to_module).copy(target)


def _copy_attrs(
    from_module: torch.nn.Module, to_module: torch.nn.Module, targets: Iterable[str]
) -> None:
    """:func:`_copy_attr` for many targets; shared prefixes are walked once."""
    copier = _AttributeCopier(from_module, to_module)
    _core.copy_submodules(from_module, to_module, targets, copier.copy)


def _assign_attr(from_obj: object, to_module: torch.nn.Module, target: str) -> None:
    """Set ``from_obj`` on ``to_module`` as ``target``, creating containers on the path."""
    *prefix, field = target.split(".")
    for item in prefix:
        inner = _registered_module(to_module, item)
        if inner is None and not _is_free(to_module, item):
            inner = getattr(to_module, item, None)
        if inner is None:
            inner = torch.nn.Module()
            _set_module(to_module, item, inner)
        to_module = inner
    _install(from_obj, to_module, field)


def _get_attr(model: torch.nn.Module, attr_name: str) -> Any:
    """The attribute of ``model`` with the qualified name ``attr_name``."""
    return _get_attr_via_attr_list(model, attr_name.split("."))


def _get_attr_via_attr_list(model: torch.nn.Module, attr_list: list[str]) -> Any:
    """:func:`_get_attr` for a name that is already split; an empty list gives ``model``."""
    if not attr_list:
        return model
    *prefix, field = attr_list
    owner: Any = model
    for item in prefix:
        owner = getattr(owner, item, None)
        if owner is None:
            raise AssertionError(f"Attribute '{item}' not found in model")
    return getattr(owner, field)


def _del_attr(model: torch.nn.Module, attr_name: str) -> None:
    """Delete the attribute of ``model`` with the qualified name ``attr_name``."""
    *prefix, field = attr_name.split(".")
    delattr(_get_attr_via_attr_list(model, prefix), field)


def _has_attr(model: torch.nn.Module, attr_name: str) -> bool:
    """Whether ``model`` has an attribute with the qualified name ``attr_name``."""
    owner: Any = model
    for item in attr_name.split("."):
        if not hasattr(owner, item):
            return False
        owner = getattr(owner, item)
    return True
