"""Times, ranges of values, and the tree of modules."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import corsac
import corsac.fx as fx
from corsac.analysis import Machine, profile, ranges, summary


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) + x


def test_times_of_nodes_add_up_to_the_whole() -> None:
    for _ in range(10):
        report = profile(fx.symbolic_trace(Network()), torch.rand(512, 256), repeats=7)
        # On a busy machine either measurement may be delayed.
        if report.sum_seconds == pytest.approx(report.seconds, rel=0.5):
            break
    else:
        pytest.fail(f"{report.sum_seconds} s together, {report.seconds} s as a whole")
    assert [row.name for row in report.rows] == [
        "x", "layers_0", "layers_1", "layers_2", "add", "output",
    ]  # fmt: skip
    assert sum(row.share for row in report.rows) == pytest.approx(1)
    assert report.slowest(2)[0].name in ("layers_0", "layers_2")
    assert all(row.least <= row.seconds for row in report.rows)


def test_the_roofline_of_a_product_is_arithmetic_and_of_a_sum_is_memory() -> None:
    report = profile(fx.symbolic_trace(Network()), torch.rand(512, 256), repeats=3)
    bounds = {row.name: row.bound for row in report.rows}
    assert bounds["add"] == "memory"
    assert bounds["x"] is None
    known = [row.roofline for row in report.rows if row.roofline is not None]
    assert len(known) == 4 and all(part > 0 for part in known)
    assert "GFLOP/s" in str(report)
    lines = str(report).splitlines()
    column = lines[0].index("source")
    (add,) = (line for line in lines if line.startswith("add "))
    assert add[column - 2 : column] == "  " and add[column:].startswith(f"{__file__}:")
    assert len(report.to_dataframe()) == len(report.to_dict()["nodes"]) == 6


def test_the_least_time_is_that_of_the_slower_part() -> None:
    peaks = Machine(gflops=100.0, gbytes=10.0)
    assert peaks.ridge == 10
    assert peaks.least_seconds(1e9, 1e7) == pytest.approx(0.01)
    assert peaks.least_seconds(1e9, 1e9) == pytest.approx(0.1)


def test_a_profile_needs_a_run() -> None:
    with pytest.raises(ValueError, match="at least one repeat"):
        profile(fx.symbolic_trace(Network()), torch.rand(1, 256), repeats=0)


def test_ranges_are_those_of_all_batches() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) / 2

    seen = ranges(
        fx.symbolic_trace(program), torch.tensor([-1.0, 4.0]), (torch.tensor([float("nan"), 8.0]),)
    )
    assert (seen["x"].least, seen["x"].greatest, seen["x"].nan) == (-1, 8, 1)
    assert (seen["relu"].least, seen["relu"].greatest) == (0, 8)
    assert seen["relu"].zeros == pytest.approx(0.25)
    assert (seen["truediv"].max_abs, seen["truediv"].count) == (4, 4)


def test_a_summary_is_the_tree_of_modules() -> None:
    found = summary(Network(), torch.empty(3, 256))
    assert [(row.path, row.kind, row.depth) for row in found.rows] == [
        ("", "Network", 0),
        ("layers", "Sequential", 1),
        ("layers.0", "Linear", 2),
        ("layers.1", "ReLU", 2),
        ("layers.2", "Linear", 2),
    ]
    assert found.rows[2].output == "float32[3, 512]"
    assert found.rows[2].parameters == 256 * 512 + 512
    assert found.rows[0].mult_adds == 2 * 3 * 256 * 512
    assert found.parameters == found.trainable_parameters == 2 * 256 * 512 + 512 + 256
    text = str(found)
    assert "├─Sequential (layers): 1-1" in text and "Total params: 262,912" in text
    assert len(found.to_dataframe()) == 5
    assert [row.depth for row in summary(Network(), torch.empty(3, 256), depth=1).rows] == [0, 1]


def test_a_summary_is_at_hand() -> None:
    assert corsac.summary is summary
