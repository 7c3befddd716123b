"""Every kind of layer next to every kind of batch norm, on either side."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac.fx
from corsac.passes import fuse_conv_bn
from kit.trained import as_if_trained

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
DOUBLE = {"rtol": 1e-11, "atol": 1e-11}


def trained(model):
    """``model`` in double precision, with batch norms as if trained."""
    return as_if_trained(model, 0.5).double()


def fused(model, *inputs, count=1, **options):
    """The report on ``model``, whose results must be unchanged."""
    expected = model(*inputs)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gm = corsac.fx.symbolic_trace(model)
    report = fuse_conv_bn(gm, **options)
    assert report.count == count, str(report)
    torch.testing.assert_close(gm(*inputs), expected, **DOUBLE)
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    gm.graph.lint()
    return gm, report


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_transposed_convolutions(dims, groups, bias):
    conv = TRANSPOSED[dims - 1](4, 6, 3, stride=2, padding=1, groups=groups, bias=bias)
    model = trained(nn.Sequential(conv, NORMS[dims - 1](6)))
    x = torch.randn(2, 4, *[4] * dims, dtype=torch.float64)
    gm, _ = fused(model, x)
    assert type(gm.get_submodule("0")) is TRANSPOSED[dims - 1]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_a_batch_norm_before_a_convolution(dims, groups, bias, affine):
    conv = CONVS[dims - 1](4, 6, 2, stride=2, groups=groups, bias=bias)
    model = trained(nn.Sequential(NORMS[dims - 1](4, affine=affine), conv))
    gm, _ = fused(model, torch.randn(2, 4, *[5] * dims, dtype=torch.float64))
    assert not hasattr(gm, "0")


def test_padding_by_reflection_lets_a_batch_norm_through_and_zeros_do_not():
    x = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    for mode in ("reflect", "replicate", "circular"):
        conv = nn.Conv2d(4, 3, 3, padding=1, padding_mode=mode)
        fused(trained(nn.Sequential(nn.BatchNorm2d(4), conv)), x)
    for padding in (1, (0, 1), "same"):
        model = trained(nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 3, 3, padding=padding)))
        _, report = fused(model, x, count=0)
        assert report.sites[0].reason == "1 comes after it and pads its input with zeros"
    fused(trained(nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 3, 3, padding="valid"))), x)
    model = trained(nn.Sequential(nn.BatchNorm2d(4), nn.ConvTranspose2d(4, 3, 3)))
    _, report = fused(model, x, count=0)
    assert report.sites[0].reason == "1 comes after it and is a transposed convolution"


def test_batch_norms_on_both_sides():
    layers = nn.BatchNorm2d(4), nn.Conv2d(4, 6, 2), nn.BatchNorm2d(6)
    gm, _ = fused(trained(nn.Sequential(*layers)), torch.randn(2, 4, 5, 5).double(), count=2)
    assert [node.op for node in gm.graph.nodes] == ["placeholder", "call_module", "output"]


@pytest.mark.parametrize("first", [True, False])
def test_linear_layers(first):
    norm = nn.BatchNorm1d(4 if first else 3)
    layers = [nn.Linear(4, 3), norm]
    model = trained(nn.Sequential(*(reversed(layers) if first else layers)))
    x = torch.randn(5, 4, dtype=torch.float64)
    fused(model, x, count=0)
    fused(model, x, linear=True)


def with_shapes(model, x):
    gm = corsac.fx.symbolic_trace(model)
    from torch.fx.passes.shape_prop import TensorMetadata

    class Shapes(corsac.fx.Interpreter):
        def run_node(self, n):
            result = super().run_node(n)
            n.meta["tensor_meta"] = TensorMetadata(
                result.shape, result.dtype, False, result.stride(), None, False, {}
            )
            return result

    Shapes(gm).run(x)
    return gm


def test_known_shapes_decide():
    flat, deep = torch.randn(5, 4).double(), torch.randn(2, 3, 4).double()
    linear = trained(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    gm = with_shapes(linear, flat)
    assert fuse_conv_bn(gm).count == 1
    torch.testing.assert_close(gm(flat), linear(flat), **DOUBLE)

    # A sequence of features is normalised over the sequence.
    over_sequence = trained(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(3)))
    assert fuse_conv_bn(with_shapes(over_sequence, deep), linear=True).sites[0].reason == (
        "its input has 3 dimensions, so that it does not normalise the channels of 0"
    )
    # So is a convolution without batch dimension.
    conv = trained(nn.Sequential(nn.Conv1d(3, 4, 1), nn.BatchNorm1d(4)))
    x = torch.randn(3, 4).double()
    gm = with_shapes(conv, x)
    assert not fuse_conv_bn(gm).changed
    assert torch.equal(gm(x), conv(x))


class Functional(nn.Module):
    """Functions of attributes."""

    def __init__(self, kind="conv2d", affine=True, bias=True, norm=F.batch_norm):
        super().__init__()
        self.kind, self.norm = kind, norm
        transposed = "transpose" in kind
        shape = (4, 6) if kind != "linear" and transposed else (6, 4)
        taps = [] if kind == "linear" else [2] * int(kind[-2])
        self.weight = nn.Parameter(torch.randn(*shape, *taps))
        self.bias = nn.Parameter(torch.randn(6)) if bias else None
        self.gamma = nn.Parameter(torch.rand(6) + 0.5) if affine else None
        self.beta = nn.Parameter(torch.randn(6)) if affine else None
        self.register_buffer("mean", torch.randn(6))
        self.register_buffer("var", torch.rand(6) + 0.5)

    def layer(self, x):
        return getattr(F, self.kind)(x, self.weight, self.bias)

    def forward(self, x):
        return self.norm(self.layer(x), self.mean, self.var, self.gamma, self.beta, eps=1e-3)


KINDS = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]


@pytest.mark.parametrize("kind", [*KINDS, "linear"])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_functions_of_attributes(kind, affine, bias):
    dims = 0 if kind == "linear" else int(kind[-2])
    model = trained(Functional(kind, affine, bias))
    x = torch.randn(2, 4, *[4] * dims, dtype=torch.float64)
    gm, _ = fused(model, x, linear=True)
    assert sorted(gm.state_dict()) == ["weight_folded", "weight_folded_bias"]
    assert len(gm.graph.nodes) == 5


def test_torch_batch_norm_has_its_arguments_in_another_order():
    def norm(x, mean, var, gamma, beta, eps):
        return torch.batch_norm(x, gamma, beta, mean, var, False, 0.1, eps, False)

    fused(trained(Functional(norm=norm)), torch.randn(2, 4, 5, 5).double())


def test_a_module_beside_a_function():
    class ModuleThenFunction(Functional):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(4, 6, 1)

        def layer(self, x):
            return self.conv(x)

    class FunctionThenModule(Functional):
        def __init__(self):
            super().__init__()
            self.last = nn.BatchNorm2d(6)

        def forward(self, x):
            return self.last(self.layer(x))

    for model in (ModuleThenFunction(), FunctionThenModule()):
        fused(trained(model), torch.randn(2, 4, 5, 5).double())


def test_weights_that_others_use_stay():
    class Shared(Functional):
        def forward(self, x):
            return super().forward(x) + self.layer(x) + self.weight.sum()

    gm, _ = fused(trained(Shared()), torch.randn(2, 4, 5, 5).double())
    assert {"weight", "weight_folded", "bias"} <= set(gm.state_dict())


def test_functions_refuse():
    class Training(Functional):
        def forward(self, x):
            layer = self.layer(x)
            return F.batch_norm(layer, self.mean, self.var, training=True)

    class NoStatistics(Functional):
        def forward(self, x):
            return F.batch_norm(self.layer(x), None, None, training=False)

    class Computed(Functional):
        def forward(self, x):
            return F.batch_norm(self.layer(x), x.mean((0, 2, 3)), self.var)

    class Written(Functional):
        def forward(self, x):
            self.weight.mul_(2)
            return super().forward(x)

    def reason(model):
        gm = corsac.fx.symbolic_trace(trained(model))
        (site,) = fuse_conv_bn(gm).sites
        return site.reason

    assert reason(Training()) == "batch_norm is in training mode"
    assert reason(NoStatistics()).startswith("batch_norm normalises with the statistics of each")
    assert reason(Computed()) == "its running_mean is no attribute"
    assert reason(Written()) == "the program writes to what conv2d reads"


def test_a_write_between_a_batch_norm_and_the_convolution_after_it():
    class Between(nn.Module):
        def __init__(self):
            super().__init__()
            self.bn, self.conv = nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)

        def forward(self, x):
            y = x + 1
            normal = self.bn(y)
            y.mul_(0)
            return self.conv(normal) + y.sum()

    _, report = fused(trained(Between()), torch.randn(1, 4, 2, 2).double(), count=0)
    assert report.sites[0].reason == "the program writes to what conv reads"


def test_half_precision_adds_up_without_rounding_in_between():
    torch.manual_seed(0)
    model = trained(nn.Sequential(nn.BatchNorm2d(256), nn.Conv2d(256, 8, 1)))
    exact = model(x := torch.randn(2, 256, 3, 3, dtype=torch.float64))
    half = copy.deepcopy(model).bfloat16()
    gm = corsac.fx.symbolic_trace(half)
    assert fuse_conv_bn(gm).count == 1
    layer = gm.get_submodule("1")
    assert layer.weight.dtype == layer.bias.dtype == torch.bfloat16
    error = (gm(x.bfloat16()).double() - exact).abs().max()
    assert error < 2 * (half(x.bfloat16()).double() - exact).abs().max() + 0.05


def test_origin_and_metadata_of_new_attributes():
    gm = corsac.fx.symbolic_trace(trained(Functional()))
    source = next(n.source for n in gm.graph.nodes if n.target == "weight")
    for node in gm.graph.nodes:
        node.meta["mark"] = node.name
    fuse_conv_bn(gm)
    new = next(n for n in gm.graph.nodes if n.target == "weight_folded")
    assert new.meta["mark"] == "weight" and new.source == source
