"""Operators of graphs of several ranks, `torch.ops.corsac`, for what cannot be traced: checks of values, and seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.fx.node import has_side_effect

_library = torch.library.Library("corsac", "FRAGMENT")
#: A seed that all ranks of a group share, and how often it was used, by the name of the group.
_seeds: dict[str, list[int]] = {}
#: Size of the state of the random generator of the CPU.
_STATE = torch.default_generator.get_state().numel()


def shared_seed(group: str, seed: int) -> None:
    """Give the ranks of a group the seed of their random numbers until the next call."""
    _seeds[group] = [seed, 0]


def _operator(schema: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Defines an operator that is computed by the decorated function on all devices."""

    def define(function: Callable[..., Any]) -> Any:
        name = schema.partition("(")[0]
        _library.define(schema)
        _library.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"corsac::{name}", fake, lib=_library)
        return function

    return define


@_operator(
    "in_range(Tensor numbers, int end, int? ignored, str of) -> Tensor",
    lambda numbers, end, ignored, of: torch.empty_like(numbers),
)
def _in_range(numbers: torch.Tensor, end: int, ignored: int | None, of: str) -> torch.Tensor:
    """A copy of numbers from 0 to ``end``, which may be ``ignored``, too.

    Raises:
        IndexError: others are among them; ``of`` says what they count.
    """
    is_valid = (numbers >= 0) & (numbers < end)
    if ignored is not None:
        is_valid |= numbers == ignored
    if not bool(is_valid.all()):
        raise IndexError(f"index out of range in {of.format(end)}")
    return numbers.clone()


@_operator(
    "begin_random(str group, bool parts) -> Tensor",
    lambda group, parts: torch.empty(_STATE, dtype=torch.uint8),
)
def _begin_random(group: str, parts: bool) -> torch.Tensor:
    before = torch.get_rng_state()
    seed, count = _seeds[group]
    _seeds[group][1] = count + 1
    own = dist.get_rank(_resolve_process_group(group)) + 1 if parts else 0
    torch.default_generator.manual_seed((seed + 1_000_003 * count + 7_919 * own) % 2**63)
    return before


@_operator("end_random(Tensor state) -> ()", lambda state: None)
def _end_random(state: torch.Tensor) -> None:
    torch.set_rng_state(state)


# Nothing uses its result, and yet it must stay.
has_side_effect(torch.ops.corsac.end_random.default)

__all__ = ["shared_seed"]
