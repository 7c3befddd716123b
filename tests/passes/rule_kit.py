"""Helpers for tests of rewrite rules: shapes, special numbers, bitwise comparison."""

import torch
from torch.fx.passes.shape_prop import _extract_tensor_metadata

import corsac.fx

HARD = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    -0.3,
    3.0,
    1e-45,
    -1e-38,
    3e38,
    -3e38,
    float("inf"),
    float("-inf"),
    float("nan"),
    65504.0,
    1e-7,
]


class Shapes(corsac.fx.Interpreter):
    """Runs a module and records the shapes and types of its tensors."""

    def run_node(self, node):
        value = super().run_node(node)
        if isinstance(value, torch.Tensor):
            node.meta["tensor_meta"] = _extract_tensor_metadata(value)
        return value


def traced(function, *inputs, shapes=True):
    gm = corsac.fx.symbolic_trace(function)
    if shapes:
        Shapes(gm).run(*clones(inputs))
    return gm


def clones(inputs):
    return [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]


def hard(dtype=torch.float32, rows=4):
    """Every kind of number, several times over."""
    if dtype.is_complex:
        real = hard(torch.float32, rows)
        return torch.complex(real, real.flip(1)).to(dtype)
    if dtype.is_floating_point:
        return torch.tensor(HARD * rows).reshape(rows, -1).to(dtype)
    if dtype == torch.bool:
        return torch.tensor([True, False] * 8 * rows).reshape(rows, -1)
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    values = [0, 1, 2, 3, 5, 7, low, low + 1, high, high - 1, 10, 11, 12, 13, 100, 101]
    return torch.tensor(values * rows, dtype=dtype).reshape(rows, -1)


def bits(tensor):
    """The bits to be compared: all except those of NaN."""
    if tensor.is_complex():
        return tensor.dtype, bits(torch.view_as_real(tensor.resolve_conj()))
    if not tensor.is_floating_point():
        return tensor.dtype, tensor.shape, tensor.tolist()
    nan = tensor.isnan()
    sign = torch.signbit(tensor) & ~nan
    plain = torch.where(nan, torch.zeros_like(tensor), tensor).double()
    return tensor.dtype, tensor.shape, nan.tolist(), sign.tolist(), plain.tolist()


def assert_same_bits(before, after):
    if isinstance(before, (tuple, list)):
        assert len(before) == len(after)
        for a, b in zip(before, after, strict=True):
            assert_same_bits(a, b)
    elif isinstance(before, torch.Tensor):
        assert bits(before) == bits(after)
    else:
        assert before == after


def reasons(report, rule):
    pairs = zip(report.sites, report.rules, strict=True)
    return [site.reason for site, name in pairs if name == rule]
