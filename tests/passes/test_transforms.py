"""Decomposition, inversion, mixed precision, modules and functions: values are correct."""

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

import corsac.analysis
import corsac.fx
from corsac.passes import (
    NotInvertible,
    autocast,
    decompose,
    functions_to_modules,
    invert,
    modules_to_functions,
)


def positive_part(x, inplace=False):
    return (x > 0) * x


def test_a_rule_takes_the_place_of_every_call():
    def program(x):
        return F.relu(x) + F.relu(x - 1, inplace=True) * torch.sigmoid(x)

    gm = corsac.fx.symbolic_trace(program)
    report = decompose(gm, {F.relu: positive_part})
    assert report.count == 2
    assert not gm.graph.find_nodes(op="call_function", target=F.relu)
    x = torch.randn(5)
    torch.testing.assert_close(gm(x), program(x.clone()))
    assert {"relu", "relu_1", "sigmoid"} <= {node.name for node in gm.graph.nodes}


def test_rules_for_methods_and_modules_and_for_what_they_leave():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.linear = nn.SiLU(), nn.Linear(3, 3)

        def forward(self, x):
            return self.linear(self.gate(x)).square()

    model = Model()
    gm = corsac.fx.symbolic_trace(model)
    rules = {
        "square": lambda x: x * x,
        nn.SiLU: lambda module, x: x * torch.sigmoid(x),
        nn.Linear: lambda module, x: NotImplemented,
    }
    report = decompose(gm, rules)
    assert report.count == 2 and report.kept[0].reason == "the rule leaves it as it is"
    x = torch.randn(2, 3)
    torch.testing.assert_close(gm(x), model(x))


def test_inversion():
    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.rand(3, 1) + 0.5)

        def forward(self, x):
            y = torch.tanh(x.permute(1, 0)) * self.scale.exp() + 2
            return 1 - torch.exp(y) / 4

    flow = Flow().double()
    inverse = invert(corsac.fx.symbolic_trace(flow))
    x = torch.randn(4, 3, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(inverse(flow(x)), x, rtol=1e-9, atol=1e-9)
        # And back.

        torch.testing.assert_close(flow(inverse(flow(x))), flow(x))


@pytest.mark.parametrize(
    ("program", "node"),
    [
        (lambda x: torch.relu(x), "relu"),
        (lambda x: x + x.exp(), "add"),
        (lambda x: torch.sum(x), "sum_1"),
        (lambda x: torch.cos(x) + 1, "cos"),
    ],
)
def test_what_has_no_inverse_is_named(program, node):
    with pytest.raises(NotInvertible) as caught:
        invert(corsac.fx.symbolic_trace(program))
    assert caught.value.node == node


def test_every_step_of_an_inversion_is_reported():
    gm = corsac.fx.symbolic_trace(lambda x: torch.sigmoid(torch.relu(torch.exp(x)) * 2))
    with pytest.raises(NotInvertible) as caught:
        invert(gm)
    elsewhere = "it could be undone, were it not for relu"
    assert [(site.node, site.reason) for site in caught.value.report.sites] == [
        ("exp", elsewhere),
        ("relu", "the inverse of relu is not known"),
        ("mul", elsewhere),
        ("sigmoid", elsewhere),
    ]
    with pytest.raises(NotInvertible, match="the inputs: there are 2 of them") as caught:
        invert(corsac.fx.symbolic_trace(lambda x, y: x + y))
    assert [site.node for site in caught.value.report.kept] == ["x", "y"]
    gm = corsac.fx.symbolic_trace(lambda x: torch.exp(x) * 2)
    inverse = invert(gm)
    assert [site.node for site in inverse.meta["report"].applied] == ["exp", "mul"]
    (step,) = corsac.passes.PassManager([invert])(gm).steps
    assert step.report == inverse.meta["report"]


def test_metadata_of_an_inverse():
    gm = corsac.fx.symbolic_trace(lambda x: torch.exp(x) * 3)
    for node in gm.graph.nodes:
        node.meta["mark"] = node.name
    corsac.analysis.propagate(gm, torch.rand(2))
    inverse = invert(gm)
    for new, old in zip(inverse.graph.nodes, ["", "mul", "exp", ""], strict=True):
        if old:
            assert new.meta["mark"] == old and "tensor_meta" not in new.meta
            assert new.source == next(n for n in gm.graph.nodes if n.name == old).source


def test_what_is_written_to_is_in_the_way():
    with pytest.raises(NotInvertible, match="it writes to something") as caught:
        invert(corsac.fx.symbolic_trace(lambda x: x.add_(1) * 2))
    assert caught.value.node == "add_"


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.norm, self.linear = nn.LayerNorm(4), nn.Linear(4, 4)
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        y = F.relu(self.bn(self.conv(x))).mean((2, 3))
        y = self.norm(self.linear(y) + y)
        y = torch.cat([y @ self.weight, y.softmax(-1)], 1)
        return F.mse_loss(y[:, :4], y[:, 4:], reduction="none"), torch.matmul(y.t(), y)


@pytest.mark.parametrize("dtype", [torch.bfloat16])
def test_autocast_gives_what_torch_gives(dtype):
    torch.manual_seed(0)
    model = Mixed().eval()
    gm = corsac.fx.symbolic_trace(model)
    report = autocast(gm, dtype)
    assert report.count == 6
    x = torch.randn(2, 3, 6, 6)
    with torch.no_grad():
        with torch.autocast("cpu", dtype):
            expected = model(x)
        found = gm(x)
    for left, right in zip(found, expected, strict=True):
        assert left.dtype == right.dtype
        assert torch.equal(left, right)


def test_autocast_of_a_model():
    torch.manual_seed(0)
    model = torchvision.models.resnet18(weights=None).eval()
    gm = corsac.fx.symbolic_trace(model)
    autocast(gm)
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            expected = model(x)
        assert torch.equal(gm(x), expected)


def test_autocast_says_what_it_does_not_know():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(3, 3)

        def forward(self, x):
            return self.lstm(x)[0]

    report = autocast(corsac.fx.symbolic_trace(Recurrent()))
    assert [site.reason for site in report.kept] == ["what it calls inside is not known"]
    with pytest.raises(ValueError, match=r"not in torch\.float32"):
        autocast(corsac.fx.symbolic_trace(Mixed()), torch.float32)


def test_autocast_of_functions_that_call_others():
    class Composed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4))

        def forward(self, x, target):
            y = torch.einsum("ij,jk->ik", x, self.weight)
            joined = torch.concat([y, torch.inner(x, self.weight)], 1)
            return joined, F.cross_entropy(y, target), torch.tensordot(x, self.weight, 1)

    torch.manual_seed(0)
    model, x, target = Composed(), torch.randn(3, 4), torch.tensor([0, 1, 3])
    gm = corsac.fx.symbolic_trace(model)
    assert autocast(gm).count == 5
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            expected = model(x, target)
        for left, right in zip(gm(x, target), expected, strict=True):
            assert left.dtype == right.dtype
            assert torch.equal(left, right)


