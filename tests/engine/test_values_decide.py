"""Data-dependent control flow: each path is a chain of graphs, and paths share beginnings."""

import math
import operator
import warnings

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_flatten

import corsac
from corsac._capture.stages import StagedRun
from corsac._models.function import module_of

pytestmark = pytest.mark.recording


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def same(found, expected):
    mine, spec = tree_flatten(found)
    its, other = tree_flatten(expected)
    assert spec == other
    for own, eager in zip(mine, its, strict=True):
        assert type(own) is type(eager)
        if isinstance(own, torch.Tensor):
            assert own.dtype is eager.dtype
            torch.testing.assert_close(own, eager, rtol=1e-5, atol=1e-6, equal_nan=True)
        elif isinstance(own, float):
            assert own == pytest.approx(eager, rel=1e-5) or (math.isnan(own) and math.isnan(eager))
        else:
            assert own == eager


def programs(compiled):
    return module_of(compiled)._recorded.programs()


def recorded(compiled):
    """Nothing is left to Dynamo or PyTorch."""
    module = module_of(compiled)
    assert module._dynamo is None and not module._reasons, compiled.explain()
    return len(programs(compiled))


def count(monkeypatch):
    """A list that grows by one at each call run by the programs."""
    calls = []
    plain = StagedRun.__call__
    monkeypatch.setattr(StagedRun, "__call__", lambda *args: calls.append(1) or plain(*args))
    return calls


def agree(function, *calls, ways, times=3):
    """All calls, in several orders, are eager's; there are ``ways`` programs, which run calls of a kind met before."""
    compiled = corsac.compile(function, options={"inference": "native"})
    for args in [*calls, *calls, *reversed(calls)] * times:
        before = [own.clone() for own in args if isinstance(own, torch.Tensor)]
        same(compiled(*args), function(*args))
        torch.testing.assert_close(
            [own for own in args if isinstance(own, torch.Tensor)], before, rtol=0, atol=0
        )
    assert recorded(compiled) == ways, compiled.explain()
    return compiled


X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def test_a_condition(monkeypatch):
    def function(x):
        y = x.relu() + 1
        if x.sum() > 0:
            return y * 2
        return y.tanh(), x

    calls = count(monkeypatch)
    compiled = agree(function, (X.abs(),), (-X.abs(),), ways=2)
    # All but one call of each kind.
    assert len(calls) == 2 * 3 * 3 - 2
    first, second = programs(compiled)
    assert first.compiled.run.stages[0] is second.compiled.run.stages[0]
    assert "test_values_decide.py" in compiled.explain() and "is True" in compiled.explain()


def test_ways_need_other_values_of_what_they_share():
    def function(x):
        a, b, c = x + 1, x.exp(), x.sin()
        if x.mean() > 1:
            return a * 2
        if x.mean() > -1:
            return b * a
        return c - 1

    agree(function, (X + 3,), (X,), (X - 3,), ways=3)


def test_conditions_in_conditions():
    def function(x, y):
        a = x @ y
        if a.sum() > 0:
            a = a.relu()
            if a.max() > 2:
                a = a / 2
        return a * (a + 1)

    ones = torch.ones(3, 3)
    agree(function, (ones, ones), (ones / 9, ones), (-ones, ones), ways=3)


def test_loops():
    def function(x):
        n = 0
        while x.sum() < 10:
            x, n = x * 2, n + 1
        return x, n

    ones = torch.ones(3)
    agree(function, (ones,), (ones * 2,), (ones / 4,), (ones * 9,), ways=4)


def test_loops_that_write_to_what_they_have():
    def function(x):
        y = x.clone()
        z = y * 1
        while y.sum() < 10:
            y.mul_(2)
            z = z + y
        return y, z

    ones = torch.ones(3)
    agree(function, (ones,), (ones * 2,), (ones / 4,), (ones * 9,), ways=4)


def test_a_last_part_that_only_writes():
    def function(x):
        y = x * 2
        z = y[0]
        if x.sum() > 0:
            y[1] = 7.0
        else:
            z.add_(1)
        return y, z

    agree(function, (X.abs(),), (-X.abs(),), ways=2)


