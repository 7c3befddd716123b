"""The rows of docs/compatibility.md about generated code, of torch.fx and of corsac."""

from __future__ import annotations

import collections
import enum
import math
import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.fx

import corsac.fx
from kit import row

EVIL = "a') or evil('"


def identity(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


class Color(enum.Enum):
    RED = 1


class Flags(enum.IntFlag):
    A = 1
    B = 2


Pair = collections.namedtuple("Pair", ["first", "second"])


def source(fx: ModuleType, build: Callable[[Any, Any], Any], **options: Any) -> str:
    """The code of a graph with an input ``x`` and the result from ``build``."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(build(graph, x))
    return graph.python_code("self", **options).src


def both(build: Callable[[Any, Any], Any], **options: Any) -> tuple[str, str]:
    return source(torch.fx, build, **options), source(corsac.fx, build, **options)


def run(fx: ModuleType, build: Callable[[Any, Any], Any], *inputs: Any, root: Any = None) -> Any:
    """The result of the generated function."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(build(graph, x))
    return run_graph(graph, *inputs, root=root)


def run_graph(graph: Any, *inputs: Any, root: Any = None, **options: Any) -> Any:
    code = graph.python_code("self", **options)
    names = dict(code.globals)
    exec(compile(code.src, "<test>", "exec"), names)
    return names["forward"](root, *inputs)


def is_python(text: str) -> bool:
    try:
        compile(text, "<test>", "exec")
    except SyntaxError:
        return False
    return True


@row("a target with quotes, line breaks")
def test_targets_are_quoted() -> None:
    theirs, ours = both(lambda graph, x: graph.create_node("get_attr", EVIL, (), {}))
    assert f'getattr(self, "{EVIL}")' in theirs
    assert f"getattr(self, {EVIL!r})" in ours
    theirs, ours = both(lambda graph, x: graph.create_node("get_attr", 'a"+evil()+"', (), {}))
    assert "evil" in compile(theirs, "<test>", "exec").co_consts[0].co_names
    assert "evil" not in compile(ours, "<test>", "exec").co_consts[0].co_names


@row("a target that is a keyword")
def test_targets_that_are_keywords() -> None:
    theirs, ours = both(lambda graph, x: graph.create_node("get_attr", "for", (), {}))
    assert "self.for" in theirs and not is_python(theirs)
    assert 'getattr(self, "for")' in ours and is_python(ours)


@row("a non-ASCII attribute or method name")
def test_names_outside_ascii() -> None:
    class Root:
        pass

    root = Root()
    vars(root)["ﬁ"] = 1
    root.fi = 2
    theirs, ours = both(lambda graph, x: graph.create_node("get_attr", "é", (), {}))
    assert "self.é" in theirs and 'getattr(self, "é")' in ours
    build = lambda graph, x: graph.create_node("get_attr", "ﬁ", (), {})  # noqa: E731
    assert run(torch.fx, build, 0, root=root) == 2
    assert run(corsac.fx, build, 0, root=root) == 1


@row("a keyword argument that is no identifier")
def test_keywords_that_are_no_identifiers() -> None:
    theirs, ours = both(lambda graph, x: graph.call_function(dict, (), {"a b": 1}))
    assert "dict(a b = 1)" in theirs and not is_python(theirs)
    assert "dict(**{'a b': 1})" in ours and is_python(ours)


@row("a placeholder whose target is no identifier")
@pytest.mark.parametrize("target", ["a b", "for", "x): evil() #", "x"])
def test_parameters_that_are_no_identifiers(target: str) -> None:
    build = lambda graph, x: (x, graph.placeholder(target))  # noqa: E731
    theirs, ours = both(build)
    assert f"def forward(self, x, {target})" in theirs
    assert not is_python(theirs) or "evil()" in theirs
    assert is_python(ours) and "evil()" not in ours


@row("a parameter that hides a global")
def test_parameters_that_hide_globals() -> None:
    def graph_of(fx: ModuleType) -> Any:
        graph = fx.Graph()
        hidden = graph.placeholder("torch")
        graph.output(graph.call_function(torch.nn.functional.relu, (hidden,)))
        return graph

    with pytest.raises(AttributeError):
        run_graph(graph_of(torch.fx), torch.ones(2))
    assert torch.equal(run_graph(graph_of(corsac.fx), torch.ones(2)), torch.ones(2))


@row("a value called `self`")
def test_values_called_self() -> None:
    def build(graph: Any, x: Any) -> Any:
        own = graph.create_node("call_function", identity, (x,), {}, name="self")
        return (own, graph.create_node("get_attr", "weight", (), {}))

    class Root:
        weight = 5

    with pytest.raises(AttributeError):
        run(torch.fx, build, 3, root=Root())
    assert run(corsac.fx, build, 3, root=Root()) == (3, 5)
    assert "self_1 = " in source(corsac.fx, build)


@row("a negative number left of `**`")
def test_powers_of_negative_numbers() -> None:
    build = lambda graph, x: graph.call_function(operator.pow, (-2, x))  # noqa: E731
    theirs, ours = both(build)
    assert "-2 ** x" in theirs and "(-2) ** x" in ours
    assert run(torch.fx, build, 2) == -4 and run(corsac.fx, build, 2) == 4


@row("a method or attribute of a number")
def test_methods_of_numbers() -> None:
    theirs, ours = both(lambda graph, x: graph.call_method("conjugate", (1,)))
    assert "1.conjugate()" in theirs and not is_python(theirs)
    assert "(1).conjugate()" in ours
    build = lambda graph, x: graph.call_method("hex", (-1.5,))  # noqa: E731
    with pytest.raises(TypeError):
        run(torch.fx, build, 0)
    assert run(corsac.fx, build, 0) == (-1.5).hex()


@row("an operator with too few or too many arguments")
def test_operators_with_other_numbers_of_arguments() -> None:
    few = lambda graph, x: graph.call_function(operator.add, (x,))  # noqa: E731
    with pytest.raises(IndexError):
        source(torch.fx, few)
    assert "operator.add(x)" in source(corsac.fx, few) or "_operator_add(x)" in source(
        corsac.fx, few
    )
    many = lambda graph, x: graph.call_function(operator.add, (x, 1, 2))  # noqa: E731
    assert run(torch.fx, many, 1) == 2
    with pytest.raises(TypeError):
        run(corsac.fx, many, 1)


@row("an in-place operator on a literal")
def test_in_place_operators_on_literals() -> None:
    build = lambda graph, x: graph.call_function(operator.iadd, (1, x))  # noqa: E731
    theirs, _ = both(build)
    assert "1 += x" in theirs and not is_python(theirs)
    assert run(corsac.fx, build, 2) == 3


@row("numbers, enums, nested containers in a dict")
def test_values_in_dictionaries() -> None:
    theirs, ours = both(lambda graph, x: {1: Color.RED})
    assert "<Color.RED: 1>" in theirs and not is_python(theirs)
    assert is_python(ours) and run(corsac.fx, lambda graph, x: {1: Color.RED}, 0) == {1: Color.RED}
    infinite = lambda graph, x: Pair(complex(0, math.inf), x)  # noqa: E731
    with pytest.raises(NameError):
        run(torch.fx, infinite, 0)
    assert run(corsac.fx, infinite, 0).first == complex(0, math.inf)


@row("an integer of more than 4300 digits")
def test_long_integers() -> None:
    build = lambda graph, x: 1 << 20000  # noqa: E731
    with pytest.raises(ValueError, match="4300"):
        source(torch.fx, build)
    assert run(corsac.fx, build, 0) == 1 << 20000


@row("a graph of which no node needs a statement")
def test_graphs_without_statements() -> None:
    texts = []
    for fx in (torch.fx, corsac.fx):
        graph = fx.Graph()
        graph.placeholder("x")
        texts.append(graph.python_code("self").src)
    theirs, ours = texts
    assert not is_python(theirs)
    assert is_python(ours) and "pass" in ours


@row("`record_func` and a node whose name is no identifier")
def test_record_func() -> None:
    def build(graph: Any, x: Any) -> Any:
        node = graph.call_function(identity, (x,))
        node.name = "a b"
        return node

    theirs, ours = both(build, record_func=True)
    assert not is_python(theirs) and is_python(ours)


@row("a string with `# COUNTER: 1` in it")
def test_strings_that_look_like_marks() -> None:
    build = lambda graph, x: graph.call_function(identity, ("# COUNTER: 1",))  # noqa: E731
    theirs, ours = both(build, verbose=True)
    assert "COUNTER" not in theirs.replace("# COUNTER: 1\n", "") or not is_python(theirs)
    assert "'# COUNTER: 1'" in ours
    assert run(corsac.fx, build, 0) == "# COUNTER: 1"


@row("line breaks in comments")
def test_line_breaks_in_comments() -> None:
    def build(graph: Any, x: Any) -> Any:
        node = graph.call_function(identity, (x,))
        node.meta["tag"] = "one\nevil()\n#"
        return node

    theirs, ours = both(build, verbose=True, additional_meta=["tag"])
    for text, injected in ((theirs, True), (ours, False)):
        (function,) = (
            c for c in compile(text, "<test>", "exec").co_consts if hasattr(c, "co_names")
        )
        assert ("evil" in function.co_names) == injected
    assert r"one\n" in ours


@row("`expanded_def` with fewer descriptions than results")
def test_descriptions_of_results() -> None:
    def graph_of(fx: ModuleType) -> Any:
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.output((x, 1, 2)).meta["desc"] = ["first"]
        return graph

    assert run_graph(graph_of(torch.fx), 0, expanded_def=True) == (0,)
    assert run_graph(graph_of(corsac.fx), 0, expanded_def=True) == (0, 1, 2)


@row("`expanded_def` with a `#` in a default value")
def test_default_values_with_number_signs() -> None:
    texts = []
    for fx in (torch.fx, corsac.fx):
        graph = fx.Graph()
        graph.output([graph.placeholder(name, default_value="a#b") for name in ("x", "y")])
        texts.append(graph.python_code("self", expanded_def=True).src)
    theirs, ours = texts
    assert "x = 'a,  # b'" in theirs and not is_python(theirs)
    assert "x = 'a#b'" in ours and is_python(ours)


@row("a value whose `repr` is no expression")
@pytest.mark.parametrize("value", [object(), identity, Flags.A | Flags.B])
def test_values_without_an_expression(value: Any) -> None:
    build = lambda graph, x: graph.call_function(identity, ([value],))  # noqa: E731
    try:
        result = run(torch.fx, build, 0)
    except (SyntaxError, NameError, AttributeError):
        result = None
    assert result is None or result[0] is not value
    assert run(corsac.fx, build, 0)[0] is value


@row("a callable without `__name__`")
def test_callables_without_a_name() -> None:
    class Adder:
        def __call__(self, x: int) -> int:
            return x + 1

    build = lambda graph, x: graph.call_function(Adder(), (x,))  # noqa: E731
    with pytest.raises(AttributeError):
        source(torch.fx, build)
    assert run(corsac.fx, build, 1) == 2


@row("`additional_globals` that PyTorch defines")
def test_additional_globals() -> None:
    def globals_of(fx: ModuleType) -> dict[str, Any]:
        class Code(fx.graph.CodeGen):
            def additional_globals(self) -> list[tuple[str, Any]]:
                return [("relu_of_mine", torch.nn.functional.relu), ("own", identity)]

        graph = fx.Graph()
        graph.output(graph.placeholder("x"))
        graph.set_codegen(Code())
        return graph.python_code("self").globals

    assert "own" in globals_of(torch.fx) and "relu_of_mine" not in globals_of(torch.fx)
    assert globals_of(corsac.fx)["relu_of_mine"] is torch.nn.functional.relu


@row("metadata with triple quotes or odd backslashes")
def test_metadata_with_quotes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FX_GRAPH_SHOW_META", "1")

    def build(graph: Any, x: Any) -> Any:
        node = graph.call_function(identity, (x,))
        node.meta["a"] = '"""\nevil()\n"""'
        return node

    with pytest.raises((SyntaxError, NameError)):
        run(torch.fx, build, 3)
    assert run(corsac.fx, build, 3) == 3
