"""Reading and installing attributes by qualified name in a module hierarchy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.modules import module as _nn_module


def _install(value: Any, module: torch.nn.Module, field: str, persistent: bool = True) -> None:
    """Set ``module.field``; a tensor that is no parameter becomes a buffer."""
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        module.register_buffer(field, value, persistent=persistent)
    else:
        setattr(module, field, value)


def _is_persistent(module: Any, field: str) -> bool:
    return field not in getattr(module, "_non_persistent_buffers_set", ())


class _AttributeCopier:
    """Copies attributes of one module hierarchy into another, by qualified name.

    Containers that do not exist on the way are created as empty modules. A container that both
    hierarchies already share is left alone: everything below it is there.
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
            inner = getattr(source, item)
            existing = getattr(destination, item, None)
            if existing is None:
                existing = torch.nn.Module()
                setattr(destination, item, existing)
                pair = (inner, existing)
            elif inner is not existing:
                pair = (inner, existing)
        self._containers[prefix] = pair
        return pair

    def copy(self, target: str) -> None:
        """Install in the destination what the source has under ``target``."""
        prefix, _, field = target.rpartition(".")
        containers = self._container(prefix)
        if containers is None:
            return
        source, destination = containers
        state = getattr(source, "__dict__", _EMPTY)
        child = state.get("_modules", _EMPTY).get(field)
        if child is not None and field not in state and _takes_module_directly(destination, field):
            destination._modules[field] = child
            return
        _install(
            getattr(source, field), destination, field, persistent=_is_persistent(source, field)
        )


_EMPTY: dict[str, Any] = {}


def _takes_module_directly(module: torch.nn.Module, field: str) -> bool:
    """Whether ``setattr(module, field, child)`` would do nothing but store the child.

    Setting a submodule through ``Module.__setattr__`` takes about two microseconds, most of
    it for cases that a module under construction does not have.
    """
    return (
        type(module).__setattr__ is torch.nn.Module.__setattr__
        and not _nn_module._global_module_registration_hooks
        and field not in module.__dict__
        and field not in module._parameters
        and field not in module._buffers
    )


def _copy_attr(from_module: torch.nn.Module, to_module: torch.nn.Module, target: str) -> None:
    """Install ``from_module``'s attribute ``target`` in ``to_module`` under the same name."""
    _AttributeCopier(from_module, to_module).copy(target)


def _copy_attrs(
    from_module: torch.nn.Module, to_module: torch.nn.Module, targets: Iterable[str]
) -> None:
    """:func:`_copy_attr` for many targets; shared prefixes are walked once."""
    copier = _AttributeCopier(from_module, to_module)
    for target in targets:
        copier.copy(target)


def _assign_attr(from_obj: object, to_module: torch.nn.Module, target: str) -> None:
    """Install ``from_obj`` in ``to_module`` as ``target``, creating containers on the way."""
    *prefix, field = target.split(".")
    for item in prefix:
        inner = getattr(to_module, item, None)
        if inner is None:
            inner = torch.nn.Module()
            setattr(to_module, item, inner)
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
