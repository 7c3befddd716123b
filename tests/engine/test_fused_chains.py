"""Elementwise operators fused into one step."""

import random
import re

import pytest
import torch
import torch.nn.functional as F

import corsac


def compiled(function, *inputs):
    """The steps of a function, with results checked against PyTorch's."""
    fast = corsac.compile(function, fullgraph=True)
    with torch.inference_mode():
        expected = function(*inputs)
        for _ in range(2):  # with fresh and with reused memory
            found = fast(*inputs)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
    return fast.native_programs()[0].steps


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def standardised(x):
    y = x - x.mean((-2, -1), keepdim=True)
    return y / (y.square().mean((-2, -1), keepdim=True) + 1e-5).sqrt()


def masked(x, mask):
    return torch.where(mask & (x > -0.5), x * 2, x.new_full((), -1.0)).exp()


def quantised(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round().clamp(-128, 127) * scale


def softmax(x):
    y = (x - x.amax(-1, keepdim=True)).exp()
    return y / y.sum(-1, keepdim=True)


CASES = [
    pytest.param(rms_norm, [(37, 100), (100,)], id="rms_norm"),
    pytest.param(rms_norm, [(2, 3, 5, 70), (70,)], id="rms_norm of four dimensions"),
    pytest.param(standardised, [(9, 7, 11)], id="means of two dimensions"),
    pytest.param(quantised, [(64, 1024)], id="largest of rows"),
    pytest.param(softmax, [(33, 129)], id="softmax"),
    pytest.param(lambda x, y: torch.sigmoid(x) * x + y, [(3, 40_000), (40_000,)], id="long rows"),
    pytest.param(lambda x, y: (x - y).abs() * y, [(8, 1, 6), (5, 1)], id="both are repeated"),
    pytest.param(lambda x, y: (2 - x * y).tanh(), [(4, 6, 5), (6, 1)], id="repeated in the middle"),
    pytest.param(lambda x, y: (x * y + y).relu(), [(3, 1), (1, 5)], id="a table"),
    pytest.param(lambda x: (x.mean(-1) * 2 + 1).exp(), [(50, 60)], id="functions of means"),
    pytest.param(lambda x: ((x * x).sum() + 1).sqrt(), [(300,)], id="a number of all"),
    pytest.param(lambda x, y: x * y.reshape(12) + x, [(5, 12), (3, 4)], id="another shape"),
    pytest.param(lambda x: x.exp().reshape(-1) * 2 - 1, [(5, 12)], id="a shape between"),
    pytest.param(lambda x: F.normalize(x * 2, dim=-1) + 1, [(20, 30)], id="normalize"),
    pytest.param(lambda x: x * 0 / (x - x) + 1, [(6,)], id="NaN"),
    pytest.param(lambda x: (x * 2).fmod(0.7) + x, [(40,)], id="no vectors"),
]


@pytest.mark.parametrize(("function", "shapes"), CASES)
def test_chains_become_one_step(function, shapes):
    torch.manual_seed(0)
    steps = compiled(function, *(torch.randn(shape) for shape in shapes))
    assert len(steps) == 1 and "= fused(" in steps[0], steps


@pytest.mark.parametrize("largest", [torch.amax, torch.amin])
def test_extremes_of_rows_keep_nan(largest):
    x = torch.randn(12, 200)
    x[3, 150] = x[5, 0] = x[7, 199] = float("nan")

    def function(x):
        return largest(x * 2, -1, keepdim=True) - x

    fast = corsac.compile(function, fullgraph=True)
    with torch.inference_mode():
        torch.testing.assert_close(fast(x), function(x), rtol=0, atol=0, equal_nan=True)


def test_masks_and_integers_are_operands():
    torch.manual_seed(0)
    x, mask = torch.randn(30, 50), torch.rand(30, 50) > 0.3
    for own in (mask, mask[0], mask[:, :1], torch.tensor(True)):
        (step,) = compiled(masked, x, own)
        assert "Gt" in step and "Where" in step
    numbers = torch.randint(-5, 5, (50,))
    (step,) = compiled(lambda x, n: (x * 2 + n.float()[:, None]).exp(), x, numbers[:30])
    assert "Add, Exp" in step
    (step,) = compiled(lambda x, n: n.float().sigmoid() * x, x, numbers[:30, None])
    assert "Sigmoid" in step


def test_truth_values_come_out():
    x, y = torch.randn(9, 40), torch.randn(40)

    def function(x, y):
        return ((x > y) | (x < -1)) & ~(x.abs() == 0), (x > 0) ^ (x > y)

    steps = compiled(function, x, y)
    assert len(steps) == 2 and all("= fused(" in step for step in steps)


def test_what_others_read_is_a_value():
    """A value that is read outside of a step is the result of its own step, and not computed twice."""

    def function(x, weight):
        y = (x * 2 + 1).sigmoid() * x
        return torch.matmul(y, weight), (y - 1).exp() * 3

    x, weight = torch.randn(20, 16), torch.randn(16, 8)
    steps = compiled(function, x, weight)
    operators = sorted(step.split(" = ")[1].split("(")[0] for step in steps)
    assert operators == ["fused", "fused", "matmul"]


def test_a_result_takes_the_place_of_an_operand_that_nobody_else_reads():
    def function(x, weight):
        y = torch.matmul(x, weight)
        return y.sigmoid() * y - 1

    x, weight = torch.randn(64, 64), torch.randn(64, 64)
    compiled(function, x, weight)
    fast = corsac.compile(function, fullgraph=True)
    with torch.inference_mode():
        fast(x, weight)
    # Only the result, into which the chain writes in place of the product.
    assert ": 2 steps, 0 bytes for values" in fast.explain()


def test_tensors_that_two_chains_read_are_not_stored_if_one_gives_rows():
    """As in the gradient of weights with factors for channels, and for their range."""

    def gradients(weight, gradient, factor):
        scaled = weight * factor
        inside = torch.where((scaled > -1) & (scaled < 1), gradient, 0.0)
        return inside * factor, (inside * weight).sum(-1), scaled.amin(-1), scaled.amax(-1)

    for rows, columns in [(40, 300), (9, 2500), (64, 16)]:
        inputs = torch.randn(rows, columns), torch.randn(rows, columns), torch.rand(rows, 1)
        steps = compiled(gradients, *inputs)
        results = [step.partition(" = ")[0].count("[") for step in steps]
        assert sorted(results) == [1, 1, 1, 2] and "Sum" in steps[results.index(2)], steps
    unequal = torch.randn(40, 300), torch.randn(300), torch.rand(40, 1)
    compiled(lambda x, y, z: ((x * z).exp() + y, (x * z).sum(-1), (x + y).mean(-1)), *unequal)


def scaled_by_rows_and_columns(x, y, z):
    d = x.sum(-1)
    return x * d[:, None] * d[None, :], (x + d).exp()


def read_before_a_pair(x, y, z):
    m = x.mean(-1, keepdim=True)
    v = y * m
    return x.clamp(-1, 1) * z[:, :1] * v, v - z[:, :1], m


def two_pairs_that_need_each_other(x, y, z):
    a = x.exp().sin()
    b = y.abs().sum(-1, keepdim=True)
    return a, b, (x.abs() * b).sum(-1), (y.sin() + a).exp()


def two_pairs_around_a_scan(x, y, z):
    a, b = x.exp().sin(), y.abs().sum(-1)
    return a, b.cumsum(0), x.abs().sum(-1), (y.sin() + a).exp()


def repeated_operands(x, y, z):
    a = x.sigmoid()
    v = a + z[:, :1]
    m = x.mean(-1, keepdim=True)
    w = y + m
    return a.sin() * v, v.sin() * z[0], w.cos() * z, w.sin() + x, (z * m).cos().sum(-1)


def repeated_in_chains(x, y, z):
    u = x * z[:, :1]
    v = u * z[:, :1]
    return v.exp(), v.sin(), u.double()


@pytest.mark.parametrize(
    "function",
    [
        scaled_by_rows_and_columns,
        read_before_a_pair,
        two_pairs_that_need_each_other,
        two_pairs_around_a_scan,
        repeated_operands,
        repeated_in_chains,
    ],
)
@pytest.mark.parametrize("shape", [(40, 40), (64, 100)])
def test_values_are_computed_before_they_are_read(function, shape):
    if shape[0] != shape[1] and function is scaled_by_rows_and_columns:
        pytest.skip("for squares")
    x, y, z = (torch.randn(shape) for _ in range(3))
    computed = set()
    for step in compiled(function, x, y, z):
        results, _, operands = step.partition(" = ")
        read = set(re.findall(r"%\d+", operands))
        assert read <= computed, step
        computed |= set(re.findall(r"%\d+", results))


def test_cost_of_chains_of_products_with_rows_grows_with_their_length():
    def steps(count):
        def function(x, f):
            results = []
            for _ in range(count):
                x = x * f
                results.append((x + 1).abs())
            return tuple(results)

        return compiled(function, torch.randn(32, 48), torch.rand(32, 1))

    assert sum(step.count("Mul") for step in steps(30)) <= 35


def test_a_row_result_that_is_written_to_an_input():
    def function(x, low, high):
        y = x.relu()
        low.copy_(y.sum(-1))
        high.add_(x.amax(-1))
        return y

    x, low, high = torch.randn(32, 64), torch.zeros(32), torch.ones(32)
    own, fast = (low.clone(), high.clone()), corsac.compile(function, fullgraph=True)
    for _ in range(3):
        with torch.inference_mode():
            torch.testing.assert_close(fast(x, *own), function(x, low, high))
        torch.testing.assert_close(own, (low, high))


def shape_of_a_chain(choose):
    rows, columns = choose.choice([1, 2, 9, 33]), choose.choice([1, 3, 16, 65, 500])
    return choose.choice([(rows, columns), (2, rows, columns), (columns,)])


ONE = [
    torch.sigmoid,
    torch.tanh,
    torch.abs,
    torch.cos,
    lambda x: x * 0.5 + 1,
    lambda x: 2 - x,
    lambda x: x.clamp(-0.5, 0.75),
    lambda x: x.mean(-1, keepdim=True),
    lambda x: x.sum(-1, keepdim=True) * 0.01,
    lambda x: x.amax(-1, keepdim=True),
    lambda x: x.mean((-2, -1), keepdim=True),
    lambda x: x.amin(-1, keepdim=True) + x,
    lambda x: (x > 0.25).float(),
    lambda x: x.masked_fill(x < 0, 0.5),
    lambda x: x[..., :1],
    lambda x: x[:1],
    lambda x: x.cumsum(0) * 0.1,
]
TWO = [
    torch.add,
    torch.sub,
    torch.mul,
    torch.maximum,
    torch.minimum,
    lambda x, y: x / (y.abs() + 1),
    lambda x, y: torch.where(x > y, x, y * 0.5),
    lambda x, y: torch.where((x > 0) & (y < 0.5), y, x),
    lambda x, y: ((x > y) | (y >= 1)).float() - x,
    lambda x, y: torch.atan2(x, y.abs() + 1),
]


@pytest.mark.parametrize("seed", range(80))
def test_random_chains(seed):
    choose = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    shape = shape_of_a_chain(choose)
    smaller = [shape, shape[-1:], (1,) * len(shape), (*shape[:-1], 1)]
    shapes = [shape, *choose.choices(smaller, k=2)]
    inputs = [torch.randn(own, generator=generator) for own in shapes]
    values, calls = list(inputs), []
    while len(calls) < 14:
        function = choose.choice(ONE + TWO)
        operands = [choose.randrange(max(0, len(values) - 6), len(values))]
        if function in TWO:
            operands.append(choose.randrange(len(values)))
        try:
            result = function(*(values[at] for at in operands))
        except IndexError:
            continue
        calls.append((function, operands))
        values.append(result)
    others = choose.sample(range(len(inputs), len(values)), choose.choice([2, 4]))
    results = [len(values) - 1, *others]

    def run(x, y, z):
        values = [x, y, z]
        for function, operands in calls:
            values.append(function(*(values[at] for at in operands)))
        return tuple(values[at] for at in results)

    fast = corsac.compile(run, fullgraph=True)
    with torch.inference_mode():
        expected = run(*inputs)
        for _ in range(2):
            for found, wanted in zip(fast(*inputs), expected, strict=True):
                off = ~torch.isclose(found, wanted, 1e-4, 1e-5, equal_nan=True)
                # Compared numbers may differ in the last bit, which then changes a whole selection.
                assert off.float().mean() < 0.01, (seed, off.sum())
