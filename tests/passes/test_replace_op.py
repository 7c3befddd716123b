"""Operators replaced by a table: fitting ones are called, others stay, with the reason."""

import operator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import corsac.fx
from corsac.passes import PassManager, extract_subgraph, replace_op


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4, bias=False)

    def forward(self, x):
        y = self.act(self.first(x))
        y = F.relu(y + 1)
        return self.last(y).sigmoid()


class Expected(Net):
    def forward(self, x):
        y = F.gelu(self.first(x))
        y = F.silu(torch.sub(y, 1))
        return self.last(y).tanh()


def traced(model=None):
    torch.manual_seed(0)
    return corsac.fx.symbolic_trace(Net() if model is None else model)


def reasons(report):
    return {site.node: site.reason for site in report.sites}


def test_functions_methods_and_modules():
    gm = traced()
    table = {nn.ReLU: nn.GELU, F.relu: F.silu, operator.add: torch.sub, "sigmoid": "tanh"}
    report = replace_op(gm, table)
    gm.graph.lint()
    assert report.count == len(report.sites) == 4
    torch.manual_seed(0)
    expected = Expected()
    x = torch.randn(2, 4)
    assert torch.equal(gm(x), expected(x))
    assert isinstance(gm.act, nn.GELU), "what is replaced everywhere keeps its name"
    assert [n.name for n in gm.graph.nodes] == [n.name for n in traced().graph.nodes]


@pytest.mark.parametrize(
    ("key", "value", "target"),
    [
        (F.relu, "relu", "relu"),
        (F.relu, nn.GELU, "relu"),
        (F.relu, nn.LeakyReLU(0.2), "relu"),
        ("sigmoid", torch.tanh, torch.tanh),
        (nn.ReLU, torch.relu, torch.relu),
        (nn.ReLU, "tanh", "tanh"),
        (operator.add, torch.mul, torch.mul),
    ],
)
def test_each_kind_by_each_kind(key, value, target):
    gm = traced()
    assert replace_op(gm, {key: value}).count == 1
    gm.graph.lint()
    assert target in {n.target for n in gm.graph.nodes}
    gm(torch.randn(1, 4))


def test_arguments_that_repeat_defaults_are_left_out():
    gm = traced(lambda x: F.relu(x, inplace=False) + F.relu(x, False))
    assert replace_op(gm, {F.relu: torch.tanh}).count == 2
    x = torch.randn(3)
    assert torch.equal(gm(x), 2 * torch.tanh(x))


def f_unknown_keyword(x):
    return F.leaky_relu(x, negative_slope=0.3)


def f_inplace(x):
    return F.relu(x.clone(), inplace=True)


def f_too_many(x):
    return torch.clamp(x, 0.0, 1.0)


@pytest.mark.parametrize(
    ("program", "table", "says"),
    [
        (f_unknown_keyword, {F.leaky_relu: F.relu}, "does not take these arguments"),
        (f_unknown_keyword, {F.leaky_relu: torch.tanh}, "negative_slope=0.3"),
        (f_inplace, {F.relu: F.gelu}, "inplace=True"),
        (lambda x: torch.relu(x) + x, {torch.relu: torch.relu_}, "the new operator writes to x"),
        (lambda x: x.clone().relu_(), {"relu_": "relu"}, "the old operator writes to clone"),
        (f_too_many, {torch.clamp: torch.tanh}, "does not take these arguments (3 by position)"),
        (lambda x: x.softmax(dim=0), {"softmax": "tanh"}, "dim=0"),
    ],
)
def test_what_does_not_fit_stays(program, table, says):
    gm = traced(program)
    graph = str(gm.graph)
    report = replace_op(gm, table)
    (reason,) = reasons(report).values()
    assert says in reason
    assert str(gm.graph) == graph


class Mine(nn.Linear):
    """A user-defined linear layer with the same weights."""

    def forward(self, x):
        return super().forward(x) * 2


def test_weights_go_along():
    gm = traced()
    weight = gm.first.weight
    report = replace_op(gm, {nn.Linear: Mine})
    assert report.count == 2
    assert isinstance(gm.first, Mine)
    assert gm.first.weight is weight
    assert gm.last.bias is None
    assert sorted(gm.state_dict()) == sorted(Net().state_dict())
    torch.manual_seed(0)
    net, x = Net(), torch.randn(2, 4)
    expected = net.last(F.relu(net.act(net.first(x) * 2) + 1)) * 2
    torch.testing.assert_close(gm(x), expected.sigmoid())


class Wider(nn.Linear):
    def __init__(self, in_features, out_features, bias):
        super().__init__(in_features + 1, out_features, bias)


