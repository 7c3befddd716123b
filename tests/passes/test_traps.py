"""Programs that are traps for careless passes: every pass keeps their results."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac.fx
import corsac.fx.experimental.optimization
import corsac.optimum._passes
from corsac.passes import (
    PassManager,
    canonicalize,
    common_subexpressions,
    eliminate_dead_code,
    fold_constants,
    functions_to_modules,
    functions_to_operators,
    fuse_conv_bn,
    keyword_arguments,
    merge_matmul,
    modules_to_functions,
    reinplace,
    remove_dropout,
    remove_no_ops,
    saturate,
    simplify,
)
from passes.rule_kit import Shapes


def reinplace_without_gradients(gm, *, budget=None):
    with torch.no_grad():
        return reinplace(gm, budget=budget)


PASSES = [
    remove_dropout,
    remove_no_ops,
    fuse_conv_bn,
    fold_constants,
    common_subexpressions,
    simplify,
    saturate,
    merge_matmul,
    canonicalize,
    modules_to_functions,
    functions_to_modules,
    eliminate_dead_code,
    reinplace_without_gradients,
    keyword_arguments,
    functions_to_operators,
]
#: Transformations of optimum: each has its own requirements.
OPTIMUM = [
    corsac.optimum._passes.merge_linears,
    corsac.optimum._passes.fuse_bias_in_linear,
    corsac.optimum._passes.change_true_div_to_mul_by_inverse,
    corsac.optimum._passes.fuse_batch_norm_2d_in_conv_2d,
    corsac.optimum._passes.fuse_batch_norm_1d_in_linear,
]


class Base(nn.Module):
    """A convolution and a batch norm with statistics, with a use of them."""

    training_mode = False

    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)
        self.second = nn.Conv2d(2, 2, 1)
        self.drop = nn.Dropout(0.5)
        nn.init.uniform_(self.bn.weight, 0.5, 1.5)
        nn.init.uniform_(self.bn.bias, -0.5, 0.5)
        self.bn.running_mean.uniform_(-0.5, 0.5)
        self.bn.running_var.uniform_(0.5, 2.0)


class ConvolutionUsedTwice(Base):
    def forward(self, x):
        return self.bn(self.conv(x)) + F.relu(self.conv(self.second(x)))


class BatchNormInTraining(Base):
    training_mode = True

    def forward(self, x):
        return self.bn(self.conv(x)) + self.bn.running_mean.sum()


class BatchNormWithoutStatistics(Base):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm2d(2, track_running_stats=False)

    def forward(self, x):
        return self.bn(self.conv(x))


class SharedWeights(Base):
    def __init__(self):
        super().__init__()
        self.second.weight = self.conv.weight
        self.second.bias = self.conv.bias

    def forward(self, x):
        return self.second(self.bn(self.conv(x)))


class OneModuleTwoNames(Base):
    def __init__(self):
        super().__init__()
        self.second = self.conv

    def forward(self, x):
        return self.second(self.bn(self.conv(x)))


class DropoutInTraining(Base):
    training_mode = True

    def forward(self, x):
        return self.drop(x) + F.dropout(x, 0.3, training=True) + self.drop(x)


class MutationAfterView(Base):
    def forward(self, x):
        y = x + 1
        flat, again = y.view(-1), y.clone()
        flat[0] = 100.0
        y.mul_(2)
        return y.view(-1) + again.view(-1), y.sum(), y.sum() + flat.sum()


class WriteBetweenTheSame(Base):
    def forward(self, x):
        y = x * 2
        before = torch.cos(y)
        y.add_(1)
        return before + torch.cos(y)


class Out(Base):
    def forward(self, x):
        y = torch.zeros_like(x)
        torch.add(x, 1, out=y)
        z = torch.zeros_like(x)
        torch.mul(x, 2, out=z)
        return y, z


class ConstantIsWritten(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("counter", torch.zeros(2, 2))

    def forward(self, x):
        self.counter.add_(1)
        return x * torch.exp(self.counter.t()).sum()


class ConstantIsReturned(Base):
    def forward(self, x):
        scale = self.conv.weight.exp()
        return x * scale.sum(), scale


class Random(Base):
    def forward(self, x):
        a, b = torch.rand_like(x), torch.rand_like(x)
        return x + a - b + torch.bernoulli(torch.sigmoid(x)) * torch.randn_like(x)


class Hooked(Base):
    def __init__(self):
        super().__init__()
        self.conv.register_forward_hook(lambda module, args, result: result * 2)
        self.drop.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        self.identity = nn.Identity()
        self.identity.register_forward_hook(lambda module, args, result: result - 3)

    def forward(self, x):
        return self.identity(self.drop(self.bn(self.conv(x))))


class Parametrised(Base):
    def __init__(self):
        super().__init__()
        nn.utils.parametrizations.weight_norm(self.conv)

    def forward(self, x):
        return self.bn(self.conv(x))


class NotAffine(Base):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm2d(2, affine=False)
        self.bn.running_mean.uniform_(-0.5, 0.5)
        self.bn.running_var.uniform_(0.5, 2.0)

    def forward(self, x):
        return self.bn(self.conv(x))


class OutputIsUsed(Base):
    def forward(self, x):
        y = self.conv(x)
        z = self.bn(y)
        return y, z, z.relu() + z


class ResidualEdge(Base):
    def forward(self, x):
        y = self.conv(x)
        return self.second(self.bn(y)) + y


class HalfPrecision(Base):
    def __init__(self):
        super().__init__()
        self.bfloat16()

    def forward(self, x):
        return self.bn(self.conv(x.to(torch.bfloat16))).float()


class Quantised(Base):
    def forward(self, x):
        y = torch.quantize_per_tensor(self.bn(self.conv(x)), 0.05, 10, torch.quint8)
        return torch.dequantize(y.contiguous().contiguous()), y.int_repr()


class IdentitiesThatAreNone(Base):
    def forward(self, x):
        zero = x * 0 + 0
        both = x.clone()
        both.add_(1)
        return -zero + 0, both, x.clone(), x.view(x.shape).unsqueeze(0).squeeze(1)


class ShapeChangedInPlace(Base):
    def forward(self, x):
        y = x + 1
        same = y.transpose(0, 1).transpose(0, 1)
        same.unsqueeze_(0)
        return y.sum(0), same.sum(0)


class BatchNormsOnBothSides(Base):
    def forward(self, x):
        again = nn.functional.batch_norm(x, self.bn.running_mean, self.bn.running_var)
        return self.bn(self.second(again)) + self.conv(x)


class ContiguousNoMore(Base):
    def forward(self, x):
        y = x[0, 0].contiguous()
        y.t_()
        z = y.contiguous()
        z.mul_(2)
        return y, z


class FlattenedAfterAChange(Base):
    def forward(self, x):
        y = x[0, 0, 0] * 1
        y.unsqueeze_(0)
        return torch.flatten(y) + 1, y.view(3) + 1, torch.where(y > 0, y, y) + 1


class WritesThroughParts(Base):
    def forward(self, x):
        y = x * 2
        first, second = torch.split(y, 1)
        before = torch.exp(y)
        first.zero_()
        y.detach()[1].mul_(3)
        y[:, 0] = 1
        return before + torch.exp(y), second


class InputIsWritten(Base):
    def forward(self, x):
        y = x * 1
        x.add_(1)
        x.mul_(2)
        return y, x * 1


class NestedResults(Base):
    def forward(self, x):
        y = self.bn(self.conv(x))
        again = y.abs()
        return {"twice": [y, y], "same": (again, {"of": again.abs()}), "input": x, "one": x * 1}


class OutOfTwo(Base):
    def forward(self, x):
        values, places = x.new_empty(2, 2, 3), torch.empty(2, 2, 3, dtype=torch.int64)
        torch.max(x, 3, out=(values, places))
        torch.exp(values, out=values)
        return values, places, torch.exp(x.amax(3))


class StridesMatter(Base):
    def forward(self, x):
        turned, thinned = x.transpose(1, 3), x[..., ::2]
        same = torch.where(thinned > 0, thinned, thinned)
        return torch.cat([turned]).view(-1), (thinned * 1).view(-1), same.view(-1)


class Unsigned(Base):
    def forward(self, x):
        y = (x * 100).to(torch.uint8)
        return abs(-y), (-y).neg(), y - (-y), y // 1, y / 1, (y > 7) * 1, (y > 7) + 0


class Complex(Base):
    def forward(self, x):
        y = torch.complex(x / 0, x)
        return y * 1, y / 1, -y.conj() + y, y - (-y.conj())


class JoinedTypes(Base):
    def forward(self, x):
        y = (x * 100000).long()
        return torch.cat([torch.cat([y, x.half()]), x.double()])


class Norms(Base):
    """Embeddings that are scaled in place as they are read."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(3, 4, max_norm=0.5)

    def forward(self, x):
        before = self.words.weight * 2
        found = self.words(torch.tensor([0, 1]))
        return before + self.words.weight * 2, found, x


