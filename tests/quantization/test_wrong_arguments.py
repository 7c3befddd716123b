"""What is said of wrong configurations, data and metrics."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import corsac
import corsac.quantization as ours
from corsac.quantization import quantize_fx
from corsac.quantization.fx.custom_config import PrepareCustomConfig

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
