"""``optimize_for_inference`` computes the same as the model, faster."""

import copy
import io
import operator

import pytest
import torch
import torch.fx.experimental.optimization as reference
import torch.nn.functional as F
import torchvision
from inference_models import Net
from torch import nn

import corsac.fx
import corsac.fx.experimental.optimization as subject
from corsac.fx.experimental._mkldnn_modules import MkldnnBatchNorm, MkldnnConv2d, MkldnnLinear
from kit.trained import as_if_trained

ALWAYS = {"mkldnn_layout_optimize": {"heuristic": lambda graph: True}}

# Relative to the largest result: a convolution sums in another order, and a folded batch norm
# rounds once less. 100 roundings of the dtype were never reached on torchvision's models.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.1, torch.float16: 0.01}


def assert_close(got, expected):
    scale = max(float(expected.abs().max()), 1.0)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    assert float((got - expected).abs().max()) <= TOLERANCE[expected.dtype] * scale


def optimised(model, x, config=ALWAYS):
    """The optimised model with checked results, and the unchanged model."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        expected = model(x.clone())
        result = subject.optimize_for_inference(model, config)
        assert_close(result(x.clone()), expected)
        assert_close(result(x.clone()), expected)
        assert torch.equal(model(x.clone()), expected)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    return result


def kinds(gm):
    return [type(module) for module in gm.modules()]


@pytest.mark.parametrize(
    "name",
    [
        "resnet18",
        "mobilenet_v2",
        "mobilenet_v3_small",
        "densenet121",
        pytest.param("resnet50", marks=pytest.mark.slow),
        pytest.param("efficientnet_b0", marks=pytest.mark.slow),
        pytest.param("convnext_tiny", marks=pytest.mark.slow),
        pytest.param("vit_b_16", marks=pytest.mark.slow),
        pytest.param("shufflenet_v2_x1_0", marks=pytest.mark.slow),
    ],
)
def test_torchvision_models(name):
    torch.manual_seed(0)
    model = as_if_trained(torchvision.models.get_model(name, weights=None))
    size = 224 if name == "vit_b_16" else 64
    result = optimised(model, torch.randn(2, 3, size, size))
    assert MkldnnConv2d in kinds(result)


def test_default_configuration():
    torch.manual_seed(0)
    result = optimised(as_if_trained(Net()), torch.randn(2, 3, 16, 16), None)
    found = kinds(result)
    assert found.count(MkldnnConv2d) == 5
    assert nn.BatchNorm2d not in found and nn.ReLU not in found and nn.Dropout not in found
    # One layer is below the default rule's limit.
    assert nn.Linear in found and MkldnnLinear not in found


def test_sums_and_activations_are_part_of_convolutions():
    torch.manual_seed(0)
    result = optimised(as_if_trained(Net()), torch.randn(2, 3, 16, 16), None)
    targets = {node.target for node in result.graph.nodes if node.op == "call_function"}
    assert operator.iadd not in targets
    assert result.first.side.binary == "add"
    assert result.first.side.activation.name == "relu"
    assert "binary=add, activation=relu" in repr(result.first.side)


@pytest.mark.parametrize("tensor_dtype", [torch.bfloat16, torch.float16])
def test_half_precision(tensor_dtype):
    torch.manual_seed(0)
    model = as_if_trained(Net()).to(tensor_dtype)
    result = optimised(model, torch.randn(2, 3, 16, 16).to(tensor_dtype))
    known = {
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }
    assert (MkldnnConv2d in kinds(result)) == known[tensor_dtype]()


def test_double_runs_as_it_did(caplog):
    model = as_if_trained(Net()).double()
    x = torch.randn(2, 3, 16, 16).double()
    with torch.no_grad(), caplog.at_level("INFO"):
        result = subject.optimize_for_inference(model, ALWAYS)
        torch.testing.assert_close(result(x), model(x))
    assert MkldnnConv2d not in kinds(result)
    assert "its weight is torch.float64" in caplog.text
    assert "mkldnn conversions: 0" in caplog.text


def test_batches_and_sizes_may_change():
    torch.manual_seed(0)
    model = as_if_trained(Net())
    result = subject.optimize_for_inference(model, ALWAYS)
    with torch.no_grad():
        for shape in [(1, 3, 16, 16), (4, 3, 16, 16), (2, 3, 40, 24), (3, 3, 9, 9), (0, 3, 8, 8)]:
            x = torch.randn(shape)
            expected = model(x)
            assert result(x).shape == expected.shape
            if len(x):
                assert_close(result(x), expected)
        for batch in range(1, 10):
            x = torch.randn(batch, 3, 12, 12)
            assert_close(result(x), model(x))


def test_images_without_a_batch():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()
    optimised(model, torch.randn(3, 8, 8))


def square(x):
    return x.mul(x).cumsum(-1)


corsac.fx.wrap("square")


class Unsupported(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
        self.softmax = nn.Softmax(1)

    def forward(self, x):
        if self.how == "unknown function":
            return square(x)
        if self.how == "method":
            return x.view(x.shape[0], 8, -1).cumsum(-1).view(x.shape)
        return self.softmax(x)


@pytest.mark.parametrize("how", ["unknown function", "method", "module"])
def test_what_is_not_supported_splits_a_model(how):
    torch.manual_seed(0)
    seen = []
    config = {"mkldnn_layout_optimize": {"heuristic": lambda graph: seen.append(graph) or True}}
    result = optimised(as_if_trained(Net(Unsupported(how))), torch.randn(2, 3, 16, 16), config)
    first, second, _head = seen
    assert first.nodes[0].name == "stem" and len(first.end_nodes) == 1
    assert len(second.start_nodes) == 1
    assert all(graph.fx_graph is result.graph for graph in seen)
    assert kinds(result).count(MkldnnConv2d) == 5
    # Views need tensors in row-major order.
    assert all(node.op == "call_function" for node in first.end_nodes)


def test_a_shared_convolution_keeps_one_weight():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 3, padding=1)
            self.other = nn.Conv2d(4, 4, 1)
            self.other.weight = nn.Parameter(torch.randn(4, 4, 1, 1))
            self.tied = nn.Conv2d(4, 4, 1)
            self.tied.weight = self.other.weight

        def forward(self, x):
            x = F.relu(self.conv(x))
            x = self.conv(x) + x
            x = self.conv(x)
            return self.tied(self.other(x))

    torch.manual_seed(0)
    model = Shared().eval()
    result = optimised(model, torch.randn(2, 4, 8, 8))
    calls = [n.target for n in result.graph.find_nodes(op="call_module")]
    assert len(set(calls)) == 5
    weights = {result.get_submodule(path).weight.data_ptr() for path in calls}
    assert len(weights) == 2


def test_training_mode_is_refused():
    with pytest.raises(AssertionError, match="training mode"):
        subject.optimize_for_inference(Net().train())
    unfused = {**ALWAYS, "conv_bn_fuse": False}
    model = Net().eval()
    model.second.bn.train()
    with pytest.raises(AssertionError, match=r"second.bn is in training mode"):
        subject.optimize_for_inference(model, unfused)


def test_batch_norms_that_stay_run_in_the_subgraph():
    torch.manual_seed(0)
    model = as_if_trained(Net())
    model.second.bn = nn.BatchNorm2d(8, affine=False).eval()
    result = optimised(model, torch.randn(2, 3, 16, 16), {**ALWAYS, "conv_bn_fuse": False})
    assert kinds(result).count(MkldnnBatchNorm) == 2
    without = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, track_running_stats=False)).eval()
    optimised(without, torch.randn(2, 3, 8, 8))


def test_hooks_keep_a_module_as_it_is():
    torch.manual_seed(0)
    model = as_if_trained(Net())
    seen = []
    model.second.side.register_forward_hook(lambda *_: seen.append(1))
    result = subject.optimize_for_inference(model, ALWAYS)
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert_close(result(x), model(x))
    assert len(seen) == 2
    assert type(result.second.side) is nn.Conv2d


class Writes(nn.Module):
    """Writes to values that have other users."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(a)
        a.mul_(2.0)
        c = F.relu(self.b(a), inplace=True) + a
        x.add_(1.0)
        d = torch.relu(self.a(x))
        view = d.transpose(2, 3)
        view[0] = 0.0
        return b, c, d, x


