"""Programs that change existing state: natively, in each call, with PyTorch's results."""

import gc
import operator
import random
import threading
import warnings
import weakref
from collections import OrderedDict, deque, namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import corsac
from corsac._models.function import module_of

X = torch.linspace(-1, 1, 6).reshape(2, 3)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", corsac.HostWarning)
        yield


def flat(value, seen=None):
    """All parts of a value, through containers and objects; repeated objects by the path of their first occurrence."""
    seen = {} if seen is None else seen
    if not isinstance(value, torch.Tensor) and (
        value is None or isinstance(value, bool | int | float | str | type)
    ):
        return [value]
    if id(value) in seen:
        return [("again", seen[id(value)][0])]
    seen[id(value)] = len(seen), value
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        parts = [own for key, part in value.items() for own in (key, *flat(part, seen))]
    elif isinstance(value, list | tuple | deque):
        parts = [own for part in value for own in flat(part, seen)]
    elif isinstance(value, set):
        parts = sorted(value)
    elif isinstance(value, nn.Module):
        shown = {
            k: v for k, v in value.__dict__.items() if not k.startswith("_") or k == "_buffers"
        }
        parts = flat(shown, seen)
    elif hasattr(value, "__dict__"):
        parts = flat(vars(value), seen)
    else:
        parts = [getattr(value, name, None) for name in type(value).__slots__]
        parts = flat(parts, seen)
    return [type(value).__name__, len(parts), *parts]


def same(found, expected):
    mine, its = flat(found), flat(expected)
    assert len(mine) == len(its), (mine, its)
    for own, other in zip(mine, its, strict=True):
        assert type(own) is type(other)
        if isinstance(own, torch.Tensor):
            assert own.dtype == other.dtype and own.requires_grad == other.requires_grad
            torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-6)
        else:
            assert own == other, (mine, its)


def alike(make, arguments=lambda: (X.clone(),), *, calls=5, change=lambda own: None):
    """Make two programs and compile one of them: results, arguments and the programs are the same after each
    call, and after a change of the programs. Returns the compiled one."""
    mine, its = make(), make()
    compiled = corsac.compile(mine)
    with torch.no_grad():
        for number in range(2 * calls):
            if number == calls:
                change(mine)
                change(its)
            given, other = arguments(), arguments()
            same((compiled(*given), given), (its(*other), other))
            if isinstance(mine, nn.Module):
                same(mine, its)
    return compiled


def is_native(compiled, programs=1):
    module = module_of(compiled)
    return module._dynamo is None and len(module._recorded.programs()) == programs


class State(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 3)
        self.h, self.last, self.flag = torch.zeros(2, 3), None, False
        self.hist, self.rows, self.pair = [], [torch.zeros(2, 3), torch.ones(2, 3)], (X, X + 1)
        self.named, self.queue = {"a": X * 2}, deque(maxlen=2)
        self.inner = SimpleNamespace(h=torch.ones(2, 3), config=SimpleNamespace(scale=2.0))
        self.register_buffer("seen", torch.zeros(2, 3))


def hidden(self, x):
    self.h = self.h * 0.5 + self.layer(x)
    return self.h.relu()


def kept(self, x):
    self.last = x * 2
    return self.last + 1


def appended(self, x):
    y = x * 2
    self.hist.append(y)
    return y + 1


def replaced_rows(self, x):
    for number in range(2):
        self.rows[number] = self.rows[number] * 0.5 + x
    return self.rows[0] + self.rows[1]


def replaced_tuple(self, x):
    a, b = self.pair
    self.pair = a + x, b * x
    return self.pair[1]


def swapped(self, x):
    self.rows[0], self.rows[1] = self.rows[1], self.rows[0]
    return self.rows[0] * x


def buffer(self, x):
    self.seen = self.seen * 0.9 + x
    return self.seen.relu()


def entry(self, x):
    self.named["b"] = x + self.named["a"]
    self.named["a"] = x * self.named["a"]
    return self.named["b"]


def queued(self, x):
    self.queue.append(x + 1)
    return x * 2


def nested(self, x):
    self.inner.h = self.inner.h * self.inner.config.scale + x
    return self.inner.h - 1


