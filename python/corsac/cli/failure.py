"""What ends the program with one message."""

from __future__ import annotations


class Failure(Exception):
    """The request cannot be met; the text is for the person who made it.

    Raised ``from`` the exception that says why, where there is one.
    """


def first_line(error: BaseException, limit: int = 300) -> str:
    """``TypeError: what it says``, cut to the first paragraph and to ``limit`` characters."""
    said = str(error).strip().split("\n\n", 1)[0]
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."