def test_sizes_that_depend_on_values():
    for function in (
        lambda x: x[x > 0] * 2,
        lambda x: x.nonzero() + 1,
        lambda x: torch.masked_select(x, x > 0).sum() + 1,
        lambda x: torch.unique(x.round()) * 2,
        lambda x: torch.repeat_interleave(x, (x[:, 0] > 0).long() + 1, dim=0) + 1,
        lambda x: (x[x > 0].relu() + 1).sum(),
    ):
        other = X.clone()
        other[0] = 1.0
        compiled = corsac.compile(function, options={"inference": "native"})
        for x in (X, other, X, X.abs(), other):
            same(compiled(x), function(x))
        assert recorded(compiled) <= 3, compiled.explain()


def test_places_that_are_taken_are_no_question():
    index = torch.tensor([2, 0, 1, 1])
    compiled = corsac.compile(
        lambda x, i: x[i] * 2 + x[:, i].sum(), options={"inference": "native"}
    )
    for i in (index, index.flip(0), index):
        same(compiled(X, i), X[i] * 2 + X[:, i].sum())
    assert "decide" not in compiled.explain() and recorded(compiled) == 1


def test_questions_about_tensors():
    for function in (
        lambda x: x + (1 if torch.equal(x, x.abs()) else 2),
        lambda x: x + (1 if torch.allclose(x, x.abs()) else 2),
        lambda x: x * (1.0 if 3.0 in x else 2.0),
        lambda x: x - 1 if torch.isnan(x).any() else x.exp(),
        lambda x: x[: int(x[0, 0].abs()) + 1] * 2,
    ):
        other = X.clone()
        other[0] = 3.0
        compiled = corsac.compile(function, options={"inference": "native"})
        for x in (X, other, X.abs(), X, other, X.abs()):
            same(compiled(x), function(x))
        assert recorded(compiled) <= 3, compiled.explain()


def test_numbers_are_others_in_each_call(monkeypatch):
    """Different numbers in each call do not need new recordings."""
    functions = [
        lambda x: x / x.max().item(),
        lambda x: (x - float(x.mean())) * 2,
        lambda x: x.sum().item(),
        lambda x: {"loss": x.mean().item() * 0.5 + 1, "x": x + 1},
        lambda x: x * (1 - x.abs().max().item() / 100),
        lambda x: (x > x.mean().item()).float() + 1,
        lambda x: [x + 1, (x.argmax().item() + 1, x.min().item())],
        lambda x: x.relu() * 2 if x.max().item() > 100 else x.tanh() + x.min().item(),
    ]
    calls = count(monkeypatch)
    for function in functions:
        compiled = corsac.compile(function, options={"inference": "native"})
        calls.clear()
        for _ in range(10):
            x = torch.randn(4, 6)
            same(compiled(x), function(x))
        assert recorded(compiled) == 1 and len(calls) == 9, compiled.explain()


def test_comparisons_of_numbers_decide():
    def function(x):
        low, high = x.min().item(), x.max().item()
        if high - low > 6:
            return (x - low) / (high - low)
        return x - low if low != high else x + high

    agree(function, (X,), (X * 9,), (X * 0 + 1,), (X * 8,), ways=3)


def test_what_is_computed_otherwise_with_numbers_is_no_constant():
    for function in (
        lambda x: x * round(x.max().item()),
        lambda x: x + math.floor(x.max().item()),
        lambda x: x + int(x.max().item()),
        lambda x: x + bool(x.max().item() - 2) * int(x.min().item() * 0.5),
        lambda x: x - float(x.max().item()) ** 2 + abs(x.min().item()),
        lambda x: x + int(x.max().item() > 2) * 3,
        lambda x: x + len(f"{x.max().item():.0f}"),
        lambda x: x * {0: 1.0, 3: 2.0}.get(int(x.max().item()), 3.0),
        lambda x: torch.full((2,), x.max().round().item()) + x.sum(),
        lambda x: torch.ones(3) * x.max().round().item() + 1,
        lambda x: x ** x.max().round().item(),
        lambda x: x * min(x.max().round().item(), 2.0),
        lambda x: x * [0, *sorted(x, key=lambda row: row.max().item())][1].sum(),
        lambda x: x * max(row.max().round().item() for row in x),
        lambda x: x + sum(map(torch.Tensor.item, x[0].round())),
    ):
        compiled = corsac.compile(function, options={"inference": "native"})
        inputs = [X, X + 2, X * 3, X, X + 2, X * 3, X * 0]
        for x in inputs:
            same(compiled(x), function(x))
        assert module_of(compiled)._dynamo is None, compiled.explain()


