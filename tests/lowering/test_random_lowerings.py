"""Random programs with views, writes, random numbers and operators that stay on the host."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import corsac
from corsac import fx
from corsac.lowering import LoweringError

PURE: tuple[Callable[..., Any], ...] = (
    lambda x, y: torch.relu(x),
    lambda x, y: torch.sin(x),
    lambda x, y: x + y,
    lambda x, y: x * y,
    lambda x, y: torch.maximum(x, y),
    lambda x, y: torch.nn.functional.dropout(x, 0.5, False),
    lambda x, y: torch.cat([x[:2], y[2:]]),
)
VIEWS: tuple[Callable[..., Any], ...] = (
    lambda x, y: x.t(),
    lambda x, y: x.reshape(2, 8).reshape(4, 4),
    lambda x, y: x[1:3].repeat(2, 1),
    lambda x, y: x.chunk(2)[0].expand(2, 2, 4).reshape(4, 4),
    lambda x, y: x.unsqueeze(0).squeeze(0),
    lambda x, y: x[0].expand(4, 4).clone(),
)
WRITES: tuple[Callable[..., Any], ...] = (
    lambda x, y: x.add_(1),
    lambda x, y: x.mul_(y),
    lambda x, y: torch.relu_(x),
    lambda x, y: x.t().clamp_(max=1),
    lambda x, y: x[2].sub_(y[1]),
    lambda x, y: x.unsqueeze(0).neg_().squeeze(0),
)
SMALL = (WRITES[4],)
HOST: tuple[Callable[..., Any], ...] = (
    lambda x, y: torch.special.i0e(x),
    lambda x, y: x + torch.rand_like(y, memory_format=torch.contiguous_format),
    lambda x, y: x.erfinv_().nan_to_num_(0.5, 0.5, -0.5),
    lambda x, y: x.clone().index_fill_(0, torch.tensor([1]), 0.5),
    lambda x, y: x * y.sum().tanh().item(),
)


def program(seed: int) -> Callable[..., Any]:
    """A program of about a dozen steps, on values of four by four."""
    choose = random.Random(seed)
    kinds = choose.choices([PURE, VIEWS, WRITES, HOST], [6, 3, 3, 1], k=choose.randint(4, 16))
    steps = [(choose.choice(kind), choose.random(), choose.random()) for kind in kinds]
    kept = [choose.random() for _ in range(choose.randint(1, 4))]

    def run(x, y):
        values = [x * 1, x, y]
        for function, first, second in steps:
            # Recent values are used more often.
            a, b = (values[-1 - int(len(values) * at**2)] for at in (first, second))
            result = function(a, b)
            values.append(result if function not in SMALL else result.expand(4, 4).clone())
        return [values[int(len(values) * at)] for at in kept], values[-1]

    return run


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_random_programs_compute_the_same(first: int):
    lowered_nodes = 0
    for seed in range(first, first + 40):
        model = fx.symbolic_trace(program(seed)).eval()
        generator = torch.Generator().manual_seed(seed)
        inputs = [torch.randn(4, 4, generator=generator) * 0.5 for _ in range(2)]
        lowered = corsac.lower(model, "onnxruntime", inputs)
        lowered_nodes += sum(r.part is not None for r in lowered.meta["lowering"].placements)
        theirs, mine = ([x.clone() for x in inputs] for _ in range(2))
        torch.manual_seed(seed)
        try:
            expected = model(*theirs)
        except RuntimeError as error:
            assert "single memory location" in str(error)
            continue
        torch.manual_seed(seed)
        actual = lowered(*mine)
        for a, b in ((actual, expected), (mine, theirs)):
            torch.testing.assert_close(
                a, b, rtol=1e-4, atol=1e-5, equal_nan=True, check_stride=False,
                msg=lambda text, seed=seed: f"seed {seed}: {text}",
            )  # fmt: skip
    assert lowered_nodes > 40


def test_numbers_of_elements_are_not_taken_for_known():
    model = fx.symbolic_trace(lambda x: (x * x.sum().item(), x.max().item(), x.dtype, x.dim() * 2))
    x = torch.randn(3)
    lowered = corsac.lower(model.eval(), "onnxruntime", x)
    for x in (torch.randn(3), torch.ones(3)):
        product, largest, dtype, rank = lowered(x)
        torch.testing.assert_close(product, x * x.sum())
        assert (largest, dtype, rank) == (x.max().item(), torch.float32, 2)
    with pytest.raises(LoweringError, match=r"item .*cannot run on onnxruntime"):
        corsac.lower(model, "onnxruntime", x, strict=True)
