"""Code objects built by hand: they run, or are rejected before they are made."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

import corsac.fx._symbolic_trace as symbolic_trace
from corsac.bytecode import (
    Bytecode,
    BytecodeError,
    CodeBuilder,
    CodeFlag,
    Handler,
    Label,
    Op,
    assemble,
    patch_function,
)

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="the instructions are those of CPython 3.11"
)

COUNT = """
    RESUME 0
    LOAD_CONST 0
    STORE_FAST total
again:                          # a loop
    LOAD_FAST n
    POP_JUMP_FORWARD_IF_FALSE done
    .line 7
    LOAD_FAST total
    LOAD_FAST n
    BINARY_OP +=
    STORE_FAST total
    LOAD_FAST n
    LOAD_CONST 1
    BINARY_OP -
    STORE_FAST n
    JUMP_FORWARD again          # turned round
done:
    LOAD_FAST total
    RETURN_VALUE
"""


def function(text: str, **fields) -> types.FunctionType:
    return types.FunctionType(assemble(text, **fields), globals())


def test_text_becomes_a_function():
    count = function(COUNT, args=["n"], name="count")
    assert count(10) == 55 and count(0) == 0
    assert (count.__name__, count.__code__.co_varnames) == ("count", ("n", "total"))
    assert count.__code__.co_stacksize == 2
    with pytest.raises(TypeError, match=r"count\(\) missing 1 required positional argument: 'n'"):
        count()
    with pytest.raises(TypeError) as raised:
        count("text")
    assert raised.value.__traceback__.tb_next.tb_lineno == 7


def test_exceptions_are_handled_by_the_table():
    text = """
        RESUME 0
    L1:
        LOAD_GLOBAL NULL + int
        LOAD_FAST text
        PRECALL 1
        CALL 1
    L2:
        RETURN_VALUE
    L3:
        PUSH_EXC_INFO
        LOAD_GLOBAL ValueError
        CHECK_EXC_MATCH
        POP_JUMP_FORWARD_IF_FALSE L4
        POP_TOP
    P:
        POP_EXCEPT
        LOAD_CONST 'none'
        RETURN_VALUE
    L4:
        RERAISE 0
    L5:
        COPY 3
        POP_EXCEPT
        RERAISE 1
    ExceptionTable:
        L1 to L2 -> L3 [0]
        L3 to P -> L5 [1] lasti
        L4 to L5 -> L5 [1] lasti
    """
    read = function(text, args=["text"])
    assert read("12") == 12 and read("x") == "none"
    with pytest.raises(TypeError):
        read(None)


def test_a_generator_a_closure_and_keywords_are_built():
    ask = CodeBuilder(
        name="ask", flags=CodeFlag.OPTIMIZED | CodeFlag.NEWLOCALS | CodeFlag.GENERATOR
    )
    ask.emit("RETURN_GENERATOR")
    ask.emit("POP_TOP")
    ask.emit("RESUME", 0)
    ask.emit("LOAD_CONST", "how many?")
    ask.emit("YIELD_VALUE")
    ask.emit("RESUME", 1)
    ask.emit("RETURN_VALUE")
    asking = ask.to_function()()
    assert next(asking) == "how many?"
    with pytest.raises(StopIteration) as ended:
        asking.send(3)
    assert ended.value.value == 3

    add = CodeBuilder(args=["a", "b"], kwonly=1, freevars=["c"], name="add")
    add.emit("COPY_FREE_VARS", 1)
    add.emit("RESUME", 0)
    add.emit("LOAD_FAST", "a")
    for name in ("b", "c"):
        add.emit("LOAD_FAST" if name == "b" else "LOAD_DEREF", name)
        add.emit("BINARY_OP", "+")
    add.emit("RETURN_VALUE")
    made = add.to_function(closure=(types.CellType(100),), kwdefaults={"b": 10})
    assert made(1) == 111 and made(1, b=2) == 103
    with pytest.raises(ValueError, match="requires closure of length 1, not 0"):
        add.to_function(closure=())


def test_code_is_changed_and_its_tables_follow():
    def f(x):
        try:
            while x > 3:
                x = x - 1
            return 10 / x
        except ZeroDivisionError:
            return "zero"

    builder = CodeBuilder.from_code(f)
    at = next(i for i, it in enumerate(builder.items) if getattr(it, "opname", "") == "RESUME")
    # 400 instructions before the target: jumps over them need EXTENDED_ARG.
    skip = Label()
    loads = [Op("LOAD_FAST", 0), Op("POP_TOP")] * 200
    builder.items[at + 1 : at + 1] = [
        Op("LOAD_FAST", 0),
        Op("POP_JUMP_FORWARD_IF_NONE", skip),
        *loads,
        skip,
    ]
    changed = builder.to_function(globals())
    assert (changed(0), changed(5), changed(2)) == (f(0), f(5), f(2)) == ("zero", 10 / 3, 5)
    assert "EXTENDED_ARG" in Bytecode(changed).dis()
    assert changed.__code__.co_firstlineno == f.__code__.co_firstlineno
    for each in (f, changed):
        with pytest.raises(TypeError) as raised:
            each("x")
        line = raised.value.__traceback__.tb_next.tb_lineno
        assert line == f.__code__.co_firstlineno + 2


def test_a_function_goes_on_in_the_middle_with_what_was_on_the_stack():
    def f(x):
        return [x + 1, x + 2]

    # A continuation: the stack is restored, then a jump to the rest.
    builder = CodeBuilder.from_code(f)
    names = [getattr(it, "opname", "") for it in builder.items]
    second = names.index("BINARY_OP") + 1
    entry = Label("entry")
    builder.items.insert(second, entry)
    builder.items[1:1] = [Op("LOAD_FAST", builder.local("first")), Op("JUMP_FORWARD", entry)]
    builder.args, builder.variables = ["x", "first"], []
    assert builder.to_function()(5, "restored") == ["restored", 7]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("RESUME 0\nRETURN_VALUE", "offset 2 .RETURN_VALUE.: the stack is 0 high, expected 1"),
        ("RESUME 0", "execution runs over the end of the code"),
        ("", "execution runs over the end of the code"),
        ("PUSH_NULL\nRETURN_VALUE", "expected an object on the stack, got NULL"),
        ("LOAD_FAST x\nFOR_ITER L\nL:\nRETURN_VALUE", "the stack is"),
        ("LOAD_FAST x\nJUMP_FORWARD M", "label 'M' has no place"),
        ("LOAD_FAST x\nBINARY_OP 77", "the stack is 1 high"),
        ("LOAD_FAST x\nCOPY 1\nBINARY_OP 77\nRETURN_VALUE", "has no number 77"),
        ("LOAD_FAST x\nCOPY 1\nBINARY_OP plus\nRETURN_VALUE", "line 3: BINARY_OP takes no 'plus'"),
        ("LOAD_CONST x\nRETURN_VALUE", "line 1: LOAD_CONST: 'x' is no literal"),
        ("LOAD_NOTHING 3", "line 1: CPython 3.11 has no opcode 'LOAD_NOTHING'"),
        ("RETURN_VALUE 3 3", "line 1: RETURN_VALUE takes no '3 3'"),
        ("what is this", "line 1: expected an instruction or a label"),
        ("LOAD_FAST 9\nRETURN_VALUE", "there is no variable 9: there are 1"),
        ("LOAD_GLOBAL 9\nRETURN_VALUE", "there is no name 4: there are 0"),
        ("L:\nL:\nLOAD_FAST x\nRETURN_VALUE", "label 'L' is in two places"),
        ("LOAD_FAST x\nYIELD_VALUE\nRETURN_VALUE", "the flags are not those of a generator"),
        ("LOAD_FAST x\nRETURN_VALUE\nExceptionTable:\nA to B", "expected A to B -> C"),
        ("LOAD_DEREF x\nRETURN_VALUE", "expected a cell in variable 0, got an object"),
    ],
)
def test_code_that_would_not_run_is_refused(text, message):
    with pytest.raises(BytecodeError, match=message):
        assemble(text, args=["x"])


def test_fields_that_do_not_fit_are_refused():
    body = "LOAD_FAST a\nRETURN_VALUE"
    with pytest.raises(BytecodeError, match="1 parameters: 2 of 1 are by position only"):
        assemble(body, args=["a"], posonly=2)
    with pytest.raises(BytecodeError, match="a variable is listed twice"):
        assemble(body, args=["a", "a"])
    with pytest.raises(BytecodeError, match="its handler keeps 7 slots of a stack of 0"):
        builder = CodeBuilder(args=["a"])
        start, end = builder.place(Label("start")), Label("end")
        builder.emit("LOAD_FAST", "a")
        builder.emit("RETURN_VALUE")
        builder.place(end)
        builder.emit("RERAISE", 0)
        builder.handlers.append(Handler(start, end, end, depth=7))
        builder.to_code()


def test_handlers_find_what_they_keep_after_instructions_took_theirs():
    text = """
        LOAD_FAST a
        LOAD_FAST a
    S:
        RAISE_VARARGS {0}
    H:
        POP_TOP
        RETURN_VALUE
    ExceptionTable:
        S to H -> H [{1}]
    """
    with pytest.raises(BytecodeError, match="its handler keeps 1 slots of a stack of 0"):
        assemble(text.format(2, 1), args=["a"])
    raising = function(text.format(1, 1), args=["a"])
    assert raising(ValueError()).args == () and raising(3) == 3


def test_functions_that_trust_their_arguments_are_not_made():
    outer = compile("[x for x in y]", "<test>", "eval")
    inner = next(it for it in outer.co_consts if isinstance(it, types.CodeType))
    builder = CodeBuilder.from_code(inner)
    assert builder.to_code() == inner
    with pytest.raises(BytecodeError, match="<listcomp> is called by the code around it only"):
        builder.to_function()
    # Its function takes only the iterator that the surrounding code makes.
    around = CodeBuilder.from_code(outer)
    at = next(i for i, it in enumerate(around.items) if it.opname == "GET_ITER")
    around.items[at] = Op("NOP")
    with pytest.raises(BytecodeError, match="expected an iterator as an argument, got an object"):
        around.to_code()


def test_the_example_of_the_documentation_runs():
    text = (Path(__file__).parents[2] / "docs" / "bytecode.md").read_text()
    example = text.split("## Building")[1].split("## Checking")[0]
    lines = [line[4:] for line in example.splitlines() if line.startswith("    ") or not line]
    scope: dict = {}
    exec("\n".join(lines), scope)
    assert types.FunctionType(scope["code"], {})(3) == "ready"


def test_random_changes_of_code_are_refused_or_run():
    """Every accepted change is called in another process, which must not crash."""
    program = """