def test_special_numbers():
    def function(x):
        m = x.max().item()
        return x * m if m == m else torch.zeros_like(x)

    zero = torch.zeros(2)
    for inputs in ([zero, -zero, zero], [zero + math.nan, zero + 1, zero + math.nan, zero + 2]):
        compiled = corsac.compile(function)
        for x in inputs:
            expected, found = function(x), compiled(x)
            same(found, expected)
            assert torch.equal(found.signbit(), expected.signbit())


def test_a_number_that_divides_by_zero():
    def function(x):
        return x * (1 / x.sum().item())

    compiled = corsac.compile(function)
    for x in (X, X + 1):
        same(compiled(x), function(x))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            compiled(X * 0)
    same(compiled(X), function(X))


def test_a_value_whose_exception_is_caught():
    def function(x):
        try:
            factor = 2.0 if x.sum() > 0 else 3.0
        except Exception:
            factor = 5.0
        return x * factor

    agree(function, (X.abs(),), (-X.abs(),), ways=2)


def test_an_exception_by_values():
    def function(x):
        if (x < 0).any():
            raise ValueError(f"negative: {x.min().item():.0f}")
        return x.sqrt() * 2

    compiled = corsac.compile(function)
    for _ in range(3):
        same(compiled(X.abs()), function(X.abs()))
        with pytest.raises(ValueError, match="negative: -7"):
            compiled(X.abs() - 7)


class Remembers(nn.Module):
    """State that depends on values."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.best, self.losses, self.last = 0.0, [], None

    def forward(self, x):
        y = self.layer(x)
        loss = y.square().mean().item()
        self.losses.append(loss)
        if loss > self.best:
            self.best, self.last = loss, y
        return y.relu()


def test_state_gets_the_numbers_of_each_call():
    torch.manual_seed(0)
    eager = Remembers().eval()
    torch.manual_seed(0)
    model = Remembers().eval()
    compiled = corsac.compile(model, options={"inference": "native"})
    for number in range(12):
        x = torch.randn(2, 6) * (number % 5)
        same(compiled(x), eager(x))
        same((model.best, model.losses, model.last), (eager.best, eager.losses, eager.last))


def test_a_number_that_state_had_already():
    class Last(nn.Module):
        last = 1.0

        def forward(self, x):
            self.last = x.max().item()
            return x + 1

    model = Last()
    compiled = corsac.compile(model)
    for number in (1.0, 2.0, 1.0, 3.0):
        compiled(torch.full((2,), number))
        assert model.last == number


def test_weights_that_change():
    model = nn.Linear(6, 6).eval()

    def function(x):
        y = model(x)
        return y * 2 if y.sum() > 0 else y - 1

    compiled = corsac.compile(function)
    for number in range(12):
        if number % 3 == 2:
            model.weight.mul_(-1)
            model.bias.add_(0.5)
        same(compiled(X), function(X))
    assert module_of(compiled)._dynamo is None


def test_results_that_are_inputs_or_weights():
    model = nn.Linear(6, 6).eval()

    def function(x):
        if x.sum() > 0:
            return model.weight, x
        return {"x": x * 2, "bias": [model.bias, None]}

    compiled = corsac.compile(function, options={"inference": "native"})
    for x in (X.abs(), -X.abs()) * 3:
        found, expected = compiled(x), function(x)
        same(found, expected)
        kept = [found[0], found[1]] if isinstance(found, tuple) else found["bias"][:1]
        assert all(own is model.weight or own is model.bias or own is x for own in kept)


def test_values_of_constants_and_weights_are_no_questions():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.tensor(2.0))

        def forward(self, x):
            mask = torch.arange(6) > 2
            if mask.any() and self.scale > 1:
                return x * mask
            return x

    model = Masked()
    compiled = corsac.compile(model, options={"inference": "native"})
    for _ in range(3):
        same(compiled(X), model(X))
    assert "decide" not in compiled.explain() and recorded(compiled) == 1
    model.scale.fill_(0)
    for _ in range(3):
        same(compiled(X), model(X))


def test_results_share_memory_as_eager_s():
    def function(x):
        y = x * 2
        if y.sum() > 0:
            return y, y.view(-1), y[0]
        return x.view(-1), y

    compiled = corsac.compile(function, options={"inference": "native"})
    for _ in range(3):
        y, flat, row = compiled(X.abs())
        y[0, 0] = 77.0
        assert flat[0] == 77 and row[0] == 77
        x = -X.abs()
        flat, _ = compiled(x)
        x[0, 0] = 55.0
        assert flat[0] == 55


def test_a_value_that_is_another_one_in_each_call_is_given_up():
    def function(x):
        return x * len(f"{x.sum().item():.9f}"[:3]) + hash(x.sum().item())

    compiled = corsac.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(12):
            x = torch.randn(3)
            same(compiled(x), function(x))
    assert "values decide that differ in each call" in compiled.explain()
    assert "of Dynamo" in compiled.explain()


def test_sizes_and_values():
    def function(x):
        y = x.view(x.shape[0] * x.shape[1]) + 1
        return y * x.shape[0] if y.sum() > 0 else y / y.max().item()

    compiled = corsac.compile(function, options={"inference": "native"})
    for rows in (2, 3, 4, 5, 6, 7, 2, 3):
        for sign in (1, -1):
            x = torch.randn(rows, 3).abs() * sign + min(sign, 0)
            same(compiled(x), function(x))
    assert module_of(compiled)._dynamo is None, compiled.explain()


def test_masks_that_depend_on_sizes_are_no_constants():
    def function(x):
        n = x.shape[0]
        mask = torch.ones(n, n)
        mask[0] = 0
        return mask @ x

    compiled = corsac.compile(function, options={"inference": "native"})
    for rows in (2, 3, 4, 5, 6):
        x = torch.randn(rows, 3)
        same(compiled(x), function(x))


def test_fullgraph_says_where():
    def function(x):
        return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(corsac.CompileError, match="values of a tensor decide"):
        corsac.compile(function, fullgraph=True)(X)


def test_kinds_of_calls():
    """Other element types, containers, and repeated tensors are separate kinds."""

    def function(x, more):
        y = more["a"] + x
        return y * 2 if y.sum() > 0 else y - more["b"][0]

    compiled = corsac.compile(function, options={"inference": "native"})
    for dtype in (torch.float32, torch.int64, torch.float32, torch.float64):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", corsac.HostWarning)
            for sign in (1, -1, 1):
                x = torch.tensor([1, 2, 3], dtype=dtype) * sign
                for more in ({"a": x, "b": [x]}, {"a": x + 1, "b": [x]}):
                    same(compiled(x, more), function(x, more))


@pytest.mark.parametrize("grad", [False, True])
def test_three_graphs_for_a_backend(grad):
    """The example of graph breaks in PyTorch's documentation has three graphs."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def toy(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    compiled = corsac.compile(toy, backend=backend)
    with torch.set_grad_enabled(grad):
        for _ in range(100):
            a, b = torch.randn(10, requires_grad=grad), torch.randn(10)
            found, expected = compiled(a, b), toy(a, b)
            same(found, expected)
            if grad:
                one, two = (torch.autograd.grad(own.sum(), a)[0] for own in (found, expected))
                same(one, two)
    assert len(graphs) == 3
    text = compiled.explain()
    assert "values decide" in text and "test_values_decide.py" in text


