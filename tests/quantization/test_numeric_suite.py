"""Comparison of models operation by operation, against torch.ao.ns._numeric_suite_fx."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
import torch.ao.ns._numeric_suite_fx as theirs
import torch.ao.quantization as torch_ao
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.ao.ns.fx import utils as their_utils
from torch.ao.ns.fx.qconfig_multi_mapping import QConfigMultiMapping as TheirMultiMapping
from torch.ao.quantization import backend_config as their_backends
from torch.ao.quantization import quantize_fx as their_fx
from torch.testing import assert_close

import corsac.quantization as quantization
import corsac.quantization.ns as ours
from corsac.quantization import backend_config as our_backends
from corsac.quantization import quantize_fx as our_fx
from kit.int8_products import pytorch_saturates

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def fbgemm():
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    yield
    torch.backends.quantized.engine = before


class Modules(nn.Module):
    """Layers that are modules, one of them in a module."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
        self.relu, self.pool = nn.ReLU(), nn.AdaptiveAvgPool2d(2)
        self.rest = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
        for name in ("weight", "bias", "running_mean"):
            nn.init.uniform_(getattr(self.norm, name), 0.5, 1.5)

    def forward(self, x):
        x = self.pool(self.relu(self.norm(self.conv(x))))
        return self.rest(x.flatten(1))


class Functions(nn.Module):
    """Functions with weights, sums and joins."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.weight = nn.Parameter(torch.randn(5, 5))
        self.kernel = nn.Parameter(torch.randn(5, 5))

    def forward(self, x):
        x = self.first(x)
        y = F.relu(F.linear(x, self.weight))
        z = F.linear(y, self.kernel)
        return torch.cat([y + x, z], 1)


MODELS = {"modules": (Modules, (3, 2, 8, 8)), "functions": (Functions, (7, 6))}


def forms(package, name):
    """A float model, its prepared form, its converted form, and an input, by torch.ao or by this package."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(shape)
    fx, mapping = {
        "theirs": (their_fx, torch_ao.get_default_qconfig_mapping("qnnpack")),
        "ours": (our_fx, quantization.get_default_qconfig_mapping("qnnpack")),
    }[package]
    prepared = fx.prepare_fx(copy.deepcopy(model), mapping, (x,))
    with torch.no_grad():
        prepared(x)
    return model, prepared, fx.convert_fx(copy.deepcopy(prepared)), x


def floats(value):
    return value.dequantize() if value.is_quantized else value


def test_metrics():
    torch.manual_seed(0)
    x, y = torch.randn(4, 5), torch.randn(4, 5)
    values = [(x, y), ((x, (x, y)), (y, (y, y))), (x, x)]
    values.append((torch.quantize_per_tensor(x, 0.1, 3, torch.quint8), y))
    for name in ("compute_sqnr", "compute_normalized_l2_error", "compute_cosine_similarity"):
        for left, right in values:
            expected = getattr(their_utils, name)(left, right)
            assert_close(getattr(ours, name)(left, right), expected, rtol=1e-6, atol=1e-6)
    assert float(ours.compute_sqnr(x, 0.9 * x)) == pytest.approx(20)


def keys_of(result):
    return {
        key
        for kinds in result.values()
        for models in kinds.values()
        for one in models.values()
        for key in one[0]
    }


def test_weights_are_those_of_torch_ao():
    results = []
    for package, suite in (("theirs", theirs), ("ours", ours)):
        _, prepared, converted, _ = forms(package, "modules")
        results.append(suite.extract_weights("a", prepared, "b", converted))
    left, right = results
    assert [*left] == [*right] == ["conv", "rest_0", "rest_2"]
    assert keys_of(left) == keys_of(right)
    for name, kinds in left.items():
        for model in "ab":
            (expected,), (got,) = kinds["weight"][model], right[name]["weight"][model]
            assert_close(floats(expected["values"][0]), got["values"][0], rtol=0, atol=1e-7)
            for key in ("type", "fqn", "index_of_arg", "index_within_arg", "ref_node_name"):
                assert got[key] == expected[key], key
            assert got["values"][0].dtype == torch.float32


