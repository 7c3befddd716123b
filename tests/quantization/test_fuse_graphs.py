"""Fusion of layers in graph modules, against torch.ao.quantization."""

import copy
import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization import backend_config as their_backends
from torch.ao.quantization import quantize_fx as theirs
from torch.ao.quantization.fx.custom_config import FuseCustomConfig as TheirFuseCustomConfig
from torch.testing import assert_close

import corsac.fx
from corsac.quantization import backend_config as our_backends
from corsac.quantization import quantize_fx as ours
from corsac.quantization.backend_config import BackendConfig, BackendPatternConfig
from corsac.quantization.fx.custom_config import FuseCustomConfig
from corsac.quantization.intrinsic import ConvReLU2d
from kit.quantised_models import NAMES, model_and_inputs

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def with_statistics(model, inputs):
    """The model in evaluation mode, after batches that its batch norms have seen."""
    model.train()
    with torch.no_grad():
        for _ in range(3):
            model(*(x + torch.randn_like(x) if x.is_floating_point() else x for x in inputs))
    return model.eval()


def names_of_classes(gm):
    return {
        name: type(module).__name__
        for name, module in gm.named_modules()
        if "GraphModule" not in type(module).__name__
    }


@pytest.mark.parametrize("name", NAMES)
def test_fused_graphs_are_those_of_torch(name):
    model, inputs = model_and_inputs(name)
    with_statistics(model, inputs)
    expected = theirs.fuse_fx(copy.deepcopy(model))
    fused = ours.fuse_fx(model)
    assert fused.code == expected.code
    assert names_of_classes(fused) == names_of_classes(expected)
    assert_close(fused(*inputs), expected(*inputs), rtol=0, atol=0)
    assert_close(fused(*inputs), model(*inputs), rtol=1e-4, atol=1e-4)


LAYERS = {
    "conv1d": (nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), (2, 3, 8)),
    "conv2d": (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), (2, 3, 8, 8)),
    "conv3d": (nn.Conv3d(3, 4, 3), nn.BatchNorm3d(4), (2, 3, 5, 5, 5)),
    "linear": (nn.Linear(3, 4), nn.BatchNorm1d(4), (5, 3)),
    "transposed1d": (nn.ConvTranspose1d(3, 4, 3), nn.BatchNorm1d(4), (2, 3, 8)),
    "transposed2d": (nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4), (2, 3, 8, 8)),
    "transposed3d": (nn.ConvTranspose3d(3, 4, 3), nn.BatchNorm3d(4), (2, 3, 5, 5, 5)),
}


class Layers(nn.Module):
    def __init__(self, layer, norm, relu):
        super().__init__()
        self.layer, self.norm, self.relu = layer, norm, relu

    def forward(self, x):
        y = self.norm(self.layer(x))
        return y if self.relu is None else self.relu(y)


@pytest.mark.parametrize("relu", [None, nn.ReLU(), F.relu, torch.relu])
@pytest.mark.parametrize("kind", LAYERS)
def test_layers_with_batch_norm(kind, relu):
    layer, norm, shape = LAYERS[kind]
    x = torch.randn(shape)
    model = with_statistics(Layers(copy.deepcopy(layer), copy.deepcopy(norm), relu), (x,))
    before = model(x)
    expected = theirs.fuse_fx(copy.deepcopy(model))
    fused = ours.fuse_fx(model)
    assert fused.code == expected.code
    assert_close(fused(x), expected(x), rtol=0, atol=0)
    assert_close(fused(x), before, rtol=1e-4, atol=1e-4)
    assert torch.equal(model(x), before)


class Shared(nn.Module):
    """A convolution that is called twice, with a batch norm after one call."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

    def forward(self, x):
        return self.conv(self.bn(self.conv(x)))


def test_a_layer_that_is_called_otherwise_stays():
    x = torch.randn(2, 3, 8, 8)
    model = with_statistics(Shared(), (x,))
    with pytest.warns(UserWarning, match="conv is called 2 times, with other layers after it"):
        fused = ours.fuse_fx(model)
    assert torch.equal(fused(x), model(x))
    assert [site.other for site in fused.meta["fusion_report"].kept] == ["conv"]
    # PyTorch folds the batch norm into both calls.
    wrong = theirs.fuse_fx(copy.deepcopy(model))
    assert (wrong(x) - model(x)).abs().max() > 1e-2


class Twins(nn.Module):
    """The same layers, called twice."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU()

    def one(self, x):
        return self.relu(self.bn(self.conv(x)))

    def forward(self, x, y):
        return self.one(x) - self.one(y)


def test_layers_that_are_always_called_together_are_fused():
    x, y = torch.randn(2, 2, 3, 8, 8)
    model = with_statistics(Twins(), (x, y))
    fused = ours.fuse_fx(model)
    assert fused.code == theirs.fuse_fx(copy.deepcopy(model)).code
    assert fused.meta["fusion_report"].count == 2
    assert_close(fused(x, y), model(x, y), rtol=1e-4, atol=1e-4)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.relu = nn.Conv2d(3, 3, 3), nn.ReLU()

    def forward(self, x):
        return F.conv2d(self.relu(self.conv(x)), self.conv.weight)


