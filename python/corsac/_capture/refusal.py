"""Refusals of programs that are not captured, with the reason and the fallback."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from corsac._messages.lines import Line
from corsac.fx.proxy import TraceError


class Kind(Enum):
    """Fallback for a program that is not captured."""

    #: Dynamo makes graphs of parts of it: its control flow depends on values, or it writes to existing tensors.
    DYNAMO = "dynamo"
    #: PyTorch runs it as it is: it does something unknown, or something that Dynamo may get wrong.
    HOST = "host"
    #: The compiled training path runs it: autograd records it.
    TRAINS = "trains"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a program is not captured.

    Attributes:
        kind: the fallback that runs it.
        reason: the reason, as text.
        passes: whether the next call may be captured: some state is set up once.
        by_values: whether a program that asks whether it is compiled has read a value.
        repeats: whether the call has changed nothing, so that it can be repeated.
        line: the line of the program, if known.
    """

    kind: Kind
    reason: str
    passes: bool = False
    by_values: bool = False
    repeats: bool = False
    line: Line | None = None


class UnknownObject(TraceError):
    """A program takes or returns an object that Dynamo would not handle completely."""


def who_runs(error: TraceError) -> Kind:
    """The fallback for a program that cannot be captured."""
    return Kind.HOST if isinstance(error, UnknownObject) else Kind.DYNAMO


__all__ = ["Kind", "Refusal", "UnknownObject", "who_runs"]
