"""Modules that corsac.compile returns, in the place of their models."""

import copy
import pickle
from collections.abc import Iterable, Sized

import pytest
import torch
from torch import nn

import corsac
from corsac._compile.compiled_module import CompiledModule

X = torch.linspace(-1, 1, 6).reshape(2, 3)


def hosted(model):
    return corsac.compile(model, backend=run_graph)


def run_graph(graph, inputs):
    return graph.forward


COMPILERS = pytest.mark.parametrize("compiler", [corsac.compile, hosted])


def layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval()


@COMPILERS
def test_items_of_a_sequence(compiler):
    model = layers()
    compiled = compiler(model)
    assert len(compiled) == 2 and bool(compiled)
    assert compiled[0] is model[0] and compiled[-1] is model[1]
    assert list(compiled) == list(model)
    assert model[1] in compiled and nn.ReLU() not in compiled
    assert list(compiled[1:]) == [model[1]]
    assert not compiler(nn.Sequential())


@COMPILERS
def test_items_that_change(compiler):
    model = layers()
    compiled = compiler(model)
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), model[0](X).relu())
        compiled[1] = nn.Tanh()
        torch.testing.assert_close(compiled(X), model[0](X).tanh())
        del compiled[1]
        torch.testing.assert_close(compiled(X), model[0](X))
        before = compiled
        compiled += nn.Sequential(nn.Sigmoid())
        assert compiled is before and len(model) == 2
        torch.testing.assert_close(compiled(X), model[0](X).sigmoid())


@pytest.mark.parametrize(
    ("model", "keys"),
    [
        (nn.ModuleList([nn.Linear(2, 2), nn.ReLU()]), [0, 1]),
        (nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.ReLU()}), ["a", "b"]),
        (nn.ParameterList([torch.ones(2), torch.zeros(3)]), [0, 1]),
        (nn.ParameterDict({"a": torch.ones(2)}), ["a"]),
    ],
    ids=lambda own: type(own).__name__,
)
def test_containers(model, keys):
    compiled = corsac.compile(model)
    assert len(compiled) == len(keys)
    assert [compiled[key] is model[key] for key in keys] == [True] * len(keys)
    assert list(map(id, compiled)) == list(map(id, model))
    if isinstance(keys[0], str):
        assert "a" in compiled and "c" not in compiled


@COMPILERS
def test_what_is_no_container(compiler):
    compiled = compiler(nn.Linear(3, 3))
    assert not isinstance(compiled, Sized) and not isinstance(compiled, Iterable)
    assert compiled
    for use in (len, iter, lambda own: own[0], lambda own: 0 in own):
        with pytest.raises(TypeError, match="Module"):
            use(compiled)


class Session(nn.Module):
    """A context whose truth is whether it is open."""

    def __init__(self):
        super().__init__()
        self.open = False

    def __enter__(self):
        self.open = True
        return self

    def __exit__(self, *exception):
        self.open = False

    def __bool__(self):
        return self.open

    def forward(self, x):
        return x + 1


@COMPILERS
def test_a_context(compiler):
    compiled = compiler(Session())
    with compiled as entered:
        assert entered is compiled and compiled and compiled.open
    assert not compiled


@pytest.mark.recording
def test_layers_of_a_compiled_module_in_another_program():
    model = layers()
    inner = corsac.compile(model)

    def run(x):
        for layer in inner:
            x = layer(x)
        return x * len(inner) + inner[0](x)

    compiled = corsac.compile(run, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(X), run(X))
        inner.append(nn.Tanh())
        for _ in range(2):
            torch.testing.assert_close(compiled(X), run(X))
    assert "steps" in compiled.explain()