def test_a_backend_does_not_draw_twice():
    """Operators that use random numbers before data-dependent control flow are not run to find the path."""
    drawn = []

    def backend(graph, inputs):
        def run(*args):
            drawn.append(1)
            return graph.forward(*args)

        return run

    def function(x):
        y = torch.nn.functional.dropout(x, 0.5, training=True)
        return y + 1 if y.sum() > 0 else y - 1

    compiled = corsac.compile(function, backend=backend)
    for seed in range(6):
        torch.manual_seed(seed)
        found = compiled(X)
        after = torch.rand(1)
        torch.manual_seed(seed)
        same(found, function(X))
        assert torch.equal(after, torch.rand(1))


# Numbers in state.

STEPS = {"total": 0, "scale": 1.0}
COUNT = 0


def counts_globally(x):
    global COUNT
    COUNT += 1
    return x + 1


def counts_in_a_dictionary(x):
    STEPS["total"] += x.shape[0]
    STEPS["scale"] *= 0.5
    return x * STEPS["scale"]


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.mean = 0, 0.0

    def forward(self, x):
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean().item()
        return (x - self.mean) * 2, self.calls


class CountsToThree(Counts):
    def forward(self, x):
        self.calls += 1
        if self.calls >= 3:
            self.calls = 0
            return x.relu() + self.calls
        return x * 2


def counts_in_a_cell():
    count = 0

    def function(x):
        nonlocal count
        count += 2
        return x + 1, count

    return function


