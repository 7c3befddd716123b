"""Configurations and their mappings compared with those of torch.ao."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.ao.quantization as torch_ao
import torch.ao.quantization.qconfig as theirs
from torch import nn
from torch.ao.quantization import qconfig_mapping as their_mappings
from torch.ao.quantization import utils as their_utils
from torch.ao.quantization.fx import custom_config as their_settings

import corsac.quantization
import corsac.quantization.qconfig as ours
from corsac.quantization import fake_quantize, quant_type, stubs, utils
from corsac.quantization import observer as observers
from corsac.quantization import qconfig_mapping as our_mappings
from corsac.quantization.fx import custom_config as our_settings

pytestmark = pytest.mark.filterwarnings("ignore")

BACKENDS = ["x86", "fbgemm", "qnnpack", "onednn"]
QCONFIGS = [name for name in theirs.__all__ if isinstance(getattr(theirs, name), theirs.QConfig)]
QCONFIGS += ["_default_fp32_placeholder_qconfig", "_default_quint8_placeholder_qconfig"]


def test_names_are_those_of_torch():
    assert set(ours.__all__) == set(theirs.__all__)
    assert set(our_mappings.__all__) == set(their_mappings.__all__)
    assert set(utils.__all__) == set(their_utils.__all__) - {"DEPRECATION_WARNING"}
    assert set(our_settings.__all__) == set(their_settings.__all__)


@pytest.mark.parametrize("name", QCONFIGS)
def test_configurations_are_equal(name):
    their, our = getattr(theirs, name), getattr(ours, name)
    assert ours.qconfig_equals(our, their)
    assert ours.qconfig_equals(their, our)
    assert ours.qconfig_equals(our, copy.copy(our))


def test_different_configurations_are_not_equal():
    pairs = 0
    for one in QCONFIGS:
        for other in QCONFIGS:
            our = ours.qconfig_equals(getattr(ours, one), getattr(ours, other))
            mixed = ours.qconfig_equals(getattr(ours, one), getattr(theirs, other))
            expected = theirs.qconfig_equals(getattr(theirs, one), getattr(theirs, other))
            assert our == mixed == expected, (one, other)
            pairs += not expected
    assert pairs > 300
    assert ours.qconfig_equals(None, None)
    assert not ours.qconfig_equals(None, ours.default_qconfig)


@pytest.mark.parametrize("backend", BACKENDS)
def test_defaults_of_backends(backend):
    assert ours.qconfig_equals(
        ours.get_default_qconfig(backend), theirs.get_default_qconfig(backend)
    )
    for version in (0, 1):
        assert ours.qconfig_equals(
            ours.get_default_qat_qconfig(backend, version),
            theirs.get_default_qat_qconfig(backend, version),
        )


def test_unknown_backends_and_versions():
    with pytest.raises(
        AssertionError, match="expected a backend of fbgemm, x86, qnnpack, onednn, got 'arm'"
    ):
        ours.get_default_qconfig("arm")
    with pytest.raises(AssertionError, match="version"):
        ours.get_default_qconfig("x86", 1)
    with pytest.raises(AssertionError, match="version"):
        ours.get_default_qat_qconfig("x86", 2)


def test_instances_are_no_constructors():
    with pytest.raises(
        ValueError, match="expected a constructor of observers, got an instance of MinMaxObserver"
    ):
        ours.QConfig(observers.MinMaxObserver(), observers.MinMaxObserver)
    with pytest.raises(ValueError, match="expected a constructor"):
        ours.QConfig(observers.MinMaxObserver, torch_ao.MinMaxObserver())
    with pytest.warns(FutureWarning):
        assert ours.QConfigDynamic().activation is nn.Identity


def test_configurations_are_tuples():
    activation, weight = ours.default_qconfig
    assert activation is ours.default_qconfig.activation
    assert ours.default_qconfig._replace(weight=None).weight is None
    for name in QCONFIGS:
        qconfig = getattr(ours, name)
        for again in (pickle.loads(pickle.dumps(qconfig)), copy.deepcopy(qconfig)):
            assert type(again) is ours.QConfig
            assert ours.qconfig_equals(again, qconfig)
    assert weight().dtype == torch.qint8


@pytest.mark.parametrize("name", QCONFIGS)
def test_facts_about_configurations(name):
    their, our = getattr(theirs, name), getattr(ours, name)
    for fact in (
        "activation_dtype",
        "weight_dtype",
        "activation_is_statically_quantized",
        "activation_is_dynamically_quantized",
        "activation_is_int8_quantized",
        "activation_is_int32_quantized",
        "weight_is_quantized",
        "weight_is_statically_quantized",
        "op_is_int8_dynamically_quantized",
        "get_qconfig_dtypes",
        "get_quant_type",
    ):
        try:
            expected = getattr(their_utils, fact)(their)
        except Exception:
            with pytest.raises(Exception):  # noqa: B017
                getattr(utils, fact)(our)
            continue
        assert getattr(utils, fact)(our) == expected, fact
        assert getattr(utils, fact)(their) == expected, fact
    if our.weight is not None:
        assert ours._is_reuse_input_qconfig(our) == theirs._is_reuse_input_qconfig(their)
    assert ours._activation_is_memoryless(our) == theirs._activation_is_memoryless(their)


def test_parameters_of_observers():
    torch.manual_seed(0)
    for name in (
        "MinMaxObserver",
        "PerChannelMinMaxObserver",
        "PlaceholderObserver",
        "FixedQParamsObserver",
    ):
        arguments = {"scale": 0.5, "zero_point": 3} if name.startswith("Fixed") else {}
        x = torch.randn(3, 4)
        found = []
        for kind, function in ((torch_ao, their_utils), (observers, utils)):
            observer = getattr(kind, name)(**arguments)
            observer(x)
            found.append(function.get_qparam_dict(observer))
        their, our = found
        assert their.keys() == our.keys()
        assert all(
            torch.equal(value, our[key]) if torch.is_tensor(value) else value == our[key]
            for key, value in their.items()
        )


def test_types_of_values():
    for dtype in (
        torch.quint8,
        torch.qint8,
        torch.qint32,
        torch.quint4x2,
        torch.quint2x4,
        torch.uint8,
        torch.int16,
        torch.float8_e5m2,
    ):
        assert utils.to_underlying_dtype(dtype) == their_utils.to_underlying_dtype(dtype)
    with pytest.raises(AssertionError, match="unsupported dtype"):
        utils.to_underlying_dtype(torch.float64)


# Mappings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("qat", [False, True])
def test_default_mappings(backend, qat):
    name = "get_default_qat_qconfig_mapping" if qat else "get_default_qconfig_mapping"
    assert_equal_mappings(
        getattr(their_mappings, name)(backend), getattr(our_mappings, name)(backend)
    )


@pytest.mark.parametrize(
    "name", ["_get_symmetric_qnnpack_qconfig_mapping", "_get_symmetric_qnnpack_qat_qconfig_mapping"]
)
def test_symmetric_mappings(name):
    assert_equal_mappings(getattr(their_mappings, name)(), getattr(our_mappings, name)())


def assert_equal_mappings(their, our):
    assert ours.qconfig_equals(their.global_qconfig, our.global_qconfig)
    assert list(their.object_type_qconfigs) == list(our.object_type_qconfigs)
    for key, qconfig in their.object_type_qconfigs.items():
        assert ours.qconfig_equals(qconfig, our.object_type_qconfigs[key]), key
    assert their.to_dict().keys() == our.to_dict().keys()


def filled(kind):
    return (
        kind.QConfigMapping()
        .set_global(1)
        .set_object_type(nn.Linear, 2)
        .set_object_type("add", 3)
        .set_object_type(nn.Linear, 4)
        .set_module_name_regex("a.*", 5)
        .set_module_name("a.b", 6)
        .set_module_name("c", None)
        .set_module_name_object_type_order("a", torch.relu, 1, 7)
    )


def test_setters_and_dictionaries():
    their, our = filled(their_mappings), filled(our_mappings)
    assert repr(their) == repr(our)
    assert their.to_dict() == our.to_dict()
    again = our_mappings.QConfigMapping.from_dict(their.to_dict())
    assert again.to_dict() == our.to_dict()
    assert repr(our_mappings.QConfigMapping()) == repr(their_mappings.QConfigMapping())
    with pytest.warns(UserWarning, match=r"unknown keys \['module_nam'\] are ignored"):
        our_mappings.QConfigMapping.from_dict({"": 1, "module_nam": []})
    with pytest.warns(FutureWarning):
        assert ours.get_default_qconfig_dict()["object_type"]


def test_transposed_convolutions_have_weights_per_tensor():
    qconfig = ours.get_default_qconfig("onednn")
    with pytest.raises(AssertionError, match="expected a weight observer per tensor"):
        ours._assert_valid_qconfig(qconfig, nn.ConvTranspose2d(1, 1, 1))
    ours._assert_valid_qconfig(qconfig, nn.Conv2d(1, 1, 1))
    ours._assert_valid_qconfig(None, nn.ConvTranspose2d(1, 1, 1))


def test_observers_on_the_device_of_a_module():
    module = nn.Linear(1, 1, device="meta")
    qconfig = ours._add_module_to_qconfig_obs_ctr(ours.default_qconfig, module)
    assert qconfig.activation().min_val.device.type == "meta"
    fixed = ours.QConfig(observers.default_fixed_qparams_range_0to1_observer, nn.Identity)
    assert ours._add_module_to_qconfig_obs_ctr(fixed, module) == fixed
    assert ours._add_module_to_qconfig_obs_ctr(None, module) is None
    classes = ours.QConfig(fake_quantize.FakeQuantize, None)
    assert ours._add_module_to_qconfig_obs_ctr(classes, module) == classes


# Settings of graph mode ------------------------------------------------------------------------------


def prepare_settings(kind, mappings):
    return (
        kind.PrepareCustomConfig()
        .set_standalone_module_name("m", mappings.QConfigMapping().set_global(1), (2,), None, None)
        .set_standalone_module_class(
            nn.ReLU, None, (3,), kind.PrepareCustomConfig().set_preserved_attributes(["q"]), None
        )
        .set_float_to_observed_mapping(nn.Linear, nn.Conv1d)
        .set_non_traceable_module_names(["n"])
        .set_non_traceable_module_classes([nn.GRU])
        .set_input_quantized_indexes([0])
        .set_output_quantized_indexes([1, 2])
        .set_preserved_attributes(["p"])
    )


def test_settings_of_preparing():
    their = prepare_settings(their_settings, their_mappings)
    our = prepare_settings(our_settings, our_mappings)
    assert their.to_dict() == our.to_dict()
    assert our_settings.PrepareCustomConfig.from_dict(their.to_dict()).to_dict() == our.to_dict()
    assert vars(our).keys() == vars(their).keys()
    with pytest.raises(ValueError, match=r"expected QuantType\.STATIC"):
        our.set_float_to_observed_mapping(nn.Linear, nn.Linear, quant_type.QuantType.DYNAMIC)
    with pytest.raises(
        ValueError, match="standalone_module_name: expected a QConfigMapping, got int"
    ):
        our_settings.PrepareCustomConfig.from_dict(
            {"standalone_module_name": [("m", 3, (), None, None)]}
        )
    with pytest.warns(UserWarning, match="unknown keys"):
        our_settings.PrepareCustomConfig.from_dict({"no_such_key": 1})


def test_settings_of_converting_and_fusing():
    found = []
    for kind, kinds in ((their_settings, torch_ao.QuantType), (our_settings, quant_type.QuantType)):
        convert = (
            kind.ConvertCustomConfig()
            .set_observed_to_quantized_mapping(nn.Linear, nn.Conv1d)
            .set_observed_to_quantized_mapping(nn.Linear, nn.Conv2d, kinds.DYNAMIC)
            .set_preserved_attributes(["p"])
        )
        again = kind.ConvertCustomConfig.from_dict(convert.to_dict())
        fuse = kind.FuseCustomConfig().set_preserved_attributes(["r"])
        found.append(
            (
                convert.to_dict(),
                again.to_dict(),
                fuse.to_dict(),
                repr(fuse),
                repr(kind.ConvertCustomConfig()),
            )
        )
    assert found[0] == found[1]


def test_kinds_of_quantisation():
    for kind in torch_ao.QuantType:
        assert quant_type.QuantType(kind) == kind
        assert quant_type._quant_type_from_str(quant_type._get_quant_type_to_str(kind)) == kind
    with pytest.raises(ValueError, match="unknown kind of quantisation 'qatt'"):
        quant_type._quant_type_from_str("qatt")


# Modules and models ------------------------------------------------------------------------------------


def test_stubs():
    layer = nn.Linear(2, 2)
    layer.qconfig = ours.default_qconfig
    wrapped, expected = stubs.QuantWrapper(layer.eval()), torch_ao.QuantWrapper(layer)
    assert repr(wrapped) == repr(expected)
    assert not wrapped.training
    assert wrapped.quant.qconfig is layer.qconfig
    x = torch.randn(1, 2)
    assert torch.equal(wrapped(x), layer(x))
    assert not hasattr(stubs.QuantStub(), "qconfig")


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.second = Keywords()

    def forward(self, x):
        return self.second(self.first(x), key2=6)


class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.ReLU()

    def forward(self, x, key1=3, key2=3):
        return self.inner(x) + key1 + key2


def test_example_inputs_of_modules():
    model, x = Nested(), torch.randn(1, 2)
    their = their_utils.get_fqn_to_example_inputs(model, (x,))
    our = utils.get_fqn_to_example_inputs(model, (x,))
    assert their.keys() == our.keys()
    for name, values in their.items():
        assert all(torch.equal(*pair) for pair in zip(values, our[name], strict=False))
    # As PyTorch documents; it returns the first one only.
    assert our["second"][1:] == (3, 6)
    assert not model._forward_pre_hooks


def test_names_of_the_package():
    missing = {name for name in torch_ao.__all__ if not hasattr(corsac.quantization, name)}
    # Eager mode and TorchScript, and modules of PyTorch's quantised types.
    assert {name for name in missing if "jit" not in name and "script" not in name} <= {
        "add_quant_dequant",
        "convert",
        "default_eval_fn",
        "get_default_compare_output_module_list",
        "get_default_custom_config_dict",
        "get_default_dynamic_quant_module_mappings",
        "get_default_dynamic_sparse_quant_module_mappings",
        "get_default_float_to_quantized_operator_mappings",
        "get_default_qconfig_propagation_list",
        "get_default_static_quant_module_mappings",
        "get_default_static_sparse_quant_module_mappings",
        "get_dynamic_quant_module_class",
        "get_embedding_static_quant_module_mappings",
        "get_quantized_operator",
        "get_static_quant_module_class",
        "no_observer_set",
        "prepare",
        "prepare_qat",
        "propagate_qconfig_",
        "quantize",
        "quantize_dynamic",
        "quantize_qat",
        "swap_module",
    }
