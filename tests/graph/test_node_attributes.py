"""Attributes of nodes: opcode, target and user attributes, read directly."""

from __future__ import annotations

import gc
import operator
import types
import weakref

import pytest
import torch
import torch.fx

import corsac.fx
import corsac.fx.experimental.optimization
import corsac.optimum
import corsac.passes

ENGINES = pytest.mark.parametrize("fx", [torch.fx, corsac.fx], ids=["torch.fx", "corsac.fx"])


def one_call(fx):
    graph = fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(torch.relu, (x,))
    graph.output(node)
    return graph, node


@ENGINES
@pytest.mark.parametrize("name", ["op", "target"])
def test_the_interpreter_reads_them_without_a_call(fx, name):
    # CPython specialises reads of slots in classes without __getattr__.
    assert isinstance(getattr(fx.Node, name), types.MemberDescriptorType)
    assert not hasattr(fx.Node, "__getattr__")


def test_what_is_assigned_is_read_and_is_in_the_graph():
    graph, node = one_call(corsac.fx)
    node.target = torch.neg
    assert node.target is torch.neg
    assert "target=torch.neg" in str(graph)
    node.op = "call_method"
    assert (node.op, node.target) == ("call_method", torch.neg)
    node.target = "neg"
    assert (node.op, node.target) == ("call_method", "neg")
    assert "call_method[target=neg]" in str(graph)
    assert graph.find_nodes(op="call_method", target="neg") == [node]


@ENGINES
def test_half_a_change_makes_no_program(fx):
    graph = fx.GraphModule(torch.nn.Module(), one_call(fx)[0]).graph
    (node,) = graph.find_nodes(op="call_function", target=torch.relu)
    node.target = "neg"
    with pytest.raises(AssertionError, match="target"):
        graph.python_code("self")
    with pytest.raises(ValueError, match="target"):
        graph.lint()
    if fx is corsac.fx:
        with pytest.raises(ValueError, match="node relu: its target does not fit its opcode"):
            corsac.passes.remove_dropout(graph)
    node.op = "call_method"
    graph.lint()
    assert "relu = x.neg()" in graph.python_code("self").src


def test_what_is_refused_changes_nothing():
    graph, node = one_call(corsac.fx)
    before = str(graph)
    with pytest.raises(AssertionError, match="op 'call' is not in _legal_ops"):
        node.op = "call"
    with pytest.raises(AttributeError):
        del node.op
    with pytest.raises(AttributeError):
        del node.target
    assert (node.op, node.target, str(graph)) == ("call_function", torch.relu, before)


def check_targets(graph):
    for node in graph.nodes:
        if node.op not in ("output", "placeholder"):
            assert (
                f"{node.op}[target={node._pretty_print_target(node.target)}]" in node.format_node()
            )


