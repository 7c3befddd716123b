"""What is wrong with a graph, and what tells one fault from another."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from corsac.fx import GraphModule

#: What tells one message from another is not in numbers, addresses and names of values.
_VARYING = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?|%\w+|'[^']*'|\"[^\"]*\"")
#: What programs that abort say last. Whatever else is on stderr says nothing of the fault.
_LAST_WORDS = re.compile(
    r"what\(\):|assert|panicked|fatal|terminate called|free\(\)|malloc|corrupt|overflow", re.I
)

#: ``fails(module, inputs)``: False or None where there is no fault; True, a text, or an exception if
#: there is one.
Fails = Callable[[GraphModule, list[Any]], Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a graph.

    Attributes:
        signature: what tells it from other faults: the class of an exception and its message without
            numbers and names; the signal of a crash; a kind of wrong result.
        text: what was said of it, as it was said.
    """

    signature: str
    text: str

    @property
    def kind(self) -> str:
        """In one word: ``crashes``, ``hangs``, ``differs``, ``not-finite`` or ``raises``."""
        first = re.match(r"[^\s:]*", self.signature)[0]
        if first in ("crashes", "hangs", "differs"):
            return first
        return "not-finite" if self.signature.startswith(NOT_FINITE) else "raises"


#: How the signatures of two kinds of wrong results begin.
NOT_FINITE, DIFFERS = "NaN or infinity where PyTorch has none", "differs from PyTorch"


def raised(error: BaseException) -> Fault:
    """An exception, as a fault."""
    said = _VARYING.sub("…", _first_line(str(error)))
    return Fault(f"{type(error).__name__}: {said}", f"{type(error).__name__}: {error}")


def answered(answer: Any) -> Fault | None:
    """What a function ``fails`` returned, as a fault."""
    if isinstance(answer, Fault):
        return answer
    if answer is None or answer is False:
        return None
    text = "it fails" if answer is True else str(answer)
    return Fault(_VARYING.sub("…", _first_line(text)), text)


def crashed(status: int, phase: str, stderr: str) -> Fault:
    """A process that ended before it said what it found.

    Args:
        status: its exit status, or the negative number of the signal that ended it.
        phase: what it was at: ``"compiled"`` for a graph that was being compiled; may be empty.
        stderr: what it wrote there.
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
    """A process that did not come back."""
    return Fault(f"hangs{_when(phase)}", f"hangs{_when(phase)}: no answer after {seconds:.3g} s")


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _when(phase: str) -> str:
    return f" when {phase}" if phase else ""


def find_fault(module: GraphModule, inputs: list[Any], fails: Fails) -> Fault | None:
    """What ``fails`` says of a graph, in this process."""
    try:
        return answered(fails(module, inputs))
    except Exception as error:
        return raised(error)
