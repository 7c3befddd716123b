"""The rows of docs/compatibility.md about matching and replacing."""

from __future__ import annotations

import operator
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.fx
import torch.fx.subgraph_rewriter
from torch.fx.passes.utils import matcher_utils as torch_matcher

import corsac.fx
from corsac.fx.passes.utils import matcher_utils
from kit import row


def chain(fx: ModuleType, calls: int = 1) -> Any:
    """relu and neg, several times over."""

    def program(x):
        for _ in range(calls):
            x = torch.neg(torch.relu(x))
        return x

    return fx.symbolic_trace(program)


def neg_of_relu(x):
    return torch.neg(torch.relu(x))


def is_ordered(graph: Any) -> bool:
    """Whether every value is computed before it is used."""
    seen: set[Any] = set()
    for node in graph.nodes:
        if any(used not in seen for used in node.all_input_nodes):
            return False
        seen.add(node)
    return True


@row("one of several values that a pattern returns has no like")
def test_one_result_without_a_like() -> None:
    def wanted(x):
        return torch.relu(x), torch.neg(x)

    for fx, fails in ((torch.fx, True), (corsac.fx, False)):
        gm = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
        if fails:
            with pytest.raises(KeyError):
                fx.replace_pattern(gm, wanted, lambda x: (x + 1, x + 2))
        else:
            assert fx.replace_pattern(gm, wanted, lambda x: (x + 1, x + 2)) == []


@row("the first user of a replaced value comes before an input")
def test_users_before_inputs_of_the_replacement() -> None:
    def program(x, y):
        a = torch.relu(x)
        early = torch.sigmoid(a)
        return early, a + torch.tanh(y)

    def two_values(x, y):
        a = torch.relu(x)
        return a, a + y

    graphs = []
    for fx in (torch.fx, corsac.fx):
        gm = fx.symbolic_trace(program)
        fx.replace_pattern(gm, two_values, lambda x, y: (torch.abs(x), torch.abs(x) * y))
        graphs.append(gm.graph)
    assert not is_ordered(graphs[0]) and is_ordered(graphs[1])


def parameter_and_result(x):
    return x, torch.relu(x)


@row("a pattern that returns one of its own parameters")
def test_patterns_that_return_a_parameter() -> None:
    own_inputs = []
    for fx in (torch.fx, corsac.fx):
        gm = fx.symbolic_trace(lambda x: torch.relu(torch.sigmoid(x)))
        fx.replace_pattern(gm, parameter_and_result, lambda x: (torch.abs(x), torch.neg(x)))
        own_inputs.append([node.name for node in gm.graph.nodes if node in node.all_input_nodes])
        result = gm
    assert own_inputs[0] and not own_inputs[1]
    x = torch.tensor([0.5])
    assert torch.equal(result(x), -torch.sigmoid(x))


@row("the same, where another input of the match depends")
def test_replacements_that_would_be_cycles() -> None:
    def wanted(x, y):
        return x, x + y

    def instead(x, y):
        return x * y, x - y

    for fx in (torch.fx, corsac.fx):
        gm = fx.symbolic_trace(lambda x: operator.add(x, torch.relu(x)))
        before = str(gm.graph)
        if fx is torch.fx:
            fx.replace_pattern(gm, wanted, instead)
            assert not is_ordered(gm.graph)
        else:
            with pytest.raises(RuntimeError):
                fx.replace_pattern(gm, wanted, instead)
            assert str(gm.graph) == before


@row("a replacement that returns a dictionary")
def test_replacements_that_return_a_dictionary() -> None:
    def instead(x):
        return {"a": torch.abs(x)}

    gm = chain(torch.fx)
    torch.fx.replace_pattern(gm, neg_of_relu, instead)
    (output,) = gm.graph.find_nodes(op="output")
    assert output.args == ("a",)
    with pytest.raises(TypeError, match="dict"):
        corsac.fx.replace_pattern(chain(corsac.fx), neg_of_relu, instead)


@row("a replacement with the wrong number of parameters or results")
def test_replacements_of_another_form() -> None:
    def instead(x):
        return torch.abs(x), torch.exp(x)

    nodes = []
    for fx in (torch.fx, corsac.fx):
        gm = chain(fx)
        with pytest.raises(AssertionError):
            fx.replace_pattern(gm, neg_of_relu, instead)
        nodes.append([node.name for node in gm.graph.nodes])
    assert "abs_1" in nodes[0]
    assert nodes[1] == ["x", "relu", "neg", "output"]


@row("the graph itself as pattern or replacement")
def test_the_graph_itself() -> None:
    gm = chain(torch.fx)
    before = str(gm.graph)
    with pytest.raises(KeyError):
        torch.fx.replace_pattern(gm, gm, neg_of_relu)
    assert str(gm.graph) != before
    gm = chain(corsac.fx)
    before = str(gm.graph)
    for pattern, replacement in ((gm, neg_of_relu), (neg_of_relu, gm)):
        with pytest.raises(RuntimeError, match="is the graph to be changed"):
            corsac.fx.replace_pattern(gm, pattern, replacement)
    assert str(gm.graph) == before


@row("an opaque constant (a tensor, an object)")
def test_opaque_constants() -> None:
    constant = torch.ones(2)

    def matches(fx: ModuleType, matcher: Any) -> Any:
        graphs = []
        for _ in range(2):
            graph = fx.Graph()
            graph.output(graph.call_function(torch.add, (graph.placeholder("x"), constant)))
            graphs.append(graph)
        return matcher(graphs[0]).match(graphs[1])

    with pytest.raises(RuntimeError, match="ambiguous"):
        matches(torch.fx, torch_matcher.SubgraphMatcher)
    assert len(matches(corsac.fx, matcher_utils.SubgraphMatcher)) == 1


@row("metadata of the nodes that `replace_pattern` adds")
def test_metadata_of_new_nodes() -> None:
    metas = []
    for fx in (torch.fx, corsac.fx):
        gm = chain(fx)
        for node in gm.graph.nodes:
            node.meta.update(mark=node.name, val=node.name)
        fx.replace_pattern(gm, neg_of_relu, lambda x: torch.exp(torch.abs(x)))
        metas.append({node.name: dict(node.meta) for node in gm.graph.nodes})
    assert "mark" not in metas[0]["exp"] and "mark" not in metas[0]["abs_1"]
    assert metas[1]["exp"] == {"mark": "neg", "val": "neg"} | {
        key: value for key, value in metas[1]["exp"].items() if key not in ("mark", "val")
    }
    assert metas[1]["abs_1"]["mark"] == "neg" and "val" not in metas[1]["abs_1"]


@row("whether fusing a match makes a cycle, in a graph that is out of order")
def test_cycles_in_graphs_out_of_order() -> None:
    def wanted(x, y):
        relu = torch.relu(x)
        return relu, torch.add(relu, y)

    matches = []
    for fx, matcher in ((torch.fx, torch_matcher), (corsac.fx, matcher_utils)):
        # The path from relu to add includes neg, which is not in the match.
        gm = fx.symbolic_trace(lambda x: torch.add(torch.relu(x), torch.neg(torch.relu(x))))
        relu, second, neg, add = list(gm.graph.nodes)[1:5]
        second.replace_all_uses_with(relu)
        gm.graph.erase_node(second)
        search = matcher.SubgraphMatcher(fx.symbolic_trace(wanted).graph)
        matches.append(len(search.match(gm.graph)))
        add.append(neg)
        matches.append(len(search.match(gm.graph)))
    assert matches == [0, 0, 0, 1]
