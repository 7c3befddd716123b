"""Inputs of a model by name, and batches of them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from corsac._messages.near_names import did_you_mean
from corsac._models.example_inputs import CONSTANTS
from corsac.quantization.one_call._data import Batch


@dataclass(frozen=True)
class Input:
    """A tensor among the inputs: its name, type and sizes in the example."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    def dynamic(self) -> list[int]:
        """The dimensions that may vary: all of tables of tokens, batch and length of sequences of features, only the
        batch of images."""
        rank = len(self.shape)
        return [*range(rank if rank < 3 else 2 if rank == 3 else 1)]

    def __str__(self) -> str:
        return f"{self.name} {str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


@dataclass(frozen=True)
class Inputs:
    """The inputs of a graph.

    Attributes:
        tensors: in the order of the graph's placeholders.
        constants: other arguments, whose values are fixed.
        parameters: the names of the parameters of the model, in their order.
    """

    tensors: tuple[Input, ...]
    constants: dict[str, Any]
    parameters: tuple[str, ...]

    @classmethod
    def of(cls, model: nn.Module, given: Mapping[str, Any]) -> Inputs:
        """Of the arguments of a call of a model.

        Raises:
            TypeError: an argument is neither a tensor nor a plain value.
        """
        tensors, constants = [], {}
        for name, value in given.items():
            if isinstance(value, Tensor):
                tensors.append(Input(name, value.dtype, tuple(value.shape)))
            elif isinstance(value, CONSTANTS):
                if value is not None:
                    constants[name] = value
            else:
                raise TypeError(
                    f"{name}: expected a tensor or a plain value, got {type(value).__name__}"
                )
        return cls(tuple(tensors), constants, parameters_of(model))

    def without(self, names: Collection[str]) -> Inputs:
        """The inputs without those of some names."""
        return replace(self, tensors=tuple(own for own in self.tensors if own.name not in names))

    def check(self, given: Mapping[str, Any], where: str) -> None:
        """Check that a call has the same inputs, of the same types and numbers of dimensions.

        Raises:
            ValueError: it has others; the message begins with ``where``.
        """
        names = [own.name for own in self.tensors]
        found = [name for name, value in given.items() if isinstance(value, Tensor)]
        if set(names) != set(found):
            raise ValueError(
                f"{where}: expected the inputs {', '.join(names)}, got {', '.join(found) or 'none'}"
            )
        for own in self.tensors:
            value = given[own.name]
            if value.dtype != own.dtype or value.dim() != len(own.shape):
                got = Input(own.name, value.dtype, tuple(value.shape))
                raise ValueError(
                    f"{where}: expected {own}, of any {_sizes(own)}, as in the example, got {got}"
                )
        for name, value in given.items():
            if isinstance(value, Tensor) or value is None:
                continue
            if name not in self.constants or self.constants[name] != value:
                expected = self.constants.get(name)
                raise ValueError(f"{where}: expected {name}={expected!r}, got {value!r}")


def _sizes(own: Input) -> str:
    return "batch" if own.dynamic() == [0] else "batch and length"


def parameters_of(model: nn.Module) -> tuple[str, ...]:
    """The names of the parameters of a model's call."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    own = inspect.signature(model.forward).parameters.values()
    return tuple(parameter.name for parameter in own if parameter.kind in kinds)


def named(model: nn.Module, batch: Batch, where: str) -> dict[str, Any]:
    """The arguments of a batch by name; names that are no parameters of the model are left out.

    Raises:
        ValueError: there are more arguments than parameters, or none.
    """
    parameters = parameters_of(model)
    if len(batch.args) > len(parameters):
        raise ValueError(
            f"{where}: {type(model).__name__} has {len(parameters)} parameters, got {len(batch.args)} inputs"
        )
    given = {**dict(zip(parameters, batch.args, strict=False)), **batch.kwargs}
    found = {name: value for name, value in given.items() if name in parameters}
    if not any(isinstance(value, Tensor) for value in found.values()):
        hints = (did_you_mean(name, parameters, after="; ") for name in given)
        hint = next(filter(None, hints), "")
        raise ValueError(
            f"{where}: no tensor of it is an input of {type(model).__name__}: got {', '.join(given) or 'nothing'}{hint}"
        )
    return found


def arguments(
    model: nn.Module, data: Any, what: str = "calibration batch"
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The arguments of each batch, by name, with a text that says which batch it is.

    Args:
        model: the model.
        data: one mapping or tensor, a tuple of arguments, or an iterable of these.
        what: begins the texts.

    Raises:
        TypeError: the data is none of these.
        ValueError: a batch has NaN or infinity, or no input of the model.
    """
    if isinstance(data, (Tensor, tuple, Mapping)):
        data = [data]
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise TypeError(
            f"expected batches: mappings, tuples or tensors, or an iterable of these, got {type(data).__name__}"
        )
    ignored: set[str] = set()
    parameters = parameters_of(model)
    for number, own in enumerate(data):
        batch, where = Batch.of(own), f"{what} {number}"
        batch.check(number)
        given = named(model, batch, where)
        ignored |= {name for name in batch.kwargs if name not in parameters}
        yield where, given
    if ignored:
        warnings.warn(
            f"{type(model).__name__} has no inputs {', '.join(sorted(ignored))}: they are left out",
            stacklevel=3,
        )


def example_of(model: nn.Module, names: Iterable[str] | None) -> dict[str, Tensor]:
    """Inputs of a model of transformers, small ones: those of ``model.dummy_inputs``, or of these names.

    Raises:
        ValueError: the model has no examples, or none of a name.
    """
    try:
        known = dict(model.dummy_inputs)  # type: ignore[arg-type, operator]
    except Exception:
        known = {}
    tokens = known.get("input_ids")
    wanted = tuple(names) if names is not None else tuple(known)
    parameters = parameters_of(model)
    found: dict[str, Tensor] = {}
    for name in wanted:
        if name not in parameters:
            hint = did_you_mean(name, parameters)
            raise ValueError(f"{type(model).__name__} has no input {name!r}{hint}")
        if isinstance(known.get(name), Tensor):
            found[name] = known[name]
        elif tokens is not None and name.endswith(("_mask", "_ids")):
            fill = torch.ones_like if name.endswith("mask") else torch.zeros_like
            found[name] = fill(tokens)
        else:
            raise ValueError(
                f"there is no example of the input {name!r} of {type(model).__name__}: give example_inputs or data"
            )
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no example inputs of its own: give example_inputs or data"
        )
    return found
