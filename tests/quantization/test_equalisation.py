"""Equalisation of inputs and weights in graph modules, against torch.ao.quantization."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.ao.quantization as theirs
from torch import nn
from torch.ao.quantization import quantize_fx as their_fx
from torch.ao.quantization.fx import _equalize as their_equalize
from torch.nn import functional as F
from torch.testing import assert_close
from torch.testing._internal import common_quantization

import corsac
import corsac.quantization as ours
from corsac.fx import GraphModule
from corsac.quantization import quantize_fx as our_fx
from corsac.quantization._equalization import equalise
from corsac.quantization._preparation import state_of
from corsac.quantization.fx import _equalize as our_equalize

pytestmark = pytest.mark.filterwarnings("ignore")

#: Models with one layer, in which all that torch.ao does is right.
SINGLE = [
    "SingleLayerLinearModel",
    "LinearReluModel",
    "SingleLayerFunctionalLinearModel",
    "FunctionalLinearReluModel",
    "ConvModel",
    "ConvReluModel",
    "SingleLayerFunctionalConvModel",
    "FunctionalConvReluModel",
]
#: Models in which a layer takes factors of the next one, or a value is multiplied.
SEVERAL = [
    "TwoLayerLinearModel",
    "LinearReluLinearModel",
    "LinearAddModel",
    "LinearReluAddModel",
    "FunctionalLinearAddModel",
    "TwoLayerFunctionalLinearModel",
    "FunctionalLinearReluLinearModel",
    "ConvReluConvModel",
    "ConvReluAddModel",
    "TwoLayerFunctionalConvModel",
    "FunctionalConvReluConvModel",
]


def model_and_input(name):
    torch.manual_seed(0)
    model = getattr(common_quantization, name)().eval()
    example = model.get_example_inputs()[0]
    channels = example.shape[1]
    x = torch.randn(6, channels, *[8] * (example.dim() - 2))
    return model, x * torch.logspace(-1, 1, channels).reshape(1, -1, *[1] * (x.dim() - 2))


def prepared(package, fx, equalization, model, x, qconfig="default_qconfig"):
    mapping = package.QConfigMapping().set_global(getattr(package, qconfig))
    gm = fx.prepare_fx(copy.deepcopy(model), mapping, (x,), _equalization_config=equalization)
    code = gm.code
    gm(x)
    gm(x * 0.5)
    return gm, code


def both(name, qconfig="default_qconfig"):
    model, x = model_and_input(name)
    made = []
    for package, fx, equalize in (
        (theirs, their_fx, their_equalize),
        (ours, our_fx, our_equalize),
    ):
        equalization = package.QConfigMapping().set_global(equalize.default_equalization_qconfig)
        made.append(prepared(package, fx, equalization, model, x, qconfig))
    return model, x, made


def ratio(expected, found):
    return (10 * torch.log10(expected.square().mean() / (expected - found).square().mean())).item()


@pytest.mark.parametrize("qconfig", ["default_qconfig", "default_per_channel_qconfig"])
@pytest.mark.parametrize("name", SINGLE)
def test_one_layer(name, qconfig):
    _, x, ((expected, their_code), (found, code)) = both(name, qconfig)
    assert code == their_code
    before = copy.deepcopy(found)
    converted, reference = our_fx.convert_fx(found), their_fx.convert_to_reference_fx(expected)
    y, wanted = converted(x), reference(x)
    # A value may be rounded to the next step.
    step = (y - wanted)[y != wanted]
    assert len(step) <= 2
    assert (y - wanted).abs().max() <= 0.02 * wanted.abs().max()
    assert_close(converted.x_equalization_scale0, reference.x_equalization_scale0, rtol=0, atol=0)
    assert found.state_dict().keys() == before.state_dict().keys()
    assert_close(found.state_dict(), before.state_dict(), rtol=0, atol=0)
    assert torch.equal(our_fx.convert_fx(found)(x), y)
    assert torch.equal(corsac.compile(converted)(x), y)


@pytest.mark.parametrize("name", SEVERAL)
def test_several_layers(name):
    model, x, ((_, their_code), (found, code)) = both(name)
    assert code == their_code
    mapping = ours.QConfigMapping().set_global(ours.default_qconfig)
    plain = our_fx.prepare_fx(model, mapping, (x,))
    plain(x)
    equalised = our_fx.convert_fx(found)
    assert ratio(model(x), equalised(x)) > max(
        25.0, ratio(model(x), our_fx.convert_fx(plain)(x)) - 1
    )


@pytest.mark.parametrize(
    "name", ["TwoLayerLinearModel", "LinearReluLinearModel", "ConvReluConvModel"]
)
def test_weights_are_those_of_torch(name):
    model, x, ((expected, _), (found, _)) = both(name)
    reference = their_equalize._convert_equalization_ref(expected)
    own = GraphModule(found, copy.deepcopy(found.graph))
    with torch.no_grad():
        equalise(own, state_of(found).equalization_node_name_to_qconfig)
    theirs_state = {k: v for k, v in reference.state_dict().items() if "weight" in k or "bias" in k}
    state = own.state_dict()
    changed = 0
    for path, value in theirs_state.items():
        assert_close(state[path], value, rtol=0, atol=0)
        changed += not torch.equal(value, found.state_dict()[path])
    assert changed >= 2
    own.recompile()
    assert_close(own(x), model(x), rtol=1e-4, atol=1e-3)


def test_ranges_of_results_that_take_factors():
    model, x, (_, (found, _)) = both("TwoLayerLinearModel")
    own = GraphModule(found, copy.deepcopy(found.graph))
    with torch.no_grad():
        equalise(own, state_of(found).equalization_node_name_to_qconfig)
    ranges = [own.activation_post_process_1.min_val, own.activation_post_process_1.max_val]
    assert_close(ranges, list(torch.aminmax(own.fc1(x * own.x_equalization_scale0))))
    assert ratio(model(x), our_fx.convert_fx(found)(x)) > 30


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


def test_linear_layers_on_tokens():
    torch.manual_seed(0)
    model, x = Tokens().eval(), torch.randn(2, 6, 6) * torch.logspace(-2, 1, 6)
    mapping = ours.QConfigMapping().set_global(our_equalize.default_equalization_qconfig)
    gm, _ = prepared(ours, our_fx, mapping, model, x)
    plain, _ = prepared(ours, our_fx, None, model, x)
    equalised = our_fx.convert_fx(gm)
    assert equalised.x_equalization_scale0.shape == (1, 1, 6)
    assert ratio(model(x), equalised(x)) > ratio(model(x), our_fx.convert_fx(plain)(x))


def test_objects_of_torch_are_taken():
    model, x = model_and_input("LinearReluLinearModel")
    mapping = theirs.QConfigMapping().set_global(their_equalize.default_equalization_qconfig)
    own = ours.QConfigMapping().set_global(our_equalize.default_equalization_qconfig)
    results = [
        our_fx.convert_fx(prepared(ours, our_fx, one, model, x)[0])(x) for one in (mapping, own)
    ]
    assert torch.equal(*results)


def test_default_mapping_names_and_copies():
    model, x = model_and_input("TwoLayerLinearModel")
    everything = our_equalize.get_default_equalization_qconfig_mapping()
    one = ours.QConfigMapping().set_module_name("fc2", our_equalize.default_equalization_qconfig)
    gm, code = prepared(ours, our_fx, everything, model, x)
    assert code.count("equalization_process") > prepared(ours, our_fx, one, model, x)[1].count(
        "equalization_process"
    )
    expected = our_fx.convert_fx(gm)(x)
    for same in (copy.deepcopy(gm), pickle.loads(pickle.dumps(gm))):
        assert torch.equal(our_fx.convert_fx(same)(x), expected)
    alone, _ = prepared(ours, our_fx, one, model, x)
    assert ratio(model(x), our_fx.convert_fx(alone)(x)) > 25


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.grouped = nn.Conv1d(4, 4, 1, groups=2)

    def forward(self, x):
        return self.a(x) + self.b(x), self.grouped(x.unsqueeze(-1) * 2)


def test_layers_that_are_left_alone():
    mapping = our_equalize.get_default_equalization_qconfig_mapping()
    qconfigs = ours.QConfigMapping().set_global(ours.default_qconfig)
    with pytest.warns(UserWarning) as seen:
        gm = our_fx.prepare_fx(
            Branches().eval(), qconfigs, (torch.randn(2, 4),), _equalization_config=mapping
        )
    texts = [str(one.message) for one in seen]
    other = "is not equalised: its input has other users that are quantised"
    assert [text for text in texts if "equalised" in text] == [
        f"a {other}",
        f"b {other}",
        "grouped is not equalised: the convolution has groups",
    ]
    assert "equalization_process" not in gm.code
    misspelt = ours.QConfigMapping().set_module_name(
        "aa", our_equalize.default_equalization_qconfig
    )
    with pytest.warns(UserWarning, match="_equalization_config: .*'aa'"):
        our_fx.prepare_fx(
            Branches().eval(), qconfigs, (torch.randn(2, 4),), _equalization_config=misspelt
        )


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 8)


class CalledTwice(Layers):
    def forward(self, x):
        return self.a(self.b(torch.relu(self.a(x))))


class ReadTwice(Layers):
    def forward(self, x):
        x = F.linear(F.linear(x, self.a.weight), self.b.weight)
        return F.linear(x, self.a.weight)


class CalledAndRead(Layers):
    def forward(self, x):
        return F.linear(self.b(self.a(x)), self.a.weight)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (CalledTwice, ["a", "a_1"]),
        (ReadTwice, ["linear", "linear_2"]),
        (CalledAndRead, ["a"]),
    ],
)
def test_weights_that_are_used_several_times_have_no_factors(kind, names):
    torch.manual_seed(0)
    model, x = kind().eval(), torch.randn(64, 8) * torch.logspace(-1, 1, 8)
    qconfigs = ours.get_default_qconfig_mapping("onednn")
    mapping = our_equalize.get_default_equalization_qconfig_mapping()
    with pytest.warns(UserWarning) as seen:
        prepared = our_fx.prepare_fx(model, qconfigs, (x,), _equalization_config=mapping)
    texts = [str(one.message) for one in seen if "equalised" in str(one.message)]
    assert texts == [f"{name} is not equalised: its weight is used several times" for name in names]
    assert "equalization_process" in prepared.code
    prepared(x)
    expected, got = model(x), our_fx.convert_fx(prepared)(x)
    assert (expected - got).norm() < 0.05 * expected.norm()


@pytest.mark.parametrize("shape", [(5, 4), (2, 4, 3), (2, 4, 5, 5), (2, 4, 3, 3, 3)])
def test_observers(shape):
    torch.manual_seed(0)
    x, weight = torch.randn(shape), torch.randn(7, *shape[1:])
    scales = []
    for package in (their_equalize, our_equalize):
        inputs = package.default_equalization_qconfig.input_activation()
        weights = package.default_equalization_qconfig.weight()
        assert inputs(x) is x
        assert weights(weight) is weight
        scale = package.calculate_equalization_scale(inputs, weights)
        inputs.set_equalization_scale(scale)
        weights.set_equalization_scale(scale)
        scales.append(
            (
                scale,
                inputs.equalization_scale,
                weights.equalization_scale,
                *inputs.calculate_scaled_minmax(),
                *inputs.get_input_minmax(),
                *weights.get_weight_col_minmax(),
            )
        )
    assert_close(scales[1], scales[0], rtol=0, atol=0)


def test_bad_input():
    with pytest.raises(ValueError, match="expected 2 to 5 dimensions"):
        our_equalize._InputEqualizationObserver()(torch.randn(3))
    with pytest.raises(TypeError, match="expected a qscheme per tensor"):
        our_equalize._InputEqualizationObserver(qscheme=torch.per_channel_affine)
    with pytest.raises(ValueError, match="arguments are given by with_args"):
        our_equalize.EqualizationQConfig(nn.Identity(), nn.Identity)
    inputs = our_equalize._InputEqualizationObserver()
    weights = our_equalize._WeightEqualizationObserver()
    assert our_equalize.calculate_equalization_scale(inputs, weights).item() == 1
    assert inputs.calculate_scaled_minmax() == (None, None)
    inputs(torch.randn(2, 3))
    weights(torch.randn(2, 4))
    with pytest.raises(ValueError, match="as many channels as the weight has columns, 4, got 3"):
        our_equalize.calculate_equalization_scale(inputs, weights)


def test_ratios_of_layers_choose_what_to_equalise():
    model, x = model_and_input("LinearReluLinearModel")
    gm, _ = prepared(ours, our_fx, None, model, x)
    found = our_equalize.get_layer_sqnr_dict(copy.deepcopy(gm), our_fx.convert_fx(gm), x)
    assert found.keys() == {"fc1", "fc2"}
    worst = min(found, key=found.get)
    chosen = our_equalize.get_equalization_qconfig_dict(found, 1)
    assert chosen == {"module_name": [(worst, our_equalize.default_equalization_qconfig)]}
    both_ways = (
        package.get_equalization_qconfig_dict({"a": 3.0, "b": 1.0, "c": 2.0}, 2)["module_name"]
        for package in (our_equalize, their_equalize)
    )
    assert [[name for name, _ in one] for one in both_ways] == [["b", "c"], ["b", "c"]]
