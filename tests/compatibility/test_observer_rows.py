"""The rows of docs/compatibility.md about observers, layers for training and reference layers."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.ao.nn.intrinsic as their_fused
import torch.ao.nn.intrinsic.qat as their_fused_qat
import torch.ao.nn.qat as their_qat
import torch.ao.nn.quantized.reference as their_reference
import torch.ao.quantization as theirs
import torch.ao.quantization.utils as their_utils
from torch import nn

import corsac.quantization as ours
import corsac.quantization.intrinsic as our_fused
import corsac.quantization.intrinsic.qat as our_fused_qat
import corsac.quantization.qat as our_qat
import corsac.quantization.reference as our_reference
import corsac.quantization.utils as our_utils
from kit import row

pytestmark = pytest.mark.filterwarnings("ignore")

PACKAGES = (theirs, ours)


# Observers --------------------------------------------------------------------------------------


@row("NaN or infinity in calibration data or in weights")
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite(value: float) -> None:
    fine = torch.tensor([[-1.0, 1.0], [-1.0, 1.0]])
    bad = torch.tensor([[-1.0, 1.0], [-1.0, value]])
    their, our = (package.PerChannelMinMaxObserver() for package in PACKAGES)
    their(bad)
    assert not torch.isfinite(their.calculate_qparams()[0]).all()
    our(fine)
    before = copy.deepcopy(our.state_dict())
    with pytest.raises(
        ValueError, match=r"Observer: batch 2 has NaN or infinity in channels \[1\]"
    ):
        our(bad)
    assert all(torch.equal(before[key], kept) for key, kept in our.state_dict().items())
    model = nn.Sequential(nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight.copy_(bad)
    assert not torch.isfinite(theirs.quantize_dynamic(model)(fine)).any()
    with pytest.raises(ValueError, match=r"0\.weight has NaN or infinity"):
        ours.quantize_dynamic(model)


@row("NaN or infinity in calibration data or in weights")
def test_infinities_in_histograms() -> None:
    x = torch.tensor([-1.0, 0.5, 1.0, float("inf")])
    their, our = (package.HistogramObserver() for package in PACKAGES)
    their(x)
    with pytest.warns(UserWarning, match="batch 1 has infinite values"):
        our(x)
    assert their.calculate_qparams() == our.calculate_qparams()
    with pytest.raises(ValueError, match="HistogramObserver: batch 2 has NaN"):
        our(torch.tensor([float("nan")]))


@row("values less than half of the smallest scale")
def test_values_that_all_become_zero() -> None:
    x, texts = torch.tensor([-5e-8, 5e-8]), []
    for package in PACKAGES:
        observer = package.MinMaxObserver()
        observer(x)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            scale, zero_point = observer.calculate_qparams()
        assert torch.all(torch.round(x / scale) == 0) and zero_point == 0
        texts.append([str(one.message) for one in seen])
    assert texts[0] == []
    assert "all values become 0" in texts[1][0] and "pass a smaller eps" in texts[1][0]


@row("`HistogramObserver` on values of about")
@pytest.mark.parametrize("exponent", [-60, 100])
def test_magnitudes_in_histograms(exponent: int) -> None:
    x = torch.randn(1000, generator=torch.Generator().manual_seed(4))
    x[0] = 50
    same = []
    for package in PACKAGES:
        plain, scaled = package.HistogramObserver(eps=1e-38), package.HistogramObserver(eps=1e-38)
        plain(x)
        scaled(x * 2.0**exponent)
        scale, expected = (one.calculate_qparams()[0] for one in (scaled, plain))
        same.append(torch.equal(scale, expected * 2.0**exponent))
    assert same == [False, True]


@row("`PerChannelMinMaxObserver` on vectors")
def test_vectors() -> None:
    x = torch.tensor([1.0, -2.0])
    with pytest.raises(IndexError):
        theirs.PerChannelMinMaxObserver()(x)
    our = ours.PerChannelMinMaxObserver()
    our(x)
    assert torch.equal(our.min_val, x)


@row("`PlaceholderObserver(compute_dtype=…)`")
def test_compute_dtype() -> None:
    dynamic = [
        package.PlaceholderObserver(compute_dtype=torch.quint8).is_dynamic for package in PACKAGES
    ]
    assert dynamic == [False, True]


@row("`load_observer_state_dict` and `eps`")
def test_smallest_scales_in_state_dicts() -> None:
    loaded = []
    for package in PACKAGES:
        models = []
        for arguments in ({"eps": 1e-10}, {}):
            observer = package.MinMaxObserver(**arguments)
            observer(torch.ones(2))
            models.append(nn.ModuleDict({"activation_post_process_0": observer}))
        package.load_observer_state_dict(models[1], package.get_observer_state_dict(models[0]))
        loaded.append(float(models[1]["activation_post_process_0"].eps))
    assert loaded == pytest.approx([torch.finfo(torch.float32).eps, 1e-10])


@row("quantisation parameters that there are none of")
def test_kinds_of_errors() -> None:
    for name in ("PlaceholderObserver", "RecordingObserver", "NoopObserver"):
        with pytest.raises(Exception) as error:
            getattr(theirs, name)().calculate_qparams()
        assert error.type is Exception
        with pytest.raises(NotImplementedError, match=f"{name} has no quantisation parameters"):
            getattr(ours, name)().calculate_qparams()
    floats = theirs.PlaceholderObserver.with_args(dtype=torch.float32)
    with pytest.raises(Exception) as error:
        their_utils.get_quant_type(theirs.QConfig(floats, floats))
    assert error.type is Exception
    with pytest.raises(ValueError, match="no kind of quantisation"):
        our_utils.get_quant_type(theirs.QConfig(floats, floats))


class Keywords(nn.Module):
    def forward(self, x, first=3, second=4):
        return x + first + second


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Keywords()

    def forward(self, x):
        return self.inner(x, second=6)


@row("`get_fqn_to_example_inputs`")
def test_example_inputs() -> None:
    their, our = (
        utils.get_fqn_to_example_inputs(Outer(), (torch.ones(2),))["inner"]
        for utils in (their_utils, our_utils)
    )
    assert len(their) == 1
    assert our[1:] == (3, 6)


# Layers for training ------------------------------------------------------------------------------


def trained(package: Any, kinds: Any, qat: Any, name: str, *parts: nn.Module) -> Any:
    """A layer for training, of a float layer or a fused one."""
    layer = getattr(kinds, name)(*parts) if parts[1:] else parts[0]
    for module in layer.modules():
        module.qconfig = package.default_qat_qconfig
    return getattr(qat, name).from_float(layer)


FUSED = ((theirs, their_fused, their_fused_qat), (ours, our_fused, our_fused_qat))


@row("layers for training with a batch norm and")
def test_padding_by_name() -> None:
    x = torch.ones(1, 1, 5, 5)
    their, our = (
        trained(*one, "ConvBn2d", nn.Conv2d(1, 2, 3, padding="same"), nn.BatchNorm2d(2))
        for one in FUSED
    )
    with pytest.raises(TypeError):
        their(x)
    assert our(x).shape == (1, 2, 5, 5)


@row("`freeze_bn_stats` and `update_bn_stats` on `LinearBn1d`")
def test_frozen_batch_norms() -> None:
    frozen = []
    for package, kinds, qat in FUSED:
        model = trained(package, kinds, qat, "LinearBn1d", nn.Linear(2, 2), nn.BatchNorm1d(2))
        model.apply(qat.freeze_bn_stats)
        frozen.append(model.freeze_bn)
        model.apply(qat.update_bn_stats)
        assert not model.freeze_bn
    assert frozen == [False, True]


@row("`to_float` of a layer for training")
def test_modes_of_float_layers() -> None:
    modes: list[list[bool]] = []
    for (package, kinds, fused_qat), qat in zip(FUSED, (their_qat, our_qat), strict=True):
        layers = [
            trained(package, kinds, qat, "Conv2d", nn.Conv2d(1, 1, 1)),
            trained(package, kinds, fused_qat, "LinearReLU", nn.Linear(1, 1), nn.ReLU()),
            trained(package, kinds, fused_qat, "LinearBn1d", nn.Linear(1, 1), nn.BatchNorm1d(1)),
        ]
        modes.append([layer.eval().to_float().training for layer in layers])
    assert modes == [[True] * 3, [False] * 3]


@row("reference convolutions with `padding_mode`")
def test_padding_of_reference_layers() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular")
    observer = theirs.MinMaxObserver(dtype=torch.qint8)
    observer(layer.weight)
    x = torch.randn(1, 1, 5, 5)
    off = [
        (reference.Conv2d.from_float(layer, utils.get_qparam_dict(observer))(x) - layer(x))
        .abs()
        .max()
        for reference, utils in ((their_reference, their_utils), (our_reference, our_utils))
    ]
    assert off[1] < 0.05 < off[0]
