"""Invalid input is a clear error that leaves the graph unchanged, and never becomes code."""

import ast
import builtins
import enum
import math
import operator
import subprocess
import sys
import textwrap
import time
from collections import namedtuple

import pytest
import torch

from kit import SELF_CHECK, SUBJECT, needs_subject
from kit.observe import Raised, attempt

fx = SUBJECT.fx
EVIL = "setattr(__import__('builtins'), 'hostile', 1)"


def describe(graph) -> tuple:
    """All observable properties of a graph."""
    return (
        str(graph),
        [(n.name, n.op, str(n.target), str(n.args), str(n.kwargs)) for n in graph.nodes],
        [[u.name for u in n.users] for n in graph.nodes],
    )


def small_graph():
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.relu, (x,))
    graph.output(y)
    return graph, x, y


def assert_refused(graph, change) -> Raised:
    """Check that a change raises, and leaves the graph unchanged."""
    before = describe(graph)
    outcome = attempt(change)
    assert isinstance(outcome, Raised), f"returned {outcome!r}"
    assert describe(graph) == before
    return outcome


# -- code in names, targets and strings ------------------------------------------------------

HOSTILE_TEXTS = [
    EVIL,
    f"x); {EVIL}; (",
    f"x\n    {EVIL}\n",
    f"'); {EVIL}; ('",
    f'"); {EVIL}; ("',
    f'a") or {EVIL} or getattr(self, "b',
    f"x: {EVIL}",
    f"x = {EVIL}",
    f"x={EVIL}, y",
    f"*args, y={EVIL}",
    f"x # {EVIL}",
    f"x\r{EVIL}",
    f"x\x0c{EVIL}",
    f"x\u2028{EVIL}",
    f"{{{EVIL}}}",
    f"\\'); {EVIL}#",
    f"x\\\n{EVIL}",
    "\x00",
    "\x1b[31mred",
    "",
    " ",
    "\ud800",
    "😀",
    "\uff41",  # a full-width letter, an identifier that Python normalises to `a`
    "lambda",
    "a" * 5000,
]


class Holder(torch.nn.Module):
    """Has attributes of any name, so that hostile attribute paths are found."""

    def __getattr__(self, name):
        if name.startswith("_"):
            return super().__getattr__(name)
        return lambda *args, **kwargs: args


def assert_harmless(graph, *inputs) -> None:
    """Check that generating, compiling and running the code does not run the contents of its strings."""
    builtins.__dict__.pop("hostile", None)
    code = attempt(graph.python_code, "self")
    if isinstance(code, Raised):
        return
    tree = attempt(ast.parse, code.src)
    if not isinstance(tree, Raised):
        names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        assert "__import__" not in names, code.src
        functions = [n for n in tree.body if not isinstance(n, ast.Expr)]
        assert len(functions) == 1, code.src
    scope = dict(code.globals)
    attempt(lambda: exec(compile(code.src, "generated", "exec"), scope))
    if "forward" in scope:
        attempt(scope["forward"], Holder(), *inputs)
    assert not hasattr(builtins, "hostile"), code.src


def place_name(graph, x, text):
    graph.call_function(torch.neg, (x,), name=text)


def place_assigned_name(graph, x, text):
    graph.call_function(torch.neg, (x,)).name = text


def place_placeholder(graph, x, text):
    graph.placeholder(text)


def place_method(graph, x, text):
    graph.call_method(text, (x,))


def place_module(graph, x, text):
    graph.create_node("call_module", text, (x,))


def place_attribute(graph, x, text):
    graph.create_node("get_attr", text)


def place_getattr(graph, x, text):
    graph.call_function(getattr, (x, text))


def place_argument(graph, x, text):
    graph.call_function(torch.neg, (x, text, [text], {"k": text}, slice(text)))


def place_dict_key(graph, x, text):
    graph.call_function(torch.neg, ({text: x},))


def place_keyword(graph, x, text):
    graph.call_function(torch.neg, (x,), {text: 1})


def place_default(graph, x, text):
    graph.placeholder("late", default_value=text)


def place_annotation(graph, x, text):
    graph.call_function(torch.neg, (x,), type_expr=text)


def place_function_name(graph, x, text):
    def function(value):
        return value

    function.__name__ = text
    graph.call_function(function, (x,))


def place_function_module(graph, x, text):
    def function(value):
        return value

    function.__module__ = text
    graph.call_function(function, (x,))


