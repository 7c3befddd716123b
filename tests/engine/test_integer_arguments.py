"""Integer arguments that differ in each call."""

import random

import pytest
import torch

import corsac
from corsac._models.function import module_of

pytestmark = pytest.mark.recording
LINEAR = torch.nn.Linear(4, 4)
TABLE = torch.randn(64, 4)
CACHE = torch.zeros(64, 4)
VALUES = (3, 5, 7, 2, 9, 0, 1, 30, 12, 5, 7, 7)


def scaled(x, n):
    return LINEAR(x) * n + TABLE[n] + x.shape[0]


def sliced(x, n):
    return LINEAR(x) + TABLE[n : n + 3].sum(0)


def cached(x, at):
    CACHE[at : at + x.shape[0]] = LINEAR(x)
    return CACHE[: at + x.shape[0]].sum(0)


def filled(x, n):
    return torch.full((n, 4), 2.0) * x[:1] + n // 2


def branches(x, n):
    return LINEAR(x) + n if n > 10 else LINEAR(x) - torch.arange(n).sum()


def loops(x, n):
    for _ in range(n):
        x = LINEAR(x)
    return x * 2


def close(found, expected):
    assert found.dtype is expected.dtype
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def graphs(compiled):
    module = module_of(compiled)
    assert module._dynamo is None and not module._reasons, compiled.explain()
    return len({id(own.graph) for own in module._recorded.programs()})


@pytest.mark.parametrize(
    "function, dynamic, count",
    [
        *((own, None, 2) for own in (scaled, sliced, cached, filled)),
        *((own, True, 1) for own in (scaled, sliced, cached, filled)),
        *((branches, None, 3), (branches, True, 2), (loops, None, 9), (scaled, False, 9)),
    ],
)
def test_functions(function, dynamic, count):
    compiled = corsac.compile(function, options={"inference": "native"}, dynamic=dynamic)
    with torch.no_grad():
        for number in VALUES:
            x = torch.randn(3, 4)
            CACHE.zero_()
            expected, kept = function(x, number), CACHE.clone()
            CACHE.zero_()
            close(compiled(x, number), expected)
            assert torch.equal(kept.abs() > 0, CACHE.abs() > 0)
    assert graphs(compiled) == count


def test_several_integers_by_name_and_place():
    def function(x, first, second=2, *, third=1):
        return LINEAR(x) * first + second - TABLE[third]

    compiled = corsac.compile(function, options={"inference": "native"})
    draw = random.Random(0)
    with torch.no_grad():
        for _ in range(60):
            x = torch.randn(draw.choice([2, 3]), 4)
            args = [draw.choice([1, 1, 4, 6])]
            if draw.random() < 0.5:
                args.append(draw.choice([2, 2, 5]))
            kwargs = {"third": draw.choice([1, 1, 7])} if draw.random() < 0.5 else {}
            close(compiled(x, *args, **kwargs), function(x, *args, **kwargs))


def test_sizes_and_integers_together():
    def function(x, n):
        return LINEAR(x).sum(0) * n + x.shape[0] * n

    compiled = corsac.compile(function, options={"inference": "native"})
    with torch.no_grad():
        for rows, n in ((2, 3), (3, 3), (4, 5), (5, 6), (2, 9), (7, 1), (1, 0)):
            x = torch.randn(rows, 4)
            close(compiled(x, n), function(x, n))
    assert graphs(compiled) <= 3


@pytest.mark.parametrize("numbers", [(-1, -2, 3, -4), (2**40, 2**62, 1), (True, False, 1, 0)])
def test_other_numbers_are_constants(numbers):
    def function(x, n):
        return LINEAR(x) * (n % 1000) if isinstance(n, bool) else LINEAR(x) - n % 1000

    compiled = corsac.compile(function, options={"inference": "native"})
    with torch.no_grad():
        for n in numbers * 2:
            x = torch.randn(3, 4)
            close(compiled(x, n), function(x, n))


def test_what_else_is_asked_of_integers():
    def function(x, n):
        text = f"{n}"
        table = {3: 1.5, 5: 2.5}
        return LINEAR(x) * len(text) + table.get(n, 0.0) + (n is None) + 1 / (n + 1)

    compiled = corsac.compile(function, options={"inference": "native"})
    with torch.no_grad():
        for n in (3, 5, 10, 100, 3, 5, 7):
            x = torch.randn(3, 4)
            close(compiled(x, n), function(x, n))


def test_state_that_keeps_integers():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.seen = None, []

        def forward(self, x, n):
            self.last = n + 1
            self.seen.append(n)
            return LINEAR(x) * n

    eager, model = Model(), Model()
    compiled = corsac.compile(model, options={"inference": "native"})
    with torch.no_grad():
        for n in VALUES:
            x = torch.randn(3, 4)
            close(compiled(x, n), eager(x, n))
            assert (model.last, model.seen) == (eager.last, eager.seen)
            assert type(model.last) is int