def test_a_layer_whose_weight_is_read_stays():
    x = torch.randn(2, 3, 8, 8)
    model = Tied().eval()
    with pytest.warns(UserWarning, match="the graph reads conv.weight"):
        fused = ours.fuse_fx(model)
    assert torch.equal(fused(x), model(x))


def test_layers_with_hooks_stay():
    x = torch.randn(2, 3, 8, 8)
    model = with_statistics(Layers(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU()), (x,))
    model.norm.register_forward_hook(lambda module, args, result: result + 1)
    with pytest.warns(UserWarning, match="norm has hooks"):
        fused = ours.fuse_fx(model)
    assert torch.equal(fused(x), model(x))


def test_a_batch_norm_without_statistics_stays():
    x = torch.randn(2, 3, 8, 8)
    norm = nn.BatchNorm2d(3, track_running_stats=False)
    model = Layers(nn.Conv2d(3, 3, 3), norm, nn.ReLU()).eval()
    with pytest.warns(UserWarning, match="norm keeps no running statistics"):
        fused = ours.fuse_fx(model)
    assert torch.equal(fused(x), model(x))


@pytest.mark.parametrize("module", ["layer", "norm", "relu", None])
def test_training_mode_is_an_error(module):
    model = Layers(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU()).eval()
    (getattr(model, module) if module else model).train()
    with pytest.raises(AssertionError):
        theirs.fuse_fx(copy.deepcopy(model))
    expected = "call model.eval" if module is None else "in one mode"
    with pytest.raises(AssertionError, match=expected):
        ours.fuse_fx(model)


def test_attributes_are_preserved():
    model = Layers(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU()).eval()
    model.classes = ["cat", "dog"]
    for config in (
        FuseCustomConfig().set_preserved_attributes(["classes"]),
        TheirFuseCustomConfig().set_preserved_attributes(["classes"]),
    ):
        fused = ours.fuse_fx(model, config)
        assert fused.classes == model.classes
        assert copy.deepcopy(fused).classes == model.classes
    assert not hasattr(ours.fuse_fx(model), "classes")
    config = FuseCustomConfig().set_preserved_attributes(["clases"])
    with pytest.warns(UserWarning, match="no attribute 'clases' to preserve: did you mean classes"):
        ours.fuse_fx(model, config)


@pytest.mark.parametrize("trace", [corsac.fx.symbolic_trace, torch.fx.symbolic_trace])
def test_graph_modules_are_fused(trace):
    model, inputs = model_and_inputs("ConvBnReLUModel")
    fused = ours.fuse_fx(trace(with_statistics(model, inputs)))
    assert fused.code == ours.fuse_fx(model).code
    assert torch.equal(fused(*inputs), ours.fuse_fx(model)(*inputs))


def test_the_backend_decides():
    model = Layers(nn.Conv2d(3, 3, 3), nn.ReLU(), None).eval()
    x = torch.randn(2, 3, 8, 8)
    empty = BackendConfig("none")
    assert "norm" in ours.fuse_fx(model, backend_config=empty).code
    calls = []

    def fuser(is_qat, conv, relu):
        calls.append((is_qat, type(conv), type(relu)))
        return ConvReLU2d(conv, relu)

    backend = BackendConfig("one").set_backend_pattern_config(
        BackendPatternConfig((nn.Conv2d, nn.ReLU)).set_fuser_method(fuser)
    )
    fused = ours.fuse_fx(model, backend_config=backend)
    assert calls == [(False, nn.Conv2d, nn.ReLU)]
    assert torch.equal(fused(x), model(x))


class Added(nn.Module):
    """A convolution whose result is added to another value, and a linear layer with an activation."""

    def __init__(self, add, left, relu):
        super().__init__()
        self.conv, self.bn, self.last = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Linear(8, 8)
        self.relu, self.leaky = nn.ReLU() if relu else None, nn.LeakyReLU(0.2)
        self.add, self.left = add, left

    def forward(self, x):
        conv, other = self.bn(self.conv(x)), torch.sin(x)
        y = self.add(conv, other) if self.left else self.add(other, conv)
        return self.leaky(self.last(y if self.relu is None else self.relu(y)))


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("add", [operator.add, torch.add])
def test_layers_with_further_inputs(add, left, relu):
    x = torch.randn(2, 3, 8, 8)
    model = with_statistics(Added(add, left, relu), (x,))
    expected = theirs.fuse_fx(
        copy.deepcopy(model), backend_config=their_backends.get_onednn_backend_config()
    )
    for backend in (
        their_backends.get_onednn_backend_config(),
        our_backends.get_onednn_backend_config(),
    ):
        fused = ours.fuse_fx(model, backend_config=backend)
        assert fused.code == expected.code
        assert "Add" in type(fused.conv).__name__
        assert_close(fused(x), expected(x), rtol=0, atol=0)
        assert_close(fused(x), model(x), rtol=1e-4, atol=1e-4)


def test_other_configurations_are_type_errors():
    with pytest.raises(TypeError, match="fuse_custom_config: expected a FuseCustomConfig, got int"):
        ours.fuse_fx(nn.ReLU(), 3)
