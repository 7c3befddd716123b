"""bfloat16 as a form of layers in ``corsac.quantize``, and subclasses of layers."""

import pickle
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac
from corsac.quantization.one_call import _job, _race, _timing
from corsac.quantization.one_call._data import sqnr
from corsac.quantization.one_call._subclasses import computes_as
from corsac.quantization.quantized.half_layers import (
    HalfConv1d,
    HalfConv2d,
    HalfConv3d,
    HalfEmbedding,
    HalfLayer,
    HalfLinear,
)
from corsac.quantization.quantized.integer_layers import IntegerLayer, IntegerLinear
from kit.one_call import forms, mlp


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


CASES = [
    (HalfLinear, nn.Linear(24, 16), (5, 24)),
    (HalfLinear, nn.Linear(24, 16, bias=False), (2, 5, 24)),
    (HalfConv1d, nn.Conv1d(16, 16, 3, padding=1), (2, 16, 9)),
    (HalfConv2d, nn.Conv2d(16, 32, 3, stride=2, padding=1), (2, 16, 9, 9)),
    (HalfConv2d, nn.Conv2d(16, 16, 3, groups=16, padding_mode="reflect", padding=1), (1, 16, 7, 7)),
    (HalfConv3d, nn.Conv3d(4, 8, 3), (1, 4, 5, 5, 5)),
]


@pytest.mark.parametrize(("kind", "layer", "shape"), CASES)
def test_layers_compute_as_the_layer_in_bfloat16(kind, layer, shape):
    half = kind.from_float(layer.eval(), None)
    x = torch.randn(shape)
    expected = layer(x)
    whole = pickle.loads(pickle.dumps(layer)).to(torch.bfloat16)
    with torch.no_grad():
        got = half(x)
        assert torch.equal(got, whole(x.to(torch.bfloat16)).float())
        assert got.dtype == torch.float32
        assert 40.0 < sqnr(expected, got) < 70.0
        fast = corsac.compile(half, options={"inference": "native"})
        for _ in range(2):
            result = fast(x)
        assert sqnr(got, result) > 45.0
    assert half.weight.dtype == torch.float32
    assert torch.equal(half.weight, layer.weight.detach().to(torch.bfloat16).float())
    assert half.rounded_weight.nbytes * 2 == layer.weight.nbytes
    assert "weight=bfloat16" in repr(half)


def test_tables():
    table = nn.Embedding(12, 8)
    half = HalfEmbedding.from_float(table, None)
    words = torch.tensor([[1, 11, 3]])
    assert torch.equal(half(words), table(words).detach().to(torch.bfloat16).float())


def test_only_bfloat16():
    model, x = mlp(), torch.randn(6, 64)
    made = corsac.quantize(model, dtype="bfloat16")
    assert set(forms(made).values()) == {"bfloat16"}
    report = made.quantization_report
    assert report.bytes < 0.51 * report.float_bytes
    assert "3 of 3 layers quantised (3 in bfloat16)" in str(report)
    expected = model(x)
    assert sqnr(expected, made(x)) > 42.0
    with_data = corsac.quantize(model, x, dtype="bfloat16", measure=False)
    assert torch.equal(with_data(x), made(x))
    assert with_data.quantization_report["2"].sqnr > 42.0
    assert made.dequantize() is model
    again = pickle.loads(pickle.dumps(made))
    assert torch.equal(again(x), made(x))
    floats = again.dequantize()
    assert type(floats[0]) is nn.Linear and sqnr(expected, floats(x)) > 42.0
    with pytest.raises(ValueError, match="'bfloat16' has no ranges"):
        corsac.quantize(model, dtype="bfloat16", dynamic=True)


def test_files_hold_bfloat16(tmp_path):
    model, x = mlp(), torch.randn(6, 64)
    made = corsac.quantize(model, dtype="bfloat16")
    corsac.save(made, tmp_path / "half.safetensors", (x,))
    corsac.save(model, tmp_path / "float.safetensors", (x,))
    size = (tmp_path / "half.safetensors").stat().st_size
    assert size < 0.56 * (tmp_path / "float.safetensors").stat().st_size
    loaded = corsac.load(tmp_path / "half.safetensors", framework="torch")
    assert sqnr(made(x), loaded(x)) > 45.0


