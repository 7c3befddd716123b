"""Programs captured for the sizes of a call, and programs that are not."""

import random
import threading
import types
import warnings
from collections import OrderedDict, namedtuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac
from corsac._capture.record import Recorded
from corsac._capture.recordings import record_at_once
from corsac._models.function import module_of
from kit.captured import (
    BySize,
    X,
    agree,
    agree_always,
    agree_by_dynamo,
    agree_captured,
    call,
    is_captured,
    refused,
)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def by_size(x):
    return x.relu() * 2 + 1 if x.shape[0] > 3 else x.tanh() - 1


def test_control_flow_on_sizes():
    compiled = agree_captured(by_size, X)
    agree(compiled, by_size, X[:2])
    assert len(module_of(compiled)._recorded.programs()) == 2 and is_captured(compiled)


def test_weights_are_named_once():
    model = BySize().eval()
    with torch.no_grad():
        recorded = record_at_once(model, model, (X,))
    assert isinstance(recorded, Recorded)
    module = recorded.module
    names = [str(node.target) for node in module.graph.find_nodes(op="get_attr")]
    assert sorted(names) == ["first.bias", "first.weight", "second.bias", "shift"]
    with torch.no_grad():
        torch.testing.assert_close(module(X), model(X))


def test_weights_are_packed_once():
    model = BySize().eval()
    compiled = corsac.compile(model)
    for rows in (1, 2, 4):
        agree(compiled, model, torch.randn(rows, 6))
    graphs = [own.graph for own in module_of(compiled)._recorded.programs()]
    assert len(graphs) == 3
    assert len({id(own._packed) for own in graphs}) == 1


def test_many_sizes():
    model = BySize().eval()
    compiled = corsac.compile(model)
    for rows in range(1, 41):
        agree(compiled, model, torch.randn(rows, 6))
    # Sizes met once, after the maximum number of others, are left to PyTorch.
    assert len(module_of(compiled)._recorded.programs()) == 16 and is_captured(compiled)
    agree(compiled, model, torch.randn(40, 6))
    assert "[40, 6]" in compiled.explain() and "[1, 6]" not in compiled.explain()
    agree(compiled, model, torch.randn(40, 6))


def test_dynamic_says_for_how_many_sizes_programs_are():
    def function(x):
        return (x.relu() + x.sum(0)) * x.shape[0]

    dynamic = corsac.compile(function, dynamic=True)
    for rows in (3, 5, 7, 1):
        agree(dynamic, function, torch.randn(rows, 6))
    programs = module_of(dynamic)._recorded.programs()
    assert len({id(own.graph) for own in programs}) == 1 and is_captured(dynamic)
    model = BySize().eval()
    static = corsac.compile(model, dynamic=False)
    for rows in range(1, 11):
        agree(static, model, torch.randn(rows, 6))
    assert len(static._recorded.programs()) == 10 and is_captured(static)


@pytest.mark.parametrize("mark, graphs", [("mark_dynamic", 1), ("mark_static", 4)])
def test_sizes_that_are_marked(mark, graphs):
    def function(x):
        return (x.relu() + x.sum(0)) * x.shape[0]

    compiled = corsac.compile(function)
    for rows in (3, 5, 7, 9):
        x = torch.randn(rows, 6)
        getattr(torch._dynamo, mark)(x, 0)
        agree(compiled, function, x)
    assert len({id(own.graph) for own in module_of(compiled)._recorded.programs()}) == graphs
    assert is_captured(compiled)


# Data-dependent programs.


def test_values_that_python_gets_in_other_ways():
    functions = [
        lambda x: x + torch.from_numpy(x.numpy() * 2) if x.shape[0] > 1 else x,
        lambda x: torch.tensor([x[0, 0], 1.0]) * 2 if x.shape[0] > 1 else x,
        lambda x: x * len(f"{x}") if x.shape[0] > 1 else x,
    ]
    other = X.clone()
    other[0] = 3.0
    for function in functions:
        torch._dynamo.reset()
        agree_by_dynamo(function, (X,), (other,), (X.abs(),))


def test_strides_that_are_asked_for():
    def function(x):
        return x * 2 if x.is_contiguous() or x.shape[0] == 1 else x * 3

    agree_always(function, (X,), (torch.randn(6, 4).T,))

    def strides(x):
        return x * x.stride(0) if x.shape[0] > 1 else x

    agree_always(strides, (X,), (torch.randn(6, 4).T,))


def test_inputs_that_do_not_lie_row_by_row():
    compiled = agree_captured(by_size, torch.randn(6, 4).T)
    agree(compiled, by_size, X)


