"""Quantised graph modules, against torch.ao.quantization's reference form."""

import copy
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.ao.quantization import qconfig as their_qconfigs
from torch.ao.quantization import qconfig_mapping as their_mappings
from torch.ao.quantization import quantize_fx as theirs
from torch.ao.quantization.fx.custom_config import ConvertCustomConfig as TheirConvertCustomConfig
from torch.ao.quantization.fx.custom_config import PrepareCustomConfig as TheirPrepareCustomConfig
from torch.testing import assert_close

from corsac.quantization import qconfig as our_qconfigs
from corsac.quantization import qconfig_mapping as our_mappings
from corsac.quantization import quantize_fx as ours
from corsac.quantization import quantized
from corsac.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig
from corsac.quantization.fx.custom_config import ConvertCustomConfig, PrepareCustomConfig
from corsac.quantization.observer import PerChannelMinMaxObserver
from kit import row
from kit.quantised_models import NAMES, batches, by_turns, model_and_inputs

pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore:.*reduce_range"
)
CORSAC = torch.ops.corsac
THEIRS = torch.ops.quantized_decomposed


def run(model, calls):
    with torch.no_grad():
        for call in calls:
            torch.manual_seed(2)
            model(*call)
    return model.eval()


def steps(gm, function):
    """Scale, zero point, range and type of the calls of a function on values, in order."""
    return [
        (*node.args[1:5], node.args[5])
        for node in gm.graph.nodes
        if node.op == "call_function" and node.target is function and node.args[5] == torch.uint8
    ]


def weights(gm):
    """Integers, scales and zero points by layer, of one of the two packages."""
    found = {}
    for name, module in gm.named_modules():
        if hasattr(module, "get_quantized_weight"):
            weight = module.get_quantized_weight()
            if weight.is_quantized:
                weight = weight.int_repr()
            found[name] = weight, module.weight_scale, module.weight_zero_point
        elif name and isinstance(getattr(module, "weight_scale", None), torch.Tensor):
            found[name] = module.weight, module.weight_scale, module.weight_zero_point
    return found


def check(model, inputs, mapping, their_mapping, reference_of, qat=False):
    """Parameters, weights and results against a reference form of PyTorch."""
    prepare = "prepare_qat_fx" if qat else "prepare_fx"
    expected = getattr(theirs, prepare)(copy.deepcopy(model), their_mapping, inputs)
    prepared = getattr(ours, prepare)(model, mapping, inputs)
    run(expected, [inputs, *batches(inputs)])
    run(prepared, [inputs, *batches(inputs)])
    observed = prepared.code
    converted = ours.convert_fx(prepared)
    assert prepared.code == observed
    decomposed = theirs._convert_to_reference_decomposed_fx(copy.deepcopy(expected))
    assert steps(converted, CORSAC.quantize_per_tensor.default) == steps(
        decomposed, THEIRS.quantize_per_tensor.default
    )
    reference = reference_of(expected)
    found, wanted = weights(converted), weights(reference)
    assert found.keys() == wanted.keys()
    for name, (weight, scales, zero_points) in found.items():
        their_weight, their_scales, their_zero_points = wanted[name]
        off = (weight.int() - their_weight.int()).abs()
        # Batch norms are folded in another order while training: a few weights are on the other side of a half.
        assert off.max() <= int(qat) and off.float().mean() < 0.02
        assert_close(
            scales, their_scales.expand_as(scales).to(scales.dtype), rtol=1e-5 * qat, atol=0
        )
        assert torch.equal(
            zero_points, their_zero_points.expand_as(zero_points).to(zero_points.dtype)
        )
    with torch.no_grad():
        return converted, converted(*inputs), reference(*inputs)


def mappings(backend, own, qat=False):
    name = "get_default_qat_qconfig_mapping" if qat else "get_default_qconfig_mapping"
    their_mapping = getattr(their_mappings, name)(backend)
    return getattr(our_mappings, name)(backend) if own else their_mapping, their_mapping


