"""float64: computed in double precision throughout."""

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

#: A result in single precision, anywhere, would be wrong by 1e-8.
TOLERANCE = {"rtol": 1e-12, "atol": 1e-13, "equal_nan": True}


def _native(model):
    return corsac.compile(model, options={"inference": "native"})


def _same(found, expected):
    for own, other in zip(*map(pytree.tree_leaves, (found, expected)), strict=True):
        assert (own.dtype, own.shape, own.stride()) == (other.dtype, other.shape, other.stride())
        torch.testing.assert_close(own, other, **TOLERANCE)


def _check(model, *inputs):
    """Compare a native run with PyTorch's."""
    compiled = _native(model)
    with torch.no_grad():
        for _ in range(3):
            found = compiled(*inputs)
        _same(found, model(*inputs))
    report = compiled.explain()
    assert "PyTorch" not in report, report


def _random(*shape):
    return torch.rand(*shape, dtype=torch.float64) * 4 - 2


#: Numbers that single precision cannot tell from others, and extreme ones.
NUMBERS = torch.tensor(
    [
        1 + 1e-10,
        0.1,
        -0.3,
        1e-300,
        1e300,
        -1e-20,
        2.0**53,
        0.0,
        -0.0,
        0.5,
        3.75,
        -7.0,
        20.5,
        1e-05,
        float("inf"),
        float("-inf"),
        float("nan"),
        5e-324,
        0.999999999999,
        -40.0,
        700.0,
        -745.0,
    ],
    dtype=torch.float64,
)

UNARY = {
    name: getattr(torch, name)
    for name in [
        "abs",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "ceil",
        "cos",
        "cosh",
        "deg2rad",
        "erf",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "frac",
        "log",
        "log10",
        "log1p",
        "log2",
        "neg",
        "rad2deg",
        "reciprocal",
        "round",
        "rsqrt",
        "sigmoid",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "square",
        "tan",
        "tanh",
        "trunc",
        "isnan",
        "isinf",
        "isfinite",
        "relu",
        "logical_not",
    ]
} | {
    name: getattr(F, name)
    for name in [
        "celu",
        "elu",
        "gelu",
        "hardshrink",
        "hardsigmoid",
        "hardswish",
        "hardtanh",
        "leaky_relu",
        "logsigmoid",
        "mish",
        "relu6",
        "selu",
        "silu",
        "softplus",
        "softshrink",
        "softsign",
        "tanhshrink",
    ]
}
UNARY |= {
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "elu 0.7": lambda x: F.elu(x, 0.7),
    "celu 0.3": lambda x: F.celu(x, 0.3),
    "softplus 2.5": lambda x: F.softplus(x, 2.5, 3.1),
    "leaky_relu 0.1": lambda x: F.leaky_relu(x, 0.1),
    "threshold": lambda x: F.threshold(x, 0.1, 0.7),
    "hardshrink 0.3": lambda x: F.hardshrink(x, 0.3),
    "softshrink 0.1": lambda x: F.softshrink(x, 0.1),
    "clamp": lambda x: x.clamp(-0.1, 1e-5 + 1 / 3),
    "scale": lambda x: (x * 0.1, x + 0.1, 0.1 - x, x / 3, 0.1 / x, x - 1 / 3),
    "powers": lambda x: (x**2, x**3, x**-1, x**-2, x**0.5, x**5, x**0.1, x**-2.7, x**-0.5),
    "float32": lambda x: (x.float(), x.float().double(), x.to(torch.float32) * 2),
    "halves": lambda x: (x.half(), x.bfloat16(), x.bfloat16().double()),
    "integers": lambda x: (torch.where(x.isfinite(), x, 0.5).clamp(-1e9, 1e9).long(), x.bool()),
    "comparisons": lambda x: (x > 0.1, x <= 1 + 1e-10, x == 2**53, x != 0.1, x < 1, x >= 0.5),
}


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_number(name):
    torch.manual_seed(0)
    own = UNARY[name]
    for x in (NUMBERS, _random(3, 67), _random(20_000) * 10):
        _check(own, x)


