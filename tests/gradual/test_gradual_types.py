"""Gradual typing has the types and exceptions of torch.fx."""

import operator

import pytest
import sympy
import torch
import torch.fx
import torch.fx.experimental.graph_gradual_typechecker as their_checker
import torch.fx.experimental.unify_refinements as their_refinements
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import corsac.fx
import corsac.fx.experimental.graph_gradual_typechecker as our_checker
import corsac.fx.experimental.unify_refinements as our_refinements
from corsac.fx.experimental.unification import Var
from corsac.fx.tensor_type import Dyn, TensorType, is_consistent, is_more_precise

BOTH = [
    (torch.fx, their_checker, their_refinements),
    (corsac.fx, our_checker, our_refinements),
]


def observe(make, prepare=lambda gm: None, infer=False):
    """Names and types of all nodes, or the type of the exception, in both packages."""
    seen = []
    for fx, checker, refinements in BOTH:
        torch.manual_seed(0)
        gm = fx.symbolic_trace(make())
        prepare(gm)
        try:
            answer = checker.GraphTypeChecker({}, gm).type_check()
            if infer:
                refinements.infer_symbolic_types(gm)
        except Exception as error:
            seen.append(type(error))
        else:
            assert answer is True
            seen.append([(node.name, repr(node.type)) for node in gm.graph.nodes])
    return seen


class Add(nn.Module):
    def forward(self, x: TensorType((1, 2, 3, Dyn)), y: TensorType((1, 2, 3, Dyn))):
        return torch.add(x, y)


class AddUnequal(nn.Module):
    def forward(self, x: TensorType((1, 2, 3, Dyn)), y: TensorType((1, 2, 4, Dyn))):
        return torch.add(x, y)


class AddBroadcast(nn.Module):
    def forward(self, x: TensorType((4, 1, Dyn)), y: TensorType((3, 1))):
        return x + y


class AddNumber(nn.Module):
    def forward(self, x: int, y: TensorType((1, 2))):
        return x + y


class AddUnknown(nn.Module):
    def forward(self, x: Dyn, y: TensorType((1, 2))):
        return x + y


class Reshape(nn.Module):
    def forward(self, x: TensorType((1, 6))):
        return torch.reshape(x, [1, 2, 3])


class ReshapeImpossible(nn.Module):
    def forward(self, x: TensorType((1, 5))):
        return torch.reshape(x, [1, 2, 3])


class ReshapeUnknown(nn.Module):
    def forward(self, x: TensorType((1, Dyn))):
        return torch.reshape(x, [1, 2, -1])


class Transpose(nn.Module):
    def forward(self, x: TensorType((1, 2, Dyn))):
        return torch.transpose(x, 0, 2)


class TransposeBeyond(nn.Module):
    def forward(self, x: TensorType((1, 2, Dyn))):
        return torch.transpose(x, 0, 5)


class Flatten(nn.Module):
    def forward(self, x: TensorType((1, 2, 3, 5, Dyn))):
        return torch.flatten(x, 1, 2)


class FlattenUnknown(nn.Module):
    def forward(self, x: TensorType((Dyn, 2, 3, Dyn))):
        return torch.flatten(x, 1)


class FlattenBeyond(nn.Module):
    def forward(self, x: TensorType((1, 2))):
        return torch.flatten(x, 1, 4)


class Shape(nn.Module):
    def forward(self, x: TensorType((1, 2))):
        return x.shape


class Attribute(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(3, 4))

    def forward(self, x: TensorType((Dyn, 4))):
        return x + self.w


class Method(nn.Module):
    def forward(self, x: TensorType((1, 2))):
        return x.relu()


class NoRule(nn.Module):
    def forward(self, x: TensorType((1, 2))):
        return torch.cos(x)


class Convolutions(nn.Module):
    def __init__(self, channels=4):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.bn, self.relu = nn.BatchNorm2d(channels), nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.average, self.linear = nn.AdaptiveAvgPool2d((2, 3)), nn.Linear(24, 5)

    def forward(self, x: TensorType((Dyn, 3, 32, 48))):
        x = self.pool(self.relu(self.bn(self.conv(x))))
        return self.linear(torch.flatten(self.average(x), 1))


