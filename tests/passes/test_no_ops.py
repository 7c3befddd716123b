"""Modules that return their input are removed, others are kept."""

import pytest
import torch
from torch import nn

import corsac.analysis
import corsac.fx
from corsac.passes import remove_no_ops


class Last(nn.Module):
    """A last operator, so that the one before is not the result."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return torch.relu(self.module(torch.cos(x))) + 1


def removed(module, shape, known=True):
    """Whether ``module`` is removed from a program, with unchanged results."""
    gm = corsac.fx.symbolic_trace(Last(module))
    x = torch.linspace(-1, 1, max(torch.Size(shape).numel(), 1)).reshape(shape)
    expected = gm(x)
    if known:
        corsac.analysis.propagate(gm, x)
    remove_no_ops(gm)
    gm.graph.lint()
    assert torch.equal(gm(x), expected)
    assert gm(x).shape == expected.shape
    return not gm.graph.find_nodes(op="call_module")


@pytest.mark.parametrize(
    ("module", "shape", "goes"),
    [
        (nn.Flatten(), (2, 3), True),
        (nn.Flatten(), (2, 3, 4), False),
        (nn.Flatten(1, 1), (2, 3, 4), True),
        (nn.Flatten(-1, 2), (2, 3, 4), True),
        (nn.Flatten(0, 1), (1, 3, 4), False),
        (nn.Flatten(0, -1), (3,), True),
        (nn.Flatten(0, -1), (), False),
        (nn.Identity(), (2, 3), True),
    ],
)
def test_modules(module, shape, goes):
    assert removed(module, shape) is goes


def test_shapes_have_to_be_known():
    assert not removed(nn.Flatten(), (2, 3), known=False)
    assert removed(nn.Identity(), (2, 3), known=False)


def test_hooks_and_derived_classes_stay():
    hooked = nn.Flatten()
    hooked.register_forward_hook(lambda m, args, y: y * 2)

    class Mine(nn.Flatten):
        def forward(self, x):
            return super().forward(x) * 2

    assert not removed(hooked, (2, 3))
    gm = corsac.fx.symbolic_trace(nn.Sequential(nn.ReLU(), Mine()))
    assert not remove_no_ops(gm).changed
