"""Programs about views and about writing in place."""

from __future__ import annotations

import torch
from torch import nn

from corsac.backends.conformance._program import Programs, floats, integers

views = Programs("views")
mutation = Programs("mutation")


@views(lambda: [(floats(4, 6),)])
def view_of_an_input(x):
    return x.view(3, 8)


@views(lambda: [(floats(4, 6),)])
def transposed_input(x):
    return x.t(), x + 1


@views(lambda: [(floats(4, 6),)])
def the_input_itself(x):
    return x, x * 2


@views(lambda: [(floats(4, 6),)])
def results_that_share(x):
    y = x * 2
    return y, y[1:], y.view(-1)


@views(lambda: [(floats(4, 6),)])
def the_same_result_twice(x):
    y = x.relu()
    return y, y


@views(lambda: [(floats(4, 6),)])
def slices(x):
    return x[1:3, ::2] + 1, x[:, -1] * 2, x[None, 0] - 1


@views(lambda: [(floats(6, 4).t(), floats(4, 12)[:, ::2])])
def inputs_with_strides(x, y):
    return x + y, (x * y).sum(1)


@views(lambda: [(floats(1, 3).expand(4, 3),)])
def expanded_input(x):
    return x * 2, x.sum(0)


@views(lambda: [(floats(2, 3, 4),)])
def permuted_and_copied(x):
    return x.permute(2, 0, 1).contiguous() + 1, x.transpose(0, 2).reshape(-1) * 2


@views(lambda: [(floats(5, 4), integers(3, high=5))])
def indexed_by_a_tensor(x, i):
    return x[i], x.index_select(0, i), x[i, 0]


@mutation(lambda: [(floats(3, 4),), (floats(3, 4, seed=2),)])
def writes_to_an_input(x):
    x.add_(1)
    return x * 2


@mutation(lambda: [(floats(3, 4),)])
def writes_to_a_view_of_an_input(x):
    x[1:].mul_(3)
    return x.sum()


@mutation(lambda: [(floats(3, 4), floats(3, 4, seed=2))])
def copies_into_an_input(x, y):
    x.copy_(y * 2)


@mutation(lambda: [(floats(3, 4),)])
def assigns_to_an_input(x):
    x[0] = 5.0
    x[:, 1] = x[:, 2] * 2
    return x + 1


@mutation(lambda: [(floats(3, 4),)])
def writes_to_a_value(x):
    y = x * 2
    y.add_(1).clamp_(min=0)
    y[0] = 0.0
    return y


@mutation(lambda: [(floats(3, 4),)])
def writes_to_a_value_with_views(x):
    y = x * 2
    first = y[0]
    y.add_(10)
    return first, y.sum()


@mutation(lambda: [(x, x) for x in (floats(3),)] + [(floats(3), floats(3, seed=2))])
def one_tensor_given_twice(x, y):
    x.add_(1)
    return x * y


@mutation(lambda: [(floats(2, 3),), (floats(2, 3, seed=2),), (floats(2, 3, seed=3),)])
class WritesToABuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x.sum(0))
        return x + self.total


@mutation(lambda: [(floats(8, 3),), (floats(8, 3, seed=2),)], backward=True)
class BatchNormThatTrains(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(x) * 2


def _halve(model: nn.Module) -> None:
    with torch.no_grad():
        for own in model.parameters():
            own.mul_(0.5)


@mutation(lambda: [(floats(2, 3),)] * 3, between=_halve)
class WeightsWrittenBetweenCalls(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x):
        return self.linear(x)


PROGRAMS = [*views.list, *mutation.list]