def input_kept(self, x):
    previous, self.last = self.last, x
    return x * 2 if previous is None else x + previous


def same_twice(self, x):
    self.h = self.last = x * 3
    return self.h


def fresh_container(self, x):
    self.pair = {"x": x * 2, "l": [x + 1, self.named]}
    return self.pair


def deleted(self, x):
    self.extra = x * 2
    y = self.extra + 1
    del self.extra
    self.named.pop("gone", None)
    return y


def flagged(self, x):
    if not self.flag:
        self.flag = True
        return x * 5
    return x * 2 + self.h


def weight_kept(self, x):
    self.last = self.layer.weight
    return x @ self.last


def view_kept(self, x):
    y = x * 2
    self.last = y[0]
    return y


FORWARDS = [
    hidden, kept, appended, replaced_rows, replaced_tuple, swapped, buffer, entry, nested, input_kept,
    same_twice, fresh_container, deleted, weight_kept, view_kept,
]  # fmt: skip


def made(forward):
    class Own(State):
        pass

    Own.forward = forward
    return Own


@pytest.mark.parametrize("forward", FORWARDS, ids=lambda own: own.__name__)
@pytest.mark.recording
def test_state_of_a_module(forward):
    def change(own):
        own.h, own.rows[0], own.inner.h = own.h + 1, own.rows[0] - 1, own.inner.h * 2
        own.named["a"], own.seen = own.named["a"] + 5, own.seen + 1

    compiled = alike(made(forward), change=change)
    assert module_of(compiled)._dynamo is None
    # None in the first call is a tensor in the second.
    assert len(module_of(compiled)._recorded.programs()) <= 2


@pytest.mark.recording
def test_containers_that_do_more_when_they_are_changed():
    class Counts(dict):
        writes = 0

        def __setitem__(self, key, value):
            self.writes += 1
            super().__setitem__(key, value)

    class Logs(list):
        def append(self, value):
            super().append(value)
            super().append(len(self))

    class Own(State):
        def __init__(self):
            super().__init__()
            self.named, self.hist = Counts(a=X), Logs()

        def forward(self, x):
            self.named["a"] = x + self.named["a"]
            self.hist.clear()
            self.hist.append(x * 2)
            return self.named["a"]

    mine, its = Own(), Own()
    compiled = corsac.compile(mine)
    with torch.no_grad():
        for number in range(6):
            same(compiled(X + number), its(X + number))
            same((dict(mine.named), list(mine.hist)), (dict(its.named), list(its.hist)))
            assert mine.named.writes == its.named.writes == number + 1


@pytest.mark.recording
def test_state_is_explained():
    compiled = alike(made(hidden))
    text = compiled.explain()
    assert "inputs from state or containers: 1; changes of state: 1" in text and "[2, 3]" in text


@pytest.mark.recording
def test_flags_have_programs_of_their_own():
    def change(own):
        own.flag = False

    assert is_native(alike(made(flagged), change=change), 2)


@pytest.mark.recording
def test_state_of_another_size_or_type_is_seen():
    def change(own):
        own.h = torch.zeros(1, 3, dtype=torch.int64)

    assert is_native(alike(made(hidden), change=change), 2)


@pytest.mark.recording
def test_state_that_is_two_tensors_and_then_one():
    class Both(State):
        def forward(self, x):
            self.h, self.last = self.h + x, (self.h if self.last is None else self.last) * 2
            return self.h is self.last, self.h + self.last

    def change(own):
        own.h = own.last

    alike(Both, change=change)


@pytest.mark.recording
def test_a_tensor_that_is_a_weight_at_first():
    class Begins(State):
        def __init__(self):
            super().__init__()
            self.begin = torch.ones(2, 3)
            self.h = self.begin

        def forward(self, x):
            self.h = self.h + x
            return self.h + self.begin

    alike(Begins)


@pytest.mark.recording
def test_whether_an_argument_is_a_tensor_that_is_known():
    known = torch.ones(2, 3)

    def function(x):
        return x * 2 if x is known else x * 3

    compiled = corsac.compile(function)
    for own in (X, known, X, known):
        torch.testing.assert_close(compiled(own), function(own))


