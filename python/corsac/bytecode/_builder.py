"""Builds and edits code objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

from corsac import _core
from corsac.bytecode._code import MINOR, NAME_BITS, code_of, decoded, locals_of, opcodes
from corsac.bytecode._flags import CodeFlag


class Positions(NamedTuple):
    """A span of the source: lines from 1, columns in bytes from 0; None where unknown."""

    lineno: int | None = None
    end_lineno: int | None = None
    col_offset: int | None = None
    end_col_offset: int | None = None


class Label:
    """A jump target in a list of instructions; equal to itself only."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Label({self.name!r})"


NOWHERE = Positions()


@dataclass(slots=True)
class Op:
    """An instruction: its opcode, its argument (a number, a label for a jump, or None), and its source
    position."""

    opname: str
    arg: int | Label | None = None
    positions: Positions = NOWHERE


@dataclass(slots=True)
class Handler:
    """Handling of exceptions between two labels: the stack is cut to ``depth``, the offset is pushed if
    ``lasti`` is set, then the exception, and execution continues at ``target``."""

    start: Label
    end: Label
    target: Label
    depth: int
    lasti: bool = False


def _kind(opname: str) -> str:
    try:
        return opcodes()[opname][1]
    except KeyError:
        raise _core.BytecodeError(f"CPython 3.{MINOR} has no opcode {opname!r}") from None


