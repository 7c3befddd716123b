"""Corrections of ``corsac.quantize``: biases, and factors that move between layers."""

import pytest
import torch
from torch import nn

import corsac
from corsac.quantization.one_call._data import sqnr
from kit.one_call import data, mlp


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_biases_are_corrected_by_mean_errors():
    model = nn.Sequential(nn.Linear(64, 32, bias=False)).eval()
    batches = [torch.rand(256, 64) + 1.0 for _ in range(4)]
    made = corsac.quantize(model, batches, measure=False)
    without = corsac.quantize(model, batches, measure=False, bias_correction=False)
    assert without[0].bias is None and made[0].bias.shape == (32,)
    everything = torch.cat(batches)

    def mean_error(own):
        return (own(everything) - model(everything)).mean(0).abs().max()

    assert mean_error(made) < 0.2 * mean_error(without)
    report, plain = made.quantization_report["0"], without.quantization_report["0"]
    assert report.sqnr > plain.sqnr and report.notes == ["bias corrected"]
    # Errors in the report are those that remain.
    assert report.sqnr == pytest.approx(sqnr(model(everything), made(everything)), abs=0.1)


def test_few_numbers_correct_nothing():
    made = corsac.quantize(mlp(), torch.rand(3, 64), measure=False)
    assert all(row.notes == [] for row in made.quantization_report.rows)


class Block(nn.Module):
    """Norms before layers, of which some channels are large."""

    def __init__(self):
        super().__init__()
        self.norm, self.inner_norm = nn.LayerNorm(64), nn.LayerNorm(64)
        self.left, self.right = nn.Linear(64, 64), nn.Linear(64, 64)
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)
        with torch.no_grad():
            for norm in (self.norm, self.inner_norm):
                norm.weight[3], norm.weight[7] = 60.0, 40.0

    def forward(self, x):
        inner = self.norm(x)
        x = x + self.left(inner) * torch.sigmoid(self.right(inner))
        return x + self.down(torch.relu(self.up(self.inner_norm(x))))


@pytest.mark.parametrize("option", [{"smooth_quant": 0.5}, {"equalize": True}])
def test_factors_move_from_norms_to_layers(option):
    model, batches = Block().eval(), data(8, 16, 64)
    plain = corsac.quantize(model, batches, measure=False)
    made = corsac.quantize(model, batches, measure=False, **option)
    assert made.quantization_report.sqnr > plain.quantization_report.sqnr + 6.0
    word = "smoothed" if "smooth_quant" in option else "equalised"
    for name, source in (("left", "norm"), ("right", "norm"), ("up", "inner_norm"), ("down", "up")):
        assert f"{word} with {source}" in made.quantization_report[name].remark
    # The weights have other factors, and compute the same.
    assert not torch.allclose(made.norm.weight, model.norm.weight, rtol=0.1)
    assert made.dequantize() is model and model.norm.weight[3] == 60.0
    left_float = corsac.quantize(model, batches, measure=False, exclude="down", **option)
    assert left_float.quantization_report.sqnr > plain.quantization_report.sqnr


def test_factors_do_not_move_where_something_else_reads_the_numbers():
    class Read(Block):
        def forward(self, x):
            inner = self.norm(x)
            x = inner + self.left(inner) * self.right(inner)
            return self.down(nn.functional.gelu(self.up(self.inner_norm(x)))), x.shape

    class Returned(Block):
        def forward(self, x):
            inner = self.norm(x)
            return inner, self.left(inner), self.down(self.up(torch.cat([x, x])[:, :1])[:, 0])

    class Twice(Block):
        def forward(self, x):
            return self.left(self.norm(x)) + self.left(self.inner_norm(x))

    class Offset(nn.LayerNorm):
        def forward(self, x):
            return nn.functional.layer_norm(x, (64,), 1 + self.weight, self.bias)

    class Other(Block):
        def __init__(self):
            super().__init__()
            self.norm = Offset(64)

        def forward(self, x):
            return self.left(self.norm(x))

    expected = {
        Read: ("left", "norm: its output goes to add"),
        Returned: ("left", "norm: the model returns its output"),
        Twice: ("left", "its inputs come from several modules"),
        Other: ("left", "norm: its output is not proportional to its weight"),
    }
    for kind, (layer, reason) in expected.items():
        model = kind().eval()
        made = corsac.quantize(model, data(8, 3, 64), measure=False, smooth_quant=0.5)
        assert f"not smoothed: {reason}" in made.quantization_report[layer].notes, kind
        assert torch.equal(made.norm.weight, model.norm.weight), kind
    read = corsac.quantize(Read().eval(), data(8, 3, 64), measure=False, smooth_quant=0.5)
    remarks = {row.layer: row.remark for row in read.quantization_report.rows}
    assert "not smoothed: what computes its input has no factors" in remarks["down"]
    assert "smoothed with inner_norm (alpha 0.5)" in remarks["up"]


def test_tied_weights_keep_their_factors():
    model = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.Linear(32, 32)).eval()
    model[2].weight = model[1].weight
    made = corsac.quantize(model, data(8, 32), measure=False, smooth_quant=0.5)
    assert "not smoothed: 0: a weight is tied" in made.quantization_report["1"].notes


def test_factors_move_through_convolutions_and_norms():
    class Depthwise(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8)
            self.middle = nn.Conv2d(8, 16, 3, groups=8)
            self.last = nn.Conv2d(16, 4, 1)
            with torch.no_grad():
                self.norm.weight.copy_(torch.logspace(-1, 1, 8))
                self.middle.weight[::3] *= 30

        def forward(self, x):
            x = torch.relu(self.norm(self.first(x)))
            x = torch.nn.functional.max_pool2d(torch.relu(self.middle(x)), 2)
            return self.last(x)

    model, batches = Depthwise().eval(), data(4, 3, 12, 12)
    plain = corsac.quantize(model, batches, measure=False)
    made = corsac.quantize(model, batches, measure=False, equalize=True)
    report = made.quantization_report
    assert "equalised with norm" in report["middle"].remark
    assert "equalised with middle" in report["last"].remark
    assert report.sqnr > plain.quantization_report.sqnr + 1.0