def test_gradients_that_are_asked_for():
    def function(x):
        return x * 2 if x.requires_grad or x.shape[0] == 1 else x * 3

    agree_always(function, (X,), (X.clone().requires_grad_(),))


# Writes and random numbers.


def test_inputs_and_buffers_that_are_written_to():
    def writes(x):
        if x.shape[0] > 1:
            x.add_(1)
        return x * 2

    def through_a_view(x):
        if x.shape[0] > 1:
            x.view(-1)[0] = 3
        return x * 2

    for function in (writes, through_a_view):
        compiled = corsac.compile(function)
        mine, its = X.clone(), X.clone()
        for _ in range(2):
            torch.testing.assert_close(call(compiled, mine), function(its))
            torch.testing.assert_close(mine, its)
        assert module_of(compiled)._recorded.programs()

    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            if x.shape[0] > 1:
                self.calls += 1
            return x * self.calls

    model = Counts().eval()
    compiled = corsac.compile(model)
    for number in range(1, 4):
        with torch.no_grad():
            torch.testing.assert_close(compiled(X), X * number)
    assert model.calls == 3


def test_own_values_that_are_written_to():
    def function(x):
        y = x * 2 if x.shape[0] > 1 else x
        view = y[1:]
        view.add_(1)
        total = torch.zeros(6)
        total += y.sum(0)
        y *= 3
        return y + total, view

    compiled = corsac.compile(function)
    for _ in range(3):
        found = call(compiled, X)
        expected = function(X)
        for own, its in zip(found, expected, strict=True):
            torch.testing.assert_close(own, its, rtol=1e-5, atol=1e-6)


