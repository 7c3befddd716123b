"""Details of replacements: hooks, metadata, handles, attributes, names, errors."""

import copy
import gc
import operator
import weakref

import pytest
import torch
import torch.fx
import torch.fx.subgraph_rewriter
from torch import nn

import corsac.fx as fx
from corsac.fx import subgraph_rewriter
from corsac.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher
from corsac.fx.passes.utils.matcher_with_name_node_map_utils import SubgraphMatcherWithNameNodeMap

PACKAGES = (fx, torch.fx)


def chain(package, length=2):
    """relu and neg, several times over."""
    graph = package.Graph()
    x = graph.placeholder("x")
    for _ in range(length):
        x = graph.call_function(torch.relu, (x,))
        x = graph.call_function(torch.neg, (x,))
    graph.output(x)
    return package.GraphModule(nn.Module(), graph)


def pattern(x):
    return torch.neg(torch.relu(x))


def replacement(x):
    return torch.abs(x) * 2


@pytest.mark.parametrize("filters", [None, [lambda *_: True]])
def test_hooks_hear_of_the_same_events(filters):
    heard = []
    for package in PACKAGES:
        gm = chain(package)
        events = []
        gm._register_create_node_hook(lambda node, events=events: events.append(("new", str(node))))
        gm._register_erase_node_hook(lambda node, events=events: events.append(("gone", str(node))))
        gm._register_replace_node_hook(
            lambda old, new, user, events=events: events.append((str(old), new, str(user)))
        )
        package.subgraph_rewriter.replace_pattern_with_filters(gm, pattern, replacement, filters)
        heard.append((events, gm.code))
    assert heard[0] == heard[1]
    assert heard[0][0][:3] == [("new", "abs_1"), ("new", "mul"), ("neg", "mul", "relu_1")]


def test_metadata_of_the_replacement_is_copied():
    for filters in (None, [lambda *_: True]):
        results = []
        for package in PACKAGES:
            gm, new = chain(package), package.symbolic_trace(replacement)
            shared = ["shared"]
            new.graph.find_nodes(op="call_function", target=torch.abs)[0].meta["note"] = shared
            found = package.subgraph_rewriter.replace_pattern_with_filters(
                gm, pattern, new, filters
            )
            first, second = (match.replacements[0] for match in found)
            assert first.meta["note"] is shared and first.meta is not second.meta
            results.append([dict(node.meta) for node in gm.graph.nodes])
        assert results[0] == results[1]


class Layered(torch.nn.Module):
    """Values made in a submodule."""

    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        high, low = self.inner(x)
        return torch.cat([high, low])


class Inner(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x), torch.neg(torch.neg(x))


def high_and_low(x):
    return torch.relu(x), torch.neg(torch.neg(x))


def otherwise(x):
    return torch.abs(x) * torch.gt(x, 0), torch.add(torch.mul(x, 0), x)


@pytest.mark.parametrize("filters", [None, [lambda *_: True]])
def test_new_nodes_inherit_the_metadata_of_what_they_are_for(filters):
    tracer = fx.Tracer()
    tracer.record_stack_traces = True
    model = Layered()
    gm = fx.GraphModule(model, tracer.trace(model))
    before = {}
    for node in gm.graph.nodes:
        node.meta.update(mark=node.name, val=f"value of {node.name}", shared=node.op)
        before[node.name] = dict(node.meta)
    new = fx.symbolic_trace(otherwise)
    (gt,) = new.graph.find_nodes(op="call_function", target=torch.gt)
    gt.meta["shared"] = "the replacement's own"
    (found,) = fx.subgraph_rewriter.replace_pattern_with_filters(gm, high_and_low, new, filters)
    metas = {str(node): dict(node.meta) for node in found.replacements}
    assert list(metas) == ["abs_1", "gt", "mul", "mul_1", "add"]
    # Two results, for the two values that the match returned.
    assert metas["mul"] == before["relu"]
    assert metas["add"] == before["neg_1"]
    # Nodes before one of them have another value.
    assert metas["mul_1"] == {k: v for k, v in before["neg_1"].items() if k != "val"}
    assert metas["abs_1"] == {k: v for k, v in before["relu"].items() if k != "val"}
    assert metas["gt"] == metas["abs_1"] | {"shared": "the replacement's own"}
    assert "Inner" in str(metas["gt"]["nn_module_stack"]["inner"])
    assert metas["gt"]["stack_trace"] == before["relu"]["stack_trace"]
    assert all(node.source and "forward" in str(node.source) for node in found.replacements)


