"""Fused modules compared with those of torch.ao."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.ao.nn.intrinsic as theirs
import torch.ao.quantization as torch_ao
from torch import nn

import corsac.quantization.intrinsic as ours
from corsac import quantization

SHAPES = {1: (2, 3, 6), 2: (2, 3, 6, 5), 3: (2, 3, 4, 5, 6)}
CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
BATCH_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}

MODULES = [
    *((f"ConvReLU{n}d", [CONVS[n](3, 4, 2), nn.ReLU()], SHAPES[n]) for n in SHAPES),
    *((f"ConvBn{n}d", [CONVS[n](3, 4, 2), BATCH_NORMS[n](4)], SHAPES[n]) for n in SHAPES),
    *(
        (f"ConvBnReLU{n}d", [CONVS[n](3, 4, 2), BATCH_NORMS[n](4), nn.ReLU()], SHAPES[n])
        for n in SHAPES
    ),
    ("BNReLU2d", [nn.BatchNorm2d(3), nn.ReLU()], SHAPES[2]),
    ("BNReLU3d", [nn.BatchNorm3d(3), nn.ReLU()], SHAPES[3]),
    ("LinearReLU", [nn.Linear(3, 4), nn.ReLU()], (5, 3)),
    ("LinearBn1d", [nn.Linear(3, 4), nn.BatchNorm1d(4)], (5, 3)),
    ("LinearLeakyReLU", [nn.Linear(3, 4), nn.LeakyReLU(0.2)], (5, 3)),
    ("LinearTanh", [nn.Linear(3, 4), nn.Tanh()], (5, 3)),
]


def test_names_are_those_of_torch():
    assert set(ours.__all__) == set(theirs.__all__)


@pytest.mark.parametrize(("name", "modules", "shape"), MODULES)
def test_fused_modules(name, modules, shape):
    their = getattr(theirs, name)(*copy.deepcopy(modules))
    our = getattr(ours, name)(*copy.deepcopy(modules))
    assert repr(their) == repr(our)
    x = torch.randn(shape)
    for module in (their, our):
        module(x)
    assert torch.equal(their.eval()(x), our.eval()(x))
    left, right = their.state_dict(), our.state_dict()
    assert list(left) == list(right)
    assert all(torch.equal(value, right[key]) for key, value in left.items())
    assert torch.equal(pickle.loads(pickle.dumps(our))(x), our(x))
    assert isinstance(our, ours._FusedModule)


@pytest.mark.parametrize(("name", "modules", "shape"), MODULES)
def test_modules_of_other_types(name, modules, shape):
    wrong = [nn.Dropout(), *modules[1:]]
    for kind in (theirs, ours):
        with pytest.raises(AssertionError, match=f"{'' if kind is theirs else name}.*Dropout"):
            getattr(kind, name)(*wrong)
    with pytest.raises(TypeError):
        getattr(theirs, name)(modules[0])
    with pytest.raises(TypeError):
        getattr(ours, name)(modules[0])


def test_arguments_by_name():
    fused = ours.ConvBnReLU2d(nn.Conv2d(1, 1, 1), relu=nn.ReLU(), bn=nn.BatchNorm2d(1))
    assert [type(module) for module in fused] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]
    with pytest.raises(TypeError, match="norm"):
        ours.ConvBn2d(nn.Conv2d(1, 1, 1), norm=nn.BatchNorm2d(1))


def test_parametrised_modules():
    linear = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    x = torch.randn(1, 2)
    assert torch.equal(
        ours.LinearReLU(linear, nn.ReLU())(x), theirs.LinearReLU(linear, nn.ReLU())(x)
    )


def test_sums():
    conv, x, y = nn.Conv2d(2, 3, 1), torch.randn(1, 2, 4, 4), torch.randn(1, 3, 4, 4)
    assert torch.equal(
        ours.ConvAdd2d(conv, torch.add)(x, y), theirs.ConvAdd2d(conv, torch.add)(x, y)
    )
    our = ours.ConvAddReLU2d(conv, torch.add, nn.ReLU())
    their = theirs.ConvAddReLU2d(conv, torch.add, nn.ReLU())
    assert torch.equal(our(x, y), their(x, y))
    assert repr(our) == repr(their)


# Fusing by names ------------------------------------------------------------------------------------


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4), nn.ReLU()
        self.head = nn.Sequential(nn.Linear(4, 2), nn.ReLU())

    def forward(self, x):
        return self.head(self.relu(self.bn(self.conv(x))).mean((2, 3)))


@pytest.mark.parametrize("qat", [False, True])
def test_fusing_by_names(qat):
    model = Model().train(qat)
    calls = []
    model.conv.register_forward_pre_hook(lambda module, args: calls.append("before"))
    model.relu.register_forward_hook(lambda module, args, result: calls.append("after"))
    names = [["conv", "bn", "relu"], ["head.0", "head.1"]]
    results = []
    for package in (torch_ao, quantization):
        fuse = package.fuse_modules_qat if qat else package.fuse_modules
        fused = fuse(model, names)
        x = torch.ones(1, 3, 4, 4)
        results.append((repr(fused), fused.eval()(x)))
        assert type(model.bn) is nn.BatchNorm2d
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])
    # Those of torch.ao copy a convolution with its hooks, and run them twice.
    assert calls[-2:] == ["before", "after"]
    assert calls[:-2] == ["before"] * (1 if qat else 2) + ["after"]
    assert quantization.fuse_modules(model.eval(), ["head.0", "head.1"], inplace=True) is model
    assert type(model.head[1]) is nn.Identity


def test_the_function_wins_over_its_module():
    import corsac.quantization.fuse_modules  # noqa: F401

    assert callable(quantization.fuse_modules)
