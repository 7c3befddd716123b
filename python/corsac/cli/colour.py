"""Colours, on a terminal only."""

from __future__ import annotations

import os
import sys

RED, GREEN, YELLOW, DIM = "31", "32", "33", "2"


def coloured(text: str, colour: str) -> str:
    """``text`` in a colour, if standard output is a terminal and NO_COLOR is not set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"
