"""Batch norms are folded if that changes only rounding; others are in the report."""

import copy

import pytest
import torch
import torchvision
from torch import nn

import corsac.fx
from corsac.fx.graph_module import GraphModule
from corsac.passes import fuse_conv_bn
from kit.trained import as_if_trained

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def fuse(model, **options):
    gm = corsac.fx.symbolic_trace(model)
    return gm, fuse_conv_bn(gm, **options)


@pytest.mark.parametrize(
    ("name", "folded"), [("resnet18", 20), ("mobilenet_v2", 52), ("densenet121", 59)]
)
def test_torchvision_models(name, folded):
    torch.manual_seed(0)
    model = as_if_trained(getattr(torchvision.models, name)())
    before = state(model)
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = model(x)
        gm, report = fuse(model)
        torch.testing.assert_close(gm(x), expected, rtol=1e-4, atol=1e-5)
        assert torch.equal(model(x), expected)
    assert report.count == folded
    after = state(model)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert len(gm.state_dict()) < len(before)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_every_dimension(dimensions, bias, affine):
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]
    norm = NORMS[dimensions - 1]
    layers = nn.Sequential(
        conv(4, 6, 3, padding=1, stride=2, groups=2, bias=bias), norm(6, affine=affine)
    )
    model = as_if_trained(layers).double()
    x = torch.randn(2, 4, *[5] * dimensions, dtype=torch.float64)
    gm, report = fuse(model)
    assert report.count == 1
    torch.testing.assert_close(gm(x), model(x), rtol=1e-12, atol=1e-12)
    assert type(gm.get_submodule("0")) is conv
    assert not hasattr(gm, "1")


def test_half_precision_keeps_its_type():
    model = as_if_trained(nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2))).bfloat16()
    gm, _ = fuse(model)
    layer = gm.get_submodule("0")
    assert layer.weight.dtype == layer.bias.dtype == torch.bfloat16
    x = torch.randn(1, 2, 4, 4, dtype=torch.bfloat16)
    torch.testing.assert_close(gm(x), model(x), rtol=0.05, atol=0.05)


class Block(nn.Module):
    def __init__(self, **changes):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 1)
        self.bn = nn.BatchNorm2d(2)
        for name, value in changes.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.bn(self.conv(x))


class UsedTwice(Block):
    def forward(self, x):
        y = self.conv(x)
        return self.bn(y) + y


class CalledTwice(Block):
    def forward(self, x):
        return self.bn(self.conv(self.conv(x)))


class CalledByAnotherName(Block):
    def __init__(self):
        super().__init__()
        self.again = nn.Sequential(self.conv)

    def forward(self, x):
        return self.again(self.bn(self.conv(x)))


class WeightIsRead(Block):
    def forward(self, x):
        return self.bn(self.conv(x)) + self.conv.weight.sum()


class StatisticsAreWritten(Block):
    def forward(self, x):
        y = self.conv(x)
        self.bn.running_mean.add_(x.mean())
        return self.bn(y)


class WritesInBetween(Block):
    def forward(self, x):
        return self.bn(self.conv(x).relu_())


class NoConvolution(Block):
    def forward(self, x):
        return self.bn(x + 1)


class Subclass(nn.Conv2d):
    def forward(self, x):
        return super().forward(x) * 2


def hooked():
    block = Block()
    block.conv.register_forward_hook(lambda module, args, result: result * 2)
    return block


def forward_replaced():
    block = Block()
    block.conv.forward = lambda x: x
    return block


