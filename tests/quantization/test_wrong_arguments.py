"""What is said of wrong configurations, data and metrics."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import corsac
import corsac.quantization as ours
from corsac.quantization import quantize_fx
from corsac.quantization.fx.custom_config import PrepareCustomConfig
from corsac.quantization.quantize_pt2e import prepare_pt2e
from corsac.quantization.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config,
)
from corsac.quantization.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)

X = (torch.randn(4, 8),)


def model():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"calibration_data": torch.randn(0, 8)}, ValueError, r"batch 0 .*: expected numbers"),
        ({"weights": 8}, ValueError, r"weights: expected 'int8', .*, got 8"),
        (
            {"calibration_data": X, "max_drop": 1.0, "metric": lambda _: torch.zeros(3)},
            ValueError,
            r"metric: expected a finite number, got a tensor of \[3\]",
        ),
    ],
    ids=["no numbers", "weights", "metric"],
)
def test_one_call(given, error, message):
    with pytest.raises(error, match=message):
        corsac.quantize(model(), measure=False, **given)


def test_one_call_on_prepared_models():
    prepared = prepare(ours.get_default_qconfig_mapping())
    with pytest.raises(ValueError, match="prepared already: activation_post_process_0 is a Histo"):
        corsac.quantize(prepared, X)


def prepare(mapping, config=None):
    return quantize_fx.prepare_fx(model(), mapping, X, config)


def test_configurations():
    new = ours.QConfigMapping
    with pytest.raises(TypeError, match="global_qconfig: expected a QConfig or None, got 'fbgemm'"):
        prepare(new().set_global("fbgemm"))
    with pytest.raises(TypeError, match="module_name_qconfigs, 0: expected a QConfig or None"):
        prepare(new().set_module_name("0", torch.qint8))
    with pytest.raises(ValueError, match=r"expected a regular expression, got '\(': missing"):
        prepare(new().set_module_name_regex("(", ours.default_qconfig))


@pytest.mark.parametrize("place", ["input", "output"])
def test_places_that_the_model_does_not_have(place):
    config = PrepareCustomConfig()
    getattr(config, f"set_{place}_quantized_indexes")([0, 5])
    mapping = ours.QConfigMapping().set_global(ours.default_qconfig)
    with pytest.warns(UserWarning, match=rf"the model has 1 {place}s, \[5\] are ignored"):
        prepare(mapping, config)


def test_dimensions_of_channels():
    observer = ours.PerChannelMinMaxObserver(ch_axis=3)
    with pytest.raises(IndexError, match="expected values with dimension 3, got 2 dimensions"):
        observer(*X)


def linear_with(value):
    made = model()
    with torch.no_grad():
        made[2].weight[1, 3] = value
    return made


def test_infinite_weights_are_named():
    mapping = ours.QConfigMapping().set_global(ours.default_qconfig)
    with pytest.warns(UserWarning, match=r"^2\.weight has NaN or infinity: 1 of 64 numbers$"):
        quantize_fx.prepare_fx(linear_with(float("nan")), mapping, X)
    histograms = ours.QConfig(ours.HistogramObserver, ours.default_weight_observer)
    mapping = ours.QConfigMapping().set_global(histograms)
    made = linear_with(float("inf"))
    with torch.no_grad():
        made[2].weight[:] = float("inf")
    with pytest.warns(UserWarning, match=r"2\.weight has NaN or infinity: 64 of 64 numbers"):
        prepared = quantize_fx.prepare_fx(made, mapping, X)
    with pytest.raises(quantize_fx.CalibrationError, match="have seen no values") as error:
        quantize_fx.convert_fx(prepared)
    assert "2.weight has NaN or infinity: 64 of 64 numbers" in str(error.value)
    made.qconfig = histograms
    with pytest.warns(UserWarning, match=r"2\.weight has NaN or infinity: 64 of 64 numbers"):
        ours.prepare(made)


def quantised(activation, x):
    qconfig = ours.QConfig(activation, ours.default_weight_observer)
    prepared = prepare(ours.QConfigMapping().set_global(qconfig))
    prepared(x)
    return quantize_fx.convert_fx(prepared)


def test_ranges_that_the_type_does_not_hold():
    wide = ours.MinMaxObserver.with_args(quant_min=0, quant_max=700, dtype=torch.quint8)
    with pytest.raises(
        ValueError, match=r"activation_post_process_0 of \w+ .*: torch\.uint8 holds 0 to 255, not 0"
    ):
        quantised(wide, *X)


def test_constant_values():
    with pytest.warns(
        UserWarning, match=r"the same number in all batches: activation_post_process_0 of input"
    ):
        quantised(ours.MinMaxObserver, torch.zeros(4, 8))


def test_calibration_errors_name_values_and_lines():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, x):
            return self.fc(x)

    mapping = ours.QConfigMapping().set_global(ours.default_qconfig)
    prepared = quantize_fx.prepare_fx(Model().eval(), mapping, X)
    with pytest.raises(
        quantize_fx.CalibrationError,
        match=r"activation_post_process_1 of fc \(test_wrong_arguments\.py:\d+\)",
    ):
        quantize_fx.convert_fx(prepared)


@pytest.mark.parametrize(
    "quantizer",
    [
        X86InductorQuantizer().set_module_name_qconfig(
            "fcc", get_default_x86_inductor_quantization_config()
        ),
        XNNPACKQuantizer().set_module_name("fcc", get_symmetric_quantization_config()),
    ],
    ids=["x86", "xnnpack"],
)
def test_names_of_quantisers_that_match_nothing(quantizer):
    made = nn.Sequential()
    made.add_module("fc", nn.Linear(8, 8))
    exported = torch.export.export(made.eval(), X).module()
    with pytest.warns(UserWarning, match=r"calls no module 'fcc': did you mean fc\?"):
        prepare_pt2e(exported, quantizer)
