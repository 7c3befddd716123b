"""``torch.compile(backend="corsac")`` under the circumstances of a PyTorch program."""

import threading
import warnings

import pytest
import torch
from torch import nn

import corsac


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", corsac.HostWarning)
        yield
    torch._dynamo.reset()


def layers():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval()


class Counted:
    """The backend, with the number and the arguments of Dynamo's requests for a graph."""

    def __init__(self):
        self.graphs, self.pieces = [], []

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)
        self.pieces.append(torch._dynamo.lookup_backend("corsac")(gm, example_inputs))
        return self.pieces[-1]

    def programs(self):
        return sum(len(own.native_programs()) for own in self.pieces)


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_without_gradients(mode):
    model, counted = layers(), Counted()
    run = torch.compile(model, backend=counted)
    with mode():
        x = torch.randn(3, 8)
        close(run(x), model(x))
        assert run(x).is_inference() == (mode is torch.inference_mode)
    assert (len(counted.graphs), counted.programs()) == (1, 1)


def test_one_model_in_all_modes():
    model, counted = layers(), Counted()
    run = torch.compile(model, backend=counted)
    x = torch.randn(3, 8)
    for _ in range(2):
        with torch.no_grad():
            close(run(x), model(x))
        with torch.inference_mode():
            close(run(x), model(x))
        found, expected = run(x), model(x)
        close(found, expected)
        own = torch.autograd.grad(found.sum(), list(model.parameters()))
        its = torch.autograd.grad(expected.sum(), list(model.parameters()))
        for one, other in zip(own, its, strict=True):
            close(one, other)


def test_dynamic_sizes():
    model, counted = layers(), Counted()
    run = torch.compile(model, backend=counted, dynamic=True)
    with torch.no_grad():
        for rows in (2, 5, 9, 5):
            x = torch.randn(rows, 8)
            close(run(x), model(x))
    # A graph for all sizes, and a program for each.
    assert (len(counted.graphs), counted.programs()) == (1, 3)


def test_a_size_that_is_marked():
    model, counted = layers(), Counted()
    run = torch.compile(model, backend=counted)
    with torch.no_grad():
        for rows in (2, 5, 9):
            x = torch.randn(rows, 8)
            torch._dynamo.mark_dynamic(x, 0)
            close(run(x), model(x))
    assert (len(counted.graphs), counted.programs()) == (1, 3)


def test_reset_and_stances():
    model, counted = layers(), Counted()
    run = torch.compile(model, backend=counted)
    x = torch.randn(3, 8)
    with torch.no_grad():
        close(run(x), model(x))
        torch.compiler.reset()
        close(run(x), model(x))
        assert len(counted.graphs) == 2
        with torch.compiler.set_stance("force_eager"):
            assert torch.equal(run(torch.ones(5, 8)), model(torch.ones(5, 8)))
        assert len(counted.graphs) == 2
        with torch.compiler.set_stance("eager_on_recompile"):
            close(run(x), model(x))
            assert torch.equal(run(torch.ones(5, 8)), model(torch.ones(5, 8)))
        assert len(counted.graphs) == 2
        with (
            torch.compiler.set_stance("fail_on_recompile"),
            pytest.raises(RuntimeError, match="fail_on_recompile"),
        ):
            run(torch.ones(6, 8))
        close(run(x), model(x))


def test_fullgraph():
    def breaks(x):
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    with torch.no_grad():
        run = torch.compile(breaks, backend="corsac")
        assert torch.equal(run(torch.ones(3)), torch.full((3,), 4.0))
        # Dynamo keeps graphs by code object.
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported, match="graph_break"):
            torch.compile(breaks, backend="corsac", fullgraph=True)(torch.ones(3))


def test_a_compiled_function_in_another():
    model, counted = layers(), Counted()
    inner = torch.compile(model, backend=counted)

    @torch.compile(backend=counted)
    def outer(x):
        return inner(x * 2) + 1

    x = torch.randn(3, 8)
    with torch.no_grad():
        close(outer(x), model(x * 2) + 1)
        close(inner(x), model(x))
    # Dynamo captures the inner one as a part of the outer one.
    assert len(counted.graphs) == 2


@pytest.mark.parametrize("backend", ["engine", "eager"])
def test_corsac_compile_in_a_function_that_dynamo_captures(backend):
    model, counted = layers(), Counted()
    inner = corsac.compile(model, backend=backend)

    @torch.compile(backend=counted, fullgraph=True)
    def outer(x):
        return inner(x * 2) + 1

    x = torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(2):
            close(outer(x), model(x * 2) + 1)
        close(inner(x), model(x))
    assert (len(counted.graphs), counted.programs()) == (1, 1)
    outer(x).sum().backward()
    assert model[0].weight.grad is not None


def test_calls_that_are_captured_again():
    counted = Counted()

    @torch.compile(backend=counted, dynamic=False)
    def run(x, flag):
        return x * 2 if flag else x - 1

    with torch.no_grad():
        for size in (3, 4, 3):
            x = torch.randn(size)
            assert torch.equal(run(x, True), x * 2)
            assert torch.equal(run(x, False), x - 1)
    assert len(counted.graphs) == 4


def test_threads():
    model = layers()
    run = torch.compile(model, backend="corsac", dynamic=False)
    inputs = [torch.randn(rows, 8) for rows in (1, 2, 3, 4)]
    with torch.no_grad():
        expected = [model(x) for x in inputs]
    failed = []

    def calls(number):
        try:
            with torch.no_grad():
                for at in range(40):
                    at = (at + number) % len(inputs)
                    close(run(inputs[at]), expected[at])
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=calls, args=(number,)) for number in range(4)]
    for own in threads:
        own.start()
    for own in threads:
        own.join()
    assert failed == []


def test_batch_norms_in_training_write_their_statistics():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).train()
    other = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).train()
    other.load_state_dict(model.state_dict())
    run = torch.compile(model, backend="corsac")
    for _ in range(3):
        x = torch.randn(2, 3, 8, 8)
        close(run(x), other(x))
    for own, its in zip(model.buffers(), other.buffers(), strict=True):
        close(own, its)
    assert model[1].num_batches_tracked == 3


def test_weights_that_change_are_packed_anew():
    model, counted = layers(), Counted()
    run = torch.compile(model, backend=counted)
    x = torch.randn(3, 8)
    with torch.no_grad():
        close(run(x), model(x))
        model[0].weight.mul_(2)
        close(run(x), model(x))
        model[0].weight.data = torch.randn(16, 8)
        close(run(x), model(x))
        model.load_state_dict(layers().state_dict())
        close(run(x), model(x))
    assert len(counted.graphs) == 1
