"""Training programs with data-dependent control flow: recorded, with the gradients of PyTorch."""

import copy
import random
import warnings

import pytest
import torch
from torch import nn

import corsac
from kit.random_programs import Program, same

pytestmark = pytest.mark.recording


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x):
        x = self.first(x).relu()
        if x.mean() > 0.35:
            x = self.second(x).tanh()
        largest = x.abs().max().item()
        x = x / (largest + 1)
        if x.sum() > 1:
            return self.last(x).sum() * 2, largest
        return self.last(x).pow(2).mean(), largest


class Drops(Branches):
    """Uses random numbers before and after values are read."""

    def forward(self, x):
        x = nn.functional.dropout(self.first(x).relu(), 0.3)
        if x.mean() > 0.35:
            x = nn.functional.dropout(self.second(x).tanh(), 0.5)
        return self.last(x).sum(), 0.0


class Norms(Branches):
    """Writes to statistics after a value was read."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x):
        if x.mean() > 0:
            x = x * 2
        return self.last(self.norm(self.first(x))).sum(), 0.0


class Loops(Branches):
    def forward(self, x):
        steps = 0
        while x.norm() < 12 and steps < 4:
            x = x + self.first(x).tanh()
            steps += 1
        return self.last(x).mean(), float(steps)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def step(model, run, x, seed):
    """Loss, number, gradients and random numbers of one step."""
    torch.manual_seed(seed)
    loss, number = run(x)
    following = torch.rand(2)
    loss.backward()
    gradients = [own.grad for own in model.parameters()]
    return loss.detach(), number, gradients, x.grad, following


@pytest.mark.parametrize("kind", [Branches, Drops, Norms, Loops])
def test_steps(kind):
    torch.manual_seed(0)
    eager = kind()
    model = copy.deepcopy(eager)
    compiled = corsac.compile(model, options={"training": "native"})
    optimizers = [torch.optim.SGD(own.parameters(), 0.005) for own in (eager, model)]
    for call in range(20):
        torch.manual_seed(call)
        x = torch.randn(5, 6) + call % 3 * 0.3
        wants = call % 2 == 0
        expected = step(eager, eager, x.clone().requires_grad_(wants), call)
        found = step(model, compiled, x.clone().requires_grad_(wants), call)
        close(found, expected)
        close(list(model.buffers()), list(eager.buffers()))
        for own in optimizers:
            own.step()
            own.zero_grad()
    assert compiled._trained.captures.programs()
    assert compiled._trained._of_dynamo is None, compiled.explain()
    assert "values decide" in compiled.explain()


def test_sizes_that_depend_on_values_are_for_dynamo():
    class Routes(Branches):
        def forward(self, x):
            kept = x[x[:, 0] > 0]
            return self.last(self.first(kept)).sum(), 0.0

    model = Routes()
    eager = copy.deepcopy(model)
    compiled = corsac.compile(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in range(4):
            torch.manual_seed(call)
            x = torch.randn(5, 6)
            close(step(model, compiled, x.clone(), 0), step(eager, eager, x.clone(), 0))
    assert not compiled._trained.captures.programs()


def test_inputs_that_want_gradients_or_not_have_steps_of_their_own():
    layer = nn.Linear(4, 4)

    def function(x):
        y = x * 3
        if x.detach().sum() > 0:
            y = y.exp()
        return layer(y).sum()

    compiled = corsac.compile(function, options={"training": "native"})
    for call in range(8):
        for wants in (False, True):
            x = torch.full((2, 4), 0.1 * (-1) ** call, requires_grad=wants)
            other = x.detach().clone().requires_grad_(wants)
            compiled(x).backward()
            function(other).backward()
            close(x.grad, other.grad)


def check(seed):
    eager, model = Program(seed, changes=False), Program(seed, changes=False)
    compiled = corsac.compile(model, options={"training": "native"})
    random_ = random.Random(seed)
    for call in range(6):
        torch.manual_seed(random_.randrange(3))
        given = torch.randint(-2, 3, (2, random_.choice([2, 3]), 3)).float()
        outcomes = []
        for own, run in ((eager, eager), (model, compiled)):
            x, y = (part.clone().requires_grad_(call % 2 == 0) for part in given)
            torch.manual_seed(call)
            try:
                tensors, *others = run(x, y)
            except (RuntimeError, IndexError, ValueError, ZeroDivisionError, TypeError) as error:
                outcomes.append(type(error).__name__)
                continue
            following = torch.rand(2)
            wanting = [part.sum() for part in tensors if part.requires_grad]
            own.zero_grad()
            if wanting:
                sum(wanting).backward()
            # Gradients of values that do not affect the loss are zero, as with torch.compile.
            gradients = [
                torch.zeros_like(part) if part.grad is None else part.grad
                for part in (*own.parameters(), x, y)
            ]
            outcomes.append(([part.detach() for part in tensors], others, following, gradients))
        where = f"seed {seed}, call {call}\n{model.source}\n{compiled.explain()}"
        same(*reversed(outcomes), where)


@pytest.mark.parametrize("seed", range(25))
def test_random_programs(seed):
    check(seed)


@pytest.mark.slow
def test_many_random_programs():
    for seed in range(25, 400):
        check(seed)
