"""Programs watched while they run: values that they read are guarded, and their side effects are repeated."""

import collections
import contextlib
import contextvars
import copy
import dataclasses
import enum
import functools
import random
import sys
import threading
import types
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves

import corsac
from corsac._models.function import module_of

pytestmark = pytest.mark.recording
X = torch.linspace(-1, 1, 6).reshape(2, 3)


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
        if isinstance(other, torch.Tensor):
            assert own.dtype == other.dtype
            torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-6, equal_nan=True)
        else:
            assert type(own) is type(other) and own == other


def agree(program, *changes, args=(X,)):
    """The program has eager's results, three times, and after each change."""
    compiled = corsac.compile(program)
    with torch.no_grad():
        for change in (lambda: None, *changes):
            change()
            for _ in range(3):
                same(compiled(*args), program(*args))
    return compiled


def is_native(compiled):
    return bool(module_of(compiled)._recorded.programs()) and module_of(compiled)._dynamo is None


# First calls.


QUESTIONS = {
    "text": lambda x: x * len(f"{x.shape[0]} {x.shape}"),
    "size": lambda x: x * 2 if isinstance(x.shape[0], int) else x,
    "type": lambda x: x * 2 if type(x) is torch.Tensor else x,
    "instance": lambda x: x * 2 if isinstance(x, torch.Tensor) else x,
    "attribute": lambda x: x * 2 if hasattr(x, "nope") else x,
    "dtype": lambda x: x * len(str(x.dtype)),
    "key": lambda x: x * {2: 5.0}.get(x.shape[0], 7.0),
    "set": lambda x: x * 2 if x.ndim in {2} else x,
    "device": lambda x: x * {"cpu": 2.0}.get(x.device.type, 9.0),
    "mode": lambda x: x * 2 if torch.is_grad_enabled() else x * 3,
    "form": lambda x: x * x.stride(0) + x.storage_offset() + (x.grad is None),
    "callable": lambda x: x * 2 if callable(x) else x,
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_are_answered_as_eager_answers_them(name):
    agree(QUESTIONS[name])


def test_a_pattern():
    def program(x):
        match x.shape:
            case (2, columns):
                return x * columns
            case _:
                return x

    agree(program)


def test_identity():
    def program(x, y):
        return x * 2 if x is y else x * 3 + y

    compiled = corsac.compile(program)
    other = X.clone()
    with torch.no_grad():
        for args in ((X, X), (X, other), (X, X), (X, other), (other, other)):
            same(compiled(*args), program(*args))

    agree(lambda x: x * (1 + id(x) % 3))


# Reads.


SCALE = 2.0


def scaled(x, by=1.0, *, plus=0.0):
    return x * SCALE * by + plus


def set_scale(value):
    global SCALE
    SCALE = value


def test_variables_and_functions(monkeypatch):
    compiled = agree(
        lambda x: scaled(x),
        lambda: monkeypatch.setitem(globals(), "SCALE", 3.0),
        lambda: monkeypatch.setattr(scaled, "__defaults__", (4.0,)),
        lambda: scaled.__kwdefaults__.update(plus=1.0),
        lambda: monkeypatch.setattr(
            scaled, "__code__", (lambda x, by=1.0, *, plus=0.0: x - by).__code__
        ),
    )
    assert is_native(compiled)
    scaled.__kwdefaults__.update(plus=0.0)


def test_functions_of_pytorch_that_are_replaced(monkeypatch):
    agree(lambda x: F.relu(x) + 1, lambda: monkeypatch.setattr(F, "relu", lambda x: x * 0 + 9))


def test_classes():
    class Base:
        factor = 1.0

        def of(self):
            return self.factor

    class Other(Base):
        def of(self):
            return 7.0

    class Own(Base):
        pass

    own = Own()
    compiled = agree(
        lambda x: x * own.of(),
        lambda: setattr(Base, "factor", 2.0),
        lambda: setattr(Own, "factor", 3.0),
        lambda: setattr(own, "factor", 4.0),
        lambda: setattr(own, "of", lambda: 5.0),
        lambda: delattr(own, "of"),
        lambda: setattr(Own, "of", lambda self: 6.0),
        lambda: setattr(own, "__class__", Other),
    )
    assert is_native(compiled)


def test_attributes_that_are_computed():
    state = {"value": 1.0}

    class Computed:
        __slots__ = ("slot",)

        def __init__(self):
            self.slot = 1.0

        def __getattr__(self, name):
            if name == "found":
                return state["value"]
            raise AttributeError(name)

        @property
        def double(self):
            return state["value"] * 2 + self.slot

    own = Computed()
    compiled = agree(
        lambda x: x * own.found + own.double + getattr(own, "none", 3),
        lambda: state.update(value=4.0),
        lambda: setattr(own, "slot", 9.0),
    )
    assert is_native(compiled)


def test_containers():
    lists, sets, queue = [[1.0], 2.0], {"a"}, collections.deque([1.0])
    names, ordered = {"a": 1.0, "b": 2.0}, collections.OrderedDict(a=1.0, b=2.0)

    def program(x):
        for number, name in enumerate(names):
            x = x * names[name] + number if name != "a" else x - 1
        for name in ordered:
            x = x * 2 if name == "a" else x + 1
        return x * lists[0][0] + len(sets) + queue[0] + sum(queue)

    compiled = agree(
        program,
        lambda: lists[0].append(3.0),
        lambda: lists[0].__setitem__(0, 5.0),
        lambda: sets.add("b"),
        lambda: queue.appendleft(3.0),
        lambda: names.update(a=names.pop("a")),
        lambda: names.update(c=3.0),
        lambda: ordered.move_to_end("a"),
    )
    assert is_native(compiled)


class Color(enum.Enum):
    RED = 2.0


@dataclasses.dataclass
class Settings:
    factor: float = 2.0


def test_what_the_library_has():
    settings = Settings()
    part = functools.partial(lambda x, by: x * by, by=2.0)
    variable = contextvars.ContextVar("variable", default=1.0)

    @contextlib.contextmanager
    def added(amount):
        yield amount

    def program(x):
        with added(settings.factor) as amount:
            x = x + amount
        values = [v for v in (1.0, 2.0) if v > 1]
        x = x * dataclasses.replace(settings, factor=3.0).factor + Color.RED.value
        return part(x) + values[0] + variable.get() + sum(n for n in range(3))

    compiled = agree(
        program,
        lambda: setattr(settings, "factor", 5.0),
        lambda: setattr(Color.RED, "_value_", 3.0),
        lambda: part.keywords.update(by=7.0),
        lambda: variable.set(4.0),
    )
    assert is_native(compiled)
    Color.RED._value_ = 2.0


def test_functions_that_remember_results():
    state = [1.0]

    @functools.lru_cache
    def remembered(number):
        return state[0] * number

    def change():
        state[0] = 5.0
        remembered.cache_clear()

    agree(lambda x: x * remembered(2.0), change)


def test_default_types():
    try:
        agree(lambda x: x + torch.ones(3), lambda: torch.set_default_dtype(torch.float64))
    finally:
        torch.set_default_dtype(torch.float32)


def test_tensors_from_outside():
    weight, holder = torch.ones(3), types.SimpleNamespace(tensor=torch.ones(3))
    compiled = agree(
        lambda x: x * weight + holder.tensor,
        lambda: weight.mul_(2),
        lambda: setattr(holder, "tensor", torch.zeros(3)),
        lambda: setattr(weight, "data", torch.full((3,), 4.0)),
    )
    assert is_native(compiled)


def test_statistics_that_norms_write_to():
    norm = nn.BatchNorm1d(3)
    mean, var = torch.zeros(3), torch.ones(3)

    def calibrate():
        norm.train()
        norm(torch.randn(8, 3) + 3)
        norm.eval()

    compiled = agree(norm.eval(), calibrate, calibrate)
    assert is_native(compiled)
    # PyTorch does not count writes to these.
    agree(
        lambda x: F.batch_norm(x, mean, var),
        lambda: F.batch_norm(torch.randn(8, 3) + 5, mean, var, training=True),
    )


# Side effects.


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.count, self.log, self.last, self.named = 0, [], None, {}
        self.queue = collections.deque(maxlen=2)
        self.register_buffer("total", torch.zeros(3))


class Counts(Stateful):
    def forward(self, x):
        self.count += 1
        return x * self.count


class Logs(Stateful):
    def forward(self, x):
        self.log.append(x.mean())
        self.named[len(self.log)] = x.shape
        return x * len(self.log)


class Keeps(Stateful):
    def forward(self, x):
        before, self.last = self.last, x * 2
        self.queue.append(self.last)
        return x if before is None else x + before


class Buffers(Stateful):
    def forward(self, x):
        self.total = self.total * 0.5 + x.sum(0)
        return x * self.total


class Switches(Stateful):
    def forward(self, x):
        first, self.last = self.last is None, "called"
        return x * 2 if first else x * 3


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("cls", [Counts, Logs, Keeps, Buffers, Switches])
def test_state_is_kept(cls, trains):
    mine, its = cls().eval(), cls().eval()
    compiled = corsac.compile(mine)
    with torch.set_grad_enabled(trains):
        for number in range(5):
            x = X + number
            if trains:
                x.requires_grad_()
            same(compiled(x), its(x))
    for name in ("count", "last", "named", "total"):
        same(getattr(mine, name), getattr(its, name))
    same(list(mine.queue), list(its.queue))
    same(mine.log, its.log)
    assert all(type(own) in (torch.Tensor, nn.Parameter) for own in (*mine.log, *mine.queue))


class CountsInDictionaries(nn.Module):
    """Dictionaries of numbers and empty ones: the garbage collector does not track these."""

    def __init__(self):
        super().__init__()
        self.counts, self.last, self.kept = {"calls": 0}, {}, {}

    def forward(self, x):
        self.counts["calls"] += 1
        self.last["rows"] = len(x) + self.counts["calls"]
        self.kept[0] = x * 2
        return x * self.counts["calls"]


class NotesInDictionaries(CountsInDictionaries):
    def forward(self, x):
        self.kept["last"] = x * 2
        return x * 2


@pytest.mark.parametrize("cls", [CountsInDictionaries, NotesInDictionaries])
def test_dictionaries_that_the_collector_does_not_know(cls):
    mine, its = cls().eval(), cls().eval()
    compiled = corsac.compile(mine)
    with torch.no_grad():
        for number in range(6):
            same(compiled(X + number), its(X + number))
            assert mine.counts == its.counts and mine.last == its.last
            same(mine.kept, its.kept)


def test_dictionaries_that_are_returned():
    known, other = {"a": 1}, {"b": 2.0}

    def program(x):
        return known, {"c": 3}, {"x": x * 2, "other": other}, [1, 2], (x + 1, 4)

    compiled = corsac.compile(program)
    with torch.no_grad():
        before = compiled(X)
        for _ in range(3):
            found = compiled(X + 1)
            assert found[0] is known and found[2]["other"] is other
            assert found[1] == {"c": 3} and found[1] is not before[1] and found[3] is not before[3]
            same(found[2]["x"], (X + 1) * 2)
            same(found[4], (X + 2, 4))
            found[1]["d"] = 4
            found[3].append(3)
            before = found


def test_constants_that_are_written_part_by_part():
    def program(x):
        mask = x.new_zeros(2, 3)
        mask[:, 1] = 1
        mask[0] += torch.arange(3)
        copy = x.new_tensor(x)
        copy.mul_(2)
        own = torch.zeros(2, 3)
        own[0] = x[0]
        return x + mask, copy, own, mask

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = corsac.compile(program)
        with torch.no_grad():
            for number in range(4):
                found = compiled(X + number)
                same(found, program(X + number))
                found[3].fill_(9)


def test_what_is_said_is_said_each_time(capsys):
    calls = []

    def program(x):
        print("called", x.shape[0])
        calls.append(random.random())
        return x * 2

    compiled = corsac.compile(program)
    with torch.no_grad():
        for _ in range(4):
            same(compiled(X), X * 2)
    assert capsys.readouterr().out == "called 2\n" * 4 and len(set(calls)) == 4


def test_random_numbers_of_python_and_numpy():
    numpy = pytest.importorskip("numpy")
    generator = numpy.random.default_rng(0)
    programs = {
        "python": (lambda x: x * random.random(), lambda: random.seed(0)),
        "numpy": (lambda x: x * float(numpy.random.rand()), lambda: numpy.random.seed(0)),
        "own": (
            lambda x: x * float(generator.random()),
            lambda: generator.bit_generator.__setstate__(state),
        ),
    }
    state = generator.bit_generator.state
    state = copy.deepcopy(generator.bit_generator.__getstate__())
    for program, seed in programs.values():
        compiled = corsac.compile(program)
        with torch.no_grad():
            seed()
            expected = [program(X) for _ in range(4)]
            seed()
            for one in expected:
                same(compiled(X), one)


def test_writes_of_what_is_there_already():
    class Sets(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows, self.names = 0, {}

        def forward(self, x):
            self.rows = len(x)
            self.names["rows"] = self.rows
            return x * self.rows

    model = Sets().eval()
    compiled = agree(model, lambda: setattr(model, "rows", 9), lambda: model.names.clear())
    assert is_native(compiled)
    with torch.no_grad():
        compiled(X)
    assert model.rows == 2 and model.names == {"rows": 2}


def test_exceptions_that_programs_catch():
    def program(x):
        try:
            n = int(x.shape[0])
            x = x * {torch.float64: 2.0}[x.dtype]
        except KeyError as error:
            x = x * n + len(str(error))
        try:
            x.reshape(7)
        except RuntimeError:
            x = x + 1
        return x

    agree(program)


def test_generators_and_iterators_of_users():
    numbers, forever = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]), (n for n in range(100))
    mine = corsac.compile(lambda x: x * next(numbers) + next(forever))
    with torch.no_grad():
        for number in range(6):
            same(mine(X), X * (number + 1.0) + number)