BINARY = {
    name: getattr(torch, name)
    for name in [
        "add",
        "sub",
        "mul",
        "div",
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "fmod",
        "remainder",
        "floor_divide",
        "pow",
        "atan2",
        "hypot",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "logical_and",
        "logical_or",
        "logical_xor",
    ]
} | {
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "alpha": lambda x, y: torch.add(x, y, alpha=0.1),
    "lerp": lambda x, y: (torch.lerp(x, y, 0.3), torch.lerp(x, y, y)),
    "addcmul": lambda x, y: (torch.addcmul(x, x, y, value=0.1), torch.addcdiv(x, x, y, value=0.1)),
    "where": lambda x, y: torch.where(x > 0.1, x, y),
    "prelu": lambda x, y: F.prelu(x.reshape(-1, 1), y.reshape(-1)[:1]),
}


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_numbers(name):
    torch.manual_seed(0)
    own = BINARY[name]
    other = NUMBERS.flip(0).contiguous()
    for x, y in (
        (NUMBERS, other),
        (_random(5, 33), _random(5, 33)),
        (_random(5, 33), _random(33)),
        (_random(5, 33), _random(5, 1)),
        (_random(20_001), _random(20_001)),
    ):
        # PyTorch's vectors give NaN for remainders of quotients beyond the largest number.
        too_large = name in ("fmod", "remainder") and x is NUMBERS
        if not too_large and (name != "prelu" or x.shape == y.shape):
            _check(own, x, y)


def test_inverse_hyperbolic_cosines_below_one_are_no_numbers():
    _check(torch.acosh, torch.tensor([-1e8, -1e12, -1e17, -1e200, 0.5], dtype=torch.float64))


def test_divisors_of_means_are_not_rounded():
    def means(x):
        return F.avg_pool2d(x, 2, divisor_override=2**24 + 1) * 2.0**24

    _check(means, _random(2, 3, 6, 6))


def test_large_integers():
    x = torch.tensor([2**53, 2**53 - 1, -(2**53) + 1], dtype=torch.int64)

    def integers(x):
        y = x.double()
        return (
            y,
            y - 1,
            (y - 1).long(),
            x * torch.tensor(1.0, dtype=torch.float64),
            y.sum(),
            y.to(torch.int32),
        )

    _check(integers, x)


