"""AOTAutograd with compilers that take graphs of corsac.fx."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from functorch.compile import make_boxed_func

from corsac.backends._contract import accepted_by
from corsac.backends._torch_backend import import_aot_autograd
from corsac.backends._watching import watched
from corsac.fx import GraphModule
from corsac.fx.convert import from_torch, to_torch
from corsac.lowering._backend import name_of

#: The arguments of :func:`aot_autograd` that compile a graph.
_COMPILERS = ("fw_compiler", "bw_compiler", "inference_compiler")


class AotBackend:
    """A backend made by :func:`aot_autograd`."""

    accepts = "torch.fx"
    #: Faults are watched for in each of its compilers, not in the backend as a whole.
    watches_graphs = True

    def __init__(self, name: str, keywords: dict[str, Any]) -> None:
        self.name = self.__name__ = name
        self._keywords = keywords

    def __call__(
        self, module: GraphModule | torch.fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        """Capture the forward and the backward graph, and compile both."""
        from torch._dynamo.backends.common import aot_autograd as of_torch

        # AOTAutograd changes the list of inputs that it gets.
        return of_torch(**self._keywords)(to_torch(module), list(example_inputs))

    def preload(self, options: Mapping[str, Any]) -> None:
        """Import what AOTAutograd needs, without using it."""
        del options
        import_aot_autograd()

    def __repr__(self) -> str:
        return f"<backend {self.name}>"


def aot_autograd(
    *,
    fw_compiler: Callable[..., Any],
    bw_compiler: Callable[..., Any] | None = None,
    inference_compiler: Callable[..., Any] | None = None,
    name: str = "",
    **keywords: Any,
) -> AotBackend:
    """A backend that compiles graphs of ATen operators: forward, backward, and for inference.

    PyTorch's AOTAutograd makes the graphs: without mutation of inputs and without modules. The
    compilers get graph modules of corsac.fx (of torch.fx if they have ``accepts = "torch.fx"``) and
    example inputs, and return functions that take a list; :func:`make_boxed_func` converts ordinary
    functions::

        def my_compiler(module, example_inputs):
            return make_boxed_func(module.forward)

        my_backend = aot_autograd(fw_compiler=my_compiler)

    The backend works with :func:`corsac.compile` and with ``torch.compile``.

    Args:
        fw_compiler: compiles forward graphs.
        bw_compiler: compiles backward graphs; ``fw_compiler`` by default.
        inference_compiler: compiles graphs without gradients; ``fw_compiler`` by default.
        name: the name of the backend.
        keywords: others of ``torch._dynamo.backends.common.aot_autograd``: ``partition_fn``,
            ``decompositions`` and so on.
    """
    compilers = (fw_compiler, bw_compiler, inference_compiler)
    for argument, compiler in zip(_COMPILERS, compilers, strict=True):
        if compiler is None:
            continue
        if not callable(compiler):
            raise TypeError(f"{argument}: expected a function, got a {type(compiler).__name__}")
        keywords[argument] = _taking_corsac(compiler)
    return AotBackend(name or f"aot_autograd({name_of(fw_compiler)})", keywords)


def _taking_corsac(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """``compiler`` as a function of graphs of torch.fx."""
    as_it_is = accepted_by(compiler) == "torch.fx"

    @functools.wraps(compiler, updated=())
    def compile(module: Any, example_inputs: Sequence[Any], **keywords: Any) -> Any:
        def ask() -> Any:
            if as_it_is:
                return compiler(module, example_inputs, **keywords)
            return compiler(from_torch(module), list(example_inputs), **keywords)

        compiled = watched(compiler, module, example_inputs, None, ask)
        if as_it_is or getattr(compiled, "_boxed_call", False):
            return compiled
        # A function that takes its arguments one by one.
        return make_boxed_func(compiled)

    return compile


def _run_graph(module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    del example_inputs
    return make_boxed_func(module.forward)


#: AOTAutograd's graphs, run by PyTorch.
aot_eager = aot_autograd(fw_compiler=_run_graph, name="aot_eager")

__all__ = ["AotBackend", "aot_autograd", "aot_eager", "make_boxed_func"]