def test_the_module_call_is_known_to_new_nodes_before_anybody_looks_at_metadata():
    gm = fx.symbolic_trace(Layered())
    fx.replace_pattern(gm, high_and_low, otherwise)
    (add,) = gm.graph.find_nodes(op="call_function", target=torch.add)
    assert list(add.meta["nn_module_stack"]) == ["inner"]


def test_nodes_keep_their_handles_when_they_are_replaced():
    gm = chain(fx)
    before = {node.name: node for node in gm.graph.nodes}
    pattern_gm = fx.symbolic_trace(pattern)
    found = fx.replace_pattern(gm, pattern_gm, replacement)
    nodes = {node.name: node for node in pattern_gm.graph.nodes}
    assert [match.nodes_map[nodes["relu"]] for match in found] == [
        before["relu"],
        before["relu_1"],
    ]
    assert found[0].nodes_map[nodes["relu"]] is before["relu"]
    assert before["relu"]._erased and before["relu"].name == "relu"
    # The second match takes the result of the first.
    assert (
        found[1].nodes_map[nodes["x"]]
        is gm.graph.find_nodes(op="call_function", target=operator.mul)[0]
    )
    match, (anchor, nodes_map) = found[0], found[0]
    assert isinstance(match, tuple) and anchor is nodes["neg"] and nodes_map is match.nodes_map


def test_nothing_keeps_replaced_nodes_alive():
    gm = chain(fx)
    node = weakref.ref(gm.graph.find_nodes(op="call_function", target=torch.relu)[0])
    found = fx.replace_pattern(gm, pattern, replacement)
    assert node() is not None
    del found
    gc.collect()
    assert node() is None


def test_filters_and_callbacks_may_look_and_change():
    gm = chain(fx, 3)
    seen = []

    def accept(match, graph, pattern_graph):
        assert isinstance(match, InternalMatch) and graph is gm.graph
        seen.append([str(node) for node in match.returning_nodes])
        # The graph may be changed before the first replacement.
        match.placeholder_nodes[0].meta["seen"] = True
        return len(seen) != 2

    def make(match, graph, pattern_graph):
        with graph.inserting_before(match.returning_nodes[0]):
            scale = graph.call_function(torch.exp, (match.placeholder_nodes[0],))
        match.placeholder_nodes[0] = scale
        return fx.symbolic_trace(lambda x: torch.abs(x)).graph

    subgraph_rewriter.replace_pattern_with_filters(
        gm, pattern, match_filters=[accept], replacement_callback=make
    )
    gm.graph.lint()
    assert seen == [["neg"], ["neg_1"], ["neg_2"]]
    x = torch.tensor([2.0])
    assert torch.equal(gm(x), torch.exp(torch.neg(torch.relu(torch.exp(x)))).abs())