def test_writes_are_seen_where_they_were():
    torch.manual_seed(0)
    model, x = Writes().eval(), torch.randn(2, 3, 8, 8)
    result = subject.optimize_for_inference(model, ALWAYS)
    mine, theirs = x.clone(), x.clone()
    with torch.no_grad():
        for got, expected in zip(result(mine), model(theirs), strict=True):
            assert_close(got, expected)
    assert torch.equal(mine, theirs)


class Broadcast(nn.Module):
    """Second operands of other shapes and kinds."""

    def __init__(self):
        super().__init__()
        self.conv, self.squeeze = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.scale = nn.Parameter(torch.randn(4, 1, 1))
        self.number = 3

    def forward(self, x, y):
        a = self.conv(x) + self.scale
        b = self.squeeze(F.adaptive_avg_pool2d(a, 1)) * a
        c = self.conv(b) + 1
        d = self.conv(c) + x.size(1)
        e = F.relu(self.conv(d) + y)
        return self.squeeze(e) + self.squeeze(y)


def test_operands_are_broadcast():
    torch.manual_seed(0)
    model = Broadcast().eval()
    result = subject.optimize_for_inference(model, ALWAYS)
    x = torch.randn(2, 4, 6, 6)
    with torch.no_grad():
        for y in (torch.randn(2, 4, 6, 6), torch.randn(1, 4, 6, 6), torch.randn(2, 4, 1, 1)):
            assert_close(result(x, y), model(x, y))
        doubled = torch.randn(2, 4, 6, 6).double()
        with pytest.raises(RuntimeError):
            model(x, doubled)
        with pytest.raises(RuntimeError):
            result(x, doubled)