RANDOM = {
    "rand": lambda x: x + torch.rand(x.shape[0], 1) if x.shape[0] > 1 else x,
    "rand_like": lambda x: x + torch.rand_like(x) if x.shape[0] > 1 else x,
    "dropout": lambda x: F.dropout(x, 0.5, True) if x.shape[0] > 1 else x,
    "normal_": lambda x: x + torch.empty(6).normal_() if x.shape[0] > 1 else x,
    "attention": lambda x: (
        F.scaled_dot_product_attention(x, x, x, dropout_p=0.5) if x.shape[0] > 1 else x
    ),
    "python": lambda x: x * random.random() if x.shape[0] > 1 else x,
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_drawn_in_each_call(name):
    function = RANDOM[name]
    compiled = corsac.compile(function)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = [compiled(X) for _ in range(3)]
    assert not torch.equal(results[0], results[1]) and not torch.equal(results[1], results[2])
    assert not module_of(compiled)._recorded.programs()


def test_numpy_random_numbers():
    numpy = pytest.importorskip("numpy")

    def function(x):
        return x * float(numpy.random.rand()) if x.shape[0] > 1 else x

    refused(function, "it calls")


def test_seeds_are_set_in_each_call():
    def function(x):
        torch.manual_seed(x.shape[0])
        return x * 2 if x.shape[0] > 1 else x

    refused(function, "it calls torch")


# Forms of calls.


def test_keywords_and_constants():
    def function(x, y=None, *, scale=1, mode="add", flag=False):
        if x.shape[0] == 1:
            return x
        if y is None:
            return x * scale
        return (x + y if mode == "add" else x - y) * scale - (1 if flag else 0)

    compiled = corsac.compile(function)
    y = torch.randn(6)
    agree(compiled, function, X)
    agree(compiled, function, X, None)
    agree(compiled, function, X, y=y, mode="sub")
    agree(compiled, function, X, y, flag=True)
    assert is_captured(compiled)
    compiled = corsac.compile(function, dynamic=False)
    for value in (1, True, 1.0, 2, 0.0, -0.0, False):
        agree(compiled, function, X, scale=value)
    assert len(module_of(compiled)._recorded.programs()) == 7


def test_signs_of_zero():
    def function(x, zero):
        return x / zero if x.shape[0] > 1 else x

    compiled = corsac.compile(function)
    agree(compiled, function, X, 0.0)
    agree(compiled, function, X, -0.0)


def test_an_argument_left_out_before_another():
    def function(x, y=2.0, z=3.0):
        return x * y + z

    compiled = corsac.compile(function)
    z = torch.randn(6)
    agree(compiled, function, X, z=z)
    agree(compiled, function, X, z, z)
    agree(compiled, function, z=z, x=X)


def test_results_in_containers():
    pair = namedtuple("pair", "first second")

    def function(x):
        y = x * 2 if x.shape[0] > 1 else x
        top = torch.topk(y, 2)
        return {
            "a": y,
            "rest": [x.shape[0], None, "name", 1.5, (y + 1, True)],
            "ordered": OrderedDict(z=y - 1),
            "pair": pair(y * 3, top.values),
            "places": top.indices,
        }

    compiled = corsac.compile(function)
    for _ in range(2):
        found = agree(compiled, function, X)
        assert type(found["ordered"]) is OrderedDict and type(found["pair"]) is pair
        assert list(found) == ["a", "rest", "ordered", "pair", "places"]
    assert is_captured(compiled)
    found["rest"].append(1)
    agree(compiled, function, X)


class Box:
    def __init__(self, value, config=None):
        self.value, self.config, self.log = value, config, []


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


def test_results_that_are_objects():
    class Boxes(nn.Module):
        def __init__(self):
            super().__init__()
            self.config = types.SimpleNamespace(rows=3)

        def forward(self, x):
            y = x * 2 if x.shape[0] > 1 else x
            box = Box(y, self.config)
            return {"boxes": [box, box, Box([y + 1, (x.shape[0], "rows")])], "kind": Box}

    model = Boxes().eval()
    compiled = corsac.compile(model)
    results = [call(compiled, x) for x in (X, X, X + 1)]
    assert is_captured(compiled)
    for x, found in zip((X, X, X + 1), results, strict=True):
        first, second, third = found["boxes"]
        assert first is second and type(first) is Box and found["kind"] is Box
        assert first.config is model.config and third.config is None
        torch.testing.assert_close(first.value, x * 2)
        torch.testing.assert_close(third.value[0], x * 2 + 1)
        assert third.value[1] == (4, "rows")
    # Each call makes them anew.
    results[0]["boxes"][0].log.append(1)
    assert results[1]["boxes"][0].log == [] == call(compiled, X)["boxes"][0].log


def test_results_that_are_something_else():
    known = [Box(1)]
    functions = [
        lambda x: Slotted(x * 2 if x.shape[0] > 1 else x),
        lambda x: Box(len(x) if x.shape[0] > 1 else x),
        lambda x: iter([x * 2 if x.shape[0] > 1 else x]),
        lambda x: nn.ParameterList([nn.Parameter(x * 2 if x.shape[0] > 1 else x)]),
    ]
    for function in functions:
        refused(function, r"it returns a|Error|it calls")

    def keeps(x):
        known[0].last = x * 2 if x.shape[0] > 1 else x
        return known[0]

    refused(keeps, "it returns a Box|it changes|keeps|sets")
    assert torch.equal(known[0].last, X * 2)

    def loops(x):
        box = Box(x * 2 if x.shape[0] > 1 else x)
        box.log.append(box)
        return box

    refused(loops, "has itself in it")


def test_a_tensor_that_is_given_twice():
    def function(x, y, z=None):
        return x * 2 if x is y or x.shape[0] == 1 else x * 3 + y

    compiled = corsac.compile(function)
    other = X.clone()
    for _ in range(2):
        for args in ((X, X), (X, other), (X, X, other), (X, other, X), (X, other, other)):
            agree(compiled, function, *args)
    assert "[4, 6], the same as 0" in compiled.explain()

    def optional(x, y=None):
        return x * 2 if y is None or x.shape[0] == 1 else x * 3 + y

    compiled = corsac.compile(optional)
    for _ in range(2):
        agree(compiled, optional, X, X)
        agree(compiled, optional, X)


def test_attributes_of_inputs():
    def function(x):
        return x * getattr(x, "factor", 1) if x.shape[0] > 1 else x

    x = X.clone()
    x.factor = 4
    agree_always(function, (x,), (X,))


OUTSIDE = torch.ones(6)


def test_tensors_from_outside():
    def function(x):
        return x * OUTSIDE if x.shape[0] > 1 else x

    compiled = corsac.compile(function)
    try:
        agree(compiled, function, X)
        OUTSIDE.mul_(3)
        agree(compiled, function, X)
        assert is_captured(compiled)
    finally:
        OUTSIDE.fill_(1)


def test_exceptions_reach_the_user():
    class OwnError(Exception):
        pass

    def function(x):
        if x.shape[0] == 2:
            raise OwnError("two")
        return x * 2

    compiled = corsac.compile(function)
    agree(compiled, function, X)
    for _ in range(2):
        with torch.no_grad(), pytest.raises(OwnError, match="two"):
            compiled(X[:2])
    agree(compiled, function, X)

    def fails(x):
        return x @ x if x.shape[0] > 1 else x

    with torch.no_grad(), pytest.raises(RuntimeError, match=r"shapes cannot be multiplied|size"):
        corsac.compile(fails)(X)


def test_indices_out_of_range():
    def function(x, i):
        return x[i] * 2 if x.shape[0] > 1 else x

    compiled = corsac.compile(function)
    agree(compiled, function, X, torch.tensor([1, 3]))
    with torch.no_grad(), pytest.raises(IndexError, match="out of bounds"):
        compiled(X, torch.tensor([1, 9]))


def test_notes_of_a_first_call():
    class Notes(nn.Module):
        def __init__(self):
            super().__init__()
            self.kind = None

        def forward(self, x):
            if self.kind is None:
                self.kind = "pairs" if x.shape[-1] == 2 else "rows"
            return x * 2 if self.kind == "rows" else x

    class Counts(Notes):
        def forward(self, x):
            first, self.kind = self.kind is None, "called"
            return x * 2 if first and x.shape[0] > 1 else x * 3

    model, other = Notes().eval(), Notes().eval()
    compiled = corsac.compile(model)
    for x in (X, X, X[:2]):
        agree(compiled, other, x)
    # From the second call on, control flow is fixed.
    assert module_of(compiled)._dynamo is None and model.kind == "rows"
    model, other = Counts().eval(), Counts().eval()
    compiled = corsac.compile(model)
    for _ in range(3):
        agree(compiled, other, X)


def test_parts_write_to_nothing_that_they_are_given():
    def function(x, i):
        y = i.new_zeros(i.shape)
        y[:, 1:] = i[:, :-1]
        y[:, 0] = 3
        z = y.masked_fill_(y == 2, 7) if x.shape[0] > 1 else y
        return (x.sigmoid() * 2 - 1).relu() + z * 2

    compiled = corsac.compile(function)
    i = torch.arange(24).view(4, 6) % 5
    for _ in range(2):
        agree(compiled, function, X, i)
    assert is_captured(compiled)


def test_saved_models_are_for_their_sizes(tmp_path):
    model = BySize().eval()
    corsac.save(model, tmp_path / "model.safetensors", (X,))
    with torch.no_grad():
        torch.testing.assert_close(corsac.load(tmp_path / "model.safetensors")(X), model(X))

    class Values(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(corsac.CompileError, match="values"):
        corsac.save(Values().eval(), tmp_path / "values.safetensors", (X,))


# Circumstances of calls.


def test_threads():
    model = BySize().eval()
    compiled = corsac.compile(model)
    wrong = []
    barrier = threading.Barrier(8)

    def work(seed):
        x = torch.randn(1 + seed % 3, 6, generator=torch.Generator().manual_seed(seed))
        barrier.wait()
        for _ in range(5):
            with torch.inference_mode():
                if not torch.allclose(compiled(x), model(x), rtol=1e-5, atol=1e-5):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (
        wrong == [] and len(module_of(compiled)._recorded.programs()) == 3 and is_captured(compiled)
    )


def test_gradients_are_recorded():
    model = BySize().eval()
    compiled = corsac.compile(model)
    agree(compiled, model, X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(X).sum().backward()
    mine = model.first.weight.grad.clone()
    model.zero_grad()
    model(X).sum().backward()
    torch.testing.assert_close(mine, model.first.weight.grad)
    agree(compiled, model, X)


def test_gradients_inside():
    def function(x):
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            total = (y * y).sum() if x.shape[0] > 1 else y.sum()
            (gradient,) = torch.autograd.grad(total, y)
        return gradient * 2

    compiled = corsac.compile(function)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(X), X * 4)
    assert not module_of(compiled)._recorded.programs()


def test_no_grad_inside_is_nothing():
    def function(x):
        with torch.no_grad():
            y = x * 2 if x.shape[0] > 1 else x
        with torch.autocast("cpu", enabled=False):
            return y + 1

    agree_captured(function, X)


def test_autocast_inside():
    def function(x):
        with torch.autocast("cpu", torch.bfloat16):
            half = x @ x.T if x.shape[0] > 1 else x
        return half, x @ x.T

    compiled = corsac.compile(function)
    with torch.no_grad():
        for _ in range(3):
            half, full = compiled(X)
            assert half.dtype is torch.bfloat16 and full.dtype is torch.float32
            for own, other in zip((half, full), function(X), strict=True):
                torch.testing.assert_close(own, other)
    assert len(module_of(compiled)._recorded.programs()) == 1


def test_default_types_inside():
    def function(x):
        torch.set_default_dtype(torch.float64)
        try:
            return x.double() * torch.ones(6) if x.shape[0] > 1 else x
        finally:
            torch.set_default_dtype(torch.float32)

    compiled = corsac.compile(function)
    with torch.no_grad():
        found = compiled(X)
    assert found.dtype is torch.float64
    assert not module_of(compiled)._recorded.programs()


def test_a_compiled_module_inside():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = corsac.compile(BySize().eval())

        def forward(self, x):
            return self.inner(x) * 2 if x.shape[0] > 1 else x

    model = Outer().eval()
    agree(model.inner, model.inner._model, X)
    compiled = agree_captured(model, X)
    assert not model.inner._reasons
    agree(compiled, model, X[:2])


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("backend", [None, "eager"])
def test_modules_of_torchscript_in_a_model(gradients, backend):
    x = torch.linspace(-1, 1, 16).reshape(2, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = [torch.jit.script(nn.Linear(8, 8)), torch.jit.trace(nn.Linear(8, 8), (x,))]
        for inner in made:
            model = nn.Sequential(inner, nn.ReLU())
            compiled = corsac.compile(model, **({} if backend is None else {"backend": backend}))
            with torch.set_grad_enabled(gradients):
                for _ in range(3):
                    assert torch.equal(compiled(x), model(x))


def test_code_that_is_not_seen():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")

        @torch.jit.script
        def scripted(x):
            return x * 2

        @torch.jit.script
        def noise(n: int):
            return torch.rand(n)

    for function in (
        lambda x: scripted(x) + 1 if x.shape[0] > 1 else x,
        lambda x: noise(x.shape[1]) + x if x.shape[0] > 1 else x,
        lambda x: x + torch.Tensor([float(len(x))]),
        lambda x: x + torch.vmap(lambda row: row.sum())(x)[:, None] if x.shape[0] > 1 else x,
    ):
        refused(function, "")


def test_threads_inside():
    def function(x):
        found = []

        def work():
            try:
                found.append(x * 2)
            except Exception:
                found.append(None)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return x + 1 if found[0] is None or x.shape[0] == 1 else found[0]

    refused(function, "")


def test_functions_of_autograd_and_of_users():
    class Doubles(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    def function(x):
        return Doubles.apply(x) + 1 if x.shape[0] > 1 else x

    compiled = corsac.compile(function)
    agree(compiled, function, X)
    agree(compiled, function, X)


OPERATORS = [
    lambda x, i: (2 - x, 2 / x, x // 2, 2 // x, x % 2, 2 % x, x**2, 2**x, -x, abs(x), +x),
    lambda x, i: (x == 1, x != 1, x < 1, x <= 1, x > 1, x >= 1, ~(x > 0)),
    lambda x, i: (i & 3, 3 & i, i | 1, 1 | i, i ^ 2, 2 ^ i, i << 1, i >> 1, 1 << i % 3),
    lambda x, i: (x @ x.T, x.mT, x[None, ..., 0], x[1:, ::2], x[i[0, :2] % 4], x[:, None]),
    lambda x, i: tuple(row * 2 for row in x),
    lambda x, i: (x.split(2)[1] * 2, *x.chunk(2, 1), x.max(1).values, x.max(1)[1]),
    lambda x, i: (torch.einsum("ij,kj->ik", x, x), torch.cat([x, x], -1), torch.stack([x, x])),
    lambda x, i: (x.to(torch.int64), x.to("cpu") + 1, x.cpu() + 1, x.type_as(i), x.float() + 1),
    lambda x, i: (torch.zeros_like(x) + x, x.new_zeros(3), torch.arange(len(x)) + i[0, 0]),
    lambda x, i: (torch.full((2,), 3.0) + x[0, :2], torch.tensor([1.0, 2.0]) * x[:, :2]),
    lambda x, i: (torch.where(x > 0, x, -x), x.masked_fill(x > 0, 3.0), x.clamp(min=0)),
    lambda x, i: (torch.ops.aten.add.Tensor(x, x), torch.ops.aten.mul(x, 3), x.data * 2),
]


@pytest.mark.parametrize("number", range(len(OPERATORS)))
def test_operators(number):
    def function(x, i):
        return OPERATORS[number](x, i) if x.shape[0] > 1 else (x,)

    i = torch.arange(24).view(4, 6)
    x = X.abs() + 0.5
    compiled = corsac.compile(function)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            torch.testing.assert_close(compiled(x, i), function(x, i), rtol=1e-5, atol=1e-6)
