"""Small programs run on the calling threads, and start no others."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import corsac


def policy() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
    ).eval()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
def test_a_process_that_calls_small_programs_starts_no_threads() -> None:
    source = """
import os, torch, corsac
from torch import nn

def threads():
    return len(os.listdir("/proc/self/task"))

class Products(nn.Module):
    def forward(self, x):
        scores = x @ x.transpose(-1, -2)
        return (scores + 1) @ x, x.sort(-1)[0], x.cumsum(1)

models = [
    (nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)), (16, 32)),
    (nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 3, stride=3), nn.MaxPool2d(2)), (2, 3, 12, 12)),
    (nn.Sequential(nn.LayerNorm(128), nn.Softmax(-1)), (40, 128)),
    (Products(), (3, 20, 16)),
]
with torch.no_grad():
    wanted = []
    for model, shape in models:
        torch.manual_seed(0)
        wanted.append((torch.randn(shape), model(torch.randn(shape))))
    before = threads()
    for (model, shape), (x, _) in zip(models, wanted):
        fast = corsac.compile(model.eval(), fullgraph=True)
        for got, own in zip(fast(x), model(x)):
            torch.testing.assert_close(got, own, rtol=1e-4, atol=1e-5)
        fast(x)
        assert threads() == before, (model, threads(), before)
    # One that is not small, in a pool.
    corsac.compile(nn.Linear(1024, 1024))(torch.randn(256, 1024))
    assert threads() == before + 2
"""
    environment = {"CORSAC_NUM_THREADS": "2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", source],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def test_threads_call_small_programs_at_once() -> None:
    model = policy()
    inputs = [torch.randn(rows, 8) for rows in (1, 2, 5, 16)]
    with torch.no_grad():
        expected = [model(x) for x in inputs]
    fast = corsac.compile(model)
    faults: list[BaseException] = []
    begin = threading.Barrier(6)

    def work(number: int) -> None:
        try:
            begin.wait(60)
            with torch.no_grad():
                for turn in range(200):
                    at = (number + turn) % len(inputs)
                    torch.testing.assert_close(fast(inputs[at]), expected[at], rtol=1e-4, atol=1e-5)
        except BaseException as error:  # in a thread other than the test's
            faults.append(error)

    running = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(120)
        assert not thread.is_alive()
    assert faults == []