def measured_as(monkeypatch, integers, halves):
    """Makes quantised layers take these parts of the float ones' time, and the model whatever its layers take."""
    part = {IntegerLinear: integers, HalfLinear: halves, nn.Linear: 1.0}

    def measured(layer, made, input):
        return _timing.Times(1.0, part[type(made)])

    def compiled(model, **options):
        layers = [own for own in model.modules() if type(own) in part]
        return lambda *args: sum(part[type(own)] for own in layers)

    monkeypatch.setattr(_timing, "_measured", measured)
    monkeypatch.setattr(_race, "compile", compiled)
    monkeypatch.setattr(_race, "interleaved", lambda one, other, patience: (one(), other()))
    monkeypatch.setattr(_job, "time_models", lambda *given: (2.0, 1.0))


@pytest.mark.parametrize(
    ("integers", "halves", "expected"),
    [
        (0.4, 0.6, "int8 static"),
        (1.2, 0.6, "bfloat16"),
        (1.2, 1.1, "float"),
        (0.6, 0.4, "int8 static"),
    ],
)
def test_what_is_faster_is_taken(monkeypatch, integers, halves, expected):
    measured_as(monkeypatch, integers, halves)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = corsac.quantize(mlp(), torch.randn(8, 64))
    assert set(forms(made).values()) == {expected}
    row = made.quantization_report["2"]
    if expected == "bfloat16":
        assert row.seconds == 0.6 and row.float_seconds == 1.0
        assert "int8 static is not faster" in row.reason
        assert row.sqnr > 42.0
        assert row.bytes < 0.51 * row.float_bytes


def test_models_that_are_slower_with_bfloat16_between_floats_stay_float(monkeypatch):
    measured_as(monkeypatch, 1.2, 0.6)
    monkeypatch.setattr(_race, "interleaved", lambda one, other, patience: (1.0, 1.0))
    with pytest.warns(UserWarning, match="no layer is quantised"):
        made = corsac.quantize(mlp(), torch.randn(8, 64))
    assert set(forms(made).values()) == {"float"}


def test_layers_that_no_integers_fit_are_measured_in_bfloat16(monkeypatch):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 8)

        def forward(self, x):
            return self.head(self.conv(x).mean((2, 3)))

    def measured(layer, made, input):
        return _timing.Times(1.0, 0.5)

    monkeypatch.setattr(_timing, "_measured", measured)
    monkeypatch.setattr(_race, "interleaved", lambda one, other, patience: (1.0, 0.5))
    monkeypatch.setattr(_job, "time_models", lambda *given: (2.0, 1.0))
    made = corsac.quantize(Both().eval(), torch.randn(2, 3, 8, 8), dynamic=True)
    assert forms(made) == {"conv": "bfloat16", "head": "int8 dynamic"}
    assert "row by row" in made.quantization_report["conv"].reason


def integers(model):
    return sum(isinstance(own, IntegerLayer) for own in model.modules())


def halves(model):
    return sum(isinstance(own, HalfLayer) for own in model.modules())


@pytest.mark.parametrize("measure", [False, True])
def test_what_costs_too_much_of_the_metric_gets_bfloat16(monkeypatch, measure):
    measured_as(monkeypatch, 0.5, 0.7)

    def metric(own):
        return 10.0 - integers(own) - 0.1 * halves(own)

    made = corsac.quantize(mlp(), torch.randn(8, 64), metric=metric, max_drop=1.15, measure=measure)
    assert sorted(forms(made).values()) == ["bfloat16", "float", "int8 static"]
    report = made.quantization_report
    half = next(row for row in report.rows if row.form == "bfloat16")
    assert half.reason == "int8 static: the metric would drop by more than 1.15"
    assert report.metric == pytest.approx(8.9)
    if measure:
        assert half.seconds == 0.7


def test_slow_bfloat16_is_no_way_out(monkeypatch):
    measured_as(monkeypatch, 0.5, 1.5)
    made = corsac.quantize(
        mlp(), torch.randn(8, 64), metric=lambda own: -integers(own), max_drop=1.0
    )
    assert sorted(forms(made).values()) == ["float", "float", "int8 static"]


def test_weights_fall_back_to_bfloat16_before_floats():
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(64, 32), nn.Linear(32, 64, bias=False)
            self.head.weight = self.table.weight

        def forward(self, words):
            return self.head(self.table(words))

    made = corsac.quantize(
        Language().eval(),
        weights="int8",
        metric=lambda own: -integers(own) - 0.1 * halves(own),
        max_drop=0.5,
    )
    assert set(forms(made).values()) == {"bfloat16"}
    # Tied weights stay tied.
    assert made.table.rounded_weight.data_ptr() == made.head.rounded_weight.data_ptr()