def test_weights_of_functions():
    """Nodes have the same names in all forms of a model here."""
    _, prepared, converted, _ = forms("theirs", "functions")
    expected = [
        floats(one["weight"]["b"][0]["values"][0])
        for one in theirs.extract_weights("a", prepared, "b", converted).values()
    ]
    model, prepared, converted, _ = forms("ours", "functions")
    for first in (model, prepared):
        got = ours.extract_weights("a", first, "b", converted)
        assert [*got] == ["first", "linear", "linear_1"]
        for weight, one in zip(expected, got.values(), strict=True):
            assert_close(one["weight"]["b"][0]["values"][0], weight, rtol=0, atol=1e-7)
        assert torch.equal(got["linear"]["weight"]["a"][0]["values"][0], model.weight)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("inputs", [False, True])
def test_logged_values_are_those_of_torch_ao(name, inputs):
    logged = []
    for package, suite in (("theirs", theirs), ("ours", ours)):
        _, prepared, converted, x = forms(package, name)
        a, b = suite.add_loggers(
            "a",
            copy.deepcopy(prepared),
            "b",
            copy.deepcopy(converted),
            suite.OutputLogger,
            should_log_inputs=inputs,
        )
        with torch.no_grad():
            assert torch.equal(a(x), prepared(x))
            assert_close(b(x), converted(x))
        result = suite.extract_logger_info(a, b, suite.OutputLogger, "b")
        suite.extend_logger_results_with_comparison(
            result, "a", "b", their_utils.compute_sqnr, "sqnr"
        )
        logged.append(result)
    left, right = logged
    assert keys_of(left) == keys_of(right)
    # Fused functions have other names in torch.ao, which leaves flatten out.
    if name == "modules":
        assert right.keys() - left.keys() == {"flatten"}
    else:
        names = {"linear_relu": "linear", "linear": "linear_1"}
        left = {names.get(key, key): value for key, value in left.items()}
        assert left.keys() == right.keys()
    for key, kinds in left.items():
        assert kinds.keys() == right[key].keys()
        for kind, models in kinds.items():
            for model, results in models.items():
                got = right[key][kind][model]
                places = [(one["index_of_arg"], one["index_within_arg"]) for one in results]
                assert places == [(one["index_of_arg"], one["index_within_arg"]) for one in got]
                for expected, one in zip(results, got, strict=True):
                    value = floats(expected["values"][0])
                    close = 1e-6 if model == "a" else 2.1 * step(expected["values"][0], value)
                    if model == "a" or not pytorch_saturates():
                        assert_close(one["values"][0], value, rtol=0, atol=close)
                    if model == "b":
                        assert one["sqnr"][0] > 20 or one["sqnr"][0] > expected["sqnr"][0] - 3


def step(value, real):
    return value.q_scale() if value.is_quantized else float(real.abs().max()) / 127


def test_facts_about_logged_values():
    model, prepared, converted, x = forms("ours", "functions")
    a, b = ours.add_loggers("f", model, "q", converted, ours.OutputLogger, True)
    for _ in range(2):
        assert torch.equal(b(x), converted(x))
        a(x)
    result = ours.extract_logger_info(a, b, ours.OutputLogger, "f")
    assert [*result] == ["first", "linear", "linear_1", "add", "cat"]
    (first,), (second,) = (result["linear"]["node_output"][name] for name in "fq")
    assert (first["prev_node_name"], second["prev_node_name"]) == (
        "relu",
        "dequantize_per_tensor_default_3",
    )
    assert first["prev_node_target_type"] == "torch.nn.functional.relu"
    assert second["ref_node_target_type"] == first["ref_node_target_type"] == "torch._C._nn.linear"
    assert len(first["values"]) == len(second["values"]) == 2
    assert torch.equal(first["values"][0], F.relu(F.linear(model.first(x), model.weight)))
    joined = result["cat"]["node_input"]["q"]
    assert [(one["index_of_arg"], one["index_within_arg"]) for one in joined] == [(0, 0), (0, 1)]
    # The models themselves have no loggers.
    assert not any(isinstance(module, ours.OutputLogger) for module in model.modules())
    assert not any(
        isinstance(module, ours.OutputLogger) for module in converted.graph.owning_module.modules()
    )
    assert prepared is not a


