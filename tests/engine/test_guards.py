"""Guards of recorded programs: their text, their source lines, and messages about them."""

import collections
import logging
import time
import types
import warnings

import pytest
import torch
from torch import nn

import corsac
from corsac import _core
from corsac._messages import logs
from corsac._models.function import module_of

pytestmark = pytest.mark.recording
X = torch.linspace(-1, 1, 6).reshape(2, 3)
SCALE = 2.0


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", corsac.HostWarning)
        yield


def compiled(program, *args):
    made = corsac.compile(program)
    with torch.no_grad():
        for _ in range(2):
            made(*(args or (X,)))
    return made


def guards(made):
    return module_of(made)._recorded._recordings.entries()[0].guards


def listed(made, program):
    return {place: (family, text, line) for family, place, text, line in guards(made).list(program)}


def line_of(function, more):
    return function.__code__.co_filename, function.__code__.co_firstlineno + more


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
        self.scale = 2.0
        self.sizes = [1, 2]

    def forward(self, x):
        y = self.layers(x)
        y = y * self.scale
        return y + len(self.sizes)


def test_guards_are_listed_with_the_lines_that_they_come_from():
    net = Net()
    found = listed(compiled(net), net)
    assert found["self.scale"] == ("value", "== 2.0", line_of(Net.forward, 2))
    assert found["self.sizes"][0] == "contents"
    assert found["self.sizes"][1] == "== [1, 2]"
    assert found["self.sizes"][2] == line_of(Net.forward, 3)
    eps = found["self.layers[1].eps"]
    assert eps[:2] == ("value", "== 1e-05")
    assert eps[2][0].endswith("normalization.py")
    assert found["type(self)"][:2] == ("type", f"is {__name__}.Net")
    assert found["self.layers[0].weight"][1] == "is a Parameter"


def test_variables_of_modules_and_of_enclosing_functions_are_listed():
    factor = 3.0

    def program(x):
        return x * factor * SCALE

    found = listed(compiled(program), program)
    assert found["factor"] == ("value", "== 3.0", line_of(program, 1))
    assert found[f"{__name__}.SCALE"] == ("value", "== 2.0", line_of(program, 1))


def test_explain_lists_guards_and_groups_those_that_are_alike():
    net = Net()
    made = compiled(net)
    assert "self.scale" not in made.explain()
    text = made.explain(guards=True)
    line = Net.forward.__code__.co_firstlineno + 2
    assert f"self.scale == 2.0 (test_guards.py:{line})" in text
    assert f"guarded places: {len(guards(made))}" in text
    hooks = [own for own in text.splitlines() if "_forward_hooks == {}" in own]
    # Guards of four modules are one line.
    assert any("4 × " in own for own in hooks)


def test_guards_of_many_layers_are_few_lines():
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(3, 3), nn.ReLU()) for _ in range(30)))
    made = compiled(layers)
    assert len(guards(made)) > 600
    assert len(made.explain(guards=True).splitlines()) < 250


# Recompilations.


def test_a_recompilation_says_which_guard_failed():
    net = Net()
    made = compiled(net)
    assert "recompiled" not in made.explain()
    line = Net.forward.__code__.co_firstlineno + 2
    with torch.no_grad():
        net.scale = 3.0
        made(X)
        assert (
            f"recompiled once: self.scale (test_guards.py:{line}) was 2.0, is 3.0" in made.explain()
        )
        net.scale = 4.0
        made(X)
    assert (
        f"recompiled 2 times: self.scale (test_guards.py:{line}) was 3.0, is 4.0" in made.explain()
    )


@pytest.mark.parametrize("write", ["in place", "data", "replaced"])
def test_a_recompilation_names_the_weight(write):
    net = Net()
    made = compiled(net)
    weight = net.layers[0].weight
    with torch.no_grad():
        if write == "in place":
            weight.mul_(2)
        elif write == "data":
            weight.data = weight.data * 2
        else:
            net.layers[0].weight = nn.Parameter(weight * 2)
        for _ in range(2):
            torch.testing.assert_close(made(X), net(X))
    said = made.explain()
    assert "recompiled once: " in said
    if write == "in place":
        assert "weight layers.0.weight was written to" in said
    elif write == "data":
        assert "weight layers.0.weight has other memory" in said
    else:
        assert "self.layers[0].weight" in said


# Logs.


@pytest.fixture
def switched(monkeypatch, caplog):
    def switch(value):
        monkeypatch.setenv("CORSAC_LOGS", value)
        return caplog

    levels = [(own, own.level) for own in (logs.GUARDS, logs.BREAKS, logs.RECOMPILES)]
    logs._switched.cache_clear()
    yield switch
    for own, level in levels:
        own.setLevel(level)
    logs._switched.cache_clear()


def said(caplog, name):
    return [own.getMessage() for own in caplog.records if own.name == f"corsac.{name}"]


