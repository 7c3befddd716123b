"""Calls on the engine, compared with PyTorch."""

import types

import torch
from torch import nn

import corsac


def agree(function, *inputs, tolerance=1e-5):
    """Run ``function`` on both; the engine has to run all of it."""
    if isinstance(function, nn.Module):
        # As a submodule: its own forward is not traced.
        function = nn.Sequential(function).eval()
    elif not isinstance(function, types.FunctionType):
        # Functions of PyTorch are written in C++, which cannot be traced.
        arguments = ", ".join(f"x{i}" for i in range(len(inputs)))
        function = eval(f"lambda {arguments}: f({arguments})", {"f": function})
    compiled = corsac.compile(function, fullgraph=True)
    with torch.no_grad():
        expected, found = function(*inputs), compiled(*inputs)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    return found


def random(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator)
