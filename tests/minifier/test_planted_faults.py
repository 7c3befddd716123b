"""corsac.minify finds faults of backends of every kind, planted in graphs of 50, 500 and 5,000 calls."""

import ctypes
import os
import sys
import time

import pytest
import torch
from test_minify import random_graph, targets

import corsac
import corsac.backends
import corsac.passes
from corsac.fx import Interpreter
from corsac.minifier import BackendFails, NoFault
from corsac.minifier._source import Source


def has_atan(module):
    return any(node.target is torch.atan for node in module.graph.nodes)


def rejects(module, example_inputs):
    for node in module.graph.nodes:
        if node.target is torch.atan:
            raise NotImplementedError(f"no kernel for {node.name}")
    return module.forward


def segfaults(module, example_inputs):
    if has_atan(module):
        ctypes.string_at(0)
    return module.forward


def aborts(module, example_inputs):
    def run(*args):
        if has_atan(module):
            os.abort()
        return module(*args)

    return run


def exits(module, example_inputs):
    if has_atan(module):
        os._exit(0)
    return module.forward


def quits(module, example_inputs):
    if has_atan(module):
        sys.exit(3)
    return module.forward


def hangs(module, example_inputs):
    def run(*args):
        while has_atan(module):
            time.sleep(0.1)
        return module(*args)

    return run


class Wrong(Interpreter):
    def call_function(self, target, args, kwargs):
        result = super().call_function(target, args, kwargs)
        return result * 1.01 if target is torch.atan else result


def differs(module, example_inputs):
    return Wrong(module).run


class Leaking(Interpreter):
    def call_function(self, target, args, kwargs):
        result = super().call_function(target, args, kwargs)
        return result / (result - result) if target is torch.atan else result


def leaks(module, example_inputs):
    return Leaking(module).run


def wrong_gradient(module, example_inputs):
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.atan()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient / (1.1 + x * x)

    class WrongGradient(Interpreter):
        def call_function(self, target, args, kwargs):
            if target is torch.atan:
                return Function.apply(*args)
            return super().call_function(target, args, kwargs)

    return WrongGradient(module).run


SIGNATURES = {
    rejects: "NotImplementedError: no kernel for atan",
    segfaults: "crashes when compiled: SIGSEGV",
    aborts: "crashes when called: SIGABRT",
    exits: "crashes when compiled: exit status 0",
    quits: "crashes when compiled: exit status 3",
    hangs: "hangs when called",
    differs: "differs from PyTorch: values",
    leaks: "NaN or infinity where PyTorch has none",
}


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "calls, backend",
    [
        (50, segfaults),
        *(slow(calls, own) for calls in (50, 500, 5000) for own in SIGNATURES),
    ],
)
def test_faults_of_each_kind_are_found(calls, backend):
    module, inputs = random_graph(
        calls, [torch.atan], seed=calls, all_results=backend in (differs, leaks)
    )
    fails = BackendFails(backend)
    found = corsac.minify(module, inputs, fails, seconds=600, hang_seconds=5)
    assert found.signature == SIGNATURES[backend]
    assert targets(found) == [torch.atan]
    assert [tuple(own.shape) for own in found.inputs] == [(1, 1)]
    # Time depends on the load of the machine; the number of tests does not.
    assert found.finished and found.tests <= 60
    assert found.verified, found.reason
    assert len(found.script.splitlines()) <= 60


# Gradients are computed in forked processes, which hang if the session has used autograd's threads.
@pytest.mark.slow
def test_results_that_differ_and_gradients_that_do():
    module = corsac.fx.symbolic_trace(lambda x: (torch.sin(torch.atan(torch.tanh(x)) + 1),))
    inputs = [torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()]
    with pytest.raises(NoFault, match="finds none"):
        corsac.minify(module, inputs, BackendFails(wrong_gradient))
    found = corsac.minify(
        module, inputs, BackendFails(wrong_gradient, grad=True), hang_seconds=60, verify=False
    )
    assert found.signature == "differs from PyTorch: values"
    assert "gradient of input 0" in found.fault.text
    assert targets(found) == [torch.atan] and found.inputs[0].requires_grad
    assert 'look="accuracy", grad=True)' in found.script


def crashes_otherwise(module, example_inputs):
    """Raises for both calls together, and crashes or hangs for one of them."""
    used = {node.target for node in module.graph.nodes}
    if {torch.atan, torch.erf} <= used:
        raise ValueError("the two do not go together")
    if torch.atan in used:
        os.abort()
    while torch.erf in used:
        time.sleep(0.1)
    return module.forward


def test_a_crash_does_not_take_the_place_of_an_error():
    module, inputs = random_graph(40, [torch.atan, torch.erf])
    fails = BackendFails(crashes_otherwise, "compile")
    found = corsac.minify(module, inputs, fails, hang_seconds=2, verify=False)
    assert found.signature == "ValueError: the two do not go together"
    assert sorted(map(str, targets(found))) == sorted(map(str, [torch.atan, torch.erf]))
    with pytest.raises(NoFault, match="expected the fault 'hangs', and it is 'ValueError"):
        corsac.minify(module, inputs, fails, expected="hangs")


@pytest.mark.parametrize(
    "backend, look", [(aborts, "compile"), (differs, "compile"), (differs, "run")]
)
def test_faults_that_are_not_looked_for(backend, look):
    module, inputs = random_graph(10, [torch.atan], all_results=True)
    with pytest.raises(NoFault):
        corsac.minify(module, inputs, BackendFails(backend, look))


