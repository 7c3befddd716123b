"""Descriptions of backends compared with those of torch.ao, and their parts."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.ao.quantization.backend_config as theirs
import torch.ao.quantization.backend_config.utils as their_utils
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization import fuser_method_mappings as their_fusers
from torch.ao.quantization import quantization_mappings as their_mappings
from torch.ao.quantization.backend_config import native as their_native
from torch.ao.quantization.backend_config import x86 as their_x86

import corsac.quantization.backend_config as ours
from corsac.quantization import fuser_method_mappings as our_fusers
from corsac.quantization import intrinsic, quantization_mappings
from corsac.quantization.backend_config import native as our_native
from corsac.quantization.backend_config import utils as our_utils
from corsac.quantization.backend_config import x86 as our_x86
from corsac.quantization.utils import MatchAllNode

BACKENDS = [
    (theirs, ours, "native"),
    (theirs, ours, "fbgemm"),
    (theirs, ours, "qnnpack"),
    (theirs, ours, "onednn"),
    (theirs, ours, "tensorrt"),
    (theirs, ours, "executorch"),
    (their_x86, our_x86, "x86"),
    (their_native, our_native, "test_only_legacy_native"),
]


def comparable(value):
    """A value with names in place of the classes and functions of the two packages."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(comparable, value))
    if isinstance(value, dict):
        return {comparable(key): comparable(own) for key, own in value.items()}
    module = getattr(value, "__module__", None) or ""
    if module.startswith(("torch.ao", "corsac")):
        if isinstance(value, type):
            kinds = [kind for kind in ("reference", "intrinsic", "qat") if kind in module]
            return (*kinds, value.__name__)
        return "a function" if callable(value) else repr(value)
    return value


@pytest.fixture(params=BACKENDS, ids=lambda case: case[2])
def pair(request):
    their, our, name = request.param
    function = f"get_{name}_backend_config"
    return getattr(their, function)(), getattr(our, function)()


def test_backends_are_equal(pair):
    their, our = pair
    assert their.name == our.name
    for left, right in zip(their.configs, our.configs, strict=True):
        assert comparable(left.to_dict()) == comparable(right.to_dict())


def test_lookups_are_equal(pair):
    their, our = pair
    for name in (
        "get_pattern_to_dtype_configs",
        "get_pattern_to_input_type_to_index",
        "get_module_to_qat_module",
        "get_root_module_to_quantized_reference_module",
        "get_fuser_method_mapping",
        "get_fusion_pattern_to_root_node_getter",
        "get_fusion_pattern_to_extra_inputs_getter",
    ):
        expected = getattr(their_utils, name)(their)
        assert comparable(expected) == comparable(getattr(our_utils, name)(our))
        # Descriptions of torch.ao are read, too.
        assert comparable(expected) == comparable(getattr(our_utils, name)(their))
    for name in ("get_qat_module_classes", "get_fused_module_classes"):
        expected = getattr(their_utils, name)(their)
        assert set(comparable(expected)) == set(comparable(getattr(our_utils, name)(our)))


def test_entries_as_text(pair):
    their, our = pair
    for left, right in zip(their.configs, our.configs, strict=True):
        if left.pattern is None or comparable(left.pattern) != left.pattern:
            continue
        if any(key in left.to_dict() for key in ("root_module", "qat_module", "fused_module")):
            continue
        assert their_utils.entry_to_pretty_str(left.to_dict()) == our_utils.entry_to_pretty_str(
            right.to_dict()
        )


def test_dictionaries_read_back(pair):
    _, our = pair
    again = ours.BackendConfig.from_dict(our.to_dict())
    assert again.to_dict() == our.to_dict()
    assert (
        again._pattern_complex_format_to_config.keys()
        == our._pattern_complex_format_to_config.keys()
    )


def test_each_call_makes_a_new_description():
    one, other = ours.get_native_backend_config(), ours.get_native_backend_config()
    one.configs[0].set_dtype_configs([])
    one.configs[1].dtype_configs.clear()
    assert other.configs[0].dtype_configs
    assert other.configs[1].dtype_configs


def test_names_are_those_of_torch():
    assert set(ours.__all__) == {*theirs.__all__, "get_x86_backend_config"}
    assert set(our_native.__all__) >= set(their_native.__all__)
    assert set(our_utils.__all__) == set(their_utils.__all__)
    assert set(our_fusers.__all__) == set(their_fusers.__all__)


# Parts -------------------------------------------------------------------------------------------


def types(kind):
    limits = kind.DTypeWithConstraints(torch.quint8, quant_min_lower_bound=0, scale_exact_match=0.5)
    return kind.DTypeConfig(limits, torch.quint8, torch.qint8, torch.float, is_dynamic=True)


