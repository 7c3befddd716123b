"""Programs that use rare features of Python: each call has PyTorch's results."""

import collections
import functools
import threading
import warnings
import weakref
from types import SimpleNamespace

import pytest
import torch

import corsac


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", corsac.HostWarning)
        yield


def given():
    return torch.linspace(-1, 1, 6).reshape(2, 3)


def alike(make, inputs=given):
    """``make`` returns a program and a change between calls, and is called twice: results are the same."""

    def results(compile):
        function, *changes = make()
        compiled, found = compile(function), []
        with torch.no_grad():
            for change in (lambda: None, *changes):
                change()
                found += [compiled(inputs()) for _ in range(3)]
        return found

    for own, expected in zip(results(corsac.compile), results(lambda own: own), strict=True):
        assert type(own) is type(expected)
        if isinstance(own, torch.Tensor):
            torch.testing.assert_close(own, expected)
        else:
            assert all(type(a) is type(b) for a, b in zip(own, expected, strict=True))
            assert [*map(str, own)] == [*map(str, expected)]


class Scale:
    factor = 3


def test_weak_reference_to_what_only_others_hold():
    def make():
        owner = [Scale()]
        reference = weakref.ref(owner[0])

        def program(x):
            found = reference()
            return x if found is None else x * found.factor

        return program, owner.clear

    alike(make)


def test_weak_reference_to_what_it_also_finds_otherwise():
    owner = [Scale()]
    reference = weakref.ref(owner[0])

    @corsac.compile
    def program(x):
        return x * owner[0].factor if reference() is owner[0] else x

    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(program(given()), given() * 3)
    assert len(program._corsac_module._recorded.programs()) == 1


@pytest.mark.parametrize(
    "name, operation",
    [
        ("__add__", lambda x: x + 1),
        ("__rsub__", lambda x: 1 - x),
        ("__neg__", lambda x: -x),
        ("__lt__", lambda x: x < 0),
        ("__getitem__", lambda x: x[0]),
    ],
)
def test_operator_of_tensors_that_is_replaced(name, operation, monkeypatch):
    def change():
        monkeypatch.setattr(torch.Tensor, name, lambda *own: torch.zeros(4))

    def make():
        monkeypatch.undo()
        return operation, change

    alike(make)


def test_descriptor_that_comes_first_from_now_on():
    def make():
        class Descriptor:
            def __get__(self, own, owner):
                return 2

        class Owner:
            scale = Descriptor()

        owner = Owner()
        owner.__dict__["scale"] = 7
        return lambda x: x * owner.scale, lambda: setattr(Descriptor, "__set__", lambda *own: None)

    alike(make)


def test_value_of_a_class_that_becomes_a_descriptor():
    def make():
        class Plain:
            def __mul__(self, other):
                return other * 3

        class Owner:
            scale = Plain()

        owner = Owner()
        change = lambda: setattr(Plain, "__get__", lambda self, own, kind: Scale())  # noqa: E731
        return lambda x: x * getattr(owner.scale, "factor", 5), change

    alike(make)


def test_tensor_that_a_function_remembers():
    def make():
        @functools.lru_cache
        def positions(count):
            return torch.arange(count).float()

        def program(x):
            return x * positions(x.shape[1])

        return program, lambda: positions(3).add_(10), positions.cache_clear

    alike(make)


def test_tensors_that_a_function_remembers_for_each_size():
    @functools.lru_cache
    def positions(count):
        return torch.arange(count).float()

    @corsac.compile
    def program(x):
        return x * positions(x.shape[0])

    with torch.no_grad():
        for size in (2, 3, 4, 3, 5, 2):
            x = torch.ones(size)
            torch.testing.assert_close(program(x), torch.arange(size).float())
        positions(3).add_(10)
        torch.testing.assert_close(program(torch.ones(3)), torch.arange(3) + 10.0)


def test_remembered_results_of_arguments_with_names():
    def make():
        @functools.lru_cache
        def difference(a, b):
            return a - b

        return lambda x: (x * difference(b=1, a=5), difference.cache_info())

    def program():
        function = make()
        return lambda x: function(x)[0], lambda: None

    alike(program)
    function = make()
    compiled = corsac.compile(lambda x: function(x)[0])
    with torch.no_grad():
        for _ in range(3):
            compiled(given())
    assert function(given())[1].currsize == 1


def test_functions_that_remember_are_run_as_often_as_in_pytorch():
    ran = []

    @functools.lru_cache(maxsize=1)
    def scale(a, *, b=1):
        ran.append((a, b))
        return a * b + offset[0]

    def program(x):
        return x * scale(2, b=3)

    offset = [1]
    compiled = corsac.compile(program, options={"inference": "native"})
    with torch.no_grad():
        for _ in range(4):
            assert torch.equal(compiled(given()), given() * 7)
        assert ran == [(2, 3)] and scale.cache_info().currsize == 1
        scale.cache_clear()
        offset[0] = 2
        for _ in range(4):
            assert torch.equal(compiled(given()), given() * 8)
        assert ran == [(2, 3)] * 2


def test_sizes_are_returned_as_sizes():
    alike(lambda: (lambda x: (x * 2, x.shape, x.shape[:1], [x.shape]),))