def test_shadows_have_the_inputs_of_the_other_model():
    model, prepared, converted, x = forms("ours", "modules")
    values = {}
    for first in (model, prepared):
        shadowed = ours.add_shadow_loggers("a", first, "b", converted, ours.OutputLogger, True)
        with torch.no_grad():
            assert torch.equal(shadowed(x), converted(x))
        result = ours.extract_shadow_logger_info(shadowed, ours.OutputLogger, "b")
        ours.extend_logger_results_with_comparison(result, "a", "b", ours.compute_sqnr, "sqnr")
        assert [*result] == ["conv", "pool", "flatten", "rest_0", "rest_2"]
        for kinds in result.values():
            assert kinds["node_input"]["b"][0]["sqnr"][0] == float("inf")
        values[first] = {
            key: float(kinds["node_output"]["b"][0]["sqnr"][0]) for key, kinds in result.items()
        }
        # The last layer on the inputs that it has in the converted model.
        last = result["rest_2"]
        (given,) = last["node_input"]["b"][0]["values"]
        assert_close(last["node_output"]["a"][0]["values"][0], model.rest[2](given))
    assert values[prepared] == pytest.approx(values[model], abs=0.01)
    # torch.ao's, of the layers that are not moves of values.
    _, prepared, converted, x = forms("theirs", "modules")
    shadowed = theirs.add_shadow_loggers("a", prepared, "b", converted, theirs.OutputLogger)
    shadowed(x)
    result = theirs.extract_shadow_logger_info(shadowed, theirs.OutputLogger, "b")
    theirs.extend_logger_results_with_comparison(result, "a", "b", ours.compute_sqnr, "sqnr")
    for key in ("conv", "rest_0", "rest_2"):
        expected = float(result[key]["node_output"]["b"][0]["sqnr"][0])
        if not pytorch_saturates():
            assert values[model][key] == pytest.approx(expected, abs=1.5), key


def test_constants_of_shadows_are_copied():
    model, _, converted, x = forms("ours", "functions")
    shadowed = ours.add_shadow_loggers("a", model, "b", converted, ours.OutputLogger)
    shadowed(x)
    result = ours.extract_shadow_logger_info(shadowed, ours.OutputLogger, "a")
    ours.extend_logger_results_with_comparison(result, "a", "b", ours.compute_sqnr, "sqnr")
    found = {key: float(kinds["node_output"]["b"][0]["sqnr"][0]) for key, kinds in result.items()}
    assert found.keys() == {"first", "linear", "linear_1", "add", "cat"}
    assert all(value > 30 for value in found.values())
    assert found["linear_1"] < 60


def test_models_that_were_trained_or_are_dynamic():
    torch.manual_seed(0)
    model, x = Modules().train(), torch.randn(3, 2, 8, 8)
    trained = our_fx.prepare_qat_fx(
        model, quantization.get_default_qat_qconfig_mapping("qnnpack"), (x,)
    )
    trained(x)
    trained.eval()
    converted = our_fx.convert_fx(copy.deepcopy(trained))
    weights = ours.extract_weights("a", trained, "b", converted)
    assert [*weights] == ["conv", "rest_0", "rest_2"]
    for one in weights.values():
        first, second = (one["weight"][name][0]["values"][0] for name in "ab")
        assert ours.compute_sqnr(first, second) > 35
    lstm = nn.LSTM(4, 5)
    mapping = quantization.QConfigMapping().set_global(quantization.per_channel_dynamic_qconfig)
    y = torch.randn(3, 2, 4)
    dynamic = our_fx.convert_fx(our_fx.prepare_fx(Recurrent(lstm).eval(), mapping, (y,)))
    both = Recurrent(lstm).eval(), dynamic
    (weights,) = ours.extract_weights("a", both[0], "b", both[1]).values()
    assert len(weights["weight"]["a"][0]["values"]) == len(weights["weight"]["b"][0]["values"]) == 2
    assert torch.equal(weights["weight"]["a"][0]["values"][1], lstm.weight_hh_l0)
    a, b = ours.add_loggers("a", *both[:1], "b", both[1], ours.OutputLogger)
    a(y), b(y)
    result = ours.extract_logger_info(a, b, ours.OutputLogger, "b")
    ours.extend_logger_results_with_comparison(result, "a", "b", ours.compute_sqnr, "sqnr")
    output, (hidden, cell) = result["lstm"]["node_output"]["b"][0]["sqnr"][0]
    assert min(map(float, (output, hidden, cell))) > 30