def test_programs_mix_precisions():
    """Layers in bfloat16 between others have products of bfloat16, and the same results as alone."""
    first, second = nn.Linear(64, 96), nn.Linear(96, 32)
    half = HalfLinear.from_float(first, None)
    x = torch.randn(40, 64)
    mixed = nn.Sequential(half, nn.ReLU(), second).eval()
    with torch.no_grad():
        fast = corsac.compile(mixed, options={"inference": "native"})
        alone = corsac.compile(half, options={"inference": "native"})
        for _ in range(2):
            result, part = fast(x), alone(x)
        torch.testing.assert_close(result, second(torch.relu(part)), rtol=1e-5, atol=1e-5)
        assert sqnr(mixed(x), result) > 45.0


# -- subclasses ----------------------------------------------------------------------------------


class Same(nn.Linear):
    """Has another name only."""


class Above(nn.Linear):
    def forward(self, input):
        return super().forward(input)


class Spelled(nn.Linear):
    def forward(self, input):
        if torch.jit.is_scripting():
            return F.linear(input, self.weight.to(input.dtype), None)
        return F.linear(input, self.weight, self.bias)


class Noted(nn.Linear):
    """Has an attribute that its forward does not read."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.note = "note"


class Whole(nn.Conv2d):
    def forward(self, input):
        return self._conv_forward(input, self.weight, self.bias)


class Doubled(nn.Linear):
    def forward(self, input):
        return 2 * super().forward(input)


class Switched(nn.Linear):
    on = True

    def forward(self, input):
        return F.linear(input, self.weight, self.bias) if self.on else input


class Gained(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.gain = 1.0

    def forward(self, input):
        result = F.linear(input, self.weight, self.bias)
        return result if self.gain == 1.0 else result * self.gain


class BySize(nn.Linear):
    def forward(self, input):
        return input if input.shape[0] > 3 else super().forward(input)


class Biasless(nn.Linear):
    def forward(self, input):
        return F.linear(input, self.weight)


class Called(nn.Linear):
    def __call__(self, input):
        return super().__call__(input) + 1


class Swapped(nn.Linear):
    """Finds another forward when it is marked, which no trace sees."""

    def __getattribute__(self, name):
        found = object.__getattribute__
        is_marked = name == "forward" and "mark" in found(self, "__dict__")
        return torch.neg if is_marked else found(self, name)


LIMIT = 4


class Limited(nn.Linear):
    def forward(self, input):
        return F.linear(input, self.weight, self.bias) if LIMIT == 4 else input


class Padded(nn.Conv2d):
    def forward(self, input):
        return super().forward(F.pad(input, (1, 1, 1, 1)))


def test_subclasses_that_compute_the_same():
    for kind in (Same, Above, Spelled, Noted):
        assert computes_as(kind(4, 3), nn.Linear), kind
    assert computes_as(Whole(4, 3, 3, padding=1, padding_mode="reflect"), nn.Conv2d)
    for kind in (Doubled, Switched, Gained, BySize, Biasless, Called, Swapped, Limited):
        assert not computes_as(kind(4, 3), nn.Linear), kind
    assert not computes_as(Padded(4, 3, 3), nn.Conv2d)


def test_subclasses_are_quantised_if_they_compute_the_same():
    model = nn.Sequential(Spelled(16, 16), Doubled(16, 16), Gained(16, 8)).eval()
    made = corsac.quantize(model, torch.randn(8, 16), measure=False)
    assert forms(made) == {"0": "int8 static", "1": "float", "2": "float"}
    assert "Doubled is a subclass" in made.quantization_report["1"].reason
    assert made.quantization_report["0"].kind == "Spelled"
    x = torch.randn(4, 16)
    assert sqnr(model(x), made(x)) > 30.0
    assert type(made[1]) is Doubled


def test_subclasses_of_timm():
    timm = pytest.importorskip("timm")
    layers = timm.layers
    assert computes_as(layers.Linear(4, 3), nn.Linear)
    for kind in (layers.Conv2dSame, layers.StdConv2d, layers.ScaledStdConv2d):
        assert not computes_as(kind(4, 3, 3), nn.Conv2d), kind
    model = timm.create_model("mobilenetv3_small_050", num_classes=8).eval()
    head = next(name for name, own in model.named_modules() if type(own) is layers.Linear)
    made = corsac.quantize(model, torch.randn(2, 3, 32, 32), measure=False)
    assert forms(made)[head] == "int8 static"