@pytest.mark.recording
def test_an_argument_that_is_found_in_another_place():
    known = X.clone()

    def function(x):
        return x + known

    compiled = corsac.compile(function)
    with torch.no_grad():
        for own in (known, X * 3, known, X * 5, X):
            torch.testing.assert_close(compiled(own), function(own))

    class Holds(State):
        def forward(self, x):
            self.last = x
            return x + self.rows[0]

    mine, its = Holds(), Holds()
    compiled = corsac.compile(mine)
    with torch.no_grad():
        for number in range(6):
            own = X if number in (0, 3, 4) else X * number
            if number == 2:
                mine.rows[0] = its.rows[0] = X
            torch.testing.assert_close(compiled(own), its(own))
            assert mine.last is own


class Doubles(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value * 2)


class DoublesSlots:
    __slots__ = ("value",)

    def __init__(self):
        object.__setattr__(self, "value", X)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value * 2)


class Reads:
    def __init__(self):
        self.value = 2.0

    def __getattribute__(self, name):
        return super().__getattribute__(name)


class Special(State):
    def __init__(self):
        super().__init__()
        self.doubles, self.slots, self.reads = Doubles(), DoublesSlots(), Reads()
        self.empty = {}


def sets_by_a_method(self, x):
    self.doubles["a"] = x
    self.slots.value = self.slots.value + x
    return self.slots.value + 1


def reads_by_a_method(self, x):
    return x * self.reads.value


def sets_in_an_order(self, x):
    known = "b" in self.empty
    self.empty["a"], self.empty["b"] = x, x + 1
    return x + known


def sets_again(self, x):
    before = self.named["a"]
    del self.named["a"]
    self.named["a"] = before
    self.named["b"] = x
    return before + x


@pytest.mark.parametrize(
    "forward",
    [sets_by_a_method, reads_by_a_method, sets_in_an_order, sets_again],
    ids=lambda own: own.__name__,
)
@pytest.mark.recording
def test_methods_and_orders_of_what_is_changed(forward):
    class Own(Special):
        pass

    def change(own):
        own.reads.value = 7.0
        own.named = {"a": X, "z": X + 1}
        own.empty = {"b": X, "a": X}

    Own.forward = forward
    alike(Own, change=change)


@pytest.mark.recording
def test_results_that_another_call_cannot_have():
    def closes(x):
        y = x * 2
        return y, lambda: y

    def tagged(x):
        y = x * 2
        y.tag = x
        return y

    closes, tagged = corsac.compile(closes), corsac.compile(tagged)
    by_tensor = corsac.compile(lambda x: {x: x * 2})
    kept = {}

    @corsac.compile
    def keeps(x):
        kept.clear()
        kept[x] = x * 2
        return x + 1

    with torch.no_grad():
        for number in range(4):
            x = X + number
            y, function = closes(x)
            assert function() is y
            assert tagged(x).tag is x
            assert next(iter(by_tensor(x))) is x
            keeps(x)
            assert next(iter(kept)) is x


class Plain:
    pass


KNOWN = [Plain(), Plain()]


@pytest.mark.parametrize(
    "is_known",
    [
        lambda own: own in KNOWN,
        lambda own: own == KNOWN[0],
        lambda own: (own, 1) == (KNOWN[0], 1),
        lambda own: operator.is_(own, KNOWN[0]),
    ],
    ids=["in", "equal", "tuple", "is"],
)
@pytest.mark.recording
def test_whether_an_argument_is_an_object_that_is_known(is_known):
    def function(own, x):
        return x * 2 if is_known(own) else x * 3

    compiled = corsac.compile(function)
    with torch.no_grad():
        for own in (Plain(), Plain(), KNOWN[0], Plain(), KNOWN[1]):
            torch.testing.assert_close(compiled(own, X), function(own, X))


# Arguments.

Pair = namedtuple("Pair", "first second")


class Cache:
    def __init__(self, value=None):
        self.value, self.log, self.options = value, [], {"scale": 2.0}


class Slotted:
    __slots__ = ("other", "value")

    def __init__(self):
        self.value, self.other = X * 2, None


def of_dict(own):
    return own["x"] * 2 + own["l"][0]


def of_tuple(own):
    a, (b, c) = own
    return {"sum": a + b * c, "given": own}


