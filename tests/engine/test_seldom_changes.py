"""Changes between calls that few programs make, and errors in the last steps of calls."""

import copy
import gc
import sys
import weakref
from collections import OrderedDict

import pytest
import torch
from torch import nn

import corsac
from corsac import _core
from corsac._models.function import module_of
from corsac._native.panic import EngineError

NATIVE = {"inference": "native"}
X = torch.tensor([1.0, 2.0])


def compiled(program):
    return corsac.compile(program, options=NATIVE)


def called(program, x=X, times=3):
    with torch.no_grad():
        for _ in range(times):
            result = program(x)
    return result


OPERATIONS = {
    "__add__": lambda own, x: own + x,
    "__radd__": lambda own, x: x + own,
    "__matmul__": lambda own, x: own @ x,
    "__pow__": lambda own, x: own**x,
    "__floordiv__": lambda own, x: own // x,
    "__and__": lambda own, x: own & x,
    "__lt__": lambda own, x: own < x,
    "__divmod__": lambda own, x: divmod(own, x),
    "__int__": lambda own, x: x * int(own),
    "__float__": lambda own, x: x * float(own),
    "__abs__": lambda own, x: x * abs(own),
    "__round__": lambda own, x: x * round(own),
    "__getattribute__": lambda own, x: x * own.k,
    "__getattr__": lambda own, x: x * getattr(own, "missing", 2),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_special_methods_that_are_replaced_or_added(name):
    def method(value):
        if name in ("__int__", "__abs__", "__round__"):
            return lambda own: value
        if name == "__float__":
            return lambda own: float(value)
        return lambda own, other: other * value if torch.is_tensor(other) else value

    Kind = type("Kind", (), {} if name.startswith("__getattr") else {name: method(2)})
    own = Kind()
    own.k = 2
    run = compiled(lambda x: OPERATIONS[name](own, x))
    assert torch.equal(called(run), OPERATIONS[name](own, X))
    setattr(Kind, name, method(5))
    assert torch.equal(called(run, times=1), OPERATIONS[name](own, X))


def test_setattr_that_is_added():
    class State:
        pass

    own = State()
    own.h = torch.zeros(2)

    def step(x):
        own.h = own.h + x
        return own.h * 2

    run = compiled(step)
    called(run)
    State.__setattr__ = lambda own, name, value: object.__setattr__(own, name, value * 10)
    assert torch.equal(called(run, times=1), 80 * X)


class Typed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(8, 4), requires_grad=False)

    def forward(self, x):
        return (x * 2 + self.weight.shape[0]).to(self.weight.dtype)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.double(),
        lambda model: setattr(model.weight, "data", torch.zeros(16, 4)),
        lambda model: model.weight.resize_(3, 4),
        lambda model: model.weight.t_(),
    ],
)
def test_types_and_sizes_of_weights_that_are_not_computed_with(change):
    model, eager = Typed(), Typed()
    run = compiled(model)
    called(run)
    change(model)
    change(eager)
    now, then = called(run, times=1), eager(X)
    assert now.dtype == then.dtype
    assert torch.equal(now, then)


def test_hooks_in_another_dictionary():
    run = compiled(nn.ReLU())
    called(run)
    run._forward_hooks = OrderedDict()
    run.register_forward_hook(lambda module, args, result: result + 100)
    assert torch.equal(called(run, times=1), X + 100)


@pytest.mark.unverified
def test_a_panic_in_a_program_that_writes_is_no_reason_to_run_it_again():
    run = compiled(lambda x: x.add_(1) * 2)
    x = X.clone()
    called(run, x)
    _core.plant_panic("run")
    with pytest.raises(EngineError), torch.no_grad():
        run(x)


def test_keywords_of_a_class_of_their_own():
    class Name(str):
        pass

    run = compiled(lambda x: x * 2)
    with torch.no_grad():
        for _ in range(4):
            assert torch.equal(run(**{Name("x"): X}), 2 * X)


def test_what_is_done_after_a_program_is_done_once(monkeypatch):
    class Out:
        writes = 0

        def write(self, text):
            if text.strip():
                self.writes += 1
                raise ValueError("closed")

    out = Out()

    def program(x):
        x.add_(1)
        print("seen")
        return x * 2

    run = compiled(program)
    x = X.clone()
    called(run, x)
    monkeypatch.setattr(sys, "stdout", out)
    with pytest.raises(ValueError, match="closed"), torch.no_grad():
        run(x)
    monkeypatch.undo()
    assert out.writes == 1
    assert torch.equal(x, X + 4)


@pytest.mark.parametrize("settings", [{"options": NATIVE}, {"backend": "eager"}])
def test_weights_of_torch_func(settings):
    model = nn.Linear(2, 2).eval()
    run = corsac.compile(copy.deepcopy(model), **settings)
    weights = {"weight": torch.randn(3, 2, 2), "bias": torch.zeros(3, 2)}

    def each(module):
        def one(weights):
            return torch.func.functional_call(module, weights, (X,))

        return torch.vmap(one)(weights)

    with torch.no_grad():
        for _ in range(3):
            run(X)
        assert torch.allclose(each(run), each(model))


def test_results_with_other_strides_are_no_views():
    run = compiled(lambda x: x * 2)
    with torch.no_grad():
        for _ in range(3):
            result = run(torch.ones(3, 2).t())
    assert result.stride() == (1, 2)
    assert not result._is_view()
    assert result._version == 0


def test_results_that_contain_themselves_or_much():
    def itself(x):
        found = [x * 2]
        found.append(found)
        return found

    def nested(x):
        found = x * 2
        for _ in range(300):
            found = [found]
        return found

    for program in (itself, nested):
        run = compiled(program)
        with torch.no_grad():
            for _ in range(3):
                found = run(X)
        while isinstance(found, list):
            found = found[0]
        assert torch.equal(found, 2 * X)


def test_containers_that_a_program_returns_are_not_kept():
    class Held(dict):
        pass

    def program(held):
        held["y"] = held["x"] * 2
        return held

    run = compiled(program)
    with torch.no_grad():
        first = Held(x=X.clone())
        known = weakref.ref(first)
        run(first)
        for _ in range(3):
            run(Held(x=X.clone()))
    del first
    gc.collect()
    assert known() is None


@pytest.mark.unverified
def test_weights_that_were_replaced_are_freed():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()
    run = compiled(model)
    known = []
    with torch.no_grad():
        for _ in range(60):
            state = {key: torch.randn_like(own) for key, own in model.state_dict().items()}
            model.load_state_dict(state, assign=True)
            known += [weakref.ref(own) for own in model.parameters()]
            for _ in range(2):
                run(torch.ones(2, 8))
    gc.collect()
    assert sum(own() is not None for own in known) < 120
    assert len(module_of(run)._recorded._packed_of) < 20


def test_an_image_of_one_channel_in_either_order():
    convolution = nn.Conv2d(1, 8, 3, padding=1).eval()
    image = torch.randn(2, 1, 4, 4)
    other = torch.as_strided(image.clone(), (2, 1, 4, 4), (16, 1, 4, 1))
    for first, then in ((image, other), (other, image)):
        run = compiled(convolution)
        called(run, first)
        assert called(run, then, 1).stride() == convolution(then).stride()
