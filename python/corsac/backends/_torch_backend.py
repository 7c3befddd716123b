"""torch.compile's backends as backends of corsac."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from corsac.fx import GraphModule
from corsac.fx.convert import to_torch

# corsac itself is one of torch.compile's backends.
_OWN = "corsac"


def names_and_tags() -> dict[str, tuple[str, ...]]:
    """torch.compile's backends, with their tags."""
    from torch._dynamo.backends import registry

    every = registry.list_backends(exclude_tags=())
    return {name: tuple(registry._BACKEND_TAGS.get(name, ())) for name in every if name != _OWN}


def import_aot_autograd() -> None:
    """Import PyTorch's AOTAutograd, which takes seconds, without using it."""
    importlib.import_module("torch._dynamo.backends.common")
    importlib.import_module("torch._functorch.aot_autograd")


class TorchBackend:
    """A backend of torch.compile, by its name there."""

    accepts = "torch.fx"

    def __init__(self, torch_name: str) -> None:
        self.torch_name = torch_name
        self.name = self.__name__ = f"torch:{torch_name}"

    def __call__(
        self,
        module: GraphModule | torch.fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        options: Mapping[str, Any] | None = None,
    ) -> Callable[..., Any]:
        """Compile a graph; ``options`` are those of ``torch.compile`` for the backend."""
        from torch._dynamo.backends import registry

        compiler = registry.lookup_backend(self.torch_name)
        keywords: dict[str, Any] = {}
        if options is not None:
            key = "config_patches" if self.torch_name == "inductor" else "options"
            keywords[key] = dict(options)
        return compiler(to_torch(module), list(example_inputs), **keywords)

    def preload(self, options: Mapping[str, Any]) -> None:
        """Import what most of these backends need, without using it."""
        del options
        import_aot_autograd()
        if self.torch_name == "inductor":
            importlib.import_module("torch._inductor.compile_fx")

    def __repr__(self) -> str:
        return f"<backend {self.name}>"
