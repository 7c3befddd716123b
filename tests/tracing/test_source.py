"""Source locations of nodes, and messages for programs that cannot be recorded."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import corsac.fx
from corsac.fx.proxy import TraceError


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2, 2)

    def forward(self, x):
        y = self.lin(x)
        return F.relu(
            y + 1,
        )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x).sum()


def line_of(text, function):
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def test_every_node_knows_its_line_function_and_module():
    graph = corsac.fx.Tracer().trace(Net())
    sources = {node.name: node.source for node in graph.nodes}
    assert {source.file for source in sources.values()} == {__file__}
    assert {name: (s.line, s.function, s.module) for name, s in sources.items()} == {
        "x": (line_of("def forward", Net.forward), "Net.forward", ""),
        "block_lin": (line_of("self.lin(x)", Block.forward), "Block.forward", "block.lin"),
        "add": (line_of("y + 1", Block.forward), "Block.forward", "block"),
        "relu": (line_of("F.relu", Block.forward), "Block.forward", "block"),
        "sum_1": (line_of("sum()", Net.forward), "Net.forward", ""),
        "output": (line_of("def forward", Net.forward), "Net.forward", ""),
    }
    line = sources["add"].line
    text = f'File "{__file__}", line {line}, in Block.forward (module block)'
    assert str(sources["add"]) == text


def test_a_node_made_by_hand_has_no_source():
    graph = corsac.fx.Graph()
    x = graph.placeholder("x")
    assert x.source is None
    y = corsac.fx.Proxy(x) + 1
    assert y.node.source.function.endswith("test_a_node_made_by_hand_has_no_source")


def test_sources_survive_copies():
    graph = corsac.fx.Tracer().trace(Net())
    copied = corsac.fx.Graph()
    copied.graph_copy(graph, {})
    add = next(node for node in copied.nodes if node.name == "add")
    assert add.source.function == "Block.forward" and add.source.module == "block"


def test_sources_survive_as_text():
    graph = corsac.fx.Tracer().trace(Net())
    read = corsac.fx.Graph.parse(graph.to_lossless())
    assert [node.source for node in read.nodes] == [node.source for node in graph.nodes]


def test_text_whose_source_nobody_knows_has_none():
    text = "graph v1:\n    extern @0\n    %x : [num_users=0] = placeholder[target=x] at @0:-1\n"
    (x,) = corsac.fx.Graph.parse(text).nodes
    assert x.source is None


def branch(x):
    y = x.sum()
    if y > 0:
        return x
    return -x


def loop(x):
    return [row for row in x]


def length(x):
    return range(len(x))


OTHER = nn.Linear(2, 2)


class Foreign(nn.Module):
    def __init__(self):
        super().__init__()
        self.others = [OTHER]

    def forward(self, x):
        return self.others[0](x)


class ForeignParameter(Foreign):
    def forward(self, x):
        return x + self.others[0].weight


@pytest.mark.parametrize(
    ("root", "error", "first", "line", "others"),
    [
        (
            branch,
            TraceError,
            "symbolically traced variables cannot be used as inputs to control flow",
            "if y > 0",
            ["call_function[target=operator.gt]", "torch.where", "concrete_args"],
        ),
        (loop, TraceError, "Proxy object cannot be iterated", "for row in x", ["%x", "fx.wrap"]),
        (
            length,
            RuntimeError,
            "'len' is not supported in symbolic tracing by default",
            "len(x)",
            ["%x", "x.shape[0]"],
        ),
        (
            Foreign(),
            NameError,
            "module is not installed as a submodule",
            "self.others[0](x)",
            ["Linear", "assign it to an attribute"],
        ),
        (
            ForeignParameter(),
            NameError,
            "parameter is not a member of this module",
            "self.others[0].weight",
            ["assign it to an attribute"],
        ),
        (
            lambda x: x.foo({1}),
            NotImplementedError,
            "argument of type: <class 'set'>",
            "x.foo({1})",
            ["create_arg"],
        ),
    ],
)
def test_errors_say_where_what_and_what_to_try(root, error, first, line, others):
    function = type(root).forward if isinstance(root, nn.Module) else root
    with pytest.raises(error) as caught:
        corsac.fx.Tracer().trace(root)
    message = str(caught.value)
    assert message.startswith(first)
    assert f'File "{__file__}", line {line_of(line, function)}' in message
    for text in others:
        assert text in message
    assert "try: " in message


def test_trace_errors_are_those_of_torch_fx():
    with pytest.raises(torch.fx.proxy.TraceError):
        corsac.fx.symbolic_trace(branch)