class Constant(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.c = value

    def forward(self, x):
        return x + self.c


def test_attributes_match_by_kind():
    tensor, parameter = torch.ones(1), nn.Parameter(torch.ones(1))
    for values, expected in [
        ((tensor, torch.zeros(2)), 1),
        ((tensor, parameter), 0),
        ((parameter, nn.Parameter(torch.zeros(3))), 1),
    ]:
        for package in PACKAGES:
            gm, wanted = (package.symbolic_trace(Constant(value)) for value in values)
            found = package.replace_pattern(gm, wanted, lambda x: x * 2)
            assert len(found) == expected


def test_attributes_without_a_module_are_refused():
    for package in PACKAGES:
        wanted = package.symbolic_trace(Constant(torch.ones(1))).graph
        wanted = copy.deepcopy(wanted)
        gm = package.symbolic_trace(Constant(torch.ones(1)))
        with pytest.raises(AssertionError):
            package.subgraph_rewriter.replace_pattern_with_filters(gm, wanted, lambda x: x * 2)


def test_a_failing_comparison_ends_the_search():
    class Touchy:
        def __eq__(self, other):
            raise ZeroDivisionError("do not compare me")

        __hash__ = object.__hash__

    for package in PACKAGES:
        graphs = []
        for _ in range(2):
            graph = package.Graph()
            graph.output(graph.call_function(torch.add, (graph.placeholder("x"), Touchy())))
            graphs.append(graph)
        matcher = package.passes.utils.matcher_utils.SubgraphMatcher(graphs[0])
        with pytest.raises(ZeroDivisionError):
            matcher.match(graphs[1])


def test_the_same_opaque_constant_matches():
    constant = torch.ones(2)
    graphs = []
    for value in (constant, constant, torch.ones(2)):
        graph = fx.Graph()
        graph.output(graph.call_function(torch.add, (graph.placeholder("x"), value)))
        graphs.append(graph)
    matcher = SubgraphMatcher(graphs[0])
    assert len(matcher.match(graphs[1])) == 1
    with pytest.raises(RuntimeError, match="ambiguous"):
        matcher.match(graphs[2])


def test_a_pattern_of_the_same_graph_is_refused():
    gm = chain(fx)
    before = str(gm.graph)
    with pytest.raises(RuntimeError, match="the pattern is the graph to be changed"):
        fx.replace_pattern(gm, gm, replacement)
    with pytest.raises(RuntimeError, match="the replacement is the graph to be changed"):
        fx.replace_pattern(gm, pattern, gm)
    assert str(gm.graph) == before


def test_what_cannot_be_searched_for_is_refused():
    empty = fx.Graph()
    with pytest.raises(ValueError, match="empty pattern"):
        SubgraphMatcher(empty)
    dead = fx.Graph()
    x = dead.placeholder("x")
    dead.call_function(torch.relu, (x,))
    dead.output(dead.call_function(torch.neg, (x,)))
    with pytest.raises(AssertionError, match="dead code: nothing uses relu"):
        SubgraphMatcher(dead)
    unused = fx.symbolic_trace(lambda x, unused: torch.relu(x))
    with pytest.raises(KeyError, match="unused"):
        fx.replace_pattern(chain(fx), unused, lambda x, unused: x)


def test_a_refused_replacement_changes_nothing():
    gm = chain(fx)
    before = str(gm.graph)
    for wrong, error in [
        (lambda x, y: x + y, AssertionError),
        (lambda x: (x, x), AssertionError),
        (lambda x: None, TypeError),
        (lambda x: {"a": torch.abs(x)}, TypeError),
    ]:
        with pytest.raises(error):
            fx.replace_pattern(gm, pattern, wrong)
        assert str(gm.graph) == before


def test_users_that_would_come_too_early_are_moved():
    def program(x, y):
        a = torch.relu(x)
        early = torch.sigmoid(a)
        return early, a + torch.tanh(y)

    def two_values(x, y):
        a = torch.relu(x)
        return a, a + y

    gm = fx.symbolic_trace(program)
    fx.replace_pattern(gm, two_values, lambda x, y: (torch.abs(x), torch.abs(x) * y))
    gm.graph.lint()
    x, y = torch.tensor([-1.0]), torch.tensor([0.5])
    assert torch.equal(gm(x, y)[0], torch.sigmoid(x.abs()))
    assert torch.equal(gm(x, y)[1], x.abs() * torch.tanh(y))


def test_nodes_can_be_asked_for_by_name():
    def named(x):
        relu = torch.relu(x)
        return torch.neg(relu), {"inner": relu}

    gm = chain(fx)
    matcher = SubgraphMatcherWithNameNodeMap(fx.symbolic_trace(named))
    matches = matcher.match(gm.graph)
    assert [match.name_node_map["inner"].name for match in matches] == ["relu", "relu_1"]
    for wrong in (lambda x: torch.neg(x), lambda x: (torch.neg(x),), lambda x: (x, torch.neg(x))):
        with pytest.raises(AssertionError, match="pattern"):
            SubgraphMatcherWithNameNodeMap(fx.symbolic_trace(wrong))
