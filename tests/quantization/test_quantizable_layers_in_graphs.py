"""LSTM and attention of static quantisation as custom modules in graphs, against torch.ao."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.ao.quantization as theirs
from torch import nn
from torch.ao.nn import quantizable as their_quantizable
from torch.ao.nn import quantized as their_quantized
from torch.ao.quantization import quantize_fx as their_graphs
from torch.ao.quantization.fx.custom_config import ConvertCustomConfig as TheirConvertCustomConfig
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig as TheirPrepareCustomConfig
from torch.testing import assert_close

import corsac
import corsac.quantization as ours
from corsac.quantization import from_torch_ao, quantizable, quantize_fx
from corsac.quantization.fx.custom_config import ConvertCustomConfig, PrepareCustomConfig
from corsac.quantization.quantized import static

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=["fbgemm", "qnnpack"])
def engine(request):
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = request.param
    yield request.param
    torch.backends.quantized.engine = before


def ranges(prepared):
    return {
        path: (one.min_val, one.max_val)
        for path, one in prepared.named_modules()
        if getattr(one, "min_val", torch.empty(0)).numel()
    }


def layer_between(kind, inputs):
    class Between(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.layer, self.last = nn.Linear(8, 8), kind(8, 8), nn.Linear(8, 3)

        def forward(self, x, h, c):
            x = self.first(x)
            if isinstance(self.layer, nn.MultiheadAttention):
                result, weights = self.layer(x, h, x)
                return self.last(result), weights
            result, states = self.layer(x, (h, c))
            return self.last(result), self.last(states[0]), states[1], states

    return Between().eval(), inputs


def recurrent():
    torch.manual_seed(1)
    return layer_between(
        nn.LSTM, (torch.randn(6, 3, 8), torch.randn(1, 3, 8), torch.randn(1, 3, 8))
    )


def attention():
    torch.manual_seed(1)
    kind = lambda size, _: nn.MultiheadAttention(size, 2)  # noqa: E731
    return layer_between(kind, (torch.randn(6, 3, 8), torch.randn(6, 3, 8), torch.randn(1)))


def custom(layer, own=True, convert=True):
    """Custom configurations, with the classes of this package, or of torch.ao."""
    observed = getattr(quantizable if own else their_quantizable, layer.__name__)
    final = getattr(static if own else their_quantized, layer.__name__)
    prepare = (PrepareCustomConfig if own else TheirPrepareCustomConfig)()
    made = (ConvertCustomConfig if own else TheirConvertCustomConfig)()
    if convert:
        made.set_observed_to_quantized_mapping(observed, final)
    return prepare.set_float_to_observed_mapping(layer, observed), made


@pytest.mark.parametrize("own", [True, False], ids=["own classes", "their classes"])
def test_lstm_in_graphs(own, engine):
    model, inputs = recurrent()
    mapping = theirs.get_default_qconfig_mapping(engine)
    their_custom, their_convert = custom(nn.LSTM, own=False)
    expected = their_graphs.prepare_fx(copy.deepcopy(model), mapping, inputs, their_custom)
    their_result = expected(*inputs)
    # Products of PyTorch's kernels overflow 16 bits on some processors; its reference layers have none.
    reference = their_graphs.convert_to_reference_fx(copy.deepcopy(expected), their_convert)

    prepare, convert = custom(nn.LSTM, own)
    prepared = quantize_fx.prepare_fx(model, mapping, inputs, prepare)
    assert prepared.code == expected.code
    assert type(prepared.layer) is quantizable.LSTM
    assert type(model.layer) is nn.LSTM
    assert_close(prepared(*inputs), their_result, rtol=0, atol=0)
    assert_close(ranges(prepared), ranges(expected), rtol=0, atol=0)
    converted = quantize_fx.convert_fx(prepared, convert)
    assert type(converted.layer) is static.LSTM
    assert "dequant_stub" not in converted.code
    assert_close(converted(*inputs), reference(*inputs), rtol=0, atol=0.03)
    assert_close(converted(*inputs), model(*inputs), rtol=0, atol=0.08)


@pytest.mark.parametrize("form", ["convert_fx", "convert_to_reference_fx"])
def test_state_dicts_of_lstm_in_graphs(form, engine):
    model, inputs = recurrent()
    mapping = theirs.get_default_qconfig_mapping(engine)
    their_custom, their_convert = custom(nn.LSTM, own=False)
    prepared = their_graphs.prepare_fx(copy.deepcopy(model), mapping, inputs, their_custom)
    prepared(*inputs)
    source = getattr(their_graphs, form)(prepared, their_convert)

    prepare, convert = custom(nn.LSTM)
    prepared = quantize_fx.prepare_fx(model, mapping, inputs, prepare)
    prepared(*(3 * x for x in inputs))
    own = quantize_fx.convert_fx(prepared, convert)
    expected = from_torch_ao(source)(*inputs)
    assert not torch.equal(own(*inputs)[0], expected[0])
    own.load_state_dict(source.state_dict())
    assert_close(own(*inputs), expected, rtol=0, atol=0)


def test_attention_in_graphs(engine):
    model, inputs = attention()
    mapping = theirs.get_default_qconfig_mapping(engine)
    prepare, convert = custom(nn.MultiheadAttention)
    prepared = quantize_fx.prepare_fx(model, mapping, inputs, prepare)
    assert_close(prepared(*inputs), model(*inputs))
    converted = quantize_fx.convert_fx(prepared, convert)
    assert type(converted.layer) is static.MultiheadAttention
    result, expected = converted(*inputs), model(*inputs)
    assert_close(result, expected, rtol=0, atol=0.03)
    assert not torch.equal(result[1], expected[1])


def test_layers_that_are_no_custom_modules_stay_floats():
    for made, layer in ((recurrent, nn.LSTM), (attention, nn.MultiheadAttention)):
        model, inputs = made()
        mapping = theirs.get_default_qconfig_mapping("fbgemm")
        expected = their_graphs.prepare_fx(copy.deepcopy(model), mapping, inputs)
        prepared = quantize_fx.prepare_fx(model, mapping, inputs)
        assert prepared.code == expected.code
        prepared(*inputs)
        assert type(quantize_fx.convert_fx(prepared).layer) is layer


def test_dynamic_configurations_leave_results_as_they_are():
    model, inputs = recurrent()
    mapping = theirs.QConfigMapping().set_global(theirs.default_qconfig)
    mapping.set_object_type(nn.LSTM, None)
    prepare, _ = custom(nn.LSTM)
    prepared = quantize_fx.prepare_fx(model, mapping, inputs, prepare)
    assert "dequant_stub" not in prepared.code and type(prepared.layer) is nn.LSTM


@pytest.mark.parametrize("made", [recurrent, attention])
def test_native_programs_files_and_copies(made, tmp_path):
    model, inputs = made()
    prepare, convert = custom(type(model.layer))
    prepared = quantize_fx.prepare_fx(
        model, ours.get_default_qconfig_mapping("x86"), inputs, prepare
    )
    with torch.inference_mode():
        prepared(*inputs)
        converted = quantize_fx.convert_fx(prepared, convert)
        expected = converted(*inputs)
        fast = corsac.compile(converted, fullgraph=True, options={"inference": "native"})
        fast(*inputs)
        assert_close(fast(*inputs), expected, rtol=0, atol=1e-6)
        again = pickle.loads(pickle.dumps(converted))
        assert_close(again(*inputs), expected, rtol=0, atol=0)
        other = copy.deepcopy(converted)
        other.load_state_dict(converted.state_dict())
        assert_close(other(*inputs), expected, rtol=0, atol=0)
        corsac.save(converted, tmp_path / "model.safetensors", inputs)
        loaded = corsac.load(tmp_path / "model.safetensors")(*inputs)
        assert_close(loaded[:2], expected[:2], rtol=0, atol=1e-6)


def test_classes_that_derive_from_those_of_torch():
    class Own(their_quantizable.LSTM):
        pass

    model, inputs = recurrent()
    config = PrepareCustomConfig().set_float_to_observed_mapping(nn.LSTM, Own)
    mapping = ours.get_default_qconfig_mapping("fbgemm")
    with pytest.raises(NotImplementedError, match=r"layer: Own derives from a class of torch\.ao"):
        quantize_fx.prepare_fx(model, mapping, inputs, config)

    class Split(quantizable.LSTM):
        @classmethod
        def from_float(cls, other):
            return super().from_float(other, split_gates=True)

    config = PrepareCustomConfig().set_float_to_observed_mapping(nn.LSTM, Split)
    prepared = quantize_fx.prepare_fx(model, mapping, inputs, config)
    prepared(*inputs)
    convert = ConvertCustomConfig().set_observed_to_quantized_mapping(Split, static.LSTM)
    converted = quantize_fx.convert_fx(prepared, convert)
    assert len(converted.layer.layers[0].layer_fw.cell.igates) == 4
    assert_close(converted(*inputs)[0], model(*inputs)[0], rtol=0, atol=0.05)


class NamedAsStub(nn.Module):
    """A module of the user's, named as those that stand for results of layers."""

    def __init__(self):
        super().__init__()
        self.first, self.dequant_stub_out = nn.Linear(4, 3), nn.Tanh()

    def forward(self, x):
        return self.dequant_stub_out(self.first(x))


def test_modules_that_are_named_as_stubs_are_kept():
    torch.manual_seed(0)
    model, x = NamedAsStub().eval(), torch.randn(8, 4)
    mapping = ours.get_default_qconfig_mapping("onednn")
    prepared = quantize_fx.prepare_fx(model, mapping, (x,))
    prepared(x)
    converted = quantize_fx.convert_fx(prepared)
    assert "dequant_stub_out" in converted.code
    assert_close(converted(x), model(x), atol=0.05, rtol=0)
