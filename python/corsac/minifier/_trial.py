"""Asking whether a graph has a fault: here, or in a process that may crash or hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from corsac.minifier._backend_fails import BY_PYTORCH
from corsac.minifier._case import Case
from corsac.minifier._child import Ended, announce, in_child
from corsac.minifier._fault import Fails, Fault, find_fault

#: Called about twice a second while a process is waited for.
Waiting = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a graph that was tried.

    Attributes:
        runs: whether PyTorch can run it.
        fault: what is wrong with it, if something is.
        seconds: how long it took to look for that.
    """

    runs: bool
    fault: Fault | None
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """What JSON can hold, as answers of processes are."""
        return asdict(self)

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Trial:
        """What :meth:`as_json` gave."""
        fault = said["fault"]
        return cls(said["runs"], None if fault is None else Fault(**fault), said["seconds"])


class Place(Protocol):
    """Where graphs are tried."""

    def ask(self, case: Case, fails: Fails, seconds: float, waiting: Waiting | None) -> Trial:
        """Try a graph for at most ``seconds``, if it can be ended."""


class Here:
    """In this process, which a crash ends."""

    def ask(self, case: Case, fails: Fails, seconds: float, waiting: Waiting | None) -> Trial:
        """Try a graph, however long that takes."""
        return try_case(case, fails)


class Forked:
    """In processes forked from this one."""

    def ask(self, case: Case, fails: Fails, seconds: float, waiting: Waiting | None) -> Trial:
        """Try a graph for at most ``seconds``."""
        return ended_trial(in_child(lambda: try_case(case, fails).as_json(), seconds, waiting))


def try_case(case: Case, fails: Fails) -> Trial:
    """What becomes of a graph, in this process."""
    announce(BY_PYTORCH)
    if not case.runs(getattr(fails, "grad", False)):
        return Trial(False, None)
    announce("")
    start = time.perf_counter()
    fault = find_fault(case.module, case.copied_inputs(), fails)
    return Trial(True, fault, time.perf_counter() - start)


def ended_trial(ended: Ended) -> Trial:
    """What became of a graph by a process that answered with :meth:`Trial.as_json`, if it did."""
    if ended.fault is None:
        return Trial.from_json(ended.answer)
    # A graph that PyTorch itself crashes or hangs at is none to look at.
    return Trial(ended.phase != BY_PYTORCH, ended.fault, ended.seconds)
