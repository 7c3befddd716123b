"""Orders of passes, for both pass managers."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable
from typing import Any

AnyPass = Callable[..., Any]
Constraint = Callable[[AnyPass, AnyPass], bool]
"""Whether the first pass may come before the second."""


def this_before_that_pass_constraint(this: AnyPass, that: AnyPass) -> Constraint:
    """The constraint that ``this`` comes before ``that``.

    Example::

        PassManager([pass_a, pass_b], [this_before_that_pass_constraint(pass_a, pass_b)])
    """

    def depends_on(a: AnyPass, b: AnyPass) -> bool:
        return a != that or b != this

    return depends_on


def _validate_pass_schedule_constraint(constraint: Constraint, passes: list[AnyPass]) -> None:
    """Check a constraint on each pair of passes.

    Raises:
        RuntimeError: a pair is in the wrong order; the message has the first one with its positions.
    """
    for i, a in enumerate(passes):
        for j, b in enumerate(passes[i + 1 :], i + 1):
            if not constraint(a, b):
                raise RuntimeError(
                    f"pass schedule constraint violated. Expected {b} before {a} but found {a} at "
                    f"index {i} and {b} at index {j} in pass list."
                )


def _topological_sort_passes(passes: list[AnyPass], constraints: list[Constraint]) -> list[AnyPass]:
    """Sort the passes by the constraints, keeping their order as far as a queue does.

    Raises:
        RuntimeError: there is no such order.
    """
    if not constraints:
        return passes
    after: dict[AnyPass, list[AnyPass]] = {p: [] for p in passes}
    waits = dict.fromkeys(passes, 0)
    for a in passes:
        for b in passes:
            for constraint in constraints:
                if a != b and not constraint(a, b):
                    after[b].append(a)
                    waits[a] += 1
    ready = deque(p for p, count in waits.items() if not count)
    ordered: list[AnyPass] = []
    while ready:
        ordered.append(ready.popleft())
        for p in after[ordered[-1]]:
            waits[p] -= 1
            if not waits[p]:
                ready.append(p)
    stuck = [p for p, count in waits.items() if count]
    if stuck:
        raise RuntimeError(f"Circular dependency detected within the following passes: {stuck}")
    return ordered


class Schedule:
    """Passes in order, with constraints on the order.

    Args:
        passes: the passes.
        constraints: functions of two passes; whether the first may come before the second.
    """

    passes: list[AnyPass]
    constraints: list[Constraint]
    _validated: bool = False

    def __init__(
        self, passes: list[AnyPass] | None = None, constraints: list[Constraint] | None = None
    ) -> None:
        self.passes = passes or []
        self.constraints = constraints or []

    def add_pass(self, _pass: AnyPass) -> None:
        """Append a pass."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Constraint) -> None:
        """Append a constraint."""
        self.constraints.append(constraint)
        self._validated = False

    def _validate(self) -> None:
        if not self._validated:
            for constraint in self.constraints:
                _validate_pass_schedule_constraint(constraint, self.passes)
            self._validated = True


def name_of(fn: AnyPass) -> str:
    """The name of a pass in messages."""
    return fn.__name__ if inspect.isfunction(fn) else type(fn).__name__
