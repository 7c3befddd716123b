"""Small models for the tests of quantisation, with inputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal import common_quantization

IMAGE = (3, 8, 8)


class Classifier(nn.Module):
    """Convolution, concatenation, addition of tensors and numbers, pooling, reshaping, weights of functions, outputs
    in known ranges, an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(4, 5)
        self.weight = nn.Parameter(torch.randn(5, 5))
        self.table = nn.Embedding(10, 5)

    def forward(self, x, i):
        y = F.relu(self.bn(self.conv(x)))
        joined = torch.cat([y, y + 1, y * 2], 1)[:, :4]
        rows = self.fc(self.pool(y + joined).reshape(y.size(0), -1))
        rows = F.linear(rows, self.weight)
        rows = torch.sigmoid(rows) + rows.softmax(-1)
        return rows.flatten(1) + torch.tanh(rows), self.table(i)


class Masked(nn.Module):
    """Masks, permutation, views and comparisons, which are no values to quantise."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.norm = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x, mask):
        q = self.q(x).view(x.size(0), -1, 2, 4).permute(0, 2, 1, 3)
        k = self.k(x).view(x.size(0), -1, 2, 4).permute(0, 2, 1, 3)
        scores = torch.matmul(q, k.transpose(-2, -1)) / 2
        scores = scores.masked_fill(mask.unsqueeze(1).unsqueeze(1) == 0, -100.0)
        mixed = torch.matmul(F.softmax(scores, -1), k).transpose(1, 2).contiguous()
        return self.norm(mixed.view(x.size(0), -1, 8) + x)


class Branches(nn.Module):
    """Values with several users, activations in place, dropout, a module called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 1, bias=False)
        self.act, self.clip, self.drop = nn.ReLU(inplace=True), nn.Hardtanh(), nn.Dropout()
        self.swish = nn.Hardswish()

    def forward(self, x):
        left = self.act(self.a(x))
        right = self.clip(self.b(x))
        both = self.drop(left + right)
        return self.swish(self.act(both) + x), torch.mul(both, right).mean((2, 3))


def _torch_model(name: str) -> nn.Module:
    return getattr(common_quantization, name)()


def _inputs(name: str, model: nn.Module) -> tuple[torch.Tensor, ...]:
    if hasattr(model, "get_example_inputs"):
        return tuple(torch.cat([x, x]) for x in model.get_example_inputs())
    shape = {
        "SkipQuantModel": (5,),
        "NestedModel": (5,),
        "ActivationsTestModel": (3,),
        "NormalizationTestModel": (5,),
    }
    return (torch.randn(2, *shape.get(name, IMAGE)),)


_TORCH_MODELS = (
    "ConvModel",
    "ConvBnModel",
    "ConvBnReLUModel",
    "ConvReluModel",
    "ConvReluConvModel",
    "ConvReluAddModel",
    "ConvTransposeModel",
    "SingleLayerLinearModel",
    "LinearReluModel",
    "LinearReluAddModel",
    "LinearBnLeakyReluModel",
    "LinearTanhModel",
    "LinearModelWithSubmodule",
    "SkipQuantModel",
    "NestedModel",
    "ResNetBase",
    "ModelMultipleOps",
    "FunctionalLinear",
    "FunctionalConv2d",
    "FunctionalLinearReluModel",
    "FunctionalConvReluModel",
    "ActivationsTestModel",
    "LinearAddModel",
    "LinearReluLinearModel",
    "TwoLayerConvModel",
    "TwoLayerLinearModel",
    "ConvBnAddReluModel",
    "NormalizationTestModel",
    "ModelMultipleOpsNoAvgPool",
    "TwoLayerFunctionalLinearModel",
    "FunctionalLinearAddModel",
    "FunctionalLinearReluLinearModel",
    "TwoLayerFunctionalConvModel",
    "FunctionalConvReluConvModel",
)
OWN = {
    "Classifier": (Classifier, (torch.randn(2, *IMAGE), torch.tensor([1, 2]))),
    "Masked": (Masked, (torch.randn(2, 3, 8), torch.ones(2, 3))),
    "Branches": (Branches, (torch.randn(2, *IMAGE),)),
}
NAMES = (*OWN, *_TORCH_MODELS)


def by_turns(names: Iterable[str]) -> Any:
    """Parameters ``name`` and ``own``: each model with torch.ao's objects and with corsac's, by turns one of which is
    slow."""
    found = []
    for number, name in enumerate(names):
        for own in (False, True):
            marks = [pytest.mark.slow] if (number + own) % 2 else []
            label = f"{name}-{'our' if own else 'their'} objects"
            found.append(pytest.param(name, own, id=label, marks=marks))
    return pytest.mark.parametrize(("name", "own"), found)


def model_and_inputs(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A model, always with the same weights, and inputs."""
    torch.manual_seed(0)
    if name in OWN:
        kind, inputs = OWN[name]
        return kind(), inputs
    model = _torch_model(name)
    return model, _inputs(name, model)


def batches(inputs: tuple[torch.Tensor, ...], count: int = 3) -> list[tuple[torch.Tensor, ...]]:
    """Other inputs of the same shapes; integers and masks stay."""
    torch.manual_seed(1)
    is_value = lambda x: x.is_floating_point() and not bool((x == 1).all())  # noqa: E731
    return [tuple(torch.randn_like(x) if is_value(x) else x for x in inputs) for _ in range(count)]