@by_turns(NAMES)
def test_parameters_and_results_are_those_of_torch(name, own):
    model, inputs = model_and_inputs(name)
    _, results, expected = check(
        model.eval(),
        inputs,
        *mappings("fbgemm", own),
        theirs._convert_to_reference_decomposed_fx,
    )
    assert_close(results, expected, rtol=0, atol=1e-6)


def largest_step(converted):
    return max(scale for scale, *_ in steps(converted, CORSAC.quantize_per_tensor.default))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_models_of_torchvision(name):
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)()
    inputs = (torch.randn(1, 3, 32, 32),)
    # Statistics of batch norms, without which values vanish.
    with torch.no_grad():
        for _ in range(10):
            model(torch.randn(16, 3, 32, 32))
    converted, results, expected = check(
        model.eval(),
        inputs,
        *mappings("fbgemm", True),
        theirs._convert_to_reference_decomposed_fx,
    )
    assert_close(results, expected, rtol=0, atol=1e-6)
    assert not any(type(module) in (nn.Linear, nn.Conv2d) for module in converted.modules())


@by_turns(NAMES)
def test_results_are_within_a_step_of_quantised_types(name, own):
    # PyTorch's quantised types round some halves to another integer; their range is that of the type, which the
    # configurations of "qnnpack" use in full.
    model, inputs = model_and_inputs(name)
    converted, results, expected = check(
        model.eval(), inputs, *mappings("qnnpack", own), theirs.convert_to_reference_fx
    )
    assert_close(results, expected, rtol=0, atol=largest_step(converted) + 1e-6)


@by_turns(name for name in NAMES if name != "Classifier")
def test_trained_models(name, own):
    model, inputs = model_and_inputs(name)
    converted, results, expected = check(
        model.train(),
        inputs,
        *mappings("qnnpack", own, qat=True),
        theirs.convert_to_reference_fx,
        qat=True,
    )
    assert_close(results, expected, rtol=0, atol=2 * largest_step(converted) + 1e-6)


@pytest.mark.parametrize(
    "name", ["LinearReluModel", "LinearModelWithSubmodule", "SkipQuantModel", "FunctionalLinear"]
)
def test_dynamic_quantisation_is_by_row(name):
    model, _ = model_and_inputs(name)
    # A row of small values and one of large ones.
    x = torch.randn(4, 5) * torch.tensor([[1e-3], [1.0], [1e3], [1.0]])
    mapping = our_mappings.QConfigMapping().set_global(our_qconfigs.default_dynamic_qconfig)
    converted = ours.convert_fx(ours.prepare_fx(model.eval(), mapping, (x,)))
    assert "quantize_per_token" in converted.code and "quantize_per_tensor(" not in converted.code
    theirs_mapping = their_mappings.QConfigMapping().set_global(
        their_qconfigs.default_dynamic_qconfig
    )
    prepared = theirs.prepare_fx(copy.deepcopy(model), theirs_mapping, (x,))
    reference = theirs.convert_to_reference_fx(prepared)
    with torch.no_grad():
        exact = model(x)
        ours_off, theirs_off = (
            (gm(x) - exact).abs()[[1, 3]].max() for gm in (converted, reference)
        )
    assert ours_off < 0.1
    assert ours_off < theirs_off


def test_values_with_a_scale_for_each_channel():
    model, inputs = model_and_inputs("ConvModel")
    observer = PerChannelMinMaxObserver.with_args(dtype=torch.quint8, ch_axis=1)
    qconfig = our_qconfigs.QConfig(observer, our_qconfigs.default_per_channel_qconfig.weight)
    mapping = our_mappings.QConfigMapping().set_global(qconfig)
    prepared = run(ours.prepare_fx(model.eval(), mapping, inputs), [inputs])
    converted = ours.convert_fx(prepared)
    calls = converted.graph.find_nodes(
        op="call_function", target=CORSAC.quantize_per_channel.default
    )
    assert [call.args[3:] for call in calls] == [(1, 0, 255, torch.uint8)] * 2
    assert converted.activation_post_process_0_scale.shape == (3,)
    with torch.no_grad():
        assert_close(converted(*inputs), model(*inputs), rtol=0, atol=0.1)


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv1d(4, 4, 1), nn.LayerNorm(6), nn.Linear(6, 6)
        self.lstm, self.weight = nn.LSTM(6, 6), nn.Parameter(torch.randn(6, 6))

    def forward(self, x):
        y = F.linear(F.relu(self.fc(self.norm(self.conv(x)))), self.weight)
        return self.lstm(y)[0] + 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("qconfig", ["default_qconfig", "default_dynamic_qconfig"])
