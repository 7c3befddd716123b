"""Lists instructions as ``dis`` does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType
from typing import Any, TextIO

from corsac import _core
from corsac.bytecode._builder import Positions
from corsac.bytecode._code import (
    MINOR,
    NAME_BITS,
    code_in,
    code_of,
    compiled,
    decoded,
    locals_of,
    opcodes,
)
from corsac.bytecode._fields import code_info


@dataclass(frozen=True)
class Instruction:
    """An instruction of a listing; the fields are those of :class:`dis.Instruction` on CPython 3.13.

    Attributes:
        opname, opcode: the opcode and its number.
        arg: the argument, or None.
        argval: the resolved argument: a constant, a name, a jump's target offset, or ``arg``.
        argrepr: ``argval`` as text.
        offset: its offset, in bytes.
        start_offset: the offset of its first ``EXTENDED_ARG``.
        starts_line: whether a source line starts here.
        line_number: the source line, or None.
        label: a number from 1 if it is a jump target, or None.
        positions: the span of source.
    """

    opname: str
    opcode: int
    arg: int | None
    argval: Any
    argrepr: str
    offset: int
    start_offset: int
    starts_line: bool
    line_number: int | None
    label: int | None
    positions: Positions

    @property
    def is_jump_target(self) -> bool:
        """Whether it is a jump target."""
        return self.label is not None


@dataclass
class Bytecode:
    """The instructions of a function, method, generator, code object or source text.

    Iterating yields :class:`Instruction` objects, ``EXTENDED_ARG`` included.

    Raises:
        TypeError: the object has no code.
        BytecodeError: its code is malformed.
    """

    source: Any
    codeobj: CodeType = field(init=False)
    _instructions: _core.Instructions = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.codeobj = code_of(self.source)
        self._instructions = decoded(self.codeobj)

    def __iter__(self) -> Iterator[Instruction]:
        code = self.codeobj
        local = locals_of(code)
        for row in self._instructions.rows(list(map(repr, code.co_consts)), code.co_names, local):
            name, number, arg, text, offset, start, target, starts_line, label, place = row
            value = _value(code, local, name, arg, text) if target is None else target
            yield Instruction(
                name,
                number,
                arg,
                value,
                text,
                offset,
                start,
                starts_line,
                place[0],
                label,
                Positions(*place),
            )

    @property
    def exception_entries(self) -> list[tuple[int, int, int, int, bool]]:
        """The exception table: start, end and target in bytes, depth, whether the offset is pushed."""
        return self._instructions.exception_entries()

    @property
    def blocks(self) -> list[tuple[int, int, list[int], list[int]]]:
        """The basic blocks: index of the first instruction, index after the last one, possible successors,
        handlers of its exceptions. Instructions are counted without ``EXTENDED_ARG``."""
        return self._instructions.blocks()

    @property
    def stack_size(self) -> int:
        """The stack size (``co_stacksize``) computed from the instructions."""
        return self._instructions.stack_size(self.codeobj.co_flags)

    def info(self) -> str:
        """The fields of the code object, as :func:`corsac.bytecode.code_info` shows them."""
        return str(code_info(self.codeobj))

    def dis(self) -> str:
        """The listing, as ``dis.Bytecode.dis`` returns it."""
        code = self.codeobj
        consts = list(map(repr, code.co_consts))
        return self._instructions.text(consts, code.co_names, locals_of(code))


def _value(code: CodeType, local: list[str], opname: str, arg: int | None, text: str) -> Any:
    """The value that an argument refers to."""
    if arg is None:
        return None
    kind = opcodes()[opname][1]
    if kind == "const":
        return code.co_consts[arg] if arg < len(code.co_consts) else None
    if kind in NAME_BITS:
        index = arg >> NAME_BITS[kind]
        return code.co_names[index] if index < len(code.co_names) else text
    if kind in ("local", "free"):
        return local[arg] if arg < len(local) else text
    if kind == "localpair":
        return tuple(local[index] for index in (arg >> 4, arg & 15) if index < len(local))
    return text if kind == "compare" else arg


def dis(x: Any, *, file: TextIO | None = None, depth: int | None = None) -> None:
    """Print the instructions of ``x`` in the format of ``dis.dis`` of the running Python.

    Args:
        x: a function, method, class, module, generator, code object, bytes or source text.
        file: the stream to print to (by default standard output).
        depth: maximum depth of nested functions; None for all of them.

    Raises:
        TypeError: ``x`` contains no code.
        BytecodeError: its code is malformed.
    """
    code = code_in(x)
    if isinstance(x, str):
        code = compiled(x, "<dis>")
    if code is not None:
        _print_code(code, sys.stdout if file is None else file, depth)
    elif isinstance(x, (bytes, bytearray)):
        instructions = _core.Instructions.decode(MINOR, bytes(x), b"", b"", 1)
        print(instructions.text([], [], []), end="", file=file)
    elif hasattr(x, "__dict__"):
        for name, value in sorted(vars(x).items()):
            if isinstance(
                value, (MethodType, FunctionType, CodeType, classmethod, staticmethod, type)
            ):
                print(f"Disassembly of {name}:", file=file)
                dis(value, file=file, depth=depth)
                print(file=file)
    else:
        raise TypeError(f"don't know how to disassemble {type(x).__name__} objects")


def _print_code(code: CodeType, file: TextIO, depth: int | None) -> None:
    print(Bytecode(code).dis(), end="", file=file)
    if depth is not None and depth <= 0:
        return
    for const in code.co_consts:
        if isinstance(const, CodeType):
            print(f"\nDisassembly of {const!r}:", file=file)
            _print_code(const, file, None if depth is None else depth - 1)
