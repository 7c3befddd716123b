"""Why a program is not captured, and who runs it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from corsac._lines import Line


class Kind(Enum):
    """Who runs a program that is not captured."""

    #: Values decide, or it writes to something that was there before: Dynamo makes graphs of parts of it.
    DYNAMO = "dynamo"
    #: Nothing is known of something that it does: PyTorch runs it as it is.
    HOST = "host"
    #: Autograd records it.
    TRAINS = "trains"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a program is not captured.

    Attributes:
        kind: who runs it.
        reason: for people.
        passes: whether the next call may be another matter: much is noted once.
        by_values: whether a program that asks whether it is compiled has read a value.
        repeats: whether the call has changed nothing, so that nobody would notice if it was made once more.
        line: the line of the program, where that is known.
    """

    kind: Kind
    reason: str
    passes: bool = False
    by_values: bool = False
    repeats: bool = False
    line: Line | None = None


__all__ = ["Kind", "Refusal"]
