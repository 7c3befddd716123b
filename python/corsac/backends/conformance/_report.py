"""Reports of the conformance kit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from corsac.backends._contract import CONTRACT_VERSION


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a backend in one program.

    Attributes:
        program: the name of the program.
        kind: its subject.
        fault: the first difference from PyTorch; None if there is none.
        declined: reasons for which the backend declined graphs, which PyTorch ran.
        seconds: time, including PyTorch's calls.
    """

    program: str
    kind: str
    fault: str | None
    declined: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the program behaves as with PyTorch."""
        return self.fault is None

    @property
    def verdict(self) -> str:
        """``"fails"``, ``"passes"``, or ``"declined"``: passes, but PyTorch ran a graph of it."""
        if self.fault is not None:
            return "fails"
        return "declined" if self.declined else "passes"


@dataclass(frozen=True, slots=True)
class Report:
    """Report of :func:`corsac.backends.check`; as text, a table.

    Attributes:
        backend: the name of the backend.
        rows: one for each program.
    """

    backend: str
    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether there is no difference from PyTorch."""
        return all(row.ok for row in self.rows)

    @property
    def failures(self) -> tuple[Row, ...]:
        """The rows of failed programs."""
        return tuple(row for row in self.rows if not row.ok)

    def __str__(self) -> str:
        width = max((len(row.program) for row in self.rows), default=0)
        lines = [f"{self.backend}, contract {CONTRACT_VERSION}:"]
        for row in self.rows:
            why = row.fault or (row.declined[0].splitlines()[0] if row.declined else "")
            line = f"  {row.kind:<12} {row.program:<{width}} {row.verdict:<8} {why}"
            lines.append(line.rstrip())
        count = Counter(row.verdict for row in self.rows)
        lines.append(
            f"{len(self.rows)} programs: {count['passes']} pass, {count['declined']} pass with graphs "
            f"that PyTorch runs, {count['fails']} fail"
        )
        return "\n".join(lines)
