"""Tracing for quantisation: layers and modules that cannot be traced stay calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from corsac.fx._symbolic_trace import Tracer
from corsac.fx.proxy import Scope
from corsac.quantization._kinds import is_a, is_activation_post_process

_LAYERS = ("torch.nn", "torch.ao.nn", "corsac.quantization")


class QuantizationTracer(Tracer):
    """A tracer that keeps modules of ``torch.nn``, and those that are named, as calls.

    Args:
        skipped_module_names: paths of modules that are not traced.
        skipped_module_classes: their classes.
    """

    def __init__(
        self,
        skipped_module_names: Iterable[str] = (),
        skipped_module_classes: Iterable[type] = (),
    ) -> None:
        super().__init__()
        self.skipped_module_names = [*skipped_module_names]
        self.skipped_module_classes = [*skipped_module_classes]
        # Types are given for submodules; the whole program has the global configuration.
        self.scope = Scope("", None)
        self._owners: dict[int, torch.nn.Module] = {}

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return (
            (m.__module__.startswith(_LAYERS) and not isinstance(m, torch.nn.Sequential))
            or module_qualified_name in self.skipped_module_names
            or type(m) in self.skipped_module_classes
            or is_a(m, "_FusedModule")
            or is_activation_post_process(m)
        )

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Any:
        if isinstance(root, torch.nn.Module):
            # The observers of eager mode in operators that are modules.
            self._owners = {
                id(module.activation_post_process): module
                for module in root.modules()
                if is_a(module, "FloatFunctional")
            }
        return super().trace(root, concrete_args)

    def call_module(
        self,
        m: torch.nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if id(m) in self._owners and isinstance(m, torch.nn.Identity):
            return args[0]
        return super().call_module(m, forward, args, kwargs)