def test_models_of_sixteen_bits(dtype, qconfig):
    torch.manual_seed(0)
    model, x = Mixed().eval().to(dtype), torch.randn(2, 4, 6).to(dtype)
    mapping = our_mappings.QConfigMapping().set_global(getattr(our_qconfigs, qconfig))
    prepared = run(ours.prepare_fx(model, mapping, (x,)), [(x,)])
    converted = ours.convert_fx(prepared)
    with torch.no_grad():
        result = converted(x)
        assert result.dtype == dtype
        assert_close(result, model(x), rtol=0, atol=0.1)


def test_conversion_leaves_the_prepared_model_alone():
    mapping = our_mappings.get_default_qat_qconfig_mapping("fbgemm")
    for name in ("FunctionalConvReluModel", "ConvBnReLUModel"):
        model, inputs = model_and_inputs(name)
        prepared = run(ours.prepare_qat_fx(model.train(), mapping, inputs), batches(inputs))
        state = {key: value.clone() for key, value in prepared.state_dict().items()}
        first, second = ours.convert_fx(prepared), ours.convert_fx(prepared)
        assert all(torch.equal(state[key], value) for key, value in prepared.state_dict().items())
        assert first.code == second.code
        assert torch.equal(first(*inputs), second(*inputs))


def test_half_precision_is_of_weights():
    model, inputs = model_and_inputs("LinearReluModel")
    mapping = our_mappings.QConfigMapping().set_global(our_qconfigs.float16_dynamic_qconfig)
    converted = ours.convert_fx(ours.prepare_fx(model.eval(), mapping, inputs))
    assert converted.fc[0].weight.dtype == torch.float16
    x = torch.randn(2, 5)
    assert_close(converted(x), model(x), rtol=1e-2, atol=1e-2)


def test_training_lowers_the_loss_of_the_quantised_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
    x = torch.randn(64, 8)
    y = (x[:, :1] > 0).long().flatten()
    mapping = our_mappings.get_default_qat_qconfig_mapping("qnnpack")
    prepared = ours.prepare_qat_fx(model.train(), mapping, (x,))
    optimiser = torch.optim.SGD(prepared.parameters(), lr=0.2)
    for _ in range(60):
        optimiser.zero_grad()
        F.cross_entropy(prepared(x), y).backward()
        optimiser.step()
    prepared.eval()
    converted = ours.convert_fx(prepared)
    with torch.no_grad():
        assert_close(converted(x), prepared(x), rtol=0, atol=0.1)
        assert (converted(x).argmax(1) == y).float().mean() > 0.95


def test_transposed_convolutions_have_scales_of_output_channels():
    model, inputs = model_and_inputs("ConvTransposeModel")
    mapping = our_mappings.get_default_qconfig_mapping("fbgemm")
    prepared = run(ours.prepare_fx(model.eval(), mapping, inputs), [inputs])
    layer = ours.convert_fx(prepared).conv
    assert (layer.axis, layer.weight_scale.shape) == (1, (layer.out_channels,))


