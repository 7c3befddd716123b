"""Programs about element types, constants, and tensors without elements or dimensions."""

from __future__ import annotations

import torch

from corsac.backends.conformance._program import Programs, floats, integers

dtypes = Programs("dtypes")
sizes = Programs("sizes")
constants = Programs("constants")


@dtypes(lambda: [(floats(4, 5),)])
def float32_arithmetic(x):
    return (x * 2 + 1).relu() / 3


@dtypes(lambda: [(floats(4, 5).double(),)])
def float64_arithmetic(x):
    return (x.sin() * 2 - 1).exp()


@dtypes(lambda: [(floats(4, 5).half(),)])
def float16_arithmetic(x):
    return x * 2 + 1


@dtypes(lambda: [(floats(4, 5).bfloat16(),)])
def bfloat16_arithmetic(x):
    return x * 2 + 1


@dtypes(lambda: [(integers(4, 5), integers(4, 5) + 1)])
def int64_arithmetic(x, y):
    return x * y - 3, x // y, x % y


@dtypes(lambda: [(integers(3, 4, high=200, dtype=torch.uint8),)])
def uint8_wraps_around(x):
    return x + x


@dtypes(lambda: [(floats(6) > 0, floats(6, seed=2) > 0)])
def booleans(x, y):
    return x & y, x | y, ~x, x ^ y


@dtypes(lambda: [(torch.complex(floats(3), floats(3, seed=2)),)])
def complex_numbers(x):
    return x * x.conj(), x.abs()


@dtypes(lambda: [(integers(4), floats(4))])
def promotion(x, y):
    return x + y, x / 2, x + 1.5, x * True


@dtypes(lambda: [(floats(5) * 3,)])
def casts(x):
    return x.long(), x.to(torch.float64), x > 0, (x > 0).float()


def _not_finite() -> torch.Tensor:
    return torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0, -0.0])


@dtypes(lambda: [(_not_finite(),)])
def infinities_and_nan(x):
    return x + 1, x.isnan(), x * 0


@dtypes(lambda: [(_not_finite(),)])
def largest_of_nan(x):
    return torch.maximum(x, torch.zeros(5)), x.clamp(-1, 1)


@sizes(lambda: [(torch.empty(0, 3),)])
def no_elements(x):
    return x + 1, x.sum(), x.sum(0), torch.cat([x, x])


@sizes(lambda: [(torch.empty(0, 4), floats(4, 3))])
def product_without_rows(x, y):
    return x @ y


@sizes(lambda: [(floats(4, 0), floats(0, 3))])
def product_over_nothing(x, y):
    return x @ y


@sizes(lambda: [(torch.tensor(2.5), torch.tensor(3))])
def scalars(x, y):
    return x * y, x.exp(), y + 1


@sizes(lambda: [(torch.tensor(2.5), floats(2, 3))])
def scalar_and_tensor(x, y):
    return x * y, (y * x).mean()


@sizes(lambda: [(floats(1, 1, 1),)])
def single_element(x):
    return x.squeeze(), x.sum(), x.reshape(())


@sizes(lambda: [(floats(3, 1, 4), floats(2, 1))])
def broadcasting(x, y):
    return x + y, (x * y).sum(-1)


@constants(lambda: [(floats(3),), (floats(3, seed=2),)])
def constant_tensor(x):
    return x * torch.tensor([1.0, 2.0, 3.0]) + torch.ones(3)


@constants(lambda: [(floats(3),), (floats(3, seed=2),)])
def returns_a_constant(x):
    return x + 1, torch.arange(4), 7, "text", 2.5


@constants(lambda: [(floats(3),), (floats(3, seed=2),)])
def written_constant(x):
    total = torch.zeros(3)
    total += x
    total[0] = x[1]
    return total


@constants(lambda: [(floats(4),)])
def made_like_an_input(x):
    return torch.zeros_like(x) + 2, torch.full_like(x, 3.0), x.new_ones(2)


PROGRAMS = [*dtypes.list, *sizes.list, *constants.list]
