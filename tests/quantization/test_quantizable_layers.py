"""Recurrent layers and attention of torch.ao that are quantised module by module, given as custom modules."""

from __future__ import annotations

import pytest
import torch
import torch.ao.quantization as theirs
from torch import nn
from torch.ao.nn import quantizable
from torch.ao.nn import quantized as their_quantized

import corsac.quantization as ours
from corsac.quantization import quantize_fx
from corsac.quantization.fx.custom_config import PrepareCustomConfig
from corsac.quantization.quantized import QFunctional, static

pytestmark = pytest.mark.filterwarnings("ignore")


class Model(nn.Module):
    def __init__(self, package, layer, inputs):
        super().__init__()
        self.stub, self.layer, self.back = package.QuantStub(), layer, package.DeQuantStub()
        self.inputs = inputs

    def forward(self, x):
        return self.back(self.layer(*[self.stub(x)] * self.inputs)[0])


def converted(package, layer, inputs, x):
    """The float result, and the quantised model."""
    kind = type(layer)
    model = Model(package, layer, inputs).eval()
    model.qconfig = package.get_default_qconfig("fbgemm")
    observed = {kind: getattr(quantizable, kind.__name__)}
    prepared = package.prepare(
        model,
        prepare_custom_config_dict={"float_to_observed_custom_module_class": observed},
    )
    prepared(x)
    if package is ours:
        return model(x), package.convert(prepared)
    final = {observed[kind]: getattr(their_quantized, kind.__name__)}
    custom = {"observed_to_quantized_custom_module_class": final}
    return model(x), package.convert(prepared, convert_custom_config_dict=custom)


@pytest.mark.parametrize(
    "options",
    [{}, {"num_layers": 2}, {"bidirectional": True}, {"batch_first": True}],
    ids=lambda options: "-".join(options) or "plain",
)
def test_recurrent_layers(options):
    torch.manual_seed(0)
    layer, x = nn.LSTM(4, 5, **options), torch.randn(6, 2, 4)
    expected, reference = converted(theirs, layer, 1, x)
    _, model = converted(ours, layer, 1, x)
    cell = model.layer.layers[0].layer_fw.cell
    assert type(cell.igates) is static.Linear
    assert type(cell.hgates) is static.Linear
    assert type(cell.gates) is QFunctional
    assert cell.igates.weight.dtype == torch.int8
    theirs_error, error = ((one(x) - expected).abs().max() for one in (reference, model))
    assert 0 < error < 0.03
    assert theirs_error < 0.1


def test_graph_mode_names_the_module():
    model = nn.Sequential(nn.LSTM(4, 5)).eval()
    config = PrepareCustomConfig().set_float_to_observed_mapping(nn.LSTM, quantizable.LSTM)
    mapping = ours.get_default_qconfig_mapping("fbgemm")
    with pytest.raises(NotImplementedError, match=r"0: LSTM of torch\.ao returns tuples"):
        quantize_fx.prepare_fx(model, mapping, (torch.randn(6, 2, 4),), config)


def test_attention():
    torch.manual_seed(0)
    layer, x = nn.MultiheadAttention(8, 2), torch.randn(5, 2, 8)
    expected, reference = converted(theirs, layer, 3, x)
    _, model = converted(ours, layer, 3, x)
    projections = (model.layer.linear_Q, model.layer.linear_K, model.layer.linear_V)
    assert [type(one) for one in projections] == [static.Linear] * 3
    assert 0 < (model(x) - expected).abs().max() < 0.05
    assert (model(x) - reference(x)).abs().max() < 0.05
