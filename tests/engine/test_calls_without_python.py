"""Calls of recorded programs that run without a step of Python, and similar calls that do not."""

import copy
import gc
import random
import weakref
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import corsac
from corsac._models.function import module_of

X, Y = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))
Z = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
NATIVE = {"inference": "native"}


def runs_unseen(compiled, *args, **kwargs):
    return module_of(compiled)._runner.run(args, kwargs) is not NotImplemented


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 6)
        self.hidden = torch.zeros(4, 6)
        self.seen = []
        self.register_buffer("mean", torch.zeros(4, 6))
        self.eval().requires_grad_(False)


class Options(Model):
    def forward(self, x, y=None, flag=False, scale=1.0, mode="add"):
        out = self.layer(x)
        if y is not None:
            out = out + y if mode == "add" else out * y
        return out * 2 if flag else out * scale


class Hidden(Model):
    def forward(self, x):
        self.hidden = self.hidden * 0.5 + self.layer(x)
        return self.hidden.relu()


class Mean(Model):
    def forward(self, x):
        self.mean.mul_(0.5).add_(x)
        return self.mean + self.layer(x)


class Writes(Model):
    def forward(self, x, y):
        x.add_(y)
        return self.layer(x)


class Counting(Model):
    def __init__(self):
        super().__init__()
        self.count = 0
        self.seen = {"sum": 0.0}

    def forward(self, x):
        self.count += 1
        self.seen["sum"] += x.shape[0] / 2
        return self.layer(x)


class Named(Model):
    def forward(self, given):
        return {"out": self.layer(given["x"]) * given["y"], "x": given["x"] + 1}


class Listed(Model):
    def forward(self, given):
        return [torch.relu(own) - 1 for own in given]


@dataclass
class Pair:
    x: torch.Tensor
    y: torch.Tensor
    flag: bool = False


class Paired(Model):
    def forward(self, pair):
        x = self.layer(pair.x)
        return Pair(x * 2 if pair.flag else x, pair.y + x)


class Cached(Model):
    def forward(self, x, cache):
        cache["keys"] = self.layer(x)
        cache["sum"] = cache["sum"] + cache["keys"]
        return cache["sum"] * 2


def product(x, y):
    return (x * y + 1).relu()


def moved(x):
    return x + 0


#: Programs with calls: positional arguments, and keyword arguments.
PROGRAMS = [
    (
        Options,
        [
            lambda: ((X,), {}),
            lambda: ((), {"x": X}),
            lambda: ((X,), {"flag": True}),
            lambda: ((X,), {"flag": 1}),
            lambda: ((X, None), {"scale": 0.0}),
            lambda: ((X, None), {"scale": -0.0}),
            lambda: ((X, None), {"scale": 0}),
            lambda: ((X, Y), {"mode": "add"}),
            lambda: ((X, Y), {"mode": "mul"}),
            lambda: ((X,), {"y": Y, "mode": "".join(["m", "ul"])}),
            lambda: ((), {"y": Y, "x": X}),
            lambda: ((), {"x": Y, "y": X}),
            lambda: ((X, X), {}),
            lambda: ((X, X.clone()), {}),
            lambda: ((Z,), {}),
            lambda: ((X.double().float(),), {"flag": torch.tensor(True)}),
        ],
    ),
    (
        product,
        [
            lambda: ((X, Y), {}),
            lambda: ((X, X), {}),
            lambda: ((X.t(), Y.t()), {}),
            lambda: ((X.t().contiguous(), Y.t()), {}),
            lambda: ((X[:, ::2], Y[:, ::2]), {}),
            lambda: ((X[:, :3], Y[:, :3]), {}),
            lambda: ((X[:1].expand(4, 6), Y), {}),
            lambda: ((X.unsqueeze(0).transpose(0, 1), Y.unsqueeze(1)), {}),
            lambda: ((X.flip(0), Y), {}),
            lambda: ((X.to(torch.int64), Y.to(torch.int64).t().contiguous().t()), {}),
            lambda: ((X > 0, (Y > 0).t().contiguous().t()), {}),
            lambda: ((torch._neg_view(X), Y), {}),
            lambda: ((nn.Parameter(X, requires_grad=False), Y), {}),
            lambda: ((X[:0], Y[:0]), {}),
        ],
    ),
    (moved, [lambda: ((X,), {}), lambda: ((X.t(),), {}), lambda: ((X.mT[1:],), {})]),
    (Hidden, [lambda: ((X,), {}), lambda: ((Y,), {}), lambda: ((X[:1],), {})]),
    (Mean, [lambda: ((X,), {}), lambda: ((Y,), {}), lambda: ((X[:1],), {})]),
    (Counting, [lambda: ((X,), {}), lambda: ((Y,), {}), lambda: ((X[:1],), {})]),
    (
        Writes,
        [
            lambda: ((X.clone(), Y), {}),
            lambda: ((X.clone(),), {"y": Y}),
            lambda: ((own := X.clone(), own), {}),
            lambda: ((own := torch.randn(5, 6))[:4] is None or (own[:4], own[1:]), {}),
            lambda: ((X.t().clone().t(), Y), {}),
        ],
    ),
    (
        Named,
        [
            lambda: (({"x": X, "y": Y},), {}),
            lambda: (({"y": Y, "x": X},), {}),
            lambda: (({"x": X, "y": X},), {}),
            lambda: (({"x": X, "y": Y, "z": 3},), {}),
            lambda: (({"x": X, "y": 2.0},), {}),
            lambda: (({"x": Z, "y": Z},), {}),
            lambda: (({"x": X.t().clone().t(), "y": Y},), {}),
            lambda: ((), {"given": {"x": X, "y": Y}}),
        ],
    ),
    (
        Listed,
        [
            lambda: (([X, Y],), {}),
            lambda: (([Y, X],), {}),
            lambda: (([X, X],), {}),
            lambda: (([X, Y, X],), {}),
            lambda: (([],), {}),
            lambda: (((X, Y),), {}),
            lambda: (([X, Z],), {}),
        ],
    ),
    (
        Paired,
        [
            lambda: ((Pair(X, Y),), {}),
            lambda: ((Pair(Y, X),), {}),
            lambda: ((Pair(X, X),), {}),
            lambda: ((Pair(X, Y, True),), {}),
            lambda: ((Pair(X.t().clone().t(), Y),), {}),
        ],
    ),
    (
        Cached,
        [
            lambda: ((X, {"sum": Y.clone()}), {}),
            lambda: ((X, {"sum": Y.clone(), "keys": Z}), {}),
            lambda: ((X, {"sum": X}), {}),
            lambda: ((X,), {"cache": {"sum": Y.clone()}}),
            lambda: ((X, {"sum": Y[:1]}), {}),
        ],
    ),
]


