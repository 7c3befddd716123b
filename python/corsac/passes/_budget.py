"""Limits on the number of changes that passes make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from corsac._core import Budget

__all__ = ["Budget", "current_budget", "rewrite_budget", "spending"]

_budget: ContextVar[Budget | None] = ContextVar("corsac_budget", default=None)


def current_budget(given: Budget | None) -> Budget | None:
    """The budget passed to a pass, or else that of the surrounding block."""
    return _budget.get() if given is None else given


@contextmanager
def spending(budget: Budget | None) -> Iterator[None]:
    """Let the passes of corsac that run in the block spend ``budget``; None for that of the block
    around it."""
    token = _budget.set(current_budget(budget))
    try:
        yield
    finally:
        _budget.reset(token)


@contextmanager
def rewrite_budget(limit: int | None = None) -> Iterator[Budget]:
    """Let the passes of corsac that run in the block make at most ``limit`` changes in all.

    Once the budget is used up they leave the graph as it is, and their reports say so. Yields the
    :class:`Budget`, which counts the changes made; without a limit it only counts.

    Example::

        with rewrite_budget(10) as budget:
            corsac.passes.common_subexpressions(gm)
            corsac.passes.eliminate_dead_code(gm)
        print(budget.spent)
    """
    budget = Budget(limit)
    token = _budget.set(budget)
    try:
        yield budget
    finally:
        _budget.reset(token)
