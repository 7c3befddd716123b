"""LSTM and attention that torch.ao has quantised statically, read as models of this package."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.ao.quantization as theirs
from torch import nn
from torch.ao.nn import quantizable as their_quantizable
from torch.ao.nn import quantized as their_quantized
from torch.ao.quantization.fx.custom_config import ConvertCustomConfig, PrepareCustomConfig
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

import corsac
from corsac.quantization import from_torch_ao
from corsac.quantization.torch_ao import UnreadableError

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fbgemm")]


class Recurrent(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.stub, self.layer, self.back = theirs.QuantStub(), layer, theirs.DeQuantStub()

    def forward(self, x):
        result, (h, c) = self.layer(self.stub(x))
        return self.back(result), self.back(h), self.back(c)


class Attending(Recurrent):
    def forward(self, x):
        q = self.stub(x)
        result, weights = self.layer(q, q, q)
        return self.back(result), self.back(weights)


class Masked(Recurrent):
    def __init__(self, layer, **options):
        super().__init__(layer)
        self.options = options

    def forward(self, x, mask, padding):
        q = self.stub(x)
        result, weights = self.layer(q, q, q, padding, attn_mask=mask, **self.options)
        return self.back(result), None if weights is None else self.back(weights)


def converted(model, *inputs, custom=(None, None)):
    """The model that torch.ao converts."""
    model.eval().qconfig = theirs.get_default_qconfig("fbgemm")
    prepared = theirs.prepare(model, prepare_custom_config_dict=custom[0])
    prepared(*inputs)
    return theirs.convert(prepared, convert_custom_config_dict=custom[1])


def check(model, *inputs):
    """Results are those of the model, to the last bit, also of copies and compiled."""
    expected, read = model(*inputs), from_torch_ao(model)
    own = read, copy.deepcopy(read), pickle.loads(pickle.dumps(read)), corsac.compile(model)
    for one in own:
        for got, wanted in zip(one(*inputs), expected, strict=True):
            assert (got is wanted is None) or torch.equal(got, wanted)
    assert own[-1].explain().startswith("[")
    return read


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_layers": 2},
        {"bidirectional": True},
        {"num_layers": 1, "batch_first": True},
        {"bias": False},
    ],
    ids=str,
)
def test_lstm(options):
    model = converted(Recurrent(nn.LSTM(8, 16, **options)), x := torch.randn(5, 3, 8))
    read = check(model, x)
    cell = read.layer.layers[0].layer_fw.cell
    assert cell.igates.weight.dtype == torch.int8
    assert torch.equal(
        cell.igates.weight, model.layer.layers[0].layer_fw.cell.igates.weight().int_repr()
    )


def test_lstm_with_split_gates():
    class Split(their_quantizable.LSTM):
        @classmethod
        def from_float(cls, other, qconfig=None):
            return super().from_float(other, qconfig, split_gates=True)

    custom = (
        {"float_to_observed_custom_module_class": {nn.LSTM: Split}},
        {"observed_to_quantized_custom_module_class": {Split: their_quantized.LSTM}},
    )
    x = torch.randn(5, 3, 8)
    check(converted(Recurrent(nn.LSTM(8, 16)), x, custom=custom), x)


def test_lstm_in_graphs():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.fc = nn.LSTM(8, 16, 2), nn.Linear(16, 3)

        def forward(self, x, h, c):
            result, (h, c) = self.lstm(x, (h, c))
            return self.fc(result), h, c

    inputs = torch.randn(5, 3, 8), torch.randn(2, 3, 16), torch.randn(2, 3, 16)
    custom = PrepareCustomConfig().set_float_to_observed_mapping(nn.LSTM, their_quantizable.LSTM)
    mapping = theirs.get_default_qconfig_mapping("fbgemm")
    prepared = prepare_fx(Model().eval(), mapping, inputs, custom)
    prepared(*inputs)
    after = ConvertCustomConfig().set_observed_to_quantized_mapping(
        their_quantizable.LSTM, their_quantized.LSTM
    )
    check(convert_fx(prepared, after), *inputs)


@pytest.mark.parametrize(
    "options", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"bias": False}], ids=str
)
def test_attention(options):
    model = converted(
        Attending(nn.MultiheadAttention(16, 4, **options)), x := torch.randn(5, 3, 16)
    )
    check(model, x)


@pytest.mark.parametrize(
    "options",
    [{"need_weights": False}, {"average_attn_weights": False}],
    ids=["no weights", "weights of heads"],
)
def test_options_of_attention(options):
    mask, padding = torch.ones(5, 5).triu(1).bool(), torch.zeros(3, 5).bool()
    padding[2, 4] = True

    inputs = torch.randn(5, 3, 16), mask, padding
    check(converted(Masked(nn.MultiheadAttention(16, 4), **options), *inputs), *inputs)


def test_what_cannot_be_read():
    x = torch.randn(5, 3, 16)
    attention = nn.MultiheadAttention(16, 4, batch_first=True)
    model = converted(Attending(attention), x)
    with pytest.raises(UnreadableError, match="layer: expected attention without batch_first"):
        from_torch_ao(model)
    # Those are left to PyTorch.
    compiled = corsac.compile(model)
    assert torch.equal(compiled(x)[0], model(x)[0])
    model = converted(Recurrent(nn.LSTM(16, 8)), x)
    cell = model.layer.layers[0].layer_fw.cell
    cell.input_gate = their_quantized.Sigmoid(0.5, 3)
    with pytest.raises(
        UnreadableError,
        match=r"layers\.0\.layer_fw\.cell\.input_gate: expected results with scale 0\.0039",
    ):
        from_torch_ao(model)
