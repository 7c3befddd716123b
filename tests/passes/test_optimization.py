"""``fuse`` and ``remove_dropout`` have the results of torch.fx's, where those are correct."""

import copy

import pytest
import torch
import torch.fx.experimental.debug
import torch.fx.experimental.optimization as theirs
import torch.nn.functional as F
import torchvision
from torch import nn

import corsac.fx
import corsac.fx.experimental.optimization as ours
from kit.trained import as_if_trained


@pytest.mark.parametrize("name", ["resnet18", "shufflenet_v2_x0_5", "mobilenet_v3_small"])
def test_fuse_gives_what_torch_fx_gives(name):
    torch.manual_seed(0)
    model = as_if_trained(getattr(torchvision.models, name)())
    a, b = ours.fuse(model), theirs.fuse(model)
    assert a.code == b.code
    weights = dict(b.named_parameters()) | dict(b.named_buffers())
    found = dict(a.named_parameters()) | dict(a.named_buffers())
    assert found.keys() == weights.keys()
    for name, weight in weights.items():
        assert torch.equal(found[name], weight), name
        assert found[name].requires_grad == weight.requires_grad, name
    x = torch.randn(1, 3, 64, 64)
    assert torch.equal(a(x), b(x))


@pytest.mark.parametrize("inplace", [False, True])
def test_the_model_is_not_changed_and_weights_are_copied_unless_in_place(inplace):
    model = as_if_trained(nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.Conv2d(2, 2, 1)))
    before = copy.deepcopy(model.state_dict())
    fused = ours.fuse(model, inplace=inplace)
    assert (fused.get_submodule("2") is model[2]) is inplace
    assert (fused.get_submodule("2").weight is model[2].weight) is inplace
    with torch.no_grad():
        for weight in fused.get_submodule("0").parameters():
            weight.zero_()
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_shared_weights_stay_shared_in_the_copy():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
            self.b.weight = self.a.weight
            self.register_buffer("offset", torch.ones(2), persistent=False)

        def forward(self, x):
            return self.b(self.a(x)) + self.a.weight.sum() + self.offset

    model = Tied().eval()
    fused = ours.fuse(model)
    assert fused.a.weight is fused.b.weight
    assert fused.a.weight is not model.a.weight
    assert fused.offset is not model.offset
    assert sorted(fused.state_dict()) == sorted(model.state_dict())
    x = torch.randn(1, 2)
    assert torch.equal(fused(x), model(x))


def test_a_graph_module_is_taken_as_it_is():
    model = as_if_trained(nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)))
    gm = corsac.fx.symbolic_trace(model)
    add = gm.graph.find_nodes(op="call_module", target="1")[0]
    with gm.graph.inserting_after(add):
        doubled = gm.graph.call_function(torch.mul, (add, 2))
    gm.graph.output_node().args = (doubled,)
    gm.recompile()
    x = torch.randn(1, 2, 3, 3)
    expected = gm(x)
    fused = ours.fuse(gm, no_trace=True)
    assert [node.name for node in fused.graph.nodes] == ["input_1", "_0", "mul", "output"]
    torch.testing.assert_close(fused(x), expected)
    assert torch.equal(gm(x), expected)


def test_training_mode_is_an_error():
    model = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)).train()
    for fuse in (ours.fuse, theirs.fuse):
        with pytest.raises(AssertionError):
            fuse(model)
    with pytest.raises(AssertionError, match=r"at _1 1 is in training mode: call model\.eval"):
        ours.fuse(model)


class SharedConvolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)

    def forward(self, x):
        return self.conv(self.bn(self.conv(x)))


def test_where_torch_fx_computes_something_else():
    model = as_if_trained(SharedConvolution())
    x = torch.randn(1, 2, 3, 3)
    assert not torch.allclose(theirs.fuse(model)(x), model(x)), "torch.fx has learnt this"
    assert torch.equal(ours.fuse(model)(x), model(x))


def test_linear_layers_are_folded():
    model = as_if_trained(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    x = torch.randn(5, 4)
    a, b = ours.fuse(model), theirs.fuse(model)
    assert a.code == b.code
    torch.testing.assert_close(a(x), b(x))


@pytest.mark.parametrize("training", [False, True])
def test_remove_dropout_gives_what_torch_fx_gives(training):
    class Mine(nn.Dropout):
        pass

    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), Mine(), nn.Dropout2d(), nn.ReLU())
    model.train(training)
    a, b = ours.remove_dropout(model), theirs.remove_dropout(model)
    assert [(n.op, str(n.target)) for n in a.graph.nodes] == [
        (n.op, str(n.target)) for n in b.graph.nodes
    ]
    assert sorted(a.state_dict()) == sorted(b.state_dict())


