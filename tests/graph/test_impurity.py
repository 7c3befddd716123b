"""The same nodes are impure as in torch.fx."""

import operator

import pytest
import torch
import torch.fx

import corsac.fx

TARGETS = [
    (torch.relu, ("x",)),
    (torch.rand, ((2,),)),
    (operator.setitem, ("x", 0, 1.0)),
    (torch._assert, (True, "message")),
    (torch.ops.aten.add_.Tensor, ("x", "x")),
    (torch.ops.aten.bernoulli.default, ("x",)),
    (torch.ops.aten.scaled_dot_product_attention.default, ("x", "x", "x")),
]


@pytest.mark.parametrize("impure_random", [True, False])
def test_impurity_of_functions(impure_random):
    def verdicts(fx):
        graph = fx.Graph()
        x = graph.placeholder("x")
        nodes = [x]
        for target, args in TARGETS:
            args = tuple(x if arg == "x" else arg for arg in args)
            nodes.append(graph.call_function(target, args))
        return [node.is_impure(impure_random) for node in nodes]

    assert verdicts(corsac.fx) == verdicts(torch.fx)


def test_impurity_of_modules_needs_the_owner():
    graph = corsac.fx.Graph()
    node = graph.create_node("call_module", "layer")
    with pytest.raises(AssertionError, match="owning module"):
        node.is_impure()
    owner = torch.nn.Module()
    owner.layer = torch.nn.Identity()
    graph.owning_module = owner
    assert not node.is_impure()
    owner.layer._is_impure = True
    assert node.is_impure()
