"""Random programs on the engine, against PyTorch."""

import random

import pytest
import torch
import torch.nn.functional as F

import corsac

ONE = [
    torch.relu,
    torch.sigmoid,
    lambda x: x * 0.5 + 1,
    lambda x: 2 - x,
    lambda x: x.transpose(-1, -2),
    lambda x: x.flatten(1),
    lambda x: x.reshape(-1),
    lambda x: x.unsqueeze(0),
    lambda x: x[..., :2],
    lambda x: x[0],
    lambda x: x.chunk(2, -1)[-1],
    lambda x: x.mean(-1, keepdim=True),
    lambda x: x.sum(0),
    lambda x: torch.softmax(x, -1),
    lambda x: F.layer_norm(x, x.shape[-1:]),
    lambda x: F.pad(x, (1, 0)),
    lambda x: x[:1].expand(3, -1),
    lambda x: torch.roll(x, 1, 0),
    lambda x: F.max_pool2d(x, 2),
    lambda x: F.adaptive_avg_pool2d(x, 2),
    lambda x: F.dropout(x, training=False),
    lambda x: x.contiguous(),
    lambda x: (x + 0.5).relu_(),
    lambda x: F.hardswish(x * 1.5, inplace=True),
]
TWO = [
    torch.add,
    torch.sub,
    torch.mul,
    torch.maximum,
    torch.matmul,
    lambda x, y: torch.cat([x, y], -1),
    lambda x, y: torch.stack([x, y]),
    lambda x, y: x + y * 2,
    lambda x, y: F.linear(x, y),
    lambda x, y: F.conv2d(x, y, padding=1),
    lambda x, y: F.scaled_dot_product_attention(x, y, y),
]
SHAPES = [(3, 4), (4,), (1, 4), (4, 4), (2, 3, 4), (2, 3, 4, 4), (3, 3, 3, 3), (5, 3, 2, 2)]


def program(seed):
    """Steps, inputs, and the indices of returned values."""
    choose = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    shapes = choose.choices(SHAPES, k=choose.randint(1, 3))
    inputs = [torch.rand(shape, generator=generator) - 0.3 for shape in shapes]
    values, steps = list(inputs), []
    while len(steps) < 12:
        function = choose.choice(ONE + TWO)
        count = 1 if function in ONE else 2
        operands = [choose.randrange(len(values)) for _ in range(count)]
        try:
            result = function(*(values[at] for at in operands))
        except (RuntimeError, IndexError):
            continue
        if not 0 < result.numel() < 5000 or not result.isfinite().all():
            continue
        steps.append((function, operands))
        values.append(result)
    results = choose.sample(range(len(values)), choose.randint(1, 4))
    return steps, inputs, results


def run(steps, inputs, results):
    values = list(inputs)
    for function, operands in steps:
        values.append(function(*(values[at] for at in operands)))
    return tuple(values[at] for at in results)


def check(seed):
    steps, inputs, results = program(seed)
    names = ", ".join(f"x{i}" for i in range(len(inputs)))
    scope = {"run": run, "steps": steps, "results": results}
    function = eval(f"lambda {names}: run(steps, [{names}], results)", scope)
    compiled = corsac.compile(function, fullgraph=True)
    with torch.inference_mode():
        expected = function(*inputs)
        for _ in range(2):  # with fresh and with reused memory
            found = compiled(*inputs)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("block", range(10))
def test_random_programs(block):
    for seed in range(block * 25, block * 25 + 25):
        check(seed)


@pytest.mark.slow
def test_many_random_programs():
    for seed in range(250, 5000):
        check(seed)