class WrittenInEval(Base):
    """A module that is in training mode inside a model that is not."""

    def train(self, mode=True):
        super().train(mode)
        self.bn.train()
        return self

    def forward(self, x):
        return self.bn(self.conv(x)) + self.bn(self.conv(x))


TRAPS = [trap for trap in Base.__subclasses__()]
#: The changes allowed to each pass; any other would be wrong, or was not requested.
FOLDED = {
    "SharedWeights",
    "NotAffine",
    "HalfPrecision",
    "Quantised",
    "ResidualEdge",
    "BatchNormsOnBothSides",
    "NestedResults",
}


def traced(trap):
    torch.manual_seed(0)
    model = trap().train(trap.training_mode)

    class Leaves(corsac.fx.Tracer):
        proxy_buffer_attributes = True

        def is_leaf_module(self, m, module_qualified_name):
            return not isinstance(m, Base)

    return model, corsac.fx.GraphModule(model, Leaves().trace(model))


def outcome(module, x):
    """Outcome of a call: result, input, state."""
    module, x = copy.deepcopy(module), x.clone()
    torch.manual_seed(1)
    with torch.no_grad():
        results = [module(x) for _ in range(2)]
    state = {name: value for name, value in module.named_buffers() if "_constant_" not in name}
    return results, x, state


