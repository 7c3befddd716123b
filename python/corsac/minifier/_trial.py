"""Tries whether a graph has a fault: in this process, or in one that may crash or hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from corsac.minifier._backend_fails import BY_PYTORCH
from corsac.minifier._case import Case
from corsac.minifier._child import Ended, announce, in_child
from corsac.minifier._fault import Fails, Fault, find_fault

#: Called about twice a second while waiting for a process.
Waiting = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of trying a graph.

    Attributes:
        runs: whether PyTorch can run it.
        fault: its fault, if it has one.
        seconds: duration of the check.
    """

    runs: bool
    fault: Fault | None
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The trial as values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Trial:
        """The trial from the values of :meth:`as_json`."""
        fault = said["fault"]
        return cls(said["runs"], None if fault is None else Fault(**fault), said["seconds"])


class Place(Protocol):
    """A place where graphs are tried."""

    def ask(self, case: Case, fails: Fails, seconds: float, waiting: Waiting | None) -> Trial:
        """Try a graph, for at most ``seconds`` if it can be interrupted."""


class Here:
    """Tries graphs in this process, which a crash ends."""

    def ask(self, case: Case, fails: Fails, seconds: float, waiting: Waiting | None) -> Trial:
        """Try a graph, without a time limit."""
        return try_case(case, fails)


class Forked:
    """Tries graphs in processes forked from this one."""

    def ask(self, case: Case, fails: Fails, seconds: float, waiting: Waiting | None) -> Trial:
        """Try a graph for at most ``seconds``."""
        return ended_trial(in_child(lambda: try_case(case, fails).as_json(), seconds, waiting))


def try_case(case: Case, fails: Fails) -> Trial:
    """Try a graph in this process."""
    announce(BY_PYTORCH)
    if not case.runs(getattr(fails, "grad", False)):
        return Trial(False, None)
    announce("")
    start = time.perf_counter()
    fault = find_fault(case.module, case.copied_inputs(), fails)
    return Trial(True, fault, time.perf_counter() - start)


def ended_trial(ended: Ended) -> Trial:
    """The trial of a graph from a process that returned :meth:`Trial.as_json`, or crashed or hung."""
    if ended.fault is None:
        return Trial.from_json(ended.answer)
    # A graph on which PyTorch itself crashes or hangs is not examined.
    return Trial(ended.phase != BY_PYTORCH, ended.fault, ended.seconds)