class Tables(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.fc = nn.Embedding(10, 12), nn.Linear(12, 3)
        self.bag = nn.EmbeddingBag(10, 12, mode="sum", include_last_offset=True)

    def forward(self, i, bag, offsets):
        return self.fc(self.table(i)), self.bag(bag, offsets)


@pytest.mark.parametrize(
    "qconfig", ["float_qparams_weight_only_qconfig", "float_qparams_weight_only_qconfig_4bit"]
)
def test_tables_of_embeddings(qconfig):
    model = Tables().eval()
    inputs = torch.tensor([[1, 2], [3, 4]]), torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2, 4])

    def mapping(package, qconfigs):
        made, chosen = package.QConfigMapping(), getattr(qconfigs, qconfig)
        return made.set_object_type(nn.Embedding, chosen).set_object_type(nn.EmbeddingBag, chosen)

    converted = ours.convert_fx(ours.prepare_fx(model, mapping(our_mappings, our_qconfigs), inputs))
    prepared = theirs.prepare_fx(
        copy.deepcopy(model), mapping(their_mappings, their_qconfigs), inputs
    )
    reference = theirs.convert_to_reference_fx(prepared)
    assert isinstance(converted.table, quantized.Embedding)
    assert type(converted.fc) is nn.Linear
    with torch.no_grad():
        assert_close(converted(*inputs), reference(*inputs), rtol=0, atol=1e-6)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(5, 6, 2, bidirectional=True), nn.GRU(12, 4)
        self.lstm_cell, self.gru_cell, self.rnn_cell = (
            nn.LSTMCell(4, 4),
            nn.GRUCell(4, 4),
            nn.RNNCell(4, 4),
        )

    def forward(self, x):
        x = self.gru(self.lstm(x)[0])[0][0]
        return self.rnn_cell(self.gru_cell(self.lstm_cell(x)[0]))


@pytest.mark.parametrize("qconfig", ["default_dynamic_qconfig", "float16_dynamic_qconfig"])
def test_recurrent_layers(qconfig):
    torch.manual_seed(0)
    model, x = Recurrent().eval(), torch.randn(3, 2, 5)
    mapping = our_mappings.QConfigMapping().set_global(getattr(our_qconfigs, qconfig))
    converted = ours.convert_fx(ours.prepare_fx(model, mapping, (x,)))
    for name, kind in (("lstm", "LSTM"), ("gru", "GRU"), ("gru_cell", "GRUCell")):
        assert isinstance(getattr(converted, name), getattr(quantized, kind))
    names = {name for name, _ in converted.lstm.named_parameters()}
    assert all(name.startswith("bias") for name in names)
    with torch.no_grad():
        assert_close(converted(x), model(x), rtol=0, atol=5e-3)
        again = pickle.loads(pickle.dumps(converted))
        assert_close(again(x), converted(x), rtol=0, atol=0)


class OwnLinear(nn.Linear):
    """The quantised class of a backend of the user's."""

    @classmethod
    def from_float(cls, layer, weight_qparams):
        made = cls(layer.in_features, layer.out_features)
        made.load_state_dict(layer.state_dict())
        made.weight_qparams = weight_qparams
        return made


def test_quantised_classes_of_a_backend():
    model, inputs = model_and_inputs("SingleLayerLinearModel")
    linear = BackendPatternConfig(nn.Linear).set_root_module(nn.Linear)
    linear.set_reference_quantized_module(OwnLinear)
    linear.add_dtype_config(DTypeConfig(torch.quint8, torch.quint8, torch.qint8, torch.float))
    backend = BackendConfig("own").set_backend_pattern_config(linear)
    mapping = our_mappings.QConfigMapping().set_global(our_qconfigs.default_per_channel_qconfig)
    prepared = ours.prepare_fx(model.eval(), mapping, inputs, backend_config=backend)
    converted = ours.convert_fx(run(prepared, [inputs]), backend_config=backend)
    assert type(converted.fc1) is OwnLinear
    assert converted.fc1.weight_qparams["scale"].shape == (5,)
    assert converted.fc1.weight_qparams["axis"] == 0


def prepared_classifier():
    model, inputs = model_and_inputs("Classifier")
    mapping = our_mappings.get_default_qconfig_mapping("fbgemm")
    prepared = ours.prepare_fx(model.eval(), mapping, inputs)
    return model, inputs, run(prepared, batches(inputs))


def test_calibration_is_required():
    model, inputs = model_and_inputs("Classifier")
    mapping = our_mappings.get_default_qconfig_mapping("fbgemm")
    prepared = ours.prepare_fx(model.eval(), mapping, inputs)
    with pytest.raises(
        ours.CalibrationError,
        match=r"15 of 18 observers .*: activation_post_process_0 of x .* and 7 more",
    ):
        ours.convert_fx(prepared)


