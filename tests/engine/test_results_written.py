"""Writes to one of several results of an operator: the others do not change, and what is taken again shows the write."""

import numpy as np
import pytest
import torch

import corsac
from corsac import fx
from corsac._engine.native_graph import NativeGraph
from kit.writers import difference, ran

X = torch.tensor([[3.0, 1.0, 2.0], [-1.0, 5.0, 4.0]])


def native(function, *inputs):
    """The native program of the whole function."""
    graph = NativeGraph(fx.symbolic_trace(function), precision="f32", strict=True)
    with torch.no_grad():
        return graph.compile(inputs, whole=True)[0]


def check(function, *inputs):
    expected = ran(function, inputs)
    assert expected.values is not None
    assert difference(ran(native(function, *inputs), inputs), expected) is None


OPERATORS = {
    "topk": lambda x: torch.topk(x, 2),
    "sort": lambda x: torch.sort(x, descending=True),
    "max": lambda x: torch.max(x, 1),
    "min": lambda x: x.min(0),
    "var_mean": lambda x: torch.var_mean(x, 1),
    "aminmax": lambda x: torch.aminmax(x, dim=1),
    "kthvalue": lambda x: torch.kthvalue(x, 2),
}


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_write_to_one_result_leaves_the_other_one(name, number):
    def function(x):
        results = OPERATORS[name](x)
        first, second = results[0], results[1]
        own = (first, second)[number]
        own.add_(own)
        return first, second, x * 1

    check(function, X)


def test_routers_normalise_the_weights_of_experts():
    def function(x):
        found = torch.topk(x.softmax(-1), 2)
        weights, experts = found[0], found[1]
        weights /= weights.sum(-1, keepdim=True)
        return weights, experts

    check(function, X)


def test_a_result_that_is_taken_again_has_what_was_written():
    def function(x):
        found = torch.sort(x, 1)
        before = found[0] * 1
        values, again = found[0], found[0]
        values.mul_(2)
        row = again[0]
        row.add_(1)
        return before, values * 1, again * 1, found[0] * 1, found[-2] * 1, found[1]

    check(function, X)


def test_results_that_are_returned_together_have_what_was_written():
    def function(x):
        found = torch.topk(x, 2)
        found[0][0].zero_()
        return found

    check(function, X)


def test_views_of_one_result_show_what_is_written_to_it():
    def function(x):
        found = torch.max(x, 1, True)
        values, places = found[0], found[1]
        row = values.squeeze(1)
        values.add_(places)
        row.mul_(3)
        return row * 1, values * 1, places

    check(function, X)


@pytest.mark.parametrize(
    "parts",
    [
        lambda x: torch.chunk(x, 3, 1),
        lambda x: torch.split(x, [1, 2], 1),
        lambda x: torch.unbind(x, 1),
        lambda x: torch.tensor_split(x, 2, 1),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_parts_of_a_tensor_are_right_or_refused(parts, late):
    def function(x):
        base = x * 2
        found = parts(base)
        first = found[0]
        second = None if late else found[1]
        first.add_(1)
        second = found[1] if late else second
        return first * 1, second * 1, found[0] * 1, base * 1

    try:
        made = native(function, X)
    except corsac.CompileError as error:
        assert "it writes to" in str(error)
        return
    assert difference(ran(made, (X,)), ran(function, (X,))) is None


def test_one_tensor_for_two_results_is_right_or_refused():
    def function(x, y):
        found = torch.broadcast_tensors(x + 1, y)
        first, second = found[0], found[1]
        first.mul_(2)
        return first * 1, second * 1

    try:
        made = native(function, X, X)
    except corsac.CompileError:
        return
    assert difference(ran(made, (X, X)), ran(function, (X, X))) is None


class Router(torch.nn.Module):
    """A layer of experts, two of which are used for each row."""

    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(3, 4)
        self.experts = torch.nn.Parameter(torch.randn(4, 3, 3))

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        weights /= weights.sum(-1, keepdim=True)
        results = torch.einsum("rkij,rj->rki", self.experts[chosen], x)
        return (results * weights[..., None]).sum(1)


def test_layers_of_experts_are_saved(tmp_path):
    torch.manual_seed(0)
    model, path = Router().eval(), tmp_path / "m.safetensors"
    corsac.save(model, path, torch.randn(5, 3))
    for seed in range(3):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed))
        found = corsac.load(path, framework="numpy")(x.numpy())
        np.testing.assert_allclose(found, model(x).detach().numpy(), rtol=1e-5, atol=1e-6)