@dataclass
class CodeBuilder:
    """A code object under construction: a list of instructions and labels, and the other fields.

    ``CodeBuilder(args=["x"])`` starts an empty function, ``CodeBuilder.from_code(f)`` a copy of one.
    ``items`` is an ordinary list; :meth:`emit` appends to it. Tables, caches, ``EXTENDED_ARG``, the
    directions of jumps and ``co_stacksize`` are made by :meth:`to_code`.

    Attributes:
        items: the instructions, with labels before jump targets.
        handlers: the exception table.
        name, qualname, filename, first_line: names and line for tracebacks.
        args: the parameters, in the order of their variables.
        posonly, kwonly: number of positional-only and of keyword-only parameters.
        flags: ``co_flags``.
        consts, names: ``co_consts`` and ``co_names``.
        variables: the local variables that are not parameters.
        cellvars, freevars: variables used by inner functions, and variables of outer functions.
    """

    items: list[Op | Label] = field(default_factory=list)
    handlers: list[Handler] = field(default_factory=list)
    name: str = "<built>"
    qualname: str | None = None
    filename: str = "<built>"
    first_line: int = 1
    args: list[str] = field(default_factory=list)
    posonly: int = 0
    kwonly: int = 0
    flags: int = CodeFlag.OPTIMIZED | CodeFlag.NEWLOCALS
    consts: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    cellvars: list[str] = field(default_factory=list)
    freevars: list[str] = field(default_factory=list)

    @classmethod
    def from_code(cls, x: Any) -> CodeBuilder:
        """A builder with the contents of the code object of ``x``; its ``to_code()`` makes an equal one.

        Raises:
            TypeError: ``x`` has no code.
            BytecodeError: its code is malformed.
        """
        code = code_of(x)
        instructions, places, handlers = decoded(code).parts()
        labels = [Label(f"L{number + 1}") for number in range(len(places))]
        at: dict[int, list[Label]] = {}
        for label, place in zip(labels, places, strict=True):
            at.setdefault(place, []).append(label)
        items: list[Op | Label] = []
        for index, (opname, arg, number, span) in enumerate(instructions):
            items += at.get(index, [])
            target = arg if number is None else labels[number]
            items.append(Op(opname, target, Positions(*span)))
        items += at.get(len(instructions), [])
        variable = bool(code.co_flags & CodeFlag.VARARGS) + bool(
            code.co_flags & CodeFlag.VARKEYWORDS
        )
        count = code.co_argcount + code.co_kwonlyargcount + variable
        return cls(
            items=items,
            handlers=[
                Handler(labels[start], labels[end], labels[target], depth, lasti)
                for start, end, target, depth, lasti in handlers
            ],
            name=code.co_name,
            qualname=code.co_qualname,
            filename=code.co_filename,
            first_line=code.co_firstlineno,
            args=list(code.co_varnames[:count]),
            posonly=code.co_posonlyargcount,
            kwonly=code.co_kwonlyargcount,
            flags=code.co_flags,
            consts=list(code.co_consts),
            names=list(code.co_names),
            variables=list(code.co_varnames[count:]),
            cellvars=list(code.co_cellvars),
            freevars=list(code.co_freevars),
        )

    # -- operands -------------------------------------------------------------------------------

    def const(self, value: Any) -> int:
        """The index of the constant ``value``, which is added if missing."""
        for index, known in enumerate(self.consts):
            if known is value or _same_constant(known, value):
                return index
        self.consts.append(value)
        return len(self.consts) - 1

    def local_names(self) -> list[str]:
        """The local variables, cells and free variables, in the order of their slots."""
        plain = [*self.args, *self.variables]
        cells = [name for name in self.cellvars if name not in plain]
        return [*plain, *cells, *self.freevars]

    def local(self, name: str) -> int:
        """The index of a variable, which is added as a local one if missing."""
        known = self.local_names()
        if name in known:
            return known.index(name)
        if self.cellvars or self.freevars:
            # Cells come after local variables: existing instructions would refer to shifted slots.
            raise _core.BytecodeError(f"no variable {name!r}: add it to variables first")
        self.variables.append(name)
        return len(known)

    def operand(self, opname: str, value: Any) -> int | Label | None:
        """The argument of ``opname`` for ``value``.

        Args:
            opname: the opcode.
            value: a label for jumps; the value itself for constants; the name of a variable, global or
                attribute, with ``"NULL + "`` or ``"NULL|self + "`` before it as ``dis`` shows it; the text
                that ``dis`` shows for operators; or the number itself.

        Raises:
            BytecodeError: it is none of these.
        """
        kind = _kind(opname)
        if kind == "const":
            return self.const(value)
        if value is None or isinstance(value, (int, Label)):
            return value
        word = str(value)
        if kind in ("local", "free"):
            return self.local(word)
        if kind == "localpair":
            first, second = (self.local(part.strip()) for part in word.split(","))
            return first << 4 | second
        flags = 0
        if kind in NAME_BITS:
            parts = [part.strip() for part in word.split("+")]
            flags = len(parts) > 1
            word = next((part for part in parts if not part.startswith("NULL")), "")
            if word not in self.names:
                self.names.append(word)
            number = _core.opcode_operand(MINOR, opname, self.names.index(word), flags)
        else:
            number = _core.opcode_operand(MINOR, opname, word, 0)
        if number is None:
            raise _core.BytecodeError(f"{opname} takes no {value!r}")
        return number

    def emit(self, opname: str, value: Any = None, *, line: int | None = None) -> Op:
        """Append an instruction; ``value`` is as for :meth:`operand`."""
        has_value = value is not None or _kind(opname) == "const"
        arg = self.operand(opname, value) if has_value else None
        op = Op(opname, arg, Positions(line, line))
        self.items.append(op)
        return op

    def place(self, label: Label) -> Label:
        """Append a label."""
        self.items.append(label)
        return label

    # -- results --------------------------------------------------------------------------------

    def _instructions(self) -> _core.Instructions:
        places: dict[Label, int] = {}
        ops: list[Op] = []
        for item in self.items:
            if isinstance(item, Label):
                if item in places:
                    raise _core.BytecodeError(f"label {item.name!r} is in two places")
                places[item] = len(ops)
            else:
                ops.append(item)
        numbers = {label: number for number, label in enumerate(places)}

        def number(label: Label, of: str) -> int:
            if label not in numbers:
                raise _core.BytecodeError(f"{of}: label {label.name!r} has no place")
            return numbers[label]

        rows = [
            (op.opname, None, number(op.arg, op.opname), tuple(op.positions))
            if isinstance(op.arg, Label)
            else (op.opname, op.arg, None, tuple(op.positions))
            for op in ops
        ]
        handlers = [
            (
                number(handler.start, "handler"),
                number(handler.end, "handler"),
                number(handler.target, "handler"),
                handler.depth,
                handler.lasti,
            )
            for handler in self.handlers
        ]
        instructions = _core.Instructions.from_parts(MINOR, rows, list(places.values()), handlers)
        return instructions.oriented()

    def to_code(self) -> CodeType:
        """Make the code object.

        Raises:
            BytecodeError: the interpreter could not run it: the stack is too low or holds something other
                than an instruction needs, a jump leads nowhere, an operand is out of range.
        """
        instructions = self._instructions()
        flags = int(self.flags)
        variable = bool(flags & CodeFlag.VARARGS) + bool(flags & CodeFlag.VARKEYWORDS)
        positional = len(self.args) - self.kwonly - variable
        if not (0 <= self.posonly <= positional and self.kwonly >= 0):
            raise _core.BytecodeError(
                f"{len(self.args)} parameters: {self.posonly} of {positional} are by position only"
            )
        local = self.local_names()
        plain = (*self.args, *self.variables)
        # A cell may have the same name as a free variable: ``__class__`` in classes within methods.
        if any(len(set(names)) != len(names) for names in (plain, self.cellvars, self.freevars)):
            raise _core.BytecodeError("a variable is listed twice")
        consts = tuple(self.consts)
        stack_size = instructions.verify(
            flags, len(self.args), consts, self.names, local, len(self.freevars)
        )
        code, exception_table, line_table = instructions.assemble(self.first_line)
        made = CodeType(
            positional,
            self.posonly,
            self.kwonly,
            len(plain),
            stack_size,
            flags,
            code,
            consts,
            tuple(self.names),
            plain,
            self.filename,
            self.name,
            self.qualname or self.name,
            self.first_line,
            line_table,
            exception_table,
            tuple(self.freevars),
            tuple(self.cellvars),
        )
        if locals_of(made) != local:
            raise _core.BytecodeError("the interpreter orders the variables in another way")
        return made

    def to_function(
        self,
        globals: dict[str, Any] | None = None,
        *,
        defaults: tuple[Any, ...] | None = None,
        kwdefaults: dict[str, Any] | None = None,
        closure: tuple[CellType, ...] | None = None,
    ) -> FunctionType:
        """Make a function of the code.

        Args:
            globals: its global variables (by default only the built-in ones).
            defaults, kwdefaults: values of optional parameters.
            closure: a cell for each free variable.

        Raises:
            BytecodeError: as :meth:`to_code`; also for code of comprehensions and generic functions, which
                trusts its arguments and is only called by its surrounding code.
            ValueError: ``closure`` has another number of cells.
        """
        if any(name.startswith(".") for name in self.args):
            raise _core.BytecodeError(f"{self.name} is called by the code around it only")
        function = FunctionType(
            self.to_code(),
            {"__builtins__": __builtins__} if globals is None else globals,
            self.name,
            defaults,
            closure,
        )
        function.__kwdefaults__ = kwdefaults
        return function


def _same_constant(known: Any, value: Any) -> bool:
    """Whether one constant can represent both: 1, 1.0 and True are three."""
    if type(known) is not type(value):
        return False
    if isinstance(known, (tuple, frozenset)):
        return False
    if isinstance(known, (float, complex)):
        return repr(known) == repr(value)
    return isinstance(known, (int, str, bytes)) and known == value