def test_weights_have_to_be_finite():
    model, inputs = model_and_inputs("LinearReluModel")
    mapping = our_mappings.QConfigMapping().set_global(their_qconfigs.default_dynamic_qconfig)
    with torch.no_grad():
        model.fc.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"fc\.0\.weight has NaN or infinity"):
        ours.convert_fx(ours.prepare_fx(model.eval(), mapping, inputs))


def test_results_are_near_those_of_the_float_model():
    model, inputs, prepared = prepared_classifier()
    converted = ours.convert_fx(prepared)
    with torch.no_grad():
        for result, exact in zip(converted(*inputs), model(*inputs), strict=True):
            noise = (result - exact).pow(2).sum() / exact.pow(2).sum()
            assert -10 * torch.log10(noise) > 20


def test_state_dicts_copies_and_pickles():
    _, inputs, prepared = prepared_classifier()
    converted = ours.convert_fx(prepared)
    result = converted(*inputs)
    for again in (copy.deepcopy(converted), pickle.loads(pickle.dumps(converted))):
        assert_close(again(*inputs), result, rtol=0, atol=0)
    file = io.BytesIO()
    torch.save(converted.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert {
        key: value.dtype for key, value in state.items() if key.startswith(("fc", "weight"))
    } == {
        "fc_scale_0": torch.float32,
        "fc_zero_point_0": torch.int64,
        "fc_quant_range_0": torch.int64,
        "fc.bias": torch.float32,
        "fc.weight": torch.int8,
        "fc.weight_scale": torch.float32,
        "fc.weight_zero_point": torch.int32,
        "weight_quantized": torch.int8,
        "weight_scale": torch.float32,
        "weight_zero_point": torch.int32,
    }
    other = ours.convert_fx(prepared)
    for tensor in other.state_dict().values():
        tensor.zero_()
    other.load_state_dict(state)
    assert_close(other(*inputs), result, rtol=0, atol=0)


def test_the_reference_form_is_the_same():
    _, _, prepared = prepared_classifier()
    assert ours.convert_to_reference_fx(prepared).code == ours.convert_fx(prepared).code


def test_configurations_of_modules():
    _, _, prepared = prepared_classifier()
    assert prepared.conv.qconfig is not None
    assert not any(hasattr(module, "qconfig") for module in ours.convert_fx(prepared).modules())
    kept = ours.convert_fx(prepared, _remove_qconfig=False)
    assert kept.fc.qconfig is prepared.fc.qconfig


def test_float_weights_can_be_kept():
    model, _, prepared = prepared_classifier()
    converted = ours.convert_fx(prepared, keep_original_weights=True)
    kept = converted.original_weights_lookup
    assert kept.keys() == {"conv.0.weight", "fc.weight", "weight"}
    assert kept["fc.weight"] is model.fc.weight
    assert not hasattr(ours.convert_fx(prepared), "original_weights_lookup")


def test_operators_that_are_left_floats_at_conversion():
    model, inputs = model_and_inputs("LinearModelWithSubmodule")
    qconfig = our_qconfigs.default_qconfig
    mapping = our_mappings.QConfigMapping().set_global(qconfig).set_module_name("fc", qconfig)
    prepared = run(ours.prepare_fx(model.eval(), mapping, inputs), batches(inputs))
    left = copy.deepcopy(mapping).set_module_name("fc", None)
    converted = ours.convert_fx(prepared, qconfig_mapping=left)
    assert type(converted.fc) is nn.Linear
    assert len(steps(converted, CORSAC.quantize_per_tensor.default)) < len(
        steps(ours.convert_fx(prepared), CORSAC.quantize_per_tensor.default)
    )
    with pytest.raises(ValueError, match="expected an entry for fc"):
        ours.convert_fx(prepared, qconfig_mapping=our_mappings.QConfigMapping().set_global(qconfig))
    other = our_mappings.QConfigMapping().set_global(our_qconfigs.default_per_channel_qconfig)
    with pytest.raises(ValueError, match="expected the global configuration"):
        ours.convert_fx(prepared, qconfig_mapping=other)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(F.relu(self.norm(self.conv(x))).mean((2, 3)))


@row("`convert_fx(…, qconfig_mapping=…)` with configurations by type, after training")
def test_the_same_configurations_by_type_after_training():
    qconfig = our_qconfigs.get_default_qat_qconfig("x86")
    mapping = our_mappings.QConfigMapping()
    for kind in (nn.Conv2d, nn.BatchNorm2d, F.relu, nn.Linear):
        mapping.set_object_type(kind, qconfig)
    x = torch.randn(2, 3, 8, 8)
    prepared = ours.prepare_qat_fx(Normed().train(), mapping, (x,))
    run(prepared, [(x,)])
    expected = ours.convert_fx(prepared)
    converted = ours.convert_fx(prepared, qconfig_mapping=mapping)
    assert converted.code == expected.code
    assert [*weights(converted)] == [*weights(expected)] == ["conv.0", "fc"]
    assert torch.equal(converted(x), expected(x))
    left = ours.convert_fx(prepared, qconfig_mapping=mapping.set_object_type(nn.Linear, None))
    assert [*weights(left)] == ["conv.0"]


def test_what_matches_nothing_in_conversion():
    new, x = our_mappings.QConfigMapping, torch.randn(2, 3, 8, 8)
    qconfig = our_qconfigs.default_qconfig
    prepared = ours.prepare_fx(Normed().eval(), new().set_global(qconfig), (x,))
    run(prepared, [(x,)])
    for said, mapping in (
        (r"no module 'cnv': did you mean conv or", new().set_module_name("cnv", None)),
        ("no module of the model matches 'heads.*'", new().set_module_name_regex("heads.*", None)),
        ("matches the method 'Linear': did you mean", new().set_object_type("Linear", None)),
    ):
        with pytest.warns(UserWarning, match=said):
            ours.convert_fx(prepared, qconfig_mapping=mapping.set_global(qconfig))
    custom = ConvertCustomConfig().set_observed_to_quantized_mapping(nn.LSTM, nn.LSTM)
    with pytest.warns(UserWarning, match="the model has no module of type LSTM"):
        ours.convert_fx(prepared, custom)


def test_a_layer_of_which_one_call_is_quantised():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            return self.fc(self.fc(x))

    qconfig = our_qconfigs.default_qconfig
    mapping = our_mappings.QConfigMapping().set_global(qconfig)
    mapping.set_module_name_object_type_order("", nn.Linear, 0, None)
    inputs = (torch.randn(2, 3),)
    prepared = run(ours.prepare_fx(Model().eval(), mapping, inputs), [inputs])
    converted = ours.convert_fx(prepared)
    assert isinstance(converted.fc, quantized.Linear)
    assert len(steps(converted, CORSAC.quantize_per_tensor.default)) == 2


def test_pairs_with_equal_parameters_are_removed():
    class Model(nn.Module):
        def forward(self, x, y):
            return (x + y).reshape(-1)

    qconfig = their_qconfigs.default_qconfig
    mapping = our_mappings.QConfigMapping().set_global(qconfig)
    inputs = torch.randn(2, 3), torch.randn(2, 3)
    prepared = ours.prepare_fx(Model(), mapping, inputs)
    # A second observer of the same value.
    observer = next(
        node for node in prepared.graph.nodes if node.name == "activation_post_process_2"
    )
    with prepared.graph.inserting_after(observer):
        again = prepared.graph.call_module(observer.target, (observer,))
    observer.replace_all_uses_with(again, lambda user: user is not again)
    prepared.recompile()
    converted = ours.convert_fx(run(prepared, batches(inputs)))
    assert len(steps(converted, CORSAC.quantize_per_tensor.default)) == 4


@pytest.mark.parametrize("outputs", [[0], [1], [0, 1]])
def test_results_that_stay_quantised(outputs):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return self.a(x), self.b(x)

    config = PrepareCustomConfig().set_output_quantized_indexes(outputs)
    mapping = our_mappings.QConfigMapping().set_global(our_qconfigs.default_qconfig)
    inputs = (torch.randn(2, 3),)
    prepared = run(ours.prepare_fx(Model().eval(), mapping, inputs, config), batches(inputs))
    results = ours.convert_fx(prepared)(*inputs)
    assert [result.dtype == torch.uint8 for result in results] == [at in outputs for at in (0, 1)]


def test_inputs_that_are_quantised():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    config = TheirPrepareCustomConfig().set_input_quantized_indexes([0])
    mapping = their_mappings.get_default_qconfig_mapping("qnnpack")
    inputs = (torch.randn(2, 3),)
    prepared = run(ours.prepare_fx(model.eval(), mapping, inputs, config), batches(inputs))
    expected = run(
        theirs.prepare_fx(copy.deepcopy(model), mapping, inputs, config), batches(inputs)
    )
    x = torch.quantize_per_tensor(inputs[0], 0.05, 60, torch.quint8)
    reference = theirs.convert_to_reference_fx(expected)
    with torch.no_grad():
        assert_close(ours.convert_fx(prepared)(x), reference(x), rtol=0, atol=0.05)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return F.relu(self.fc(x))


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(4, 4), Inner(), nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.inner(self.first(x)))