class Unannotated(Convolutions):
    def forward(self, x):
        return self.relu(self.bn(self.conv(x)))


class WrongChannels(Convolutions):
    def forward(self, x: TensorType((1, 2, 32, 32))):
        return self.conv(x)


class WrongRank(Convolutions):
    def forward(self, x: TensorType((1, 2, 32))):
        return self.conv(x)


class WrongFeatures(Convolutions):
    def forward(self, x: TensorType((1, 23))):
        return self.linear(x)


class TooFlat(Convolutions):
    def forward(self, x: TensorType((24,))):
        return self.linear(x)


class PoolOfRankTwo(Convolutions):
    def forward(self, x: TensorType((3, 4))):
        return self.pool(x)


class AverageOfRankTwo(PoolOfRankTwo):
    def forward(self, x: TensorType((3, 4))):
        return self.average(x)


class Residual(Convolutions):
    def forward(self, x: TensorType((Dyn, 3, Dyn, Dyn)), y: TensorType((Dyn, 4, Dyn, Dyn))):
        return self.relu(self.conv(x)) + y


PROGRAMS = [
    Add, AddUnequal, AddBroadcast, AddNumber, AddUnknown, Reshape, ReshapeImpossible, Transpose,
    TransposeBeyond, Flatten, FlattenUnknown, FlattenBeyond, Shape, Attribute, Method, NoRule,
    Convolutions, Unannotated, WrongChannels, WrongRank, WrongFeatures, TooFlat, PoolOfRankTwo,
    AverageOfRankTwo, Residual, lambda: Convolutions(channels=5),
]  # fmt: skip


@pytest.mark.parametrize("make", PROGRAMS)
def test_types_are_those_of_torch_fx(make):
    reference, subject = observe(make)
    assert subject == reference


@pytest.mark.parametrize(
    "make",
    [Add, AddBroadcast, AddUnknown, Reshape, Transpose, FlattenUnknown, Convolutions,
     Unannotated, Residual],
)  # fmt: skip
def test_symbolic_types_are_those_of_torch_fx(make):
    reference, subject = observe(make, infer=True)
    assert subject == reference


def test_errors_name_what_does_not_fit():
    gm = corsac.fx.symbolic_trace(AddUnequal())
    with pytest.raises(TypeError, match=r"Cannot add arguments x .* and y .* in node add"):
        our_checker.GraphTypeChecker({}, gm).type_check()


@pytest.mark.parametrize("name", ["resnet50", "resnet18"])
@pytest.mark.parametrize("size", [(2, 3, 224, 224), (Dyn, 3, 224, 224), (1, 3, Dyn, 64)])
def test_resnets(name, size):
    def prepare(gm):
        gm.graph.find_nodes(op="placeholder")[0].type = TensorType(size)

    model = getattr(torchvision.models, name)
    reference, subject = observe(model, prepare)
    assert subject == reference
    assert dict(subject)["fc"].startswith("TensorType[(") and "1000" in dict(subject)["fc"]


def test_symbolic_sizes_of_a_resnet():
    """The batch becomes one variable; torch.fx rejects a convolution of a convolution."""
    gm = corsac.fx.symbolic_trace(torchvision.models.resnet18())
    x = gm.graph.find_nodes(op="placeholder")[0]
    x.type = TensorType((Dyn, 3, Dyn, 64))
    our_checker.GraphTypeChecker({}, gm).type_check()
    our_refinements.infer_symbolic_types(gm)
    types = {node.name: node.type for node in gm.graph.nodes}
    batch, _, height, _ = types["x"].dims
    assert isinstance(batch, sympy.Symbol) and isinstance(height, sympy.Symbol)
    assert types["fc"].dims == (batch, 1000)
    found = types["conv1"].dims[2].subs(height, 224)
    assert found == 112


