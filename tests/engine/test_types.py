"""Integers and booleans on the engine, against PyTorch."""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac
from kit.on_engine import agree, random

INTS = torch.tensor([[3, -1, 0, 7], [2**40, -5, 2, 2]])
OTHERS = torch.tensor([[2, -3, 5, 7], [1, 4, -2, 2]])
FLAGS = torch.tensor([[True, False, True, True], [False, False, True, False]])
PLACES = torch.tensor([[1, 0, -1], [2, 2, 0]])


BINARY = [
    torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, torch.floor_divide,
    torch.remainder, torch.fmod, torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor, torch.div,
    torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge, torch.logical_and,
    torch.logical_or, torch.logical_xor,
]  # fmt: skip


NO_NUMBERS = {"maximum", "minimum", "logical_and", "logical_or", "logical_xor"}


@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
def test_functions_of_two_integers(function):
    agree(function, INTS, OTHERS)
    agree(function, INTS[:, :1], OTHERS[0])
    if function.__name__ not in NO_NUMBERS:
        agree(lambda x: function(x, 3), INTS)
    agree(function, INTS[:0], OTHERS[:0])


@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
def test_functions_of_an_integer_and_a_number(function):
    if "bitwise" in function.__name__:
        pytest.skip("numbers have no bits")
    agree(function, INTS, random(2, 4) + 5)
    agree(function, random(4), OTHERS)
    if function.__name__ not in NO_NUMBERS:
        agree(lambda x: function(x, 2.5), INTS)