def sums_that_cancel(graph, x):
    """A graph whose result is only rounding: the sum of ``x`` less the sum of its halves."""
    total = graph.call_method("sum", (x,))
    halves = graph.call_method("sum", (graph.call_method("view", (x, 2, -1)), 1))
    again = graph.call_method("sum", (halves,))
    graph.output(
        (graph.call_function(torch.mul, (graph.call_function(torch.sub, (total, again)), 1e8)),)
    )


def test_rounding_that_a_graph_makes_large_is_no_fault():
    graph = corsac.fx.Graph()
    sums_that_cancel(graph, graph.placeholder("x"))
    module = corsac.fx.GraphModule(torch.nn.Module(), graph)
    inputs = [torch.randn(1001 * 2, generator=torch.Generator().manual_seed(1))]

    def in_another_order(module, example_inputs):
        return lambda x: ((x.flip(0).cumsum(0)[-1] - x.sum()) * 1e8,)

    assert BackendFails(in_another_order)(module, inputs) is None

    def wrong(module, example_inputs):
        return lambda x: (x.sum() * 1e8,)

    assert BackendFails(wrong)(module, inputs).signature == "differs from PyTorch: values"


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", ["weight", "inner.weight"])
@pytest.mark.parametrize("kind", [torch.nn.Parameter, torch.nn.Buffer])
def test_rounding_of_weights_is_no_fault(kind, name, grad):
    graph = corsac.fx.Graph()
    sums_that_cancel(graph, graph.get_attr(name))
    weight = kind(torch.randn(1001 * 2, generator=torch.Generator().manual_seed(1)))
    module = corsac.fx.GraphModule({name: weight}, graph)

    def in_another_order(module, example_inputs):
        x = module.get_parameter(name) if kind is torch.nn.Parameter else module.get_buffer(name)
        return lambda: ((x.flip(0).cumsum(0)[-1] - x.sum()) * 1e8,)

    assert BackendFails(in_another_order, grad=grad)(module, []) is None

    def wrong(module, example_inputs):
        compiled = in_another_order(module, example_inputs)
        return lambda: (compiled()[0] + 1e5,)

    fault = BackendFails(wrong, grad=grad)(module, [])
    assert fault.signature == "differs from PyTorch: values"


@pytest.mark.parametrize(
    "program",
    [lambda x: torch.atan(x), lambda x: {"a": torch.sin(x), "b": [torch.atan(x), (x + 1, None)]}],
)
def test_graphs_that_return_what_they_like(program):
    module = corsac.fx.symbolic_trace(program)
    assert BackendFails("eager")(module, [torch.randn(3)]) is None
    assert BackendFails(differs)(module, [torch.randn(3)]).kind == "differs"


def test_weights_of_the_graph_shrink_too():
    model = torch.nn.Sequential(torch.nn.Linear(24, 12), torch.nn.Tanh(), torch.nn.Linear(12, 6))
    module = corsac.fx.symbolic_trace(model.eval())
    corsac.passes.modules_to_functions(module)
    found = corsac.minify(
        module, [torch.randn(5, 24)], BackendFails(needs_weights, "compile"), hang_seconds=60
    )
    assert targets(found) == [torch.nn.functional.linear]
    (weight,) = found.module.graph.find_nodes(op="get_attr")
    assert getattr(found.module, str(weight.target)).shape == (1,)
    assert found.verified, found.reason
    assert "torch.nn.Parameter(torch.ones((1,)), requires_grad=True)" in found.script


def needs_weights(module, example_inputs):
    for node in module.graph.nodes:
        if node.op == "call_function" and any(own.op == "get_attr" for own in node.all_input_nodes):
            raise RuntimeError("weights are not known")
    return module.forward


def test_inputs_of_one_type_are_merged_and_calls_bypassed():
    def chain(module, inputs):
        """A fault that needs a path from a sine to an arc tangent, and a sum."""
        (atan,) = module.graph.find_nodes(op="call_function", target=torch.atan) or [None]
        before = set()
        work = [atan] if atan is not None else []
        while work:
            node = work.pop()
            before |= {node}
            work += [own for own in node.all_input_nodes if own not in before]
        return {torch.sin, torch.add} <= {node.target for node in before}

    def program(x, y, z):
        for _ in range(4):
            x = torch.tanh(torch.cos(torch.sin(x)))
        return torch.atan(torch.relu(torch.add(torch.sigmoid(x), y) - z))

    module = corsac.fx.symbolic_trace(program)
    found = corsac.minify(module, [torch.randn(3, 2) for _ in range(3)], chain)
    assert targets(found) == [torch.sin, torch.add, torch.atan]
    assert len(found.inputs) == 1 and found.verified


def test_how_scripts_name_backends():
    source = Source()
    assert source.expression(BackendFails("eager", "run")) == 'BackendFails("eager", look="run")'
    assert list(source.definitions) == []
    mine = BackendFails("mine", "run")
    assert source.expression(mine) == 'BackendFails("mine", look="run")'
    corsac.backends.register_backend(rejects, "mine")
    try:
        assert source.expression(mine) == 'BackendFails(rejects, look="run")'
    finally:
        corsac.backends.unregister_backend("mine")
    assert list(source.definitions) == ["rejects"]
    several = BackendFails(corsac.backends.fallback([rejects, "torch:eager"]), "run")
    assert (
        source.expression(several) == 'BackendFails(fallback([rejects, "torch:eager"]), look="run")'
    )
    assert "from corsac.backends import fallback" in source.imports