REDUCTIONS = {
    "sum": lambda x: (x.sum(), x.sum(0), x.sum(-1), x.sum((0, 2), keepdim=True)),
    "mean": lambda x: (x.mean(), x.mean(0), x.mean(-1), x.mean(1)),
    "prod": lambda x: (x.prod(), x.prod(0), x.prod(-1)),
    "extremes": lambda x: (x.amax(-1), x.amin(0), x.max(), x.min(), x.max(1), x.min(-1)),
    "places": lambda x: (x.argmax(), x.argmax(-1), x.argmin(0)),
    "variance": lambda x: (x.var(), x.var(0), x.std(-1), torch.var_mean(x, 1)),
    "norms": lambda x: (
        x.norm(),
        x.norm(1),
        x.norm(dim=1),
        torch.linalg.vector_norm(x, 3.3, dim=-1),
    ),
    "logsumexp": lambda x: (x.logsumexp(-1), x.logsumexp((0, 1))),
    "softmax": lambda x: (x.softmax(-1), x.softmax(0), x.log_softmax(-1), x.log_softmax(1)),
    "cumulative": lambda x: (x.cumsum(-1), x.cumsum(0), x.cumprod(1)),
    "order": lambda x: (x.sort(-1), x.sort(0, descending=True), x.topk(3), x.argsort(-1)),
    "any": lambda x: ((x > 0.1).any(-1), (x > -3).all(0), x.count_nonzero(1)),
    "in chains": lambda x: (
        (x - x.mean(-1, keepdim=True)) * 0.1 / (x * x).sum(-1, keepdim=True)
    ).sum(-1),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("shape", [(3, 5, 7), (4, 9, 200), (70, 33, 5)])
def test_reductions(name, shape):
    torch.manual_seed(0)
    # Near one another: sums in single precision would lose all that tells them apart.
    _check(REDUCTIONS[name], 1 + 1e-7 * _random(*shape))
    _check(REDUCTIONS[name], _random(*shape))


def test_numbers_move_unchanged():
    def moved(x, at):
        return (
            x.t().contiguous(),
            torch.cat([x, x * 2], 1),
            F.pad(x, (1, 2), value=0.1),
            x[at],
            x.gather(1, at[:, None]),
            x.index_select(0, at),
            torch.zeros_like(x).scatter_(1, at[:, None], 0.1),
            torch.zeros_like(x).index_add_(0, at, x),
            x.masked_fill(x > 0.1, 0.3),
            x.flip(0),
            x.roll(1, 1),
            x.tril(),
            torch.stack([x, x]).unbind(0),
        )

    _check(moved, NUMBERS.repeat(4, 1)[:, :4].contiguous(), torch.tensor([1, 0, 3, 3]))


def test_tensors_that_are_made():
    def made(x):
        n = x.shape[0]
        return (
            torch.arange(n, dtype=torch.float64) * 0.1 + x[:, 0],
            torch.full((n,), 0.1, dtype=torch.float64) * x[:, 0],
            torch.linspace(0, 1, n, dtype=torch.float64) + x[:, 1],
            torch.ones_like(x) / 3,
            x.new_full((2, 2), 1 / 3),
            torch.tensor(0.1, dtype=torch.float64) * x,
        )

    _check(made, _random(7, 3))


PROMOTED = {
    "float32": (
        lambda x, y: (x + y, y * x, x > y, torch.where(x > 0, x, y)),
        torch.float32,
        (5, 3),
    ),
    "a number of float64": (
        lambda x, y: (x[0, 0] + y, y > x[0, 0], y / x[1, 1]),
        torch.float32,
        (5, 3),
    ),
    "a number of float32": (lambda x, y: (x + y, x > y, x // y), torch.float32, ()),
    "bfloat16": (lambda x, y: (x + y, (y * 3) * x, (y * 3).double()), torch.bfloat16, (5, 3)),
    "integers": (lambda x, y: (x + y, x * y, x > y, x**y, y.double() / 3), torch.int64, (5, 3)),
    "booleans": (lambda x, y: (x + y, x * y, x.masked_fill(y, 0.1)), torch.bool, (5, 3)),
    "through float32": (lambda x, y: (x.float() * 3).double() + y, torch.float32, (5, 3)),
}


@pytest.mark.parametrize("name", PROMOTED)
def test_other_types_beside_it(name):
    torch.manual_seed(0)
    own, dtype, shape = PROMOTED[name]
    y = torch.rand(shape, dtype=torch.float64) * 3
    _check(own, _random(5, 3), (y.long() if dtype is torch.bool else y).to(dtype))


def test_softmax_in_double():
    _check(lambda x: F.softmax(x, -1, dtype=torch.float64), torch.randn(3, 9))


LAYERS = {
    "linear": (lambda: nn.Linear(77, 130), (3, 77)),
    "one row": (
        lambda: nn.Sequential(nn.Linear(300, 700), nn.GELU(), nn.Linear(700, 5, bias=False)),
        (1, 300),
    ),
    "many rows": (
        lambda: nn.Sequential(nn.Linear(300, 100), nn.Tanh(), nn.Linear(100, 51)),
        (2, 130, 300),
    ),
    "convolution": (lambda: nn.Conv2d(3, 10, 3, padding=1), (2, 3, 17, 13)),
    "strided": (
        lambda: nn.Conv2d(5, 7, (3, 5), stride=(2, 3), padding=(1, 4), dilation=(2, 1)),
        (2, 5, 19, 23),
    ),
    "groups": (lambda: nn.Conv2d(12, 24, 3, padding=2, groups=4), (3, 12, 9, 9)),
    "depthwise": (lambda: nn.Conv2d(12, 12, 5, padding=2, groups=12, stride=2), (1, 12, 30, 30)),
    "one pixel": (lambda: nn.Conv2d(300, 40, 1, bias=False), (1, 300, 14, 14)),
    "same": (lambda: nn.Conv2d(3, 4, 4, padding="same"), (2, 3, 9, 9)),
    "line": (lambda: nn.Conv1d(3, 8, 5, 2, 2), (2, 3, 50)),
    "volume": (lambda: nn.Conv3d(3, 4, 3, 2, 1), (2, 3, 7, 9, 8)),
    "transposed": (lambda: nn.ConvTranspose2d(6, 4, 3, 2, 1, 1, groups=2), (2, 6, 7, 5)),
    "batch norm": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()),
        (2, 3, 9, 9),
    ),
    "batch norm of rows": (
        lambda: nn.Sequential(nn.Linear(7, 8), nn.BatchNorm1d(8, affine=False)),
        (5, 7),
    ),
    "layer norm": (
        lambda: nn.Sequential(nn.LayerNorm(30), nn.LayerNorm((4, 30), bias=False)),
        (2, 4, 30),
    ),
    "group norm": (lambda: nn.GroupNorm(2, 8), (2, 8, 5, 5)),
    "instance norm": (lambda: nn.InstanceNorm2d(8, affine=True), (2, 8, 5, 5)),
    "rms norm": (lambda: nn.RMSNorm(30), (4, 30)),
    "max pool": (lambda: nn.MaxPool2d(3, 2, 1), (2, 3, 13, 13)),
    "average pool": (lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 3, 13, 13)),
    "adaptive pool": (lambda: nn.AdaptiveAvgPool2d((3, 4)), (2, 3, 13, 13)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    model = make().eval().double()
    for own in model.modules():
        if isinstance(own, nn.modules.batchnorm._BatchNorm):
            own.running_mean.normal_(0, 0.1)
            own.running_var.uniform_(0.5, 2)
    _check(model, _random(*shape))


def test_attention():
    def attention(q, k, v, mask, bias):
        own = F.scaled_dot_product_attention
        return (
            own(q, k, v),
            own(q, k, v, is_causal=True),
            own(q, k, v, mask),
            own(q, k, v, bias, scale=0.1),
        )

    q, k, v = (_random(2, 3, 40, 8) for _ in range(3))
    _check(attention, q, k, v, _random(40, 40) > -1, _random(40, 40))


def test_products():
    def products(a, b, c):
        return (
            a @ b,
            torch.bmm(a, b),
            c.addmm(a[0], b[0], alpha=0.3, beta=0.1),
            torch.einsum("bij,bjk->ik", a, b),
            a[0] @ b[0, :, 0],
        )

    _check(products, _random(3, 20, 270), _random(3, 270, 31), _random(20, 31))


def test_transformers():
    torch.manual_seed(0)
    _check(TransformerBlock().eval().double(), torch.randint(50, (2, 9)), _random(2, 9, 32))


LOSSES = {
    "cross entropy": lambda x, y, n: F.cross_entropy(x, n, label_smoothing=0.1),
    "mse": lambda x, y, n: (
        F.mse_loss(x, y),
        F.l1_loss(x, y),
        F.smooth_l1_loss(x, y, beta=0.3),
        F.huber_loss(x, y),
    ),
    "binary": lambda x, y, n: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "kl": lambda x, y, n: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
    "nll": lambda x, y, n: F.nll_loss(x.log_softmax(-1), n),
    "cosine": lambda x, y, n: F.cosine_similarity(x, y),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    torch.manual_seed(0)
    _check(LOSSES[name], _random(6, 5), _random(6, 5), torch.tensor([0, 1, 2, 3, 4, 0]))


def test_an_operator_without_a_kernel_is_named_and_left_to_pytorch():
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)
            self.words = nn.GRU(8, 8)

        def forward(self, x):
            x = self.first(x).relu() * 0.1 + 0.3
            x = self.words(x)[0]
            return self.second(x).sigmoid() * 0.7 - 0.1

    model = Model().eval().double()
    compiled = _native(model)
    x = _random(5, 3, 6)
    with torch.no_grad():
        for _ in range(3):
            _same(compiled(x), model(x))
    assert "recurrent layers of float64" in compiled.explain()


@pytest.mark.parametrize(
    "mode", ["nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"]
)
def test_images_of_other_sizes(mode):
    sizes = {"linear": [(2, 3, 9)], "trilinear": [(1, 2, 5, 6, 7)]}
    sizes = sizes.get(mode, [(2, 3, 9, 11), (1, 2, 7, 4), (1, 1, 16, 16), (1, 1, 2, 2)])
    for size in sizes:
        x, spatial = _random(*size), len(size) - 2
        for factor in (2, 0.5, 1.7, 3.1, 1 / 3):
            if factor * min(size[2:]) < 1:
                continue
            _check(lambda x, f=factor: F.interpolate(x, scale_factor=f, mode=mode), x)
        for to in ([13] * spatial, [4, 21, 7][:spatial], list(size[2:]), [98, 49, 3][:spatial]):
            _check(lambda x, to=to: F.interpolate(x, to, mode=mode), x)
            if "linear" in mode or mode == "bicubic":
                corners = {"mode": mode, "align_corners": True}
                _check(lambda x, to=to, corners=corners: F.interpolate(x, to, **corners), x)


def test_a_model_that_changes_its_type():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)).eval()
    compiled = _native(model)
    x = _random(4, 8)
    with torch.no_grad():
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float64):
            model.to(dtype)
            for _ in range(3):
                found = compiled(x.to(dtype))
                assert found.dtype == dtype
                torch.testing.assert_close(found, model(x.to(dtype)))


