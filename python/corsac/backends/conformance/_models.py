"""Programs with modules, gradients, control flow, sizes that change, and threads."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from corsac.backends.conformance._program import Programs, floats, integers

models = Programs("models")
gradients = Programs("gradients")
shapes = Programs("shapes")
control = Programs("control flow")
threads = Programs("threads")


def _wanting(*shape: int, seed: int = 1) -> torch.Tensor:
    return floats(*shape, seed=seed).requires_grad_()


@models(lambda: [(floats(2, 3, 8, 8),)])
class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.eval()

    def forward(self, x):
        return self.layers(x).flatten(1)


@models(lambda: [(integers(2, 5, high=11),)])
class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.qkv, self.norm = nn.Linear(8, 24), nn.LayerNorm(8)

    def forward(self, tokens):
        x = self.norm(self.embedding(tokens))
        q, k, v = self.qkv(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True) + x


@models(lambda: [(floats(4, 6),)], exact=False)
def random_numbers(x):
    return F.dropout(x, 0.5, training=True) + torch.rand_like(x)


@gradients(lambda: [(_wanting(3, 4), _wanting(4, 2, seed=2))], backward=True)
def gradients_of_inputs(x, y):
    return (x @ y).tanh()


def _descend(model: nn.Module) -> None:
    with torch.no_grad():
        for own in model.parameters():
            own.sub_(own.grad * 0.1)
            own.grad = None


@gradients(lambda: [(floats(5, 4),)] * 3, backward=True, between=_descend)
class GradientsOfWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.second(self.first(x).relu())


@gradients(lambda: [(_wanting(3),)], backward=True)
def partly_detached(x):
    return x.detach() * x, x.sin()


@gradients(lambda: [(_wanting(3),)], backward=True)
def without_gradients_inside(x):
    with torch.no_grad():
        y = x * 2
    return y, x + 1


@shapes(lambda: [(floats(n, 3),) for n in (2, 5, 1, 7, 2)])
def rows_that_vary(x):
    return x.relu().sum(0), x.shape[0] * 2


@shapes(lambda: [(floats(n, m),) for n, m in ((2, 3), (4, 5), (3, 2))], dynamic=True)
def sizes_as_symbols(x):
    return x.reshape(-1) * x.shape[1], x.mean(1)


@shapes(lambda: [(floats(2, 3),), (floats(2, 3).double(),), (floats(6),), (integers(4),)])
def types_that_vary(x):
    return x + 1


@control(lambda: [(floats(3), floats(3, seed=seed)) for seed in (2, 3, 4, 5)])
def branch_on_values(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


@control(lambda: [(floats(3), 2), (floats(3), 4)])
def loop_over_a_number(x, times):
    for step in range(times):
        x = x * 2 + step
    return x


@threads(lambda: [(floats(4, 5, seed=seed),) for seed in range(8)], threads=4)
def called_by_threads(x):
    return (x * 2).relu() + x.mean()


@threads(lambda: [(floats(4, 5, seed=seed),) for seed in range(8)], threads=4)
class ModuleCalledByThreads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)

    def forward(self, x):
        return self.linear(x).sigmoid()


PROGRAMS = [*models.list, *gradients.list, *shapes.list, *control.list, *threads.list]
