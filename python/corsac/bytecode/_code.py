"""Finds and decodes code objects."""

from __future__ import annotations

import functools
import sys
from types import CodeType
from typing import Any

from corsac import _core

#: Minor version of the running CPython, to which all opcodes refer.
MINOR = sys.version_info[1]

#: Attributes in which functions, generators and the like store their code.
_PLACES = ("__code__", "gi_code", "ag_code", "cr_code")


def code_in(value: Any) -> CodeType | None:
    """The code object of a function, method, generator or coroutine; ``value`` if it is one itself."""
    value = getattr(value, "__func__", value)
    for place in _PLACES:
        if hasattr(value, place):
            value = getattr(value, place)
            break
    return value if isinstance(value, CodeType) else None


def code_of(value: Any) -> CodeType:
    """The code object of ``value``, which may also be source code.

    Raises:
        TypeError: it has none.
    """
    found = compiled(value, "<disassembly>") if isinstance(value, str) else code_in(value)
    if found is None:
        raise TypeError(f"{type(value).__name__} objects have no code")
    return found


def compiled(source: str, filename: str) -> CodeType:
    """The code of an expression or, failing that, of a module."""
    try:
        return compile(source, filename, "eval")
    except SyntaxError:
        return compile(source, filename, "exec")


def locals_of(code: CodeType) -> list[str]:
    """The local variables, cells and free variables in the order of their slots."""
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    return [*code.co_varnames, *cells, *code.co_freevars]


def parameter_count(code: CodeType) -> int:
    """Number of local variables that are parameters, ``*args`` and ``**kwargs`` included."""
    variable = bool(code.co_flags & 0x4) + bool(code.co_flags & 0x8)
    return code.co_argcount + code.co_kwonlyargcount + variable


def decoded(code: CodeType) -> _core.Instructions:
    """The instructions of ``code``.

    Raises:
        BytecodeError: the bytes are not code of the running CPython.
    """
    return _core.Instructions.decode(
        MINOR, code.co_code, code.co_exceptiontable, code.co_linetable, code.co_firstlineno
    )


@functools.cache
def opcodes() -> dict[str, tuple[int, str, int]]:
    """Opcodes by name: number, kind of argument, number of cache units."""
    table = _core.opcode_table(MINOR)
    return {name: (number, kind, caches) for number, name, kind, caches in table}


#: Opcodes whose argument contains the index of a name, and the number of bits below it.
NAME_BITS = {"name": 0, "global": 1, "attribute": 1, "supername": 2}