ACTIVATIONS = [
    nn.ReLU(),
    nn.ReLU6(),
    nn.Hardtanh(-0.5, 0.7),
    nn.Hardswish(),
    nn.Hardsigmoid(),
    nn.LeakyReLU(0.3),
    nn.Sigmoid(),
    nn.Tanh(),
    nn.SiLU(),
    nn.GELU(),
    nn.GELU("tanh"),
]
NOT_FUSED = [nn.ELU(0.7), nn.Mish()]


@pytest.mark.parametrize("activation", ACTIVATIONS + NOT_FUSED, ids=repr)
def test_activations(activation):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), activation, nn.Flatten(2), nn.Linear(36, 20), activation
    ).eval()
    result = optimised(model, torch.randn(8, 3, 8, 8))
    assert (type(activation) in kinds(result)) == (activation in NOT_FUSED)


@pytest.mark.parametrize(
    "call",
    [
        F.relu,
        torch.relu,
        lambda x: F.relu(x, inplace=True),
        F.relu6,
        F.hardswish,
        F.silu,
        torch.sigmoid,
        torch.tanh,
        F.gelu,
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: F.leaky_relu(x, 0.3),
        lambda x: F.hardtanh(x, -0.2, 0.4),
    ],
)
def test_activation_functions(call):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            return call(self.conv(x))

    torch.manual_seed(0)
    optimised(Model().eval(), torch.randn(2, 3, 8, 8))


@pytest.mark.parametrize(
    "options",
    [
        {"padding": "same", "kernel_size": 3},
        {"padding": "same", "kernel_size": 4},
        {"padding": "valid", "kernel_size": 3},
        {"padding": 1, "kernel_size": 3, "padding_mode": "circular"},
        {"padding": (2, 1), "kernel_size": (5, 3), "stride": (2, 1), "dilation": (1, 2)},
        {"kernel_size": 3, "groups": 4, "bias": False},
    ],
)
def test_kinds_of_convolutions(options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, **options), nn.ReLU()).eval()
    optimised(model, torch.randn(2, 4, 12, 12))


def test_results_have_the_usual_order_in_memory():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)).eval()
    assert optimised(model, torch.randn(2, 3, 8, 8))(torch.randn(2, 3, 8, 8)).is_contiguous()


def test_new_weights_are_used():
    torch.manual_seed(0)
    model = as_if_trained(Net())
    result = subject.optimize_for_inference(model, ALWAYS)
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        before = result(x)
        for value in result.state_dict().values():
            value.mul_(0.5)
        assert not torch.allclose(result(x), before)
        halved = copy.deepcopy(result)
        assert torch.equal(halved(x), result(x))
        result.load_state_dict(subject.optimize_for_inference(model, ALWAYS).state_dict())
        assert_close(result(x), before)


