"""bfloat16 and float16: computed as float32, and rounded where it shows."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import corsac
from kit.operator_samples import ORDERING, Call, Left, entries, full_name, program, samples
from kit.small_models import TransformerBlock

HALVES = (torch.bfloat16, torch.float16)
half = pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])


def _native(model):
    return corsac.compile(model, options={"inference": "native"})


def _given(value, dtype):
    return value.to(dtype) if value.is_floating_point() else value


def _error(found, exact):
    """The largest difference, relative to the largest element."""
    difference = (found.double() - exact.double()).abs().max().item()
    return difference / max(exact.double().abs().max().item(), 1e-9)


def _check(model, dtype, *inputs):
    """Compare with float64: as precise as PyTorch's own result in ``dtype``, and of its types."""
    model = model.eval().to(dtype)
    given = [_given(own, dtype) for own in inputs]
    exact = copy.deepcopy(model).double()(*[_given(own, torch.float64) for own in given])
    expected = copy.deepcopy(model)(*given)
    compiled = _native(model)
    with torch.no_grad():
        for _ in range(3):
            found = compiled(*given)
    report = compiled.explain()
    assert "PyTorch" not in report, report
    assert "recompiled" not in report, report
    for own, other, truth in zip(*map(pytree.tree_leaves, (found, expected, exact)), strict=True):
        assert (own.dtype, own.shape, own.stride()) == (other.dtype, other.shape, other.stride())
        step = torch.finfo(dtype).eps
        assert _error(own, truth) <= 1.1 * _error(other, truth) + step
    return found


@half
def test_transformers(dtype):
    torch.manual_seed(0)
    _check(TransformerBlock(), dtype, torch.randint(50, (2, 9)), torch.randn(2, 9, 32))


@half
@pytest.mark.parametrize("batch", [1, 3])
def test_convolutions(dtype, batch):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, 1, 1, groups=32),
        nn.Hardswish(),
        nn.Conv2d(32, 48, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, 10),
    )
    for own in model.modules():
        if isinstance(own, nn.BatchNorm2d):
            own.running_mean.normal_(0, 0.1)
            own.running_var.uniform_(0.5, 2)
    _check(model, dtype, torch.randn(batch, 3, 32, 32))


@half
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 33, 70])
def test_linear_layers(dtype, rows):
    torch.manual_seed(rows)
    _check(
        nn.Sequential(nn.Linear(77, 130), nn.Tanh(), nn.Linear(130, 5)),
        dtype,
        torch.randn(rows, 77),
    )


@half
def test_recurrent_layers(dtype):
    torch.manual_seed(0)
    _check(nn.LSTM(8, 16, batch_first=True), dtype, torch.randn(2, 5, 8))


@half
def test_the_fast_paths_of_attention(dtype):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    _check(layer, dtype, torch.randn(2, 5, 16))


