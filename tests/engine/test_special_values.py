"""Signs of zero, infinities, NaN, and the largest and smallest numbers: results are eager's."""

import pytest
import torch
import torch.nn.functional as F

import corsac
from corsac import fx
from corsac._engine.native_graph import NativeGraph

INFINITY, NAN = float("inf"), float("nan")
VALUES = torch.tensor(
    [
        0.0,
        -0.0,
        INFINITY,
        -INFINITY,
        NAN,
        1e-38,
        -1e-38,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        3.0,
        -3.0,
        20.0,
        -20.0,
        88.0,
        -88.0,
        89.0,
        -89.0,
        104.0,
        -104.0,
        3e38,
        -3e38,
        10000000000.0,
        -10000000000.0,
        16777217.0,
        0.01,
        -0.01,
        49.0,
    ]
)
NUMBERS = (2, 3, -1, 0.0, -0.0, 7.0, 49.0, 0.1, 1e38, INFINITY, -INFINITY, NAN)
FUNCTIONS = {
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
        "isnan",
        "log",
        "log10",
        "log1p",
        "log2",
        "logical_not",
        "neg",
        "rad2deg",
        "reciprocal",
        "relu",
        "round",
        "rsqrt",
        "sgn",
        "sigmoid",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "square",
        "tan",
        "tanh",
        "trunc",
    ]
} | {
    name: getattr(F, name)
    for name in [
        "celu",
        "elu",
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
    ]
}
#: Functions that PyTorch approximates in a way that fails for the largest and smallest numbers.
ONLY_FINITE = frozenset(["remainder", "fmod"])
PAIRS = {
    name: getattr(torch, name)
    for name in [
        "add",
        "sub",
        "mul",
        "div",
        "pow",
        "remainder",
        "fmod",
        "floor_divide",
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "atan2",
        "hypot",
        "eq",
        "lt",
        "ge",
    ]
}


def same(own, expected):
    """Whether the elements are the same, with their signs, up to rounding."""
    if expected.dtype is not torch.float32:
        return own == expected
    near = (own - expected).abs() <= 1e-5 * expected.abs() + 2e-8
    near &= (own != 0) & (expected != 0)
    signs = own.signbit() == expected.signbit()
    return (own.isnan() & expected.isnan()) | ((own == expected) & signs) | near


def check(function, x=VALUES):
    """By itself, and within a chain."""

    def chain(x):
        return function(x * 1.0) * 1.0

    for program in (lambda x: function(x), chain):
        module = fx.symbolic_trace(program)
        with torch.no_grad():
            expected = program(x)
            try:
                run, _ = NativeGraph(module, precision="f32", strict=False).compile(
                    (x,), whole=True
                )
            except corsac.CompileError:
                continue
            own = run(x)
        assert own.dtype == expected.dtype
        wrong = ~same(own, expected)
        found = list(zip(x[wrong].tolist(), own[wrong], expected[wrong], strict=True))
        assert not found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_one_number(name):
    check(FUNCTIONS[name])


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", PAIRS)
def test_functions_of_two_numbers(name, number):
    function = PAIRS[name]
    x = VALUES
    if name in ONLY_FINITE:
        x = x[x.abs() < 1e6]
        x = x[(x == 0) | (x.abs() > 1e-4)]
    if name not in ("maximum", "minimum", "fmax", "fmin", "atan2", "hypot"):
        check(lambda x: function(x, number), x)
    check(lambda x: function(x, torch.full_like(x, number)), x)
    check(lambda x: function(torch.full_like(x, number), x), x)


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_on_the_left(number):
    check(lambda x: number - x)
    check(lambda x: number / x)
    check(lambda x: number * x)


def test_quotients_are_divisions():
    numbers = torch.arange(1.0, 300.0)
    for divisor in (3, 7, 49, 0.1, 1e-40, 3e38):
        check(lambda x, divisor=divisor: (x / divisor).floor(), numbers)
        check(lambda x, divisor=divisor: x / divisor, numbers * divisor)


def test_erf_of_small_numbers_keeps_its_digits():
    x = torch.logspace(-30, -1, 200)
    module = fx.symbolic_trace(lambda x: torch.erf(x))
    run, _ = NativeGraph(module, precision="f32", strict=False).compile((x,), whole=True)
    torch.testing.assert_close(run(x), torch.erf(x.double()).float(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.var(-1),
        lambda x: x.std(0),
        lambda x: torch.var_mean(x, 0)[0],
        lambda x: torch.std_mean(x, -1)[1],
    ],
)
def test_variances_of_numbers_that_are_far_from_zero(function, offset):
    x = torch.randn(8, 300, generator=torch.Generator().manual_seed(0)) + offset
    run, _ = NativeGraph(fx.symbolic_trace(function), precision="f32", strict=False).compile(
        (x,), whole=True
    )
    torch.testing.assert_close(run(x), function(x.double()).float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("offset", [1e2, 1e4])
def test_norms_of_numbers_that_are_far_from_zero(offset):
    x = torch.randn(4, 16, 300, generator=torch.Generator().manual_seed(0)) + offset
    for function in (
        lambda x: F.layer_norm(x, (300,)),
        lambda x: F.group_norm(x, 4),
        lambda x: F.instance_norm(x),
    ):
        run, _ = NativeGraph(fx.symbolic_trace(function), precision="f32", strict=False).compile(
            (x,), whole=True
        )
        truth = function(x.double())
        own, eager = ((result - truth).abs().max() for result in (run(x), function(x)))
        assert own <= 4 * eager + 1e-4


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear"])
def test_factors_that_leave_sizes_or_double_them(dims, mode):
    """Where the sizes are given, PyTorch does not use the factor."""
    name = {"linear": {1: "linear", 2: "bilinear", 3: "trilinear"}[dims]}.get(mode, mode)
    for size in (2, 3, 5, 8):
        x = torch.arange(float(size**dims)).reshape(1, 1, *[size] * dims)
        x.view(-1)[1] = float("nan")
        for factor in (1.0, 1.1, 1.3, 2.0, 2.1, 2.3):

            def program(x, factor=factor):
                return F.interpolate(x, scale_factor=factor, mode=name)

            with torch.no_grad():
                found = corsac.compile(program, options={"inference": "native"})(x)
                torch.testing.assert_close(found, program(x), equal_nan=True)


def test_roots_as_powers():
    x = torch.tensor([-float("inf"), -0.0, 0.0, 4.0, -1.0, float("nan"), float("inf")])
    for power in (0.5, -0.5):
        program = corsac.compile(lambda x, power=power: x**power, options={"inference": "native"})
        with torch.no_grad():
            found, expected = program(x), x**power
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert torch.equal(found.signbit() | found.isnan(), expected.signbit() | expected.isnan())
