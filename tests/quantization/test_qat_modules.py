"""Modules for training, and reference modules, compared with those of torch.ao."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.ao.nn.intrinsic as their_fused
import torch.ao.nn.intrinsic.qat as their_fused_qat
import torch.ao.nn.qat as their_qat
import torch.ao.nn.qat.dynamic as their_dynamic
import torch.ao.nn.quantized.reference as their_reference
import torch.ao.quantization as torch_ao
from torch import nn

import corsac.quantization.intrinsic as our_fused
import corsac.quantization.intrinsic.qat as our_fused_qat
import corsac.quantization.qat as our_qat
import corsac.quantization.qat.dynamic as our_dynamic
import corsac.quantization.qconfig as qconfigs
from corsac.quantization import observer as observers
from corsac.quantization import reference as our_reference
from corsac.quantization import utils

pytestmark = pytest.mark.filterwarnings("ignore")

QCONFIGS = [
    (torch_ao.get_default_qat_qconfig("x86"), qconfigs.get_default_qat_qconfig("x86")),
    (torch_ao.default_qat_qconfig, qconfigs.default_qat_qconfig),
    # Configurations of torch.ao are taken.
    (torch_ao.get_default_qat_qconfig("qnnpack"), torch_ao.get_default_qat_qconfig("qnnpack")),
]
CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
BATCH_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
SHAPES = {1: (2, 4, 9), 2: (2, 4, 7, 6), 3: (2, 4, 5, 6, 5)}
ARGUMENTS = [
    {},
    {"bias": False, "padding": 1, "groups": 2},
    {"padding": 2, "padding_mode": "circular", "dilation": 2, "stride": 2},
]


def trained(their, our, batches, freeze=3):
    """Train both in steps, stop the batch norms, evaluate; all results, gradients and states are equal."""
    for step, x in enumerate(batches):
        if step == freeze:
            their.apply(their_fused_qat.freeze_bn_stats)
            our.apply(our_fused_qat.freeze_bn_stats)
            their.train()
            our.train()
        if step == len(batches) - 1:
            their.eval()
            our.eval()
        left, right = their(x), our(x)
        assert torch.equal(left, right)
        if not our.training:
            continue
        for module, y in ((their, left), (our, right)):
            module.zero_grad()
            (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).sum().backward()
        for (name, one), (other_name, other) in zip(
            their.named_parameters(), our.named_parameters(), strict=True
        ):
            assert name == other_name
            assert torch.equal(one.grad, other.grad), name
        with torch.no_grad():
            for parameter in (*their.parameters(), *our.parameters()):
                parameter -= 0.05 * parameter.grad
    assert_same_state(their, our)
    assert repr(their) == repr(our)
    their.load_state_dict(our.state_dict())
    our.load_state_dict(their.state_dict())
    plain, expected = our.to_float(), their.to_float()
    assert repr(plain) == repr(expected)
    assert_same_state(plain, expected)
    assert not plain.training


def assert_same_state(left, right):
    left, right = left.state_dict(), right.state_dict()
    assert list(left) == list(right)
    for name, value in left.items():
        assert torch.equal(value, right[name]), name


def with_qconfig(module, qconfig):
    module = copy.deepcopy(module)
    module.qconfig = qconfig
    for child in module.children():
        child.qconfig = qconfig
    return module


@pytest.mark.parametrize("kwargs", ARGUMENTS, ids=str)
@pytest.mark.parametrize("qconfig", QCONFIGS, ids=["fused", "apart", "theirs"])
@pytest.mark.parametrize("kind", ["Conv{}d", "ConvReLU{}d", "ConvBn{}d", "ConvBnReLU{}d", "slow"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_convolutions(dimensions, kind, qconfig, kwargs):
    torch.manual_seed(dimensions)
    slow, kind = kind == "slow", "ConvBn{}d" if kind == "slow" else kind
    name = kind.format(dimensions)
    conv, bn = (
        CONVS[dimensions](4, 6, 3, **kwargs),
        BATCH_NORMS[dimensions](6, eps=1e-3, momentum=0.3),
    )
    nn.init.uniform_(bn.weight, 0.5, 2)
    nn.init.uniform_(bn.bias)
    parts = [conv, *([bn] if "Bn" in kind else []), *([nn.ReLU()] if "ReLU" in kind else [])]
    if len(parts) == 1:
        their = getattr(their_qat, name).from_float(with_qconfig(conv, qconfig[0]))
        our = getattr(our_qat, name).from_float(with_qconfig(conv, qconfig[1]))
    else:
        their = with_qconfig(getattr(their_fused, name)(*copy.deepcopy(parts)), qconfig[0])
        our = with_qconfig(getattr(our_fused, name)(*copy.deepcopy(parts)), qconfig[1])
        weight = our[0].weight
        their = getattr(their_fused_qat, name).from_float(their)
        our = getattr(our_fused_qat, name).from_float(our)
        assert our.weight is weight
    if slow:
        their._enable_slow_path_for_better_numerical_stability = True
        our._enable_slow_path_for_better_numerical_stability = True
    trained(their, our, [torch.randn(SHAPES[dimensions]) for _ in range(6)])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("qconfig", QCONFIGS, ids=["fused", "apart", "theirs"])
@pytest.mark.parametrize("name", ["Linear", "LinearReLU", "LinearBn1d"])
def test_linear_layers(name, qconfig, bias):
    torch.manual_seed(4)
    linear, bn = nn.Linear(4, 6, bias=bias), nn.BatchNorm1d(6)
    parts = {"Linear": [linear], "LinearReLU": [linear, nn.ReLU()], "LinearBn1d": [linear, bn]}[
        name
    ]
    if len(parts) == 1:
        their = their_qat.Linear.from_float(with_qconfig(linear, qconfig[0]))
        our = our_qat.Linear.from_float(with_qconfig(linear, qconfig[1]))
    else:
        their = with_qconfig(getattr(their_fused, name)(*copy.deepcopy(parts)), qconfig[0])
        our = with_qconfig(getattr(our_fused, name)(*copy.deepcopy(parts)), qconfig[1])
        their, our = (
            getattr(their_fused_qat, name).from_float(their),
            getattr(our_fused_qat, name).from_float(our),
        )
    trained(their, our, [torch.randn(5, 4) for _ in range(6)], freeze=None)


def test_linear_batch_norms_are_frozen():
    """freeze_bn_stats of torch.ao leaves out LinearBn1d."""
    module = our_fused_qat.LinearBn1d(4, 6, qconfig=qconfigs.default_qat_qconfig)
    model = nn.Sequential(module)
    model.apply(our_fused_qat.freeze_bn_stats)
    model.train()
    before = module.bn.running_mean.clone()
    model(torch.randn(5, 4))
    assert torch.equal(module.bn.running_mean, before)
    model.apply(our_fused_qat.update_bn_stats)
    model(torch.randn(5, 4))
    assert not torch.equal(module.bn.running_mean, before)


def test_batch_norms_of_torch_are_frozen():
    module = their_fused_qat.ConvBn2d(1, 1, 1, qconfig=torch_ao.default_qat_qconfig)
    module.apply(our_fused_qat.freeze_bn_stats)
    assert module.freeze_bn
    module.apply(our_fused_qat.update_bn_stats)
    assert not module.freeze_bn


@pytest.mark.parametrize(
    "qconfig", ["default_embedding_qat_qconfig", "default_embedding_qat_qconfig_4bit"]
)
@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
def test_embeddings(name, qconfig):
    torch.manual_seed(5)
    layer = getattr(nn, name)(10, 4, padding_idx=2)
    their = getattr(their_qat, name).from_float(
        with_qconfig(layer, getattr(torch_ao.qconfig, qconfig))
    )
    our = getattr(our_qat, name).from_float(with_qconfig(layer, getattr(qconfigs, qconfig)))
    trained(their, our, [torch.randint(10, (3, 5)) for _ in range(4)])


def test_fused_modules_of_torch_are_taken():
    conv, bn = nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3)
    fused = with_qconfig(
        their_fused.ConvBnReLU2d(conv, bn, nn.ReLU()), torch_ao.default_qat_qconfig
    )
    our = our_fused_qat.ConvBnReLU2d.from_float(fused)
    their = their_fused_qat.ConvBnReLU2d.from_float(copy.deepcopy(fused))
    x = torch.randn(2, 2, 4, 4)
    assert torch.equal(our(x), their(x))
    with pytest.raises(AssertionError, match=r"expected a ConvBnReLU2d, got ConvBn2d"):
        our_fused_qat.ConvBnReLU2d.from_float(their_fused.ConvBn2d(conv, bn))


def test_made_directly():
    """The constructors use random numbers as those of torch.ao do."""
    for their_package, our_package, name, arguments in (
        (their_qat, our_qat, "Linear", (3, 4)),
        (their_qat, our_qat, "Conv2d", (3, 4, 3, 1, 1, 1, 1, True, "zeros")),
        (their_fused_qat, our_fused_qat, "ConvBnReLU2d", (3, 4, 3, 1, 0, 1, 1, True)),
        (their_fused_qat, our_fused_qat, "ConvReLU1d", (3, 4, 3)),
        (their_fused_qat, our_fused_qat, "LinearReLU", (3, 4)),
    ):
        modules = []
        for package, qconfig in (
            (their_package, torch_ao.default_qat_qconfig),
            (our_package, qconfigs.default_qat_qconfig),
        ):
            torch.manual_seed(6)
            modules.append(getattr(package, name)(*arguments, qconfig=qconfig))
        assert_same_state(*modules)
        assert repr(modules[0]) == repr(modules[1])


def test_dynamic():
    qconfig = qconfigs.default_dynamic_qat_qconfig
    layer = nn.Linear(3, 4)
    our = our_dynamic.Linear.from_float(with_qconfig(layer, qconfig))
    their = with_qconfig(layer, torch_ao.default_dynamic_qat_qconfig)
    their = their_dynamic.Linear.from_float(their)
    x = torch.randn(2, 3)
    assert torch.equal(our(x), their(x))
    with pytest.raises(ValueError, match="averaging_constant of 1"):
        our_dynamic.Linear(3, 4, qconfig=qconfigs.default_qat_qconfig)


def test_parametrised_layers():
    results = []
    for package, qconfig in (
        (their_qat, torch_ao.default_qat_qconfig),
        (our_qat, qconfigs.default_qat_qconfig),
    ):
        torch.manual_seed(7)
        layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
        layer.qconfig = qconfig
        results.append(package.Linear.from_float(layer)(torch.ones(1, 3)))
    assert torch.equal(*results)


def test_old_states_of_convolutions_with_batch_norms():
    module = our_fused_qat.ConvBn2d(1, 2, 1, qconfig=qconfigs.default_qat_qconfig)
    state = copy.deepcopy(module.state_dict())
    for new, old in (
        ("bn.weight", "gamma"),
        ("bn.bias", "beta"),
        ("bn.running_mean", "running_mean"),
        ("bn.running_var", "running_var"),
        ("bn.num_batches_tracked", "num_batches_tracked"),
    ):
        state[old] = state.pop(new)
    state._metadata[""]["version"] = 1
    fresh = our_fused_qat.ConvBn2d(1, 2, 1, qconfig=qconfigs.default_qat_qconfig)
    fresh.load_state_dict(state)
    assert_same_state(fresh, module)


def test_padding_by_name():
    """PyTorch's convolutions with a batch norm take numbers only."""
    conv = with_qconfig(
        our_fused.ConvBn2d(nn.Conv2d(1, 2, 3, padding="same"), nn.BatchNorm2d(2)),
        qconfigs.default_qat_qconfig,
    )
    assert our_fused_qat.ConvBn2d.from_float(conv)(torch.randn(1, 1, 5, 5)).shape == (1, 2, 5, 5)


