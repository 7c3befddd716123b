"""corsac.capture: what a model does with certain inputs, as a graph."""

import pytest
import torch
from torch import nn

import corsac
from corsac.fx.proxy import TraceError

pytestmark = pytest.mark.recording


class BySize(nn.Module):
    """torch.fx cannot trace it: sizes decide."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.register_buffer("shift", torch.randn(4))

    def forward(self, x, y=None):
        for layer in self.layers if x.shape[0] > 1 else self.layers[:1]:
            x = layer(x).relu()
        return {"x": x + self.shift, "y": x if y is None else [x - y]}


X = torch.linspace(-1, 1, 8).reshape(2, 4)


def test_a_model_that_decides_by_sizes():
    model = BySize().eval()
    module = corsac.capture(model, X)
    assert isinstance(module, corsac.fx.GraphModule)
    assert [str(n.target) for n in module.graph.find_nodes(op="placeholder")] == ["x"]
    assert not module.graph.find_nodes(op="call_module")
    names = {str(n.target) for n in module.graph.find_nodes(op="get_attr")}
    assert names == {*model.state_dict()}
    assert module.get_parameter("layers.1.weight") is model.layers[1].weight
    with torch.no_grad():
        torch.testing.assert_close(module(X), model(X))
        two = corsac.capture(model, (X, X))
        torch.testing.assert_close(two(X, X * 2), model(X, X * 2))
    assert len(corsac.capture(model, X[:1]).graph.find_nodes(op="get_attr")) == 3
    # It can be changed like any other.
    corsac.fx.replace_pattern(module, lambda x: torch.relu(x), lambda x: torch.sigmoid(x))
    module.graph.lint()


def test_functions_methods_and_what_was_compiled():
    model = BySize().eval()
    for program in (model, model.forward, corsac.compile(model), corsac.compile(model.forward)):
        with torch.no_grad():
            torch.testing.assert_close(corsac.capture(program, X)(X), model(X))
    assert torch.equal(corsac.capture(lambda x: x * len(x), [X])(X), X * 2)


def test_what_is_no_graph():
    with pytest.raises(TraceError, match="values"):
        corsac.capture(lambda x: x if x.sum() > 0 else -x, X)
    with pytest.raises(TraceError, match="random"):
        corsac.capture(nn.Dropout(), X)
    with pytest.raises(TraceError, match="writes to a tensor that the program did not make"):
        corsac.capture(lambda x: x.add_(1), X)
    with pytest.raises(TypeError, match="example input 1 is a int, not a tensor"):
        corsac.capture(lambda x, n: x * n, (X, 3))
    seen = []
    with pytest.raises(TraceError, match="it changes"):
        corsac.capture(lambda x: seen.append(1) or x * len(seen), X)


def test_lowering_and_export_take_such_models():
    model = BySize().eval()
    lowered = corsac.lower(model, "corsac", (X,))
    with torch.no_grad():
        torch.testing.assert_close(lowered(X), model(X))
    assert len(lowered.meta["lowering"].parts) == 1
    program = torch.export.export(model, (X,))
    for exported in (program, program.module()):
        lowered = corsac.lower(exported, "corsac", (X,))
        with torch.no_grad():
            torch.testing.assert_close(lowered(X), model(X))
