"""Operators on the engine, against PyTorch."""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac
from kit.on_engine import agree, random

SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.5, 1e-30, 1e30, -1e30, 88.0, -88.0])
NOT_FINITE = torch.tensor([float("nan"), float("inf"), float("-inf")])

UNARY = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -2.0, 0.5),
    "clamp": lambda x: x.clamp(min=-0.5),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": lambda x: F.elu(x, 0.5),
    "selu": F.selu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "erf": torch.erf,
    "exp": torch.exp,
    "abs": abs,
    "neg": operator.neg,
    "square": lambda x: x**2,
    "affine": lambda x: 2 * x + 3 - 1,
    "reversed": lambda x: 1 - x,
    "divided": lambda x: x / 4,
}


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_number(name):
    for x in (random(3, 5), random(40_000), SPECIAL, torch.empty(0, 3)):
        agree(UNARY[name], x)


@pytest.mark.parametrize("name", ["relu", "relu6", "clamp", "abs", "neg", "affine", "square"])
def test_what_is_not_finite_stays_so(name):
    agree(UNARY[name], NOT_FINITE)


@pytest.mark.parametrize("function", [torch.sqrt, torch.rsqrt, torch.log, torch.reciprocal])
def test_functions_of_positive_numbers(function):
    agree(function, random(3, 50).abs() + 0.1)


@pytest.mark.parametrize(
    "function",
    [torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum],
)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((4, 5), (4, 5)), ((4, 5), (5,)), ((5,), (4, 5)), ((4, 1), (1, 5)), ((1, 1), (4, 5)),
        ((2, 3, 4, 5), (3, 1, 1)), ((2, 3, 4, 5), (2, 1, 4, 1)), ((300, 200), (300, 200)),
        ((300, 200), (200,)), ((300, 200), (300, 1)), ((), (3,)), ((2, 0), (1,)),
    ],
)  # fmt: skip
def test_functions_of_two_numbers(function, left, right):
    agree(function, random(*left), random(*right))


def test_alpha_and_reversed_operands():
    x, y = random(3, 4), random(4)
    agree(lambda a, b: torch.add(a, b, alpha=3), x, y)
    agree(lambda a, b: torch.sub(a, b, alpha=0.5), x, y)
    agree(lambda a, b: torch.rsub(a, b, alpha=2), x, y)
    agree(lambda a: 3 / a, x)


@pytest.mark.parametrize(
    ("channels", "out", "kernel", "options"),
    [
        (3, 8, 3, {}),
        (3, 8, 3, {"padding": 1, "stride": 2}),
        (4, 8, 1, {}),
        (4, 8, 1, {"stride": 2}),
        (4, 6, (3, 5), {"padding": (1, 2), "stride": (2, 1)}),
        (4, 6, 3, {"dilation": 2, "padding": 2}),
        (4, 6, 2, {"padding": "same"}),
        (4, 6, 3, {"padding": "same", "dilation": (1, 3)}),
        (4, 6, 3, {"padding": "valid"}),
        (8, 12, 3, {"groups": 4, "padding": 1}),
        (8, 8, 1, {"groups": 2}),
        (6, 6, 3, {"groups": 6, "padding": 1}),
        (6, 6, 3, {"groups": 6, "padding": 1, "stride": 2}),
        (6, 6, 5, {"groups": 6, "padding": 2, "stride": (1, 2)}),
        (6, 6, 3, {"groups": 6, "padding": (0, 3), "dilation": (2, 1), "stride": (3, 2)}),
        (6, 6, 7, {"groups": 6, "padding": 3, "bias": False}),
        (6, 12, 3, {"groups": 6, "padding": 1}),
        (5, 7, 7, {"padding": 3, "stride": 2, "bias": False}),
    ],
)
@pytest.mark.parametrize("size", [(1, 16, 16), (2, 15, 9)])
def test_convolutions(channels, out, kernel, options, size):
    batch, *image = size
    torch.manual_seed(0)
    conv = nn.Conv2d(channels, out, kernel, **options).eval()
    agree(conv, random(batch, channels, *image))
    agree(conv, random(channels, *image))


def test_convolution_along_a_line():
    torch.manual_seed(0)
    agree(nn.Conv1d(4, 6, 3, padding=1, stride=2).eval(), random(2, 4, 17))
    agree(lambda x, w: F.conv1d(x, w, padding=2, dilation=2), random(2, 4, 17), random(6, 4, 3))


def test_what_follows_a_convolution_along_a_line():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6), nn.ReLU(), nn.Conv1d(6, 2, 3))
    net[1].running_mean.uniform_(-1, 1)
    agree(net.eval(), random(2, 4, 17))
    agree(nn.Sequential(nn.Conv1d(4, 6, 3), nn.ReLU()), random(2, 4, 17))
    agree(lambda x, w: F.conv1d(x, w).relu() + 1, random(2, 4, 9), random(5, 4, 2))


def test_weights_that_are_computed():
    agree(F.linear, random(2, 3), random(3))
    agree(lambda x, w: F.conv2d(x, w / w.amax(), padding=1), random(1, 3, 8, 8), random(4, 3, 3, 3))
    agree(lambda x, w, b: F.linear(x, w * 2, b + 1), random(5, 3), random(4, 3), random(4))


