"""corsac.compile of functions and methods, and its arguments in common with torch.compile."""

import copy
import inspect
import pickle
import types

import pytest
import torch
from torch import nn

import corsac
from corsac._models.function import module_of

pytestmark = pytest.mark.recording
X = torch.linspace(-1, 1, 6).reshape(2, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x, scale=2.0):
        """Two layers."""
        return self.second(self.first(x).relu()) * scale

    def own(self, x):
        return self(x) + 1


@corsac.compile
def doubled(x):
    return x * 2


def is_native(compiled):
    return bool(module_of(compiled)._recorded.programs())


def test_a_function_is_one():
    assert isinstance(doubled, types.FunctionType) and doubled.__name__ == "doubled"
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(doubled(X), X * 2)
    assert is_native(doubled) and "steps" in doubled.explain()


def test_the_forward_of_a_model():
    model, other = Net().eval(), Net().eval()
    model.forward = corsac.compile(model.forward)
    assert inspect.signature(model.forward) == inspect.signature(other.forward)
    assert model.forward.__doc__ == "Two layers."
    called = []
    model.register_forward_hook(lambda *_: called.append(1))
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(model(X), other(X))
            torch.testing.assert_close(model.own(X), other.own(X))
            torch.testing.assert_close(model(X, scale=3.0), other(X, scale=3.0))
        assert is_native(model.forward) and len(called) == 9
        for own in (model, other):
            own.first.weight.mul_(2)
        torch.testing.assert_close(model(X), other(X))
    assert [name for name, _ in model.named_modules()] == ["", "first", "second"]
    assert model.state_dict().keys() == other.state_dict().keys()


def test_copies_of_a_model_have_their_own_weights():
    model = Net().eval()
    model.forward = corsac.compile(model.forward)
    with torch.no_grad():
        expected = model(X)
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            for _ in range(3):
                torch.testing.assert_close(other(X), expected)
            for own in other.parameters():
                own.zero_()
            for _ in range(3):
                assert not other(X).any()
            other.forward = corsac.compile(other.forward)
            for _ in range(3):
                assert not other(X).any()
        torch.testing.assert_close(model(X), expected)


def test_the_forward_of_a_model_that_trains():
    model, other = Net(), Net()
    model.forward = corsac.compile(model.forward)
    for _ in range(3):
        for own in (model, other):
            own.zero_grad()
            own(X).square().sum().backward()
        for mine, its in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, its.grad)
    assert len(module_of(model.forward)._trained_graphs()) == 1


def test_functions_in_classes_are_methods():
    class Scaled(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        @corsac.compile
        def forward(self, x):
            return x * self.factor

        @staticmethod
        @corsac.compile
        def twice(x):
            return x * 2

    first, second = Scaled(2), Scaled(3)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(first(X), X * 2) and torch.equal(second(X), X * 3)
            assert torch.equal(Scaled.twice(X), X * 2)
        first.factor = 5
        assert torch.equal(first(X), X * 5)


def test_one_inside_another():
    inner = corsac.compile(lambda x: x + 1)
    outer = corsac.compile(lambda x: inner(x) * 2)
    again = corsac.compile(inner)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(outer(X), (X + 1) * 2) and torch.equal(again(X), X + 1)
    assert is_native(outer)


def test_modes_and_disable():
    model = Net().eval()
    with torch.no_grad():
        for mode in (None, "default", "reduce-overhead", "max-autotune"):
            torch.testing.assert_close(corsac.compile(model, mode=mode)(X), model(X))
    with pytest.raises(ValueError, match=r"mode is one of 'default', .*, not 'fast'"):
        corsac.compile(model, mode="fast")
    assert corsac.compile(model, disable=True) is model

    @corsac.compile(disable=True)
    def function(x):
        return x

    assert function(X) is X and not hasattr(function, "explain")


@pytest.mark.parametrize("compiler", [torch.compile, corsac.compile])
@pytest.mark.parametrize("options", [{}, {"precision": "f32"}])
def test_a_mode_and_options_are_refused(compiler, options):
    with pytest.raises(RuntimeError, match=r"(?i)mode (and|or) options"):
        compiler(Net(), mode="max-autotune", options=options)
    with pytest.raises(RuntimeError, match=r"(?i)mode (and|or) options"):
        compiler(mode="max-autotune", options=options)(Net())


@pytest.mark.parametrize("model", ["resnet50", 3, {"a": 1}, torch.ones(2)])
def test_what_is_no_program_is_refused(model):
    with pytest.raises(TypeError, match="expected a module or a function, got "):
        corsac.compile(model)


def test_attributes_of_the_model():
    model = Net().eval()
    model.config = {"size": 3}
    compiled = corsac.compile(model)
    with torch.no_grad():
        torch.testing.assert_close(compiled.own(X), model.own(X))
    assert compiled.config is model.config
    compiled.config = None
    assert model.config is None
