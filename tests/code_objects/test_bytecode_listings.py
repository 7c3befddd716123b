"""Listings and fields of code objects, against the standard ``dis``."""

from __future__ import annotations

import ast
import dis as standard
import inspect
import io
import os
import sys
import textwrap
import types
from pathlib import Path

import pytest

from corsac import bytecode
from corsac.bytecode import Bytecode, CodeBuilder, CodeFlag, assemble, code_info

#: Modules of every kind that are quick to compile.
MODULES = ("ast", "asyncio/tasks", "contextlib", "dataclasses", "decimal", "inspect", "typing")
LIBRARY = Path(os.__file__).parent


def walk(code: types.CodeType):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from walk(const)


def codes(paths):
    for path in paths:
        try:
            code = compile(path.read_bytes(), path.name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        yield from walk(code)


def printed(print_to, *args, **kwargs) -> str:
    out = io.StringIO()
    print_to(*args, file=out, **kwargs)
    return out.getvalue()


def check(code: types.CodeType) -> None:
    """Check that listings and copies of ``code`` agree with CPython."""
    assert printed(bytecode.dis, code, depth=0) == printed(standard.dis, code, depth=0)
    assert Bytecode(code).stack_size == code.co_stacksize, code
    # The checks accept it, and the copy has the same fields, tables and stack size.
    copy = assemble(CodeBuilder.from_code(code))
    assert copy == code
    for field in ("co_code", "co_exceptiontable", "co_linetable", "co_stacksize", "co_flags"):
        assert getattr(copy, field) == getattr(code, field), (code, field)
    assert list(copy.co_positions()) == list(code.co_positions())
    assert (copy.co_varnames, copy.co_cellvars) == (code.co_varnames, code.co_cellvars)


def test_modules_of_the_standard_library_are_read_and_written_as_they_are():
    count = 0
    for code in codes(LIBRARY / f"{name}.py" for name in MODULES):
        check(code)
        count += 1
    assert count > 800


def test_a_cell_may_have_the_name_of_a_free_variable():
    class Outer:
        def method(self):
            class Inner:
                x = __class__

                def method(self):
                    return __class__

            return Inner

    inner = [code for code in walk(Outer.method.__code__) if code.co_name == "Inner"]
    assert inner[0].co_cellvars == inner[0].co_freevars == ("__class__",)
    check(inner[0])


@pytest.mark.slow
def test_the_whole_standard_library_is_read_and_written_as_it_is():
    count = 0
    paths = (path for path in LIBRARY.rglob("*.py") if "site-packages" not in path.parts)
    for code in codes(sorted(paths)):
        check(code)
        count += 1
    assert count > 50_000


def generator(n):
    yield n


@pytest.mark.parametrize(
    "value",
    [
        generator,
        generator(1),
        textwrap.TextWrapper,
        textwrap.TextWrapper().wrap,
        textwrap,
        ast.NodeVisitor.__dict__["visit"],
        "a + b",
        "x = 1\nif x: pass",
        generator.__code__,
        textwrap.dedent.__code__.co_code,
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("depth", [None, 0, 1])
def test_the_text_is_that_of_dis(value, depth):
    assert printed(bytecode.dis, value, depth=depth) == printed(standard.dis, value, depth=depth)


def test_what_has_no_code_is_refused():
    with pytest.raises(TypeError, match="don't know how to disassemble int objects"):
        bytecode.dis(3)
    with pytest.raises(TypeError, match="int objects have no code"):
        Bytecode(3)
    with pytest.raises(bytecode.BytecodeError, match="offset 0: 255 is no opcode") as refused:
        bytecode.dis(b"\xff\0")
    assert refused.value.offset == 0 and isinstance(refused.value, ValueError)


def test_instructions_are_those_of_dis():
    for code in walk(inspect.signature.__code__):
        for own, known in zip(Bytecode(code), standard.get_instructions(code), strict=True):
            assert (own.opname, own.opcode, own.arg) == (known.opname, known.opcode, known.arg)
            assert (own.argrepr, own.offset) == (known.argrepr, known.offset)
            assert own.is_jump_target == known.is_jump_target
            assert tuple(own.positions) == tuple(known.positions)
            assert own.line_number == known.positions.lineno
            if own.opname != "KW_NAMES":  # dis does not show these in 3.11
                assert own.argval == known.argval, own
        assert Bytecode(code).dis() == standard.Bytecode(code).dis()


def test_opcodes_and_their_effects_are_those_of_the_running_python():
    table = bytecode._code.opcodes()
    for name, (number, kind, caches) in table.items():
        assert standard.opmap[name] == number
        assert (kind != "none") == (number >= standard.HAVE_ARGUMENT)
        known = standard._inline_cache_entries
        assert caches == (known[number] if isinstance(known, list) else known.get(name, 0))
        for jump in (False, True):
            for arg in (0, 1, 2, 3, 7, 200) if kind != "none" else (None,):
                if arg == 200 and name == "MAKE_FUNCTION":
                    continue
                effect = standard.stack_effect(number, arg, jump=jump)
                minor = sys.version_info[1]
                own = bytecode._code._core.opcode_effect(minor, name, arg or 0, jump)
                assert own == effect, (name, arg, jump)


def test_fields_are_listed_with_their_meaning():
    def f(a, /, b, *args, c=1, **kwargs):
        def inner():
            return b

        return inner, None

    info = code_info(f)
    assert info.fields["co_argcount"] == 2 and info.fields["co_cellvars"] == ("b",)
    # Every field of a code object, except derived ones.
    made = {"co_lnotab", "co_lines", "co_positions", "co_branches"}
    public = {name for name in dir(f.__code__) if name.startswith("co_")}
    assert set(info.fields) == public - made
    text = str(info)
    assert "co_posonlyargcount  1  # how many of them by position only" in text
    assert "(OPTIMIZED, NEWLOCALS, VARARGS, VARKEYWORDS" in text, text
    assert text.count("\n") > len(info.fields)
    assert info.to_dict()["flags"][:2] == ["OPTIMIZED", "NEWLOCALS"]
    assert info.to_dict()["co_code"] == f.__code__.co_code.hex()


def test_flags_are_named_as_in_dis():
    for flags in (0x3, 0x23, 0x83, 0x203, 0x1F, 0x40, 0x100):
        assert bytecode.flag_names(flags) == standard.pretty_flags(flags)
    assert bytecode.flag_names(0) == standard.pretty_flags(0)
    assert bytecode.flag_names(1 << 30 | 1) == "OPTIMIZED, 0x40000000"
    assert CodeFlag(generator.__code__.co_flags) & CodeFlag.GENERATOR
    for name in ("OPTIMIZED", "NEWLOCALS", "NESTED", "COROUTINE", "ASYNC_GENERATOR"):
        assert CodeFlag[name] == getattr(inspect, f"CO_{name}")


def test_blocks_cover_the_code():
    def f(x):
        while x:
            try:
                x = x.next
            except AttributeError:
                return None
        return x

    blocks = Bytecode(f).blocks
    assert [start for start, *_ in blocks][1:] == [end for _, end, *_ in blocks][:-1]
    assert all(next < len(blocks) for *_, following, _ in blocks for next in following)
    assert any(handlers for *_, handlers in blocks)
