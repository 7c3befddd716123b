"""Why a program is not captured, and who runs it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from corsac._lines import Line
from corsac.fx.proxy import TraceError


class Kind(Enum):
    """Who runs a program that is not captured."""

    #: Values decide, or it writes to tensors that were there before: Dynamo makes graphs of parts of it.
    DYNAMO = "dynamo"
    #: Nothing is known of something that it does, or Dynamo may do something else: PyTorch runs it as it is.
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


class UnknownObject(TraceError):
    """A program takes or gives an object that is more than what Dynamo would see of it."""


def who_runs(error: TraceError) -> Kind:
    """Who runs a program that cannot be captured."""
    return Kind.HOST if isinstance(error, UnknownObject) else Kind.DYNAMO


__all__ = ["Kind", "Refusal", "UnknownObject", "who_runs"]