def called(program, make):
    """Everything observable about a call: results with their strides, arguments, and state."""
    args, kwargs = make()
    with torch.no_grad():
        try:
            returned = program(*args, **kwargs)
        except (RuntimeError, TypeError) as error:
            returned = str(error)
    return returned, (args, kwargs)


def state_of(model):
    if isinstance(model, Counting):
        return torch.tensor([model.count, model.seen["sum"]])
    return (model.hidden, model.mean) if isinstance(model, Model) else ()


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [own for part in value.values() for own in tensors(part)]
    if isinstance(value, list | tuple):
        return [own for part in value for own in tensors(part)]
    return tensors(vars(value)) if isinstance(value, Pair) else []


def assert_same(now, then):
    now, then = tensors(now), tensors(then)
    assert len(now) == len(then)
    for own, other in zip(now, then, strict=True):
        assert (own.dtype, own.shape) == (other.dtype, other.shape)
        assert own.stride() == other.stride()
        assert torch.equal(own, other) or torch.allclose(own, other, atol=1e-6)
        if own.is_floating_point():
            zeros = own == 0
            assert torch.equal(own[zeros].signbit(), other[zeros].signbit())


@pytest.mark.parametrize(
    ("program", "calls"), PROGRAMS, ids=lambda own: getattr(own, "__name__", "")
)
def test_calls_in_any_order(program, calls):
    model = program() if isinstance(program, type) else program
    eager = copy.deepcopy(model)
    compiled = corsac.compile(model, options=NATIVE)
    choose = random.Random(0)
    order = [*calls * 2, *(choose.choice(calls) for _ in range(12 * len(calls)))]
    for make in order:
        torch.manual_seed(0)
        now, given = called(compiled, make)
        torch.manual_seed(0)
        then, expected = called(eager, make)
        assert type(now) is type(then)
        assert not isinstance(then, str) or now == then
        assert_same(now, then)
        assert_same(given, expected)
        assert_same(state_of(model), state_of(eager))


#: Those of the calls that run without Python; parts of the others are run by PyTorch.
QUICK = {
    "Options": range(15),
    "product": [0, 1, 2, 3, 4, 5, 6, 7, 8, 13],
    "moved": [0, 1],
    "Hidden": [0, 1],
    "Mean": [0, 1],
    "Counting": [0, 1],
    "Writes": [0, 1],
    "Named": [0, 1, 2, 3, 4, 5, 6, 7],
    "Listed": [0, 1, 2, 3, 6],
    "Paired": [0, 1, 2, 3, 4],
    "Cached": [0, 1, 2, 3],
}


