"""int32, int16, int8 and uint8: PyTorch's types and values, natively."""

import warnings

import pytest
import torch

import corsac

DTYPES = [torch.int32, torch.int16, torch.int8, torch.uint8]


def check(function, *inputs, native=True):
    compiled = corsac.compile(function, fullgraph=native)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error" if native else "ignore", corsac.HostWarning)
            found = compiled(*inputs)
        expected = function(*inputs)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def numbers(dtype, *shape):
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max, shape, generator=torch.Generator().manual_seed(0)).to(
        dtype
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: x * y * x - y,
        lambda x, y: x & y | x ^ y,
        lambda x, y: (~x, x == y, x < y, x.bool(), x.float(), x.long()),
        lambda x, y: (x + 1, 3 * y, x > 5, x // 3, x % 7, x**2),
        lambda x, y: (x.sum(), x.sum(1), x.prod(0), x.cumsum(1), x.amax(1), y.argmin(0)),
        lambda x, y: (x.float() * 0.5, x / 3, x * 1.5, (x + y).float().relu()),
        lambda x, y: (x.clamp(2, 5), torch.maximum(x, y), torch.where(x > y, x, y)),
        lambda x, y: (x.t().contiguous(), x[:, 1:], torch.cat([x, y]), x.view(-1), x.flip(0)),
        lambda x, y: (x.sort(1), x.topk(2, 1), x.unsqueeze(0).expand(2, 5, 4), x.tril()),
        lambda x, y: (x.to(torch.uint8), x.to(torch.int8), x.to(torch.int16), x.to(torch.int32)),
        lambda x, y: (x.any(), x.all(1), x.masked_fill(x > 3, 1), torch.full_like(x, 7)),
        lambda x, y: x.clone().add_(y).mul_(3),
    ],
)
def test_values_and_types(dtype, function):
    check(function, numbers(dtype, 5, 4), numbers(dtype, 5, 4))


def test_mixed_types():
    for a in DTYPES:
        for b in [*DTYPES, torch.int64, torch.float32, torch.bool]:
            check(lambda x, y: (x + y, x * y, x < y), numbers(a, 6), torch.ones(6).to(b))


def test_floats_become_integers():
    x = torch.tensor([0.5, -1.5, 100.25, 3.0])
    check(lambda x: (x.int(), x.to(torch.int16), x.to(torch.int8)), x)


@pytest.mark.parametrize("dtype", [torch.int64, *DTYPES])
def test_floats_that_are_no_integers(dtype):
    """x86 converts values outside of 32 bits to the least integer, and narrower types take its low bits."""
    inf, nan = float("inf"), float("nan")
    odd = [inf, -inf, nan, 3e9, -3e9, 1e10, 5.5e10, 1e20, -1e20, 2147483648.0, -2147483648.0]
    x = torch.tensor([*odd, 2147483520.0, 70000.7, -70000.7, 300.5, -300.5, 40000.2, -0.9] * 3)
    check(lambda x: (x.to(dtype), (x * 2).to(dtype), x[::3].type(dtype), x.to(dtype) + 1), x)


def test_indices_of_int32():
    table, x = torch.randn(7, 3), torch.tensor([[1, 2], [6, 0]], dtype=torch.int32)
    check(lambda x: torch.nn.functional.embedding(x, table), x)
    check(lambda x: table[x], x)
    check(lambda x: table.index_select(0, x[0]), x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.arange(4, device=x.device).gather(0, x),
        lambda x: x > -1,
        lambda x: torch.arange(4)[x],
    ],
)
def test_what_pytorch_does_otherwise_is_left_to_it(function):
    x = torch.tensor([0, 1, 1, 0], dtype=torch.uint8)
    compiled = corsac.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = function(x)
        except (RuntimeError, IndexError) as error:
            with pytest.raises(type(error)):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), expected)


def test_weights_of_narrow_integers():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("steps", torch.arange(4, dtype=torch.int32))
            self.register_buffer("levels", torch.tensor([3, 200], dtype=torch.uint8))

        def forward(self, x):
            return x + self.steps, self.levels * 2, (self.levels, self.steps)

    check(Model().eval(), torch.randn(2, 4))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a.index_add(0, torch.tensor([0, 0]), b),
        lambda a, b: (a + 0).index_add_(0, torch.tensor([0, 0]), b),
        lambda a, b: a.index_put((torch.tensor([0, 0]),), b, accumulate=True),
        lambda a, b: (a + 0).index_put_((torch.tensor([0, 0]),), b, accumulate=True),
        lambda a, b: a.scatter_add(0, torch.zeros(2, 3, dtype=torch.int64), b),
    ],
)
def test_sums_by_indices_are_in_range(dtype, function):
    most = torch.iinfo(dtype).max
    a, b = torch.full((2, 3), most - 5, dtype=dtype), torch.full((2, 3), most // 2, dtype=dtype)

    def program(a, b):
        c = function(a, b)
        return c, c.to(torch.int64), c // 2, c.float(), c.clamp(0, 100)

    check(program, a, b, native=False)