class Counting(nn.Module):
    """Has state besides its parameters, a buffer that is not saved, and methods in place of every module's."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 3)
        self.register_buffer("cache", torch.ones(1), persistent=False)
        self.count, self.calls = 0, []

    def forward(self, x):
        return self.linear(x) + self.cache

    def get_extra_state(self):
        return {"count": self.count}

    def set_extra_state(self, state):
        self.count = state["count"]

    def to(self, *args, **kwargs):
        self.calls.append("to")
        return super().to(*args, **kwargs)

    def eval(self):
        self.calls.append("eval")
        return super().eval()

    def _apply(self, fn, recurse=True):
        self.calls.append("_apply")
        return super()._apply(fn, recurse)


@COMPILERS
def test_state_is_saved_and_loaded_as_the_models(compiler):
    model = Counting()
    model.count = 3
    hooked = []
    model.register_state_dict_post_hook(lambda module, *_: hooked.append(module))
    model.register_load_state_dict_post_hook(lambda module, _: hooked.append(module))
    compiled = compiler(model)
    state = compiled.state_dict()
    assert (
        list(state) == list(model.state_dict()) == ["_extra_state", "linear.weight", "linear.bias"]
    )
    assert state["_extra_state"] == {"count": 3}
    model.count = 0
    compiled.load_state_dict(state)
    assert model.count == 3
    assert hooked == [model, model, model]
    outer = nn.Sequential(compiled)
    state = outer.state_dict()
    assert list(state) == ["0._extra_state", "0.linear.weight", "0.linear.bias"]
    model.count = 0
    outer.load_state_dict(state)
    assert model.count == 3


@COMPILERS
def test_versions_of_state(compiler):
    model = nn.BatchNorm1d(3)
    assert compiler(model).state_dict()._metadata[""] == {"version": 2}
    assert nn.Sequential(compiler(model)).state_dict()._metadata["0"] == {"version": 2}
    assert compiler(model)._version == 2


@COMPILERS
def test_a_buffer_that_is_registered_later_and_not_saved(compiler):
    model = Counting()
    compiled = compiler(model)
    compiled.register_buffer("later", torch.ones(2), persistent=False)
    assert compiled.later is model.later
    assert "later" not in model.state_dict() and "later" not in compiled.state_dict()


@COMPILERS
def test_methods_that_the_class_of_the_model_has(compiler):
    model = Counting()
    compiled = compiler(model)
    assert compiled.to(torch.float64) is compiled
    assert compiled.eval() is compiled
    assert model.calls == ["to", "_apply", "eval"]
    assert model.linear.weight.dtype == torch.float64
    assert not model.training and not compiled.training
    assert compiled.float() is compiled
    assert model.calls[3:] == ["_apply"]


@COMPILERS
def test_the_mode_is_the_models(compiler):
    model = layers()
    compiled = compiler(model)
    assert not compiled.training
    model.train()
    assert compiled.training
    compiled.training = False
    assert not model.training and model[0].training
    assert compiled.train() is compiled and model.training


@COMPILERS
def test_functions_are_applied_to_the_model_too(compiler):
    model = nn.Linear(2, 2)
    seen = []
    compiled = compiler(model)
    assert compiled.apply(seen.append) is compiled
    assert seen == [model]


@COMPILERS
def test_what_is_printed_and_listed(compiler):
    model = layers()
    model.config = {"size": 3}
    compiled = compiler(model)
    name = type(compiled).__name__
    assert name in ("CompiledModule", "HostedModule")
    assert repr(compiled) == (
        f"{name}(\n  Sequential(\n    (0): Linear(in_features=3, out_features=3, bias=True)\n"
        "    (1): ReLU()\n  )\n)"
    )
    assert repr(compiler(nn.Linear(2, 1))) == (
        f"{name}(Linear(in_features=2, out_features=1, bias=True))"
    )
    listed = dir(compiled)
    assert listed == sorted(set(listed))
    assert {"config", "append", "explain", "forward"} <= set(listed)


@COMPILERS
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, copy.copy, lambda own: pickle.loads(pickle.dumps(own))]
)
def test_copies(compiler, copied):
    model = layers()
    model.config = {"size": 3}
    compiled = compiler(model)
    again = copied(compiled)
    assert type(again) is type(compiled) and again is not compiled
    assert len(again) == 2 and again.config == {"size": 3} and not again.training
    with torch.no_grad():
        torch.testing.assert_close(again(X), model(X))
    assert (again[0] is model[0]) == (copied is copy.copy)
    assert isinstance(again, CompiledModule) == (compiler is corsac.compile)