def of_named(own):
    return own.first * own.second


def writes_dict(own, x):
    own["y"] = x * 2
    own["l"].append(own["y"])
    return own["y"] + 1


def fills(own, x):
    own.value = x if own.value is None else own.value * own.options["scale"] + x
    own.log.append(own.value)
    return own.value, own


def of_slots(own, x):
    own.other = own.value + x
    own.value = own.other * 2
    return own


def clears(own, x):
    first = own.pop(0)
    own.clear()
    own.extend([x, first])
    return own[0] + 1


def ordered(own):
    return sum(own.values()) + next(iter(own)).count("a")


ARGUMENTS = {
    "dict": (of_dict, lambda: ({"x": X + 1, "l": [X, 3]},)),
    "tuple": (of_tuple, lambda: ((X + 1, (X, X * 2)),)),
    "list": (of_tuple, lambda: ([X + 1, [X, X * 2]],)),
    "the same twice": (lambda a, b: (a is b, a[0] + b[0]), lambda: ([X], [X])),
    "named tuple": (of_named, lambda: (Pair(X, X + 1),)),
    "a dictionary that is written": (writes_dict, lambda: ({"l": [X]}, X + 1)),
    "an object": (fills, lambda: (Cache(X * 3), X)),
    "an empty object": (fills, lambda: (Cache(), X)),
    "slots": (of_slots, lambda: (Slotted(), X)),
    "a list that is replaced": (clears, lambda: ([X, X + 1], X * 2)),
    "ordered": (ordered, lambda: (OrderedDict(ab=X, b=X + 1),)),
}


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.recording
def test_arguments_that_hold_tensors(name):
    function, arguments = ARGUMENTS[name]
    compiled = alike(lambda: function, arguments)
    assert module_of(compiled)._dynamo is None
    # The first object of a class is recognised as such.
    assert len(module_of(compiled)._recorded.programs()) in (1, 2)


@pytest.mark.recording
def test_what_containers_hold_is_looked_at():
    compiled = corsac.compile(of_dict)
    shared = [X]
    for own in (
        {"x": X, "l": [X]},
        {"x": X + 1, "l": [2.0]},
        {"l": [X], "x": X},
        {"x": X.double(), "l": [X]},
        {"x": X[:1], "l": [X]},
        {"x": shared[0], "l": shared},
        {"x": 3, "l": [X, X]},
        OrderedDict(x=X, l=(X,)),
    ):
        same(compiled(own), of_dict(own))

    @corsac.compile
    def distinct(a, b):
        a.append(1)
        return X * len(b)

    first, second = [1], [1]
    torch.testing.assert_close(distinct(first, second), X)
    torch.testing.assert_close(distinct(first, first), X * 3)
    torch.testing.assert_close(distinct([1], [1]), X)
    both = [1]
    torch.testing.assert_close(distinct(both, both), X * 2)


@pytest.mark.recording
def test_an_argument_that_is_known_elsewhere():
    hist = []

    @corsac.compile
    def function(own, x):
        own.append(x)
        return x * len(hist)

    with torch.no_grad():
        torch.testing.assert_close(function([], X), X * 0)
        torch.testing.assert_close(function([], X), X * 0)
        torch.testing.assert_close(function(hist, X), X * 1)
        torch.testing.assert_close(function(hist, X), X * 2)
        torch.testing.assert_close(function([], X), X * 2)


@pytest.mark.recording
def test_tensors_with_attributes_in_arguments():
    @corsac.compile
    def function(own):
        return own[0] * getattr(own[0], "scale", 1.0)

    for scale in (None, 2.0, 3.0, None):
        own = X.clone()
        if scale is not None:
            own.scale = scale
        torch.testing.assert_close(function([own]), X * (scale or 1.0))


@pytest.mark.recording
def test_nothing_of_calls_is_kept():
    class Keeps(State):
        def forward(self, own):
            self.h = self.h + own["x"]
            return self.h * 2

    compiled = corsac.compile(Keeps())
    found = []
    with torch.no_grad():
        for _ in range(6):
            own = {"x": X.clone()}
            found.append(weakref.ref(own["x"]))
            compiled(own)
            found.append(weakref.ref(compiled.h))
    del own
    gc.collect()
    alive = [ref for ref in found if ref() is not None]
    assert len(alive) == 1 and alive[0]() is compiled.h


