"""Calls of ``torch.cond`` and the like in recorded programs, as graphs with the operators of ``torch.ops.higher_order``."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from corsac._capture.control_flow import with_control_modules
from corsac.fx.proxy import TraceError

#: The functions of PyTorch that call operators of which there are modules, by their files.
_FUNCTIONS = {
    f"torch._higher_order_ops.{name}.{name}" for name in ("cond", "while_loop", "scan", "map")
}


def calls_operator(function: Callable[..., Any]) -> bool:
    """Whether a function of PyTorch calls graphs as elements decide."""
    code = getattr(function, "__code__", None)
    module = getattr(function, "__globals__", {}).get("__name__")
    return code is not None and f"{module}.{code.co_name}" in _FUNCTIONS


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A call of such a function.

    Attributes:
        module: does what the call does; the operators are calls of modules.
        inputs: its inputs: tensors among the arguments, and those that the functions among them read.
        outputs: what it has returned for these.
        returned: what the call has returned, with tensors of ``outputs``.
    """

    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    outputs: Sequence[torch.Tensor]
    returned: Any

    @classmethod
    def of(
        cls, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> TracedCall:
        """Call ``function``, which Dynamo traces, as PyTorch itself has it trace such calls.

        Raises:
            TraceError: Dynamo makes no single graph of the call.
        """
        found: list[Any] = []

        def kept(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
            def run(*inputs: torch.Tensor) -> Any:
                outputs = module(*inputs)
                found.append((module, inputs, outputs))
                return outputs

            return run

        def call() -> Any:
            return function(*args, **kwargs)

        # Code of its own, for which Dynamo has compiled nothing.
        fresh = types.FunctionType(
            call.__code__.replace(), call.__globals__, closure=call.__closure__
        )
        try:
            # The recording goes by the generations of objects.
            with torch._dynamo.config.patch(run_gc_after_compile=False):
                returned = torch.compile(fresh, backend=kept, fullgraph=True, dynamic=False)()
        except (torch._dynamo.exc.TorchDynamoException, RuntimeError) as error:
            raise TraceError(str(error).strip().partition("\n")[0]) from error
        if len(found) != 1:
            raise TraceError("it calls no tensor's operator")
        ((module, inputs, outputs),) = found
        return cls(with_control_modules(module), inputs, outputs, returned)

    def result(self, outputs: Sequence[torch.Tensor]) -> Any:
        """What the call returns, if the module returns ``outputs``."""
        made = {id(own): new for own, new in zip(self.outputs, outputs, strict=True)}
        return tree_map_only(torch.Tensor, lambda own: made.get(id(own), own), self.returned)


__all__ = ["TracedCall", "calls_operator"]
