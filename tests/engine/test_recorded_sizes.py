"""Programs recorded once for many sizes: computations with sizes are followed, or the program is recorded anew."""

import functools
import itertools
import math
import operator
import random
import warnings
from collections import deque, namedtuple
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves

import corsac
from corsac._models.function import module_of

pytestmark = pytest.mark.recording
SIZES = (3, 5, 4, 8, 2, 1, 7, 16, 5, 6)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", corsac.HostWarning)
        yield


def same(found, expected):
    mine, its = tree_leaves(found), tree_leaves(expected)
    assert len(mine) == len(its)
    for own, other in zip(mine, its, strict=True):
        assert type(own) is type(other)
        if isinstance(other, torch.Tensor):
            assert own.dtype == other.dtype and own.shape == other.shape
            torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-6)
        else:
            assert own == other


def recordings(compiled):
    """Number of recordings of a program: other sizes reuse a recording."""
    programs = module_of(compiled)._recorded.programs()
    return len({id(own.graph) for own in programs})


def agree(program, sizes=SIZES, make=lambda n: (torch.linspace(-1, 1, 3 * n).reshape(n, 3),)):
    compiled = corsac.compile(program)
    with torch.no_grad():
        for size in sizes:
            given = make(size)
            same(compiled(*given), program(*given))
    assert module_of(compiled)._dynamo is None
    return compiled


# Programs that are the same for all sizes: two recordings, and one more for one row, which PyTorch treats
# differently.


def flattened(x):
    return x.view(x.shape[0] * x.shape[1]) + 1


def rows(x):
    rows, _ = x.shape
    return x.reshape(1, rows, -1).transpose(1, 2) * 2


def of_size(x):
    return x.view(x.size(1), x.size(0)) * 2 if x.dim() == 2 else x


def of_negative_dimension(x):
    return x.reshape(x.size(-2) * 3) + 1


def new_tensors(x):
    positions = torch.arange(x.shape[0]).unsqueeze(1)
    return x * positions + torch.zeros(x.shape[0], 3) + x.new_ones(x.shape)


def masked(x):
    mask = torch.full((x.shape[0], x.shape[0]), float("-inf")).triu(1)
    return (mask + x @ x.T).softmax(-1)


def written_mask(x):
    mask = torch.zeros(x.shape[0], x.shape[0])
    mask[0] = 1
    mask[:, 1:] = 2
    return mask @ x


def sliced(x):
    return x[: x.shape[0] - 1 + 1] * 2, x[-x.shape[0] :]


def through_functions(x):
    def half(shape, *, by):
        return {"rows": shape[0] * by, "rest": [*shape[1:]]}

    found = half(x.shape, by=2)
    return torch.cat([x, x]).view(found["rows"], *found["rest"]) + 1


class Shape(namedtuple("Shape", "rows columns")):
    @property
    def all(self):
        return self.rows * self.columns


def through_objects(x):
    shape = Shape(*x.shape)
    return x.reshape(shape.all) + 1


def through_closures(x):
    count = x.shape[0]

    def inner():
        return x.expand(2, count, 3)

    return inner() + 1


def through_generators(x):
    def sizes():
        yield from x.shape

    return x.reshape(tuple(sizes())[::-1]) * 2


def through_iterators(x):
    first, second = (size for _, size in zip("ab", x.shape, strict=True))
    return x.reshape(second, first) * 2


def through_map(x):
    return x.reshape(list(map(lambda size: size * 1, x.shape))) * 2


def through_partial(x):
    view = functools.partial(torch.Tensor.view, x, x.shape[1])
    return view(x.shape[0]) + 1


def interpolated(x):
    return F.interpolate(x[None, None], size=(x.shape[0] * 2, 4))


