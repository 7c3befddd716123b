"""Finds the modules whose outputs go to layers only, so that a factor can move from one to the other.

Programs need not be traceable for it: calls are watched, with the calibration data. A module is linked with layers if,
in all calls, its result goes through functions that keep factors (``relu``, pooling) to these layers and to nothing
else, and the layers have no other inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from corsac.quantization.one_call._calibration import MEASURED, run
from corsac.quantization.one_call._data import Batch, tensors_of
from corsac.quantization.one_call._layers import LAYERS, Layer, is_transposed

#: Functions with f(s x) = s f(x) for s > 0, channel by channel.
_KEEPING = {
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool2d", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "contiguous", "dropout", "dropout_", "leaky_relu", "leaky_relu_", "max_pool1d",
    "max_pool2d", "max_pool3d", "relu", "relu_", "_max_pool1d", "_max_pool2d", "_max_pool3d",
}  # fmt: skip


@dataclass
class Producer:
    """A module with a factor for each channel of its result: a norm's weight, or the rows of a layer's weight.

    Attributes:
        name: the path.
        module: the module.
        sample: an input of the module, for checks.
        users: the layers that its results go to, by identity.
        problem: why it is linked with none.
    """

    name: str
    module: nn.Module
    sample: Tensor | None = None
    users: dict[int, Layer] = field(default_factory=dict)
    problem: str = ""

    @property
    def channels(self) -> int:
        own: Any = self.module
        return int((own.weight.t() if is_transposed(self.module) else own.weight).shape[0])


@dataclass
class Link:
    """A producer, its layers, and the largest number of each channel between them, [channels]."""

    producer: Producer
    layers: list[Layer]
    largest: Tensor


def producers_of(model: nn.Module) -> list[Producer]:
    """Layers, and other modules with a weight for each channel."""
    found = []
    for name, module in model.named_modules():
        own: Any = module._parameters.get("weight")
        is_norm = own is not None and own.dim() == 1 and not isinstance(module, nn.PReLU)
        is_layer = (type(module) in LAYERS and type(module) is not nn.Embedding) or is_transposed(
            module
        )
        if is_norm or is_layer:
            found.append(Producer(name, module))
    return found


def find_links(
    model: nn.Module, layers: Sequence[Layer], data: Sequence[Batch]
) -> tuple[list[Link], dict[str, str]]:
    """The links of a model, and why layers have none, by their names."""
    watcher = _Watcher(producers_of(model), layers)
    watcher.watch(model, data)
    links, problems = [], dict(watcher.problems)
    for producer in watcher.producers.values():
        members = [own for own in producer.users.values() if own.name not in watcher.problems]
        if not producer.problem and len(members) < len(producer.users):
            producer.problem = "its output also goes to a layer that has other inputs"
        if not producer.problem and members:
            largest = [watcher.largest[own.name] for own in members]
            links.append(Link(producer, members, torch.stack(largest).amax(0)))
        elif producer.problem:
            for own in members:
                problems[own.name] = f"{producer.name}: {producer.problem}"
    return links, problems


class _Watcher(TorchFunctionMode):
    """Follows results of producers through the functions that are called."""

    def __init__(self, producers: Sequence[Producer], layers: Sequence[Layer]) -> None:
        super().__init__()
        self.producers = {id(own.module): own for own in producers}
        self.layers = {id(own.module): own for own in layers if not own.is_table}
        self.problems: dict[str, str] = {}
        self.largest: dict[str, Tensor] = {}
        self._sources: dict[str, Producer] = {}
        # Tensors are kept, so that identities stay theirs.
        self._origins: dict[int, tuple[Tensor, Producer]] = {}
        self._inside: list[nn.Module] = []

    def watch(self, model: nn.Module, data: Sequence[Batch]) -> None:
        modules = {
            id(own.module): own.module for own in (*self.producers.values(), *self.layers.values())
        }
        with ExitStack() as stack, torch.no_grad():
            for module in modules.values():
                before = module.register_forward_pre_hook(self._enter, with_kwargs=True)
                after = module.register_forward_hook(self._leave)
                stack.callback(before.remove)
                stack.callback(after.remove)
            for number, batch in enumerate(data[:MEASURED]):
                self._origins.clear()
                with self:
                    result = run(model, batch, number)
                for tensor in tensors_of(result):
                    self._used(tensor, "the model returns its output")

    def _origin(self, value: Any) -> Producer | None:
        known = self._origins.get(id(value))
        return known[1] if known is not None and known[0] is value else None

    def _used(self, value: Any, problem: str) -> None:
        producer = self._origin(value)
        if producer is not None:
            producer.problem = producer.problem or problem

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._inside.append(module)
        input: Any = next(iter([*args, *kwargs.values()]), None)
        layer = self.layers.get(id(module))
        if not isinstance(input, Tensor):
            return
        producer = self._origin(input)
        own = self.producers.get(id(module))
        if own is not None and own.sample is None:
            own.sample = input.detach()
        if layer is None:
            self._used(input, f"its output goes to {type(module).__name__}")
            return
        if producer is None:
            self.problems[layer.name] = "what computes its input has no factors to change"
            return
        if self._sources.setdefault(layer.name, producer) is not producer:
            self.problems[layer.name] = "its inputs come from several modules"
        producer.users[id(module)] = layer
        axis = 1 if hasattr(layer.module, "kernel_size") and input.dim() > 2 else -1
        largest = input.abs().movedim(axis, 0).flatten(1).amax(1)
        before = self.largest.get(layer.name)
        self.largest[layer.name] = largest if before is None else torch.maximum(before, largest)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._inside.pop()
        producer = self.producers.get(id(module))
        if producer is not None and isinstance(output, Tensor):
            if self._origin(output) not in (None, producer):
                producer.problem = "it returns its input"
            self._origins[id(output)] = output, producer

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self._inside or not (result is None or tensors_of(result)):
            # The functions of a watched module are its own; reading sizes and types is no use.
            return result
        name = getattr(func, "__name__", str(func))
        given = [*args, *(kwargs or {}).values()]
        if name in _KEEPING and given and isinstance(result, Tensor):
            producer = self._origin(given[0])
            if producer is not None:
                self._origins[id(result)] = result, producer
            given = given[1:]
        for value in given:
            for own in value if isinstance(value, (tuple, list)) else (value,):
                self._used(own, f"its output goes to {name}")
        return result
