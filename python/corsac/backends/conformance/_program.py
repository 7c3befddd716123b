"""Programs of the conformance kit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

#: Makes the arguments of each call of a program.
Calls = Callable[[], list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Program:
    """A small program that a backend has to run as PyTorch does.

    Attributes:
        name: the name of the function or class.
        kind: its subject: ``"views"``, ``"mutation"`` and so on.
        code: a function, or a class of modules made without arguments.
        calls: makes the arguments of the successive calls.
        backward: whether autograd records it, and its gradients are compared.
        dynamic: whether sizes are symbols from the start.
        exact: whether values are compared, or only types and sizes.
        threads: number of threads that make the calls concurrently.
        between: function applied to the model after each call.
    """

    name: str
    kind: str
    code: Any
    calls: Calls
    backward: bool = False
    dynamic: bool | None = None
    exact: bool = True
    threads: int = 1
    between: Callable[[Any], None] | None = None

    def make(self) -> Callable[..., Any]:
        """The function, or a new module."""
        if isinstance(self.code, type):
            torch.manual_seed(0)
            return self.code()
        return self.code


class Programs:
    """A list of programs, filled by a decorator."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.list: list[Program] = []

    def __call__(self, calls: Calls, **settings: Any) -> Callable[[Any], Any]:
        """A decorator that adds a function or a class of modules."""

        def add(code: Any) -> Any:
            self.list.append(Program(code.__name__, self.kind, code, calls, **settings))
            return code

        return add


def floats(*shape: int, seed: int = 1) -> torch.Tensor:
    """A tensor of random floats, the same for each seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def integers(*shape: int, high: int = 10, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """A tensor of random integers from 0 to below ``high``, the same each time."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(high, shape, generator=generator).to(dtype)