def test_what_autocast_does_not_know_gets_what_its_weights_are():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.lstm = nn.Linear(3, 3), nn.LSTM(3, 3)
            self.conv = nn.Conv1d(3, 3, 1)
            self.second = nn.Conv1d(3, 3, 3, padding=1, padding_mode="reflect")

        def forward(self, x):
            y = self.lstm(self.first(x))[0]
            return self.second(self.conv(y.transpose(1, 2)))

    model, x = Model().eval(), torch.randn(2, 4, 3)
    gm = corsac.fx.symbolic_trace(model)
    report = autocast(gm)
    assert [site.reason for site in report.kept] == [
        "it pads by reflect",
        "what it calls inside is not known",
    ]
    with torch.no_grad():
        torch.testing.assert_close(gm(x), model(x), rtol=0.05, atol=0.05)


def test_autocast_casts_again_what_is_written_to_through_a_view():
    class Written(nn.Module):
        def forward(self, x):
            y = x * 2
            a = torch.mm(y, y)
            y.view(-1).add_(1)
            return a, torch.mm(y, y)

    gm = corsac.fx.symbolic_trace(Written())
    autocast(gm)
    x = torch.randn(4, 4)
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            expected = Written()(x)
        for left, right in zip(gm(x), expected, strict=True):
            assert torch.equal(left, right)


def test_autocast_leaves_what_is_written_into_a_given_tensor():
    def program(x, out):
        torch.mm(x, x, out=out)
        return out + 1

    gm = corsac.fx.symbolic_trace(program)
    report = autocast(gm)
    assert [site.reason for site in report.sites] == ["it writes to its arguments"]
    x, out = torch.randn(3, 3), torch.empty(3, 3)
    torch.testing.assert_close(gm(x, out), x @ x + 1)