def place_operator_impostor(graph, x, text):
    def function(value, other):
        return value

    function.__module__ = "_operator"
    function.__name__ = "add"
    graph.call_function(function, (x, text))


def place_enum(graph, x, text):
    members = {"ONE": 1}
    kind = enum.Enum(text if text.isidentifier() else "Kind", members)
    kind.__name__ = text
    graph.call_function(torch.neg, (kind.ONE,))


def place_named_tuple(graph, x, text):
    kind = namedtuple("Kind", "a")
    kind.__name__ = text
    graph.call_function(torch.neg, (kind(1),))


def place_string_subclass(graph, x, text):
    class Sly(str):
        def __repr__(self):
            return text

        __str__ = __repr__

    graph.call_function(torch.neg, (Sly("value"),))


PLACES = [value for name, value in sorted(globals().items()) if name.startswith("place_")]
if SELF_CHECK:
    PLACES = PLACES[:0]


@needs_subject
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
def test_text_never_becomes_code(place, text):
    graph = fx.Graph()
    x = graph.placeholder("x")
    outcome = attempt(place, graph, x, text)
    if not isinstance(outcome, Raised):
        graph.output(x)
    attempt(str, graph)
    attempt(graph.lint)
    assert_harmless(graph, 1)


@needs_subject
@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
def test_strings_arrive_as_they_are(text):
    graph = fx.Graph()
    graph.output([text, {"k": (text,)}])
    assert fx.GraphModule({}, graph)() == [text, {"k": (text,)}]


# -- malformed graphs --------------------------------------------------------------------------


def test_erasing_a_used_node():
    graph, x, _ = small_graph()
    outcome = assert_refused(graph, lambda: graph.erase_node(x))
    assert issubclass(outcome.kind, RuntimeError)
    assert "x" in outcome.message and "relu" in outcome.message


def test_nodes_of_another_graph():
    graph, x, y = small_graph()
    other, ox, oy = small_graph()
    assert_refused(graph, lambda: graph.erase_node(other.call_function(torch.neg, (ox,))))
    assert_refused(graph, lambda: graph.inserting_before(ox))
    assert_refused(graph, lambda: graph.inserting_after(oy))
    assert_refused(graph, lambda: x.append(oy))
    assert_refused(graph, lambda: y.prepend(oy))


@needs_subject
def test_using_an_erased_node():
    graph, x, y = small_graph()
    dead = graph.call_function(torch.neg, (x,))
    graph.erase_node(dead)
    before = describe(graph)
    for change in (
        lambda: dead.append(y),
        lambda: dead.prepend(y),
        lambda: y.append(dead),
        lambda: graph.inserting_before(dead).__enter__(),
        lambda: graph.call_function(torch.neg, (dead,)),
        lambda: setattr(y, "args", (dead,)),
        lambda: dead.replace_all_uses_with(x),
        lambda: y.replace_all_uses_with(dead),
        lambda: setattr(dead, "args", (x,)),
        lambda: setattr(dead, "name", "again"),
        lambda: repr(dead) + str(dead.args) + str(dead.users) + str(dead.next) + dead.op,
    ):
        attempt(change)
    attempt(graph.lint)
    str(graph)
    assert before[0].splitlines()[0] == str(graph).splitlines()[0]


def test_cyclic_arguments_are_reported():
    graph, _, y = small_graph()
    y.args = (y,)
    outcome = attempt(graph.lint)
    assert isinstance(outcome, Raised) and issubclass(outcome.kind, RuntimeError)
    assert "relu" in outcome.message
    str(graph)
    graph.python_code("self")


@needs_subject
def test_recursive_containers_are_refused():
    graph, x, y = small_graph()
    loop_list: list = [x]
    loop_list.append(loop_list)
    loop_dict: dict = {}
    loop_dict["self"] = {"again": loop_dict}
    holder: list = []
    loop_tuple = (x, holder)
    holder.append(loop_tuple)
    for value in (loop_list, loop_dict, loop_tuple):
        assert_refused(graph, lambda value=value: graph.call_function(torch.neg, (value,)))
        assert_refused(graph, lambda value=value: setattr(y, "args", (value,)))
        assert_refused(graph, lambda value=value: y.update_kwarg("k", value))