@pytest.mark.parametrize("inputs", [[], [0]])
@pytest.mark.parametrize("outputs", [[], [0]])
def test_standalone_modules(inputs, outputs):
    x = (torch.randn(5, 4),)
    inner = TheirPrepareCustomConfig().set_input_quantized_indexes(inputs)
    inner.set_output_quantized_indexes(outputs)
    config = TheirPrepareCustomConfig().set_standalone_module_name("inner", None, x, inner, None)
    mapping = their_mappings.get_default_qconfig_mapping("qnnpack")
    torch.manual_seed(0)
    model = Outer().eval()
    prepared = run(ours.prepare_fx(model, mapping, x, config), batches(x))
    expected = run(theirs.prepare_fx(copy.deepcopy(model), mapping, x, config), batches(x))
    converted, reference = ours.convert_fx(prepared), theirs.convert_to_reference_fx(expected)
    assert isinstance(converted.inner.get_submodule("fc"), nn.Module)
    with torch.no_grad():
        assert_close(converted(*x), reference(*x), rtol=0, atol=0.02)


class Scale(nn.Module):
    def forward(self, x):
        return x * 2


class ObservedScale(nn.Module):
    @classmethod
    def from_float(cls, module):
        return cls()

    def forward(self, x):
        return x * 2


class QuantisedScale(nn.Module):
    @classmethod
    def from_observed(cls, module):
        made = cls()
        made.scale, made.zero_point = module.activation_post_process.calculate_qparams()
        return made

    def forward(self, x):
        return x * 2