def test_fuse_folds_functions_of_attributes():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

        def forward(self, x):
            conv, bn = self.conv, self.bn
            y = F.conv2d(x, conv.weight, conv.bias)
            return F.batch_norm(y, bn.running_mean, bn.running_var, bn.weight, bn.bias)

    class Buffers(corsac.fx.Tracer):
        proxy_buffer_attributes = True

    model = as_if_trained(Functional())
    gm = corsac.fx.GraphModule(model, Buffers().trace(model))
    before = copy.deepcopy(gm.state_dict())
    x = torch.randn(2, 3, 4, 4)
    for inplace in (False, True):
        fused = ours.fuse(gm, inplace=inplace, no_trace=True)
        assert fused.graph.find_nodes(op="call_function", target=F.batch_norm) == []
        assert sorted(fused.state_dict()) == ["conv_weight_folded", "conv_weight_folded_bias"]
        torch.testing.assert_close(fused(x), model(x))
    assert all(torch.equal(value, before[name]) for name, value in gm.state_dict().items())


def test_dropouts_that_do_more_stay():
    class Doubles(nn.Dropout):
        def forward(self, input):
            return input * 2

    model = nn.Sequential(nn.Dropout(), nn.Dropout(), Doubles()).eval()
    model[1].register_forward_hook(lambda module, args, result: result + 1)
    stays = ours.remove_dropout(model)
    x = torch.randn(2, 2)
    assert torch.equal(stays(x), model(x))
    reasons = [site.reason for site in stays.meta["report"].sites]
    assert reasons == [None, "it has hooks or declares side effects"]
    assert torch.equal(theirs.remove_dropout(model)(x), x * 2), "torch.fx has learnt this"


def test_a_dropout_in_training_stays_where_its_result_is_written_to():
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.last = nn.Dropout(), nn.Dropout()

        def forward(self, x):
            y = x * 2
            self.drop(y).zero_()
            return self.last(y)

    x = torch.ones(2, 2)
    wrong = theirs.remove_dropout(Writes())
    assert not wrong(x).any(), "torch.fx has learnt this"
    stays = ours.remove_dropout(Writes())
    assert torch.equal(stays(x), x * 2)
    assert [node.target for node in stays.graph.find_nodes(op="call_module")] == ["drop"]


class TwoBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.randn(3))

    def forward(self, x):
        left, right = self.a(x), torch.relu(self.b(x)) * self.scale
        return left + right


def parts_of(fx):
    torch.manual_seed(0)
    gm = fx.symbolic_trace(TwoBranches())
    return gm, {node.name: node for node in gm.graph.nodes}


@pytest.mark.parametrize(
    ("nodes", "inputs", "outputs"),
    [
        (["b", "relu"], ["x"], ["relu"]),
        (["scale", "mul"], ["relu"], ["mul", "relu"]),
        (["mul", "add"], ["scale", "relu", "a"], ["add"]),
        ([], ["a"], ["a"]),
        (["relu"], ["b"], []),
    ],
)
def test_extract_subgraph_gives_what_torch_fx_gives(nodes, inputs, outputs):
    found = []
    for fx, module in ((torch.fx, theirs), (corsac.fx, ours)):
        gm, named = parts_of(fx)
        lists = [[named[name] for name in names] for names in (nodes, inputs, outputs)]
        part = module.extract_subgraph(gm, *lists)
        torch.manual_seed(1)
        results = part(*(torch.randn(2, 3) for _ in inputs))
        found.append((part.code, str(part.graph), sorted(part.state_dict()), results))
    (*reference, expected), (*subject, given) = found
    assert subject == reference
    assert all(torch.equal(a, b) for a, b in zip(given, expected, strict=True))


def test_extract_subgraph_keeps_metadata_and_shares_weights():
    gm, named = parts_of(corsac.fx)
    for name, node in named.items():
        node.meta["mark"] = name
    part = ours.extract_subgraph(gm, [named["b"], named["relu"]], [named["x"]], [named["relu"]])
    assert [n.meta.get("mark") for n in part.graph.nodes] == ["x", "b", "relu", None]
    assert part.b is gm.b


@pytest.mark.parametrize(
    ("nodes", "outputs", "says"),
    [
        (["relu"], ["relu"], "relu uses b, which is no input"),
        (["b"], ["relu"], "the result has relu, which is no input"),
    ],
)
def test_extract_subgraph_names_what_is_missing(nodes, outputs, says):
    for fx, module in ((torch.fx, theirs), (corsac.fx, ours)):
        gm, named = parts_of(fx)
        lists = [[named[name] for name in names] for names in (nodes, ["x"], outputs)]
        with pytest.raises(KeyError) as raised:
            module.extract_subgraph(gm, *lists)
    assert says in str(raised.value)


def test_set_trace_puts_a_breakpoint_into_the_code_once():
    from corsac.fx.experimental.debug import set_trace

    gm = corsac.fx.symbolic_trace(TwoBranches())
    code = gm.code
    assert set_trace(gm) is gm
    reference = torch.fx.experimental.debug.set_trace(torch.fx.symbolic_trace(TwoBranches()))
    assert gm.code == reference.code
    gm.recompile()
    assert gm.code == code
