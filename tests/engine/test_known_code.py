"""The code through which modules are called and find their submodules is recognised as a whole."""

import contextlib
import re
from collections import Counter

import pytest
import torch
from torch import nn

import corsac
from corsac._capture import known_code, record

pytestmark = pytest.mark.recording
X = torch.linspace(-1, 1, 12).reshape(3, 4)


def test_code_of_modules_is_known():
    """The installed PyTorch's code is recognised; otherwise first calls take a fifth longer."""
    names = [own.co_name for own in known_code.known_code()]
    assert names == ["__getattr__", "_wrapped_call_impl", "_call_impl"]


def calls(make, arguments):
    """Compare calls of a model, uncompiled and compiled."""
    plain, watched = make().eval(), make().eval()
    compiled = corsac.compile(watched)
    with torch.no_grad():
        for own in arguments:
            torch.testing.assert_close(compiled(own), plain(own))


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4))])
        self.register_buffer("shift", torch.ones(4))
        self.scale = nn.Parameter(torch.full((4,), 2.0))
        self.late = None

    def forward(self, x, *, twice=False):
        for layer in self.layers:
            x = layer(x)
        x = x * self.scale + self.shift
        if self.late is not None:
            x = self.late(x)
        return x * 2 if twice else x


def guards_of(model, *args, **kwargs):
    """The guards, without source lines."""
    compiled = corsac.compile(model)
    with torch.no_grad():
        compiled(*args, **kwargs)
    (entry,) = compiled._recorded._recordings.entries()
    return Counter(own[:3] for own in entry.guards.list(model))


@pytest.mark.parametrize("kwargs", [{}, {"twice": True}])
def test_the_same_is_guarded_as_by_its_instructions(monkeypatch, kwargs):
    torch.manual_seed(0)
    model = Parts().eval()
    known = guards_of(model, X, **kwargs)
    monkeypatch.setattr(record, "known_code", lambda: [])
    assert known == guards_of(model, X, **kwargs) and len(known) > 20


class Seven(nn.Module):
    def forward(self, x):
        return x + 7


class Looks(nn.Module):
    """Looks up attributes in its own way."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def __getattr__(self, name):
        return torch.full((4,), 3.0) if name == "made_up" else super().__getattr__(name)

    def forward(self, x):
        return self.inner(x) * self.made_up


def hook(module, args, result):
    return result * 10


def first_hook(module, args):
    return (args[0] - 1,)


CHANGES = {
    "a hook that comes and goes": lambda m: [
        lambda: setattr(m, "handle", m.layers[0].register_forward_hook(hook)),
        lambda: m.handle.remove(),
    ],
    "a hook before": lambda m: [lambda: m.layers[1][0].register_forward_pre_hook(first_hook)],
    "forward of an instance": lambda m: [
        lambda: setattr(m.layers[0], "forward", lambda x: x * 3),
        lambda: delattr(m.layers[0], "forward"),
    ],
    "a module for another": lambda m: [lambda: m.layers.__setitem__(0, Seven())],
    "a module for None": lambda m: [lambda: setattr(m, "late", Seven())],
    "a buffer for another": lambda m: [lambda: setattr(m, "shift", torch.zeros(4))],
    "an attribute in the place of a module": lambda m: [
        lambda: m.layers[1].__dict__.__setitem__("0", None),
        lambda: m.__dict__.__setitem__("scale", torch.zeros(4)),
    ],
    "a compiled call of a part": lambda m: [
        lambda: setattr(m.layers[0], "_compiled_call_impl", lambda x: x - 5)
    ],
    "a parameter that is deleted": lambda m: [
        lambda: delattr(m, "scale"),
        lambda: setattr(m, "scale", torch.ones(4)),
    ],
    "a class with its own way": lambda m: [lambda: m.layers.append(Looks())],
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_between_calls(name):
    def make():
        torch.manual_seed(0)
        model = Parts().eval()
        return model

    plain, watched = make(), make()
    compiled = corsac.compile(watched)
    with torch.no_grad():
        for step in [None, *range(len(CHANGES[name](plain)))]:
            for model in (plain, watched):
                if step is not None:
                    torch.manual_seed(1)
                    CHANGES[name](model)[step]()
            for _ in range(2):
                try:
                    expected = plain(X)
                except AttributeError as error:
                    with pytest.raises(AttributeError, match=re.escape(str(error))):
                        compiled(X)
                else:
                    torch.testing.assert_close(compiled(X), expected)


def test_hooks_of_all_modules():
    model = Parts().eval()
    compiled = corsac.compile(model)
    with torch.no_grad():
        compiled(X)
        handle = nn.modules.module.register_module_forward_hook(hook)
        try:
            torch.testing.assert_close(compiled(X), model(X))
        finally:
            handle.remove()
        torch.testing.assert_close(compiled(X), model(X))


def test_hooks_that_a_program_registers():
    """Facts about the first module need not hold for the next one."""

    class Registers(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.ReLU(), nn.ReLU()

        def forward(self, x):
            x = self.first(x)
            handle = self.second.register_forward_hook(hook)
            y = self.second(x)
            handle.remove()
            return y + self.second(x)

    calls(Registers, [X, X])


def test_classes_that_are_patched(monkeypatch):
    model = Parts().eval()
    compiled = corsac.compile(model)
    original = nn.Module._call_impl
    calls = []

    def counted(self, *args, **kwargs):
        calls.append(type(self).__name__)
        return original(self, *args, **kwargs)

    with torch.no_grad():
        compiled(X)
        monkeypatch.setattr(nn.Module, "_call_impl", counted)
        torch.testing.assert_close(compiled(X), model(X))
        seen = len(calls)
        torch.testing.assert_close(compiled(X), model(X))
        # Each call counts, compiled or not.
        assert seen and len(calls) == 2 * seen


def test_parts_called_by_c():
    """Submodules passed to C functions are read and guarded."""

    class Maps(nn.Module):
        def __init__(self):
            super().__init__()
            self.splits = nn.ModuleList([Splits(), Splits()])
            self.count = 1

        def forward(self, x):
            lists = map(self.splits[0], [x, x + 1])
            return sum(sum(lists, []), x) * len(self.splits[1](x))  # noqa: RUF017

    class Splits(nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = []

        def forward(self, x):
            self.kept = [x, x * 2]
            return self.kept

    calls(Maps, [X, X, X + 1])


def test_keywords_and_errors():
    class Fails(nn.Module):
        def forward(self, x, *, fails):
            if fails:
                raise KeyError("it fails")
            return x

    class Catches(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.fails = Fails(), True

        def forward(self, x):
            with contextlib.suppress(KeyError):
                x = self.inner(x + 1, fails=self.fails)
            return x * 2

    plain, watched = Catches(), Catches()
    compiled = corsac.compile(watched)
    for fails in (True, False, True):
        plain.fails = watched.fails = fails
        torch.testing.assert_close(compiled(X), plain(X))
