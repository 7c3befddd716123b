"""Programs on which passes go wrong that do not look closely: every pass keeps what they compute."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac.fx
from corsac.passes import (
    PassManager,
    canonicalize,
    common_subexpressions,
    eliminate_dead_code,
    fold_constants,
    fuse_conv_bn,
    modules_to_functions,
    remove_dropout,
    remove_no_ops,
)

PASSES = [
    remove_dropout,
    remove_no_ops,
    fuse_conv_bn,
    fold_constants,
    common_subexpressions,
    canonicalize,
    modules_to_functions,
    eliminate_dead_code,
]


class Base(nn.Module):
    """A convolution and a batch norm with statistics, and something to do with them."""

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


TRAPS = [trap for trap in Base.__subclasses__()]
#: What each pass is allowed to do there; everything else would be wrong, or was not asked for.
FOLDED = {"SharedWeights", "NotAffine", "HalfPrecision", "Quantised", "ResidualEdge"}


def traced(trap):
    torch.manual_seed(0)
    model = trap().train(trap.training_mode)

    class Leaves(corsac.fx.Tracer):
        proxy_buffer_attributes = True

        def is_leaf_module(self, m, module_qualified_name):
            return not isinstance(m, Base)

    return model, corsac.fx.GraphModule(model, Leaves().trace(model))


def outcome(module, x):
    """What a call gives and leaves behind: result, input, state."""
    module, x = copy.deepcopy(module), x.clone()
    torch.manual_seed(1)
    with torch.no_grad():
        results = [module(x) for _ in range(2)]
    state = {name: value for name, value in module.named_buffers() if "_constant_" not in name}
    return results, x, state


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
def test_every_pass_alone(trap):
    x = torch.randn(2, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    for transform in PASSES:
        model, gm = traced(trap)
        expected, expected_x, expected_state = outcome(model, x)
        report = transform(gm)
        gm.graph.lint()
        results, after_x, state = outcome(gm, x)
        tolerance = {"rtol": 1e-5, "atol": 1e-5}
        if trap is HalfPrecision:
            tolerance = {"rtol": 5e-2, "atol": 5e-2}
        torch.testing.assert_close(results, expected, **tolerance)
        assert torch.equal(after_x, expected_x)
        for name in state.keys() & expected_state.keys():
            torch.testing.assert_close(state[name], expected_state[name])
        if transform is fuse_conv_bn:
            assert report.changed == (trap.__name__ in FOLDED), str(report)


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
