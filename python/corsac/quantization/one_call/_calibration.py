"""Runs a model on calibration data, and records what its layers compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from corsac.quantization.one_call._data import Batch, noise_ratio, not_accepted
from corsac.quantization.one_call._layers import Layer
from corsac.quantization.one_call._ranges import Histogram
from corsac.quantization.one_call._timing import Sample

#: Batches on which errors are measured.
MEASURED = 8
#: A batch decides a range if it is this many times that of all others, and numbers outside theirs are fewer than this
#: share.
_DECIDING, _SHARE = 4.0, 1e-3
#: Numbers of a channel from which its mean error is corrected, and how many times its own uncertainty the mean must be.
_LEAST_NUMBERS, _CERTAIN = 64, 3.0


@dataclass
class Seen:
    """Statistics of the inputs of a layer.

    Attributes:
        histogram: of floating-point inputs.
        sample: the first input.
        calls: how many there were.
    """

    histogram: Histogram = field(default_factory=Histogram)
    sample: Sample | None = None
    calls: int = 0


def observe(model: nn.Module, layers: Sequence[Layer], data: Sequence[Batch]) -> dict[str, Seen]:
    """Run the model on all batches; return what was seen, by the names of layers.

    Raises:
        ValueError: the model does not accept a batch.
    """
    seen = {layer.name: Seen() for layer in layers}

    def look(layer: Layer) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            input = _input(args, kwargs)
            own = seen[layer.name]
            own.calls += 1
            if input is None or input.numel() == 0:
                return
            if not layer.is_table:
                if input.dtype != torch.float32:
                    layer.reason = f"its input is {str(input.dtype).removeprefix('torch.')}"
                    return
                if not bool(torch.isfinite(input).all()):
                    layer.reason = "its input has NaN or infinity"
                    return
                own.histogram.add(input)
            if own.sample is None:
                own.sample = Sample.of(input)

        return hook

    with ExitStack() as stack, torch.no_grad():
        for layer in layers:
            handle = layer.module.register_forward_pre_hook(look(layer), with_kwargs=True)
            stack.callback(handle.remove)
        for number, batch in enumerate(data):
            run(model, batch, number)
    for layer in layers:
        if not layer.reason and seen[layer.name].calls == 0:
            layer.reason = "the calibration data did not reach it"
    return seen


def run(model: nn.Module, batch: Batch, number: int) -> Any:
    """The model's result on a batch.

    Raises:
        ValueError: the model does not accept it.
    """
    try:
        return batch.run(model)
    except Exception as error:
        raise not_accepted(f"calibration batch {number} ({batch})", error) from error


def _input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    given = [*args, *kwargs.values()]
    return given[0] if given and isinstance(given[0], Tensor) else None


def range_warnings(name: str, histogram: Histogram) -> list[str]:
    """Warnings about a range: one batch decides it, or all numbers are the same."""
    if not histogram.lows:
        return []
    if histogram.low == histogram.high:
        return [f"{name}: all numbers of its input are {histogram.low:.4g}"]
    found = []
    if len(histogram.lows) > 1:
        sizes = [max(-low, high) for low, high in zip(histogram.lows, histogram.highs, strict=True)]
        largest = max(range(len(sizes)), key=sizes.__getitem__)
        others = max(size for at, size in enumerate(sizes) if at != largest)
        share = histogram.share_outside(-others, others)
        if sizes[largest] > _DECIDING * others and share < _SHARE:
            found.append(
                f"{name}: batch {largest} alone decides the range of its input: {sizes[largest]:.4g}, and {others:.4g} in "
                f"all others; {share:.2g} of the numbers are outside theirs"
            )
    return found


@dataclass
class Errors:
    """Errors of the output of one layer that is quantised.

    Attributes:
        signal: the sum of the squared float numbers.
        noise: the sum of the squared errors.
        count: numbers of each channel.
        sums: the sum of the errors of each channel.
        squares: the sum of the squared errors of each channel.
    """

    signal: float = 0.0
    noise: float = 0.0
    count: int = 0
    sums: Tensor | None = None
    squares: Tensor | None = None

    def add(self, expected: Tensor, got: Tensor, axis: int) -> None:
        error = (got - expected).to(torch.float64)
        self.signal += float((expected.to(torch.float64) ** 2).sum())
        self.noise += float((error**2).sum())
        channels = error.movedim(axis, 0).flatten(1)
        self.count += channels.shape[1]
        sums, squares = channels.sum(1), (channels**2).sum(1)
        self.sums = sums if self.sums is None else self.sums + sums
        self.squares = squares if self.squares is None else self.squares + squares

    @property
    def sqnr(self) -> float:
        """The signal-to-noise ratio in decibels."""
        return noise_ratio(self.signal, self.noise)

    def correction(self) -> Tensor | None:
        """The numbers to add to the bias so that the mean errors that are certain vanish; the errors are then without them."""
        if self.sums is None or self.squares is None or self.count < _LEAST_NUMBERS:
            return None
        mean = self.sums / self.count
        variance = (self.squares / self.count - mean**2).clamp(min=0.0)
        certain = mean.abs() > _CERTAIN * torch.sqrt(variance / self.count)
        if not bool(certain.any()):
            return None
        mean = torch.where(certain, mean, 0.0)
        self.noise = max(self.noise - self.count * float((mean**2).sum()), 0.0)
        self.sums = self.sums - self.count * mean
        self.squares = (self.squares - self.count * mean**2).clamp(min=0.0)
        return -mean.to(torch.float32)


def measure_errors(
    model: nn.Module, made: dict[str, nn.Module], layers: Sequence[Layer], data: Sequence[Batch]
) -> dict[str, Errors]:
    """The errors of quantised layers on the inputs of the float ones, by name, in the first batches."""
    errors = {layer.name: Errors() for layer in layers if layer.name in made}

    def look(layer: Layer) -> Callable[..., None]:
        quantised = made[layer.name]
        # Channels are the last dimension, or the one before the spatial ones.
        spatial = getattr(layer.module, "kernel_size", None)

        def hook(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
        ) -> None:
            if output.numel():
                axis = -1 - len(spatial) if spatial is not None else -1
                errors[layer.name].add(output, quantised(*args, **kwargs), axis)

        return hook

    with ExitStack() as stack, torch.no_grad():
        for layer in layers:
            if layer.name in made:
                handle = layer.module.register_forward_hook(look(layer), with_kwargs=True)
                stack.callback(handle.remove)
        for number, batch in enumerate(data[:MEASURED]):
            run(model, batch, number)
    return errors
