"""corsac.backends.explain: graphs, breaks, guards, where operators ran, times."""

import pytest
import torch
from torch import nn

import corsac
from corsac.backends import explain, fallback


def toy(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def printing(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


def line_of(function, text):
    with open(function.__code__.co_filename) as file:
        lines = file.read().splitlines()
    start = function.__code__.co_firstlineno
    return next(n for n, line in enumerate(lines[start:], start + 1) if text in line)


def test_breaks_name_the_line_and_what_to_change():
    found = explain(toy)(torch.randn(3), torch.ones(3))
    assert len(found.graphs) == 2 and len(found.breaks) == 1
    (where,) = found.breaks
    assert where.file == __file__ and where.line == line_of(toy, "if b.sum()")
    assert where.function == "toy" and "depends on the values of a tensor" in where.reason
    assert any("torch.where" in change for change in where.change)
    assert found.why_dynamo is None
    assert {"a", "b"} <= {guard.name for guard in found.guards}
    assert found.graphs[0].counts["torch.abs"] == 1
    assert [own.ran for graph in found.graphs for own in graph.operators] == ["native"] * 6
    assert {"backend", "first call"} <= set(found.seconds)
    assert found.seconds["first call"] > found.seconds["backend"] > 0
    text = str(found)
    assert text.startswith("2 graphs, 1 breaks, ")
    assert f"{__file__}:{where.line}, in toy" in text


def test_a_break_that_dynamo_explains():
    compiled = corsac.compile(lambda x: printing(x[0]), backend="eager")
    found = explain(compiled)([torch.randn(3)])
    assert found.why_dynamo == "an argument is a container"
    lines = [own.line for own in found.breaks if own.file == __file__]
    assert line_of(printing, "graph_break()") in lines
    assert all(own.reason for own in found.breaks)


def test_a_model_that_corsac_captures():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    x = torch.randn(2, 3)
    with torch.no_grad():
        found = explain(model)(x)
    (graph,) = found.graphs
    assert not found.breaks and found.why_dynamo is None and graph.tracer == "corsac"
    assert graph.counts == {"torch._C._nn.linear": 2, "torch.nn.functional.relu": 1}
    assert [own.ran for own in graph.operators] == ["native"] * 3
    assert graph.seconds.keys() == {"capture", "backend"}
    names = [guard.name for guard in found.guards]
    assert names[0] == "input" and "places that the program reads in Python" in names[1]
    assert str(found.guards[0]) == "input: float32[2, 3], with the same strides and device"


def test_what_pytorch_runs_has_a_reason_and_a_line():
    def program(x):
        y = torch.special.i0e((x * 2 + 1).relu())
        return (y * 3 - 1).sigmoid() + x

    with torch.no_grad():
        found = explain(program)(torch.randn(4, 4))
    (host,) = [own for own in found.graphs[0].operators if own.target.endswith("special_i0e")]
    assert host.ran == "PyTorch" and host.reason
    assert host.where == f"{__file__}:{line_of(program, 'i0e')}"
    assert sum(own.ran == "native" for own in found.graphs[0].operators) == 7
    assert f"PyTorch: {host.node} ({host.target}, {host.where})" in str(found)


@pytest.mark.parametrize("recorded, chosen", [(True, "eager"), (False, "onnxruntime")])
def test_a_fallback_shows_who_declined(recorded, chosen):
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval(), torch.randn(2, 3)
    with torch.set_grad_enabled(recorded):
        found = explain(model, backend=fallback(["tensorrt", "onnxruntime", "eager"]))(x)
    (graph,) = found.graphs
    assert graph.backend == chosen
    assert graph.refusals[0] == ("tensorrt", "tensorrt is missing: pip install tensorrt")
    assert len(graph.refusals) == (2 if recorded else 1)
    assert {own.ran for own in graph.operators} == {"PyTorch" if recorded else chosen}
    assert "tensorrt declined: tensorrt is missing" in str(found)


def test_a_graph_in_training():
    x = torch.randn(2, 3, requires_grad=True)
    found = explain(lambda x: x.sin() * 2, backend="engine")(x)
    (graph,) = found.graphs
    assert graph.declined is None
    assert {own.ran for own in graph.operators} == {"AOTAutograd"}


def test_a_graph_that_is_declined():
    pytest.importorskip("onnxruntime")
    x = torch.randn(2, 3, requires_grad=True)
    found = explain(lambda x: x.sin() * 2, backend="onnxruntime")(x)
    (graph,) = found.graphs
    assert graph.declined.startswith("autograd records it")
    assert {own.ran for own in graph.operators} == {"PyTorch"}
    assert str(found).count("autograd records it") == 1