class Layers(torch.nn.Module):
    """A program that every pass which changes targets affects."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.weight = torch.nn.Parameter(torch.rand(2, 4))
        self.q, self.k = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        x = torch.relu(self.conv(x) + 1).mean((2, 3))
        y = torch.add(self.q(x), self.k(x)) / 4
        return torch.nn.functional.linear(y.tanh(), self.weight)


@pytest.mark.parametrize(
    "run",
    [
        corsac.passes.functions_to_operators,
        corsac.passes.functions_to_modules,
        corsac.passes.modules_to_functions,
        corsac.passes.reinplace,
        corsac.optimum.MergeLinears(),
        corsac.optimum.ChangeTrueDivToMulByInverse(),
    ],
    ids=lambda run: getattr(run, "__name__", type(run).__name__),
)
def test_targets_of_nodes_that_python_has_are_renewed(run):
    gm = corsac.fx.symbolic_trace(Layers().eval())
    before = [(node, node.op, node.target) for node in gm.graph.nodes]
    run(gm)
    check_targets(gm.graph)
    in_graph = set(gm.graph.nodes)
    assert any(
        (node.op, node.target) != (op, target) for node, op, target in before if node in in_graph
    )


def test_targets_are_renewed_on_the_way_to_onednn():
    fast = corsac.fx.experimental.optimization.optimize_for_inference(Layers().eval())
    check_targets(fast.graph)
    modules = dict(fast.named_modules())
    called = [node.target for node in fast.graph.nodes if node.op == "call_module"]
    assert called
    assert all(target in modules for target in called)


def test_what_passes_change_is_read():
    def forward(x):
        return torch.add(x, 1) / 4

    gm = corsac.fx.symbolic_trace(forward)
    calls = [node for node in gm.graph.nodes if node.op == "call_function"]
    assert [node.target for node in calls] == [torch.add, operator.truediv]
    corsac.passes.functions_to_operators(gm)
    assert calls[0].target is operator.add
    corsac.optimum.ChangeTrueDivToMulByInverse()(gm)
    assert calls[1].target is operator.mul
    check_targets(gm.graph)


@ENGINES
def test_attributes_of_ones_own_are_ordinary(fx):
    _, node = one_call(fx)
    assert not hasattr(node, "color")
    with pytest.raises(AttributeError, match="'Node' object has no attribute 'color'"):
        _ = node.color
    with pytest.raises(AttributeError):
        del node.color
    node.color = 3
    assert node.color == 3
    assert vars(node)["color"] == 3
    assert "color" in dir(node)
    del node.color
    assert not hasattr(node, "color")
    vars(node)["size"] = 4
    assert node.size == 4
    assert type(node) is fx.Node


@ENGINES
def test_a_function_that_prints_the_node(fx):
    _, node = one_call(fx)
    assert node._repr_fn is None
    node._repr_fn = lambda node: f"<{node.name}>"
    assert repr(node) == "<relu>"
    node._repr_fn = None
    assert repr(node) == "relu"


@ENGINES
def test_cycles_through_attributes_and_targets_are_collected(fx):
    class Callable:
        __name__ = __qualname__ = "callable"

        def __call__(self, x):
            return x

    def build():
        target = Callable()
        graph = fx.Graph()
        node = graph.call_function(target, (graph.placeholder("x"),))
        target.node = node
        node.itself = node
        return weakref.ref(target), weakref.ref(node)

    references = build()
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_an_erased_node_with_attributes_is_collected():
    graph, node = one_call(corsac.fx)
    assert len(node.users) == 1  # the view and the node hold each other
    node.itself = node
    graph.erase_node(graph.output_node())
    graph.erase_node(node)
    assert node.target is torch.relu
    reference = weakref.ref(node)
    del node
    gc.collect()
    assert reference() is None


def test_handles_are_made_while_the_collector_runs():
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        graph = corsac.fx.Graph()
        y = graph.placeholder("x")
        for count in range(300):
            y = graph.call_function(torch.relu, (y,))
            y.count = count
        graph.output(y)
        assert [n.count for n in graph.nodes if n.op == "call_function"] == list(range(300))
    finally:
        gc.set_threshold(*threshold)


def test_iteration_sees_what_changes_ahead_of_it():
    graph = corsac.fx.Graph()
    y = graph.placeholder("x")
    calls = [y := graph.call_function(torch.relu, (y,)) for _ in range(100)]
    graph.output(y)
    seen = []
    for node in graph.nodes:
        seen.append(node)
        if node is calls[40]:
            with graph.inserting_after(calls[42]):
                inserted = graph.call_function(torch.neg, (calls[42],))
            calls[44].replace_all_uses_with(calls[43])
            graph.erase_node(calls[44])
            calls[60].append(calls[46])
    expected = [*graph.nodes]
    assert seen == expected
    assert inserted in seen
    assert calls[44] not in seen
    assert [*reversed(graph.nodes)] == expected[::-1]


def test_iterators_do_not_keep_a_graph_alive_that_nobody_has():
    graph, node = one_call(corsac.fx)
    node.iterator = iter(graph.nodes)
    next(node.iterator), next(node.iterator)
    reference = weakref.ref(node)
    del graph, node
    gc.collect()
    assert reference() is None