@pytest.mark.parametrize(
    "function",
    [
        torch.logical_and, torch.logical_or, torch.logical_xor, torch.bitwise_and, torch.bitwise_or,
        torch.bitwise_xor, torch.eq, torch.add, torch.mul, torch.lt, torch.maximum,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_functions_of_truth_values(function):
    agree(function, FLAGS, FLAGS.flip(0))
    agree(function, FLAGS, INTS) if "bitwise" not in function.__name__ else None


COMPARISONS = [torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge]


@pytest.mark.parametrize("function", COMPARISONS, ids=lambda f: f.__name__)
def test_comparisons(function):
    x = torch.tensor([0.0, -0.0, 1.0, float("nan"), float("inf"), -float("inf")])
    agree(function, x[:, None], x)
    agree(lambda x: function(x, 1), x)
    agree(lambda x: function(x, 0.5), INTS)


def test_python_operators():
    agree(lambda x, y: (x > y) & ~(x == 3) | (y < 0), INTS, OTHERS)
    agree(lambda x: (x // 2, x % 3, -x, x + True, 7 - x, x * 2.5), INTS)
    agree(lambda x: ~x, INTS)
    agree(lambda x: x >= 1, FLAGS)
    agree(operator.and_, INTS, OTHERS)
    agree(lambda x: 1 / x, OTHERS)


CASTS = [torch.Tensor.float, torch.Tensor.long, torch.Tensor.bool]


@pytest.mark.parametrize("function", CASTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("x", [INTS, FLAGS, torch.tensor([0.0, -1.9, 2.7, 1e10, -0.0])])
def test_casts(function, x):
    agree(lambda x: function(x) if False else getattr(x, function.__name__)(), x)
    agree(lambda x: x.to(torch.float32) + 1, x)
    agree(lambda x, y: x.type_as(y), x, INTS)


def test_division_by_zero_is_an_error():
    compiled = corsac.compile(lambda x, y: x // y, fullgraph=True)
    with torch.no_grad(), pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(INTS, OTHERS * 0)
    with torch.no_grad():
        assert compiled(INTS, OTHERS).equal(INTS // OTHERS)


def test_where_and_masks():
    x, y = random(2, 4), random(4)
    agree(torch.where, FLAGS, x, y)
    agree(lambda c, x: torch.where(c, x, 2), FLAGS, x)
    agree(lambda c, x: torch.where(c, x, 2.5), FLAGS, INTS)
    agree(torch.where, FLAGS[:, :1], INTS, OTHERS)
    agree(torch.where, FLAGS, FLAGS[:1], FLAGS[1:])
    agree(lambda x, m: x.masked_fill(m, float("-inf")), x, FLAGS)
    agree(lambda x, m: x.masked_fill(m == 0, -1), INTS, FLAGS)
    agree(lambda x: x.clamp(min=0, max=4), INTS)
    agree(lambda x, a, b: x.clamp(a, b), x, x - 0.1, y)
    agree(lambda x: torch.isnan(x), x / 0)


def test_numbers_that_are_made():
    agree(lambda x: torch.arange(x.shape[1]) + x, INTS)
    agree(lambda x: torch.arange(2, 14, 3) + x, INTS)
    agree(lambda x: torch.arange(0, 2, 0.5) + x, random(4))
    agree(lambda x: torch.full((2, 3), x.shape[0]) + torch.zeros(2, 1) + x[0, 0], INTS)
    agree(lambda x: torch.ones_like(x) + torch.zeros_like(x, dtype=torch.float32), INTS)
    agree(lambda x: x.new_full((2,), 3) * x.new_ones(2) + x[0, 0] + x.new_zeros(1), INTS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_elements_that_are_moved(dtype):
    x = (random(3, 4, 5) * 4).to(dtype)
    agree(lambda x: (x.permute(2, 0, 1), x.flatten(1), x[..., 1:3, ::2], x[None, 0, -1]), x)
    agree(lambda x: torch.cat([x, x[:, :1]], 1), x)
    agree(lambda x: torch.stack([x, x], -1).unbind(1)[2], x)
    agree(lambda x: (x[:1].expand(4, -1, 5), x.chunk(2, 2)[1], x.roll((1, -2), (0, 1))), x)
    agree(lambda x: F.pad(x, (1, 2, 0, 3)), x)
    agree(lambda x: (x.flip(0, 2), x.flip(1), torch.fliplr(x), torch.flipud(x)), x)
    agree(lambda x: (x.tril(), x.triu(1), x.tril(-1)), x)
    agree(lambda x: x.flip(0).flip(1), x[:0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_elements_that_are_chosen(dtype):
    x = (random(3, 4, 5) * 4).to(dtype)
    agree(lambda x, i: x[i], x, PLACES)
    agree(lambda x, i: x[:, i], x, PLACES)
    agree(lambda x, i: x[..., i, None], x, PLACES)
    agree(lambda x, i, j: x[i, j], x, PLACES, PLACES)
    agree(lambda x, i, j: x[:, i, j], x, PLACES, PLACES[:1])
    agree(lambda x, i, j: x[i, :, j], x, PLACES, PLACES[0])
    agree(lambda x, i: x[1:, i, ::2], x, PLACES)
    agree(lambda x, i: torch.index_select(x, 1, i), x, torch.tensor([3, 0, 0]))
    agree(lambda x, i: torch.gather(x, 1, i), x, torch.tensor([[[1, 0, 3]], [[2, 2, 0]]]))
    agree(torch.take, x, PLACES)
    agree(lambda x, i: torch.take_along_dim(x, i, 0), x, torch.tensor([[[2]], [[0]]]))


def test_indices_out_of_range_are_an_error():
    compiled = corsac.compile(lambda x, i: x[i], fullgraph=True)
    x = random(3, 4)
    with torch.no_grad():
        with pytest.raises(IndexError, match="index 3 is out of bounds for dimension 0"):
            compiled(x, torch.tensor([1, 3]))
        assert compiled(x, torch.tensor([1, -3])).equal(x[[1, 0]])


def test_embeddings():
    torch.manual_seed(0)
    agree(nn.Embedding(9, 4).eval(), torch.tensor([[1, 8, 0], [3, 3, 3]]))
    agree(nn.Embedding(9, 4, padding_idx=0).eval(), torch.tensor([[1, 8, 0], [3, 3, 3]]))
    agree(F.embedding, PLACES.abs(), random(9, 4))
    compiled = corsac.compile(nn.Sequential(nn.Embedding(9, 4)).eval(), fullgraph=True)
    with torch.no_grad(), pytest.raises(IndexError, match="index out of range"):
        compiled(torch.tensor([-1]))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_running_sums(dim):
    for x in (random(3, 4, 5), INTS, FLAGS, random(3, 0)):
        agree(lambda x: torch.cumsum(x, dim), x)
        agree(lambda x: torch.cumprod(x, dim), x)


@pytest.mark.parametrize("dim", [None, 0, 1, -1])
def test_reductions_of_integers(dim):
    where = () if dim is None else (dim,)
    for x in (INTS, FLAGS):
        agree(lambda x: (x.sum(*where), x.any(*where), x.all(*where), x.prod(*where)), x)
        agree(lambda x: (x.amax(*where), x.amin(*where)), x)
        agree(lambda x: x.float().mean(*where), x)
    agree(lambda x: (x.any(*where), x.all(*where), x.prod(*where)), random(2, 3))


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("descending", [True, False])
def test_sorting(dim, descending):
    nan = random(4, 5, 3)
    nan[1, 2] = float("nan")
    for x in (random(4, 5, 3), INTS * 10 + torch.arange(4), nan):
        if dim >= x.dim():
            continue
        agree(lambda x: torch.sort(x, dim=dim, descending=descending, stable=True), x)
        agree(lambda x: torch.topk(x, 2, dim, descending), x)
        agree(lambda x: torch.max(x, dim) if descending else torch.min(x, dim), x)
        agree(lambda x: x.argmax(dim) if descending else x.argmin(dim, keepdim=True), x)
    agree(lambda x: torch.argsort(x, dim, descending), random(4, 5))


def test_extremes():
    agree(lambda x: (x.max(), x.min(), x.argmax(), x.argmin(), torch.msort(x)), random(4, 5))
    agree(lambda x: (x.max(), x.min(), x.argmax()), INTS)
    agree(lambda x, y: (torch.max(x, y), torch.min(x, y)), INTS, OTHERS)
    agree(lambda x, y: (torch.max(x, y), torch.min(x, y)), random(4), random(3, 1))
    agree(lambda x: (x.max(), x.sum()), random())


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("mask", ["none", "causal", "flags", "numbers"])
def test_attention_of_grouped_heads(heads, mask):
    q, k, v = random(2, heads[0], 5, 8), random(2, heads[1], 7, 8), random(2, heads[1], 7, 6)
    given = random(2, 1, 5, 7)
    if mask == "flags":
        given = given > 0
        given[0, 0, 1] = False
    grouped = heads[0] != heads[1]
    if mask in ("flags", "numbers"):
        agree(
            lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, enable_gqa=grouped),
            q, k, v, given,
        )  # fmt: skip
    else:
        causal = mask == "causal"
        agree(
            lambda q, k, v: F.scaled_dot_product_attention(
                q, k, v, is_causal=causal, enable_gqa=grouped
            ),
            q, k, v,
        )  # fmt: skip


def test_a_buffer_of_integers_is_a_weight():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("places", torch.tensor([2, 0, 1]))
            self.register_buffer("mask", torch.tensor([True, False, True]))

        def forward(self, x):
            return x[:, self.places].masked_fill(self.mask, 0) + 1

    agree(Net(), random(2, 3))