def of_result(x):
    y = torch.cat([x, x, x])
    return y.reshape(y.shape[0] // 3, 3, 3) + y.shape[0] % 3


def arithmetic(x):
    n = x.shape[0]
    return torch.zeros((n + 1) * 2 - n // 1, 3) + torch.cat([x, x, x[:1], x[:1]])[: n + 2]


def in_a_loop_over_columns(x):
    return torch.stack([x[:, column] * column for column in range(x.shape[1])], 1)


def split_columns(x):
    first, second = x.split([1, 2], dim=1)
    return first * second + x.shape[0] * sum(x.unbind(1))[:, None]


def elements(x):
    return x.reshape(x.numel()) * 2


SAME = [
    flattened, rows, of_size, of_negative_dimension, new_tensors, masked, written_mask, sliced,
    through_functions, through_objects, through_closures, through_generators, through_iterators,
    through_map, through_partial, interpolated, of_result, arithmetic, in_a_loop_over_columns, split_columns, elements,
]  # fmt: skip


@pytest.mark.parametrize("program", SAME, ids=lambda own: own.__name__)
def test_one_recording_for_many_sizes(program):
    assert recordings(agree(program)) <= 3


# Programs that differ: numbers computed from sizes in a way that is not followed.


def text(x):
    return x * len(f"{x.shape[0] * 4}")


def percent(x):
    return x * len("%d rows" % x.shape[0])  # noqa: UP031


def formatted(x):
    return x * len("{} {}".format(*x.shape)), str(x.shape)


def compared(x):
    if x.shape[0] > 4:
        return x * 2
    return x * 3 if x.shape[0] == 2 else x


def between(x):
    return x * 2 if 2 < x.shape[0] <= 6 else x * 3


def of_truth(x):
    return x * 2 if x.shape[0] - 4 else x


def negated(x):
    return x * 2 if not x.shape[0] - 5 else x


def looked_up(x):
    return x * {3: 2.0, 5: 4.0}.get(x.shape[0], 7.0)


def contained(x):
    return x * 2 if x.shape[0] in (4, 5) else x


def in_a_set(x):
    return x * 2 if x.shape[0] in {4, 5, 16} else x


def keys(x):
    found = {x.shape[0]: 2, 5: 3}
    return x * len(found), x * found[x.shape[0]]


def in_sets(x):
    return x * len({x.shape[0], 4, 8})


def indexed(x):
    return x * [1, 2, 3, 4, 5][x.shape[0] % 5]


def sliced_list(x):
    return x * sum([1, 2, 3, 4, 5][: x.shape[0]])


def looped(x):
    for _ in range(x.shape[0]):
        x = x * 1.5
    return x


def while_looped(x):
    count = x.shape[0]
    while count > 1:
        x, count = x + 1, count // 2
    return x


def divided(x):
    return x / x.shape[0], x * (1 / x.shape[0]), x * x.shape[0]


def of_powers(x):
    return x * math.sqrt(x.shape[0]), x * x.shape[0] ** 0.5, x * 2 ** -x.shape[0]


def negative(x):
    return x + -x.shape[0], x + ~x.shape[0]


def summed(x):
    return x * sum(x.shape), x * math.prod(x.shape), x * max(x.shape), x * min(*x.shape, 4)


def summed_generator(x):
    return x * sum(size * 2 for size in x.shape), x if any(size == 4 for size in x.shape) else -x


def sorted_sizes(x):
    return x.reshape(sorted(x.shape)) * 2


def equal_shapes(x):
    return x * 2 if x.shape == (4, 3) else x * 3 if x.shape == torch.Size([5, 3]) else x


def equal_lists(x):
    return x * 2 if [*x.shape, 1] == [7, 3, 1] else x


def lengths(x):
    return x * len(x), x * x.numel(), x * x.shape.numel(), x * x.nelement()


def returned(x):
    return x * 2, x.shape[0], {"rows": x.shape, "set": frozenset([x.shape[0]])}


def joined(x):
    return x * len(",".join(map(str, x.shape)))


def iterated(x):
    pairs = zip(x.shape, reversed(x.shape), strict=True)
    named = {"rows": x.shape[0]}
    return x * sum(iter(named.values())), x * max(pairs)[0], x * min(enumerate(x.shape))[1]


def split_up(x):
    return sum(part.sum() for part in x.split(2)), torch.stack([row * 2 for row in x])


def chunks(x):
    return len(x.chunk(4)) * x, [part + 1 for part in x.tensor_split(3)]


def unpacked(x):
    first, *rest = x.unbind(0)
    return first * len(rest)


def mapped_by_c(x):
    return x * sum(map(float, x.shape))


def reduced(x):
    return x * functools.reduce(operator.mul, x.shape, 1)


def accumulated(x):
    return x * list(itertools.accumulate(x.shape))[-1]


def hashed(x):
    return x * (hash((x.shape[0],)) % 7)


def bits(x):
    return x * x.shape[0].bit_length(), x * (x.shape[0] & 6), x * (x.shape[0] << 1)


def matched(x):
    match x.shape[0]:
        case 4:
            return x * 2
        case 5 | 6:
            return x * 3
    match x.shape:
        case (8, _):
            return x * 4
    return x


@functools.cache
def remembered(size):
    return size % 3


def cached(x):
    return x * remembered(x.shape[0])


class Sized:
    def __init__(self, size):
        self.size = size

    def __eq__(self, other):
        return self.size == other.size

    def __len__(self):
        return self.size

    def __bool__(self):
        return self.size > 4

    def __index__(self):
        return self.size


def objects(x):
    own = Sized(x.shape[0])
    return x * len(own), x * 2 if own else x, x * 2 if own == Sized(7) else x


def as_index(x):
    return x * [*range(20)][Sized(x.shape[0])]


def of_bool(x):
    return x * bool(x.shape[0] - 3), x * int(str(x.shape[0])), x * float(x.shape[0])


def attention_heads(x):
    heads = 2 if x.shape[0] % 2 == 0 else 1
    return x.reshape(heads, -1, 3).sum(1)


def strides(x):
    return x * x.T.stride(1), x * 2 if x[:, 0].is_contiguous() else x


def of_divisors(x):
    return divmod(x.shape[0], 3)[1] * x, round(x.shape[0], -1) * x, pow(x.shape[0], 2, 5) * x


def by_identity(x):
    return x * 2 if type(x.shape[0]) is int and isinstance(x.shape[0], int) else x


def of_exceptions(x):
    try:
        [][x.shape[0]]
    except IndexError:
        return x * 2
    try:
        raise ValueError(x.shape[0])
    except ValueError as error:
        return x * error.args[0]


class Generates:
    def __init__(self, shape):
        self.shape = shape

    def __iter__(self):
        yield from self.shape


def generated_by_a_method(x):
    return x * sum(Generates(x.shape)), x * len(set(Generates(x.shape)))


def in_other_containers(x):
    named, queue = {"a": x.shape[0]}, deque([x.shape[0]])
    return x * sum(named.values()), x * queue.count(4), x * (("a", 4) in named.items())


def in_a_namespace(x):
    return x * 2 if SimpleNamespace(n=x.shape[0]) == SimpleNamespace(n=4) else x


def of_an_exception(x):
    return x * len(str(ValueError(x.shape[0] * 4)))


def enumerated(x):
    return sum(x * number for number, _ in enumerate("ab", x.shape[0]))


def sentinel(x):
    numbers = iter([*range(1, 20)])
    return x * len(list(iter(lambda: next(numbers), x.shape[0])))


def mapped_to_numbers(x):
    return x * next(map(float, x.shape)), x * next(map(bool, (x.shape[0] - 4,)))


def filtered(x):
    chosen = itertools.takewhile(lambda size: size - 4, x.shape)
    return x * len(list(filter(lambda size: size - 4, x.shape))), x * len(list(chosen))


class Text(str):
    pass


class Numbers(set):
    pass


def of_derived_classes(x):
    return x * len(Text(x.shape[0] * 4)), x * len(Numbers(x.shape))


def of_keywords(x):
    return x * x.size(dim=0), x * torch.numel(input=x)


def parts(x):
    return torch.stack(x.unbind(0)[::-1]), sum(x * 2), [own * 2 for own in x.split(2)]


def the_same_object(x):
    return x * 2 if x.shape[0] is x.size(0) else x


DIFFERENT = [
    text, percent, formatted, compared, between, of_truth, negated, looked_up, contained, in_a_set, keys,
    in_sets, indexed, sliced_list, looped, while_looped, divided, of_powers, negative, summed,
    summed_generator, sorted_sizes, equal_shapes, equal_lists, lengths, returned, joined, iterated, split_up, chunks, unpacked, mapped_by_c,
    reduced, accumulated, hashed, bits, matched, cached, objects, as_index, of_bool, attention_heads,
    strides, of_divisors, by_identity, of_exceptions, generated_by_a_method, in_other_containers, in_a_namespace,
    of_an_exception, enumerated, sentinel, mapped_to_numbers, filtered, of_derived_classes, of_keywords, parts,
    the_same_object,
]  # fmt: skip


@pytest.mark.parametrize("program", DIFFERENT, ids=lambda own: own.__name__)
def test_numbers_that_something_is_computed_of(program):
    compiled = corsac.compile(program)
    with torch.no_grad():
        for size in (*SIZES, *SIZES):
            x = torch.linspace(-1, 1, 3 * size).reshape(size, 3)
            same(compiled(x), program(x))


def test_comparisons_are_conditions():
    compiled = agree(between)
    # 3, which was the first one, and one for each outcome of the comparisons.
    assert recordings(compiled) == 4


def test_sizes_of_two_inputs_and_two_dimensions():
    def program(x, y):
        rows = x.shape[0] + y.shape[0]
        return torch.cat([x, y]).reshape(x.shape[1], rows) * (2 if x.shape[1] > 5 else 3)

    choose = random.Random(0)

    def make(_):
        columns = choose.randint(2, 9)
        return torch.randn(choose.randint(2, 9), columns), torch.randn(
            choose.randint(2, 9), columns
        )

    assert recordings(agree(program, range(30), make)) <= 5


def test_sizes_of_state_and_of_containers():
    class Grows(nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = torch.zeros(1, 3)

        def forward(self, own):
            self.kept = torch.cat([self.kept, own["x"]])
            return self.kept.sum(0) * (2 if self.kept.shape[0] > 6 else 1), own

    mine, its = Grows(), Grows()
    compiled = corsac.compile(mine)
    with torch.no_grad():
        for number in range(14):
            x = torch.randn(1 if number < 8 else 2, 3)
            same(compiled({"x": x}), its({"x": x}))
            assert torch.equal(mine.kept, its.kept)
    assert module_of(compiled)._dynamo is None and recordings(compiled) <= 6


def test_batches_and_sizes_of_images():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
    ).eval()
    choose = random.Random(0)

    def make(_):
        return (torch.randn(choose.randint(1, 5), 3, choose.randint(8, 20), choose.randint(8, 20)),)

    assert recordings(agree(model, range(12), make)) <= 3


def test_sizes_are_no_symbols_if_they_are_not_to_be():
    compiled = corsac.compile(flattened, dynamic=False)
    with torch.no_grad():
        for size in (3, 5, 4):
            x = torch.randn(size, 3)
            same(compiled(x), flattened(x))
    assert recordings(compiled) == 3


def test_integers_that_programs_keep_are_integers():
    kept = []

    def program(x):
        kept.append(x.shape[0])
        return x * 2

    compiled = corsac.compile(program)
    with torch.no_grad():
        for size in SIZES:
            compiled(torch.randn(size, 3))
    assert kept == list(SIZES)
    assert all(
        type(own) is int and own + 1 == size + 1 for own, size in zip(kept, SIZES, strict=True)
    )
    assert sorted(set(kept)) == sorted(set(SIZES)) and str(kept) == str(list(SIZES))


# Random programs.

UNARY = [
    "{a} + {n}", "{a} * {n}", "{n} - 1 + {a}", "{a} // 2 + 1", "{a} % 3 + 1", "max({a}, {n})",
    "len([0] * {a}) or 1", "int(str({a}))", "abs(-{a})", "{a} if {a} > {n} else {n}",
    "({a}, {n})[{a} > 3]", "sum((1, {a}))", "{a} + bool({a} - 4)", "[{a}, {n}][-1]", "dict(a={a})['a']",
    "x.reshape({a} - {a} + x.numel()).shape[0]", "{a} ** 1", "next(iter([{a}]))", "min({a} + 1, 9)",
]  # fmt: skip
USES = [
    "x + {a}", "torch.cat([x, x])[: {a}]", "x * ({a} == 4)", "F.pad(x, (0, 0, 0, {a} % 4))",
    "x.repeat({a} % 3 + 1, 1)", "x.reshape(-1, 3) * {a}", "x if {a} < 5 else x * 2",
    "x.new_full((x.shape[0], 3), 2) + x", "torch.arange({a})[:1] + x", "x.unsqueeze(0).expand({a}, -1, -1).sum(0)",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_random_uses_of_sizes(seed):
    choose = random.Random(seed)
    lines = ["def program(x, y):", "    a0, a1 = x.shape[0], y.size(0)"]
    for number in range(2, choose.randint(3, 6)):
        a, n = (f"a{choose.randrange(number)}" for _ in range(2))
        lines.append(f"    a{number} = " + choose.choice(UNARY).format(a=a, n=n))
    for _ in range(choose.randint(1, 3)):
        a = f"a{choose.randrange(number + 1)}"
        lines.append("    x = " + choose.choice(USES).format(a=a))
    lines.append("    return x, y.sum() * 2")
    scope = {"torch": torch, "F": F}
    exec("\n".join(lines), scope)
    compiled = corsac.compile(scope["program"])
    with torch.no_grad():
        for _ in range(10):
            x, y = torch.randn(choose.randint(1, 6), 3), torch.randn(choose.randint(1, 6))
            same(compiled(x, y), scope["program"](x, y))


def doubled_sizes(tensors):
    for tensor in tensors:
        yield 2 * tensor.shape[0]


class Sizes:
    """An iterable whose elements are sizes."""

    def __init__(self, tensors):
        self.tensors = tensors

    def __iter__(self):
        for tensor in self.tensors:
            yield tensor.shape[0]


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * (0.5 * x.shape[0]),
        lambda x: x * (x.shape[0] + 0.25) - (1.5 - x.shape[0]),
        lambda x: torch.where(torch.arange(x.shape[0]) < 2 + x.shape[0] * 0.5, x[:, 0], 0.0),
        lambda x: x.clamp(max=x.shape[0] * 0.05),
        lambda x: x[: int(x.shape[0] * 0.5) + 1],
        lambda x: x * 2 if x.shape[0] > 4.5 else x - 1,
        lambda x: x * sum(own.shape[0] for own in (x, x)),
        lambda x: x * math.prod(own.shape[0] for own in (x, x)),
        lambda x: x * len(set(own.shape[0] for own in (x, x.t()))),
        lambda x: x * sum(doubled_sizes((x, x))),
        lambda x: x * sum(Sizes((x, x))),
    ],
)
def test_floats_of_sizes_and_sizes_from_generators_are_never_those_of_another_call(program):
    agree(program)