DEEP = """
    import sys
    import torch
    import {module} as fx
    depth = {depth}
    def nested(kind):
        value = 1
        for _ in range(depth):
            value = [value] if kind is list else (value,) if kind is tuple else {{"k": value}}
        return value
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.relu, (x,))
    text = str(graph)
    for kind in (list, tuple, dict):
        value = nested(kind)
        for change in (
            lambda: graph.call_function(torch.neg, (value,)),
            lambda: setattr(y, "args", (value,)),
            lambda: fx.map_arg(value, lambda n: n),
            lambda: fx.node.map_aggregate(value, lambda n: n),
            lambda: fx.proxy.GraphAppendingTracer(graph).create_arg(value),
        ):
            try:
                change()
            except Exception as error:
                assert str(error) or isinstance(error, RecursionError)
        try:
            str(graph)
            graph.python_code("self")
        except Exception as error:
            print(type(error).__name__)
    print("survived")
"""


@needs_subject
@pytest.mark.parametrize("depth", [5_000, 1_000_000])
def test_deeply_nested_arguments_do_not_crash(depth):
    """Deep nesting is tested in another process: a stack overflow would end it."""
    source = textwrap.dedent(DEEP).format(module=SUBJECT.name, depth=depth)
    result = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "survived" in result.stdout


# -- misbehaving objects -----------------------------------------------------------------------


class Bad(Exception):
    """The exception of the objects below."""


class RaisingEq:
    def __eq__(self, other):
        raise Bad("eq")

    __hash__ = object.__hash__


class RaisingHash:
    def __hash__(self):
        raise Bad("hash")


class RaisingRepr:
    def __repr__(self):
        raise Bad("repr")


class RaisingAll(RaisingEq, RaisingRepr):
    def __hash__(self):
        raise Bad("hash")

    def __str__(self):
        raise Bad("str")

    def __bool__(self):
        raise Bad("bool")

    def __len__(self):
        raise Bad("len")

    def __iter__(self):
        raise Bad("iter")


class RaisingGetattr:
    def __getattribute__(self, name):
        raise Bad(name)


class CallableBad(RaisingEq):
    __name__ = "callable_bad"
    __module__ = "somewhere"

    def __call__(self, x):
        return x


BAD_OBJECTS = [RaisingEq, RaisingHash, RaisingRepr, RaisingAll, RaisingGetattr]


@needs_subject
@pytest.mark.parametrize("kind", BAD_OBJECTS)
def test_objects_that_raise_as_arguments(kind):
    graph, x, y = small_graph()
    for change in (
        lambda: graph.call_function(torch.neg, (x, kind())),
        lambda: graph.call_function(torch.neg, (x, [kind()]), {"k": {"deep": kind()}}),
        lambda: setattr(y, "args", (x, kind())),
        lambda: graph.call_function(torch.neg, ({1: kind()},)),
        lambda: graph.placeholder("late", default_value=kind()),
        lambda: graph.call_function(torch.neg, (x,), type_expr=kind()),
    ):
        before = describe_quietly(graph)
        outcome = attempt(change)
        if isinstance(outcome, Raised):
            assert describe_quietly(graph) == before
    for look in (
        lambda: str(graph),
        lambda: graph.python_code("self"),
        lambda: graph.lint(),
        lambda: graph.eliminate_dead_code(),
        lambda: [n.format_node() for n in graph.nodes],
        lambda: graph.print_tabular(),
    ):
        attempt(look)
    assert len(list(graph.nodes)) == len(graph.nodes)
    assert [u.name for u in x.users][:1] == ["relu"]


def describe_quietly(graph) -> list:
    """The shape of a graph, without printing its arguments."""
    return [(n.name, n.op, [u.name for u in n.users], len(n.args)) for n in graph.nodes]


@needs_subject
def test_objects_that_raise_as_targets():
    graph, x, y = small_graph()
    for _ in range(3):
        attempt(lambda: graph.call_function(CallableBad(), (x,)))
    attempt(lambda: graph.find_nodes(op="call_function", target=CallableBad()))
    attempt(lambda: graph.eliminate_dead_code())
    attempt(lambda: str(graph))
    assert graph.find_nodes(op="call_function", target=torch.relu) == [y]


@needs_subject
def test_callbacks_that_raise_leave_the_graph_as_it_was():
    graph, x, y = small_graph()

    def raises(*args):
        raise Bad("callback")

    assert_refused(graph, lambda: x.replace_all_uses_with(y, raises))
    assert_refused(graph, lambda: graph.node_copy(y, raises))
    assert_refused(graph, lambda: graph.eliminate_dead_code(raises))
    assert_refused(graph, lambda: fx.map_arg(y.args, raises))
    assert not isinstance(attempt(graph.lint), Raised)


