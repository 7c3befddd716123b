"""``co_flags`` by name."""

from __future__ import annotations

import enum


class CodeFlag(enum.IntFlag, boundary=enum.KEEP):
    """A bit of ``co_flags``; :func:`flag_names` writes them as ``dis`` does."""

    OPTIMIZED = 0x1
    NEWLOCALS = 0x2
    VARARGS = 0x4
    VARKEYWORDS = 0x8
    NESTED = 0x10
    GENERATOR = 0x20
    NOFREE = 0x40
    COROUTINE = 0x80
    ITERABLE_COROUTINE = 0x100
    ASYNC_GENERATOR = 0x200
    FUTURE_DIVISION = 0x20000
    FUTURE_ABSOLUTE_IMPORT = 0x40000
    FUTURE_WITH_STATEMENT = 0x80000
    FUTURE_PRINT_FUNCTION = 0x100000
    FUTURE_UNICODE_LITERALS = 0x200000
    FUTURE_BARRY_AS_BDFL = 0x400000
    FUTURE_GENERATOR_STOP = 0x800000
    FUTURE_ANNOTATIONS = 0x1000000
    NO_MONITORING_EVENTS = 0x2000000
    HAS_DOCSTRING = 0x4000000
    METHOD = 0x8000000


def flag_names(flags: int) -> str:
    """The names of the bits of ``flags``, lowest first; bits without a name as hexadecimal numbers."""
    bits = (1 << bit for bit in range(flags.bit_length()) if flags >> bit & 1)
    names = [CodeFlag(bit).name or hex(bit) for bit in bits]
    return ", ".join(names) or "0x0"
