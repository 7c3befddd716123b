"""Markers with which programs declare properties of their functions."""

import pytest
import torch

import corsac
from corsac._compile import verify
from corsac._models.function import module_of

pytestmark = pytest.mark.recording
LINEAR = torch.nn.Linear(4, 4)


def backends():
    graphs = []

    def backend(module, inputs):
        graphs.append(module)
        return module.forward

    return backend, graphs


def check(function, compiled, calls=4):
    with torch.no_grad():
        for call in range(calls):
            torch.manual_seed(call)
            x = torch.randn(2, 4)
            torch.testing.assert_close(compiled(x), function(x))


def compile_both(function):
    """Compile for the engine and for a backend, with the graphs given to the latter."""
    backend, graphs = backends()
    engine = corsac.compile(function, options={"inference": "native"})
    hosted = corsac.compile(function, backend=backend)
    for compiled in (engine, hosted):
        check(function, compiled)
    return engine, graphs


@pytest.mark.parametrize("marker", ["corsac", "dynamo"])
def test_a_graph_break(marker):
    import torch._dynamo

    cut = corsac.graph_break if marker == "corsac" else torch._dynamo.graph_break

    def function(x):
        y = LINEAR(x).relu().exp()
        cut()
        return y.sin() * 2

    engine, graphs = compile_both(function)
    assert "2 stages" in engine.explain() and "asks for a graph break" in engine.explain()
    assert len(graphs) == 2
    assert module_of(engine)._dynamo is None
    with pytest.raises(corsac.CompileError, match="graph break"):
        check(function, corsac.compile(function, fullgraph=True))


def test_a_graph_break_outside_does_nothing():
    assert corsac.graph_break("for people") is None


def test_torch_compile_sees_graph_breaks():
    def function(x):
        y = x * 2
        corsac.graph_break()
        return y + 1

    backend, graphs = backends()
    check(function, torch.compile(function, backend=backend))
    assert len(graphs) == 2


@pytest.mark.parametrize("how", ["recorded", "torch.compile"])
def test_functions_that_are_not_compiled(how):
    calls = []

    @corsac.disable(reason="it counts")
    def counts(x):
        calls.append((torch.compiler.is_compiling(), x.sum().item()))
        return x.numpy().copy()

    def function(x):
        y = LINEAR(x).relu().exp()
        return (torch.from_numpy(counts(y)) * 2).sin().exp() + y

    if how == "recorded":
        compiled = corsac.compile(function, options={"inference": "native"})
    else:
        compiled = torch.compile(function, backend=backends()[0])
    check(function, compiled)
    assert len(calls) == 8 and not any(own for own, _ in calls)
    assert [total for _, total in calls[::2]] == pytest.approx([t for _, t in calls[1::2]])
    if how == "recorded":
        assert "it counts" in compiled.explain()


def test_disable_without_arguments_and_of_methods():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = []

        @corsac.disable
        def note(self, x):
            self.seen.append(x.shape)
            return x

        def forward(self, x):
            return self.note(LINEAR(x).relu()) * 2

    model = Model()
    compiled = corsac.compile(model)
    with torch.no_grad():
        for _ in range(4):
            compiled(torch.ones(2, 4))
    assert len(model.seen) == 4
    assert model.note.__name__ == "note"


def test_torch_compilers_disable():
    calls = []

    @torch.compiler.disable
    def counts(x):
        calls.append(x.sum().item())
        return x * 2

    def function(x):
        return counts(LINEAR(x).relu()) + 1

    check(function, corsac.compile(function, options={"inference": "native"}))
    assert len(calls) == 8


def test_functions_that_are_one_node():
    @corsac.allow_in_graph
    def scaled(x, factor):
        return torch.from_numpy(x.detach().numpy() * factor)

    def function(x):
        y = LINEAR(x).relu()
        y = (scaled(y, 2) + 1).exp().sin()
        return y * 2

    engine, graphs = compile_both(function)
    assert "scaled" in engine.explain() and module_of(engine)._dynamo is None
    (graph,) = graphs
    assert "scaled" in [getattr(own.target, "__name__", "") for own in graph.graph.nodes]
    assert torch.equal(scaled(torch.ones(2), 3), torch.full((2,), 3.0))


@pytest.mark.parametrize("marker", ["corsac", "torch"])
def test_functions_that_give_constants(marker):
    settings = {"factor": 2, "asked": 0}

    def factor():
        # Data-dependent control flow in it is allowed too.
        return settings["factor"] if float(torch.ones(1)) > 0 else 0

    mark = corsac.assume_constant if marker == "corsac" else torch.compiler.assume_constant_result
    marked = mark(factor)

    def function(x):
        return LINEAR(x).relu() * marked()

    compiled = corsac.compile(function, options={"inference": "native"})
    x = torch.ones(2, 4)
    with torch.no_grad():
        expected = function(x)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), expected)
        if verify.ON:
            return
        # The marker declares this value constant.
        settings["factor"] = 5
        torch.testing.assert_close(compiled(x), expected)
    assert len(module_of(compiled)._recorded.programs()) == 1
    assert marked is factor
