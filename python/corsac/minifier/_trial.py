"""Asking whether a graph has a fault: here, or in a process that may crash or hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from corsac.minifier._backend_fails import BY_PYTORCH
from corsac.minifier._case import Case, copies
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


class Place(Protocol):
    """Where graphs are tried."""

    def ask(self, case: Case, fails: Fails, seconds: float, waiting: Waiting | None) -> Trial:
        """Try a graph for at most ``seconds``, if it can be ended."""


class Here:
    """In this process, which a crash ends."""

    def ask(self, case: Case, fails: Fails, seconds: float, waiting: Waiting | None) -> Trial:
        """Try a graph, however long that takes."""
        return trial_of(try_case(case, fails))


class Forked:
    """In processes forked from this one."""

    def ask(self, case: Case, fails: Fails, seconds: float, waiting: Waiting | None) -> Trial:
        """Try a graph for at most ``seconds``."""
        return ended_trial(in_child(lambda: try_case(case, fails), seconds, waiting))


def try_case(case: Case, fails: Fails) -> dict[str, Any]:
    """What becomes of a graph, as JSON can hold it; see :func:`trial_of`."""
    announce(BY_PYTORCH)
    if not case.runs(getattr(fails, "grad", False)):
        return {"runs": False}
    announce("")
    start = time.perf_counter()
    fault = find_fault(case.module, copies(case.inputs), fails)
    said = None if fault is None else (fault.signature, fault.text)
    return {"runs": True, "fault": said, "seconds": time.perf_counter() - start}


def trial_of(said: dict[str, Any]) -> Trial:
    """What :func:`try_case` answered."""
    fault = said.get("fault")
    return Trial(said["runs"], fault and Fault(*fault), said.get("seconds", 0.0))


def ended_trial(ended: Ended) -> Trial:
    """A process that tried a graph."""
    if ended.fault is None:
        return trial_of(ended.answer)
    # A graph that PyTorch itself crashes or hangs at is none to look at.
    return Trial(ended.phase != BY_PYTORCH, ended.fault, ended.seconds)
