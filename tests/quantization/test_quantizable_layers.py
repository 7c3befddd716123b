"""LSTM and attention of static quantisation, module by module, against torch.ao."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.ao.quantization as theirs
from torch import nn
from torch.ao.nn import quantizable as their_quantizable
from torch.testing import assert_close

import corsac.quantization as ours
from corsac.quantization import quantizable
from corsac.quantization.quantized import QFunctional, static

pytestmark = pytest.mark.filterwarnings("ignore")


class Model(nn.Module):
    """A layer between stubs, which gets its input in all of its places."""

    def __init__(self, package, layer, inputs):
        super().__init__()
        self.stub, self.layer, self.back = package.QuantStub(), layer, package.DeQuantStub()
        self.inputs = inputs

    def forward(self, x):
        return self.back(self.layer(*[self.stub(x)] * self.inputs)[0])


@pytest.fixture(params=["fbgemm", "qnnpack"])
def engine(request):
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = request.param
    yield request.param
    torch.backends.quantized.engine = before


def quantised(package, layer, inputs, x, engine, training=False, **custom):
    """The prepared model, what it returns, and the converted one."""
    model = Model(package, copy.deepcopy(layer), inputs).train(training)
    if training:
        model.qconfig = package.get_default_qat_qconfig(engine)
        prepared = package.prepare_qat(model)
    else:
        model.qconfig = package.get_default_qconfig(engine)
        prepared = package.prepare(model, **custom)
    prepared(x)
    result = prepared(x)
    return prepared, result, package.convert(prepared.eval())


def ranges(prepared):
    return {
        path: (one.min_val, one.max_val)
        for path, one in prepared.named_modules()
        if getattr(one, "min_val", torch.empty(0)).numel()
    }


def check(layer, inputs, x, engine, training=False):
    """The quantised models of torch.ao and of this package; ranges and values of the prepared ones are equal."""
    prepared, result, model = quantised(ours, layer, inputs, x, engine, training)
    expected, their_result, reference = quantised(theirs, layer, inputs, x, engine, training)
    assert_close(result, their_result, rtol=0, atol=0)
    assert_close(ranges(prepared), ranges(expected), rtol=0, atol=0)
    return reference, model


@pytest.mark.parametrize(
    ("options", "training"),
    [
        ({}, True),
        ({"num_layers": 2}, False),
        ({"batch_first": True}, False),
        ({"bias": False}, False),
    ],
    ids=["training", "two layers", "batch first", "no bias"],
)
def test_lstm(options, training, engine):
    torch.manual_seed(0)
    layer, x = nn.LSTM(4, 5, **options), torch.randn(6, 3, 4)
    reference, model = check(layer, 1, x, engine, training)
    cell = model.layer.layers[0].layer_fw.cell
    assert type(model.layer) is static.LSTM
    assert type(cell.igates) is type(cell.hgates) is static.Linear
    assert type(cell.gates) is QFunctional
    assert cell.igates.weight.dtype == torch.int8
    last = [*model.layer.layers][-1].layer_fw.cell.ogate_cy
    expected = reference(x)
    difference = (model(x) - expected).abs()
    # QNNPACK has sums in fixed point; a level that differs goes on to the next step.
    assert difference.max() <= (1.01 if engine == "fbgemm" else 5) * last.scale
    assert (difference > 1e-6).float().mean() < 0.02
    their_last = [*reference.layer.layers][-1].layer_fw.cell.ogate_cy
    assert (last.scale, last.zero_point) == (float(their_last.scale), int(their_last.zero_point))


def test_two_directions(engine):
    torch.manual_seed(0)
    layer, x = nn.LSTM(4, 5, bidirectional=True), torch.randn(6, 3, 4)
    reference, model = check(layer, 1, x, engine)
    expected = layer(x)[0]
    # PyTorch rounds the results of the second direction to the range of the first.
    assert (model(x) - expected).abs().max() < (reference(x) - expected).abs().max()


@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"add_zero_attn": True}, {"add_bias_kv": True}],
    ids=lambda options: "-".join(options) or "plain",
)
def test_attention(options, engine):
    torch.manual_seed(0)
    layer, x = nn.MultiheadAttention(8, 2, **options), torch.randn(5, 3, 8)
    reference, model = check(layer, 3, x, engine)
    assert type(model.layer) is static.MultiheadAttention
    projections = (model.layer.linear_Q, model.layer.linear_K, model.layer.linear_V)
    assert [type(one) for one in projections] == [static.Linear] * 3
    expected = reference(x)
    # PyTorch rounds these biases.
    steps = 2.5 if "add_bias_kv" in options else 1.01
    assert (model(x) - expected).abs().max() <= steps * model.layer.out_proj.scale
    back = model.layer.dequantize()
    assert type(back) is nn.MultiheadAttention
    assert_close(back(x, x, x)[0], layer(x, x, x)[0], rtol=0, atol=0.02)


MASKS = {
    "bool": {"attn_mask": torch.ones(5, 5, dtype=torch.bool).triu(1), "is_causal": True},
    "float": {"attn_mask": torch.randn(5, 5)},
    "per head": {"attn_mask": torch.randn(6, 5, 5)},
    "padding": {"key_padding_mask": torch.tensor([[False] * 5, [False] * 3 + [True] * 2] * 2)[:3]},
    "both": {
        "attn_mask": torch.randn(5, 5),
        "key_padding_mask": torch.randn(3, 5),
        "average_attn_weights": False,
    },
    "no weights": {"need_weights": False},
}


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask, batch_first):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=batch_first, add_zero_attn=True).eval()
    layer.qconfig = ours.default_qconfig
    observed = quantizable.MultiheadAttention.from_float(layer)
    x = torch.randn(*((3, 5, 8) if batch_first else (5, 3, 8)))
    assert_close(observed(x, x, x, **MASKS[mask]), layer(x, x, x, **MASKS[mask]))


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
@pytest.mark.parametrize("split_gates", [False, True])
def test_observed_layers_compute_what_float_ones_do(options, split_gates):
    torch.manual_seed(0)
    layer, x = nn.LSTM(4, 5, **options).eval(), torch.randn(6, 3, 4)
    layer.qconfig = ours.default_qconfig
    observed = quantizable.LSTM.from_float(layer, split_gates=split_gates)
    result, states = observed(x)
    expected, their_states = layer(x)
    assert_close((result, states), (expected, their_states))
    assert_close(observed(x, states)[0], layer(x, their_states)[0])
    converted = static.LSTM.from_observed(observed)
    assert_close(converted(x)[0], expected, rtol=0, atol=0.03)


def test_classes_of_torch():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.LSTM(4, 5)).eval(), torch.randn(6, 3, 4)
    model.qconfig = theirs.default_qconfig
    observed, final = torch.ao.nn.quantizable.LSTM, torch.ao.nn.quantized.LSTM
    custom = {"float_to_observed_custom_module_class": {nn.LSTM: observed}}
    prepared = ours.prepare(model, prepare_custom_config_dict=custom)
    assert type(prepared[0]) is quantizable.LSTM
    prepared(x)
    custom = {"observed_to_quantized_custom_module_class": {observed: final}}
    converted = ours.convert(prepared, convert_custom_config_dict=custom)
    assert type(converted[0]) is static.LSTM
    assert_close(converted(x)[0], model(x)[0], rtol=0, atol=0.05)


def test_cells():
    torch.manual_seed(0)
    cell, x = nn.LSTMCell(4, 5).eval(), torch.randn(3, 4)
    cell.qconfig = theirs.default_qconfig
    state = their_quantizable.LSTMCell.from_float(cell).state_dict()
    for split in (False, True):
        observed = quantizable.LSTMCell.from_float(cell, split_gates=split)
        assert split or observed.state_dict().keys() == state.keys()
        assert_close(observed(x), cell(x))
        assert_close(observed(x, cell(x)), cell(x, cell(x)))


def test_what_cannot_be_observed():
    projected = nn.LSTM(4, 5, proj_size=3)
    projected.qconfig = ours.default_qconfig
    with pytest.raises(ValueError, match="without projections, got one with proj_size 3"):
        quantizable.LSTM.from_float(projected)
    layer = nn.LSTM(4, 5).eval()
    with pytest.raises(AssertionError, match="expected an LSTM with a qconfig"):
        quantizable.LSTM.from_float(layer)
    layer.qconfig = ours.default_qconfig
    observed = quantizable.LSTM.from_float(layer)
    with pytest.raises(ValueError, match="expected a tensor of 3 dimensions, got 2 dimensions"):
        observed(torch.randn(6, 4))
    packed = nn.utils.rnn.pack_sequence([torch.randn(3, 4)])
    with pytest.raises(ValueError, match="expected a tensor of 3 dimensions, got PackedSequence"):
        observed(packed)
    for kind in (static.LSTM, static.MultiheadAttention):
        with pytest.raises(NotImplementedError, match="by from_observed"):
            kind.from_float(layer)
    with pytest.raises(NotImplementedError, match="by from_float"):
        quantizable.LSTM.from_observed(observed)


@pytest.mark.parametrize("layer", [nn.LSTM(8, 4, 2), nn.MultiheadAttention(8, 2)])
def test_batches_may_be_empty(layer):
    inputs = 1 if isinstance(layer, nn.LSTM) else 3
    x = torch.randn(5, 3, 8)
    prepared, _, converted = quantised(ours, layer.eval(), inputs, x, "fbgemm")
    for model in (prepared, converted):
        assert model(x[:, :0]).shape == (5, 0, 4 if inputs == 1 else 8)


def test_states_of_32_bits_are_as_fine_as_floats():
    torch.manual_seed(0)
    layer, x = nn.LSTM(8, 4).eval(), torch.randn(5, 3, 8)
    model = Model(ours, copy.deepcopy(layer), 1).eval()
    wide = ours.MinMaxObserver.with_args(
        dtype=torch.qint32, quant_min=-(2**31), quant_max=2**31 - 1
    )
    model.qconfig = ours.QConfig(wide, ours.default_weight_observer)
    prepared = ours.prepare(model)
    prepared(x)
    assert_close(ours.convert(prepared)(x), layer(x)[0], atol=0.02, rtol=0)


def test_a_query_of_other_dimensions_is_shown_as_it_is():
    layer = quantizable.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(3, 5, 7)
    with pytest.raises(ValueError, match=r"the last of 8, got \[3, 5, 7\]"):
        layer(x, x, x)