class HardTanh(nn.Module):
    def forward(self, x):
        return x.clamp(-1, 1)


@pytest.mark.parametrize(
    ("module", "value", "says"),
    [
        (nn.Linear(4, 4), torch.relu, "its weights would be lost"),
        (nn.Linear(4, 4), nn.ReLU(), "its weights would be lost"),
        (nn.Linear(4, 4), nn.Embedding, "Embedding needs num_embeddings"),
        (nn.Linear(4, 4), nn.Tanh, "would be lost"),
        (nn.Linear(4, 4), Wider, "Wider has other weights"),
        (nn.ReLU(inplace=True), nn.GELU, "inplace=True would be lost"),
        (nn.LeakyReLU(0.3), F.relu, "negative_slope=0.3 would be lost"),
        (nn.Softmax(dim=1), HardTanh, "dim=1 would be lost"),
    ],
)
def test_modules_that_stay(module, value, says):
    gm = traced(nn.Sequential(module))
    before = str(gm.graph), dict(gm.named_modules())
    report = replace_op(gm, {type(module): value})
    (reason,) = reasons(report).values()
    assert says in reason
    assert (str(gm.graph), dict(gm.named_modules())) == before


def test_hooks_and_derived_classes_stay():
    class Special(nn.ReLU):
        def forward(self, x):
            return super().forward(x) + 1

    model = nn.Sequential(nn.ReLU(), nn.ReLU(), Special())
    model[0].register_forward_hook(lambda *_: None)

    class Tracer(corsac.fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, nn.ReLU)

    gm = corsac.fx.GraphModule(model, Tracer().trace(model))
    report = replace_op(gm, {nn.ReLU: nn.Tanh})
    assert reasons(report) == {"_0": "it has hooks", "_1": None}


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(self.act(x) - 1)


def test_a_module_called_twice_within_the_budget():
    gm = traced(Twice())
    report = replace_op(gm, {nn.ReLU: nn.Tanh}, budget=corsac.passes.Budget(1))
    assert [site.applied for site in report.sites] == [True, False]
    gm.graph.lint()
    x = torch.randn(5)
    assert torch.equal(gm(x), torch.relu(torch.tanh(x) - 1))
    replace_op(gm, {nn.ReLU: nn.Tanh})
    assert torch.equal(gm(x), torch.tanh(torch.tanh(x) - 1))
    assert isinstance(gm.act, nn.Tanh)


def test_metadata_of_values_that_change_goes_and_the_rest_stays():
    gm = traced()
    for node in gm.graph.nodes:
        node.meta |= {"mark": node.name, "tensor_meta": node.name}
    replace_op(gm, {F.relu: F.gelu})
    has = {n.name: "tensor_meta" in n.meta for n in gm.graph.nodes}
    assert has == {
        "x": True, "first": True, "act": True, "add": True,
        "relu": False, "last": False, "sigmoid": False, "output": False,
    }  # fmt: skip
    assert all(node.meta["mark"] == node.name for node in gm.graph.nodes)


def test_the_manager_finds_what_a_replacement_changes():
    gm = traced()
    manager = PassManager(
        [lambda gm: replace_op(gm, {F.relu: torch.relu})], verify=(torch.randn(2, 4),)
    )
    assert manager(gm).modified


def test_extract_subgraph_is_a_pass_too():
    import corsac.fx.experimental.optimization as optimization

    assert extract_subgraph is optimization.extract_subgraph


UNARY = [torch.relu, torch.tanh, torch.sigmoid, torch.cos, F.silu, F.gelu]
BINARY = [torch.add, torch.mul, torch.maximum, operator.sub]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_programs(data):
    """A replaced program computes the same as the program written with the other operators."""
    steps = data.draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1))
    functions = [*UNARY, *BINARY]
    old = data.draw(st.sampled_from(functions))
    new = data.draw(st.sampled_from([f for f in (UNARY if old in UNARY else BINARY) if f != old]))

    def program(table):
        def run(x):
            values = [x]
            for which, place in steps:
                function = functions[which]
                chosen = table.get(function, function)
                operands = [values[place % len(values)], values[-1]]
                values.append(chosen(*operands[: 1 if function in UNARY else 2]))
            return values[-1]

        return run

    gm = corsac.fx.symbolic_trace(program({}))
    uses = sum(functions[which] == old for which, _ in steps)
    report = replace_op(gm, {old: new})
    gm.graph.lint()
    assert report.count == uses
    x = torch.linspace(-2, 2, 7)
    torch.testing.assert_close(gm(x), program({old: new})(x), equal_nan=True)
