"""Tracing in many threads at once, while other threads run models."""

import threading

import pytest
import torch
from torch import nn

from kit import SUBJECT, needs_subject

pytestmark = needs_subject

THREADS = 8
TRACES = 100


class Block(nn.Module):
    """A module whose graph depends on its own number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.linear = nn.Linear(4, 4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(number % 4))
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        x = self.linear(x) * self.weight
        for layer in self.layers:
            x = torch.relu(layer(x))
        for i in range(self.number):
            x = x + i
        return x.sum(dim=-1)


def patched_places() -> tuple:
    """The functions that a tracer intercepts, as they are now."""
    return (nn.Module.__call__, nn.Module.__getattr__, torch.Tensor.__getitem__)


def run_all(*workers) -> None:
    """Run callables in threads; raise the first exception of any."""
    errors = []

    def guarded(worker):
        try:
            worker()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def test_many_threads_trace_while_others_run():
    before = patched_places()
    models = [Block(number) for number in range(THREADS)]
    expected = [str(SUBJECT.fx.symbolic_trace(model).graph) for model in models]
    inputs = torch.ones(2, 4)
    results = [model(inputs) for model in models]
    finished = threading.Event()

    def trace(number):
        for _ in range(TRACES):
            traced = SUBJECT.fx.symbolic_trace(models[number])
            assert str(traced.graph) == expected[number]
        assert torch.equal(traced(inputs), results[number])

    def run():
        while not finished.is_set():
            for model, result in zip(models, results, strict=True):
                value = model(inputs)
                assert type(value) is torch.Tensor
                assert torch.equal(value, result)

    runners = [threading.Thread(target=run) for _ in range(2)]
    for runner in runners:
        runner.start()
    try:
        run_all(*(lambda n=n: trace(n) for n in range(THREADS)))
    finally:
        finished.set()
        for runner in runners:
            runner.join()
    assert patched_places() == before


def test_threads_whose_traces_fail():
    before = patched_places()

    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            if self.linear(x).sum() > 0:
                return x
            return -x

    good = Block(3)
    expected = str(SUBJECT.fx.symbolic_trace(good).graph)

    def fail():
        for _ in range(TRACES):
            with pytest.raises(SUBJECT.fx.proxy.TraceError):
                SUBJECT.fx.symbolic_trace(Fails())

    def trace():
        for _ in range(TRACES):
            assert str(SUBJECT.fx.symbolic_trace(good).graph) == expected

    run_all(*[fail, trace] * (THREADS // 2))
    assert patched_places() == before
    assert type(good(torch.ones(1, 4))) is torch.Tensor


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_nothing_stays_patched_whatever_ends_the_trace(error):
    before = patched_places()

    class Raises(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(1, 1)

        def forward(self, x):
            self.linear(x)
            raise error("stop")

    with pytest.raises(error):
        SUBJECT.fx.symbolic_trace(Raises())
    assert patched_places() == before
    assert not SUBJECT.fx._symbolic_trace.is_fx_tracing()
    assert not torch.fx._symbolic_trace.is_fx_tracing()


def test_traces_inside_traces():
    before = patched_places()
    inner = Block(2)

    class Tracing(SUBJECT.fx.Tracer):
        def call_module(self, m, forward, args, kwargs):
            if isinstance(m, Block):
                nested.append(str(SUBJECT.fx.symbolic_trace(m).graph))
            return super().call_module(m, forward, args, kwargs)

    nested = []
    expected = str(SUBJECT.fx.symbolic_trace(inner).graph)
    graph = Tracing().trace(nn.Sequential(inner, nn.ReLU()))
    assert nested == [expected]
    assert [n.op for n in graph.nodes][-1] == "output"
    assert patched_places() == before


def test_one_graph_read_by_many_threads():
    graph = SUBJECT.fx.symbolic_trace(Block(7)).graph
    text, code = str(graph), graph.python_code("self").src

    def read():
        for _ in range(50):
            assert str(graph) == text
            assert graph.python_code("self").src == code
            assert [n.name for n in graph.nodes] == [n.name for n in reversed(graph.nodes)][::-1]

    run_all(*[read] * THREADS)


def test_graphs_built_in_many_threads():
    def build(number):
        graph = SUBJECT.fx.Graph()
        node = graph.placeholder("x")
        for i in range(500):
            node = graph.call_function(torch.add, (node, number + i))
        graph.output(node)
        graph.lint()
        assert len(graph.nodes) == 502
        assert [n.args[1] for n in graph.nodes if n.op == "call_function"] == [
            number + i for i in range(500)
        ]

    run_all(*(lambda n=n: build(n) for n in range(THREADS)))