def test_errors():
    with pytest.raises(AssertionError, match="Linear: expected a qconfig, got None"):
        our_qat.Linear(1, 1)
    with pytest.raises(AssertionError, match=r"Conv2d\.from_float: expected a Conv2d, got Linear"):
        our_qat.Conv2d.from_float(nn.Linear(1, 1))
    with pytest.raises(AssertionError, match="the Conv2d has no qconfig"):
        our_qat.Conv2d.from_float(nn.Conv2d(1, 1, 1))
    with pytest.raises(
        AssertionError, match=r"expected weights of qscheme torch\.per_channel_affine_float_qparams"
    ):
        our_qat.Embedding(1, 1, qconfig=qconfigs.default_qat_qconfig)


# Reference modules -------------------------------------------------------------------------------


def parameters(weight, qscheme, dtype, axis=0):
    per_channel = qscheme != torch.per_tensor_affine
    kind = observers.PerChannelMinMaxObserver if per_channel else observers.MinMaxObserver
    observer = kind(dtype=dtype, qscheme=qscheme, **({"ch_axis": axis} if per_channel else {}))
    observer(weight)
    return utils.get_qparam_dict(observer)


LAYERS = [
    (nn.Linear(5, 4), (3, 5), 0),
    (nn.Linear(5, 4, bias=False), (3, 5), 0),
    (nn.Conv1d(4, 6, 3, padding=1, groups=2), (2, 4, 7), 0),
    (nn.Conv2d(4, 6, 3, stride=2), (2, 4, 7, 7), 0),
    (nn.Conv3d(4, 6, 2, dilation=2), (2, 4, 5, 5, 5), 0),
    (nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1), (2, 4, 7), 1),
    (nn.ConvTranspose2d(4, 6, 3, stride=2, dilation=2), (2, 4, 5, 5), 1),
    (nn.ConvTranspose3d(4, 6, 2, bias=False), (2, 4, 3, 3, 3), 1),
]


