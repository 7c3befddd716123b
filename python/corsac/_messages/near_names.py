"""The names that a wrong one may stand for, for messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


def did_you_mean(
    name: str,
    known: Iterable[str],
    *,
    after: str = ": ",
    cutoff: float = 0.6,
    shown: Mapping[str, str] | None = None,
) -> str:
    """``": did you mean a or b?"``, with the known names that are most like ``name``; empty if none is like it.

    Args:
        name: the wrong name.
        known: the names that there are.
        after: what the text begins with.
        cutoff: how alike names are, from 0 to 1.
        shown: the texts that stand for names.
    """
    near = difflib.get_close_matches(name, [*known], n=3, cutoff=cutoff)
    near = [(shown or {}).get(own, own) for own in near]
    return f"{after}did you mean {' or '.join(near)}?" if near else ""
