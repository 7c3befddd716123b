"""Parts of training steps are tried natively and by PyTorch, and then run where they are faster."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import corsac
from corsac._native import race
from corsac._native.panic import EngineError
from corsac._native.race import OFTEN
from corsac._training import _native_part, _trial

pytestmark = pytest.mark.usefixtures("native_or_error")


@pytest.mark.parametrize(
    "native, host, tries, is_native",
    [
        # Clearly faster or slower, for long enough.
        (0.03, 0.06, 3, True),
        (0.07, 0.05, 2, False),
        # The first run decides if it takes that long.
        (0.3, 0.6, 1, True),
        # Shorter than random delays.
        (0.001, 0.002, 8, True),
        # Near the threshold.
        (0.085, 0.1, 4, True),
        (0.010, 0.0105, 7, False),
        (0.0091, 0.0100, 11, False),
    ],
)
def test_parts_are_tried_until_it_is_plain(monkeypatch, native, host, tries, is_native):
    now, counts, found = [0.0], {"native": 0, "host": 0}, []
    monkeypatch.setattr(race, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def taking(name, seconds):
        def run():
            counts[name] += 1
            now[0] += seconds
            return name

        return SimpleNamespace(forward=run)

    tried = trial(taking("native", native), taking("host", host), found)
    ran = []
    while tried.outcome is None:
        ran.append(tried())
    # In turn; each result is that of the way that ran.
    assert ran == ["native", "host"] * tries
    assert found == [(pytest.approx(native), pytest.approx(host), None)]
    assert counts == {"native": tries, "host": tries}
    assert _trial.is_worth_it(*found[0][:2]) == is_native


def trial(native, host, found):
    def over(*outcome):
        found.append(outcome)
        return outcome

    return _trial.Trial(native, host, over)


def test_runs_that_something_else_disturbs_do_not_decide(monkeypatch):
    now, taken = [0.0], iter([0.02, 0.02, 0.011, 0.0105, 0.008, 0.0105, *[0.0079, 0.0105] * 20])
    monkeypatch.setattr(race, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def run():
        now[0] += next(taken)

    found = []
    tried = trial(SimpleNamespace(forward=run), SimpleNamespace(forward=run), found)
    while tried.outcome is None:
        tried()
    native, host, _ = found[0]
    assert (native, host) == pytest.approx((0.008, 0.0105))
    assert _trial.is_worth_it(native, host)


def test_parts_that_panic_when_they_are_tried_are_left_to_pytorch():
    def fails():
        raise EngineError("the engine panicked")

    found = []
    tried = trial(SimpleNamespace(forward=fails), SimpleNamespace(forward=lambda: "host"), found)
    assert tried() == "host"
    assert "the engine panicked" in found[0][2]


def test_steps_are_right_while_parts_are_tried_and_when_that_is_over(monkeypatch):
    monkeypatch.setattr(_native_part, "_memory", _native_part._Memory())
    torch.manual_seed(0)
    eager = nn.Sequential(
        nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8), nn.Tanh()
    )
    model = copy.deepcopy(eager)
    compiled = corsac.compile(model)
    told = []
    for _ in range(3 * OFTEN):
        x = torch.randn(16, 32)
        for run in (eager, compiled):
            run.zero_grad()
            run(x).square().sum().backward()
        for own, its in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(own.grad, its.grad, rtol=1e-4, atol=1e-5)
        told.append("run both ways in turn" in compiled.explain())
    # From some step on it is decided.
    assert told[0] and not told[-1]
    assert told == sorted(told, reverse=True)


class Multiplied(nn.Module):
    """Two layers, a norm that keeps statistics, and a buffer that counts calls."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, width, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, width),
        )
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.layers(x) * self.calls


def pretend_to_measure(monkeypatch, native, host):
    """Parts take the given number of seconds, and measurements of earlier tests are forgotten."""
    monkeypatch.setattr(_native_part, "_memory", _native_part._Memory())

    def ran(tried, *_):
        tried._best = [native, host]
        tried.end(None)

    monkeypatch.setattr(race.Race, "_ran", ran)


def test_steps_that_are_shorter_than_aotautograd_are_left_to_pytorch(monkeypatch):
    # The difference is small, whichever is faster.
    pretend_to_measure(monkeypatch, 1e-5, 2.5e-5)
    eager, x = Multiplied(8).train(), torch.randn(16, 8)
    model = copy.deepcopy(eager)
    compiled = corsac.compile(model)
    for _ in range(4):
        for run in (eager, compiled):
            run.zero_grad()
            run(x).square().sum().backward()
        for own, its in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(own.grad, its.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(list(model.buffers()), list(eager.buffers()))
    assert model.calls == 4
    assert "PyTorch runs later calls" in compiled.explain()
    # Autograd records the steps as if nothing had been compiled.
    loss = compiled(x).square().sum()
    first, *_ = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    assert first.requires_grad


@pytest.mark.parametrize(
    "gain, options, width",
    [
        # Native parts save more.
        (1e-3, {}, 8),
        # The user chooses where parts run.
        (1.5e-5, {"training": "native"}, 8),
        (1.5e-5, {"training": "host"}, 8),
        # AOTAutograd's overhead is a small fraction.
        (1.5e-5, {}, 600),
        # The partition needs less memory.
        (1.5e-5, {"partition": "fewest_bytes"}, 8),
    ],
)
def test_other_steps_are_not(monkeypatch, gain, options, width):
    pretend_to_measure(monkeypatch, 1e-5, 1e-5 + gain)
    compiled = corsac.compile(Multiplied(width).train(), options=options)
    for _ in range(2):
        compiled(torch.randn(64, width)).square().sum().backward()
    assert "PyTorch runs later calls" not in compiled.explain()


def test_steps_without_native_parts_are_left_to_pytorch(monkeypatch):
    pretend_to_measure(monkeypatch, 2e-5, 1e-5)
    compiled = corsac.compile(Multiplied(600).train())
    for _ in range(2):
        compiled(torch.randn(64, 600)).square().sum().backward()
    assert "forward: 0 of" in compiled.explain()
    assert "PyTorch runs later calls" in compiled.explain()
