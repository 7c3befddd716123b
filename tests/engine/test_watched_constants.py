"""Tensors that a compiled program reads and that are not inputs, parameters or buffers."""

import pytest
import torch
from torch import nn

import corsac

X = torch.tensor([1.0, -2.0, 3.0])


def compiled_and_called(function):
    run = corsac.compile(function)
    with torch.no_grad():
        assert torch.equal(run(X), function(X))
        assert len(run.native_programs()) == 1
    return run


def same(run, function):
    with torch.no_grad():
        # The second call takes the fast path again.
        for _ in range(2):
            assert torch.equal(run(X), function(X))
    assert run.native_programs()


@pytest.mark.parametrize(
    "program",
    [
        lambda w: lambda x: x * 2 if w.sum() > 3.5 else x - 1,
        lambda w: lambda x: x * w[0].item(),
    ],
)
def test_values_of_tensors_of_a_closure_that_decide(program):
    w = torch.ones(3)
    function = program(w)
    run = corsac.compile(function)
    with torch.no_grad():
        for change in (lambda: None, lambda: w.add_(1), lambda: w.mul_(0.1)):
            change()
            for _ in range(3):
                assert torch.equal(run(X), function(X))


@pytest.mark.parametrize(
    "program",
    [
        lambda w: lambda x: x + w,
        # Computed when it is traced.
        lambda w: lambda x: x + w * 2,
        lambda w: lambda x: x + w[1],
        lambda w: lambda x: x + w.view(3, 1).sum(1),
        lambda w: lambda x: torch.stack([x, w.to(torch.float64).to(torch.float32)]),
    ],
    ids=["read", "computed", "element", "view", "converted"],
)
def test_writes_to_tensors_of_a_closure_are_seen(program):
    w = torch.ones(3)
    function = program(w)
    run = compiled_and_called(function)
    w.add_(1)
    same(run, function)
    w[1] = 7
    same(run, function)
    torch.add(w, 1, out=w)
    same(run, function)
    w.view(3, 1).mul_(2)
    same(run, function)


class Held(nn.Module):
    """A module with a tensor attribute, and one in a submodule."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.w, self.inner.w = torch.ones(3), torch.ones(3)

    def forward(self, x):
        return x * self.w + self.inner.w


def test_tensors_that_are_plain_attributes():
    model = Held().eval()
    run = compiled_and_called(model)
    model.w.add_(1)
    same(run, model)
    model.inner.w.add_(1)
    same(run, model)
    model.w = torch.full((3,), 5.0)
    same(run, model)
    model.inner.w = torch.full((3,), 6.0)
    same(run, model)


def test_what_a_trace_makes_is_not_looked_at():
    def function(x):
        return x + torch.arange(3).to(torch.float32)

    run = compiled_and_called(function)
    programs = run.native_programs()
    same(run, function)
    assert run.native_programs() == programs


@pytest.mark.parametrize("size", [3, 100_003])
def test_tensors_of_inference_mode_are_compared(size):
    with torch.inference_mode():
        w = torch.ones(size)
    x = torch.randn(size)

    def function(x):
        return x + w

    run = corsac.compile(function)
    with torch.inference_mode():
        for _ in range(2):
            assert torch.equal(run(x), function(x))
        assert run.native_programs()
        for change in (
            lambda: w.add_(1),
            lambda: w[-1].sub_(3),
            lambda: w.__setitem__(0, float("nan")),
            lambda: setattr(w, "data", torch.zeros(size)),
            lambda: w.neg_(),
            lambda: w.resize_(1).fill_(7),
        ):
            change()
            for _ in range(2):
                torch.testing.assert_close(run(x), function(x), rtol=0, atol=0, equal_nan=True)
                assert run(x).signbit().equal(function(x).signbit())


@pytest.mark.parametrize(
    "w", [(2_000_000, torch.float32), (2_000_000, torch.int64)], ids=["numbers", "integers"]
)
def test_large_tensors_of_inference_mode_do_not_tell(w):
    size, dtype = w
    with torch.inference_mode():
        w = torch.ones(size, dtype=dtype)
    x = torch.randn(size)

    def function(x):
        return x + w

    run = corsac.compile(function)
    with torch.inference_mode():
        with pytest.warns(corsac.HostWarning, match="do not tell when they are written to"):
            run(x)
        run(x)
        w.add_(1)
        assert torch.equal(run(x), function(x))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16, torch.float64])
def test_small_tensors_of_inference_mode_are_compared(dtype):
    with torch.inference_mode():
        w = torch.zeros(3, dtype=dtype)
    x = torch.randn(3)

    def function(x):
        return x + w

    run = corsac.compile(function)
    with torch.inference_mode():
        for value in (1, 0, 1):
            w.fill_(value)
            for _ in range(3):
                assert torch.equal(run(x), function(x))


def test_one_that_wants_gradients_later():
    w = torch.ones(3)

    def function(x):
        return (x * w).sum()

    run = compiled_and_called(function)
    w.requires_grad_()
    run(X).backward()
    assert torch.equal(w.grad, X)


def test_backends_that_copy_weights_are_asked_again():
    w = torch.ones(3)

    def function(x):
        return x + w

    asked = []

    def backend(gm, example_inputs):
        asked.append(gm)
        taken = {name: own.clone() for name, own in gm.named_buffers()}

        def run(*args):
            return torch.func.functional_call(gm, taken, args)

        return run

    backend.copies_weights = True
    run = corsac.compile(function, backend=backend)
    with torch.no_grad():
        assert torch.equal(run(X), function(X))
        w.add_(1)
        assert torch.equal(run(X), function(X))
    assert len(asked) == 2


def test_data_that_is_set():
    model = nn.Linear(3, 3).eval()
    w = torch.ones(3)

    def function(x):
        return model(x) + w

    whole = nn.Sequential(model).eval()
    for run, program in ((corsac.compile(function), function), (corsac.compile(whole), whole)):
        with torch.no_grad():
            assert torch.allclose(run(X), program(X), atol=1e-6)
            for change in (
                lambda: setattr(model.weight, "data", torch.randn(3, 3)),
                lambda: setattr(w, "data", torch.randn(3)),
                # The same memory with other strides.
                lambda: setattr(model.weight, "data", model.weight.data.t()),
            ):
                change()
                for _ in range(2):
                    assert torch.allclose(run(X), program(X), atol=1e-6)
