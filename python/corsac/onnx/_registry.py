"""The table of readers: from the ONNX operator and its version to the function that reads it."""

from __future__ import annotations

import bisect
import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any

#: A reader is called with the emitter and the inputs of the operator, None for those left out, and with its
#: attributes by name; it returns the output, or a tuple of outputs.
Reader = Callable[..., Any]

MICROSOFT = "com.microsoft"
_ROWS: dict[tuple[str, str], list[tuple[int, Reader]]] = {}
_ON_SIZES: dict[str, Reader] = {}


def reads(*operators: str, since: int = 1, domain: str = "") -> Callable[[Reader], Reader]:
    """Register a reader of operators, from the version ``since`` of the operator set."""

    def register(reader: Reader) -> Reader:
        for operator in operators:
            rows = _ROWS.setdefault((domain, operator), [])
            if any(since == own for own, _ in rows):
                raise AssertionError(f"{operator} of version {since} has a reader")
            bisect.insort(rows, (since, reader), key=lambda row: row[0])
        return reader

    return register


def reads_sizes(*operators: str) -> Callable[[Reader], Reader]:
    """Register a function that computes an operator on short tensors of sizes, as arrays of objects."""

    def register(reader: Reader) -> Reader:
        for operator in operators:
            _ON_SIZES[operator] = reader
        return reader

    return register


def reader_of(domain: str, operator: str, version: int) -> Reader | None:
    """The reader of an operator in this version of its operator set."""
    rows = _ROWS.get((domain, operator), [])
    fitting = [reader for since, reader in rows if since <= version]
    return fitting[-1] if fitting else None


def reader_on_sizes(domain: str, operator: str) -> Reader | None:
    return _ON_SIZES.get(operator) if domain == "" else None


def nearest(domain: str, operator: str) -> str | None:
    """The name of a known operator that resembles ``operator``."""
    names = {name: own for own, name in _ROWS}
    by_case = {name.lower(): name for name in names}
    found = difflib.get_close_matches(operator.lower(), by_case, 1, 0.75)
    return by_case[found[0]] if found else None


def readable_operators() -> dict[str, list[int]]:
    """The operators that :func:`corsac.from_onnx` reads, ``domain::name`` outside the default domain, with the versions
    from which each of their readers is. Others are read if ONNX defines them as functions of these."""
    from corsac.onnx import readers  # registers them

    assert readers
    rows = sorted(_ROWS.items())
    return {
        name if not domain else f"{domain}::{name}": [since for since, _ in own]
        for (domain, name), own in rows
    }


@functools.cache
def attributes_of(reader: Reader) -> frozenset[str] | None:
    """Names of the attributes that a reader takes; None if it takes all."""
    parameters = inspect.signature(reader).parameters.values()
    if any(own.kind is own.VAR_KEYWORD for own in parameters):
        return None
    return frozenset(own.name for own in parameters if own.kind is own.KEYWORD_ONLY)


@functools.cache
def signature_of(reader: Reader) -> inspect.Signature:
    return inspect.signature(reader)