def test_threads_that_write_meanwhile():
    log, stop = [], []

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.log = log

        def forward(self, x):
            for _ in range(2000):
                pass
            return x * 2 if x.sum() > 0 else x * 3

    def work():
        while not stop:
            log.append(len(log))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with torch.no_grad():
            for _ in range(5):
                same(corsac.compile(Model().eval())(X), X * 3)
    finally:
        stop.append(True)
        thread.join()
    assert log == list(range(len(log)))


# Circumstances.


def test_hooks_come_and_go():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval()
    handles = []

    def remove():
        handles.pop().remove()

    def every(module, args, result):
        return result + 1 if isinstance(module, nn.Linear) else result

    compiled = agree(
        model,
        lambda: handles.append(model.register_forward_hook(lambda *own: own[2] + 1)),
        remove,
        lambda: handles.append(model[0].register_forward_pre_hook(lambda _, args: (args[0] * 2,))),
        remove,
        lambda: handles.append(nn.modules.module.register_module_forward_hook(every)),
        remove,
        lambda: model.append(nn.Linear(3, 2)),
    )
    assert is_native(compiled)


def test_no_garbage_is_looked_for_while_another_thread_captures():
    import gc

    from corsac._capture.collection import no_collection

    inside, leave = threading.Event(), threading.Event()

    def other():
        with no_collection():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with no_collection():
        thread.start()
        assert inside.wait(10)
    # The first one has left, the second one has not.
    assert not gc.isenabled()
    leave.set()
    thread.join(10)
    assert gc.isenabled()