def parametrised():
    block = Block()
    nn.utils.parametrizations.weight_norm(block.conv)
    return block


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (UsedTwice(), "2 nodes use the result of conv: bn, add"),
        (CalledTwice(), "conv is called 2 times"),
        (CalledByAnotherName(), "conv is called 2 times"),
        (WeightIsRead(), "the graph uses conv.weight by itself"),
        (StatisticsAreWritten(), "the graph uses bn.running_mean by itself"),
        (WritesInBetween(), "its input relu_ is not the result of a 2-d convolution"),
        (NoConvolution(), "its input add is not the result of a 2-d convolution"),
        (
            Block(bn=nn.BatchNorm2d(2, track_running_stats=False)),
            "bn normalises with the statistics of each batch: it keeps no running ones",
        ),
        (hooked(), "conv has hooks or declares side effects"),
        (forward_replaced(), "conv has hooks or declares side effects"),
        (Block(bn=nn.BatchNorm2d(3)), "bn normalises 3 channels, conv makes 2"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_refusals(model, reason):
    as_if_trained(model)
    gm, report = fuse(model)
    (site,) = report.sites
    assert site.reason.startswith(reason)
    assert not site.applied and not report.changed
    if "BatchNorm2d(3" not in repr(model):
        x = torch.randn(2, 2, 3, 3)
        # One after the other on copies: some of these models change when called.
        assert torch.equal(copy.deepcopy(gm)(x), copy.deepcopy(model)(x))


class KeepConvolutions(corsac.fx.Tracer):
    def is_leaf_module(self, m, module_qualified_name):
        return isinstance(m, (nn.Conv2d, nn.BatchNorm2d))


@pytest.mark.parametrize("model", [Block(conv=Subclass(2, 2, 1)), parametrised()])
def test_other_classes_are_not_convolutions(model):
    as_if_trained(model)
    gm = GraphModule(model, KeepConvolutions().trace(model))
    (site,) = fuse_conv_bn(gm).sites
    assert site.reason == "its input conv is not the result of a 2-d convolution"


def test_training_mode_refuses():
    gm, report = fuse(Block().train())
    assert report.sites[0].reason == "bn is in training mode"
    gm = corsac.fx.symbolic_trace(Block().eval())
    gm.conv.train()
    assert fuse_conv_bn(gm).sites[0].reason == "conv is in training mode"


def test_a_batch_norm_called_twice_is_folded_twice():
    class Shared(Block):
        def __init__(self):
            super().__init__()
            self.second = nn.Conv2d(2, 2, 1)

        def forward(self, x):
            return self.bn(self.second(self.bn(self.conv(x))))

    model = as_if_trained(Shared())
    gm, report = fuse(model)
    assert report.count == 2
    x = torch.randn(2, 2, 3, 3)
    torch.testing.assert_close(gm(x), model(x))


def test_batch_norms_in_a_row_are_folded():
    model = as_if_trained(nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.BatchNorm2d(3)))
    gm, report = fuse(model)
    assert report.count == 2
    x = torch.randn(2, 2, 3, 3)
    torch.testing.assert_close(gm(x), model(x))


def test_linear_layers_on_request():
    model = as_if_trained(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    x = torch.randn(5, 4)
    gm, report = fuse(model)
    assert report.sites[0].reason == "its input _0 is not the result of a 1-d convolution"
    gm, report = fuse(model, linear=True)
    assert report.count == 1
    torch.testing.assert_close(gm(x), model(x))


def test_the_report_prints():
    model = as_if_trained(nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.BatchNorm2d(2)))
    gm = corsac.fx.symbolic_trace(model)
    gm.get_submodule("2").train()
    assert str(fuse_conv_bn(gm)) == (
        "conv-bn fusion: 1 of 2 sites, 5 -> 4 nodes\n"
        "  _1  done, 0 takes its place\n"
        "  _2  kept: 2 is in training mode"
    )


def test_hooks_set_on_the_result_are_its_own():
    model = as_if_trained(Block())
    gm, _ = fuse(model)
    gm.conv.register_forward_hook(lambda module, args, result: result * 0)
    x = torch.randn(1, 2, 3, 3)
    assert torch.count_nonzero(gm(x)) == 0
    assert torch.count_nonzero(model(x)) > 0


def test_only_modules_have_weights():
    with pytest.raises(TypeError, match="fuse_conv_bn changes weights"):
        fuse_conv_bn(corsac.fx.Graph())


class ConvolutionOfAnOverload(nn.Module):
    """A convolution that names its padding, and a batch norm, as operators of ``torch.ops``."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 3, 3))
        self.register_buffer("mean", torch.randn(4))
        self.register_buffer("variance", torch.rand(4) + 0.5)

    def forward(self, x):
        y = torch.ops.aten.conv2d.padding(x, self.weight, None, [1, 1], "same")
        statistics = (self.mean, self.variance)
        return torch.ops.aten.batch_norm.default(
            y, None, None, *statistics, False, 0.1, 1e-5, False
        )


def test_every_overload_of_a_convolution_is_one():
    model = ConvolutionOfAnOverload().eval()
    gm, report = fuse(model)
    assert report.count == 1
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(gm(x), model(x), rtol=1e-4, atol=1e-4)


class GivenResult(nn.Module):
    """A linear layer that writes to a tensor that is returned, too, and a batch norm."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))
        self.register_buffer("mean", torch.randn(4))
        self.register_buffer("variance", torch.rand(4) + 0.5)

    def forward(self, x):
        given = torch.empty(2, 4)
        y = torch.ops.aten.linear.out(x, self.weight, None, out=given)
        return nn.functional.batch_norm(y, self.mean, self.variance), given


def test_a_layer_that_writes_to_a_given_tensor_is_kept():
    model, x = GivenResult().eval().requires_grad_(False), torch.randn(2, 3)
    gm, report = fuse(model, linear=True)
    assert report.count == 0
    torch.testing.assert_close(gm(x), model(x))
