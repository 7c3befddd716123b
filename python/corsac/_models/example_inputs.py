"""Example inputs as one argument: a tensor, or a tuple or list of positional arguments."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any, TypeAlias

import torch

#: A tensor, or the positional arguments in a tuple or list.
ExampleInputs: TypeAlias = torch.Tensor | Sequence[Any]
#: Types of inputs and results besides tensors, which are constants of graphs.
CONSTANTS = (NoneType, bool, int, float, complex, str, torch.dtype, torch.device)


def as_tuple(example_inputs: ExampleInputs) -> tuple[Any, ...]:
    """The positional arguments: those in a tuple or list, or the one value."""
    if isinstance(example_inputs, (tuple, list)):
        return tuple(example_inputs)
    return (example_inputs,)


def gathered(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The positional arguments of a model, which may also be given as a single tuple or list."""
    return as_tuple(args[0]) if len(args) == 1 else args