def test_guards_and_recompilations_are_logged(switched):
    caplog = switched("guards, recompiles")
    net = Net()
    made = compiled(net)
    assert any("self.scale == 2.0" in own for own in said(caplog, "guards"))
    assert not said(caplog, "recompiles")
    net.scale = 3.0
    with torch.no_grad():
        made(X)
    assert any("self.scale" in own and "is 3.0" in own for own in said(caplog, "recompiles"))
    assert not said(caplog, "breaks")


def test_what_is_not_captured_is_logged_with_its_line(switched):
    caplog = switched("breaks")

    def program(x):
        y = x + 1
        return y * (time.time() > 0)

    made = corsac.compile(program)
    with torch.no_grad():
        made(X)
    (text, *_) = said(caplog, "breaks")
    assert text.startswith(f"not captured (test_guards.py:{line_of(program, 2)[1]}): ")


def test_nothing_is_logged_without_the_switch(caplog):
    net = Net()
    made = compiled(net)
    net.scale = 3.0
    with torch.no_grad():
        made(X)
    assert not [own for own in caplog.records if own.name.startswith("corsac.")]


def test_logs_that_there_are_not(switched):
    switched("guards,graphs")
    with pytest.raises(ValueError, match="CORSAC_LOGS is a list of guards, breaks, recompiles"):
        corsac.compile(Net())


def test_loggers_are_python_s_own(caplog):
    with caplog.at_level(logging.DEBUG, logger="corsac.recompiles"):
        net = Net()
        made = compiled(net)
        net.scale = 3.0
        with torch.no_grad():
            made(X)
    assert said(caplog, "recompiles")


# Each kind of guard, and a change that fails it.


class Base:
    factor = 2.0

    def times(self, x):
        return x * self.factor


class Derived(Base):
    pass


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


def a_value_of_an_object():
    own = types.SimpleNamespace(value=2.0)
    return (lambda x: x * own.value), lambda: setattr(own, "value", 3.0)


def an_entry():
    own = {"value": 2.0}
    return (lambda x: x * own["value"]), lambda: own.update(value=3.0)


def all_of_a_dictionary():
    own = {"a": 1.0, "b": 2.0}
    return (lambda x: x * sum(own.values())), lambda: own.update(c=3.0)


def the_order_of_a_dictionary():
    own = collections.OrderedDict(a=1.0, b=2.0)

    def program(x):
        for value in own.values():
            x = (x + value) * value
        return x

    return program, lambda: own.move_to_end("a")


def a_list():
    own = [1.0, 2.0]
    return (lambda x: x * own[0] + own[1]), lambda: own.reverse()


def the_length_of_a_list():
    own = [1.0, 2.0]
    return (lambda x: x * len(own)), lambda: own.append(1.0)


def a_set():
    own = {1.0}
    return (lambda x: x * len(own)), lambda: own.add(2.0)


def a_cell():
    value = 2.0

    def change():
        nonlocal value
        value = 3.0

    return (lambda x: x * value), change


def a_function_s_code():
    def inner(x):
        return x * 2

    def other(x):
        return x * 3

    return (lambda x: inner(x)), lambda: setattr(inner, "__code__", other.__code__)


def a_function_s_defaults():
    def inner(x, by=2.0):
        return x * by

    return (lambda x: inner(x)), lambda: setattr(inner, "__defaults__", (3.0,))


def a_function_s_keywords():
    def inner(x, *, by=2.0):
        return x * by

    return (lambda x: inner(x)), lambda: inner.__kwdefaults__.update(by=3.0)


def a_class():
    kind = type("Kind", (Base,), {})
    own = kind()
    return (lambda x: own.times(x)), lambda: setattr(kind, "factor", 3.0)


def a_base_class():
    base = type("Basis", (Base,), {"factor": 2.0})
    own = type("Kind", (base,), {})()
    return (lambda x: own.times(x)), lambda: setattr(base, "factor", 3.0)


def the_class_of_an_object():
    own = Derived()
    other = type("Other", (Base,), {"factor": 3.0})
    return (lambda x: own.times(x)), lambda: setattr(own, "__class__", other)


def a_slot():
    own = Slotted(2.0)
    return (lambda x: x * own.value), lambda: setattr(own, "value", 3.0)


def the_dictionary_of_an_object():
    own = types.SimpleNamespace(value=2.0)
    own = Derived()
    own.factor = 2.0
    return (lambda x: x * own.__dict__["factor"]), lambda: setattr(own, "__dict__", {"factor": 3.0})


def a_setting():
    return (
        lambda x: x + torch.zeros(3, dtype=torch.get_default_dtype()).element_size()
    ), lambda: torch.set_default_dtype(torch.float64)