@pytest.mark.parametrize(
    ("qscheme", "dtype"),
    [
        (torch.per_tensor_affine, torch.qint8),
        (torch.per_tensor_affine, torch.quint8),
        (torch.per_channel_affine, torch.qint8),
    ],
)
@pytest.mark.parametrize(("layer", "shape", "axis"), LAYERS, ids=str)
def test_reference_layers(layer, shape, axis, qscheme, dtype):
    torch.manual_seed(8)
    qparams = parameters(layer.weight, qscheme, dtype, axis)
    name = type(layer).__name__
    their = getattr(their_reference, name).from_float(layer, qparams)
    our = getattr(our_reference, name).from_float(layer, qparams)
    x = torch.randn(shape)
    assert torch.equal(their.get_weight(), our.get_weight())
    assert torch.equal(their.get_quantized_weight().int_repr(), our.get_quantized_weight())
    assert torch.equal(their(x), our(x))
    assert repr(their) == repr(our)
    left, right = their.state_dict(), our.state_dict()
    assert list(left) == list(right)
    fresh = type(our).from_float(
        copy.deepcopy(layer), parameters(layer.weight * 2, qscheme, dtype, axis)
    )
    fresh.load_state_dict(left)
    assert torch.equal(fresh(x), our(x))
    assert our.weight.data_ptr() == layer.weight.data_ptr()