def test_generator_that_is_left_does_so_at_once():
    def make():
        log = []

        def halves(x):
            try:
                yield x
                yield x / 2
            finally:
                log.append("left")

        def program(x):
            for own in halves(x):
                x = own + 1
                break
            return x + len(log)

        return program, log.clear

    alike(make)


def test_object_that_goes_away_does_so_at_once():
    def make():
        log = []

        class Noted:
            def scale(self):
                return 2

            def __del__(self):
                log.append("gone")

        def program(x):
            own = Noted()
            x = x * own.scale()
            del own
            return x + len(log)

        return program, log.clear

    alike(make)


def strides(results):
    """The stride of a dimension with one element does not matter."""
    return [
        [stride for stride, size in zip(own.stride(), own.shape, strict=True) if size > 1]
        for own in results
    ]


@pytest.mark.parametrize(
    "program",
    [
        lambda x: (x * 2,),
        lambda x: (x.t() + 1, x.relu()),
        lambda x: (x.exp().sum(0, keepdim=True).expand(2, 3),),
        lambda x: ((x * 2).t(), torch.cat([x, x])),
        lambda x: ((x * 2)[:, ::2], (x + 1).t().relu()),
        lambda x: (*(x * 2).chunk(3, -1),),
    ],
)
def test_results_lie_in_memory_as_eagers_do(program):
    rows = torch.randn(4, 6)
    inputs = [
        rows[:2, :3].contiguous(),
        torch.randn(3, 2).t(),
        rows[:2, :3],
        rows[::2, ::2],
        rows.t()[:2, :3],
        rows[:1, :3].expand(2, 3),
    ]
    compiled = corsac.compile(program)
    with torch.no_grad():
        for x in [*inputs, *inputs, *inputs]:
            found, expected = compiled(x), program(x)
            torch.testing.assert_close(found, expected)
            assert strides(found) == strides(expected)


def test_results_lie_in_memory_as_eagers_do_in_all_sizes():
    @corsac.compile
    def program(x):
        return x.transpose(0, 1) * 2

    with torch.no_grad():
        for size in (2, 3, 4, 5, 6):
            x = torch.randn(size, 3, 2)
            assert program(x).stride() == (x.transpose(0, 1) * 2).stride()
    assert len({id(own.graph) for own in program._corsac_module._recorded.programs()}) == 2


def test_hidden_state_lies_in_memory_as_eagers_does():
    def make():
        state = [torch.zeros(2, 3)]

        def program(x):
            state[0] = state[0] + x
            return state[0] * 1, state[0].stride()

        return (program,)

    alike(make, lambda: torch.ones(3, 2).t())


def test_queues_that_are_full():
    def make():
        queue, kept = collections.deque([given()], maxlen=3), [given()]

        def program(x):
            queue.append(x + kept[0])
            kept.insert(0, x * len(queue))
            return kept[0]

        return program, lambda: kept.append(given())

    alike(make)


def test_dictionaries_that_entries_are_taken_from():
    def make():
        entries = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}

        def program(x):
            if not entries:
                return x
            number = entries.popitem()[1]
            return x * number

        def change():
            entries.clear()
            entries.update(b=7, a=1, z=3)

        return program, change, change, change

    alike(make)


def test_regions_for_profilers_are_recorded():
    linear = torch.nn.Linear(4, 4).eval()

    @torch.profiler.record_function("outer")
    def function(x):
        with torch.autograd.profiler.record_function("inner"):
            y = linear(x).relu()
        return y * 2

    compiled = corsac.compile(function)
    with torch.no_grad():
        for seed in range(4):
            x = torch.full((2, 4), 1.0 + seed)
            torch.testing.assert_close(compiled(x), function(x))
    assert "not compiled" not in str(compiled.explain())


def test_each_thread_has_its_own_attributes():
    local = threading.local()
    local.factor = 2.0

    def function(x):
        return x.relu() * getattr(local, "factor", 7.0) + (1 if hasattr(local, "more") else 0)

    compiled = corsac.compile(function)
    x = torch.ones(2, 4)
    found = []

    def call(*values):
        for value in values:
            if value is not None:
                local.factor = value
            found.append((compiled(x)[0, 0].item(), function(x)[0, 0].item()))

    call(None, None)
    other = threading.Thread(target=call, args=(None, 5.0, 5.0))
    other.start()
    other.join()
    call(None, 3.0)
    local.more = True
    call(None, None)
    assert found == [(own, own) for own in (2, 2, 7, 5, 5, 2, 3, 4, 4)]
    assert "not compiled" not in str(compiled.explain())


def test_objects_that_compute_in_place():
    class Total:
        def __init__(self):
            self.values = [1]

        def __iadd__(self, other):
            self.values.append(other)
            return self

    class Frozen:
        def __init__(self, value):
            self.value = value

        def __add__(self, other):
            return Frozen(self.value + other)

    def results(compile):
        state = SimpleNamespace(total=Total(), frozen=Frozen(1), texts="a")

        def function(x):
            state.total += 2
            state.frozen += 1
            state.texts += "b"
            return x.relu() * len(state.total.values) * state.frozen.value

        compiled = compile(function)
        with torch.no_grad():
            return (
                [compiled(given()).sum().item() for _ in range(6)],
                vars(state.total),
                state.texts,
            )

    assert results(corsac.compile) == results(lambda own: own)
