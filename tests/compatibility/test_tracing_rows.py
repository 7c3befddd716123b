"""The rows of docs/compatibility.md about graphs, nodes and tracing."""

from __future__ import annotations

import builtins
import contextlib
import copy
import functools
import importlib
import math
import operator
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import torch.fx
from torch import nn

import corsac.fx
from kit import row

PACKAGES = (torch.fx, corsac.fx)


def relu_graph(fx: ModuleType) -> tuple[Any, Any, Any]:
    """A graph, its input and the call of relu."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    relu = graph.call_function(torch.relu, (x,))
    graph.output(relu)
    return graph, x, relu


# Graphs and nodes ----------------------------------------------------------------------------------


@row("The type of `Node.users`")
def test_users() -> None:
    _, theirs, _ = relu_graph(torch.fx)
    graph, ours, relu = relu_graph(corsac.fx)
    assert type(theirs.users) is dict and type(ours.users) is not dict
    users = ours.users
    neg = graph.call_function(torch.neg, (ours,))
    assert list(users) == [relu, neg]
    with pytest.raises(TypeError):
        users[neg] = None


@row("The opcode `root`")
def test_the_opcode_root() -> None:
    graph = torch.fx.Graph()
    graph.create_node("root", "x")
    with pytest.raises(NotImplementedError):
        graph.python_code("self")
    with pytest.raises((ValueError, AssertionError)):
        corsac.fx.Graph().create_node("root", "x")


@row("Arguments that are no tuple or dict")
def test_arguments_that_are_no_tuple() -> None:
    _, _, relu = relu_graph(torch.fx)
    relu.args = 3
    relu.kwargs = None
    graph, x, relu = relu_graph(corsac.fx)
    before = str(graph)
    with pytest.raises(TypeError):
        relu.args = 3
    with pytest.raises(TypeError):
        relu.kwargs = None
    assert str(graph) == before and relu.args == (x,)


@row("`Node.insert_arg`")
def test_insert_arg() -> None:
    kinds = []
    for fx in PACKAGES:
        graph, x, relu = relu_graph(fx)
        y = graph.create_node("placeholder", "y")
        cat = graph.call_function(torch.cat, ((relu, x),))
        cat.insert_arg(0, [y])
        inserted = cat.args[0]
        try:
            inserted.append(1)
            mutable = True
        except (TypeError, NotImplementedError):
            mutable = False
        kinds.append((mutable, [node.name for node in cat.all_input_nodes]))
    assert kinds == [(True, ["relu", "x", "y"]), (False, ["y", "relu", "x"])]


@row("Nodes of torch.fx as arguments")
def test_nodes_of_the_other_package() -> None:
    _, theirs, _ = relu_graph(torch.fx)
    _, ours, _ = relu_graph(corsac.fx)
    constant = torch.fx.Graph().call_function(torch.relu, (ours,))
    assert constant.all_input_nodes == []
    with pytest.raises(TypeError, match="from_torch"):
        corsac.fx.Graph().call_function(torch.relu, (theirs,))


@row("Graph modules of torch.fx, such as those of `torch.export`")
def test_graph_modules_of_torch_export() -> None:
    gm = torch.export.export(
        nn.Sequential(nn.Linear(2, 2), nn.ReLU()), (torch.ones(1, 2),)
    ).module()
    layers = [nn.Linear, nn.ReLU]

    def found(fx: ModuleType, gm: Any) -> list[int]:
        matching = importlib.import_module(f"{fx.__name__}.passes.utils.source_matcher_utils")
        return [len(own) for own in matching.get_source_partitions(gm.graph, layers).values()]

    assert found(torch.fx, gm) == [1, 1]
    with pytest.raises(TypeError, match=r"convert it with corsac\.fx\.from_torch"):
        found(corsac.fx, gm)
    assert found(corsac.fx, corsac.fx.from_torch(gm)) == [1, 1]


@row("Nodes of another graph as arguments")
def test_nodes_of_another_graph() -> None:
    _, x, _ = relu_graph(torch.fx)
    graph = torch.fx.Graph()
    graph.output(graph.call_function(torch.relu, (x,)))
    with pytest.raises(RuntimeError):
        graph.lint()
    _, x, _ = relu_graph(corsac.fx)
    with pytest.raises(RuntimeError):
        corsac.fx.Graph().call_function(torch.relu, (x,))


@row("Nodes made by their class")
def test_nodes_made_by_their_class() -> None:
    found = []
    for fx in PACKAGES:
        graph, x, _ = relu_graph(fx)
        node = fx.Node(graph, "own", "call_function", torch.neg, (x,), {})
        found.append(node in list(graph.nodes))
    assert found == [False, True]


@row("`Graph.output_node` of an empty graph")
def test_output_node_of_an_empty_graph() -> None:
    with pytest.raises(StopIteration):
        torch.fx.Graph().output_node()
    with pytest.raises(AssertionError):
        corsac.fx.Graph().output_node()


@row("Copies of graphs")
def test_shallow_copies_of_graphs() -> None:
    shared = []
    for fx in PACKAGES:
        graph, _x, relu = relu_graph(fx)
        relu.meta["mark"] = mark = ["mark"]
        relu.own = "attribute"
        again = copy.copy(graph)
        (same,) = [node for node in again.nodes if node.target is torch.relu]
        assert same.meta["mark"] is mark and same.own == "attribute"
        shared.append(same is relu)
    assert shared == [True, False]


@row("Copies of nodes")
def test_copies_of_nodes() -> None:
    graph, _x, relu = relu_graph(torch.fx)
    assert copy.copy(relu) is not relu and copy.copy(relu) not in list(graph.nodes)
    other, (node,) = copy.deepcopy((graph, [relu]))
    assert node not in list(other.nodes)
    graph, _x, relu = relu_graph(corsac.fx)
    relu.own = ["attribute"]
    assert copy.copy(relu) is relu
    other, (node,) = copy.deepcopy((graph, [relu]))
    assert node in list(other.nodes) and node is not relu and node.own == ["attribute"]


# Tracing -------------------------------------------------------------------------------------------


@row("Item assignment on a proxy")
def test_item_assignment() -> None:
    def program(x):
        x = x + 1
        x[0] = 5
        return x

    with pytest.raises(TypeError):
        torch.fx.symbolic_trace(program)
    gm = corsac.fx.symbolic_trace(program)
    assert operator.setitem in [node.target for node in gm.graph.nodes]
    assert torch.equal(gm(torch.zeros(2)), program(torch.zeros(2)))


@row("Defaults beside a tree of inputs")
def test_defaults_beside_a_tree_of_inputs() -> None:
    def program(x, y=2):
        return x["a"] + y

    concrete = {"x": {"a": torch.fx.PH}}
    with pytest.raises(SyntaxError):
        torch.fx.symbolic_trace(program, concrete_args=concrete)({"a": 1}, 3)
    gm = corsac.fx.symbolic_trace(program, concrete_args={"x": {"a": corsac.fx.PH}})
    assert gm({"a": 1}, 3) == 4


@contextlib.contextmanager
def isolated_torch_fx() -> Iterator[None]:
    """Restores what overlapping traces of torch.fx leave patched."""
    wrapped = {
        place: names[place[1]]
        for place, names in torch.fx._symbolic_trace._wrapped_fns_to_patch.items()
        if place[1] in names
    }
    functions = [(module, dict(vars(module))) for module in (math, builtins)]
    calls, lookup = nn.Module.__call__, nn.Module.__getattr__
    try:
        yield
    finally:
        nn.Module.__call__, nn.Module.__getattr__ = calls, lookup
        for place, function in wrapped.items():
            torch.fx._symbolic_trace._wrapped_fns_to_patch[place][place[1]] = function
        for module, names in functions:
            vars(module).update(names)


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.ReLU() for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@row("two threads that trace at once")
def test_two_threads_that_trace_at_once() -> None:
    def traces(fx: ModuleType) -> list[Any]:
        """Traces of two overlapping threads, of which the first ends first."""
        results: list[Any] = [None, None]
        first_inside, second_inside, first_done = (threading.Event() for _ in range(3))

        def first(x):
            first_inside.set()
            second_inside.wait(30)
            return x.relu()

        class Second(Deep):
            def forward(self, x):
                second_inside.set()
                first_done.wait(30)
                return super().forward(x)

        def attempt(place: int, program: Any) -> None:
            try:
                results[place] = len(fx.Tracer().trace(program).nodes)
            except Exception as error:
                results[place] = error

        threads = [
            threading.Thread(target=attempt, args=own) for own in ((0, first), (1, Second()))
        ]
        threads[0].start()
        first_inside.wait(30)
        threads[1].start()
        threads[0].join()
        first_done.set()
        threads[1].join()
        return results

    assert traces(corsac.fx) == [3, 6]
    with isolated_torch_fx():
        assert traces(torch.fx) != [3, 6]


def doubled(x):
    return x + x


torch.fx.wrap("doubled")


@row("a function registered with `wrap`, called in a thread that does not trace")
def test_wrapped_functions_in_other_threads() -> None:
    def targets(fx: ModuleType) -> list[str]:
        names: list[str] = []

        def elsewhere():
            graph = fx.Graph()
            doubled(fx.Proxy(graph.placeholder("x")))
            names.extend(node.name for node in graph.nodes)

        def program(x):
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            return doubled(x)

        fx.Tracer().trace(program)
        return names

    assert targets(torch.fx) == ["x", "doubled"]
    assert targets(corsac.fx) == ["x", "add"]


@row("a `GraphAppendingTracer` that shares its graph")
def test_two_tracers_of_one_graph() -> None:
    def node_names(fx: ModuleType) -> list[str]:
        graph = fx.Graph()
        values = [
            fx.Proxy(graph.placeholder(name), fx.proxy.GraphAppendingTracer(graph)) for name in "xy"
        ]
        torch.add(*values)
        return [node.name for node in graph.nodes]

    with pytest.raises(RuntimeError, match="tracer"):
        node_names(torch.fx)
    assert node_names(corsac.fx) == ["x", "y", "add"]


@row("values of two graphs in one operation")
def test_values_of_two_graphs() -> None:
    def graph_of_sum(fx: ModuleType) -> Any:
        values = [fx.Proxy(fx.Graph().placeholder(name)) for name in "xy"]
        return (values[0] + values[1]).node.graph

    with pytest.raises(RuntimeError):
        graph_of_sum(torch.fx).lint()
    with pytest.raises(RuntimeError, match="graph"):
        graph_of_sum(corsac.fx)


@row("`assert` with `trace_asserts`")
def test_asserts() -> None:
    # Compiled here, since pytest replaces the assert statements of a test module.
    names: dict[str, Any] = {}
    exec("def program(x):\n    assert x.shape[0] == 2, 'two'\n    return x\n", names)

    def asserts(fx: ModuleType) -> list[Any]:
        class Asserting(fx.Tracer):
            trace_asserts = True

        graph = Asserting().trace(names["program"])
        return [node for node in graph.nodes if node.target is torch.fx.proxy.assert_fn]

    with pytest.raises(torch.fx.proxy.TraceError):
        asserts(torch.fx)
    assert len(asserts(corsac.fx)) == 1


@row("`replace_pattern` and the passes of `corsac.passes` on a graph")
def test_targets_that_do_not_fit_the_opcode() -> None:
    def replace(fx: ModuleType) -> Any:
        gm = fx.GraphModule(nn.Module(), relu_graph(fx)[0])
        (relu,) = gm.graph.find_nodes(op="call_function", target=torch.relu)
        relu.target = "neg"
        fx.replace_pattern(gm, lambda x: x + 1, lambda x: x + 2)

    with pytest.raises(AssertionError) as theirs:
        replace(torch.fx)
    assert "relu" not in str(theirs.value)
    with pytest.raises(ValueError, match="node relu: its target does not fit its opcode"):
        replace(corsac.fx)


def uses_range(x):
    return [x + i for i in range(x.shape[0])]


def uses_int(x):
    return x * int(x)


def uses_index(x):
    return [1, 2, 3][x]


def uses_numpy(x):
    return np.sin(x)


def branches(x):
    return x if x.sum() > 0 else -x


@row("messages of errors")
@pytest.mark.parametrize("program", [uses_range, uses_int, uses_index, uses_numpy, branches])
def test_messages_of_errors(program: Any) -> None:
    with pytest.raises(Exception) as theirs:
        torch.fx.symbolic_trace(program)
    with pytest.raises(corsac.fx.proxy.TraceError) as ours:
        corsac.fx.symbolic_trace(program)
    assert isinstance(ours.value, (type(theirs.value), torch.fx.proxy.TraceError))
    first, *rest = str(ours.value).splitlines()
    if isinstance(theirs.value, torch.fx.proxy.TraceError):
        assert str(theirs.value).splitlines() == [first]
    text = "\n".join(rest)
    line = program.__code__.co_firstlineno + 1
    assert f'at: File "{__file__}", line {line}, in {program.__name__}' in text
    assert "value: %" in text and "try: " in text


def hiding(function):
    """A decorator that hides the parameters of a function."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@row("a decorated function with parameters by keyword only")