def test_what_torch_fx_gets_wrong():
    conv = nn.Conv2d(3, 4, 3, stride=(2, 1), padding=1)
    assert (
        our_checker.calculate_out_dimension(32, conv, 1)
        == 32
        == conv(torch.zeros(1, 3, 8, 32)).size(3)
    )
    assert their_checker.calculate_out_dimension(32, conv, 1) == 16
    pool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
    assert our_checker.maxpool2d_check(TensorType((1, 3, 8, 9)), pool).dims == (1, 3, 4, 4)
    same = nn.Conv2d(3, 4, 3, padding="same")
    assert our_checker.calculate_out_dimension(32, same, 0) == 32
    average = nn.AdaptiveAvgPool2d((None, 7))
    assert our_checker.adaptiveavgpool2d_check(TensorType((1, 3, 5, 9)), average).dims == (
        1,
        3,
        5,
        7,
    )
    assert our_checker.flatten_check(TensorType((2, 3, 4)), -2, -1).dims == (2, 12)
    with pytest.raises(TypeError):
        our_checker.flatten_check(TensorType((2, 3)), 1, 2)
    with pytest.raises(TypeError, match="Cannot reshape"):
        our_checker.GraphTypeChecker({}, corsac.fx.symbolic_trace(Halved())).type_check()


def test_sizes_after_those_that_are_flattened():
    """torch.fx mistakes the size before the unknown one for it."""
    reference, subject = observe(Flatten, infer=True)
    assert dict(subject)["flatten"] == "TensorType[(1, 6, 5, ~0)]"
    assert dict(reference)["flatten"] == "TensorType[(1, 6, 5, 5)]"


class Halved(nn.Module):
    def forward(self, x: TensorType((2, 6))):
        return torch.reshape(x, [6])


@settings(max_examples=80, deadline=None)
@given(
    st.integers(5, 40), st.integers(5, 40), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2),
    st.integers(1, 2), st.booleans(),
)  # fmt: skip
def test_sizes_are_those_of_the_modules(height, width, kernel, stride, padding, dilation, ceil):
    x = torch.zeros(1, 2, height, width)
    conv = nn.Conv2d(2, 2, kernel, stride=(stride, 1), padding=padding, dilation=dilation)
    pool = nn.MaxPool2d(kernel, stride, min(padding, kernel // 2), dilation, ceil_mode=ceil)
    for module in (conv, pool):
        try:
            made = module(x).shape
        except RuntimeError:
            continue
        sizes = [
            our_checker.calculate_out_dimension(size, module, index)
            for index, size in enumerate((height, width))
        ]
        assert sizes == list(made[2:])


TYPES = st.recursive(
    st.sampled_from([1, 2, 3, Dyn, Var("a"), Var("b"), int]),
    lambda inner: st.lists(inner, max_size=4).map(lambda dims: TensorType(tuple(dims))),
    max_leaves=6,
)


def attempt(function, *args):
    try:
        return repr(function(*args))
    except Exception as error:
        return type(error)


@settings(max_examples=300, deadline=None)
@given(TYPES, TYPES)
def test_relations_between_types(a, b):
    for name in ("broadcast_types", "get_greatest_upper_bound"):
        ours, theirs = (getattr(m, name) for m in (our_checker, their_checker))
        assert attempt(ours, a, b) == attempt(theirs, a, b)
    if is_more_precise(a, b) and not isinstance(a, Var):
        assert is_consistent(a, b)


def test_rules_of_ones_own():
    def rule(n):
        n.type = n.args[0].type
        return n.type

    our_checker.register_inference_rule(torch.cos)(rule)
    try:
        gm = corsac.fx.symbolic_trace(NoRule())
        our_checker.GraphTypeChecker({}, gm).type_check()
        assert gm.graph.find_nodes(op="call_function", target=torch.cos)[0].type == TensorType(
            (1, 2)
        )
        with pytest.raises(RuntimeError, match="already registered"):
            our_checker.register_inference_rule(torch.cos)(rule)
    finally:
        del our_checker._INFERENCE_RULES[torch.cos]
    with pytest.raises(RuntimeError, match="already registered"):
        our_checker.register_refinement_rule(operator.add)(rule)
