"""Functional ATen graphs made in-place: as by torch.fx, with the same results."""

import pytest
import torch
import torch.fx.passes.reinplace as theirs
from torch._functorch.eager_transforms import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

import corsac.fx.passes.reinplace as ours
from corsac.fx.convert import from_torch
from corsac.passes import eliminate_dead_code


def chain(x):
    return x.clone().add(1).relu().mul(2)


def through_a_view(x):
    a = x.clone()
    a.view(-1).add_(1)
    return a


def a_row(x):
    a = torch.zeros(4, 4)
    a[0] = x[1]
    return a * 2


def a_slice(x):
    a = x + 1
    a[1:3] = x[:2] * 2
    return a.sum(0)


def a_diagonal(x):
    a = x.clone()
    a.diagonal().fill_(0)
    return a


def the_input(x):
    x.view(-1).add_(1)
    return x * 2


def promoted(x):
    return x.clone().ge(0.5).to(torch.float32) + 1


def used_later(x):
    a = x.exp()
    return a.relu() + a


def broadcast(x):
    return x.sum(0).add(x)


def returned(x):
    a = x.exp()
    return a, a.relu()


PROGRAMS = [
    chain, through_a_view, a_row, a_slice, a_diagonal, the_input, promoted, used_later, broadcast,
    returned,
]  # fmt: skip
X = torch.linspace(-1, 2, 16).reshape(4, 4)


@pytest.mark.parametrize("remove", ["mutations_and_views", "mutations"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_those_of_the_functional_graph(program, remove):
    functional = make_fx(functionalize(program, remove=remove))(X.clone())
    expected_input = X.clone()
    expected = functional(expected_input)
    gm = from_torch(functional)
    assert ours.reinplace(gm, X.clone()) is gm
    gm.graph.lint()
    for _ in range(2):
        given = X.clone()
        torch.testing.assert_close(gm(given), expected, rtol=0, atol=0)
        assert torch.equal(given, expected_input)
        eliminate_dead_code(gm)


@pytest.mark.parametrize("program", PROGRAMS)
def test_graphs_are_those_of_torch_fx(program):
    functional = make_fx(functionalize(program, remove="mutations_and_views"))(X.clone())
    gm = from_torch(functional)
    ours.reinplace(gm, X.clone())
    theirs.reinplace(functional, X.clone())
    assert targets(gm) == targets(functional)


def targets(gm):
    return [(n.op, str(n.target), [str(a) for a in n.all_input_nodes]) for n in gm.graph.nodes]


def test_one_tensor_twice():
    """The same tensor as two arguments is handled; torch.fx skips it."""

    def program(x):
        a = x + 1
        return a * a

    functional = make_fx(program)(X)
    gm = from_torch(functional)
    ours.reinplace(gm, X)
    assert torch.ops.aten.mul_.Tensor in {n.target for n in gm.graph.nodes}
    assert torch.equal(gm(X), program(X))