def test_weights_that_are_written_to_are_seen():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(8, 8, 1), nn.BatchNorm1d(8)).eval().double()
    compiled = _native(model)
    x = _random(4, 8, 3)
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        for change in (
            lambda: model[0].weight.mul_(2),
            lambda: model[1].running_mean.add_(1),
            lambda: setattr(model[0].weight, "data", model[0].weight.data * 3),
        ):
            change()
            _same(compiled(x), model(x))


def test_writes():
    def writes(x, y):
        z = x * y
        z.add_(0.1)
        z[1] = y[0]
        y.mul_(1 / 3)
        return z

    x, y = _random(4, 4), _random(4, 4)
    compiled = _native(writes)
    for _ in range(3):
        own, other = y.clone(), y.clone()
        _same(compiled(x, own), writes(x, other))
        assert torch.equal(own, other)
    assert "PyTorch" not in compiled.explain()


def test_large_weights_that_are_read_in_place():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(3000, 100), nn.Linear(100, 3)).eval().double()
    _check(model, torch.randint(3000, (2, 9)))


def test_inputs_in_any_layout():
    x = _random(6, 8)
    for view in (x.t(), x[:, ::2], x[1:, 3:], x.expand(3, 6, 8)):
        _check(lambda x: (x * 0.1, x.sum(-1)), view)


