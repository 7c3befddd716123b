"""The same model twice: one for PyTorch, and one to be compiled."""

from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")


def twice(make: Callable[[], T]) -> tuple[T, T]:
    """Call ``make`` twice, with the same random numbers."""

    def made() -> T:
        torch.manual_seed(0)
        return make()

    return made(), made()