def test_counters():
    for make in (Counts, CountsToThree, counts_in_a_cell):
        eager, compiled = make(), corsac.compile(make(), options={"inference": "native"})
        for _ in range(12):
            x = torch.randn(3, 4)
            same(compiled(x), eager(x))
        assert recorded(compiled) <= 3, compiled.explain()
    model = Counts()
    compiled = corsac.compile(model, options={"inference": "native"})
    for number in range(9):
        compiled(X)
        assert model.calls == number + 1
    # Changes by the caller between calls are noticed.
    model.calls = 100
    assert compiled(X)[1] == 101 == model.calls
    model.calls = 2.5
    assert compiled(X)[1] == 3.5 == model.calls
    model.calls = True
    assert compiled(X)[1] == 2 and type(model.calls) is int


def test_counters_in_globals_and_dictionaries():
    global COUNT
    for function, place, key in (
        (counts_globally, globals(), "COUNT"),
        (counts_in_a_dictionary, STEPS, "total"),
    ):
        COUNT, STEPS["total"], STEPS["scale"] = 0, 0, 1.0
        expected = [(function(X), place[key], STEPS["scale"]) for _ in range(9)]
        COUNT, STEPS["total"], STEPS["scale"] = 0, 0, 1.0
        compiled = corsac.compile(function, options={"inference": "native"})
        for own in expected:
            same((compiled(X), place[key], STEPS["scale"]), own)
        assert recorded(compiled) == 2, compiled.explain()


