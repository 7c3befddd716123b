"""Faults of a graph, and the signatures that distinguish them."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from corsac.fx import GraphModule

#: Parts of messages that do not distinguish faults: numbers, addresses, names of values.
_VARYING = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?|%\w+|'[^']*'|\"[^\"]*\"")
#: Last messages of programs that abort; the rest of stderr does not describe the fault.
_LAST_WORDS = re.compile(
    r"what\(\):|assert|panicked|fatal|terminate called|free\(\)|malloc|corrupt|overflow", re.I
)

#: ``fails(module, inputs)``: False or None where there is no fault; True, a text, or an exception if
#: there is one.
Fails = Callable[[GraphModule, list[Any]], Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a graph.

    Attributes:
        signature: distinguishes it from other faults: the class of an exception and its message without
            numbers and names; the signal of a crash; a kind of wrong result.
        text: the message in full.
    """

    signature: str
    text: str

    @property
    def kind(self) -> str:
        """One of ``crashes``, ``hangs``, ``differs``, ``not-finite`` and ``raises``."""
        first = re.match(r"[^\s:]*", self.signature)[0]
        if first in ("crashes", "hangs", "differs"):
            return first
        return "not-finite" if self.signature.startswith(NOT_FINITE) else "raises"


#: Beginnings of the signatures of two kinds of wrong results.
NOT_FINITE, DIFFERS = "NaN or infinity where PyTorch has none", "differs from PyTorch"


def raised(error: BaseException) -> Fault:
    """An exception as a fault."""
    said = _VARYING.sub("…", _first_line(str(error)))
    return Fault(f"{type(error).__name__}: {said}", f"{type(error).__name__}: {error}")


def answered(answer: Any) -> Fault | None:
    """The value that a function ``fails`` returned, as a fault."""
    if isinstance(answer, Fault):
        return answer
    if answer is None or answer is False:
        return None
    text = "it fails" if answer is True else str(answer)
    return Fault(_VARYING.sub("…", _first_line(text)), text)


def crashed(status: int, phase: str, stderr: str) -> Fault:
    """The fault of a process that ended without a result.

    Args:
        status: its exit status, or the negated number of the signal that ended it.
        phase: its last phase: ``"compiled"`` for a graph that was being compiled; may be empty.
        stderr: the end of its stderr.
    """
    how = f"exit status {status}"
    said = ""
    if status < 0:
        try:
            how = signal.Signals(-status).name
        except ValueError:
            how = f"signal {-status}"
        lines = [line.strip() for line in stderr.splitlines()]
        said = next((line for line in reversed(lines) if _LAST_WORDS.search(line)), "")
    text = f"crashes{_when(phase)}: {how}" + (f": {said}" if said else "")
    return Fault(_VARYING.sub("…", text) if said else text, text)


def hung(phase: str, seconds: float) -> Fault:
    """The fault of a process that did not return in time."""
    return Fault(f"hangs{_when(phase)}", f"hangs{_when(phase)}: no answer after {seconds:.3g} s")


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _when(phase: str) -> str:
    return f" when {phase}" if phase else ""


def find_fault(module: GraphModule, inputs: list[Any], fails: Fails) -> Fault | None:
    """Call ``fails`` in this process and return the fault of the graph."""
    try:
        return answered(fails(module, inputs))
    except Exception as error:
        return raised(error)