@pytest.mark.recording
def test_gradients_of_state():
    model, other = made(hidden)(), made(hidden)()
    compiled = corsac.compile(model)
    for _ in range(3):
        with torch.no_grad():
            same(compiled(X), other(X))
    for _ in range(2):
        found, expected = compiled(X), other(X)
        assert found.requires_grad
        torch.testing.assert_close(found, expected)
    with torch.no_grad():
        same(compiled(X), other(X))


@pytest.mark.recording
def test_threads_with_caches_of_their_own():
    compiled = corsac.compile(fills)
    failures = []

    def work(seed):
        mine, its = Cache(), Cache()
        try:
            for number in range(20):
                x = X * seed + number
                with torch.no_grad():
                    found, expected = compiled(mine, x)[0], fills(its, x)[0]
                torch.testing.assert_close(found, expected)
                mine.log.clear()
                its.log.clear()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for own in threads:
        own.start()
    for own in threads:
        own.join()
    assert not failures


# Random programs.


class Steps(nn.Module):
    """Some steps on state and on an argument, in an order that depends on the seed."""

    def __init__(self, seed):
        super().__init__()
        self.steps = random.Random(seed).choices(list(STEPS), k=random.Random(seed).randint(2, 7))
        self.a, self.b, self.list = X.clone(), X + 1, [X * 2, X * 3]
        self.names, self.box, self.pair = {"a": X + 2}, SimpleNamespace(a=X + 3), (X, X)
        self.on, self.count = False, 2
        self.register_buffer("buffer", torch.ones(2, 3))

    def forward(self, x, own):
        for step in self.steps:
            x = STEPS[step](self, x, own)
        return x, own


def step(function):
    STEPS[function.__name__] = function


STEPS = {}


@step
def reads(self, x, own):
    return x + self.a


@step
def writes(self, x, own):
    self.a = x * 2
    return x


@step
def moves(self, x, own):
    self.a, self.b = self.b, self.a
    return x - self.b


@step
def sets_item(self, x, own):
    self.list[0] = self.list[1] + x
    return x


@step
def rotates(self, x, own):
    self.list.append(self.list.pop(0))
    return x * self.list[0]


@step
def takes_entry(self, x, own):
    own["y"] = own["x"] + x
    return own["y"]


@step
def puts_into_argument(self, x, own):
    own["list"].append(x)
    return x


@step
def shares(self, x, own):
    self.names["a"] = own["x"]
    return x


@step
def hands_over(self, x, own):
    own["x"] = self.names["a"]
    return x + own["x"]


@step
def boxes(self, x, own):
    self.box.a = x + self.box.a * 0.5
    return x


@step
def replaces_box(self, x, own):
    self.box = SimpleNamespace(a=x)
    return x


@step
def pairs(self, x, own):
    self.pair = self.pair[1], x
    return x + self.pair[0]


@step
def toggles(self, x, own):
    self.on = not self.on
    return x * 2 if self.on else x


@step
def buffers(self, x, own):
    self.buffer = self.buffer * 0.5 + x
    return x


@step
def names_twice(self, x, own):
    self.a = self.box.a
    return x + self.a


@step
def compares(self, x, own):
    return x + 1 if self.a is self.b else x


@step
def lengths(self, x, own):
    return x * (len(own["list"]) + 1)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.recording
def test_random_steps(seed):
    choose = random.Random(seed)
    mine, its = Steps(seed), Steps(seed)
    compiled = corsac.compile(mine)
    held = [{"x": X * 4, "list": []} for _ in range(2)]
    for number in range(8):
        length = choose.randint(0, 1)
        given = [{"x": X + number, "list": [X] * length} for _ in range(2)]
        if choose.random() < 0.3:
            given = held
        if choose.random() < 0.3:
            for own, arguments in ((mine, given[0]), (its, given[1])):
                own.b, own.box.a, own.list[1] = own.a, own.names["a"], arguments["x"]
        with torch.no_grad():
            found = compiled(X - number, given[0])
            expected = its(X - number, given[1])
        same((found, mine, given[0]), (expected, its, given[1]))