def test_variables_of_the_context_that_are_put_back():
    variable = contextvars.ContextVar("factor", default=3)

    def program(x):
        before = variable.get()
        variable.set(2)
        y = x * variable.get()
        variable.set(before)
        return y * variable.get()

    assert is_native(agree(program, lambda: variable.set(5)))


def test_arguments_that_are_objects_may_become_others():
    class Doubles:
        __slots__ = ("factor",)

        def of(self, x):
            return x * self.factor

    class Negates(Doubles):
        __slots__ = ()

        def of(self, x):
            return -x

    settings = Doubles()
    settings.factor = 2
    compiled = agree(
        lambda own, x: own.of(x) + 1,
        lambda: setattr(settings, "factor", 3),
        lambda: setattr(settings, "__class__", Negates),
        args=(settings, X),
    )
    assert is_native(compiled)


@pytest.mark.parametrize("kind", ["backward_hook", "backward_pre_hook"])
def test_hooks_of_what_was_compiled(kind):
    """Hooks of a compiled module run as those of any module: before, between and after calls."""
    model = nn.Linear(3, 3)
    x = X.clone().requires_grad_()
    compiled = corsac.compile(model)
    register = getattr(compiled, f"register_full_{kind}")
    called = []
    for _ in range(2):
        for hooked in (False, True, True, False):
            called.clear()
            hook = register(lambda *_: called.append(1)) if hooked else None
            compiled(x).sum().backward()
            assert called == [1] * hooked
            if hook is not None:
                hook.remove()


