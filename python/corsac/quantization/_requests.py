"""Requests to the native passes of quantisation: patterns, configurations and conversions, without Python objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from corsac.quantization import _dtypes
from corsac.quantization._dtypes import quantised


@dataclass
class DescribedPattern:
    """A pattern of a backend.

    Attributes:
        pattern: a class, a function, the name of a method, or a tuple of one and the patterns of its arguments.
        root: the place, among the calls of the pattern, of the first one to run.
        extra: the places of further inputs of the root.
        observation: the number of the ``ObservationType``.
        by_tensors: the same by the number of tensors among the inputs.
        dtypes: the places of its element types in a list.
        weight: the place of the weight among the arguments.
        bias: the place of the bias among the arguments.
        config: the backend's own entry.
    """

    pattern: Any
    root: int
    extra: list[int]
    observation: int
    by_tensors: dict[int, int]
    dtypes: list[int]
    weight: int | None
    bias: int | None
    config: Any


#: The place of a configuration in a list, None for what is not quantised.
Choice = int | None


@dataclass
class Choices:
    """Configurations by what nodes are.

    Attributes:
        overall: that of all nodes.
        types: by class of module, function or name of a method.
        matched: by path of a module that a regular expression matches.
        modules: by path of a module.
        ordered: by path of a module, type of its calls and their number.
    """

    overall: Choice
    types: list[tuple[Any, Choice]]
    matched: dict[str, Choice]
    modules: dict[str, Choice]
    ordered: list[tuple[str, Any, int, Choice]]


@dataclass
class DescribedObserver:
    """The element type of an observer, whether it is dynamic, and the number of its class."""

    dtype: str
    dynamic: bool
    kind: int


@dataclass
class DescribedQConfig:
    """The observers that a configuration makes."""

    activation: DescribedObserver | None
    weight: DescribedObserver | None
    reuses_input: bool


@dataclass
class ObserverRequest:
    """The request of observers for a graph; see ``corsac_passes::quantise::observe``."""

    patterns: list[DescribedPattern]
    dtypes: list[tuple[str | None, str | None, str | None, str | None, bool]]
    broken: list[tuple[int, int, str]]
    qconfigs: list[DescribedQConfig]
    choices: dict[str, Choice]
    custom: set[str]
    tuples: dict[str, str]
    tuple_functions: list[Any]
    standalone: dict[str, list[int]]
    quantised_inputs: list[int]
    taken: set[str]


@dataclass
class Conversion:
    """The replacement of an observer.

    Attributes:
        kind: "dropped", "half", "static", "dynamic", or "constant" for a value that does not change.
        attribute: the name of the quantised value, if it is constant.
        scale: the size of a step, if there is one for the whole value.
        zero_point: the integer that zero becomes.
        axis: the dimension of channels, if each has a scale.
        scales: the name of the scales of channels.
        zero_points: the name of their zero points.
        quant_min: the smallest integer.
        quant_max: the largest integer.
        dtype: the type of the integers.
    """

    kind: str
    attribute: str | None = None
    scale: float | None = None
    zero_point: int | None = None
    axis: int | None = None
    scales: str | None = None
    zero_points: str | None = None
    quant_min: int = 0
    quant_max: int = 0
    dtype: torch.dtype | None = None


@dataclass
class Numbered:
    """Numbers for objects, in the order in which they are first met; None has none."""

    objects: list[Any] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)

    def number(self, found: Any, key: Callable[[Any], int] = id) -> Choice:
        """The number of an object."""
        if found is None:
            return None
        number = self._numbers.setdefault(key(found), len(self.objects))
        if number == len(self.objects):
            self.objects.append(found)
        return number


def dtype_name(dtype: Any) -> str | None:
    """The name of an element type, of a plain type of 8 or 32 bits that of the quantised one: "quint8"; None for none."""
    for name in ("quint8", "qint8", "qint32"):
        if quantised(dtype) == getattr(_dtypes, name):
            return name
    return None if dtype is None else str(dtype).removeprefix("torch.")
