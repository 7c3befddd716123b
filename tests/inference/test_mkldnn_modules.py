"""The steps of the optimisation that have names of their own in torch.fx."""

import pytest
import torch
import torch.fx
import torch.fx.experimental.optimization as reference
from hypothesis import given
from hypothesis import strategies as st
from inference_models import Net
from torch import nn

import corsac.fx
import corsac.fx.experimental.optimization as subject
from kit.trained import as_if_trained

IMPLEMENTATIONS = [(torch.fx, reference), (corsac.fx, subject)]
both = pytest.mark.parametrize(("fx", "optimization"), IMPLEMENTATIONS, ids=["torch", "corsac"])


@both
def test_patterns_of_modules(fx, optimization):
    gm = fx.symbolic_trace(Net().eval())
    modules = dict(gm.named_modules())
    found = [
        node.name
        for node in gm.graph.nodes
        if optimization.matches_module_pattern((nn.Conv2d, nn.BatchNorm2d), node, modules)
    ]
    assert found == ["first_bn", "second_bn"]


@both
def test_modules_are_replaced(fx, optimization):
    gm = fx.symbolic_trace(Net().eval())
    modules = dict(gm.named_modules())
    node = next(node for node in gm.graph.nodes if node.name == "second_conv")
    new = nn.Conv2d(8, 8, 1)
    optimization.replace_node_module(node, modules, new)
    assert gm.second.conv is new and modules["second.conv"] is new
    call = next(node for node in gm.graph.nodes if node.op == "call_function")
    with pytest.raises(AssertionError, match="Expected str target"):
        optimization.replace_node_module(call, modules, new)


@both
@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_modules_go_to_mkldnn_and_back(fx, optimization):
    torch.manual_seed(0)
    gm = fx.symbolic_trace(as_if_trained(Net()))
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        expected = gm(x)
        modules = dict(gm.named_modules())
        old = optimization.modules_to_mkldnn(list(gm.graph.nodes), modules)
        assert len(old) == 8
        assert type(gm.stem) is not nn.Conv2d and gm.stem in old
        opaque = gm.first.conv(gm.stem(x.to_mkldnn()))
        assert opaque.is_mkldnn
        optimization.reset_modules(gm.graph.nodes, modules, old)
        assert type(gm.stem) is nn.Conv2d
        dense = gm.first.conv(gm.stem(x))
        torch.testing.assert_close(opaque.to_dense(), dense, rtol=1e-4, atol=1e-5)
        assert torch.equal(gm(x), expected)


def test_converted_modules_take_dense_tensors_too():
    torch.manual_seed(0)
    gm = corsac.fx.symbolic_trace(as_if_trained(Net()))
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        expected = gm(x)
        subject.modules_to_mkldnn(list(gm.graph.nodes), dict(gm.named_modules()))
        torch.testing.assert_close(gm(x), expected, rtol=1e-4, atol=1e-5)
        image = gm.first.bn(gm.stem(x.to_mkldnn()))
        row = gm.head(torch.randn(3, 8).to_mkldnn())
        assert image.is_mkldnn and row.is_mkldnn


@both
@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_batch_norms_in_training_are_refused(fx, optimization):
    for norm in (nn.BatchNorm2d(3), nn.BatchNorm2d(3, track_running_stats=False).eval()):
        gm = fx.symbolic_trace(nn.Sequential(norm))
        with pytest.raises(AssertionError, match="Only support"):
            optimization.modules_to_mkldnn(list(gm.graph.nodes), dict(gm.named_modules()))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20))
def test_sets_are_joined_as_in_torch_fx(pairs):
    sets = [implementation.UnionFind(10) for _, implementation in IMPLEMENTATIONS]
    for one in sets:
        for number in range(10):
            one.make_set(number)
    theirs, ours = sets
    for a, b in pairs:
        assert ours.join(a, b) == theirs.join(a, b)
    assert [ours.find(n) for n in range(10)] == [theirs.find(n) for n in range(10)]
    assert ours.size == theirs.size


def test_a_number_in_no_set():
    with pytest.raises(AssertionError, match="Parent is None"):
        subject.UnionFind(2).find(0)
    deep = subject.UnionFind(50_000)
    for number in range(50_000):
        deep.parent[number] = min(number + 1, 49_999)
    assert deep.find(0) == 49_999  # torch.fx's recursion fails here


@both
@pytest.mark.parametrize("length", [2, 3])
def test_the_rule_of_length(fx, optimization, length):
    graph = optimization.MklSubgraph(fx.Graph())
    assert (graph.nodes, graph.start_nodes, graph.end_nodes) == ([], [], [])
    graph.nodes += [graph.fx_graph.placeholder("x")] * length
    assert optimization.use_mkl_length(graph) == (length > 2)


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_subgraphs_are_those_of_torch_fx_where_it_supports_the_operators():
    class Plain(nn.Module):
        """A program that both support."""

        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (nn.Conv2d(3, 3, 1) for _ in range(3))
            self.pool, self.softmax = nn.MaxPool2d(2), nn.Softmax(1)

        def forward(self, x, y):
            a = torch.relu(self.a(x))
            b = self.pool(self.b(a) + a)
            c = self.softmax(b)
            d = self.c(y)
            return torch.sigmoid(c) * 2 + d, torch.relu(d)

    found = []
    for _, optimization in IMPLEMENTATIONS:
        seen = []

        def look(graph, seen=seen):
            inputs = sorted({node.args[0].name for node in graph.start_nodes})
            outputs = sorted(node.args[0].name for node in graph.end_nodes)
            seen.append(([node.name for node in graph.nodes], inputs, outputs))
            return False

        config = {"mkldnn_layout_optimize": {"heuristic": look}}
        optimization.optimize_for_inference(Plain().eval(), config)
        found.append(seen)
    theirs, ours = found
    # The rule is not called for subgraphs without a layer.
    layers = ("a", "b", "c")
    assert ours == [graph for graph in theirs if any(name in layers for name in graph[0])]