@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
def test_reference_embeddings(name):
    torch.manual_seed(9)
    layer = getattr(nn, name)(10, 4, padding_idx=1)
    observer = observers.default_float_qparams_observer()
    observer(layer.weight)
    qparams = utils.get_qparam_dict(observer)
    their = getattr(their_reference, name).from_float(layer, qparams)
    our = getattr(our_reference, name).from_float(layer, qparams)
    x = torch.randint(10, (3, 5))
    assert torch.equal(their.get_quantized_weight().int_repr(), our.get_quantized_weight())
    torch.testing.assert_close(their(x), our(x), rtol=0, atol=2e-7)
    assert repr(their) == repr(our)


RECURRENT = [
    (nn.LSTM(3, 4, num_layers=2, bidirectional=True), (5, 2, 3)),
    (nn.LSTM(3, 4, batch_first=True, bias=False), (5, 2, 3)),
    (nn.GRU(3, 4, num_layers=2), (5, 2, 3)),
    (nn.GRU(3, 4), (5, 3)),
    (nn.LSTMCell(3, 4), (2, 3)),
    (nn.GRUCell(3, 4), (2, 3)),
    (nn.RNNCell(3, 4), (3,)),
    (nn.RNNCell(3, 4, nonlinearity="relu", bias=False), (2, 3)),
]


@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
@pytest.mark.parametrize(("layer", "shape"), RECURRENT, ids=str)
def test_reference_recurrent_layers(layer, shape, dtype):
    torch.manual_seed(10)
    qparams = {"is_decomposed": False}
    for name, weight in layer.named_parameters():
        if name.startswith("weight"):
            qparams[name] = parameters(weight, torch.per_tensor_affine, torch.qint8)
            qparams[name]["scale"] = float(qparams[name]["scale"])
            qparams[name]["zero_point"] = int(qparams[name]["zero_point"])
            if dtype == torch.float16:
                qparams[name] = {"qscheme": None, "dtype": dtype}
    name = type(layer).__name__
    their = getattr(their_reference, name).from_float(layer, qparams)
    our = getattr(our_reference, name).from_float(layer, qparams)
    x = torch.randn(shape)
    for left, right in zip(flat(their(x)), flat(our(x)), strict=True):
        assert torch.equal(left, right)
    if "Cell" not in name:
        assert list(our.get_quantized_weight_bias_dict()) == list(
            their.get_quantized_weight_bias_dict()
        )
    assert repr(their) == repr(our)


def flat(value):
    return (
        [tensor for part in value for tensor in flat(part)] if isinstance(value, tuple) else [value]
    )


def test_reference_convolutions_pad_as_the_layer_does():
    """Those of torch.ao pad with zeros in any mode."""
    layer = nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular")
    our = our_reference.Conv2d.from_float(
        layer, parameters(layer.weight, torch.per_tensor_affine, torch.qint8)
    )
    x = torch.randn(1, 1, 5, 5)
    assert (our(x) - layer(x)).abs().max() < 0.05
