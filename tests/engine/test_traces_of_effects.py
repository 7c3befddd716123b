"""Effects of a program on real tensors during capture are repeated in each call."""

import random
import warnings

import pytest
import torch
from torch import nn

import corsac
from corsac import _core
from corsac.fx import symbolic_trace

KEPT = torch.zeros(3)


def written_constant(x):
    total = torch.zeros(3)
    total[0] = x[0]
    return total * 2 + 1


def written_through_a_view(x):
    total = torch.zeros(3, 3)
    total.view(-1)[x.shape[0]] = x[0]
    return total


def written_value(x):
    y = (x * 2 + 1).relu()
    y[1:] = x[:2]
    return y * 3 - 1


def added_in_place(x):
    total = torch.zeros(3)
    total += x
    return total + 1


def random_numbers(x):
    return x + torch.rand(3) * 2


def python_random_numbers(x):
    return x * 2 + random.random()


def writes_outside(x):
    KEPT.add_(1)
    return x + KEPT


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * self.calls


def outcomes(function, state):
    found = []
    for value in (1.0, 2.0, 3.0):
        found.append(function(torch.full((3,), value)))
    return found, None if state is None else state.clone()


@pytest.mark.parametrize(
    "function",
    [
        written_constant,
        written_through_a_view,
        written_value,
        added_in_place,
        random_numbers,
        python_random_numbers,
        writes_outside,
    ],
)
@pytest.mark.parametrize("backend", ["engine", "eager", "torch.compile"])
def test_functions_do_it_in_each_call(function, backend):
    torch._dynamo.reset()
    if backend == "torch.compile":
        compiled = torch.compile(function, backend="corsac")
    else:
        compiled = corsac.compile(function, backend=backend)
    results = []
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for own in (compiled, function):
            torch.manual_seed(0)
            random.seed(0)
            KEPT.zero_()
            results.append(outcomes(own, KEPT))
    (found, found_state), (expected, expected_state) = results
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert torch.equal(found_state, expected_state)


@pytest.mark.parametrize("backend", ["engine", "eager"])
def test_buffers_count_calls(backend):
    torch._dynamo.reset()
    model = Counts()
    compiled = corsac.compile(model, backend=backend)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(1, 5):
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), float(number)))
    assert model.calls == 4


def test_the_engine_does_what_writes_and_gives_nothing():
    graph = symbolic_trace(written_value).graph
    program = _core.compile_graph(graph, (torch.ones(3),))
    for x in (torch.ones(3), torch.tensor([-1.0, 2, 3])):
        assert torch.equal(program(x), written_value(x))


def test_a_saved_model_does_not_lose_assignments(tmp_path):
    class Writes(nn.Module):
        def forward(self, x):
            return written_value(x)

    path = tmp_path / "model.safetensors"
    corsac.save(Writes().eval(), path, (torch.ones(3),))
    loaded = corsac.load(path)
    for x in (torch.ones(3), torch.tensor([-1.0, 2, 3])):
        assert torch.equal(loaded(x), written_value(x))


def test_indices_out_of_range_are_index_errors():
    """PyTorch reports errors that a native program finds at run time."""
    compiled = corsac.compile(lambda i, x: x[i] * 2 + 1)
    x = torch.randn(4, 3)
    with torch.no_grad():
        compiled(torch.tensor([1]), x)
        for _ in range(2):
            with pytest.raises(IndexError, match="index 7 is out of bounds"):
                compiled(torch.tensor([7]), x)
        assert torch.equal(compiled(torch.tensor([2]), x), x[2:3] * 2 + 1)


class PartlyInAutocast(nn.Module):
    """Two layers, the first in bfloat16."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            half = self.first(x)
        return half, self.second(x)


@pytest.mark.parametrize("backend", ["engine", "eager"])
@pytest.mark.filterwarnings("ignore::corsac.HostWarning")
def test_autocast_inside_a_program_is_kept(backend):
    torch.manual_seed(0)
    model = PartlyInAutocast().eval()
    x = torch.randn(4, 8)
    with torch.no_grad():
        first, second = corsac.compile(model, backend=backend)(x)
        expected = model(x)
    assert (first.dtype, second.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(first, expected[0])
    torch.testing.assert_close(second, expected[1])