import contextlib, random, signal, sys
from corsac.bytecode import BytecodeError, CodeBuilder, Op

def sample(x, *rest, key=None):
    table = {"a": [y for y in rest], **({} if key is None else {key: x})}
    try:
        for item in (x, *rest):
            if item in table or not item:
                continue
            with contextlib.nullcontext(item) as file:
                table[item] = f"{file.bit_length()!r:>3}"
    except (TypeError, OSError) as error:
        return lambda: (error, x)
    return table

class Late(Exception):
    pass

def late(*_):
    raise Late

signal.signal(signal.SIGALRM, late)
names = [op for op in __import__("dis").opmap if op not in ("CACHE", "EXTENDED_ARG")]
accepted = refused = 0
for seed in range(%d, %d):
    draw = random.Random(seed)
    builder = CodeBuilder.from_code(sample)
    ops = [at for at, it in enumerate(builder.items) if isinstance(it, Op)]
    for _ in range(draw.choice([1, 1, 2])):
        at = draw.choice(ops)
        match draw.randrange(4):
            case 0:
                builder.items[at] = draw.choice(builder.items)
            case 1:
                builder.items[at].opname = draw.choice(names)
            case 2 if isinstance(builder.items[at], Op) and isinstance(builder.items[at].arg, int):
                builder.items[at].arg = draw.randrange(12)
            case _:
                builder.items.insert(at, draw.choice(builder.items))
    try:
        made = builder.to_function(globals())
    except (BytecodeError, AttributeError):
        refused += 1
        continue
    accepted += 1
    print(seed, file=sys.stderr, flush=True)
    for arguments in [((1, 2), {}), (("a", None), {"key": "b"}), ((0,), {})]:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            result = made(*arguments[0], **arguments[1])
            if callable(result):
                result()
        except BaseException:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
print(accepted, refused)
"""
    done = subprocess.run(
        [sys.executable, "-c", program % (0, 1500)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{done.returncode}: seed {done.stderr.splitlines()[-1:]}"
    accepted, refused = map(int, done.stdout.split()[-2:])
    assert accepted > 100 and refused > 100


def test_functions_are_patched_as_tracers_do():
    def f(a, /, *args, b=2, **kwargs):
        return a, b, args, kwargs

    patched = patch_function(f, 4)
    assert patched("a", "b", "args", "kwargs") == ("a", "b", "args", "kwargs")
    assert patched.__code__.co_flags & (CodeFlag.VARARGS | CodeFlag.VARKEYWORDS) == 0
    assert patched.__globals__ is f.__globals__ and patched.__defaults__ == f.__defaults__
    assert symbolic_trace._patch_function is patch_function
    with pytest.raises(ValueError, match="f has 4 local variables, got n_args=5"):
        patch_function(f, 5)
    with pytest.raises(ValueError, match="n_args=-1"):
        patch_function(f, -1)