def test_copies_and_files():
    torch.manual_seed(0)
    result = subject.optimize_for_inference(as_if_trained(Net()), ALWAYS)
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        expected = result(x)
        file = io.BytesIO()
        torch.save(result, file)
        file.seek(0)
        assert torch.equal(torch.load(file, weights_only=False)(x), expected)
        assert torch.equal(copy.deepcopy(result)(x), expected)
        assert result.to(torch.float64)(x.double()).dtype == torch.float64


def test_gradients_of_inputs():
    torch.manual_seed(0)
    model = as_if_trained(Net())
    result = subject.optimize_for_inference(model, ALWAYS)
    x = torch.randn(2, 3, 16, 16)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    result(mine).sum().backward()
    model(theirs).sum().backward()
    assert_close(mine.grad, theirs.grad)


def test_names_and_metadata_stay():
    model = as_if_trained(Net())
    result = subject.optimize_for_inference(model, ALWAYS)
    traced = corsac.fx.symbolic_trace(model)
    sources = {node.name: node.source for node in traced.graph.nodes}
    fused = [node for node in result.graph.find_nodes(op="call_module")]
    assert {node.name for node in fused} >= {"stem", "first_relu", "second_relu", "head"}
    for node in fused:
        assert node.source is not None
        if node.name in sources:
            assert node.source == sources[node.name]


def test_configuration():
    model = as_if_trained(Net())
    plain = subject.optimize_for_inference(model, {"mkldnn_layout_optimize": False})
    assert nn.Conv2d in kinds(plain) and nn.BatchNorm2d not in kinds(plain)
    kept = subject.optimize_for_inference(
        model, {"mkldnn_layout_optimize": False, "conv_bn_fuse": False, "remove_dropout": False}
    )
    assert nn.BatchNorm2d in kinds(kept) and nn.Dropout in kinds(kept)
    for config in ({"mkldnn_layout_optimize": True}, {"mkldnn_layout_optimize": {}}):
        with pytest.raises(RuntimeError) as theirs:
            reference.optimize_for_inference(model, config)
        with pytest.raises(RuntimeError, match=str(theirs.value)):
            subject.optimize_for_inference(model, config)


def test_a_tracer_of_ones_own():
    class Leaves(corsac.fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return module_qualified_name == "second" or super().is_leaf_module(
                m, module_qualified_name
            )

    torch.manual_seed(0)
    model, x = as_if_trained(Net()), torch.randn(2, 3, 16, 16)
    result = subject.optimize_for_inference(model, ALWAYS, Leaves)
    assert [n.target for n in result.graph.find_nodes(op="call_module", target="second")]
    with torch.no_grad():
        assert_close(result(x), model(x))


def test_more_operators_can_be_supported(monkeypatch):
    monkeypatch.setattr(subject, "mkldnn_supported", subject.mkldnn_supported)
    subject.mkldnn_supported.append(nn.Softmax)
    try:
        seen = []
        config = {"mkldnn_layout_optimize": {"heuristic": lambda graph: seen.append(graph) or True}}
        model = as_if_trained(Net(Unsupported("module")))
        optimised(model, torch.randn(2, 3, 16, 16), config)
    finally:
        subject.mkldnn_supported.remove(nn.Softmax)
    assert len(seen) == 2  # and the head


def test_the_table_is_one():
    from corsac import _core

    def name(item):
        if isinstance(item, type):
            return f"{item.__module__}.{item.__qualname__}"
        return corsac.fx.node._get_qualified_name(item).replace("_operator.", "operator.")

    modules, functions, with_operand = _core.mkldnn_table()
    assert {name(item) for item in subject.mkldnn_supported} == {*modules, *functions}
    assert {name(item) for item in subject.mkldnn_supported_unknown} == set(with_operand)


def test_everything_of_torch_fx_is_supported():
    assert set(reference.mkldnn_supported) <= set(subject.mkldnn_supported)
    assert set(reference.mkldnn_supported_unknown) <= set(subject.mkldnn_supported_unknown)


def test_what_torch_fx_cannot_run():
    """Sums of tensors of different shapes, which torch.fx's opaque tensors do not support."""
    torch.manual_seed(0)
    model, x = torchvision.models.mobilenet_v3_small().eval(), torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        with pytest.raises(RuntimeError, match="broadcasting"):
            reference.optimize_for_inference(model)(x)
        assert_close(subject.optimize_for_inference(model)(x), model(x))
