"""Calls are left to PyTorch where it is faster, as measured in the first calls."""

import threading

import pytest
import torch
from torch import nn

import corsac
import corsac._compile.compiled_module
from corsac._engine.dynamo_graph import Piece
from corsac._models.function import module_of
from corsac._native.race import MOST, OFTEN, Race

pytestmark = [pytest.mark.recording, pytest.mark.unverified]
X = torch.linspace(-1, 1, 12).reshape(3, 4)


def layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()


def pretend(monkeypatch, native, host):
    """Calls take the given number of seconds; returns the counts of calls each way."""
    counts = [0, 0]

    def ran(race, way, seconds):
        counts[way] += 1
        race._counts[way] += 1
        race._best = [native, host]
        if min(counts) >= 2:
            race.end(None)

    monkeypatch.setattr(Race, "_ran", ran)
    return counts


def call(compiled, model, times):
    with torch.no_grad():
        for _ in range(times):
            torch.testing.assert_close(compiled(X), model(X))


@pytest.mark.parametrize("through_dynamo", [False, True])
def test_the_faster_way_is_kept(monkeypatch, through_dynamo):
    torch._dynamo.reset()
    for native, host, told in (
        (0.002, 0.001, "left to PyTorch: 2.00 ms natively, 1.00 ms by PyTorch"),
        (0.00104, 0.001, "1.04 ms a call (1.00 ms by PyTorch)"),
        (0.001, 0.004, "1.00 ms a call (4.00 ms by PyTorch)"),
    ):
        model = layers()
        counts = pretend(monkeypatch, native, host)
        if through_dynamo:
            piece = Piece(torch.fx.symbolic_trace(model))
            compiled, explain = lambda x, piece=piece: piece(x), piece.explain
        else:
            compiled = corsac.compile(model)
            explain = compiled.explain
        call(compiled, model, 12)
        assert counts[0] == counts[1] == 2
        assert told in explain(), explain()


def test_results_are_eagers_while_it_is_tried():
    """Each call runs once, natively or by PyTorch, with eager's result."""

    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = layers()

        def forward(self, x):
            y = self.inner(x)
            return {"y": y, "rows": [y[0], y[1:]]}

    model = Parts()
    compiled = corsac.compile(model)
    with torch.no_grad():
        for number in range(5 * OFTEN):
            found, expected = compiled(X + number), model(X + number)
            torch.testing.assert_close(found, expected)
            found["y"].zero_()
            assert not found["rows"][0].any()
    (program,) = compiled._recorded.programs()
    assert program.compiled.choice.race is None and program.compiled.choice.took is not None


class WithFallback(nn.Module):
    """Two native parts, and an operator between them that the engine does not support."""

    def __init__(self):
        super().__init__()
        self.first, self.second = layers(), nn.Sequential(nn.Tanh(), nn.Linear(2, 5), nn.ReLU())

    def forward(self, x):
        return self.second(torch.special.i0e(self.first(x)))


def parts_of(compiled):
    (program,) = compiled._recorded.programs()
    return program.compiled, program.compiled.parts


def test_parts_are_measured_each_by_itself(monkeypatch):
    model = WithFallback().eval()
    compiled = corsac.compile(model)
    call(compiled, model, 1)
    whole, (first, second) = parts_of(compiled)
    ran = Race._ran

    def pretended(race, way, seconds):
        # Natively the first part is three times as fast, the second a third.
        fast = {first.choice.race: 0, second.choice.race: 1}.get(race)
        ran(race, way, 0.1 if fast is None or way == fast else 0.3)

    monkeypatch.setattr(Race, "_ran", pretended)
    call(compiled, model, 4 * MOST)
    assert first.choice.race is None and not first.choice.is_slower()
    assert second.choice.is_slower() and whole.choice.took == (0.1, 0.1)
    assert "part 1: left to PyTorch: 300 ms natively, 100 ms by PyTorch" in compiled.explain()
    assert "part 0" not in compiled.explain()
    calls = []
    monkeypatch.setattr(
        first, "_native", lambda *args: calls.append("native") or first._part(*args)
    )
    monkeypatch.setattr(second, "_native", lambda *args: calls.append("no"))
    call(compiled, model, 2)
    assert calls == ["native"] * 2


def test_calls_that_are_left_to_pytorch_are_not_looked_at(monkeypatch):
    model = layers()
    compiled = corsac.compile(model)
    pretend(monkeypatch, 0.003, 0.001)
    call(compiled, model, 8)
    assert "left to PyTorch" in compiled.explain()
    looked = []
    find = compiled._recorded.find
    monkeypatch.setattr(compiled._recorded, "find", lambda own: looked.append(1) or find(own))
    monkeypatch.setattr(corsac._engine.module, "LEFT", 4)
    compiled._runner.leave((X,), None, 0)
    call(compiled, model, 11)
    # One watched call, and four without.
    assert len(looked) == 3
    model[2] = nn.Linear(8, 5)
    # It is another model, and a program for it is recorded when the call is watched.
    call(compiled, model, 6)
    assert len(looked) > 3


def test_calls_that_cannot_be_native_are_not_looked_at(monkeypatch):
    compiled = corsac.compile(lambda x: torch.rand(3) + x)
    looked = []
    module = module_of(compiled)
    find = module._recorded.find
    monkeypatch.setattr(module._recorded, "find", lambda own: looked.append(1) or find(own))
    x = torch.ones(3)
    for number in range(1200):
        torch.manual_seed(number)
        result = compiled(x)
        torch.manual_seed(number)
        assert torch.equal(result, torch.rand(3) + x)
    assert len(looked) < 300
    assert "run by PyTorch more than 100 times: " in compiled.explain()
    # Others are watched.
    looked.clear()
    compiled(torch.ones(1))
    assert looked


def test_parts_are_native_if_that_is_asked_for():
    model = WithFallback().eval()
    compiled = corsac.compile(model, options={"inference": "native"})
    call(compiled, model, 3)
    assert parts_of(compiled)[1] == () and "2 native parts" in compiled.explain()


def test_results_lie_the_same_way_in_all_calls():
    def function(x):
        return (x.sin() + 1).t()

    compiled = corsac.compile(function)
    with torch.no_grad():
        assert {compiled(X).stride() for _ in range(7)} == {function(X).stride()}


def test_options():
    model = layers()
    compiled = corsac.compile(model, options={"inference": "native"})
    call(compiled, model, 3)
    (program,) = compiled._recorded.programs()
    assert program.compiled.choice.race is None and program.compiled.choice.took is None
    with pytest.raises(ValueError, match="option 'inference' is 'measured', 'native', not 'host'"):
        corsac.compile(model, options={"inference": "host"})


def test_exceptions_of_the_program_are_raised_once():
    """Exceptions raised by PyTorch's run are not mistaken for the engine's."""
    model = layers()
    compiled = corsac.compile(model)
    call(compiled, model, 2)
    calls = []

    def fails(*args):
        calls.append(1)
        raise ValueError("of the program")

    (program,) = compiled._recorded.programs()
    compiled.__dict__["_callable"] = fails
    with torch.no_grad(), pytest.raises(ValueError, match="of the program"):
        for _ in range(3):
            compiled(X)
    assert calls == [1] and program.compiled.choice.race is not None


def test_threads_that_try():
    model = layers()
    compiled = corsac.compile(model)
    expected, wrong = model(X).detach(), []
    call(compiled, model, 1)

    def work():
        with torch.no_grad():
            for _ in range(50):
                if not torch.allclose(compiled(X), expected, atol=1e-6):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert compiled._recorded.programs()[0].compiled.choice.race is None
