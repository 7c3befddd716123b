"""Values of arguments of the command line: each function takes the text, and is the ``type`` of an argument."""

from __future__ import annotations

import argparse
import re


def whole(text: str) -> int:
    """An integer."""
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from error


def positive(text: str) -> int:
    """An integer of at least 1."""
    number = whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def not_negative(text: str) -> int:
    """An integer of at least 0."""
    number = whole(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is not at least 0")
    return number


def above_zero(text: str) -> float:
    """A number above 0."""
    number = _number(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


#: Factors by prefix: decimal ones as in reports, and binary ones.
_PREFIXES = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


def size_bytes(text: str) -> int:
    """A number of bytes above 0: ``512M`` and ``16G`` are powers of 1000, ``16Gi`` is one of 1024."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or (found[3] and not found[2]):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of bytes, such as 512M, 16G (10^9 bytes each) or 16Gi (2^30)"
        )
    size = round(float(found[1]) * (1024 if found[3] else 1000) ** _PREFIXES[found[2].lower()])
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return size


def per_second(text: str) -> int:
    """A number of operations a second above 0: ``1T`` is 10^12."""
    try:
        return size_bytes(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of operations a second, such as 500G or 1T"
        ) from error


_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def seconds(text: str) -> float:
    """A time of at least 0: ``10us``, ``0.5ms``."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(s|ms|us|µs|ns)", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time, such as 10us, 0.5ms or 1s")
    return float(found[1]) * _SECONDS[found[2]]


def numbers(text: str) -> list[int]:
    """Whole numbers of at least 1: ``8``, ``6,12``, or ``8..64`` for 8, 16, 32 and 64."""
    first, dots, last = text.partition("..")
    if not dots:
        return [positive(own) for own in text.split(",")]
    lowest, highest = positive(first), positive(last)
    if lowest > highest:
        raise argparse.ArgumentTypeError(f"{text} has none: {lowest} is above {highest}")
    found = [lowest]
    while found[-1] * 2 <= highest:
        found.append(found[-1] * 2)
    return found


def tolerance(text: str) -> float:
    """A number of at least 0."""
    number = _number(text)
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"{text} is not at least 0")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from error