def test_autocast_forgets_types_that_hold_no_more():
    def program(x):
        return torch.mm(x.relu(), x).neg()

    gm = corsac.fx.symbolic_trace(program)
    corsac.analysis.propagate(gm, torch.randn(3, 3))
    autocast(gm)
    known = {node.name: "tensor_meta" in node.meta for node in gm.graph.nodes}
    assert known["relu"] and not known["mm"] and not known["neg"]


MODULES = [
    (nn.Linear(4, 3), (2, 4)),
    (nn.Linear(4, 3, bias=False), (2, 4)),
    (nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 7)),
    (nn.Conv2d(4, 6, 3, dilation=2, padding="same"), (2, 4, 7, 7)),
    (nn.Conv3d(4, 2, 2, bias=False), (1, 4, 3, 3, 3)),
    (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), (2, 4, 5, 5)),
    (nn.BatchNorm2d(4), (2, 4, 3, 3)),
    (nn.BatchNorm1d(4, affine=False), (2, 4)),
    (nn.LayerNorm((4,)), (2, 4)),
    (nn.LayerNorm((3, 4), bias=False), (2, 3, 4)),
    (nn.GroupNorm(2, 4), (2, 4, 3)),
    (nn.GELU("tanh"), (2, 4)),
    (nn.LeakyReLU(0.3), (2, 4)),
    (nn.ELU(2.0), (2, 4)),
    (nn.Softplus(2.0, 3.0), (2, 4)),
    (nn.Softmax(1), (2, 4)),
    (nn.LogSoftmax(0), (2, 4)),
    (nn.Flatten(1, 2), (2, 3, 4, 5)),
    (nn.MaxPool2d(2, stride=1, padding=1), (1, 2, 5, 5)),
    (nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False, padding=1), (1, 2, 5, 5)),
    (nn.AdaptiveAvgPool2d((2, None)), (1, 2, 5, 5)),
    (nn.Dropout(0.4), (2, 4)),
]


@pytest.mark.parametrize(("module", "shape"), MODULES, ids=lambda v: str(v)[:30])
def test_modules_become_functions(module, shape):
    model = nn.Sequential(module).eval()
    gm = corsac.fx.symbolic_trace(model)
    report = modules_to_functions(gm)
    assert report.count == 1, str(report)
    assert not gm.graph.find_nodes(op="call_module")
    x = torch.randn(*shape)
    assert torch.equal(gm(x), model(x))
    assert gm.state_dict().keys() >= dict(model.named_parameters()).keys()


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"), "it pads by reflect"),
        (nn.BatchNorm2d(1).train(), "it is in training mode"),
        (nn.LSTM(1, 1), "no function is known for LSTM"),
        (nn.Softmax(None), "its dimension depends on the shape"),
    ],
)
def test_modules_that_stay(module, reason):
    gm = corsac.fx.symbolic_trace(nn.Sequential(module))
    assert [site.reason for site in modules_to_functions(gm).sites] == [reason]


def test_functions_become_modules_and_back():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)
    ).eval()
    gm = corsac.fx.symbolic_trace(model)
    modules_to_functions(gm)
    report = functions_to_modules(gm)
    assert report.count == 3
    assert [type(module) for module in gm.children()] == [nn.Conv2d, nn.ReLU, nn.Linear]
    x = torch.randn(1, 3, 4, 4)
    assert torch.equal(gm(x), model(x))
    assert {id(p) for p in gm.parameters()} == {id(p) for p in model.parameters()}


def test_a_rule_need_not_have_parameters_for_defaults():
    def program(x):
        return F.relu(x) + torch.clamp(x, min=0.0) + x.relu() + F.gelu(x, approximate="none")

    x = torch.linspace(-2, 2, 9)
    gm = corsac.fx.symbolic_trace(program)
    rules = {
        F.relu: lambda x: (x > 0) * x,
        "relu": lambda x: (x > 0) * x,
        F.gelu: lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5)),
        torch.clamp: lambda x, min: torch.maximum(x, torch.tensor(min)),
    }
    report = decompose(gm, rules)
    assert len(report.applied) == 4
    torch.testing.assert_close(gm(x), program(x))


def test_what_a_rule_does_not_take_is_an_error():
    gm = corsac.fx.symbolic_trace(lambda x: F.relu(x, inplace=True))
    with pytest.raises(TypeError, match="inplace"):
        decompose(gm, {F.relu: lambda x: (x > 0) * x})