PLACES = [
    a_value_of_an_object,
    an_entry,
    all_of_a_dictionary,
    the_order_of_a_dictionary,
    a_list,
    the_length_of_a_list,
    a_set,
    a_cell,
    a_function_s_code,
    a_function_s_defaults,
    a_function_s_keywords,
    a_class,
    a_base_class,
    the_class_of_an_object,
    a_slot,
    the_dictionary_of_an_object,
    a_setting,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda own: own.__name__)
def test_a_place_that_changes_is_seen(place):
    program, change = place()
    made = compiled(program)
    assert guards(made).hold()
    assert guards(made).failure(program) is None
    known = guards(made)
    before = program(X)
    try:
        change()
        assert not known.hold()
        # The guard that failed last is checked first.
        assert not known.hold()
        what, then, now, _ = known.failure(program)
        assert what and then != now
        after = program(X)
        assert after.dtype != before.dtype or not torch.equal(before, after)
        with torch.no_grad():
            for _ in range(3):
                torch.testing.assert_close(made(X), after)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_place_that_changes_back_is_as_it_was():
    own = {"value": 2.0}

    def program(x):
        return x * own["value"]

    known = guards(compiled(program))
    for _ in range(3):
        own["value"] = 3.0
        assert not known.hold()
        own["value"] = 2.0
        assert known.hold()
        # Another version with equal contents.
        own["other"] = 1
        del own["other"]
        assert known.hold() and known.hold()


def test_another_guard_fails_than_before():
    own, other = {"value": 2.0}, [1.0]

    def program(x):
        return x * own["value"] + other[0]

    known = guards(compiled(program))
    own["value"] = 3.0
    assert not known.hold()
    own["value"], other[0] = 2.0, 5.0
    assert not known.hold()
    assert known.failure(program)[:3] == ("other", "[1.0]", "[5.0]")
    other[0] = 1.0
    assert known.hold()


# Weights.


def test_structures_of_tensors_are_known():
    assert _core.knows_tensor_layout()


def grown(own):
    own.untyped_storage().resize_(4096)


def swapped(own):
    torch.utils.swap_tensors(own, torch.full_like(own, 2.0))


CHANGES = {
    "in place": lambda own: own.add_(1),
    "through a view": lambda own: own.view(-1)[0].add_(1),
    "through what it is detached of": lambda own: own.detach().add_(1),
    "data of other memory": lambda own: setattr(own, "data", own.data.clone()),
    "data of other sizes": lambda own: setattr(own, "data", own.data.view(-1)),
    "data of other strides": lambda own: setattr(own, "data", own.data.transpose(0, 1)),
    "data of another type": lambda own: setattr(own, "data", own.data.double()),
    "another offset": lambda own: setattr(own, "data", own.data[1:]),
    "as its negative": lambda own: setattr(own, "data", torch._neg_view(own.data)),
    "storage that grows": grown,
    "swapped": swapped,
    "its class": lambda own: setattr(own, "__class__", type("Own", (torch.Tensor,), {})),
}


@pytest.mark.parametrize("rank", [2, 6])
@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_weights_are_seen(name, rank):
    own = torch.ones(3, 3).view(3, 3, *[1] * (rank - 2))
    guards = _core.ModelGuards(nn.Module(), constants=[(None, own)])
    assert guards.is_current() and guards.failure() is None
    assert guards.count == 1
    CHANGES[name](own)
    assert not guards.is_current()
    found, text = guards.failure()
    assert found is own and text


def test_what_does_not_change_a_weight_is_no_change():
    own = nn.Parameter(torch.ones(3, 3))
    guards = _core.ModelGuards(nn.Module(), constants=[(None, own)])
    own.grad = torch.ones(3, 3)
    own.note = "attributes are none of its elements"
    keeps = own.detach().view(-1)
    assert guards.is_current()
    del keeps
    assert guards.is_current()


def test_statistics_that_norms_write_to_are_seen():
    norm = nn.BatchNorm1d(70).eval()
    guards = _core.ModelGuards(nn.Module(), contents=[norm.running_mean, norm.running_var])
    assert guards.is_current()
    with torch.no_grad():
        x = torch.zeros(4, 70)
        x[:, 69] = torch.arange(4.0)
        nn.functional.batch_norm(x, norm.running_mean, norm.running_var, training=True)
    assert not guards.is_current()
    assert guards.failure() == (norm.running_mean, "was updated")


def test_hooks_and_modes_of_modules_are_seen():
    net = Net()
    guards = _core.ModelGuards(net)
    assert guards.is_current()
    hook = net.layers[0].register_forward_hook(lambda *_: None)
    assert not guards.is_current()
    hook.remove()
    assert guards.is_current()
    net.layers[1].eval()
    assert not guards.is_current()
    net.layers[1].train()
    assert guards.is_current()
    net.layers[0]._forward_hooks = {1: lambda *_: None}
    assert not guards.is_current()
    net.layers[0]._forward_hooks = collections.OrderedDict()
    assert guards.is_current()
    net.layers[0].weight = nn.Parameter(torch.ones(3, 3))
    assert not guards.is_current()
