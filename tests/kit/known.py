"""Intended differences from torch.fx, each with a row in ``docs/compatibility.md``."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPATIBILITY = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"

#: The row about writes that torch.fx's dead-code elimination drops.
WRITES_STAY = (
    "`eliminate_dead_code` and writes whose result nobody uses: `m.add_(1)`, `m.masked_fill_(…)`, "
    "`torch.add(x, 1, out=m)`, `F.relu(m, inplace=True)`, a batch norm in training"
)


@dataclass(frozen=True)
class KnownDifference:
    """An observation that is meant to differ, and the row with the reason."""

    label: str
    reason: str
    when: Callable[..., bool]

    def applies(self, parameters: dict[str, Any]) -> bool:
        """Whether the difference is expected for these parameters of the program."""
        return self.when(**parameters)


def known_difference(
    *labels: str, reason: str, when: Callable[..., bool] = lambda **_: True
) -> Callable[[Any], Any]:
    """Declare that observations of a program differ on purpose.

    ``reason`` is the title of the row in ``docs/compatibility.md``. A declared difference that no longer
    exists fails the test, so that the list stays true. ``when`` limits the declaration to some parameters of
    a parametrised program.
    """

    def declare(program: Any) -> Any:
        program.known_differences = [
            *getattr(program, "known_differences", []),
            *(KnownDifference(label, reason, when) for label in labels),
        ]
        return program

    return declare


@functools.cache
def documented_rows() -> frozenset[str]:
    """The titles of the rows of the compatibility page."""
    if not COMPATIBILITY.exists():
        return frozenset()
    rows = (line for line in COMPATIBILITY.read_text().splitlines() if line.startswith("|"))
    return frozenset(row.strip("|").split("|")[0].strip() for row in rows)


def row(beginning: str) -> Callable[[Any], Any]:
    """Declare the row of the compatibility page that a test shows, by the beginning of its title.

    ``tests/compatibility/test_every_row.py`` reads these marks and fails if a row has no test.
    """
    titles = [title for title in documented_rows() if title.startswith(beginning)]
    assert len(titles) == 1, f"{beginning!r} begins {len(titles)} rows of {COMPATIBILITY.name}"
    return lambda test: test
