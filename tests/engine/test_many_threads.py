"""Many threads call one compiled model at once, with changing sizes, and every result is checked."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest
import torch
from torch import nn

import corsac
from corsac._models.function import module_of


class Mixed(nn.Module):
    """A convolution, a linear layer, attention and a reduction: kernels of every kind share the threads."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 24, 3, padding=1)
        self.joint = nn.Linear(24, 72)
        self.last = nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.relu(self.conv(x)).flatten(2).transpose(1, 2)
        q, k, v = self.joint(x).chunk(3, dim=-1)
        x = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.last(x).softmax(-1), x.mean(1)


def call_from_threads(threads: int, seconds: float) -> int:
    """Number of calls; each result is compared with eager's."""
    torch.manual_seed(0)
    model = Mixed().eval()
    inputs = [torch.randn(1 + n % 3, 3, 5 + n, 9 + 2 * n) for n in range(6)]
    with torch.inference_mode():
        expected = [model(x) for x in inputs]
    fast = corsac.compile(model)
    faults: list[BaseException] = []
    calls = [0] * threads
    begin = threading.Barrier(threads)
    end = time.monotonic() + seconds

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # in a thread other than the test's
            faults.append(error)

    def work(number: int) -> None:
        begin.wait(60)
        with torch.inference_mode():
            while time.monotonic() < end and not faults:
                at = (number + calls[number]) % len(inputs)
                for got, wanted in zip(fast(inputs[at]), expected[at], strict=True):
                    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
                calls[number] += 1

    running = [
        threading.Thread(target=guarded, args=(lambda number=number: work(number),))
        for number in range(threads)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(seconds + 120)
        assert not thread.is_alive()
    assert faults == []
    assert min(calls) > 0
    assert not module_of(fast)._reasons, "PyTorch ran some calls"
    return sum(calls)


def test_eight_threads_for_two_seconds() -> None:
    assert call_from_threads(8, 2) > 50


@pytest.mark.slow
def test_sixteen_threads_for_a_minute() -> None:
    assert call_from_threads(16, 60) > 1000


def test_threads_that_take_different_ways():
    """Eight threads take the paths of one data-dependent program, each path for the first time in any of them."""

    def function(x):
        y = x * 2
        for limit in (-20, -5, 0, 5, 20):
            if y.sum() < limit:
                return y + limit
        return y - y.max().item()

    compiled = corsac.compile(function, options={"inference": "native"})
    inputs = [torch.full((3,), value / 2.0) for value in range(-20, 20)]
    wrong = []

    def work(seed):
        order = random.Random(seed)
        with torch.no_grad():
            for _ in range(100):
                x = order.choice(inputs)
                if not torch.equal(compiled(x), function(x)):
                    wrong.append(x)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_whose_values_decide_at_many_sizes():
    """Stages are compiled in some threads while others make programs that begin with them."""

    def function(x):
        y = x @ x.t()
        return y.relu() + 1 if x.sum() > 0 else y.tanh() * x.sum(1)

    compiled = corsac.compile(function, options={"inference": "native"})
    wrong = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for _ in range(60):
                x = torch.randn(int(torch.randint(1, 14, (), generator=generator)), 3)
                x = x.abs() * (1 if seed % 2 else -1)
                if not torch.allclose(compiled(x), function(x), rtol=1e-4, atol=1e-5):
                    wrong.append(x)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not wrong