def test_decorated_functions() -> None:
    @hiding
    def program(x, y, *, scale, offset=1):
        return x * scale + offset * y

    with pytest.raises(ValueError, match="co_varnames is too small"):
        torch.fx.symbolic_trace(program)
    assert corsac.fx.symbolic_trace(program)(2, 3, 4, 5) == 23

    @hiding
    def hidden(x, *rest, **named):
        return x

    with pytest.raises(ValueError, match="co_varnames is too small") as raised:
        corsac.fx.symbolic_trace(hidden)
    assert "without its decorator" in str(raised.value)


@row("`type(proxy)` and `proxy.__class__`")
def test_classes_of_proxies() -> None:
    theirs, ours = (fx.Proxy(relu_graph(fx)[1]) for fx in PACKAGES)
    assert type(theirs) is theirs.__class__
    assert type(ours) is not ours.__class__
    assert isinstance(ours, torch.fx.Proxy) and isinstance(ours, corsac.fx.Proxy)
    assert issubclass(ours.__class__, torch.fx.Proxy) and issubclass(
        ours.__class__, corsac.fx.Proxy
    )


@row("`vars(proxy)`")
def test_vars_of_proxies() -> None:
    theirs, ours = (fx.Proxy(relu_graph(fx)[1]) for fx in PACKAGES)
    assert {"node", "tracer"} <= set(vars(theirs))
    assert vars(ours) == {}
    ours.own = 1
    assert vars(ours) == {"own": 1}


@row("`node.stack_trace` with `record_stack_traces`")
def test_stack_traces() -> None:
    def trace(fx: ModuleType) -> str:
        tracer = fx.Tracer()
        tracer.record_stack_traces = True
        (relu,) = [n for n in tracer.trace(Deep()).nodes if n.target == "layers.0"]
        return relu.stack_trace

    theirs, ours = trace(torch.fx), trace(corsac.fx)
    assert "torch/fx" in theirs or "_symbolic_trace" in theirs
    assert "/fx/" not in ours and "in forward" in ours


@row("how `Module.__call__` and `__getattr__` are watched")
def test_how_modules_are_watched() -> None:
    def replaced(fx: ModuleType) -> tuple[bool, bool]:
        before, code = nn.Module.__call__, nn.Module.__call__.__code__
        seen = []

        def program(x):
            seen.append((nn.Module.__call__ is before, before.__code__ is code))
            return x

        fx.Tracer().trace(program)
        assert nn.Module.__call__ is before and before.__code__ is code
        return seen[0]

    assert replaced(torch.fx) == (False, True)
    assert replaced(corsac.fx) == (True, False)
