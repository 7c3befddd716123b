"""Observers on modules, as ``activation_post_process`` of the module, with a hook."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from corsac.quantization._kinds import is_a, is_activation_post_process, is_quantizable
from corsac.quantization.qconfig import _activation_is_memoryless
from corsac.quantization.quantization_mappings import (
    LEFT_AS_FLOATS,
    _get_special_act_post_process,
    _has_special_act_post_process,
    own_class,
)
from corsac.quantization.utils import has_no_children_ignoring_parametrizations


def _observer_forward_hook(module: Any, _inputs: Any, output: Any) -> Any:
    return module.activation_post_process(output)


def _observer_forward_pre_hook(module: Any, inputs: Any) -> Any:
    return module.activation_post_process(inputs[0])


def add_observers(
    model: nn.Module, classes: set[Any], non_leaf_classes: set[Any], custom: dict[Any, Any]
) -> list[str]:
    """Put observers on the modules of a model that have a ``qconfig``.

    Args:
        model: the model.
        classes: leaf modules that are observed; names of classes are enough for those of ``torch.ao``.
        non_leaf_classes: other modules that are observed.
        custom: observed classes by classes, which are put in the places of modules.

    Returns:
        The paths of modules that were left as they are, with all that is in them.
    """
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    devices -= {torch.device("meta")}
    if len(devices) > 1:
        raise AssertionError(
            f"expected a model on one device, got tensors on {sorted(map(str, devices))}"
        )
    return _Observation(devices.pop() if devices else None, classes, non_leaf_classes, custom).add(
        model, ""
    )


class _Observation:
    def __init__(
        self,
        device: torch.device | None,
        classes: set[Any],
        non_leaf_classes: set[Any],
        custom: dict[Any, Any],
    ) -> None:
        self._device = device
        self._classes, self._non_leaf, self._custom = classes, non_leaf_classes, custom

    def add(self, module: nn.Module, path: str) -> list[str]:
        """Observe the modules of a module, and itself if it is a leaf."""
        left: list[str] = []
        for name, child in module.named_children():
            inner = f"{path}.{name}" if path else name
            kind = type_before_parametrizations(child)
            wanted = getattr(child, "qconfig", None) is not None
            if kind is nn.Dropout or is_activation_post_process(child):
                continue
            if is_a(child, "FloatFunctional", "QFunctional"):
                if wanted:
                    child.activation_post_process = self._observer(child, inner)
            elif is_a(child, "_FusedModule") or kind in self._non_leaf:
                self._observe(child, inner)
            elif _has_special_act_post_process(child):
                self._observe(child, inner, _get_special_act_post_process(child))
            elif wanted and kind in self._custom:
                observed = own_class(self._custom[kind]).from_float(child)
                module._modules[name] = observed
                if not is_quantizable(type(observed)):
                    observed.qconfig = child.qconfig
                    self._observe(observed, inner)
            elif kind in LEFT_AS_FLOATS:
                if wanted:
                    left.append(inner)
            else:
                left += self.add(child, inner)
        leaf = has_no_children_ignoring_parametrizations(module)
        if (leaf or hasattr(module, "weight_fake_quant")) and self._is_observed(module):
            self._observe(module, path)
        return left

    def _is_observed(self, module: nn.Module) -> bool:
        kind = type_before_parametrizations(module)
        return not isinstance(module, nn.Sequential) and (
            kind in self._classes or is_a(kind, "QuantStub")
        )

    def _observe(self, module: nn.Module, path: str, constructor: Any = None) -> None:
        own: Any = getattr(module, "qconfig", None)
        if own is None or is_a(module, "DeQuantStub"):
            return
        module.add_module("activation_post_process", self._observer(module, path, constructor))
        if _activation_is_memoryless(own):
            module.register_forward_pre_hook(_observer_forward_pre_hook, prepend=True)
        else:
            module.register_forward_hook(_observer_forward_hook, prepend=True)

    def _observer(self, module: Any, path: str, constructor: Any = None) -> Any:
        observer = (constructor or module.qconfig.activation)()
        for one in (observer, getattr(observer, "activation_post_process", None)):
            if hasattr(one, "observed_name"):
                one.observed_name = path
        return observer if self._device is None else observer.to(self._device)


def observer_hooks(module: nn.Module) -> tuple[set[int], set[int]]:
    """The keys of the hooks that call the observer of a module: before it runs, and after."""
    before = _keys(module._forward_pre_hooks, "_observer_forward_pre_hook")
    return before, _keys(module._forward_hooks, "_observer_forward_hook")


def _keys(hooks: dict[int, Any], name: str) -> set[int]:
    # Models that torch.ao has prepared have hooks of these names.
    return {key for key, hook in hooks.items() if getattr(hook, "__name__", None) == name}


def remove_observers(module: nn.Module) -> None:
    """Take the observer of a module off it, and the hooks that call it."""
    if is_activation_post_process(getattr(module, "activation_post_process", None)):
        del module.activation_post_process
    before, after = observer_hooks(module)
    for hooks, keys in ((module._forward_pre_hooks, before), (module._forward_hooks, after)):
        for key in keys:
            del hooks[key]
