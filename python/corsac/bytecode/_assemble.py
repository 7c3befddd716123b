"""Assembles labelled text into code objects."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from types import CodeType
from typing import Any

from corsac import _core
from corsac.bytecode._builder import CodeBuilder, Handler, Label, Op
from corsac.bytecode._code import opcodes

_LABEL = re.compile(r"([A-Za-z_]\w*):$")
_INSTRUCTION = re.compile(r"([A-Z][A-Z0-9_]*)(?:\s+(.+))?$")
_LINE = re.compile(r"\.line\s+(\d+)$")
_HANDLER = re.compile(r"(\w+) to (\w+) -> (\w+) \[(\d+)\]( lasti)?$")


def assemble(source: str | CodeBuilder | Iterable[Op | Label], **fields: Any) -> CodeType:
    """Assemble labelled text, instructions and labels, or a builder into a code object.

    A line of text is a label, an instruction, ``.line N`` for the source line of the following ones, or,
    after the line ``ExceptionTable:``, an entry of that table; ``#`` starts a comment::

        assemble('''
            RESUME 0
            LOAD_FAST x
        again:
            LOAD_CONST 1
            BINARY_OP +
            RETURN_VALUE
        ''', args=["x"])

    Args:
        source: the text. Constants are written as literals of Python, names and variables by name,
            operators as ``dis`` shows them, jumps with the name of a label, all others as numbers.
        fields: those of :class:`CodeBuilder`.

    Raises:
        BytecodeError: a line cannot be parsed, or as :meth:`CodeBuilder.to_code`.
    """
    if isinstance(source, CodeBuilder):
        return source.to_code()
    builder = CodeBuilder(**fields)
    if isinstance(source, str):
        _Reader(builder).read(source)
    else:
        builder.items += source
    return builder.to_code()


class _Reader:
    """Reads labelled text into a builder."""

    def __init__(self, builder: CodeBuilder) -> None:
        self._builder = builder
        self._labels: dict[str, Label] = {}
        self._line: int | None = None
        self._in_table = False

    def read(self, text: str) -> None:
        for number, line in enumerate(text.splitlines(), 1):
            try:
                self._read_line(line.strip())
            except _core.BytecodeError as error:
                raise _core.BytecodeError(f"line {number}: {error}") from None

    def _label(self, name: str) -> Label:
        return self._labels.setdefault(name, Label(name))

    def _read_line(self, line: str) -> None:
        if not line or line.startswith("#"):
            return
        if line == "ExceptionTable:":
            self._in_table = True
        elif self._in_table:
            found = _HANDLER.match(_without_comment(line))
            if found is None:
                raise _core.BytecodeError(f"expected A to B -> C [depth], got {line!r}")
            start, end, target = map(self._label, found.group(1, 2, 3))
            lasti = found[5] is not None
            self._builder.handlers.append(Handler(start, end, target, int(found[4]), lasti))
        elif found := _LABEL.match(_without_comment(line)):
            self._builder.place(self._label(found[1]))
        elif found := _LINE.match(_without_comment(line)):
            self._line = int(found[1])
        elif found := _INSTRUCTION.match(line):
            self._instruction(found[1], found[2] or "")
        else:
            raise _core.BytecodeError(f"expected an instruction or a label, got {line!r}")

    def _instruction(self, opname: str, operand: str) -> None:
        kind = opcodes().get(opname, (0, "", 0))[1]
        value: Any
        if kind == "const":
            try:
                value = ast.literal_eval(operand)
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
                raise _core.BytecodeError(f"{opname}: {operand!r} is no literal") from error
        else:
            operand = _without_comment(operand)
            if kind.startswith("jump") or kind == "origin":
                value = self._label(operand.removeprefix("to ").removeprefix("from "))
            elif operand.isdecimal():
                value = int(operand)
            else:
                value = operand or None
        self._builder.emit(opname, value, line=self._line)


def _without_comment(text: str) -> str:
    return text.split("#", 1)[0].strip()
