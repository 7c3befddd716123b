"""corsac.capture: the operations of a model on given inputs, as a graph."""

import pytest
import torch
from torch import nn

import corsac
from corsac.fx.proxy import TraceError

pytestmark = pytest.mark.recording


class BySize(nn.Module):
    """torch.fx cannot trace it: control flow depends on sizes."""

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
    # It can be changed like any other graph module.
    corsac.fx.replace_pattern(module, lambda x: torch.relu(x), lambda x: torch.sigmoid(x))
    module.graph.lint()


def test_functions_methods_and_what_was_compiled():
    model = BySize().eval()
    for program in (model, model.forward, corsac.compile(model), corsac.compile(model.forward)):
        with torch.no_grad():
            torch.testing.assert_close(corsac.capture(program, X)(X), model(X))
    assert torch.equal(corsac.capture(lambda x: x * len(x), [X])(X), X * 2)


def line_of(text):
    with open(__file__) as file:
        return next(n for n, line in enumerate(file, 1) if text in line)


def test_what_is_no_graph():
    def decides(x):
        return x if x.sum() > 0 else -x  # decides here

    with pytest.raises(TraceError, match=f"test_capture.py:{line_of('decides here')}.*values"):
        corsac.capture(decides, X)
    with pytest.raises(TraceError, match="random"):
        corsac.capture(nn.Dropout(), X)
    with pytest.raises(TraceError, match="writes to a tensor that the program did not make"):
        corsac.capture(lambda x: x.add_(1), X)
    seen = []
    with pytest.raises(TraceError, match="it changes state in Python: append"):
        corsac.capture(lambda x: seen.append(1) or x * len(seen), X)


def test_one_way_of_a_program_that_decides():
    def decides(x, scale):
        if x.sum() > 0:
            return x * scale
        return x - x.max().item()

    module = corsac.capture(decides, X + 1, 3, strict=False)
    assert torch.equal(module(X), X * 3)
    (decision,) = module.meta["decisions"]
    assert "test_capture.py" in decision and "is True" in decision
    module = corsac.capture(decides, X - 1, scale=3, strict=False)
    assert len(module.meta["decisions"]) == 2
    torch.testing.assert_close(module(X), X - (X - 1).max())


def test_effects_and_guards_are_listed():
    class Remembers(nn.Module):
        factor, last = 2.0, None

        def forward(self, x):
            self.last = x * self.factor
            return {"y": self.last + 1}

    model = Remembers()
    module = corsac.capture(model, X, strict=False)
    assert module.meta["effects"] == ["set 'last'"]
    assert any("factor" in line and "test_capture.py" in line for line in module.meta["guards"])
    assert torch.equal(module(X)[0], X * 2 + 1)


def test_arguments_of_all_kinds():
    def program(x, more, *, scale=1.0, flag=False):
        return more["a"] * scale + (x if flag else -x) + more["b"][0]

    module = corsac.capture(program, X, {"a": X + 1, "b": [X]}, scale=2.0, flag=True)
    names = [str(n.target) for n in module.graph.find_nodes(op="placeholder")]
    assert names[0] == "x" and len(names) == 3
    torch.testing.assert_close(
        module(X, X + 1, X)[0], program(X, {"a": X + 1, "b": [X]}, scale=2.0, flag=True)
    )


def test_shapes_that_are_compared():
    """Element by element, up to the first that differ."""

    def program(x, y):
        if x.shape == (y.shape[0], 4) and y.shape != (1, x.shape[1]) and x.shape != (2, 2, 2):
            return x + y
        return x

    shapes = {"x": [0], "y": [0]}
    module = corsac.capture(program, X, torch.ones(len(X), 4), dynamic_shapes=shapes)
    conditions = ["x.shape[0] == y.shape[0] is True", "y.shape[0] == 1 is False"]
    assert [own for own in module.meta["conditions"] if own in conditions] == conditions
    assert not any(f"== {len(X)} is" in own for own in module.meta["conditions"])
    assert torch.equal(module(torch.ones(7, 4), torch.ones(7, 4)), torch.full((7, 4), 2.0))


def test_sizes_that_are_dynamic():
    def program(x, y):
        return x.reshape(x.shape[0] * x.shape[1]) + y if x.shape[0] > 1 else y

    module = corsac.capture(program, X, torch.ones(()), dynamic_shapes={"x": [0]})
    assert module.meta["conditions"] == ["x.shape[0] > 1 is True"]
    for rows in (2, 3, 7):
        x = torch.randn(rows, 4)
        assert torch.equal(module(x, torch.ones(())), x.reshape(-1) + 1)
    assert corsac.capture(program, X, X.sum()).meta["conditions"] == []
    with pytest.raises(ValueError, match=r"'z' is no tensor among the inputs \(0, 1, x, y\)"):
        corsac.capture(program, X, X.sum(), dynamic_shapes={"z": [0]})
    with pytest.raises(ValueError, match="'x' has 2 dimensions"):
        corsac.capture(program, X, X.sum(), dynamic_shapes={"x": [2]})


def test_lowering_and_export_take_such_models():
    model = BySize().eval()
    lowered = corsac.lower(model, "corsac", (X,))
    with torch.no_grad():
        torch.testing.assert_close(lowered(X), model(X))
    assert len(lowered.meta["lowering"].parts) == 1
    program = torch.export.export(model, (X,))
    for exported in (program, program.module()):
        with torch.no_grad():
            torch.testing.assert_close(corsac.capture(exported, X)(X), model(X))
        lowered = corsac.lower(exported, "corsac", (X,))
        with torch.no_grad():
            torch.testing.assert_close(lowered(X), model(X))