#: Operators that show whether a product was rounded before.
SHOWN = {
    "comparison": lambda x, y: x * y > 0.3,
    "comparison with integers": lambda x, y: x * 512 > 257,
    "sum with a number": lambda x, y: (x + 0.1, 3.3 - x, x - 257),
    "remainder by a number": lambda x, y: (torch.remainder(x, 0.3), torch.fmod(x, 0.3), x // 0.3),
    "equality": lambda x, y: (x * y) == (x * y).to(x.dtype),
    "floor": lambda x, y: torch.floor(x * y * 8),
    "floor_divide": lambda x, y: (x * y) // 0.125,
    "rounding_mode": lambda x, y: torch.div(x * y, 0.125, rounding_mode="trunc"),
    "remainder": lambda x, y: torch.remainder(x + y, 0.25),
    "sign": lambda x, y: torch.sign(x - y + (y - x)),
    "argmax": lambda x, y: (x * y).argmax(-1),
    "largest": lambda x, y: (x * y).max(-1),
    "comparison in place": lambda x, y: ((x * y).gt_(0.3), (x * y).logical_not_()),
    "numbers without dimensions": lambda x, y: (
        x > torch.tensor(0.3),
        x - torch.tensor(0.1),
        (x * 512).round() == torch.full((64, 1), 257),
    ),
    "float32 of a product": lambda x, y: ((x * y).float() > 0.3, (x * y).float().argmax(-1)),
    "isinf": lambda x, y: torch.isinf(x * 1e5 * y * 1e4),
    "integers": lambda x, y: (x * y * 128).long(),
    "booleans": lambda x, y: (x * y * 1e-8).bool(),
    "where": lambda x, y: torch.where(x * y > 0.3, x, y),
    "conversion": lambda x, y: x.float().mul(y.float()).to(x.dtype).float(),
    "through another type": lambda x, y: x.float().mul(y).half().float().bfloat16(),
    "sequence": lambda x, y: torch.arange(0, 1000, 3, dtype=x.dtype)[None] + x[:1, :1],
    "constant": lambda x, y: torch.full_like(x, 0.1) + torch.tensor(0.3, dtype=x.dtype),
    "integer": lambda x, y: torch.tensor([257, 4099]).to(x.dtype) + x[0, 0] * 0,
}


@half
@pytest.mark.parametrize("name", SHOWN)
def test_rounding_shows_as_in_pytorch(dtype, name):
    torch.manual_seed(0)
    x, y = (torch.rand(64, 32) * 2 - 0.5).to(dtype), torch.rand(64, 32).to(dtype)
    compiled = _native(SHOWN[name])
    with torch.no_grad():
        found = [compiled(x, y) for _ in range(3)][-1]
        expected = SHOWN[name](x, y)
    for own, other in zip(*map(pytree.tree_leaves, (found, expected)), strict=True):
        assert own.dtype == other.dtype
        assert torch.equal(own, other)


@half
def test_float32_beside_it(dtype):
    def mixed(x, y):
        return x + y, x * 2, (x + y).to(x.dtype), torch.where(x > 0, x.float(), y)

    x, y = torch.randn(5, 7).to(dtype), torch.randn(5, 7)
    compiled = _native(mixed)
    found = [compiled(x, y) for _ in range(3)][-1]
    for own, other in zip(found, mixed(x, y), strict=True):
        assert own.dtype == other.dtype
        assert torch.equal(own, other)


@half
@pytest.mark.parametrize(
    "view",
    [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1:, 3:], lambda x: x.expand(3, *x.shape)],
    ids=["transposed", "strided", "offset", "expanded"],
)
def test_inputs_in_any_layout(dtype, view):
    torch.manual_seed(0)
    x = view(torch.randn(6, 8).to(dtype))
    compiled = _native(lambda x: (x * 3, x.sum(-1)))
    found = [compiled(x) for _ in range(3)][-1]
    torch.testing.assert_close(found, (x * 3, x.sum(-1)))


@half
def test_bits_are_not_numbers(dtype):
    def bits(x):
        return x.view(torch.int16) + 1

    x = torch.randn(4, 4).to(dtype)
    compiled = corsac.compile(bits)
    for _ in range(3):
        assert torch.equal(compiled(x), bits(x))


@half
def test_writes(dtype):
    def program(x, y):
        z = x * y
        z.add_(0.1)
        z[1] = y[0]
        y.mul_(2)
        return z

    x, y = torch.randn(4, 4).to(dtype), torch.randn(4, 4).to(dtype)
    compiled = _native(program)
    for _ in range(3):
        own, other = y.clone(), y.clone()
        found, expected = compiled(x, own), program(x, other)
        torch.testing.assert_close(found, expected)
        assert torch.equal(own, other)
        assert own._version >= other._version
    assert "PyTorch" not in compiled.explain()
    # Memory that is shared, or does not lie row by row, is PyTorch's.
    both = torch.randn(4, 4).to(dtype)
    for own in (lambda: both.clone(), lambda: torch.randn(4, 8).to(dtype)[:, ::2]):
        torch.manual_seed(0)
        one = own()
        other = one.clone()
        found, expected = compiled(one, one), program(other, other)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(one, other)


