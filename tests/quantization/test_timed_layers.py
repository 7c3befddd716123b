"""Times by which ``corsac.quantize`` chooses layers: alone, and in the model."""

import pytest
import torch
from torch import nn

import corsac
from corsac.quantization.one_call import _forms, _job, _layers, _race, _timing
from corsac.quantization.one_call._data import batches
from corsac.quantization.one_call._weights import WeightForm
from corsac.quantization.quantized.integer_layers import IntegerLinear
from kit.one_call import data, forms, mlp


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def raced(monkeypatch, times):
    """Makes models as fast as ``times`` says, by the names of their quantised layers."""

    def compiled(model, **options):
        quantised = {name for name, own in model.named_children() if type(own) is IntegerLinear}
        return lambda *args: frozenset(quantised)

    monkeypatch.setattr(_race, "compile", compiled)
    monkeypatch.setattr(
        _race, "interleaved", lambda first, second, patience: (times[first()], times[second()])
    )


def test_layers_that_are_slow_alone_are_tried_in_the_model(monkeypatch):
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4))).eval()
    found = [_layers.Layer([name], own) for name, own in model.named_children()]
    made = {
        own.name: _forms.quantised(own, _forms.Form("static", WeightForm()), (1.0, 0))
        for own in found
    }
    groups = {"one": frozenset("12"), "other": frozenset("3")}
    sure, batch = frozenset("0"), batches(torch.randn(2, 8))[0]
    for times, expected in (
        # All is fastest, but without the last one.
        ({"0": 10.0, "0123": 8.0, "03": 9.0, "012": 7.0}, "012"),
        ({"0": 5.0, "0123": 8.0, "012": 6.0, "03": 4.0}, "03"),
        ({"0": 5.0, "0123": 4.99, "012": 6.0, "03": 7.0}, "0"),
    ):
        raced(monkeypatch, {frozenset(name): own for name, own in times.items()})
        assert _race.fastest(model, found, made, sure, groups, batch) == frozenset(expected)
    assert all(type(own) is nn.Linear for own in model)


def test_layers_that_are_not_faster_stay_float(monkeypatch):
    def measured(layer, made, input):
        assert tuple(input.shape) == (
            (4, 64) if layer.in_features == 64 else (4, layer.in_features)
        )
        ratio = 2.0 if layer.in_features == 128 else 0.5
        return _timing.Times(1e-3, ratio * 1e-3)

    monkeypatch.setattr(_timing, "_measured", measured)
    monkeypatch.setattr(_job, "time_models", lambda *given: (2.0, 1.0))
    times = {frozenset("04"): 2.0, frozenset("024"): 3.0}
    raced(monkeypatch, times)
    made = corsac.quantize(mlp(), data(4, 64))
    assert forms(made) == {"0": "int8 static", "2": "float", "4": "int8 static"}
    row = made.quantization_report["2"]
    assert (
        row.reason == "int8 static is not faster: 2.00 of the time alone, and no gain in the model"
    )
    assert (row.float_seconds, row.seconds) == (1e-3, 2e-3)
    assert type(made[2]) is nn.Linear
    saved = corsac.quantize(mlp(), data(4, 64), weights="int8")
    assert set(forms(saved).values()) == {"int8"}


def test_layers_are_measured_once_for_each_kind_and_size(monkeypatch):
    calls = []

    def measured(layer, made, input):
        calls.append(tuple(input.shape))
        return _timing.Times(2.0, 1.0)

    monkeypatch.setattr(_timing, "_measured", measured)
    monkeypatch.setattr(_job, "time_models", lambda *given: (2.0, 1.0))
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(5)), nn.Linear(32, 4)).eval()
    corsac.quantize(model, data(4, 32))
    assert calls == [(4, 32), (4, 32)]


def test_models_are_timed(monkeypatch):
    fast, slow = (2e-3, 1e-3), (1e-3, 2e-3)
    monkeypatch.setattr(_timing, "_measured", lambda *given: _timing.Times(2.0, 1.0))
    monkeypatch.setattr(_job, "time_models", lambda *given: fast)
    made = corsac.quantize(mlp(), data(4, 64))
    assert "a call on one thread: 2.00 ms -> 1.00 ms, 2.00 times as fast" in str(
        made.quantization_report
    )
    monkeypatch.setattr(_job, "time_models", lambda *given: slow)
    with pytest.warns(UserWarning, match="slower than the float one: 2.00 ms, 1.00 ms"):
        corsac.quantize(mlp(), data(4, 64))


def test_measured_times_are_of_native_layers():
    made = corsac.quantize(nn.Sequential(nn.Linear(512, 512)).eval(), torch.randn(16, 512))
    report = made.quantization_report
    row = report["0"]
    assert 0.0 < row.float_seconds < 1.0 and 0.0 < row.seconds < 1.0
    # A model of one layer is as fast as this.
    assert row.is_quantised and report.seconds < report.float_seconds
