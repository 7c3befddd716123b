"""Programs are rewritten before tracing, as by torch.fx."""

import functools

import pytest
import torch
import torch.fx
import torch.fx.experimental.rewriter as theirs
from torch import nn
from torch.fx.annotate import annotate

import corsac.fx
import corsac.fx.experimental.rewriter as ours
from corsac.fx.tensor_type import Dyn, TensorType


def programs():
    """Local functions: torch.fx cannot rewrite those of a module."""

    def with_assertion(x):
        assert x.size(0) == 2, "two rows"
        return x + 1

    def without_message(x):
        assert x.sum() > 0
        y = torch.relu(x)
        assert y.size(1) == 3
        return y

    def with_defaults(x, factor=2.0, *, offset=1):
        assert x.dim() == 2
        return x * factor + offset

    def with_nothing_to_do(x):
        return torch.relu(x)

    return [with_assertion, without_message, with_defaults, with_nothing_to_do]


def forms(function, concrete_args=None):
    texts = []
    for fx, module in ((torch.fx, theirs), (corsac.fx, ours)):
        tracer = module.RewritingTracer()
        graph = tracer.trace(function, concrete_args)
        texts.append((str(graph), fx.GraphModule(tracer.root, graph)))
    return texts


@pytest.mark.parametrize("function", programs())
def test_graphs_are_those_of_torch_fx(function):
    (reference, their_gm), (subject, our_gm) = forms(function)
    assert subject == reference
    x = torch.ones(2, 3)
    assert torch.equal(our_gm(x), their_gm(x))


def test_assertions_hold_when_the_graph_runs():
    _, (_, gm) = forms(programs()[0])
    with pytest.raises(AssertionError, match="two rows"):
        gm(torch.ones(3, 3))


def of_a_module(x):
    assert x.dim() == 1
    return x + 1


def test_functions_of_a_module():
    with pytest.raises(AssertionError):
        theirs.RewritingTracer().trace(of_a_module)
    assert "torch._assert" in str(ours.RewritingTracer().trace(of_a_module))


class Inner(nn.Module):
    def forward(self, x):
        assert x.dim() == 2, "a matrix"
        return torch.relu(x)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.linear = Inner(), nn.Linear(3, 3)
        self.layers = nn.Sequential(Inner(), nn.Linear(3, 3))

    def forward(self, x):
        assert x.size(1) == 3, "three columns"
        return self.layers(self.linear(self.inner(x)))


def test_modules_and_the_modules_in_them():
    """Modules within modules are rewritten; torch.fx rewrites the outermost one only."""
    torch.manual_seed(0)
    model = Outer()
    classes = {name: type(m) for name, m in model.named_modules()}
    with pytest.raises(torch.fx.proxy.TraceError):
        theirs.RewritingTracer().trace(model)
    tracer = ours.RewritingTracer()
    graph = tracer.trace(model)
    gm = corsac.fx.GraphModule(tracer.root, graph)
    assert str(graph).count("torch._assert") == 3
    assert {name: type(m) for name, m in model.named_modules()} == classes
    assert gm.linear.weight is model.linear.weight
    x = torch.randn(2, 3)
    assert torch.equal(gm(x), model(x))
    with pytest.raises(AssertionError, match="a matrix"):
        gm(torch.randn(2, 3, 3))


class Annotated(nn.Module):
    def forward(self, x: TensorType((1, 2, Dyn))):
        y: TensorType((1, 2, 3)) = torch.relu(x)
        later: int
        later = y + 1
        return later


def test_annotated_assignments():
    from corsac.fx.annotate import annotate as ours_annotate

    tracer = ours.RewritingTracer()
    globals_ = Annotated.forward.__globals__
    globals_["annotate"] = ours_annotate
    try:
        graph = tracer.trace(Annotated())
    finally:
        globals_["annotate"] = annotate
    types = {node.name: node.type for node in graph.nodes}
    assert types["relu"] == TensorType((1, 2, 3))
    assert types["x"] == TensorType((1, 2, Dyn))


def test_closures_and_places_in_the_source_are_kept():
    factor = 3

    def function(x, *, offset: int = factor):
        assert x.dim() == 1
        return x * factor + offset

    rewritten = ours.AST_Rewriter().rewrite(function)
    assert rewritten.__closure__ == function.__closure__
    assert rewritten.__kwdefaults__ == {"offset": 3}
    assert rewritten.__code__.co_filename == __file__
    assert rewritten.__code__.co_firstlineno == function.__code__.co_firstlineno
    assert torch.equal(rewritten(torch.ones(2)), torch.full((2,), 6.0))
    graph = ours.RewritingTracer().trace(function)
    (mul,) = (node for node in graph.nodes if node.name == "mul")
    assert (mul.source.file, mul.source.line) == (__file__, function.__code__.co_firstlineno + 2)
    assert mul.source.function == function.__qualname__


def decorated_by(number):
    def decorate(function):
        @functools.wraps(function)
        def run(*args):
            return function(*args) + number

        return run

    return decorate


@decorated_by(5)
def decorated(x):
    assert x.dim() == 1
    return x * 2


def test_decorators_stay():
    rewritten = ours.AST_Rewriter().rewrite(decorated)
    assert torch.equal(rewritten(torch.ones(1)), torch.full((1,), 7.0))


class Mine(ours.AST_Rewriter):
    def visit_Constant(self, node):
        return type(node)(node.value + 1) if isinstance(node.value, int) else node


def test_more_is_rewritten_by_derived_classes():
    def function(x):
        return x + 1

    assert Mine().rewrite(function)(1) == 3


def test_without_source():
    with pytest.raises((OSError, TypeError)):
        ours.AST_Rewriter().rewrite(eval("lambda x: x"))


def test_strings_of_several_lines_are_left_as_they_are():
    class Said(nn.Module):
        def forward(self, x):
            assert x.shape[0] == 2, """first
second
    third"""
            return x

    graph = ours.RewritingTracer().trace(Said())
    (asserted,) = graph.find_nodes(op="call_function", target=torch._assert)
    assert asserted.args[1] == "first\nsecond\n    third"