def test_a_convolution_as_large_as_its_image_and_one_that_is_empty():
    torch.manual_seed(0)
    agree(nn.Conv2d(3, 4, 8).eval(), random(2, 3, 8, 8))
    agree(nn.Conv2d(3, 4, 3).eval(), torch.empty(0, 3, 8, 8))


@pytest.mark.parametrize("shape", [(5, 8), (8,), (2, 3, 8), (300, 8), (0, 8)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(shape, bias):
    torch.manual_seed(0)
    agree(nn.Linear(8, 6, bias=bias).eval(), random(*shape))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (5, 4, 2)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)), ((1, 4), (4, 5)), ((7, 0), (0, 5)), ((12, 60, 70), (12, 70, 50)),
    ],
)  # fmt: skip
def test_products(left, right):
    agree(torch.matmul, random(*left), random(*right), tolerance=1e-4)


def test_products_of_other_names():
    agree(torch.bmm, random(2, 3, 4), random(2, 4, 5))
    agree(torch.addmm, random(5), random(3, 4), random(4, 5))
    agree(lambda a, b: a @ b.t(), random(3, 4), random(5, 4))


@pytest.mark.parametrize("options", [{}, {"stride": 1}, {"padding": 1}, {"ceil_mode": True}])
@pytest.mark.parametrize("size", [(1, 2, 12, 12), (2, 3, 13, 7), (3, 9, 9)])
def test_pooling(options, size):
    agree(nn.MaxPool2d(3, **options), random(*size))
    agree(nn.AvgPool2d(3, **options), random(*size))
    agree(nn.AvgPool2d(3, count_include_pad=False, **options), random(*size))
    agree(nn.AvgPool2d((2, 3), divisor_override=5, **options), random(*size))


def test_pooling_of_other_kinds():
    agree(nn.MaxPool2d(3, dilation=2, padding=1), random(2, 3, 13, 13))
    for size in (1, (3, 2), (None, 5), 7):
        agree(nn.AdaptiveAvgPool2d(size), random(2, 3, 7, 9))
    agree(nn.MaxPool2d(2), torch.full((1, 1, 4, 4), float("nan")))


def test_norms():
    torch.manual_seed(0)
    for norm, shape in (
        (nn.BatchNorm2d(4), (2, 4, 5, 6)),
        (nn.BatchNorm2d(4, affine=False), (2, 4, 5, 6)),
        (nn.BatchNorm1d(4), (7, 4)),
        (nn.BatchNorm1d(4), (2, 4, 9)),
        (nn.LayerNorm(6), (3, 5, 6)),
        (nn.LayerNorm((5, 6), elementwise_affine=False), (3, 5, 6)),
        (nn.LayerNorm(6, bias=False), (3, 6)),
    ):
        for parameter in norm.parameters():
            nn.init.uniform_(parameter, 0.5, 1.5)
        if hasattr(norm, "running_mean"):
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)
        agree(norm.eval(), random(*shape))


def test_a_batch_norm_goes_into_the_convolution_before_it():
    torch.manual_seed(0)
    for bias in (True, False):
        net = nn.Sequential(nn.Conv2d(3, 4, 3, bias=bias), nn.BatchNorm2d(4), nn.ReLU()).eval()
        net[1].running_mean.uniform_(-1, 1)
        net[1].running_var.uniform_(0.5, 2)
        compiled = corsac.compile(net, fullgraph=True)
        x = random(1, 3, 8, 8)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-5, atol=1e-5)
        assert "2 steps" in compiled.explain()  # the convolution, and the result out of blocks


def test_a_convolution_used_twice_keeps_its_norm_apart():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

        def forward(self, x):
            y = self.conv(x)
            return self.norm(y) + y, self.conv(y)

    torch.manual_seed(0)
    net = Net().eval()
    net.norm.running_mean.uniform_(-1, 1)
    agree(net, random(2, 3, 4, 4))


@pytest.mark.parametrize("dim", [None, 0, 1, -1, (0, 2), (1, 2), (0, 1, 2), (2, 0)])
@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("name", ["mean", "sum", "amax", "amin"])
def test_reductions(name, dim, keepdim):
    if dim is None:
        agree(lambda x: getattr(x, name)(), random(3, 4, 5))
    else:
        agree(lambda x: getattr(x, name)(dim, keepdim=keepdim), random(3, 4, 5))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dim):
    agree(lambda x: torch.softmax(x, dim), random(3, 40, 5))
    agree(lambda x: F.log_softmax(x, dim), 30 * random(3, 40, 5))


