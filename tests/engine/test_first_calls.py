"""First calls of many programs in many threads, and the memory that they leave behind."""

import gc
import random
import threading
import weakref

import pytest
import torch
from torch import nn

import corsac

pytestmark = pytest.mark.recording

UNARY = [torch.tanh, torch.sigmoid, torch.relu, torch.cos, torch.sin, torch.neg, torch.abs]
BINARY = [torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum]


class Chain(nn.Module):
    """Some operators, chosen by a number, with weights, state, and sometimes data-dependent control flow."""

    def __init__(self, number):
        super().__init__()
        choose = random.Random(number)
        width = choose.choice([2, 3, 5, 8])
        generator = torch.Generator().manual_seed(number)
        self.first = nn.Linear(4, width)
        self.second = nn.Linear(width, 4)
        for own in self.parameters():
            own.data = torch.randn(own.shape, generator=generator) / 4
        self.steps = [(choose.choice(UNARY), choose.choice(BINARY)) for _ in range(number % 7 + 1)]
        self.counts = number % 3 == 0
        self.decides = number % 5 == 0
        self.calls = 0
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        for unary, binary in self.steps:
            x = torch.tanh(binary(unary(self.second(self.first(x))), x))
        if self.counts:
            self.calls += 1
            self.mean = self.mean * 0.5 + x.mean(0)
            x = x + self.calls
        if self.decides and x.sum() > 0:
            return x * 2
        return x - self.mean


def run(numbers, failures):
    try:
        with torch.no_grad():
            for number in numbers:
                plain, watched = Chain(number), Chain(number)
                compiled = corsac.compile(watched)
                for call in range(4):
                    x = torch.linspace(-1, 1, 4 * (call // 2 + 2)).reshape(-1, 4) * (-1) ** call
                    torch.testing.assert_close(compiled(x), plain(x))
                torch.testing.assert_close(watched.mean, plain.mean)
                assert watched.calls == plain.calls
    except BaseException as error:
        failures.append((number, error))


def all_at_once(threads, programs):
    failures = []
    # Each number twice, in different threads.
    workers = [
        threading.Thread(
            target=run, args=([(at // 2) * programs + n for n in range(programs)], failures)
        )
        for at in range(threads)
    ]
    for own in workers:
        own.start()
    for own in workers:
        own.join()
    assert not failures


@pytest.mark.unverified
def test_first_calls_in_eight_threads():
    all_at_once(8, 12)


@pytest.mark.slow
def test_a_hundred_first_calls_in_eight_threads():
    all_at_once(8, 100)


def test_arguments_and_results_are_not_kept():
    class Holds(nn.Module):
        def forward(self, x, parts):
            return x * 2 + parts["y"], [parts["y"] - 1]

    compiled = corsac.compile(Holds())
    with torch.no_grad():
        for _ in range(3):
            x, parts = torch.ones(3), {"y": torch.ones(3)}
            results = compiled(x, parts)
            alive = [weakref.ref(own) for own in (x, parts["y"], results[0], results[1][0])]
            del x, parts, results
            gc.collect()
            assert not any(own() is not None for own in alive)


def objects():
    """Number of objects of corsac and PyTorch. (torch.fx keeps lines of code for each module that it makes.)"""
    gc.collect()
    names = (type(own).__module__ for own in gc.get_objects())
    return sum(isinstance(own, str) and own.startswith(("corsac", "torch")) for own in names)


def drop_after_some_calls(number, gradients):
    model = Chain(number)
    compiled = corsac.compile(model)
    with torch.set_grad_enabled(gradients):
        for rows in (2, 3, 2):
            result = compiled(torch.ones(rows, 4))
            if gradients:
                result.sum().backward()
                model.mean = model.mean.detach()
    return weakref.ref(model), weakref.ref(compiled)


@pytest.mark.parametrize(("gradients", "count"), [(False, 60), (True, 12)])
def test_programs_that_are_dropped_leave_nothing(gradients, count):
    # Objects made once for all programs.
    for number in range(15):
        drop_after_some_calls(number, gradients)
    before = objects()
    kept = [drop_after_some_calls(number % 15, gradients) for number in range(count)]
    gc.collect()
    assert not any(own() is not None for pair in kept for own in pair)
    del kept
    assert objects() - before < count // 2


@pytest.mark.slow
def test_a_thousand_programs_that_are_dropped():
    import resource

    for number in range(100):
        drop_after_some_calls(number % 15, False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(1000):
        drop_after_some_calls(number % 15, False)
    gc.collect()
    # In KiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
