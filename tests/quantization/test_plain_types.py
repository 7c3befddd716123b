"""Plain types of integers in configurations: they mean the quantised types of the same bits."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization import QConfig as TheirQConfig
from torch.ao.quantization import QConfigMapping as TheirQConfigMapping
from torch.ao.quantization import observer as their_observers
from torch.ao.quantization import quantize_fx as theirs

import corsac.quantization as ours
from corsac.quantization import backend_config, quantize_fx

pytestmark = pytest.mark.filterwarnings("ignore:.*reduce_range", "ignore:.*deprecat")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)
        self.weight = nn.Parameter(torch.randn(6, 5))

    def forward(self, x):
        rows = F.relu(self.conv(x)).mean((2, 3))
        return F.linear(F.relu(self.fc(rows)), self.weight)


X = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def model():
    torch.manual_seed(0)
    return Model().eval()


def qconfig(activation, weight, per_channel=False):
    kind, scheme = ours.MinMaxObserver, torch.per_tensor_symmetric
    if per_channel:
        kind, scheme = ours.PerChannelMinMaxObserver, torch.per_channel_symmetric
    return ours.QConfig(
        ours.MinMaxObserver.with_args(dtype=activation),
        kind.with_args(dtype=weight, qscheme=scheme),
    )


def converted(config, **backend):
    mapping = ours.QConfigMapping().set_global(config)
    prepared = quantize_fx.prepare_fx(model(), mapping, (X,), **backend)
    prepared(X)
    return quantize_fx.convert_fx(prepared, **backend)


def weights(gm):
    return [gm.conv[0].weight.dtype, gm.fc[0].weight.dtype, gm.weight_quantized.dtype]


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("weight", [torch.qint8, torch.int8])
@pytest.mark.parametrize("activation", [torch.quint8, torch.uint8])
def test_models_are_those_of_quantised_types(activation, weight, per_channel):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*stay floats")
        gm = converted(qconfig(activation, weight, per_channel))
    expected = converted(qconfig(torch.quint8, torch.qint8, per_channel))
    assert weights(gm) == [torch.int8] * 3
    assert gm.code == expected.code
    assert torch.equal(gm(X), expected(X))
    their_kind = their_observers.MinMaxObserver
    scheme = torch.per_tensor_symmetric
    if per_channel:
        their_kind = their_observers.PerChannelMinMaxObserver
        scheme = torch.per_channel_symmetric
    their_config = TheirQConfig(
        their_observers.MinMaxObserver,
        their_kind.with_args(dtype=torch.qint8, qscheme=scheme),
    )
    prepared = theirs.prepare_fx(model(), TheirQConfigMapping().set_global(their_config), (X,))
    prepared(X)
    reference = theirs.convert_to_reference_fx(prepared)(X)
    assert (gm(X) - reference).abs().max() <= 0.02 * reference.abs().max()


@pytest.mark.parametrize("types", [(torch.qint8, torch.qint8), (torch.int8, torch.int8)])
def test_signed_values_by_the_backend(types):
    with pytest.warns(UserWarning) as seen:
        gm = converted(qconfig(*types))
    (text,) = {str(one.message) for one in seen if "stay floats" in str(one.message)}
    assert text == (
        "conv, fc stay floats: the backend does not compute them with inputs of "
        f"{types[0]} and weights of {types[1]}"
    )
    assert {one.filename for one in seen if "stay floats" in str(one.message)} == {__file__}
    assert "quantize" not in gm.code
    signed = ours.QConfig(
        ours.MinMaxObserver.with_args(dtype=types[0], eps=2**-12),
        ours.MinMaxObserver.with_args(
            dtype=types[1],
            qscheme=torch.per_tensor_symmetric,
            quant_min=-127,
            quant_max=127,
            eps=2**-12,
        ),
    )
    gm = converted(signed, backend_config=backend_config.get_qnnpack_backend_config())
    assert weights(gm) == [torch.int8] * 3
    assert "torch.int8" in gm.code
    assert "torch.uint8" not in gm.code


def test_dynamic_values():
    config = ours.QConfig(
        ours.PlaceholderObserver.with_args(dtype=torch.uint8, is_dynamic=True),
        ours.MinMaxObserver.with_args(dtype=torch.int8, qscheme=torch.per_tensor_symmetric),
    )
    mapping = ours.QConfigMapping().set_object_type(nn.Linear, config)
    gm = quantize_fx.convert_fx(quantize_fx.prepare_fx(model(), mapping, (X,)))
    assert gm.fc[0].weight.dtype == torch.int8
    assert "choose_qparams_per_token" in gm.code


def trained(activation, weight):
    config = ours.QConfig(
        ours.FakeQuantize.with_args(
            observer=ours.MovingAverageMinMaxObserver,
            quant_min=0,
            quant_max=255,
            dtype=activation,
        ),
        ours.FakeQuantize.with_args(
            observer=ours.MovingAverageMinMaxObserver,
            quant_min=-128,
            quant_max=127,
            dtype=weight,
            qscheme=torch.per_tensor_symmetric,
        ),
    )
    prepared = quantize_fx.prepare_qat_fx(
        model().train(), ours.QConfigMapping().set_global(config), (X,)
    )
    optimiser = torch.optim.SGD(prepared.parameters(), 0.01)
    prepared(X).square().mean().backward()
    optimiser.step()
    return quantize_fx.convert_fx(prepared.eval())


def test_training():
    gm, expected = trained(torch.uint8, torch.int8), trained(torch.quint8, torch.qint8)
    assert gm.fc[0].weight.dtype == torch.int8
    assert gm.code == expected.code
    assert torch.equal(gm(X), expected(X))


def test_unsupported_weights_are_named():
    with pytest.warns(UserWarning, match=r"conv, fc stay floats: .* weights of torch\.uint8"):
        converted(qconfig(torch.quint8, torch.uint8))


def test_usual_configurations_do_not_warn():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*stay floats")
        for name in ("fbgemm", "x86", "qnnpack", "onednn"):
            mapping = ours.get_default_qconfig_mapping(name)
            quantize_fx.prepare_fx(model(), mapping, (X,))
            mapping = ours.get_default_qat_qconfig_mapping(name)
            quantize_fx.prepare_qat_fx(model().train(), mapping, (X,))
        for config in (
            ours.default_dynamic_qconfig,
            ours.float16_dynamic_qconfig,
        ):
            mapping = ours.QConfigMapping().set_object_type(nn.Linear, config)
            quantize_fx.prepare_fx(copy.deepcopy(model()), mapping, (X,))


def test_errors_that_programs_meet_are_public():
    mapping = ours.QConfigMapping().set_global(ours.default_qconfig)
    with pytest.raises(ours.CalibrationError, match="have seen no values"):
        quantize_fx.convert_fx(quantize_fx.prepare_fx(model(), mapping, (X,)))
    assert issubclass(ours.TrainingModeError, Exception)
    assert {"CalibrationError", "TrainingModeError"} <= {*ours.__all__}
