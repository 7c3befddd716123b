"""Random programs of views, writes, types and strides: values and inputs are eager's, with the signs of
zeros."""

import copy
import random
import warnings

import pytest
import torch

import corsac
from corsac import _core, fx
from corsac._engine.native_graph import NativeGraph
from corsac.lowering import LoweringError

DTYPES = (torch.float32, torch.float32, torch.float32, torch.int64, torch.bool, torch.int32)
SPECIAL = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0, -1.0, 2.5]
SHAPES = [(), (0,), (1,), (4,), (3, 4), (4, 4), (2, 3, 4), (3, 0, 2), (1, 4)]


def tensor(rng):
    """A tensor of random shape, type and layout."""
    shape, dtype = rng.choice(SHAPES), rng.choice(DTYPES)
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))

    def values(sizes):
        if dtype is torch.bool:
            return torch.rand(sizes, generator=generator) < 0.5
        if dtype is not torch.float32:
            return torch.randint(-4, 5, sizes, generator=generator).to(dtype)
        made = torch.randn(sizes, generator=generator)
        if made.numel() and rng.random() < 0.5:
            for at in range(0, made.numel(), 3):
                made.view(-1)[at] = rng.choice(SPECIAL)
        return made

    way = rng.choice(["rows", "columns", "slice", "expanded"])
    if way == "columns" and len(shape) > 1:
        return values(shape[::-1]).permute(*reversed(range(len(shape))))
    if way == "slice" and shape:
        return values((*shape[:-1], 2 * shape[-1]))[..., ::2]
    if way == "expanded" and shape and shape[0]:
        return values((1, *shape[1:])).expand(shape)
    return values(shape)


def view(rng, x):
    """A view of a tensor, or of a part of it: a function, and its source."""
    rank = x.ndim
    ways = [
        ("reshape(-1)", lambda t: t.reshape(-1)),
        ("unsqueeze(0)", lambda t: t.unsqueeze(0)),
        ("squeeze()", lambda t: t.squeeze()),
        ("contiguous()", lambda t: t.contiguous()),
        ("flatten()", lambda t: t.flatten()),
        ("view_as(self)", lambda t: t.view_as(t)),
        ("detach()", lambda t: t.detach()),
        ("movedim", lambda t: t.movedim(0, -1)),
    ]
    if rank:
        dim = rng.randrange(-rank, rank)
        ways += [
            ("transpose", lambda t: t.transpose(0, dim)),
            ("[1:]", lambda t: t[1:]),
            ("[..., ::2]", lambda t: t[..., ::2]),
            ("chunk", lambda t: t.chunk(2, dim)[0]),
        ]
        if x.shape[0]:
            ways += [
                ("[0]", lambda t: t[0]),
                ("[-1]", lambda t: t[-1]),
                ("expand", lambda t: t[:1].expand(3, *x.shape[1:])),
                ("narrow", lambda t: t.narrow(0, 0, 1)),
            ]
    if rank == 2:
        ways += [("t", lambda t: t.t()), ("diagonal", lambda t: t.diagonal())]
    return rng.choice(ways)


WRITES = [
    ("add_(1)", lambda t: t.add_(1)),
    ("mul_(2)", lambda t: t.mul_(2)),
    ("mul_(-1)", lambda t: t.mul_(-1)),
    ("zero_()", lambda t: t.zero_()),
    ("fill_(3)", lambda t: t.fill_(3)),
    ("neg_()", lambda t: t.neg_()),
    ("clamp_(-1, 1)", lambda t: t.clamp_(-1, 1)),
    ("gt_(0)", lambda t: t.gt_(0)),
    ("eq_(1)", lambda t: t.eq_(1)),
    ("logical_not_()", lambda t: t.logical_not_()),
    ("abs_()", lambda t: t.abs_()),
    ("relu_()", lambda t: t.relu_()),
    ("sub_(0.5)", lambda t: t.sub_(0.5)),
    ("copy_", lambda t: t.copy_(t * 2)),
    ("add_(itself)", lambda t: t.add_(t)),
    ("t_()", lambda t: t.t_()),
    ("squeeze_()", lambda t: t.squeeze_()),
    ("unsqueeze_(0)", lambda t: t.unsqueeze_(0)),
    ("cumsum_(-1)", lambda t: t.cumsum_(-1)),
    ("masked_fill_", lambda t: t.masked_fill_(t > 0, 2)),
]
VALUES = [
    ("* 2", lambda t: t * 2),
    ("+ 1", lambda t: t + 1),
    ("-x", lambda t: -t),
    ("clone", lambda t: t.clone()),
    ("1 / x", lambda t: 1 / t),
    ("x * 0", lambda t: t * 0),
    ("float", lambda t: t.float()),
    ("long", lambda t: t.nan_to_num(0, 9, -9).long()),
    ("bool", lambda t: t.bool()),
    ("int", lambda t: (t > 0).int()),
    ("x > 0", lambda t: t > 0),
    ("relu", lambda t: t.relu()),
    ("where", lambda t: torch.where(t > 0, t, 0)),
    ("any(dim=())", lambda t: t.any(dim=())),
    ("sum(0)", lambda t: t.sum(0)),
    ("amax", lambda t: t.amax()),
    ("flip", lambda t: t.flip(0)),
    ("cat", lambda t: torch.cat([t, t])),
    ("sort", lambda t: t.reshape(-1).sort(stable=True)[1]),
    ("einsum", lambda t: torch.einsum("...->...", t)),
]


