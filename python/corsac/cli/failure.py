"""Errors that end the program with one message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class Failure(Exception):
    """The request cannot be met; the message is shown to the user.

    Raised ``from`` the exception that is the cause, if there is one.
    """


def check_file(path: str, suffixes: Sequence[str], option: str = "--out") -> None:
    """Check that the file of an option has one of the suffixes, and that its folder exists."""
    if Path(path).suffix.lower() not in suffixes:
        known = " or ".join(f"*{suffix}" for suffix in suffixes)
        raise Failure(f"{option} {path}: expected a file {known}")
    if not Path(path).parent.is_dir():
        raise Failure(f"{option} {path}: there is no folder {Path(path).parent}")


def kind(value: object) -> str:
    """The type of a value with its article: ``an int``."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def file_error(error: OSError) -> str:
    """The reason why a file cannot be read or written, without the system's error number."""
    parent = Path(error.filename).parent if isinstance(error.filename, str) else None
    if isinstance(error, FileNotFoundError):
        is_folder = parent is not None and not parent.exists()
        return f"there is no folder {parent}" if is_folder else "no such file"
    return (error.strerror or str(error)).lower()


@contextmanager
def written(place: str) -> Iterator[None]:
    """Context in which a file is written: an error of the system names ``place``, an option with its file."""
    try:
        yield
    except OSError as error:
        raise Failure(f"{place}: {file_error(error)}") from error


def first_line(error: BaseException, limit: int = 300) -> str:
    """The type and the message of an error, cut to the first paragraph and to ``limit`` characters. Types of corsac are
    left out."""
    said = str(error).strip().split("\n\n", 1)[0]
    name = type(error).__name__
    if said and type(error).__module__.partition(".")[0] == "corsac":
        text = said
    else:
        text = f"{name}: {said}" if said else name
    return text if len(text) <= limit else text[: limit - 3] + "..."