VIEWS = {
    "flatten": lambda x: x.flatten(1),
    "reshape": lambda x: x.reshape(4, -1),
    "view": lambda x: x.view(6, 2, 5).view(x.size(0), -1),
    "permute": lambda x: x.permute(2, 0, 1),
    "transpose": lambda x: x.transpose(0, -1).contiguous(),
    "twice": lambda x: x.permute(1, 2, 0).transpose(0, 1),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1).unsqueeze(-1),
    "expand": lambda x: x[:1].expand(4, -1, 5) + 1,
    "index": lambda x: x[1],
    "negative": lambda x: x[-1, :, 0],
    "slices": lambda x: x[:, 1:3, ::2],
    "ellipsis": lambda x: x[..., 1:, None],
    "new axis": lambda x: x[None, 0],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(2, 3),
    "cat": lambda x: torch.cat([x, x[:, :1], x], 1),
    "stack": lambda x: torch.stack([x, x + 1], -1),
    "chunk": lambda x: torch.cat(x.chunk(2, 2)[::-1], 2) if False else x.chunk(2, 2)[1],
    "split": lambda x: x.split([1, 3], 1)[1] * 2,
    "split evenly": lambda x: torch.split(x, 3, dim=1)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "roll": lambda x: torch.roll(x, (1, -2), (0, 1)),
    "pad": lambda x: F.pad(x, (1, 2, 0, 3), value=7.0),
    "dropout": lambda x: F.dropout(x, 0.5, training=False),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name):
    agree(VIEWS[name], random(3, 4, 5))


def test_a_number_has_a_dimension_too():
    for function in (
        lambda x: x.sum(0),
        lambda x: x.mean(-1, keepdim=True),
        lambda x: x.amax(),
        lambda x: torch.softmax(x, 0),
        lambda x: F.log_softmax(x, -1),
        lambda x: x.unsqueeze(0).flatten(),
        lambda x: x.reshape(1, 1).squeeze(),
    ):
        agree(function, random())


def test_attention():
    q, k, v = random(2, 3, 5, 8), random(2, 3, 7, 8), random(2, 3, 7, 4)
    agree(F.scaled_dot_product_attention, q, k, v)
    agree(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3), q, k, v)
    agree(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), q, k, v, random(5, 7))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_multihead_attention(batch_first, bias):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(12, 3, bias=bias, batch_first=batch_first)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=False)[0]

    torch.manual_seed(0)
    agree(Net().eval(), random(4, 5, 12))


def test_tensors_without_elements():
    for shape in ((0, 3, 8, 8), (2, 3, 8, 8)):
        agree(nn.AdaptiveAvgPool2d((0, 2)), random(*shape))
        agree(nn.AdaptiveAvgPool2d(2), random(*shape))
        agree(nn.MaxPool2d(2), random(*shape))
        agree(nn.Conv2d(3, 4, 3), random(*shape))
    for shape in ((0, 4), (3, 0), (2, 0, 3)):
        agree(lambda x: x.mean(-1), random(*shape))
        agree(lambda x: x.sum(0), random(*shape))
        agree(lambda x: torch.softmax(x, 0) + 1, random(*shape))
        agree(lambda x: torch.cat([x, x], 1).transpose(0, 1), random(*shape))
        agree(lambda x: F.pad(x, (1, 1)), random(*shape))
        agree(nn.Sequential(nn.Linear(shape[-1], 3)), random(*shape))
    for bias in (True, False):
        agree(nn.Linear(0, 3, bias=bias), random(2, 0))
        agree(nn.Linear(3, 0, bias=bias), random(2, 3))
    with pytest.raises(IndexError, match="non-zero size"):
        corsac.compile(lambda x: x.amax(1), fullgraph=True)(random(0, 0))


def test_inputs_that_do_not_lie_in_order():
    agree(lambda x, y: x.relu() + y, random(4, 5).t(), random(1, 4).expand(5, 4))
    agree(torch.relu, random(10, 10)[::2, 1::3])


def test_results_of_every_form():
    agree(lambda x: (x, {"a": x + 1, "b": [x * 2, None]}), random(3))
    agree(lambda x: x, random(3))
    agree(lambda x: [x.view(-1), x], random(3, 2))


def test_results_do_not_share_memory_with_inputs_or_with_each_other():
    compiled = corsac.compile(lambda x: (x, x, x.view(-1)), fullgraph=True)
    x = random(2, 2)
    with torch.no_grad():
        results = compiled(x)
        results[0].zero_()
    assert x.any()
    assert results[1].any()
    assert results[2].any()


def test_writing_in_place():
    agree(lambda x: (x + 1).relu_() * 2, random(3, 4) - 1)

    def reads_later(x):
        y = x * 2
        y += 1
        return y, y.clamp_(min=0.5) + 1

    # The first result is written to later.
    agree(reads_later_view, random(3))
    agree(reads_later, random(3))


def reads_later_view(x):
    y = x * 2
    z = y.view(-1)
    y.add_(1)
    return z


def test_norms_that_follow_each_other_go_into_one_convolution():
    torch.manual_seed(0)
    norms = [torch.nn.BatchNorm2d(5) for _ in range(3)]
    for norm in norms:
        torch.nn.init.uniform_(norm.running_mean)
        torch.nn.init.uniform_(norm.running_var, 0.5, 2.0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 3), *norms).eval()
    x = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        compiled = corsac.compile(net, fullgraph=True)
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-5, atol=1e-5)
        assert "2 steps" in compiled.explain()