def test_training_steps_ask_how_inputs_lie():
    def program(x):
        return x * 2 if x.storage_offset() else x * 3

    compiled = corsac.compile(program)
    rows = torch.randn(4, 3)
    for x in (rows[:2], rows[2:], rows[:2], rows[2:]) * 2:
        x = x.detach().requires_grad_()
        found, expected = compiled(x), program(x)
        same(found, expected)


def test_who_else_captures():
    model = nn.Linear(3, 3).eval()
    compiled = corsac.compile(model)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(X)
        compiled(X)
        traced = torch.jit.trace(compiled, X, check_trace=False)
        same(traced(X * 2), model(X * 2))
    rows = torch.stack([X, X + 1])
    with torch.no_grad():
        same(torch.vmap(compiled)(rows), torch.vmap(model)(rows))
    outer = corsac.compile(lambda x: compiled(x) * 2)
    with torch.no_grad():
        for _ in range(3):
            same(outer(X), model(X) * 2)
    assert is_native(outer)


def test_a_debugger_sees_eager_calls():
    import sys

    compiled = corsac.compile(lambda x: x * 2 + 1)
    events = []
    sys.settrace(lambda frame, event, arg: events.append(event))
    try:
        with torch.no_grad():
            for _ in range(2):
                same(compiled(X), X * 2 + 1)
    finally:
        sys.settrace(None)
    assert events and not module_of(compiled)._recorded.programs()
    with torch.no_grad():
        for _ in range(3):
            same(compiled(X), X * 2 + 1)


