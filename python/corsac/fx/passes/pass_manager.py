"""Runs passes, each on the result of the one before."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from typing import Any, Concatenate, ParamSpec, TypeVar

from ._schedule import (
    Schedule,
    _validate_pass_schedule_constraint,  # noqa: F401
    this_before_that_pass_constraint,
)

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")

logger = logging.getLogger(__name__)

__all__ = [
    "PassManager",
    "inplace_wrapper",
    "log_hook",
    "loop_pass",
    "these_before_those_pass_constraint",
    "this_before_that_pass_constraint",
]


def inplace_wrapper(fn: Callable[Concatenate[_T, _P], Any]) -> Callable[Concatenate[_T, _P], _T]:
    """A pass that calls ``fn``, which changes its first argument, and returns that argument."""

    @wraps(fn)
    def wrapped_fn(gm: _T, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        fn(gm, *args, **kwargs)
        return gm

    return wrapped_fn


def log_hook(fn: Callable[_P, _R], level: int = logging.INFO) -> Callable[_P, _R]:
    """``fn``, with its result logged.

    :func:`inplace_wrapper` hides the result of a pass, so this goes inside of it.
    """

    @wraps(fn)
    def wrapped_fn(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        answer = fn(*args, **kwargs)
        logger.log(level, "Ran pass %s\t Return value: %s", fn, answer)
        return answer

    return wrapped_fn


def loop_pass(
    base_pass: Callable[[_T], _T],
    n_iter: int | None = None,
    predicate: Callable[[_T], bool] | None = None,
) -> Callable[[_T], _T]:
    """A pass that repeats ``base_pass``.

    Args:
        base_pass: the pass to repeat.
        n_iter: the number of repetitions.
        predicate: or: repeat while this is true of the result.

    Raises:
        AssertionError: both or neither of the two are given.
        RuntimeError: when run, ``n_iter`` is not positive.
    """
    if (n_iter is None) == (predicate is None):
        raise AssertionError("Exactly one of `n_iter`or `predicate` must be specified.")

    @wraps(base_pass)
    def new_pass(source: _T) -> _T:
        output = source
        if predicate is not None:
            while predicate(output):
                output = base_pass(output)
            return output
        if n_iter is None or n_iter <= 0:
            raise RuntimeError(f"loop_pass must be given a positive n_iter, not {n_iter}")
        for _ in range(n_iter):
            output = base_pass(output)
        return output

    return new_pass


def these_before_those_pass_constraint(
    these: Callable[..., Any], those: Callable[..., Any]
) -> Callable[[Callable[..., Any], Callable[..., Any]], bool]:
    """The constraint that ``these`` comes before ``those``, wrapped or not.

    Passes wrapped by :func:`loop_pass` and the like are unwrapped.
    """
    constraint = this_before_that_pass_constraint(these, those)

    def depends_on(a: Callable[..., Any], b: Callable[..., Any]) -> bool:
        return constraint(unwrap(a), unwrap(b))

    return depends_on


class PassManager(Schedule):
    """Runs passes, each on the result of the one before, if the constraints are satisfied.

    Args:
        passes: functions that return the argument of the next one.
        constraints: functions of two passes; whether the first may come before the second.
    """

    @classmethod
    def build_from_passlist(cls, passes: list[Callable[..., Any]]) -> PassManager:
        """A manager of ``passes`` without constraints."""
        return PassManager(passes)

    def remove_pass(self, _passes: list[str]) -> None:
        """Remove the passes with these names."""
        if _passes is None:
            return  # type: ignore[unreachable]
        self.passes = [p for p in self.passes if p.__name__ not in _passes]
        self._validated = False

    def replace_pass(self, _target: Callable[..., Any], _replacement: Callable[..., Any]) -> None:
        """Replace the passes with the name of ``_target`` by ``_replacement``."""
        self.passes = [_replacement if p.__name__ == _target.__name__ else p for p in self.passes]
        self._validated = False

    def validate(self) -> None:
        """Check the order of the passes.

        Raises:
            RuntimeError: a constraint is violated.
        """
        self._validate()

    def __call__(self, source: Any) -> Any:
        """Run the passes, the first one on ``source``."""
        self.validate()
        for fn in self.passes:
            source = fn(source)
        return source
