"""Every field of a code object, with its meaning."""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType
from typing import Any

from corsac.bytecode._code import code_of
from corsac.bytecode._flags import flag_names

#: Meanings of the fields of code objects, in display order.
MEANINGS = {
    "co_name": "the name of the function, class or module",
    "co_qualname": "the same with what it is defined in",
    "co_filename": "the file it was compiled from",
    "co_firstlineno": "its first line there",
    "co_argcount": "parameters that may be given by position, without *args",
    "co_posonlyargcount": "how many of them by position only",
    "co_kwonlyargcount": "parameters that are given by keyword only, without **kwargs",
    "co_nlocals": "local variables, parameters among them",
    "co_stacksize": "how high the stack can be",
    "co_flags": "what kind of code it is",
    "co_consts": "what LOAD_CONST loads",
    "co_names": "names of globals, attributes and imports",
    "co_varnames": "names of local variables, parameters first",
    "co_cellvars": "local variables that functions inside use",
    "co_freevars": "variables of the functions around it",
    "co_code": "the instructions: opcode and argument, a byte each",
    "co_exceptiontable": "where exceptions are handled",
    "co_linetable": "where in the source each instruction comes from",
}


@dataclass(frozen=True)
class CodeInfo:
    """The fields of a code object; printed as one line each, with the meaning."""

    code: CodeType

    @property
    def fields(self) -> dict[str, Any]:
        """Values by name of the field."""
        return {name: getattr(self.code, name) for name in MEANINGS}

    def to_dict(self) -> dict[str, Any]:
        """The fields as data that JSON can hold: bytes as hexadecimal text, constants as their
        ``repr``, flags by name."""
        shown = {name: _plain(name, value) for name, value in self.fields.items()}
        return {**shown, "flags": flag_names(self.code.co_flags).split(", ")}

    def __str__(self) -> str:
        width = max(map(len, MEANINGS))
        lines = []
        for name, value in self.fields.items():
            lines.append(f"{name:{width}}  {_shown(name, value)}  # {MEANINGS[name]}")
            if isinstance(value, tuple):
                lines += [
                    f"{'':{width}}  {index:4}: {_item(name, item)}"
                    for index, item in enumerate(value)
                ]
        return "\n".join(lines)


def code_info(x: Any) -> CodeInfo:
    """The fields of the code object of a function, method, generator, code object or source text.

    Raises:
        TypeError: ``x`` has no code.
    """
    return CodeInfo(code_of(x))


def _item(field: str, item: Any) -> str:
    return repr(item) if field == "co_consts" else item


def _shown(field: str, value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, tuple):
        return str(len(value))
    return f"{value:#x} ({flag_names(value)})" if field == "co_flags" else str(value)


def _plain(field: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return [_item(field, item) for item in value] if isinstance(value, tuple) else value
