"""Fusing modules by their names, without a graph. The names are those of ``torch.ao.quantization.fuse_modules``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from corsac.quantization.fuser_method_mappings import get_fuser_method

__all__ = ["fuse_known_modules", "fuse_modules", "fuse_modules_qat"]

Fuse = Callable[..., Sequence[nn.Module]]


def fuse_known_modules(
    mod_list: Sequence[nn.Module],
    is_qat: bool,
    additional_fuser_method_mapping: dict[Any, Any] | None = None,
) -> list[nn.Module]:
    """The fused module, and ``nn.Identity`` for each further one. Hooks of the first and the last one are moved."""
    types = tuple(map(type_before_parametrizations, mod_list))
    first, last = mod_list[0], mod_list[-1]
    # Taken before modules are copied into the fused one, so that each runs once.
    before, after = list(first._forward_pre_hooks.values()), list(last._forward_hooks.values())
    first._forward_pre_hooks.clear()
    last._forward_hooks.clear()
    fused = get_fuser_method(types, additional_fuser_method_mapping)(is_qat, *mod_list)
    for hook in before:
        fused.register_forward_pre_hook(hook)
    for hook in after:
        fused.register_forward_hook(hook)
    return [fused, *(nn.Identity().train(first.training) for _ in mod_list[1:])]


def _fuse(
    model: nn.Module,
    modules_to_fuse: Sequence[Any],
    is_qat: bool,
    inplace: bool,
    fuser_func: Fuse,
    fuse_custom_config_dict: dict[str, Any] | None,
) -> nn.Module:
    model = model if inplace else copy.deepcopy(model)
    more = (fuse_custom_config_dict or {}).get("additional_fuser_method_mapping", {})
    one = all(isinstance(name, str) for name in modules_to_fuse)
    for names in [modules_to_fuse] if one else modules_to_fuse:
        modules = [model.get_submodule(name) for name in names]
        for name, module in zip(names, fuser_func(modules, is_qat, more), strict=True):
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, module)
    return model


def fuse_modules(
    model: nn.Module,
    modules_to_fuse: Sequence[Any],
    inplace: bool = False,
    fuser_func: Fuse = fuse_known_modules,
    fuse_custom_config_dict: dict[str, Any] | None = None,
) -> nn.Module:
    """Fuse modules for inference; the model is copied unless ``inplace``.

    Args:
        model: a model in eval mode.
        modules_to_fuse: names of modules in the order of the computation, or several such lists.
        inplace: changes ``model`` itself.
        fuser_func: returns modules in place of a list of modules.
        fuse_custom_config_dict: "additional_fuser_method_mapping" has fusers by tuples of types.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.fuse_modules.fuse_modules.html
    """
    return _fuse(model, modules_to_fuse, False, inplace, fuser_func, fuse_custom_config_dict)


def fuse_modules_qat(
    model: nn.Module,
    modules_to_fuse: Sequence[Any],
    inplace: bool = False,
    fuser_func: Fuse = fuse_known_modules,
    fuse_custom_config_dict: dict[str, Any] | None = None,
) -> nn.Module:
    """:func:`fuse_modules` for training: batch norms are kept in the fused modules."""
    return _fuse(model, modules_to_fuse, True, inplace, fuser_func, fuse_custom_config_dict)