def test_types():
    their, our = types(theirs), types(ours)
    assert repr(their) == repr(our)
    assert comparable(their.to_dict()) == comparable(our.to_dict())
    assert our == types(ours)
    assert our != ours.DTypeConfig()
    assert ours.DTypeConfig.from_dict(our.to_dict()) == our
    assert ours.DTypeConfig().to_dict() == {}
    assert (our.input_dtype, our.output_dtype, our.weight_dtype) == (
        torch.quint8,
        torch.quint8,
        torch.qint8,
    )
    limits = theirs.DTypeWithConstraints(torch.quint8)
    assert ours.DTypeConfig(limits).input_dtype_with_constraints is limits
    with pytest.raises(
        ValueError, match=r"input_dtype: expected a torch.dtype or DTypeWithConstraints, got 'int8'"
    ):
        ours.DTypeConfig.from_dict({"input_dtype": "int8"})


def test_kinds_of_observation():
    for kind in theirs.ObservationType:
        assert ours.ObservationType(kind.value) == kind
        assert kind == ours.ObservationType(kind.value)
        assert {kind: 1}[ours.ObservationType(kind.value)] == 1
    assert ours.ObservationType(0) != theirs.ObservationType(1)
    assert ours.ObservationType(0) != ours.ObservationType(1)


def full(kind):
    return (
        kind.BackendPatternConfig((nn.Linear, nn.ReLU))
        .set_observation_type(kind.ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT)
        .add_dtype_config(types(kind))
        .set_root_module(nn.Linear)
        .set_qat_module(nn.Conv1d)
        .set_reference_quantized_module(nn.Conv2d)
        .set_fused_module(nn.Conv3d)
        .set_fuser_method(operator.add)
        ._set_root_node_getter(operator.sub)
        ._set_extra_inputs_getter(operator.mul)
        ._set_num_tensor_args_to_observation_type({1: kind.ObservationType(0)})
        ._set_input_type_to_index({"weight": 1})
    )


def test_patterns():
    their, our = full(theirs), full(ours)
    assert comparable(their.to_dict()) == comparable(our.to_dict())
    assert list(vars(their)) == list(vars(our))
    assert repr(our) == repr(their)
    again = ours.BackendPatternConfig.from_dict(their.to_dict())
    assert comparable(again.to_dict()) == comparable(our.to_dict())
    with pytest.raises(ValueError, match="expected one of pattern and pattern_complex_format"):
        our._set_pattern_complex_format((nn.ReLU, nn.Linear))
    with pytest.raises(ValueError, match="dtype_configs: expected DTypeConfigs, got int"):
        ours.BackendPatternConfig.from_dict({"dtype_configs": [1]})
    with pytest.raises(ValueError, match="expected a tuple of 2 or 3 elements"):
        ours.BackendConfig().set_backend_pattern_config(ours.BackendPatternConfig((1, 2, 3, 4)))
    with pytest.raises(ValueError, match="got neither"):
        ours.BackendConfig().set_backend_pattern_config(ours.BackendPatternConfig())
    with pytest.raises(
        ValueError, match="configs: expected dictionaries or BackendPatternConfigs, got int"
    ):
        ours.BackendConfig.from_dict({"configs": [1]})


def test_a_pattern_is_replaced():
    backend = ours.BackendConfig("b").set_name("c")
    first, second = ours.BackendPatternConfig(nn.Linear), theirs.BackendPatternConfig(nn.Linear)
    backend.set_backend_pattern_configs([first, second])
    assert backend.configs == [second]
    assert backend.name == "c"


# Fusers ------------------------------------------------------------------------------------------

FUSED = [
    (our_fusers.fuse_conv_bn, their_fusers.fuse_conv_bn, [nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3)]),
    (our_fusers.fuse_conv_bn, their_fusers.fuse_conv_bn, [nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)]),
    (
        our_fusers.fuse_conv_bn_relu,
        their_fusers.fuse_conv_bn_relu,
        [nn.Conv3d(2, 3, 1), nn.BatchNorm3d(3), nn.ReLU()],
    ),
    (our_fusers.fuse_linear_bn, their_fusers.fuse_linear_bn, [nn.Linear(2, 3), nn.BatchNorm1d(3)]),
    (
        our_fusers.fuse_convtranspose_bn,
        their_fusers.fuse_convtranspose_bn,
        [nn.ConvTranspose2d(2, 3, 1), nn.BatchNorm2d(3)],
    ),
]


@pytest.mark.parametrize("is_qat", [False, True])
@pytest.mark.parametrize(("our", "their", "modules"), FUSED)
def test_fusers(our, their, modules, is_qat):
    for module in modules:
        module.train(is_qat)
        if hasattr(module, "running_mean"):
            nn.init.uniform_(module.running_mean)
            nn.init.uniform_(module.running_var)
    if is_qat and isinstance(modules[0], nn.ConvTranspose2d):
        with pytest.raises(NotImplementedError, match="ConvTranspose2d, BatchNorm2d"):
            our(is_qat, *modules)
        return
    left, right = their(is_qat, *modules), our(is_qat, *modules)
    assert repr(left) == repr(right)
    assert all(
        torch.equal(*values)
        for values in zip(left.state_dict().values(), right.state_dict().values(), strict=True)
    )