def test_custom_modules_take_and_return_floats():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.scale, self.last = nn.Linear(4, 4), Scale(), nn.Linear(4, 4)

        def forward(self, x):
            return self.last(self.scale(self.fc(x)))

    x = (torch.randn(5, 4),)
    mapping = our_mappings.QConfigMapping().set_global(our_qconfigs.default_qconfig)
    config = TheirPrepareCustomConfig().set_float_to_observed_mapping(Scale, ObservedScale)
    prepared = run(ours.prepare_fx(Model().eval(), mapping, x, config), batches(x))
    custom = TheirConvertCustomConfig().set_observed_to_quantized_mapping(
        ObservedScale, QuantisedScale
    )
    converted = ours.convert_fx(prepared, custom)
    plain = ours.convert_fx(prepared)
    assert type(converted.scale) is QuantisedScale
    assert float(converted.scale.scale) in [
        scale for scale, *_ in steps(converted, CORSAC.quantize_per_tensor.default)
    ]
    assert torch.equal(converted(*x), plain(*x))


def test_weights_that_are_written_stay_floats():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.randn(4, 4))

        def forward(self, x):
            y = F.linear(x, self.weight)
            self.weight.add_(x.abs().mean())
            return y

    x = (torch.randn(5, 4),)
    mapping = our_mappings.QConfigMapping().set_global(our_qconfigs.default_qconfig)
    prepared = run(ours.prepare_fx(Model().eval(), mapping, x), batches(x))
    converted = ours.convert_fx(prepared)
    assert "weight_quantized" not in converted.code
    assert not torch.equal(converted(*x), converted(*x))


def test_only_prepared_models_are_converted():
    with pytest.raises(ValueError, match="prepare_fx or prepare_qat_fx has made, got ReLU"):
        ours.convert_fx(nn.ReLU())
