"""Times of the steps of compiled models."""

import pytest
import torch
from torch import nn

import corsac


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 16, 3), nn.Linear(16, 4)

    def forward(self, x):
        return self.linear(torch.relu(self.conv(x)).mean((2, 3)))


def test_each_step_has_a_time():
    net, x = Net().eval(), torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        found = corsac.profile(corsac.compile(net, fullgraph=True), x, repeats=3)
    assert [row.operator for row in found.steps] == [
        "conv",
        "adaptive_avg_pool",
        "from_blocks",
        "linear",
    ]
    assert "-> Relu" in found.steps[0].step
    assert all(0 < row.least <= row.seconds for row in found.steps)
    assert found.seconds == pytest.approx(sum(found.by_operator().values()))
    assert found.slowest(1)[0].seconds == max(row.seconds for row in found.steps)
    lines = str(found).splitlines()
    assert lines[-1].startswith("4 steps, ") and "by operator:" in lines


def test_what_pytorch_runs_has_no_steps():
    net, x = Net(), torch.randn(1, 3, 8, 8)
    with (
        pytest.warns(corsac.HostWarning),
        pytest.raises(corsac.CompileError, match="PyTorch runs"),
    ):
        corsac.profile(corsac.compile(torch.add), x.to(torch.complex64), x)
    with pytest.raises(ValueError, match="at least one repeat"):
        corsac.profile(corsac.compile(net), x, repeats=0)