@pytest.mark.parametrize(
    "look",
    [
        lambda model: getattr(model, "calls"),  # noqa: B009
        lambda model: vars(model)["calls"],
        lambda model: vars(model).get("calls"),
        lambda model: model.__dict__.get("calls", 5),
        operator.attrgetter("calls"),
        lambda model: sum(own for key, own in vars(model).items() if key == "calls"),
        lambda model: model.calls + getattr(model, "calls") * 0,  # noqa: B009
        lambda model: next(iter(map(vars(model).__getitem__, ["calls"]))),
    ],
)
def test_a_counter_that_functions_of_c_find(look):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            number = look(self)
            self.calls = number + 1
            return x * number

    eager, model = Counts(), Counts()
    compiled = corsac.compile(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(7):
            same(compiled(X), eager(X))
            assert model.calls == eager.calls


def test_a_counter_that_is_looked_at_in_other_ways():
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            looked = getattr(self, "calls")  # noqa: B009
            zeros = x.new_zeros(self.calls % 3 + 1)
            return x + len(str(looked)) + vars(self)["calls"] + zeros.sum()

    eager, compiled = Looks(), corsac.compile(Looks())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(14):
            same(compiled(X), eager(X))


def test_a_descriptor_before_a_counter():
    class Doubled:
        def __get__(self, owner, kind):
            return owner.__dict__["calls"] * factor[0]

        def __set__(self, owner, value):
            owner.__dict__["calls"] = value

    class Counts(nn.Module):
        calls = Doubled()

        def __init__(self):
            super().__init__()
            self.__dict__["calls"] = 1

        def forward(self, x):
            self.__dict__["calls"] = self.__dict__["calls"] + 1
            return x * self.calls

    factor = [1]
    eager, compiled = Counts(), corsac.compile(Counts())
    for number in range(8):
        factor[0] = 1 + number // 4
        same(compiled(X), eager(X))


def test_sizes_decide_by_a_counter():
    class Pads(nn.Module):
        step = 0

        def forward(self, x):
            self.step += 1
            return x[: self.step] * self.step

    eager, compiled = Pads(), corsac.compile(Pads())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(7):
            same(compiled(X), eager(X))


# Random numbers.


def test_random_numbers_are_pytorch_s(monkeypatch):
    class Samples(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.drop = nn.Linear(6, 6), nn.Dropout(0.5)

        def forward(self, x):
            mean, spread = self.layer(x), self.layer(x * 2).exp()
            sample = mean + torch.randn_like(spread) * spread
            torch.rand(2)
            noise = torch.ones(6)
            noise[2:] = torch.rand(4)
            return self.drop(sample) * noise + torch.empty(6).normal_()

    model = Samples().train()
    compiled = corsac.compile(model, options={"inference": "native"})
    for seed in range(8):
        torch.manual_seed(seed // 2)
        found = compiled(X)
        after = torch.rand(3)
        torch.manual_seed(seed // 2)
        same(found, model(X))
        assert torch.equal(after, torch.rand(3))
    assert recorded(compiled) == 1, compiled.explain()


def test_random_numbers_that_decide():
    def function(x):
        return x + 1 if torch.rand(()) > 0.5 else x - 1

    compiled = corsac.compile(function)
    for seed in range(12):
        torch.manual_seed(seed)
        found, after = compiled(X), torch.rand(3)
        torch.manual_seed(seed)
        same(found, function(X))
        assert torch.equal(after, torch.rand(3))


def test_what_is_read_next_depends_on_what_was_read():
    """Reads after the same read on two paths have the same position, but not the same value."""

    def function(x):
        p, q, r = x.sum() > 0, x.max() > 5, x.min() < -5
        factor = (2 if q else 3) if p else (4 if r else 5)
        return x * factor

    calls = [X + 1, X - 1, X.abs() + 9, -X.abs() - 9, X * 9 + 9, X * 9 - 9]
    agree(function, *((own,) for own in calls), ways=4)


def test_exceptions_of_operators_that_programs_catch():
    """Operators that PyTorch runs, before and after data-dependent control flow and in programs without any."""

    def whole(x):
        try:
            y = torch.linalg.cholesky(x.relu() + 1)
        except RuntimeError:
            y = x * 0 - 1
        return y * 2

    def before(x):
        try:
            y = torch.linalg.cholesky(x + 1)
            return y * 2 if y.sum() > 0 else y
        except RuntimeError:
            return x * 0 - 1

    def after(x):
        try:
            y = x + 1 if x.sum() > -100 else x
            return torch.linalg.cholesky(y) * 2
        except RuntimeError:
            return x * 0 - 1

    good, bad = torch.eye(3) * 4, torch.ones(3, 3)
    bad[0, 1] = bad[1, 0] = 7
    for function in (whole, before, after):
        compiled = corsac.compile(function, options={"inference": "native"})
        for x in (good, bad, good, bad, good, bad):
            same(compiled(x), function(x))


def test_state_that_an_operator_which_fails_does_not_reach():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.done = 0, 0

        def forward(self, x):
            self.calls += 1
            y = torch.linalg.cholesky(x.relu() + 1) * 2
            self.done += 1
            return y

    bad = torch.ones(3, 3)
    bad[0, 1] = bad[1, 0] = 7
    eager, model = Fails(), Fails()
    compiled = corsac.compile(model, options={"inference": "native"})
    for x in (torch.eye(3) * 4, bad) * 5:
        for run in (eager, compiled):
            try:
                run(x)
            except RuntimeError as error:
                assert "cholesky" in str(error)
        assert (model.calls, model.done) == (eager.calls, eager.done)


def test_counters_of_modules_are_numbers():
    """Setting attributes of a module only checks for a parameter of that name, and compares nothing else."""

    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.count, self.last = nn.Linear(3, 3), 0, None

        def forward(self, x):
            self.count += 1
            self.last = self.count * 2
            return self.layer(x) * self.count

    model = Counts()
    compiled = corsac.compile(model, options={"inference": "native"})
    with torch.no_grad():
        for number in range(1, 12):
            same(compiled(X[:, :3]), model.layer(X[:, :3]) * number)
            assert (model.count, model.last) == (number, 2 * number)
    assert len(module_of(compiled)._recorded.programs()) <= 2
    assert not module_of(compiled)._reasons


def test_random_numbers_that_nobody_uses_are_drawn_in_each_part():
    def function(x):
        torch.rand(2)
        if x.sum() > 0:
            torch.rand(3)
            return (x + 1).relu().exp()
        return x - 1

    compiled = corsac.compile(function, options={"inference": "native"})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in range(8):
            x = torch.full((2, 3), float((-1) ** call))
            outcomes = []
            for own in (function, compiled):
                torch.manual_seed(call)
                outcomes.append((own(x), torch.rand(2)))
            same(*outcomes)


@pytest.mark.parametrize(
    "unused",
    [lambda x: x.contiguous(), lambda x: x.float(), lambda x: x.to(torch.float32)],
    ids=["contiguous", "float", "to"],
)
def test_inputs_that_nobody_uses_are_dropped(unused):
    def program(x, y):
        unused(x)
        if y.sum() > 0:
            return y + 1
        return y.exp() + 1

    compiled = corsac.compile(program)
    x, y = torch.randn(3), torch.rand(4) + 0.1
    for given in (y, -y, y, -y):
        same(compiled(x, given), program(x, given))