@half
def test_caches_that_are_written_to(dtype):
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.zeros(2, 8, 4))
            self.project = nn.Linear(4, 4)

        def forward(self, x, at):
            self.cache.index_copy_(1, at, self.project(x))
            return F.softmax(x @ self.cache.transpose(1, 2), -1) @ self.cache

    torch.manual_seed(0)
    model = Cached().eval().to(dtype)
    other = copy.deepcopy(model)
    compiled = _native(model)
    with torch.no_grad():
        for at in range(5):
            x = torch.randn(2, 1, 4).to(dtype)
            at = torch.tensor([at])
            torch.testing.assert_close(compiled(x, at), other(x, at), rtol=0.02, atol=0.02)
            torch.testing.assert_close(model.cache, other.cache, rtol=0.02, atol=0.02)
    assert "PyTorch" not in compiled.explain()


@half
def test_weights_that_are_written_to_are_seen(dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).eval().to(dtype)
    compiled = _native(model)
    x = torch.randn(4, 8).to(dtype)
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        for change in (
            lambda: model[0].weight.mul_(2),
            lambda: model[1].running_mean.add_(1),
            lambda: setattr(model[0].weight, "data", model[0].weight.data * 3),
        ):
            change()
            torch.testing.assert_close(compiled(x), model(x), rtol=0.02, atol=0.02)


def test_a_model_that_changes_its_type():
    torch.manual_seed(0)
    model = nn.Linear(8, 8).eval()
    compiled = _native(model)
    x = torch.randn(4, 8)
    with torch.no_grad():
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float32):
            model.to(dtype)
            for _ in range(2):
                found = compiled(x.to(dtype))
                assert found.dtype == dtype
                torch.testing.assert_close(found, model(x.to(dtype)), rtol=0.02, atol=0.02)


@half
def test_threads_agree(dtype, monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 64)).eval().to(dtype)
    x = torch.randn(70, 256).to(dtype)
    results = []
    for threads in ("1", "2"):
        monkeypatch.setenv("CORSAC_NUM_THREADS", threads)
        compiled = _native(copy.deepcopy(model))
        with torch.no_grad():
            results.append([compiled(x) for _ in range(3)][-1])
    assert torch.equal(*results)


@pytest.mark.parametrize("most", [1, pytest.param(3, marks=pytest.mark.slow)])
@half
def test_samples_of_operators(dtype, most):
    """Each native sample of PyTorch's operator tests equals PyTorch's result up to a step of the type, or is as near
    to the result in float64."""
    native, wrong = 0, []
    step = torch.finfo(dtype).eps
    for op in entries():
        # The order of equal elements is not defined.
        if op.name in ORDERING:
            continue
        for sample in samples(op, dtype, most):
            call = Call(op, sample)
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    expected = call(*(own.clone() for own in call.tensors))
                except Exception:
                    continue
                try:
                    found = program(call)(*call.tensors)
                except Left:
                    continue
                native += 1
                for one, other in zip(
                    pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True
                ):
                    assert (one.dtype, one.shape) == (other.dtype, other.shape), full_name(op)
                    if torch.allclose(one, other, rtol=step, atol=step, equal_nan=True):
                        continue
                    wide = [_given(own, torch.float64) for own in call.tensors]
                    truth = pytree.tree_leaves(call(*wide))
                    exact = next(own for own in truth if own.shape == one.shape)
                    nearer = _error(one, exact) <= _error(other, exact) + step
                    if not (nearer or not other.isfinite().all()):
                        wrong.append(f"{full_name(op)} {sample.kwargs}")
    assert wrong == []
    assert native > (180 if most == 1 else 500)


@half
def test_memory_for_inputs_in_any_layout_does_not_grow(dtype):
    x = torch.randn(512, 1024).to(dtype).t()
    compiled = _native(lambda x: x.sum(0))

    def resident():
        with open("/proc/self/statm") as text:
            return int(text.read().split()[1]) * 4096

    for _ in range(5):
        compiled(x)
    before = resident()
    for _ in range(200):
        compiled(x)
    assert resident() - before < 100 << 20
