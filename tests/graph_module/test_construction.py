"""Constructing graph modules: attributes taken from the root, and errors."""

import copy

import pytest
import torch
import torch.fx
from torch import nn

import corsac.fx as fx


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.unused = nn.Linear(3, 3)
        self.register_buffer("offset", torch.ones(3))
        self.register_buffer("scratch", torch.full((3,), 2.0), persistent=False)
        self.weight = nn.Parameter(torch.full((3,), 3.0))

    def forward(self, x):
        return self.linear(x) * self.weight + self.offset + self.scratch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.tail = nn.Sequential(nn.ReLU(), nn.Linear(3, 2))

    def forward(self, x):
        return self.tail(self.block(x))


def test_takes_what_the_graph_uses_and_shares_it():
    net = Net()
    gm = fx.symbolic_trace(net)
    reference = torch.fx.symbolic_trace(net)
    assert list(gm.state_dict()) == list(reference.state_dict())
    assert [n for n, _ in gm.named_modules()] == [n for n, _ in reference.named_modules()]
    assert gm.block.linear is net.block.linear
    assert gm.block.weight is net.block.weight
    assert not hasattr(gm.block, "unused")
    assert "block.scratch" not in gm.state_dict()
    x = torch.randn(2, 3)
    assert torch.equal(gm(x), net(x))


def test_prints_as_torch_fx_does():
    net = Net()
    assert str(fx.symbolic_trace(net)) == str(torch.fx.symbolic_trace(net))
    assert repr(fx.symbolic_trace(net)) == repr(torch.fx.symbolic_trace(net))


def test_root_can_be_a_dict():
    graph = fx.Graph()
    x = graph.placeholder("x")
    weight = graph.get_attr("a.weight")
    y = graph.call_module("a.act", (x,))
    graph.output(graph.call_function(torch.add, (y, weight)))
    weight_value = torch.ones(2)
    gm = fx.GraphModule({"a.weight": weight_value, "a.act": nn.ReLU()}, graph, "Named")
    assert gm.a.weight is weight_value
    assert "a.weight" in dict(gm.named_buffers())
    assert type(gm).__name__ == "Named"
    assert torch.equal(gm(torch.tensor([-1.0, 1.0])), torch.tensor([1.0, 2.0]))


def test_a_dict_that_lacks_a_target_is_refused():
    graph = fx.Graph()
    graph.output(graph.get_attr("a.weight"))
    with pytest.raises(RuntimeError, match=r"referenced target a\.weight but that target was not"):
        fx.GraphModule({}, graph)


def test_shallow_names_of_a_dict_are_assigned_first():
    graph = fx.Graph()
    inner = graph.get_attr("a.extra")
    graph.output(graph.call_module("a", (inner,)))
    gm = fx.GraphModule({"a": nn.ReLU(), "a.extra": torch.tensor([-1.0, 2.0])}, graph)
    assert torch.equal(gm(), torch.tensor([0.0, 2.0]))


def test_other_roots_are_refused():
    with pytest.raises(RuntimeError, match="Unsupported type 3 passed for root"):
        fx.GraphModule(3, fx.Graph())


def test_graph_must_be_a_graph():
    gm = fx.symbolic_trace(Net())
    with pytest.raises(AssertionError, match="Expected a Graph instance"):
        gm.graph = "graph"


def test_every_module_has_a_class_of_its_own():
    first, second = fx.symbolic_trace(Net()), fx.symbolic_trace(Block())
    assert type(first) is not type(second)
    assert isinstance(first, fx.GraphModule)

    class Custom(fx.GraphModule):
        answer = 42

    net = Net()
    custom = Custom(net, fx.symbolic_trace(net).graph)
    assert custom.answer == 42
    assert type(custom).__mro__[1] is Custom


def test_training_flag_follows_the_root():
    assert not fx.symbolic_trace(Net().eval()).training
    assert fx.symbolic_trace(Net()).training
    net = Net().eval()
    net.tail[1].train()
    gm = fx.symbolic_trace(net)
    flags = {"": False, "block": False, "block.linear": False, "tail": False, "tail.0": False}
    assert {name: module.training for name, module in gm.named_modules()} == flags | {
        "tail.1": True
    }
    for twin in (copy.copy(gm), copy.deepcopy(gm)):
        assert [m.training for m in twin.modules()] == [m.training for m in gm.modules()]


def test_registration_hooks_are_called():
    from torch.nn.modules import module as nn_module

    seen = []
    hooks = [
        nn_module.register_module_module_registration_hook(lambda m, n, c: seen.append(n)),
        nn_module.register_module_parameter_registration_hook(lambda m, n, c: seen.append(n)),
        nn_module.register_module_buffer_registration_hook(lambda m, n, c: seen.append(n)),
    ]
    net = Net()
    graph = fx.Tracer().trace(net)
    seen.clear()
    try:
        fx.GraphModule(net, graph)
    finally:
        for hook in hooks:
            hook.remove()
    assert {"linear", "weight", "offset", "scratch", "tail"} <= set(seen)


def test_attributes_that_hide_registered_ones_are_taken():
    net = Block()
    net.__dict__["weight"] = 5.0
    gm = fx.GraphModule(net, fx.symbolic_trace(Block()).graph)
    assert gm.weight == 5.0
    assert "weight" not in gm._parameters
