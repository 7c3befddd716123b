"""Training steps of programs that write to weights and statistics: gradients are those of eager mode."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac


class Averaged(nn.Module):
    """A teacher that follows the student without gradients."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = nn.Linear(8, 8), nn.Linear(8, 8)

    def follow(self):
        with torch.no_grad():
            for own, other in zip(
                self.teacher.parameters(), self.student.parameters(), strict=True
            ):
                own.mul_(0.9).add_(other, alpha=0.1)

    def forward(self, x):
        self.follow()
        with torch.no_grad():
            wanted = self.teacher(x)
        return (self.student(x) - wanted).square().mean()


class UsedAfter(Averaged):
    def forward(self, x):
        self.follow()
        return (self.student(x) - self.teacher(x)).square().mean()


class UsedBefore(Averaged):
    def forward(self, x):
        wanted = x + self.teacher.weight.sum(0)
        self.follow()
        return (self.student(x) - wanted).square().mean()


class Norm(nn.Module):
    """A layer and a batch norm."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)


class ReadBefore(Norm):
    def forward(self, x):
        x = self.linear(x)
        return (x * self.norm.running_var).mean() + self.norm(x).square().mean()


class ReadAfter(Norm):
    def forward(self, x):
        x = self.linear(x)
        y = self.norm(x)
        return (x * self.norm.running_var).mean() + y.square().mean()


class BothModes(Norm):
    def forward(self, x):
        x, own = self.linear(x), self.norm
        known = F.batch_norm(x, own.running_mean, own.running_var, own.weight, own.bias)
        return own(x).square().mean() + known.sin().mean()


class Twice(Norm):
    def forward(self, x):
        return self.norm(self.linear(self.norm(self.linear(x)))).square().mean()


def steps(make, calls, compile):
    """Losses, gradients and buffers of four steps, with several calls before each backward pass."""
    torch.manual_seed(0)
    model = make()
    run = corsac.compile(model) if compile else model
    found = []
    for _ in range(4):
        x = torch.randn(16, 8)
        loss = sum(run(x * (call + 1)) for call in range(calls))
        loss.backward()
        found.append(loss.detach())
    gradients = [own.grad for own in model.parameters()]
    return found, gradients, [own.detach() for own in (*model.buffers(), *model.parameters())]


# Statistics that a batch norm writes and that are read, too, are of the last call before a backward pass.
@pytest.mark.parametrize(
    ("make", "calls"),
    [
        *((make, calls) for make in (Averaged, UsedAfter, UsedBefore, Twice) for calls in (1, 2)),
        *((make, 1) for make in (ReadBefore, ReadAfter, BothModes)),
    ],
)
def test_gradients_are_those_of_eager_mode(make, calls):
    ours, theirs = (steps(make, calls, compile) for compile in (True, False))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
