"""Effects of tracing on the process: threads, exceptions, registries, memory."""

from __future__ import annotations

import gc
import math
import sys
import threading
import weakref

import pytest
import torch
import torch.nn as nn
import torchvision
from recording import record
from test_modules import Block

import corsac.fx
from corsac import _core

Module = nn.Module


@torch.fx.wrap
def registered_with_torch(x):
    return x * 2


@corsac.fx.wrap
def registered_with_corsac(x):
    return x * 1


def entrances():
    call, getattr_ = Module.__call__, Module.__getattr__
    return call, call.__code__, getattr_, getattr_.__code__, math.sqrt, registered_with_corsac


BEFORE = entrances()


@pytest.fixture(autouse=True)
def nothing_stays_patched():
    yield
    assert entrances() == BEFORE
    assert _core.active_traces() == 0
    assert "len" not in globals()
    assert not corsac.fx._symbolic_trace.is_fx_tracing()


def test_threads_trace_at_once_while_others_run_models():
    torch.manual_seed(0)
    models = [
        torchvision.models.resnet18().eval(),
        torchvision.models.swin_t().eval(),
        torchvision.models.squeezenet1_0().eval(),
        torchvision.models.vit_b_16(num_classes=2).eval(),
    ]
    expected = [str(torch.fx.Tracer().trace(model)) for model in models]
    image = torch.randn(1, 3, 32, 32)
    wrong: list = []
    done = threading.Event()

    def trace(first):
        for i in range(first, first + 100):
            graph = corsac.fx.Tracer().trace(models[i % 4])
            if str(graph) != expected[i % 4]:
                wrong.append((first, i))
            if i % 10 == 0:
                with pytest.raises(corsac.fx.proxy.TraceError):
                    corsac.fx.Tracer().trace(lambda x: 1 if x else 2)

    def run():
        with torch.no_grad():
            result = models[0](image)
            while not done.is_set():
                same = torch.equal(models[0](image), result)
                if not same or math.sqrt(4) != 2 or registered_with_corsac(3) != 3:
                    wrong.append("run")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        runner = threading.Thread(target=run)
        runner.start()
        tracers = [threading.Thread(target=trace, args=(i,)) for i in range(8)]
        for thread in tracers:
            thread.start()
        for thread in tracers:
            thread.join()
        done.set()
        runner.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


def test_wrapped_functions_are_themselves_in_other_threads():
    other = []

    def in_another_thread():
        graph = corsac.fx.Graph()
        x = corsac.fx.Proxy(graph.placeholder("x"))
        registered_with_torch(x)  # not traced there: the function runs
        other.append([node.name for node in graph.nodes])

    def f(x):
        thread = threading.Thread(target=in_another_thread)
        thread.start()
        thread.join()
        return registered_with_torch(x)

    graph = corsac.fx.Tracer().trace(f)
    assert [node.name for node in graph.nodes] == ["x", "registered_with_torch", "output"]
    assert other == [["x", "mul"]]


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, Interrupted])
def test_whatever_ends_a_trace_everything_is_put_back(error):
    class Failing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.ReLU(), FailingLeaf())

        def forward(self, x):
            return self.inner(x)

    class FailingLeaf(nn.Module):
        def forward(self, x):
            raise error("stop")

    tracer = corsac.fx.Tracer()
    with pytest.raises(error, match="stop"):
        tracer.trace(Failing())
    assert tracer.module_stack == {} and tracer.scope.module_path == ""
    assert [
        n[1] for n in record(corsac.fx, nn.Sequential(nn.ReLU()), tracer=lambda: tracer)["nodes"]
    ]


def test_a_wrong_registration_fails_and_is_cleaned_up():
    key = (id(globals()), "does_not_exist")
    torch.fx._symbolic_trace._wrapped_fns_to_patch[key] = globals()
    try:
        with pytest.raises(KeyError, match="does_not_exist"):
            corsac.fx.Tracer().trace(lambda x: x)
    finally:
        del torch.fx._symbolic_trace._wrapped_fns_to_patch[key]


def test_registries_are_shared_with_torch_fx():
    def f(x):
        return registered_with_corsac(x)

    assert [n.name for n in torch.fx.Tracer().trace(f).nodes][1] == "registered_with_corsac"
    with pytest.raises(NotImplementedError, match="top level"):
        corsac.fx.wrap("f")
    with pytest.raises(RuntimeError, match="Unsupported type"):
        corsac.fx.wrap(3)


def test_torch_fx_knows_that_this_thread_is_tracing():
    seen = []

    def f(x):
        seen.append(torch.fx._symbolic_trace.is_fx_tracing())
        seen.append(corsac.fx._symbolic_trace.is_fx_symbolic_tracing())
        return x

    corsac.fx.Tracer().trace(f)
    assert seen == [True, True]


def test_a_method_of_tensors_can_be_wrapped():
    methods = torch.fx._symbolic_trace._wrapped_methods_to_patch
    # Not ``__getitem__``: a class that once had it counts as a sequence for ever, on which
    # ``torch.tensor([x[0]])`` fails.
    methods.append((torch.Tensor, "split"))
    try:

        def f(x):
            return torch.ones(3).split(x)

        nodes = record(corsac.fx, f)["nodes"]
        assert nodes[2][:3] == ("call_method", "split", "split")
    finally:
        methods.pop()
    assert type(torch.Tensor.split).__name__ != "WrappedFunction"
    # Without the registration, it calls something else.
    assert "call_method" not in [node[0] for node in record(corsac.fx, f)["nodes"]]


def test_tracing_leaves_nothing_behind():
    net = Block()
    corsac.fx.Tracer().trace(net)
    gc.collect()
    gc.disable()
    try:
        tracer = corsac.fx.Tracer()
        graph = tracer.trace(net)
        alive = [weakref.ref(tracer), weakref.ref(graph)]
        del tracer
        assert alive[0]() is None
        del graph
        gc.collect()  # a graph and its nodes refer to each other
        assert alive[1]() is None
        failed = corsac.fx.Tracer()
        with pytest.raises(corsac.fx.proxy.TraceError):
            failed.trace(lambda x: 1 if x else 2)
        alive = weakref.ref(failed)
        del failed
        gc.collect()
        assert alive() is None
    finally:
        gc.enable()
    counts = []
    for _ in range(3):
        for _ in range(50):
            corsac.fx.Tracer().trace(net)
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert counts[2] - counts[1] < 50
