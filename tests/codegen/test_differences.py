"""Cases in which torch.fx generates wrong or unsafe Python (docs/compatibility.md)."""

from __future__ import annotations

import math
import operator
from typing import Any

import pytest
import torch

import corsac.fx.graph as fx

from .cases import Color, Flags, Pair, Point, foo, with_pytree

EVIL = [
    "x): pass\nimport os #",
    'a") or evil("',
    "a') or evil('",
    "\\",
    '"""',
    "a\0b",
    "\r\nevil()",
    "{0}",
    "%s",
    "for",
    "None",
    "ﬁ",
    "é",
    "\U0002ebf0",
    "",
    "a;b",
    "# COUNTER: 1",
]


def run(graph: fx.Graph, *args: Any, root: Any = None) -> Any:
    """The result of the generated function."""
    code = graph.python_code("self")
    module_globals = dict(code.globals)
    exec(compile(code.src, "<test>", "exec"), module_globals)
    return module_globals["forward"](root, *args)


class Anything:
    """Every attribute exists; calls return its path."""

    def __init__(self, path: tuple[str, ...] = ()) -> None:
        self.path = path

    def __getattr__(self, name: str) -> Anything:
        return Anything((*self.path, name))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return (self.path, args, kwargs)


@pytest.mark.parametrize("text", EVIL)
def test_text_stays_in_its_place(text: str) -> None:
    graph = fx.Graph()
    x = graph.placeholder(text)
    attribute = graph.create_node("get_attr", text, (), {})
    module = graph.create_node("call_module", text, (1,), {})
    method = graph.call_method(text, (x, text))
    keyword = graph.call_function(dict, (), {text: text})
    named = graph.create_node("call_function", foo, (x,), {}, name=text)
    named.name = text
    found = graph.call_function(getattr, (x, text))
    graph.output([attribute, module, method, keyword, named, found])
    given, root = Anything(("x",)), Anything()
    names = tuple(text.split("."))
    attribute, module, method, keyword, named, found = run(graph, given, root=root)
    assert attribute.path == names
    assert module == (names, (1,), {})
    assert method == (("x", *names), (text,), {})
    assert keyword == {text: text}
    assert named is given
    assert found.path == ("x", text)


@pytest.mark.parametrize("text", EVIL)
def test_text_stays_in_its_place_whatever_the_calling_convention(text: str) -> None:
    for codegen in (fx._BoxedCodeGen(), with_pytree(fx, ["a"], [[1]], [1])._codegen):
        graph = fx.Graph()
        x = graph.placeholder(text)
        graph.output([graph.call_method(text, (x, text))])
        graph.set_codegen(codegen)
        for style in ({}, {"verbose": True}, {"expanded_def": True}, {"record_func": True}):
            x.meta["desc"] = text
            code = compile(graph.python_code("self", **style).src, "<test>", "exec")
            assert "evil" not in code.co_names and "os" not in code.co_names


def test_comments_end_with_their_line() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(foo, (x,))
    graph.output((y, y)).meta["desc"] = ["one\nevil()"]
    x.meta["desc"] = "two\revil()"
    y.meta["tag"] = "three\nevil()"
    y.meta["custom"] = {"k": type("R", (), {"__repr__": lambda _: "a\nevil()"})()}
    code = graph.python_code("self", verbose=True, expanded_def=True, additional_meta=["tag"])
    module_globals = dict(code.globals)
    exec(compile(code.src, "<test>", "exec"), module_globals)
    assert module_globals["forward"](None, 3) == (3, 3)