def test_models_without_graphs():
    """Models that were quantised module by module."""
    torch.manual_seed(0)
    model, x = Modules().eval(), torch.randn(3, 2, 8, 8)
    fused = quantization.fuse_modules(model, [["conv", "norm", "relu"], ["rest.0", "rest.1"]])
    wrapped = quantization.QuantWrapper(fused).eval()
    wrapped.qconfig = quantization.get_default_qconfig("x86")
    prepared = quantization.prepare(wrapped)
    prepared(x)
    converted = quantization.convert(prepared)
    dynamic = quantization.quantize_dynamic(model)
    for other, names in (
        (converted, ["module_conv", "module_rest_0", "module_rest_2"]),
        (dynamic, ["conv", "rest_0", "rest_2"]),
    ):
        weights = ours.extract_weights("a", model, "b", other)
        assert [*weights] == names
        a, b = ours.add_loggers("a", model, "b", other, ours.OutputLogger)
        a(x)
        assert torch.equal(b(x), other(x))
        result = ours.extract_logger_info(a, b, ours.OutputLogger, "a")
        ours.extend_logger_results_with_comparison(result, "a", "b", ours.compute_sqnr, "sqnr")
        assert [*result] == ["conv", "pool", "flatten", "rest_0", "rest_2"]
        found = [float(kinds["node_output"]["b"][0]["sqnr"][0]) for kinds in result.values()]
        assert min(found) > 25
        shadowed = ours.add_shadow_loggers("a", model, "b", other, ours.OutputLogger)
        assert torch.equal(shadowed(x), other(x))