def test_functions_are_methods_and_attributes_are_the_models():
    class Own:
        @corsac.compile
        def double(self, x):
            return x * 2

    own = Own()
    with torch.no_grad():
        for _ in range(3):
            same(own.double(X), X * 2)

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 2.0

        def forward(self, x):
            return x * self.scale

        def __call__(self, x):
            return super().__call__(x) + 1

        def encode(self, x):
            return x - 1

    model = Scaled().eval()
    compiled = corsac.compile(model)
    with torch.no_grad():
        same(compiled(X), X * 2 + 1)
        compiled.scale = 5.0
        same(compiled(X), X * 5 + 1)
        same(compiled.encode(X), X - 1)
    assert model.scale == 5.0
    del compiled.scale
    assert not hasattr(model, "scale")


def test_classes_and_attributes_of_inputs():
    def program(x):
        return x * getattr(x, "factor", 2) + isinstance(x, nn.Parameter)

    marked = X.clone()
    marked.factor = 4
    compiled = corsac.compile(program)
    with torch.no_grad():
        for x in (X, X, marked, X, nn.Parameter(X.clone()), X, marked):
            same(compiled(x), program(x))


def test_objects_are_arguments():
    def program(settings, x):
        return x * settings.factor

    compiled, one, other = corsac.compile(program), Settings(), Settings(3.0)
    with torch.no_grad():
        for settings in (one, other, one, other):
            same(compiled(settings, X), program(settings, X))
        one.factor = 9.0
        for _ in range(3):
            same(compiled(one, X), program(one, X))
    assert is_native(compiled)