def test_metadata_is_shown_as_a_string(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FX_GRAPH_SHOW_META", "1")
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(foo, (x,))
    y.meta["a"] = '"""\nevil()\n"""'
    y.meta["b"] = "\\N{no} \\x \\"
    y.meta['"""'] = "c"
    graph.output(y)
    assert run(graph, 3) == 3


def test_parameters_do_not_hide_globals() -> None:
    graph = fx.Graph()
    torch_, device, slice_, inf = (
        graph.placeholder(n) for n in ("torch", "device", "slice", "inf")
    )
    a = graph.call_function(torch.add, (torch_, 1))
    b = graph.call_function(operator.getitem, (a, slice(None, 2)))
    c = graph.call_function(torch.ones, (1,), {"device": torch.device("cpu")})
    graph.output((b, c, device, slice_, inf, math.inf))
    result = run(graph, torch.arange(3), "d", "s", "i")
    assert torch.equal(result[0], torch.tensor([1, 2]))
    assert result[2:] == ("d", "s", "i", math.inf)
    assert "def forward(self, x, device):" in fx_code_of(["x", "device"])


def fx_code_of(names: list[str]) -> str:
    graph = fx.Graph()
    graph.output([graph.placeholder(name) for name in names])
    return graph.python_code("self").src


def test_parameters_are_told_apart() -> None:
    assert "def forward(self, x, x_2):" in fx_code_of(["x", "x"])
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(operator.neg, (x,))
    y.name = "late"
    late = graph.create_node("placeholder", "late", (), {}, name="other")
    graph.output((y, late))
    assert run(graph, 1, 2) == (-1, 2)


def test_a_value_called_self() -> None:
    graph = fx.Graph()
    x = graph.create_node("placeholder", "x", (), {}, name="self")
    graph.output(graph.create_node("call_module", "layer", (x,), {}))
    assert run(graph, 1, root=Anything()) == (("layer",), (1,), {})


def test_signs() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(operator.pow, (-2, x))
    b = graph.call_function(operator.pow, (x, -2))
    c = graph.call_method("bit_length", (5,))
    d = graph.call_method("hex", (-1.5,))
    e = graph.call_function(getattr, (7, "real"))
    graph.output((a, b, c, d, e))
    assert run(graph, 2.0) == (4.0, 0.25, 3, (-1.5).hex(), 7)


def test_operators_with_other_arguments() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(operator.iadd, (1, x)))
    assert run(graph, 2) == 3
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(operator.add, (x,)))
    with pytest.raises(TypeError):
        run(graph, 2)


def test_values_inside_dictionaries_and_named_tuples() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    value = {"k": [Color.RED, complex(-0.0, math.inf), Point(x, Flags.A)], 1: Pair(torch.relu, int)}
    graph.output(value)
    result = run(graph, 5)
    assert result["k"][0] is Color.RED and repr(result["k"][1]) == repr(complex(-0.0, math.inf))
    assert result["k"][2] == Point(5, Flags.A) and result[1] == Pair(torch.relu, int)


def test_values_that_are_no_expressions() -> None:
    class Opaque:
        pass

    opaque, huge, flags = Opaque(), -(1 << 20000), Flags.A | Flags.B
    graph = fx.Graph()
    graph.output((opaque, huge, flags, foo, len, Opaque, opaque, "\ud800"))
    result = run(graph)
    assert result == (opaque, huge, flags, foo, len, Opaque, opaque, "\ud800")
    assert type(result[2]) is Flags


def test_a_callable_without_a_name() -> None:
    class Adder:
        def __call__(self, x: int) -> int:
            return x + 1

    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(Adder(), (x,)))
    assert run(graph, 1) == 2


def test_a_graph_without_statements() -> None:
    graph = fx.Graph()
    graph.placeholder("x")
    assert run(graph, 1) is None


def test_text_that_looks_like_a_mark() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(foo, (x, "# COUNTER: 1")), "# COUNTER: 0"))
    assert run(graph, 1) == (1, "# COUNTER: 0")
    graph.on_generate_code(lambda _: lambda body: ["x += 1", *body])
    assert run(graph, 1) == (2, "# COUNTER: 0")


def test_expanded_results_are_all_there() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x", default_value="#:")
    graph.output((x, 1, 2)).meta["desc"] = ["first"]
    code = graph.python_code("self", expanded_def=True)
    module_globals = dict(code.globals)
    exec(code.src, module_globals)
    assert module_globals["forward"](None) == ("#:", 1, 2)


def test_what_is_missing_is_said() -> None:
    graph = fx.Graph()
    graph.call_method("relu", ())
    with pytest.raises(IndexError, match="call_method node relu: expected the object"):
        graph.python_code("self")
    graph = fx.Graph()
    graph.create_node("output", "output", (), {})
    with pytest.raises(IndexError, match="expected the result"):
        graph.python_code("self")


def test_values_that_cannot_be_written() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise ZeroDivisionError("no repr")

        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError("no eq")

        __hash__ = None  # type: ignore[assignment]

    graph = fx.Graph()
    graph.output(Broken())
    with pytest.raises(ZeroDivisionError, match="no repr"):
        graph.python_code("self")
    Broken.__repr__ = lambda self: "<broken>"  # type: ignore[method-assign]
    assert isinstance(run(graph), Broken)


def test_a_graph_changed_meanwhile() -> None:
    class Changing:
        def __repr__(self) -> str:
            graph.call_function(named, (0,))
            return "0"

    def named(x: int) -> int:
        return x

    graph = fx.Graph()
    graph.output(Changing())
    with pytest.raises(RuntimeError, match="that the host does not know"):
        graph.python_code("self")
