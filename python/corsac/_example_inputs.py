"""Example inputs, as every function takes them that needs some as one argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

#: A tensor, or the positional arguments in a tuple or list.
ExampleInputs: TypeAlias = torch.Tensor | Sequence[Any]


def as_tuple(example_inputs: ExampleInputs) -> tuple[Any, ...]:
    """The positional arguments: those in a tuple or list, or the one value."""
    if isinstance(example_inputs, (tuple, list)):
        return tuple(example_inputs)
    return (example_inputs,)


def gathered(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The positional arguments of functions that take them as the model does: a tuple or list alone has all of them."""
    return as_tuple(args[0]) if len(args) == 1 else args