@pytest.mark.unverified
@pytest.mark.parametrize(
    ("program", "make"),
    [
        pytest.param(program, calls[number], id=f"{program.__name__}-{number}")
        for program, calls in PROGRAMS
        for number in QUICK[program.__name__]
    ],
)
def test_no_step_of_python(program, make):
    model = program() if isinstance(program, type) else program
    compiled = corsac.compile(model, options=NATIVE)
    with torch.no_grad():
        for _ in range(6):
            args, kwargs = make()
            compiled(*args, **kwargs)
        args, kwargs = make()
        assert runs_unseen(compiled, *args, **kwargs)


def test_state_that_is_replaced_between_calls():
    model, eager = Hidden(), Hidden()
    compiled = corsac.compile(model, options=NATIVE)
    states = [
        lambda: torch.ones(4, 6),
        lambda: torch.ones(6, 4).t(),
        lambda: torch.ones(1, 6),
        lambda: torch.ones(4, 6, dtype=torch.float64),
        lambda: 0.5,
        lambda: torch.ones(4, 6),
    ]
    with torch.no_grad():
        for _ in range(3):
            for make in states:
                for own in (model, eager):
                    own.__dict__.pop("hidden", None)
                    own.hidden = make()
                for _ in range(2):
                    now, then = compiled(X), eager(X)
                    assert now.dtype == then.dtype
                    assert now.stride() == then.stride()
                    assert torch.allclose(now, then)
        model.hidden = eager.hidden = X.clone()
        assert runs_unseen(compiled, X) or torch.allclose(compiled(X), eager(X))


@pytest.mark.unverified
def test_buffers_that_are_written_to_are_apart_from_arguments():
    model, eager = Mean(), Mean()
    compiled = corsac.compile(model, options=NATIVE)
    with torch.no_grad():
        for _ in range(5):
            compiled(X), eager(X)
        assert runs_unseen(compiled, X)
        eager(X)
        for _ in range(3):
            # An argument that is the buffer, and one that shares its memory.
            assert torch.allclose(compiled(model.mean), eager(eager.mean))
            assert torch.allclose(compiled(model.mean.flip(0)), eager(eager.mean.flip(0)))
            assert torch.allclose(compiled(model.mean.view(4, 6)), eager(eager.mean.view(4, 6)))
        before = model.mean._version
        assert torch.allclose(compiled(X), eager(X))
        assert model.mean._version > before


@pytest.mark.unverified
def test_arguments_of_unseen_calls_are_not_kept():
    compiled = corsac.compile(Cached(), options=NATIVE)
    with torch.no_grad():
        for _ in range(4):
            compiled(X, {"sum": Y.clone()})
        own = X.clone()
        cache = {"sum": Y.clone()}
        known = [weakref.ref(own), weakref.ref(cache["sum"])]
        assert runs_unseen(compiled, own, cache)
        del own, cache
    gc.collect()
    assert [own() for own in known] == [None, None]


def test_gradients_of_what_is_found():
    """Autograd records gradients for tensors in state and in containers."""
    model = Named()
    compiled = corsac.compile(model, options=NATIVE)
    for _ in range(3):
        with torch.no_grad():
            compiled({"x": X, "y": Y})
    y = Y.clone().requires_grad_()
    compiled({"x": X, "y": y})["out"].sum().backward()
    assert torch.allclose(y.grad, model.layer(X))


@pytest.mark.unverified
def test_programs_that_ran_unseen_are_not_in_vain():
    """Programs are kept, although recorded again and again, as long as their recordings are used."""
    model = Options()
    compiled = corsac.compile(model, options=NATIVE)
    with torch.no_grad():
        for number in range(40):
            model.layer.bias = nn.Parameter(torch.full((6,), float(number)), requires_grad=False)
            for _ in range(3):
                assert torch.allclose(compiled(X), model(X))
        assert runs_unseen(compiled, X)


def test_calls_by_name_are_left_to_pytorch():
    compiled = corsac.compile(Options())
    module = module_of(compiled)
    module._runner.leave((), {"x": X, "flag": True}, 2)
    with torch.no_grad():
        assert [runs_unseen(compiled, x=X, flag=True) for _ in range(3)] == [True, True, False]
        assert not runs_unseen(compiled, X, flag=True)
