"""Compares programs with their compilation by corsac.compile."""

import re
import warnings

import torch
from torch import nn
from torch.utils._pytree import tree_flatten

import corsac
from corsac._capture.recordings import record_at_once
from corsac._capture.refusal import Refusal
from corsac._models.function import module_of


def call(compiled, *args, **kwargs):
    """A call without gradients; PyTorch may run it if there is no program."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", corsac.HostWarning)
        return compiled(*args, **kwargs)


def agree(compiled, function, *args, **kwargs):
    found = call(compiled, *args, **kwargs)
    with torch.no_grad():
        expected = function(*args, **kwargs)
    equal(found, expected)
    return found


def equal(found, expected):
    """Equal values in equal containers; tensors within rounding."""
    mine, spec = tree_flatten(found)
    its, other = tree_flatten(expected)
    assert spec == other
    for one, two in zip(mine, its, strict=True):
        assert type(one) is type(two)
        if isinstance(one, torch.Tensor):
            torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)
        else:
            assert one == two


def is_captured(compiled):
    return bool(module_of(compiled)._recorded.programs()) and module_of(compiled)._dynamo is None


def agree_captured(function, *args, **kwargs):
    compiled = corsac.compile(function)
    for _ in range(2):
        agree(compiled, function, *args, **kwargs)
    assert is_captured(compiled), compiled.explain()
    assert "captured and compiled in" in compiled.explain()
    return compiled


def agree_always(function, *calls):
    """Each call is as eager's, in any order."""
    compiled = corsac.compile(function)
    for args in (*calls, *calls, *reversed(calls)):
        agree(compiled, function, *args)
    return compiled


def agree_by_dynamo(function, *calls):
    """Each call is as eager's, and nothing was captured for sizes."""
    compiled = corsac.compile(function)
    for args in calls:
        agree(compiled, function, *args)
    assert not module_of(compiled)._recorded.programs(), compiled.explain()
    return compiled


X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


class BySize(nn.Module):
    """Control flow on sizes, a shared weight, a buffer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.register_buffer("shift", torch.randn(6))
        self.scale = 3.0

    def forward(self, x):
        if len(x) > 3:
            x = self.first(x)
        return self.second(x) * self.scale + self.shift


def refused(program, reason):
    """Check that nothing is captured of a program, for this reason."""
    with torch.no_grad():
        found = record_at_once(nn.Module(), program, (X,))
    assert isinstance(found, Refusal)
    assert re.search(reason, found.reason), found.reason
