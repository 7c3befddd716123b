"""Calibration data: batches of arguments of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from corsac.quantization._finite import infinite_numbers


@dataclass(frozen=True)
class Batch:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, given: Any) -> Batch:
        """Of a tensor, a tuple or list of positional arguments, or a mapping of named ones."""
        if isinstance(given, Mapping):
            return cls((), dict(given))
        if isinstance(given, (tuple, list)):
            return cls(tuple(given), {})
        return cls((given,), {})

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors with their names."""
        yield from _tensors("input", [*self.args])
        for name, value in self.kwargs.items():
            yield from _tensors(repr(name), value)

    def check(self, number: int) -> None:
        """Check that all numbers are finite.

        Raises:
            ValueError: they are not, or there are none: the message has the ``number`` of the batch.
        """
        if all(tensor.numel() == 0 for _, tensor in self.tensors()):
            raise ValueError(f"calibration batch {number} ({self}): expected numbers, got none")
        for name, tensor in self.tensors():
            wrong = infinite_numbers(tensor) if tensor.is_floating_point() else ""
            if wrong:
                raise ValueError(
                    f"calibration batch {number}: {name} has NaN or infinity: {wrong} numbers"
                )

    def run(self, model: nn.Module) -> Any:
        """The result of the model."""
        return model(*self.args, **self.kwargs)

    def __str__(self) -> str:
        shown = []
        for name, tensor in self.tensors():
            dtype = str(tensor.dtype).removeprefix("torch.")
            shown.append(f"{name} {dtype}{list(tensor.shape)}")
        return ", ".join(shown) or "no tensor"


def not_accepted(where: str, error: Exception) -> ValueError:
    """The error for a batch, ``where``, with which a model has raised ``error``."""
    said = str(error).strip().partition("\n")[0]
    return ValueError(f"{where}: the model does not accept it: {type(error).__name__}: {said}")


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(f"{name}[{key!r}]", item)
    elif isinstance(value, (tuple, list)):
        for at, item in enumerate(value):
            yield from _tensors(f"{name} {at}", item)


def batches(data: Any) -> list[Batch]:
    """The batches of calibration data: one tensor, tuple or mapping, or an iterable of these.

    A tuple is one batch, a list is several; the arguments of a batch may be a list, too, inside.

    Raises:
        TypeError: the data is none of these.
        ValueError: there is no batch, or its numbers are not finite.
    """
    if isinstance(data, (Tensor, tuple, Mapping)):
        found = [Batch.of(data)]
    elif isinstance(data, Iterable) and not isinstance(data, (str, bytes)):
        found = [Batch.of(own) for own in data]
    else:
        raise TypeError(
            "calibration_data: expected a tensor, tuple or dict of inputs, or an iterable of these, got "
            f"{type(data).__name__}"
        )
    if not found:
        raise ValueError("calibration_data is empty: expected at least one batch")
    for number, batch in enumerate(found):
        if not any(True for _ in batch.tensors()):
            raise TypeError(f"calibration batch {number}: expected tensors, got {batch.args!r}")
        batch.check(number)
    return found


def tensors_of(result: Any) -> list[Tensor]:
    """The tensors of a model's result: also of dataclasses such as those of transformers, which are mappings."""
    return [tensor for _, tensor in _tensors("", vars(result) if _is_object(result) else result)]


def _is_object(result: Any) -> bool:
    return hasattr(result, "__dict__") and not isinstance(result, (Tensor, Mapping, tuple, list))


def noise_ratio(signal: float, noise: float) -> float:
    """The ratio of two powers in decibels; infinite without noise."""
    if noise <= 0.0:
        return float("inf")
    if signal <= 0.0:
        return float("-inf")
    return float(10.0 * torch.log10(torch.tensor(signal / noise, dtype=torch.float64)))


def sqnr(expected: Any, got: Any) -> float:
    """The signal-to-noise ratio, in decibels, of all floating-point numbers of a result."""
    signal = noise = 0.0
    for one, other in zip(tensors_of(expected), tensors_of(got), strict=True):
        if one.is_floating_point():
            one, other = one.detach().to(torch.float64), other.detach().to(torch.float64)
            # Masked scores, which are infinite or nearly, are no signal.
            usual = torch.isfinite(one) & torch.isfinite(other) & (one.abs() < 1e30)
            signal += float((one[usual] ** 2).sum())
            noise += float(((one - other)[usual] ** 2).sum())
    return noise_ratio(signal, noise)
