"""Tables as text."""

from __future__ import annotations

from collections.abc import Container, Sequence


def table(cells: Sequence[Sequence[str]], left: Container[int]) -> list[str]:
    """Lines of aligned columns; those in ``left`` (numbered from 0) are left-aligned."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
