"""Times of layers in their float and their quantised form."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from corsac._compile.compiled_module import compile
from corsac._engine.native_graph import CompileError
from corsac.quantization.one_call._forms import Form, as_linear
from corsac.quantization.one_call._layers import Layer

#: Timed calls of each form, at most and at least, and the time after which the least number is enough.
_ROUNDS, _LEAST_ROUNDS, _PATIENCE_SECONDS = 25, 3, 0.25
#: A quantised form has to save this part of the time: less is noise.
GAIN = 0.03


@dataclass(frozen=True)
class Times:
    """Seconds of a call in both forms; ``error`` is the reason if the quantised one is not native."""

    float_seconds: float
    seconds: float
    error: str = ""

    @property
    def is_faster(self) -> bool:
        return not self.error and self.seconds < self.float_seconds * (1.0 - GAIN)


@dataclass(frozen=True)
class Sample:
    """The shape and the bounds of a layer's input."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    low: float
    high: float

    @classmethod
    def of(cls, tensor: Tensor) -> Sample:
        low, high = map(float, torch.aminmax(tensor))
        return cls(tuple(tensor.shape), tensor.dtype, low, high)

    def random(self) -> Tensor:
        """A tensor like it."""
        numbers = torch.rand(self.shape, generator=torch.Generator().manual_seed(0))
        return (self.low + (self.high - self.low) * numbers).to(self.dtype)


def kind_of(layer: Layer, form: Form, sample: Sample) -> Hashable:
    """A key: the same for layers of the same kind, form and sizes."""
    described = as_linear(layer.module).extra_repr()
    return type(layer.module), described, form, sample.shape, sample.dtype


class Stopwatch:
    """Measures layers, those of the same kind and sizes once."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Times] = {}

    def times(self, layer: Layer, form: Form, made: nn.Module, sample: Sample) -> Times:
        """The times of a layer and of its quantised form, one thread each, on an input like ``sample``."""
        key = kind_of(layer, form, sample)
        if key not in self._known:
            self._known[key] = _measured(layer.module, made, sample.random())
        return self._known[key]


def _measured(layer: nn.Module, made: nn.Module, input: Tensor) -> Times:
    with one_thread(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = compile(layer, options={"inference": "native"})
        after = compile(made, options={"inference": "native"}, fullgraph=True)
        error = ""
        try:
            after(input)
            after(input)
        except CompileError as refused:
            after, error = before, str(refused).partition("\n")[0]
        first, second = interleaved(lambda: before(input), lambda: after(input))
        return Times(first, float("inf") if error else second, error)


def time_models(
    model: nn.Module, made: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[float, float]:
    """Seconds of a call of both models, compiled, on one thread."""
    with one_thread(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before, after = compile(model), compile(made)
        return interleaved(lambda: before(*args, **kwargs), lambda: after(*args, **kwargs))


def interleaved(
    first: Callable[[], Any],
    second: Callable[[], Any],
    patience_seconds: float = _PATIENCE_SECONDS,
) -> tuple[float, float]:
    """The least seconds of a call of both, which take turns; after the patience few rounds are enough."""
    for call in (first, second):
        for _ in range(3):
            call()
    best = [float("inf"), float("inf")]
    start = time.perf_counter()
    for done in range(_ROUNDS):
        if done >= _LEAST_ROUNDS and time.perf_counter() - start > patience_seconds:
            break
        for at, call in enumerate((first, second)):
            began = time.perf_counter()
            call()
            best[at] = min(best[at], time.perf_counter() - began)
    return best[0], best[1]


@contextmanager
def one_thread() -> Iterator[None]:
    """Context in which PyTorch and the engine use one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