def test_fusers_need_one_mode_and_fitting_batch_norms():
    conv = nn.Conv2d(2, 3, 1)
    with pytest.raises(
        AssertionError,
        match="Conv2d, BatchNorm2d: expected one mode, train or eval, got train, eval",
    ):
        our_fusers.fuse_conv_bn(True, conv, nn.BatchNorm2d(3).eval())
    with pytest.raises(AssertionError, match="expected as many features as the 3 channels, got 4"):
        our_fusers.fuse_conv_bn(True, conv, nn.BatchNorm2d(4))
    with pytest.raises(AssertionError, match="expected a batch norm with affine"):
        our_fusers.fuse_conv_bn_relu(True, conv, nn.BatchNorm2d(3, affine=False), nn.ReLU())
    with pytest.raises(
        NotImplementedError, match="no fused module in train mode for ConvTranspose2d"
    ):
        our_fusers.fuse_conv_bn(True, nn.ConvTranspose2d(2, 3, 1), nn.BatchNorm2d(3))


def test_fusers_by_types():
    assert (
        our_fusers._DEFAULT_OP_LIST_TO_FUSER_METHOD.keys()
        == their_fusers._DEFAULT_OP_LIST_TO_FUSER_METHOD.keys()
    )
    fused = our_fusers.get_fuser_method((nn.Linear, nn.ReLU))(False, nn.Linear(1, 1), nn.ReLU())
    assert type(fused) is intrinsic.LinearReLU
    with pytest.raises(AssertionError, match="no fuser for"):
        our_fusers.get_fuser_method((nn.ReLU, nn.ReLU))
    assert our_fusers.get_fuser_method((1, 2), {(1, 2): 3}) == 3


def test_fusers_by_patterns():
    from torch.ao.quantization.utils import MatchAllNode as TheirMatchAllNode

    for match_all in (MatchAllNode, TheirMatchAllNode):
        mapping = {(torch.add, match_all, nn.Conv2d): "sum", (nn.ReLU, nn.Conv2d): "relu"}
        assert our_fusers.get_fuser_method_new((torch.add, nn.ReLU, nn.Conv2d), mapping) == "sum"
        assert our_fusers.get_fuser_method_new((nn.ReLU, nn.Conv2d), mapping) == "relu"
        with pytest.raises(AssertionError, match="no fuser for"):
            our_fusers.get_fuser_method_new((nn.ReLU, nn.Linear), mapping)


def test_sums_of_onednn_are_fused():
    """The fusers, root nodes and further inputs of sums with a convolution, against those of torch.ao."""
    their, our = theirs.get_onednn_backend_config(), ours.get_onednn_backend_config()
    seen = 0
    for left, right in zip(their.configs, our.configs, strict=True):
        if left._pattern_complex_format is None:
            continue
        seen += 1
        match = example(left._pattern_complex_format)
        assert left._root_node_getter(match) is right._root_node_getter(match)
        assert left._extra_inputs_getter(match)[0] is right._extra_inputs_getter(match)[0]
        one, other = left.fuser_method(False, *match), right.fuser_method(False, *match)
        assert type(one).__name__ == type(other).__name__
        x, y = torch.randn(1, 2, 4, 4), torch.randn(1, 3, 4, 4)
        assert torch.equal(one(x, y), other(x, y))
        if "BatchNorm2d" in str(left._pattern_complex_format):
            with pytest.raises(NotImplementedError):
                right.fuser_method(True, *match)
    assert seen == 16


def example(pattern):
    """Modules that match a pattern."""
    if isinstance(pattern, tuple):
        return tuple(map(example, pattern))
    made = {
        nn.Conv2d: nn.Conv2d(2, 3, 1).eval(),
        nn.BatchNorm2d: nn.BatchNorm2d(3).eval(),
        nn.ReLU: nn.ReLU(),
    }
    return made.get(pattern, pattern)


# Mappings of modules --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["get_default_qat_module_mappings", "get_embedding_qat_module_mappings"]
)
def test_modules_for_training(name):
    their, our = getattr(their_mappings, name)(), getattr(quantization_mappings, name)()
    assert comparable(their) == comparable(our)


def test_reference_modules():
    their = comparable(their_mappings.get_default_static_quant_reference_module_mappings())
    our = comparable(quantization_mappings.get_default_static_quant_reference_module_mappings())
    assert our == their


def test_modules_with_results_in_a_known_range():
    assert quantization_mappings._has_special_act_post_process(nn.Tanh())
    assert not quantization_mappings._has_special_act_post_process(nn.Tanh().eval())
    assert quantization_mappings._get_special_act_post_process(nn.Sigmoid())().zero_point == 0
    assert (
        quantization_mappings.DEFAULT_MODULE_TO_ACT_POST_PROCESS.keys()
        == their_mappings.DEFAULT_MODULE_TO_ACT_POST_PROCESS.keys()
    )


def test_functions_with_readable_names():
    assert our_utils.pattern_to_human_readable((F.max_pool2d, "add")) == (
        "torch.nn.functional.max_pool2d",
        "add",
    )