def test_states_that_come_back_are_remembered():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0))
    model.mode = "a"
    inner = model.forward
    model.forward = lambda x: inner(x) * (2.0 if model.mode == "a" else 3.0)
    compiled = corsac.compile(model.eval())
    with torch.no_grad():
        for mode in "abababab":
            model.mode = mode
            same(compiled(X), model(X))
    assert len(module_of(compiled)._recorded.programs()) == 2


def test_what_changes_from_call_to_call_is_left_to_pytorch():
    settings = Settings()
    compiled = corsac.compile(lambda x: x * settings.factor)
    with torch.no_grad():
        for number in range(30):
            settings.factor = float(number)
            same(compiled(X), X * float(number))
    assert "changes from call to call" in compiled.explain()


def test_nothing_is_kept_of_a_call():
    import gc
    import weakref

    compiled = corsac.compile(
        lambda x: (x * hasattr(x, "a"), [x + 1, {"a": x - getattr(x, "b", 1)}])
    )
    with torch.no_grad():
        x = X.clone()
        reference = weakref.ref(x)
        compiled(x)
        del x
    gc.collect()
    assert reference() is None


def test_programs_that_trace():
    """They find no active trace function, and the one that they set remains."""

    def program(x):
        before = sys.gettrace()
        seen.append(before)
        sys.settrace(lambda frame, event, arg: seen.append((event, frame.f_trace_lines)))
        inner()
        sys.settrace(before)
        return x * 2

    def inner():
        return 1

    seen = []
    program(X)
    expected, seen = seen, []
    compiled = corsac.compile(program)
    for _ in range(3):
        same(compiled(X), X * 2)
        assert seen == expected
        assert sys.gettrace() is None
        seen.clear()

    def leaves(x):
        sys.settrace(trace)
        return x * 2

    def trace(frame, event, arg):
        return None

    compiled = corsac.compile(leaves)
    for _ in range(3):
        try:
            compiled(X)
            assert sys.gettrace() is trace
        finally:
            sys.settrace(None)


def test_nothing_is_kept_once_nothing_is_known():
    import weakref

    class Held:
        pass

    def program(x):
        sys._getframe()
        held = Held()
        held.list = [held.__class__]
        reference = weakref.ref(held)
        del held
        dead.append(reference() is None)
        return x * 2

    dead = []
    compiled = corsac.compile(program)
    for _ in range(3):
        same(compiled(X), X * 2)
    assert dead == [True] * 3


def test_types_of_c_that_are_not_ready():
    """Types of C without bases: objects that cannot be inspected are left to PyTorch, without an error."""
    buffers = pytest.importorskip("_testbuffer")

    def program(x):
        own = buffers.ndarray([97] * 16, format="B", shape=[4, 4], flags=buffers.ND_FORTRAN)
        return x * memoryview(own).nbytes

    compiled = corsac.compile(program)
    for _ in range(3):
        same(compiled(X), X * 16)
