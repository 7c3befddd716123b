"""A Rust panic does not end the process: PyTorch runs the call, or an ordinary exception is raised."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

import corsac
from corsac import _core
from corsac.fx import symbolic_trace

PANIC = "panicked while .*, which is a fault of corsac: planted for a test"


@pytest.fixture(autouse=True)
def nothing_planted():
    torch._dynamo.reset()
    yield
    _core.plant_panic(None)


def layers(width=8):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)).eval()


def test_the_exception_is_no_ordinary_one():
    assert not issubclass(_core.PanicException, Exception)
    graph = symbolic_trace(layers()).graph
    _core.plant_panic("compile")
    with pytest.raises(_core.PanicException, match="planted for a test"):
        _core.compile_graph(graph, (torch.randn(2, 8),))


def test_compiling(capfd):
    model, x = layers(), torch.randn(2, 8)
    run = corsac.compile(model)
    _core.plant_panic("compile")
    with torch.no_grad():
        with pytest.warns(corsac.HostWarning, match=PANIC):
            found = run(x)
        assert torch.equal(found, model(x))
        assert run.native_programs() == []
        assert "panicked while it compiled a program" in run.explain()
        # The same graph, for other sizes.
        more = torch.randn(3, 8)
        assert torch.allclose(run(more), model(more), atol=1e-6)
    assert len(run.native_programs()) == 1
    assert "planted for a test" in capfd.readouterr().err


def test_compiling_with_fullgraph():
    run = corsac.compile(layers(), fullgraph=True)
    _core.plant_panic("compile")
    with torch.no_grad(), pytest.raises(corsac.CompileError, match=PANIC):
        run(torch.randn(2, 8))


@pytest.mark.unverified
@pytest.mark.parametrize("width", [8, 256], ids=["on this thread", "on the pool"])
def test_running(width):
    model, x = layers(width), torch.randn(64, width)
    run = corsac.compile(model)
    with torch.no_grad():
        run(x)
        (program,) = run.native_programs()
        _core.plant_panic("run")
        with pytest.warns(corsac.HostWarning, match=PANIC):
            found = run(x)
        assert torch.equal(found, model(x))
        # The part that panicked is not called again; others are, with the same weights and threads.
        assert torch.equal(run(x), model(x))
        assert run.native_programs() == []
        assert torch.allclose(run(x[:3]), model(x[:3]), atol=1e-5)
        assert len(run.native_programs()) == 1
    # The program itself is intact.
    assert torch.allclose(program(x), model(x), atol=1e-5)


@pytest.mark.unverified
def test_running_with_observers_and_fullgraph():
    x = torch.randn(2, 8)
    run = corsac.compile(layers(), fullgraph=True)
    with torch.no_grad():
        run(x)
        _core.plant_panic("run")
        with pytest.raises(corsac.CompileError, match=PANIC):
            run(x)


@pytest.mark.unverified
def test_running_a_part_between_those_of_the_host():
    def function(x):
        x = (x.sin() + 1).exp()
        return (torch.special.airy_ai(x) * 2 + 1).tanh()

    x = torch.randn(4)
    run = corsac.compile(function)
    with torch.no_grad():
        assert torch.allclose(run(x), function(x), atol=1e-6)
        assert "2 native parts" in run.explain()
        _core.plant_panic("run")
        # PyTorch's earlier run has changed nothing.
        with pytest.warns(corsac.HostWarning, match=PANIC):
            assert torch.allclose(run(x), function(x), atol=1e-6)
        assert torch.allclose(run(x), function(x), atol=1e-6)


def test_a_backend_of_torch_compile():
    model, x = layers(), torch.randn(2, 8)
    run = torch.compile(model, backend="corsac")
    _core.plant_panic("compile")
    with torch.no_grad():
        with pytest.warns(corsac.HostWarning, match=PANIC):
            found = run(x)
        assert torch.equal(found, model(x))


def test_training():
    model, x = layers(), torch.randn(2, 8)
    model(x).square().sum().backward()
    expected = [own.grad.clone() for own in model.parameters()]
    model.zero_grad()
    run = corsac.compile(model.train(), options={"training": "native"})
    _core.plant_panic("compile")
    with pytest.warns(corsac.HostWarning, match=PANIC):
        loss = run(x).square().sum()
    loss.backward()
    for own, its in zip(model.parameters(), expected, strict=True):
        assert torch.allclose(own.grad, its, atol=1e-6)
    assert "panicked while it compiled a forward graph" in run.explain()


def test_a_step_of_training_fails_with_an_exception():
    model, x = layers(), torch.randn(2, 8)
    run = corsac.compile(model.train(), options={"training": "native"})
    run(x).sum().backward()
    loss = run(x).sum()
    _core.plant_panic("run")
    with pytest.raises(corsac.EngineError, match=PANIC):
        loss.backward()
    run(x).sum().backward()


@pytest.mark.unverified
def test_other_threads_go_on():
    model, x = layers(256), torch.randn(64, 256)
    run, other = corsac.compile(model), corsac.compile(model)
    with torch.no_grad():
        expected = model(x)
        run(x), other(x)
        found = []

        def calls():
            with torch.no_grad():
                found.extend(torch.allclose(other(x), expected, atol=1e-5) for _ in range(50))

        thread = threading.Thread(target=calls)
        thread.start()
        _core.plant_panic("run")
        # One of the two panics occurs; PyTorch runs that call.
        with pytest.warns(corsac.HostWarning, match=PANIC):
            results = [run(x) for _ in range(50)]
            thread.join()
    assert all(torch.allclose(own, expected, atol=1e-5) for own in results)
    assert found == [True] * 50


@pytest.mark.unverified
def test_programs_for_sizes():
    def function(x):
        return (x.exp() * 2 if x.shape[0] > 2 else x - 1).tanh()

    x = torch.randn(4)
    run = corsac.compile(function)
    with torch.no_grad():
        _core.plant_panic("compile")
        # Dynamo captures it instead.
        assert torch.allclose(run(x), function(x), atol=1e-6)
        run = corsac.compile(function)
        run(x)
        assert "captured and compiled in" in run.explain()
        _core.plant_panic("run")
        with pytest.warns(corsac.HostWarning, match=PANIC):
            found = run(x)
        assert torch.equal(found, function(x))
        assert torch.allclose(run(x), function(x), atol=1e-6)
        assert torch.allclose(run(x[:2]), function(x[:2]), atol=1e-6)


def test_without_pytorch_a_panic_is_an_error(tmp_path):
    path = tmp_path / "model.safetensors"
    corsac.save(lambda x: x * 2 + 1, path, (torch.ones(3),))
    model = corsac.load(path, framework="numpy")
    _core.plant_panic("run")
    with pytest.raises(RuntimeError, match="the engine failed: planted for a test"):
        model(np.ones(3, "f"))
    assert model(np.ones(3, "f")).tolist() == [3, 3, 3]
