"""The independent package ``bytecode`` of PyPI reads code in the same way."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

import corsac.fx
from corsac.bytecode import Bytecode, CodeBuilder, Label, Op

other = pytest.importorskip("bytecode")


def codes(code: types.CodeType):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes(const)


def sources():
    for path in sorted(Path(corsac.fx.__file__).parent.glob("*.py")):
        yield from codes(compile(path.read_bytes(), path.name, "exec", dont_inherit=True))


def test_instructions_and_their_places_are_the_same():
    count = 0
    for code in sources():
        known = [it for it in other.ConcreteBytecode.from_code(code) if it.name != "CACHE"]
        items = [it for it in CodeBuilder.from_code(code).items if isinstance(it, Op)]
        assert [it.opname for it in items] == [it.name for it in known]
        for own, its in zip(items, known, strict=True):
            if not isinstance(own.arg, Label):
                assert own.arg == (its.arg if its.require_arg() else None), own
            assert own.positions == (
                its.location.lineno,
                its.location.end_lineno,
                its.location.col_offset,
                its.location.end_col_offset,
            )
        count += len(items)
    assert count > 20_000


def test_exception_tables_are_the_same():
    count = 0
    for code in sources():
        table = other.ConcreteBytecode.from_code(code).exception_table
        its = [
            (it.start_offset, it.stop_offset, it.target, it.stack_depth, it.push_lasti)
            for it in table
        ]
        own = [
            (start // 2, end // 2, target // 2, depth, lasti)
            for start, end, target, depth, lasti in Bytecode(code).exception_entries
        ]
        # Its end is the last code unit, or the one after, depending on its version.
        assert [entry[2:] for entry in own] == [entry[2:] for entry in its]
        assert [entry[0] for entry in own] == [entry[0] for entry in its]
        assert all(entry[1] - one[1] in (0, 1) for entry, one in zip(own, its, strict=True))
        count += len(own)
    assert count > 100


def test_what_it_writes_is_read_and_accepted():
    count = 0
    for code in sources():
        written = other.Bytecode.from_code(code).to_code()
        copy = CodeBuilder.from_code(written).to_code()
        assert copy.co_code == written.co_code
        assert copy.co_exceptiontable == written.co_exceptiontable
        assert list(copy.co_positions()) == list(written.co_positions())
        count += 1
    assert count > 500
