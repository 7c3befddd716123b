"""Runs passes that report whether they have changed the module."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import nn

from ...graph_module import GraphModule
from .._schedule import (
    Schedule,
    _topological_sort_passes,
    _validate_pass_schedule_constraint,  # noqa: F401
    name_of,
    this_before_that_pass_constraint,
)
from .pass_base import PassResult

logger = logging.getLogger(__name__)
logger.setLevel(logging.WARNING)

__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]


def pass_result_wrapper(fn: Callable[..., Any]) -> Callable[..., PassResult | None]:
    """``fn`` as a pass that returns a :class:`PassResult`.

    Args:
        fn: a function of a module that returns a module, or None if it has changed the given one. It is
            assumed to have changed it.
    """
    if fn is None:
        return None  # type: ignore[unreachable]

    @wraps(fn)
    def wrapped_fn(gm: nn.Module) -> PassResult | None:
        result = fn(gm)
        if isinstance(result, PassResult):
            return result
        if result is None:
            return PassResult(gm, True)
        return PassResult(result, True) if isinstance(result, nn.Module) else None

    if not inspect.isfunction(fn):
        wrapped_fn.__name__ = type(fn).__name__
    return wrapped_fn


class PassManager(Schedule):
    """Runs passes in an order that satisfies the constraints.

    Args:
        passes: functions of a module that return a :class:`PassResult`.
        constraints: functions of two passes; whether the first may come before the second.
        steps: maximum number of rounds; they stop when no pass changes anything.
        run_checks_after_each_pass: check the module after each pass.
        suppress_check_failures: kept for compatibility.
    """

    steps: int = 1

    def __init__(
        self,
        passes: list[Callable[..., PassResult | None]] | None = None,
        constraints: list[Callable[[Callable[..., Any], Callable[..., Any]], bool]] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        super().__init__(passes, constraints)
        if steps:
            self.steps = steps
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures

    def validate_constraints(self) -> None:
        """Check the order of the passes.

        Raises:
            RuntimeError: a constraint is violated.
        """
        self._validate()

    def solve_constraints(self) -> None:
        """Sort the passes so that they satisfy the constraints.

        Raises:
            RuntimeError: there is no such order.
        """
        self.passes = _topological_sort_passes(self.passes, self.constraints)
        self._validated = True

    def add_checks(self, check: Callable[[nn.Module], None]) -> None:
        """Register ``check``, called with the module before the first pass, and after each if enabled.

        Raises:
            TypeError: it does not take one argument.
        """
        if len(inspect.signature(check).parameters) != 1:
            raise TypeError("PassManager check function should only take in one variable, a module")
        self.__dict__["check"] = check

    def check(self, module: nn.Module) -> None:
        """Check the module; does nothing unless :meth:`add_checks` was called."""

    def __call__(self, module: nn.Module) -> PassResult:
        """Run the passes on ``module``.

        Raises:
            Exception: a pass failed; the message names it and the passes before it. Its exception is the
                cause.
        """
        if not self._validated:
            self.solve_constraints()
        self.check(module)
        overall = False
        for _ in range(self.steps):
            module, modified = self._run_once(module)
            overall = overall or modified
            if not modified:
                break
        return PassResult(module, overall)

    def _run_once(self, module: nn.Module) -> tuple[nn.Module, bool]:
        modified = False
        for i, fn in enumerate(self.passes):
            logger.debug("Running pass '%s'", name_of(fn))
            try:
                result = fn(module)
                if not isinstance(result, PassResult) and not hasattr(result, "graph_module"):
                    raise TypeError(
                        f"The result of the pass {name_of(fn)} should be type PassResult."
                        "Please wrap it with pass_result_wrapper()"
                    )
                module = result.graph_module
                modified = modified or result.modified
                if isinstance(module, GraphModule):
                    logger.debug("Graph after pass '%s': %s", name_of(fn), module.graph)
                    module.recompile()
                if self.run_checks_after_each_pass:
                    self.check(module)
            except Exception as error:
                before = [name_of(p) for p in self.passes[:i]]
                raise Exception(
                    f"An error occurred when running the '{name_of(fn)}' pass after the following "
                    f"passes: {before}"
                ) from error
        return module, modified