class Recurrent(nn.Module):
    def __init__(self, lstm):
        super().__init__()
        self.lstm = lstm

    def forward(self, x):
        return self.lstm(x)[0]


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "shufflenet_v2_x1_0"])
def test_models_of_torchvision(name):
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)().eval()
    x = torch.randn(1, 3, 64, 64)
    prepared = our_fx.prepare_fx(
        copy.deepcopy(model), quantization.get_default_qconfig_mapping(), (x,)
    )
    with torch.no_grad():
        prepared(x)
        converted = our_fx.convert_fx(copy.deepcopy(prepared))
        weights = ours.extract_weights("a", model, "b", converted)
        layers = [one for one in model.modules() if isinstance(one, (nn.Conv2d, nn.Linear))]
        assert len(weights) == len(layers)
        a, b = ours.add_loggers("a", model, "b", converted, ours.OutputLogger)
        assert torch.equal(b(x), converted(x))
        a(x)
    result = ours.extract_logger_info(a, b, ours.OutputLogger, "b")
    ours.extend_logger_results_with_comparison(result, "a", "b", ours.compute_sqnr, "sqnr")
    assert set(weights) <= set(result)
    # Operations between numbers have no tensors.
    found = [
        float(value) for kinds in result.values() for value in kinds["node_output"]["b"][0]["sqnr"]
    ]
    assert len(found) >= len(layers) and found[0] > 25
    assert sorted(found)[len(found) // 2] > 10


def test_models_that_differ():
    one, other = (
        nn.Sequential(nn.Linear(2, 2), nn.ReLU()),
        nn.Sequential(nn.Linear(2, 2), nn.Tanh()),
    )
    with pytest.raises(
        ours.GraphMatchingException,
        match=r"node _1 \(torch.nn.modules.activation.ReLU\) of the one.*node _1 .*Tanh.* of the other",
    ):
        ours.extract_weights("a", one, "b", other)
    related = {"activation": {nn.ReLU, nn.Tanh}}
    assert [*ours.extract_weights("a", one, "b", other, related)] == ["_0"]
    skipped = {
        "funs_unmatchable": set(),
        "mods_unmatchable": {nn.ReLU, nn.Tanh},
        "meths_unmatchable": set(),
    }
    assert [*ours.extract_weights("a", one, "b", other, None, skipped)] == ["_0"]
    with pytest.raises(ours.GraphMatchingException, match="the end of the one"):
        ours.extract_weights("a", one[:1], "b", one)
    own = {"call_module": {nn.Linear: lambda layer: layer.bias}}
    found = ours.extract_weights("a", one, "b", one, None, None, own)
    assert torch.equal(found["_0"]["weight"]["a"][0]["values"][0], one[0].bias)
    with pytest.raises(AssertionError, match="expected values of model 'c', got those of 'a', 'b'"):
        ours.extend_logger_results_with_comparison(found, "c", "a", ours.compute_sqnr, "sqnr")


def test_loggers_are_switched():
    model, _, converted, x = forms("ours", "modules")
    a, b = ours.add_loggers("a", model, "b", converted, ours.OutputLogger)

    def kept():
        return [
            len(module.stats) for module in b.modules() if isinstance(module, ours.OutputLogger)
        ]

    ours.loggers_set_enabled(b, False)
    b(x)
    assert set(kept()) == {0}
    ours.loggers_set_enabled(b, True)
    b(x)
    from corsac.quantization.ns.loggers import loggers_set_save_activations

    loggers_set_save_activations(b, False)
    b(x)
    assert set(kept()) == {1}
    assert "'ref_node_name': 'conv'" in repr(
        next(one for one in a.modules() if isinstance(one, ours.OutputLogger))
    )
    arguments = ["op", "op", "m", "match", "str", "str", "node_output", 0, 0, "op"]
    both = [package.OutputComparisonLogger(*arguments) for package in (theirs, ours)]
    for one in both:
        assert one(x, 2 * x) is x
    assert both[0].comparisons == both[1].comparisons
    with pytest.raises(AssertionError, match="node op: expected a tensor to compare, got tuple"):
        both[1]((x,), x)


def multi(kind, package):
    minmax, per_channel, debug = (
        getattr(package, name)
        for name in ("default_qconfig", "default_per_channel_qconfig", "default_debug_qconfig")
    )
    return (
        kind()
        .set_global([minmax, per_channel])
        .set_object_type(nn.ReLU, [per_channel])
        .set_module_name("rest.2", [minmax, debug, minmax])
        .set_module_name_regex("rest.*", [None])
        .set_module_name_object_type_order("", F.relu, 0, [debug, minmax, per_channel])
    )


TABLES = (
    "object_type_qconfigs",
    "module_name_qconfigs",
    "module_name_regex_qconfigs",
    "module_name_object_type_order_qconfigs",
)


def test_several_mappings_are_those_of_torch_ao():
    left = multi(TheirMultiMapping, torch_ao)
    right = multi(ours.QConfigMultiMapping, quantization)
    copied = ours.QConfigMultiMapping.from_list_qconfig_mapping(right.qconfig_mappings_list)
    equals = quantization.qconfig_equals
    for one in (right, copied):
        assert len(left.qconfig_mappings_list) == len(one.qconfig_mappings_list) == 3
        for a, b in zip(left.qconfig_mappings_list, one.qconfig_mappings_list, strict=True):
            assert equals(a.global_qconfig, b.global_qconfig)
            for table in TABLES:
                first, second = getattr(a, table), getattr(b, table)
                assert first.keys() == second.keys()
                assert all(equals(first[key], second[key]) for key in first)
    # After a None, torch.ao keeps configurations that are there twice.
    listed = [None, quantization.default_qconfig, quantization.default_qconfig]
    twice = ours.QConfigMultiMapping().set_global(listed)
    assert len(twice.qconfig_mappings_list) == 1 and len(listed) == 3
    assert repr(right).startswith("QConfigMultiMapping [\n") and "PerChannel" in repr(right)


@pytest.mark.parametrize("name", MODELS)
def test_shadows_of_several_configurations(name, capsys):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(shape)
    results, printed = [], []
    for suite, package, kind, backends in (
        (theirs, torch_ao, TheirMultiMapping, their_backends),
        (ours, quantization, ours.QConfigMultiMapping, our_backends),
    ):
        mappings = kind().set_global([package.default_qconfig, package.default_per_channel_qconfig])
        mappings.set_object_type(nn.Linear, [package.default_per_channel_qconfig])
        shadowed = suite.prepare_n_shadows_model(
            copy.deepcopy(model), (x,), mappings, backends.get_native_backend_config()
        )
        with torch.no_grad():
            shadowed(x)
            converted = suite.convert_n_shadows_model(shadowed)
            suite.loggers_set_enabled(converted, True)
            assert torch.equal(converted(x), model(x))
        results.append(suite.extract_results_n_shadows_model(converted))
        suite.print_comparisons_n_shadows_model(results[-1])
        printed.append([line.split() for line in capsys.readouterr().out.splitlines()])
    left, right = (result["model"]["node_output"] for result in results)
    assert left.keys() == right.keys()
    for key, (expected,) in left.items():
        (got,) = right[key]
        assert expected.keys() == got.keys()
        for field in ("ref_node_name", "prev_node_name", "fqn", "type", "comparison_fn_name"):
            assert got[field] == expected[field], field
        if key.endswith("_0"):
            assert torch.equal(got["values"][0], expected["values"][0])
            continue
        assert float(got["comparisons"][0]) == pytest.approx(
            float(expected["comparisons"][0]), abs=2.5
        )
    assert [line[0] for line in printed[0][2:]] == [line[0] for line in printed[1][2:]]
    assert printed[0][0] == printed[1][0] == ["node_name", "node_type", "fqn", "0", "1"]
    one = right["subgraph_0_1"][0]["comparisons"][0]
    assert f"{float(one):g}" in printed[1][2]


def test_own_functions_for_shadows():
    model, x = Modules().eval(), torch.randn(3, 2, 8, 8)
    calls = []

    def prepare(inner, mapping, example_inputs, backend_config, mark):
        calls.append((mark, example_inputs[0].shape))
        return our_fx.prepare_fx(inner, mapping, example_inputs, backend_config=backend_config)

    def convert(inner, mark):
        calls.append(mark)
        return our_fx.convert_fx(inner)

    mappings = ours.QConfigMultiMapping().set_object_type(nn.Conv2d, [quantization.default_qconfig])
    shadowed = ours.prepare_n_shadows_model(
        model, (x,), mappings, our_backends.get_native_backend_config(), prepare, {"mark": 1}
    )
    shadowed(x)
    ours.convert_n_shadows_model(shadowed, convert, {"mark": 2})
    assert calls == [(1, x.shape), 2]
    names = [node.name for node in shadowed.graph.nodes if "shadow" in node.name]
    assert names == ["shadow_0_0", "shadow_wrapper_0_1", "shadow_0_1"]


NAMES = [
    "extract_weights",
    "add_loggers",
    "extract_logger_info",
    "add_shadow_loggers",
    "extract_shadow_logger_info",
    "extend_logger_results_with_comparison",
    "prepare_n_shadows_model",
    "loggers_set_enabled",
    "loggers_set_save_activations",
    "convert_n_shadows_model",
    "extract_results_n_shadows_model",
    "print_comparisons_n_shadows_model",
    "OutputLogger",
]


@pytest.mark.parametrize("name", NAMES)
def test_signatures(name):
    left, right = (inspect.signature(getattr(suite, name)) for suite in (theirs, ours))
    assert [(one.name, one.default) for one in left.parameters.values()] == [
        (one.name, one.default) for one in right.parameters.values()
    ]


def test_observers_are_kept_by_tracing():
    model = nn.Sequential(
        nn.Linear(2, 2), quantization.MinMaxObserver(), quantization.default_fake_quant()
    )
    graph = ours.NSTracer().trace(model)
    assert [node.target for node in graph.nodes if node.op == "call_module"] == ["0", "1", "2"]