@needs_subject
def test_callbacks_that_change_the_graph_while_it_is_walked():
    graph, x, y = small_graph()

    def meddles(node):
        with graph.inserting_before(y):
            graph.call_function(torch.neg, (x,))
        return False

    attempt(lambda: x.replace_all_uses_with(y, meddles))
    attempt(lambda: graph.eliminate_dead_code(lambda n: (meddles(n), n.op != "call_function")[1]))
    attempt(lambda: fx.map_arg((x, [y]), lambda n: graph.erase_node(graph.output_node())))
    for node in graph.nodes:
        assert node.graph is graph
    assert len(list(graph.nodes)) == len(graph.nodes)


# -- values -------------------------------------------------------------------------------------

EXTREME = [
    math.nan,
    math.inf,
    -math.inf,
    -0.0,
    5e-324,
    2**4000,
    -(2**63),
    2**64,
    complex(math.nan, -0.0),
    "\ud800\udfff",
    "\x00",
    b"\xff\x00",
    range(2**70),
    slice(None, 2**70, -1),
    (),
    [],
    {},
    {None: 1, (): 2, 1.5: 3},
]


@pytest.mark.parametrize("value", EXTREME, ids=range(len(EXTREME)))
def test_extreme_values_survive(value):
    graph = fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(operator.eq, (x, value))
    graph.output((node, value))
    assert repr(node.args[1]) == repr(value)
    str(graph)
    module = fx.GraphModule({}, graph)
    assert repr(module(1)[1]) == repr(value)


@needs_subject
@pytest.mark.parametrize(
    "text",
    [
        "",
        "graph",
        "graph(",
        "graph():\n    %x",
        "graph():\n    %x : [num_users=1] = placeholder[target=x]\n    return y",
        "graph():\n    %x : [num_users=99] = unknown[target=x]",
        "graph():\n    %x = call_function[target=os.system](args = ('true',), kwargs = {})",
        "graph():\n    %x = call_function[target=operator.add](args = (((((",
        "graph():" + "\n    return (" * 10000,
        "graph():\n    %\x00 = placeholder[target=\x00]",
        "graph():\n    return %x",
        "\ud800",
        "(" * 100000,
    ],
    ids=range(13),
)
def test_malformed_text(text):
    parse = getattr(fx.Graph, "parse", None)
    if parse is None:
        pytest.skip("this build has no parser")
    outcome = attempt(parse, text)
    if isinstance(outcome, Raised):
        assert outcome.message
    else:
        str(outcome)


#: The repeated text and the closing one; the arguments of a call in the shown form and the lossless one.
REPEATED = {
    "square": ("[", "]"),
    "round": ("(", ")"),
    "curly": ("{", "}"),
    "tuples": ("(", ",)"),
    "dictionaries": ("{1: ", "}"),
    "slices": ("slice(", ")"),
    "calls": ("f(", ")"),
    "angles": ("<", ">"),
    "crossed": ("[(", "]"),
    "nodes": ("[%x, ", "]"),
    "quotes": ("'", "'"),
    "commas": (", ", ""),
    "colons": (": ", ""),
    "digits": ("9", ""),
    "backslashes": ("'\\", "'"),
    "equals": (" = ", ""),
}


@pytest.mark.skipif(SELF_CHECK, reason="torch.fx reads no text")
@pytest.mark.parametrize("header", ["graph():", "graph v1:"])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("what", REPEATED)
def test_reading_takes_linear_time_however_deep_values_nest(what, closed, header):
    def seconds(count):
        opening, closing = REPEATED[what]
        value = opening * count + (closing * count if closed else "")
        texts = [
            f"{header}\n    %x : [num_users=1] = placeholder[target=x]\n    %a : [num_users=1] = "
            f"call_function[target=operator.add](args = {args}, kwargs = {kwargs})\n    return a"
            for args, kwargs in [(f"(%x, {value})", "{}"), ("(%x,)", f"{{k: {value}}}")]
        ]
        texts.append(f"{header}\n    %x : [num_users=1] = placeholder[target=x](default={value})\n")
        texts.append(
            f"{header}\n    %x : [num_users=1] = placeholder[target=x]\n    return {value}"
        )
        start = time.process_time()
        for text in texts:
            attempt(fx.Graph.parse, text)
        return time.process_time() - start

    few, many = min(seconds(2_000) for _ in range(3)), seconds(64_000)
    # 32 times as much; quadratic growth would take a thousand times as long.
    assert many < 200 * few + 0.2