def test_threads_agree(monkeypatch):
    torch.manual_seed(0)
    model = (
        nn.Sequential(nn.Conv2d(16, 33, 3), nn.Flatten(2), nn.Linear(49, 64), nn.GELU())
        .eval()
        .double()
    )
    x = _random(1, 16, 9, 9)
    results = []
    for threads in ("1", "2"):
        monkeypatch.setenv("CORSAC_NUM_THREADS", threads)
        compiled = _native(copy.deepcopy(model))
        with torch.no_grad():
            results.append([compiled(x) for _ in range(3)][-1])
    assert torch.equal(*results)


def test_training():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.LayerNorm(30), nn.GELU(), nn.Linear(30, 5)).double()
    other = copy.deepcopy(model)
    compiled = corsac.compile(model, options={"training": "native"})
    x, labels = _random(8, 20), torch.randint(5, (8,))
    for _ in range(3):
        model.zero_grad()
        other.zero_grad()
        F.cross_entropy(compiled(x), labels).backward()
        F.cross_entropy(other(x), labels).backward()
        for own, its in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(own.grad, its.grad, **TOLERANCE)


def test_model_files(tmp_path):
    torch.manual_seed(0)
    model = (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(72, 5))
        .eval()
        .double()
    )
    x = _random(2, 3, 5, 5)
    path = tmp_path / "net.safetensors"
    corsac.save(model, path, x)
    with torch.no_grad():
        expected = model(x)
        _same(corsac.load(path)(x), expected)
    found = corsac.load(path, framework="numpy")(x.numpy())
    assert found.dtype == "float64"
    torch.testing.assert_close(torch.from_numpy(found), expected, **TOLERANCE)


#: Operators whose results are ambiguous, or differ between PyTorch's own kernels.
LOOSE = {
    # `exp(x) - 1` near 0 in PyTorch's own kernel loses digits.
    "nn.functional.celu",
}


@pytest.mark.parametrize("most", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_samples_of_operators(most):
    """Each native sample of PyTorch's operator tests equals PyTorch's result in double precision."""
    native, wrong = 0, []
    for op in entries():
        # The order of equal elements is not defined.
        if op.name in ORDERING:
            continue
        for sample in samples(op, torch.float64, most):
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
            pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True)
            for one, other in pairs:
                assert (one.dtype, one.shape) == (other.dtype, other.shape), full_name(op)
                scale = (
                    other[other.isfinite()].double().abs().max().item()
                    if other.numel() and other.isfinite().any()
                    else 1.0
                )
                if not torch.allclose(
                    one, other, rtol=1e-11, atol=1e-13 * max(scale, 1.0), equal_nan=True
                ):
                    wrong.append(f"{full_name(op)} {sample.kwargs}")
    assert [own for own in wrong if own.split()[0] not in LOOSE] == []
    assert native > (180 if most == 1 else 500)
