"""Limits on the size of a model from a configuration."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_PLACES = ("", "K", "M", "G", "T", "P", "E")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the model that a configuration builds: a few bytes of text can ask for more memory than any
    machine has.

    Attributes:
        size_bytes: total size of the model's tensors, with temporary ones of constructors.
        tensors: number of these tensors.
        tensors_per_module: number of tensors that one constructor may make; some take time quadratic in it.
        modules: number of modules, nested ones included.
        nodes: number of nodes of the graph.
    """

    size_bytes: int = 16 * 2**30
    tensors: int = 100_000
    tensors_per_module: int = 10_000
    modules: int = 100_000
    nodes: int = 1_000_000


class TooLarge(Exception):
    """The model would exceed a limit; the message names it."""


class Meter:
    """Keeps count of what has been used of the limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._size_bytes = self._tensors = self._modules = 0
        self._allowed_tensors = limits.tensors

    def add_tensor(self, size_bytes: int) -> None:
        """Count a tensor before it is allocated."""
        self._tensors += 1
        self._size_bytes += size_bytes
        if self._tensors > self._limits.tensors:
            raise TooLarge(f"the model has more than {self._limits.tensors:,} tensors")
        if self._tensors > self._allowed_tensors:
            raise TooLarge(f"it has more than {self._limits.tensors_per_module:,} tensors")
        if self._size_bytes > self._limits.size_bytes:
            raise TooLarge(
                f"the tensors of the model take {described_size(self._size_bytes)} up to here, "
                f"and may take {described_size(self._limits.size_bytes)}"
            )

    def add_modules(self, number: int) -> None:
        """Count modules."""
        self._modules += number
        if self._modules > self._limits.modules:
            raise TooLarge(f"the model has more than {self._limits.modules:,} modules")

    def try_out(self, construct: Callable[[], Any]) -> None:
        """Count the tensors and modules that ``construct`` makes, by running it on the meta device."""
        total = self._limits.tensors
        own = self._tensors + self._limits.tensors_per_module
        self._allowed_tensors = min(total, own)
        try:
            # Its warnings appear when it is called for real.
            with warnings.catch_warnings(action="ignore"), torch.device("meta"), _Watch(self):
                made = construct()
        finally:
            self._allowed_tensors = total
        if isinstance(made, torch.nn.Module):
            self.add_modules(sum(1 for _ in made.modules()))


class _Watch(TorchDispatchMode):
    """Counts tensors as they are made, turning all of them into meta tensors."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("meta")
        made = func(*args, **kwargs)
        if all(value.alias_info is None for value in func._schema.returns):
            for value in tree_leaves(made):
                if isinstance(value, torch.Tensor):
                    self._meter.add_tensor(value.nbytes)
        return made


def described_size(size_bytes: int) -> str:
    """A size as text: ``1.5 GiB``."""
    number, place = float(size_bytes), 0
    while number >= 1024 and place < len(_PLACES) - 1:
        number, place = number / 1024, place + 1
    return f"{number:.4g} {_PLACES[place]}{'iB' if place else 'bytes'}"