def program(rng, inputs):
    """A function of ``inputs`` that works in eager, and its source."""
    steps, kinds = [], []

    def run(*given):
        values = list(given)
        for at, function, _ in steps:
            values.append(function(values[at]))
        # The values made last, and all that were written to, through whichever view.
        return tuple(value.clone() for value in values[len(given) :])

    for _ in range(rng.randint(2, 7)):
        made = run_all(run, steps, inputs)
        at = rng.choice([*range(len(made)), len(made) - 1, len(made) - 1])
        kind = rng.choice(["view", "view", "write", "value", "value"])
        if kind == "view":
            name, function = view(rng, made[at])
        else:
            name, function = rng.choice(WRITES if kind == "write" else VALUES)
        steps.append((at, function, name))
        try:
            run_all(run, steps, inputs)
        except Exception:
            steps.pop()
            continue
        kinds.append(f"%{len(inputs) + len(steps) - 1} = %{at} {name}")
    return run, kinds


def run_all(run, steps, inputs):
    """All values of a program."""
    values = [copied(own) for own in inputs]
    with torch.no_grad():
        for at, function, _ in steps:
            values.append(function(values[at]))
    return values


def copied(x):
    """The same elements in the same places."""
    return copy.deepcopy(x)


def bits(x):
    return x.contiguous().view(torch.int32) if x.dtype is torch.float32 and x.numel() else x


def same(own, expected):
    """Whether tensors are the same; all NaNs are equal."""
    if own.dtype != expected.dtype or own.shape != expected.shape:
        return False
    if own.dtype is not torch.float32:
        return torch.equal(own, expected)
    nan = own.isnan() & expected.isnan()
    # Sums are computed in another order.
    near = (own - expected).abs() <= 1e-6 * expected.abs() + 1e-6
    near &= own.signbit() == expected.signbit()
    return bool((nan | (bits(own) == bits(expected)).reshape(own.shape) | near).all())


def check(seed):
    rng = random.Random(seed)
    inputs = [tensor(rng) for _ in range(rng.randint(1, 2))]
    function, steps = program(rng, inputs)
    if not steps:
        return 0
    names = ", ".join(f"x{number}" for number in range(len(inputs)))
    module = fx.symbolic_trace(eval(f"lambda {names}: f({names})", {"f": function}))
    ran = 0
    for whole in (True, False):
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = NativeGraph(module, precision="f32", strict=False)
            try:
                run, _ = graph.compile(tuple(inputs), whole=whole)
            except (corsac.CompileError, _core.ShapeInferenceError, LoweringError):
                continue
            # With their strides, and contiguous: a program is for all strides.
            for given in (inputs, [own.contiguous() for own in inputs]):
                eager, own = [copied(x) for x in given], [copied(x) for x in given]
                try:
                    expected = function(*eager)
                except Exception:
                    continue
                found = run(*own)
                text = f"seed {seed}, {whole=}: {[(x.dtype, x.shape, x.stride()) for x in given]} {steps}"
                for number, (a, b) in enumerate(zip(found, expected, strict=True)):
                    assert same(a, b), f"{text} %{len(inputs) + number}: {a}, not {b}"
                for number, (a, b) in enumerate(zip(own, eager, strict=True)):
                    assert same(a, b), f"{text} input {number}: {a}, not {b}"
                ran += 1
    return ran


def test_random_programs():
    assert sum(check(seed) for seed in range(400)) > 300


@pytest.mark.slow
def test_many_random_programs():
    for seed in range(1000, 21000):
        check(seed)
