"""What ends the program with one message."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class Failure(Exception):
    """The request cannot be met; the text is for the person who made it.

    Raised ``from`` the exception that says why, where there is one.
    """


def check_suffix(path: str, suffixes: Sequence[str]) -> None:
    """That the file ``--out`` has a suffix that says what it is."""
    if Path(path).suffix.lower() not in suffixes:
        known = " or ".join(f"*{suffix}" for suffix in suffixes)
        raise Failure(f"--out {path}: expected a file {known}")


def first_line(error: BaseException, limit: int = 300) -> str:
    """``TypeError: what it says``, cut to the first paragraph and to ``limit`` characters."""
    said = str(error).strip().split("\n\n", 1)[0]
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."
