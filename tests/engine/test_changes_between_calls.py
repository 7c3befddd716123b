"""Captured programs notice changes of Python state between calls."""

import types
import warnings
from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac
from kit.captured import BySize, X, agree, agree_captured, call, is_captured, refused


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def test_weights_that_change_are_seen():
    model = BySize().eval()
    compiled = corsac.compile(model)
    agree(compiled, model, X)
    with torch.no_grad():
        model.first.weight.mul_(2)
    agree(compiled, model, X)
    model.load_state_dict({name: own + 1 for name, own in model.state_dict().items()})
    agree(compiled, model, X)
    model.second = nn.Linear(6, 3)
    model.shift = torch.randn(3)
    agree(compiled, model, X)
    model.first.weight = nn.Parameter(torch.randn(6, 6))
    agree(compiled, model, X)
    assert is_captured(compiled)


def test_attributes_that_change_are_seen():
    model = BySize().eval()
    model.settings = types.SimpleNamespace(power=1, names={"a": 2.0})
    inner = model.forward

    def forward(x):
        return inner(x) ** model.settings.power * model.settings.names["a"]

    model.forward = forward
    compiled = corsac.compile(model)
    agree(compiled, model, X)
    for change in (
        lambda: setattr(model, "scale", -1.5),
        lambda: setattr(model.settings, "power", 2),
        lambda: model.settings.names.update(a=7.0),
        lambda: setattr(model, "settings", types.SimpleNamespace(power=3, names={"a": 1.0})),
    ):
        change()
        agree(compiled, model, X)
        agree(compiled, model, X)
    assert is_captured(compiled)


FACTOR = 2.0


def by_global(x):
    return x * FACTOR if x.shape[0] > 1 else x


def test_variables_that_change_are_seen(monkeypatch):
    compiled = agree_captured(by_global, X)
    monkeypatch.setattr(f"{__name__}.FACTOR", 5.0)
    agree(compiled, by_global, X)


def test_variables_of_enclosing_functions_and_lists_are_seen():
    factor, places = 2.0, [0]

    def change():
        nonlocal factor
        factor = 7.0

    def function(x):
        return x * (factor + sum(places)) if x.shape[0] > 1 else x

    compiled = agree_captured(function, X)
    change()
    agree(compiled, function, X)
    places.append(2)
    agree(compiled, function, X)
    places[0] = 1
    agree(compiled, function, X)
    assert is_captured(compiled)


CALLS = 0


def counts(x):
    global CALLS
    CALLS += 1
    return x * CALLS


class CallsAFunction(nn.Module):
    def forward(self, x):
        return counts(x) if x.shape[0] > 1 else x


def test_variables_that_functions_inside_write_to():
    for function in (lambda x: counts(x) if x.shape[0] > 1 else x, nn.Sequential(CallsAFunction())):
        global CALLS
        CALLS = 0
        compiled = corsac.compile(function)
        for number in range(1, 8):
            with torch.no_grad():
                torch.testing.assert_close(compiled(X), X * number)


def test_training_mode_is_seen():
    class Drops(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(6)

        def forward(self, x):
            return self.drop(self.norm(x)) if x.shape[0] > 1 else x

    model = Drops().eval()
    compiled = agree_captured(model, X)
    model.norm.train()
    before = model.norm.running_mean.clone()
    found = call(compiled, X)
    assert not torch.equal(model.norm.running_mean, before)
    expected = F.batch_norm(X, None, None, model.norm.weight, model.norm.bias, True)
    torch.testing.assert_close(found, expected)
    model.eval().drop.train()
    with torch.no_grad():
        assert not torch.equal(compiled(X), compiled(X))


# Caches of Python.


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.count, self.history, self.last = 0, [], None
        self.shared = types.SimpleNamespace(calls=0)


class CountsInPython(Remembers):
    def forward(self, x):
        self.count += 1
        return x * self.count if x.shape[0] > 1 else x


class Lists(Remembers):
    def forward(self, x):
        self.history.append(x.shape[0])
        return x * len(self.history) if x.shape[0] > 1 else x


class CountsElsewhere(Remembers):
    def forward(self, x):
        self.shared.calls += 1
        return x * self.shared.calls if x.shape[0] > 1 else x


class KeepsTensors(Remembers):
    def forward(self, x):
        previous, self.last = self.last, x * 2 if x.shape[0] > 1 else x
        return x if previous is None else x + previous


@pytest.mark.parametrize("cls", [CountsInPython, Lists, CountsElsewhere, KeepsTensors])
def test_what_modules_remember(cls):
    model, other = cls().eval(), cls().eval()
    compiled = corsac.compile(model)
    for _ in range(6):
        agree(compiled, other, X)
    assert (model.count, model.history, model.shared) == (other.count, other.history, other.shared)


def test_tensors_that_are_kept_elsewhere():
    class Holder:
        pass

    holder = [Holder()]

    def function(x):
        def keep(value):
            holder[0].__dict__.setdefault("all", []).append(value)

        y = x * 2 if x.shape[0] > 1 else x
        keep(y)
        return y

    refused(function, r"it keeps a tensor|it changes")


class Makes(OrderedDict):
    """Returns a new object on each access, as the activations of Hugging Face do."""

    def __getitem__(self, key):
        return super().__getitem__(key)()


MAKES = Makes(relu=nn.ReLU)


def test_dictionaries_that_give_something_else():
    def function(x):
        return MAKES["relu"](x) if x.shape[0] > 1 else x

    agree_captured(function, X)
    assert MAKES.get("relu") is nn.ReLU and type(MAKES["relu"]) is nn.ReLU


def test_variables_that_are_written_to():
    count = 0

    def function(x):
        nonlocal count
        count += 1
        return x * count if x.shape[0] > 1 else x

    refused(function, "it changes a variable")
    assert count > 0


def test_hooks_are_run():
    model = BySize().eval()
    compiled = corsac.compile(model)
    agree(compiled, model, X)
    calls = []
    handle = model.second.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(X)
        compiled(X)
    assert len(calls) == 2
    handle.remove()
    agree(compiled, model, X)
    assert is_captured(compiled)
    every = nn.modules.module.register_module_forward_hook(lambda *_: calls.append(2))
    try:
        fresh = corsac.compile(BySize().eval())
        before = len(calls)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fresh(X)
            between = len(calls)
            fresh(X)
        assert before < between < len(calls)
    finally:
        every.remove()