def tolerance(trap):
    return 5e-2 if trap is HalfPrecision else 1e-5


@pytest.mark.parametrize("known", [False, True], ids=["unknown", "known"])
@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
def test_every_pass_alone(trap, known):
    x = torch.randn(2, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    for transform in [*PASSES, *OPTIMUM, fuse]:
        model, gm = traced(trap)
        if known:
            note_types(gm, x)
        expected, expected_x, expected_state = outcome(model, x)
        report = transform(gm)
        gm = report if transform is fuse else gm
        gm.graph.lint()
        results, after_x, state = outcome(gm, x)
        close = {"rtol": tolerance(trap), "atol": tolerance(trap), "equal_nan": True}
        torch.testing.assert_close(results, expected, **close)
        assert torch.equal(after_x, expected_x)
        for name in state.keys() & expected_state.keys():
            torch.testing.assert_close(state[name], expected_state[name])
        if transform is fuse_conv_bn:
            assert report.changed == (trap.__name__ in FOLDED), str(report)


def fuse(gm):
    try:
        return corsac.fx.experimental.optimization.fuse(gm, no_trace=True)
    except AssertionError:
        return gm  # a layer in training mode, as in torch.fx


def note_types(gm, x):
    """Record each node's value as metadata, as shape propagation does."""
    values = dict(zip(gm.graph.nodes, copy.deepcopy(gm).graph.nodes, strict=True))
    copied = next(iter(values.values())).graph.owning_module
    with torch.no_grad(), torch.random.fork_rng():
        Shapes(copied).run(x.clone())
    for node, like in values.items():
        if "tensor_meta" in like.meta:
            node.meta["tensor_meta"] = like.meta["tensor_meta"]


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
def test_all_passes_verified(trap):
    _, gm = traced(trap)
    x = torch.randn(2, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    PassManager(PASSES, verify=(x,), tolerance=5e-2 if trap is HalfPrecision else None)(gm)


def test_what_torch_fx_does_wrong_is_still_wrong_there():
    import torch.fx.experimental.optimization as theirs

    model, gm = traced(ConvolutionUsedTwice)
    x = torch.randn(2, 2, 3, 3)
    wrong = theirs.fuse(model.eval())(x)
    assert not torch.allclose(wrong, model(x), atol=1e-3), "torch.fx has learnt this"
    fuse_conv_bn(gm)
    assert torch.equal(gm(x), model(x))
