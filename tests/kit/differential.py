"""Run a program under both implementations and report every observation that differs."""

import difflib
import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .implementations import REFERENCE, SELF_CHECK, SUBJECT, Implementation
from .known import KnownDifference, documented_rows
from .observe import CodeSeen, Raised, TensorSeen, attempt
from .recorder import Recorder

Program = Callable[..., None]


@dataclass
class Mismatch:
    """One observation on which the implementations disagree."""

    label: str
    path: str
    reference: Any
    subject: Any

    def __str__(self) -> str:
        head = f"{self.label}{self.path} differs"
        both = (self.reference, self.subject)
        if all(isinstance(text, str) for text in both) and any("\n" in text for text in both):
            diff = difflib.unified_diff(
                self.reference.splitlines(),
                self.subject.splitlines(),
                REFERENCE.name,
                SUBJECT.name,
                lineterm="",
            )
            return "\n".join([head, *diff])
        return f"{head}\n  {REFERENCE.name}: {self.reference!r}\n  subject: {self.subject!r}"


def _same_exception(reference: Raised, subject: Raised) -> bool:
    """Whether code that catches the reference's exception also catches the subject's."""
    if issubclass(subject.kind, reference.kind):
        return True
    if "<locals>" in reference.kind.__qualname__:  # defined anew by each run of the program
        return reference.kind.__qualname__ == subject.kind.__qualname__
    own = getattr(SUBJECT.fx.proxy, reference.kind.__name__, None)
    return own is not None and issubclass(subject.kind, own)


def _is_improvement(reference: CodeSeen | Raised, subject: Any) -> bool:
    """Where the reference's code is not valid Python, any valid code is better."""
    was_python = isinstance(reference, CodeSeen) and reference.is_python
    return isinstance(subject, CodeSeen) and subject.is_python and not was_python


def _same_tensor(reference: TensorSeen, subject: TensorSeen, tolerance: Any) -> bool:
    rtol, atol = tolerance or (0.0, 0.0)
    try:
        torch.testing.assert_close(
            subject.value, reference.value, rtol=rtol, atol=atol, equal_nan=True
        )
    except AssertionError:
        return False
    return True


def differences(
    label: str, reference: Any, subject: Any, tolerance: Any = None, path: str = ""
) -> list[Mismatch]:
    """The places at which two observations differ, each with its path."""
    here = [Mismatch(label, path, reference, subject)]
    if isinstance(reference, Raised) and isinstance(subject, Raised):
        return [] if _same_exception(reference, subject) else here
    if isinstance(reference, TensorSeen) and isinstance(subject, TensorSeen):
        return [] if _same_tensor(reference, subject, tolerance) else here
    if isinstance(reference, CodeSeen | Raised) and _is_improvement(reference, subject):
        return []
    if type(reference) is not type(subject):
        return here
    if isinstance(reference, CodeSeen):
        reference, subject = vars(reference), vars(subject)
    if isinstance(reference, dict):
        if list(reference) != list(subject):
            return here
        pairs = [(f"{path}.{key}", reference[key], subject[key]) for key in reference]
    elif isinstance(reference, list | tuple):
        if len(reference) != len(subject):
            return here
        both = zip(reference, subject, strict=True)
        pairs = [(f"{path}[{index}]", r, s) for index, (r, s) in enumerate(both)]
    else:
        return [] if reference == subject else here
    return [d for where, r, s in pairs for d in differences(label, r, s, tolerance, where)]


def compare(reference: Recorder, subject: Recorder) -> list[Mismatch]:
    """Every difference between two recordings."""
    if list(reference.seen) != list(subject.seen):
        return [Mismatch("labels", "", list(reference.seen), list(subject.seen))]
    return [
        mismatch
        for label in reference.seen
        for mismatch in differences(
            label, reference.seen[label], subject.seen[label], reference.tolerances.get(label)
        )
    ]


def record(program: Program, implementation: Implementation, /, **parameters: Any) -> Recorder:
    """Run a program under one implementation, from a fixed seed."""
    recorder = Recorder(implementation)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program(implementation.fx, recorder, **parameters)
    return recorder


def assert_same(
    program: Program, /, declared: Sequence[KnownDifference] = (), **parameters: Any
) -> None:
    """Run a program under both implementations; fail with every undeclared difference."""
    reference = record(program, REFERENCE, **parameters)
    subject = record(program, SUBJECT, **parameters)
    known = {d.label: d for d in declared if d.applies(parameters)}
    mismatches = compare(reference, subject)
    unexpected = [m for m in mismatches if m.label not in known]
    assert not unexpected, "\n\n".join(str(m) for m in unexpected[:6])
    if SELF_CHECK:
        return
    for difference in known.values():
        assert difference.reason in documented_rows(), (
            f"docs/compatibility.md has no row {difference.reason!r}"
        )
    stale = set(known) - {m.label for m in mismatches}
    assert not stale, f"declared as different, but the same: {sorted(stale)}"
    _assert_text_round_trips(subject)


def _assert_text_round_trips(subject: Recorder) -> None:
    """Printing, parsing and printing a recorded graph gives the same text again.

    Values without a text form, such as instances of a test's class, are errors when read; a program whose
    graphs have none of them asserts more by ``rec.reads_back``.
    """
    for label, text in subject.graphs:
        again = attempt(SUBJECT.fx.Graph.parse, text)
        if isinstance(again, Raised) and not subject.reads_back:
            continue
        assert str(again) == text, f"{label}: print, parse, print is not the identity\n{text}"


def differential(program: Program) -> Callable[..., None]:
    """Turn a program into a test. Parameters after ``fx`` and ``rec`` come from pytest.

    :func:`known_difference` may be above or below it.
    """

    @functools.wraps(program)
    def test(**parameters: Any) -> None:
        assert_same(program, test.known_differences, **parameters)

    given = list(inspect.signature(program).parameters.values())[2:]
    test.__signature__ = inspect.Signature(given)
    test.known_differences = getattr(program, "known_differences", [])
    return test
