"""Checks a backend on a graph: compilation, calls, results and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch.utils._pytree import tree_leaves

from corsac.backends._contract import Declined, hand_over
from corsac.backends._registry import lookup_backend
from corsac.fx import GraphModule
from corsac.fx._own_copy import own_copy
from corsac.minifier._case import copies
from corsac.minifier._child import announce
from corsac.minifier._difference import Values, as_good, difference, not_finite
from corsac.minifier._fault import DIFFERS, Fault

#: Thoroughness of the check of a backend; each level includes those before it.
Look: TypeAlias = Literal["compile", "run", "accuracy"]
LOOKS: tuple[Look, ...] = get_args(Look)
#: The phase announced while PyTorch runs a graph.
BY_PYTORCH = "run by PyTorch"
#: Relative tolerance of products in bfloat16.
_BF16 = 2e-2


@dataclass(frozen=True)
class BackendFails:
    """``fails(module, inputs)`` for a backend, to be passed to :func:`corsac.minify`.

    Attributes:
        backend: a name or a function, as for :func:`corsac.compile`, or a compiler of AOTAutograd's graphs.
        look: ``"compile"``: raising, crashing or hanging at compilation is a fault. ``"run"``: also when the
            compiled graph is called, and NaN or infinity where PyTorch has none. ``"accuracy"``: also
            results, gradients, or values written to inputs and buffers that differ from PyTorch's.
        options: options of the backend.
        tolerance: allowed difference of an element, relative to itself, and a tenth of it relative to the
            largest element; by default 1e-4 for float32.
        grad: whether autograd is on and gradients are compared.
    """

    backend: str | Callable[..., Any]
    look: Look = "accuracy"
    options: Mapping[str, Any] | None = None
    tolerance: float | None = None
    grad: bool = False

    def __post_init__(self) -> None:
        if self.look not in LOOKS:
            known = " or ".join(map(repr, LOOKS))
            raise ValueError(f"look is {known}, not {self.look!r}")

    def __call__(self, module: GraphModule, inputs: list[Any]) -> Fault | None:
        compiled = self.compile(module, inputs)
        if compiled is None or self.look == "compile":
            return None
        return self.of_calls(compiled, module, inputs)

    def __repr__(self) -> str:
        backend = self.backend if callable(self.backend) else repr(self.backend)
        return f"BackendFails({self.arguments(getattr(backend, '__name__', str(backend)))})"

    def arguments(self, backend: str) -> str:
        """Arguments of the constructor as source code, with ``backend`` for the backend."""
        given = [backend, f'look="{self.look}"']
        for name, own in (("options", self.options), ("tolerance", self.tolerance)):
            if own is not None:
                given.append(f"{name}={dict(own) if name == 'options' else own!r}")
        return ", ".join([*given, *["grad=True"] * self.grad])

    def prepare(self) -> None:
        """Import what the backend needs, without using it."""
        preload = getattr(lookup_backend(self.backend), "preload", None)
        if preload is not None:
            preload(self.options or {})

    def compile(self, module: GraphModule, inputs: list[Any]) -> Callable[..., Any] | None:
        """Have the backend compile the graph; None if it declines."""
        backend = lookup_backend(self.backend)
        announce("compiled")
        with torch.set_grad_enabled(self.grad):
            try:
                flat = _returning_a_tuple(own_copy(module))
                checked = hand_over(backend, flat, copies(inputs), self.options)
            except Declined:
                return None
        return unboxed(checked)

    def of_calls(
        self, compiled: Callable[..., Any], module: GraphModule, inputs: list[Any]
    ) -> Fault | None:
        """Call the compiled graph and return the fault, if there is one."""
        tolerance = self.tolerance
        if tolerance is None and (self.options or {}).get("precision") == "bf16":
            tolerance = _BF16
        found = self._left_behind(compiled, module, inputs, "called")
        if self.look == "run" and not not_finite(found):
            return None
        expected = self._left_behind(module, module, inputs, BY_PYTORCH)
        fault = difference(found, expected, tolerance)
        if fault is None or fault.kind != "differs":
            return fault
        if self.look == "run":
            return None
        if fault.signature == f"{DIFFERS}: values":
            exact = self._in_float64(module, inputs)
            if exact is not None and as_good(found, expected, exact, tolerance):
                return None
        return fault

    def _left_behind(
        self, function: Callable[..., Any], module: torch.nn.Module, inputs: list[Any], phase: str
    ) -> Values:
        """Results, gradients, and inputs and buffers after a call. ``module`` is not changed."""
        given = copies(inputs)
        with torch.random.fork_rng(devices=[]), _buffers_kept(module) as buffers:
            torch.manual_seed(0)
            announce(phase)
            with torch.set_grad_enabled(self.grad):
                results = tree_leaves(function(*given))
                values = [(f"result {number}", own) for number, own in enumerate(results)]
                values += self._gradients(results, given, module, phase)
            # After the gradients, since a result may be one of the inputs.
            values += [(f"input {n} after the call", own) for n, own in enumerate(given)]
            values += [(f"{n} after the call", own.clone()) for n, own in buffers]
        return [(n, x.detach() if isinstance(x, torch.Tensor) else x) for n, x in values]

    def _gradients(
        self, results: list[Any], given: list[Any], module: torch.nn.Module, phase: str
    ) -> list[tuple[str, Any]]:
        wanted = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
        named = [(f"gradient of input {number}", own) for number, own in enumerate(given)]
        named += [(f"gradient of {name}", own) for name, own in module.named_parameters()]
        named = [(n, x) for n, x in named if isinstance(x, torch.Tensor) and x.requires_grad]
        if not self.grad or not wanted or not named:
            return []
        if phase != BY_PYTORCH:
            announce(f"{phase} backward")
        weights = [
            torch.linspace(0.5, 1.5, x.numel()).reshape(x.shape).to(x.device, x.dtype)
            for x in wanted
        ]
        gradients = torch.autograd.grad(wanted, [x for _, x in named], weights, allow_unused=True)
        return [(n, g) for (n, _), g in zip(named, gradients, strict=True)]

    def _in_float64(self, module: GraphModule, inputs: list[Any]) -> Values | None:
        """Values of a run by PyTorch in float64; None if that fails."""

        def widened(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                return value
            return value.detach().double().requires_grad_(value.requires_grad)

        try:
            wide = copy.deepcopy(module).double()
            return self._left_behind(wide, wide, [widened(x) for x in inputs], BY_PYTORCH)
        except Exception:
            return None


def _returning_a_tuple(module: GraphModule) -> GraphModule:
    """The module, its graph returning a flat tuple of the values, as graphs for backends do."""
    (output,) = module.graph.find_nodes(op="output")
    leaves = list(_leaves(output.args[0]))
    if type(output.args[0]) is not tuple or len(leaves) != len(output.args[0]):
        output.args = (tuple(leaves),)
        module.recompile()
    return module


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for own in value:
            yield from _leaves(own)
    elif isinstance(value, dict):
        yield from _leaves(list(value.values()))
    else:
        yield value


def unboxed(checked: Any) -> Callable[..., Any]:
    """A compiled graph as a function of separate arguments; AOTAutograd's compilers return functions of one
    list."""
    compiled = getattr(checked, "compiled", checked)
    if getattr(compiled, "_boxed_call", False):
        return lambda *args: compiled(list(args))
    return checked


@contextmanager
def _buffers_kept(module: torch.nn.Module) -> Iterator[list[tuple[str, torch.Tensor]]]:
    """Buffers of a module, restored on exit."""
    buffers = list(module.named_buffers())
    kept = [own.clone() for _, own in buffers]
    try:
        yield buffers
    finally:
        with torch.no_grad():
            for (_, own), before in zip(buffers, kept, strict=True):
                if not torch.equal(own, before):
                    own.copy_(before)
