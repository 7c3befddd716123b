"""Quantised models as ONNX: their nodes and sizes, and the results of ONNX Runtime and OpenVINO."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac
import onnx
from corsac.onnx import ExportError, to_onnx
from corsac.quantization import (
    QConfigMapping,
    default_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    get_default_qconfig_mapping,
    quantized,
)
from corsac.quantization._operators import pack_int4
from corsac.quantization.quantize_fx import convert_fx, prepare_fx
from corsac.quantization.quantized._steps import WeightSteps
from kit.trained import as_if_trained

pytestmark = pytest.mark.filterwarnings("ignore:.*reduce_range")

STATIC = get_default_qconfig_mapping("x86")
DYNAMIC = QConfigMapping().set_global(default_dynamic_qconfig)
EMBEDDINGS = QConfigMapping().set_object_type(nn.Embedding, float_qparams_weight_only_qconfig)
BYTES = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)


def run(
    proto: onnx.ModelProto, *inputs: torch.Tensor, optimised: bool = True
) -> list[torch.Tensor]:
    onnx.checker.check_model(proto, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # By default it rounds the numbers that MatMul multiplies with dequantised weights, too.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    names = [x.name for x in session.get_inputs()]
    feed = dict(zip(names, (x.numpy() for x in inputs), strict=True))
    return [torch.from_numpy(np.asarray(x)) for x in session.run(None, feed)]


def run_openvino(proto: onnx.ModelProto, x: torch.Tensor) -> torch.Tensor:
    openvino = pytest.importorskip("openvino")
    core = openvino.Core()
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
    compiled = core.compile_model(core.read_model(proto.SerializeToString()), "CPU", exact)
    return torch.from_numpy(np.array(compiled([x.numpy()])[0]))


def kinds(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


def stored(proto: onnx.ModelProto) -> dict[str, int]:
    """Element types of what the model stores, by name."""
    return {own.name: own.data_type for own in proto.graph.initializer}


def quantised(model: nn.Module, x: torch.Tensor, mapping: QConfigMapping) -> corsac.fx.GraphModule:
    prepared = prepare_fx(model.eval(), mapping, (x,))
    with torch.no_grad():
        prepared(x)
    return convert_fx(prepared)


def step_of(model: corsac.fx.GraphModule) -> float:
    """The scale of the result."""
    target = torch.ops.corsac.dequantize_per_tensor.default
    last = [node for node in model.graph.nodes if node.target is target][-1]
    return float(last.args[1])


def steps_apart(got: torch.Tensor, model: corsac.fx.GraphModule, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return (got - model(x)).abs() / step_of(model)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.pool, self.fc = nn.BatchNorm2d(8), nn.MaxPool2d(2), nn.Linear(8, 4)

    def forward(self, x):
        y = (x + self.b(self.norm(self.a(x)).relu())).relu()
        return self.fc(self.pool(y).flatten(2).transpose(1, 2))


def image(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


STATIC_CASES: dict[str, Any] = {
    "linear": (lambda: nn.Sequential(nn.Linear(64, 48)), image(4, 64)),
    "rows": (lambda: nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 8)), image(2, 3, 32)),
    "conv2d": (lambda: nn.Sequential(nn.Conv2d(3, 16, 3, 2, padding=1), nn.ReLU()), image(2, 3, 9, 9)),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(3, 16, 3)), image(2, 3, 9)),
    "reflect": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")),
        image(2, 3, 9, 9),
    ),
    "depthwise": (lambda: nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16)), image(2, 16, 9, 9)),
    "residual": (Residual, image(2, 8, 8, 8)),
}  # fmt: skip


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("name", STATIC_CASES)
def test_static_quantisation(name, opset):
    torch.manual_seed(0)
    make, x = STATIC_CASES[name]
    model = quantised(as_if_trained(make()), x, STATIC)
    proto = to_onnx(model, x, opset=opset)
    found = kinds(proto)
    assert "QuantizeLinear" in found and "DequantizeLinear" in found
    assert set(found) <= {
        "Add", "Clip", "Conv", "DequantizeLinear", "Gemm", "Identity", "MatMul", "MaxPool", "Pad",
        "QuantizeLinear", "Relu", "Reshape", "Transpose",
    }  # fmt: skip
    # Activations of 7 bits are cut off after they are rounded.
    assert found.count("Clip") == found.count("QuantizeLinear")
    weights = {name: kind for name, kind in stored(proto).items() if name.endswith("weight")}
    assert weights and set(weights.values()) == {onnx.TensorProto.INT8}
    for optimised in (False, True):
        got = run(proto, x, optimised=optimised)[0]
        assert got.unique().numel() > 10
        assert steps_apart(got, model, x).max() <= 1.001
    assert steps_apart(run_openvino(proto, x), model, x).max() <= 1.001


def test_parameters_of_channels():
    x = image(2, 3, 8, 8)
    model = quantised(nn.Sequential(nn.Conv2d(3, 4, 3)), x, STATIC)
    proto = to_onnx(model, x)
    by_name = {own.name: onnx.numpy_helper.to_array(own) for own in proto.graph.initializer}
    layer = model.get_submodule("0")
    np.testing.assert_array_equal(by_name["0.weight"], layer.weight.numpy())
    np.testing.assert_array_equal(by_name["0.weight_scale"], layer.weight_scale.numpy())
    (call,) = [node for node in proto.graph.node if "0.weight" in node.input]
    assert call.op_type == "DequantizeLinear" and call.attribute[0].i == 0
    assert by_name[call.input[2]].tolist() == [0, 0, 0, 0]
    assert by_name[call.input[2]].dtype == np.int8


def test_transposed_convolutions():
    x = image(2, 3, 5, 5)
    model = quantised(
        nn.Sequential(nn.ConvTranspose2d(3, 6, 3, 2)), x, get_default_qconfig_mapping("onednn")
    )
    proto = to_onnx(model, x)
    assert {"ConvTranspose", "DequantizeLinear"} <= set(kinds(proto))
    assert stored(proto)["0.weight"] == onnx.TensorProto.INT8
    assert steps_apart(run(proto, x)[0], model, x).max() <= 1.001


def test_batches_of_any_size():
    x = image(2, 8, 8, 8)
    model = quantised(Residual().eval(), x, STATIC)
    proto = to_onnx(model, x, dynamic={"x": {0: "batch"}})
    for batch in (3, 5):
        more = image(batch, 8, 8, 8)
        assert steps_apart(run(proto, more)[0], model, more).max() <= 1.001


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_lowered_models_are_one_part(backend):
    pytest.importorskip(backend)
    torch.manual_seed(0)
    x = image(2, 8, 8, 8)
    model = quantised(as_if_trained(Residual()), x, STATIC)
    lowered = corsac.lower(model, backend, x, strict=True)
    assert len(lowered.meta["lowering"].parts) == 1
    with torch.no_grad():
        assert steps_apart(lowered(x), model, x).max() <= 1.001


@pytest.mark.parametrize("shape", [(5, 32), (2, 3, 32)])
def test_dynamic_quantisation(shape):
    torch.manual_seed(0)
    x = image(*shape) * 10
    x[0] = 0
    model = quantised(nn.Sequential(nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 8)), x, DYNAMIC)
    proto = to_onnx(model, x)
    assert {"ReduceMin", "ReduceMax", "Round", "Clip"} <= set(kinds(proto))
    weights = [kind for name, kind in stored(proto).items() if name.endswith("weight")]
    assert weights == [onnx.TensorProto.INT8] * 2
    expected = model(x).detach()
    for got in (run(proto, x)[0], run(proto, x, optimised=False)[0], run_openvino(proto, x)):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_rows_that_are_not_finite_are_no_numbers():
    x = image(4, 32)
    x[1, 3], x[2, 5] = torch.inf, -torch.inf
    model = quantised(nn.Sequential(nn.Linear(32, 8)), image(4, 32), DYNAMIC)
    got = run(to_onnx(model, x), x)[0]
    assert got.isnan().all(1).tolist() == [False, True, True, False]
    torch.testing.assert_close(got[[0, 3]], model(x[[0, 3]]).detach(), rtol=1e-5, atol=1e-5)


def test_steps_of_rows():
    def program(x):
        scales, zero_points = torch.ops.corsac.choose_qparams_per_token(x, -128, 127)
        levels = torch.ops.corsac.quantize_per_token(
            x, scales, zero_points, -128, 127, torch.int8
        )  # fmt: skip
        return scales, zero_points, levels

    x = torch.cat([image(6, 40), torch.zeros(1, 40), image(1, 40).abs(), image(1, 40) * 1e-30])
    proto = to_onnx(corsac.fx.symbolic_trace(program).eval(), x)
    scales, zero_points, levels = run(proto, x)
    expected = program(x)
    torch.testing.assert_close(scales, expected[0])
    assert torch.equal(zero_points, expected[1]) and torch.equal(levels, expected[2])


@pytest.mark.parametrize(
    ("dtype", "quant_min", "quant_max"),
    [(torch.uint8, 0, 255), (torch.int8, -128, 127), (torch.int8, -127, 127), (torch.uint8, 0, 15),
     (torch.int16, -(2**15), 2**15 - 1), (torch.int32, -(2**20), 2**20)],
)  # fmt: skip
def test_bounds_and_types(dtype, quant_min, quant_max):
    corsac_ops = torch.ops.corsac
    scales = torch.tensor([0.03, 0.5, 0.007])
    zero_points = torch.tensor([3, 0, 5], dtype=torch.int32)
    bounds = (quant_min, quant_max, dtype)

    def tensors(x):
        levels = corsac_ops.quantize_per_tensor(x, 0.03, 7, *bounds)
        return levels, corsac_ops.dequantize_per_tensor(levels, 0.03, 7, *bounds)

    class Channels(nn.Module):
        def __init__(self):
            super().__init__()
            self.scales, self.zero_points = nn.Parameter(scales), nn.Parameter(zero_points, False)

        def forward(self, x):
            levels = corsac_ops.quantize_per_channel(x, self.scales, self.zero_points, 1, *bounds)
            back = corsac_ops.dequantize_per_channel(
                levels, self.scales, self.zero_points, -3, *bounds
            )
            return levels, back

    # No number is near the middle of two integers, where the two ways to divide differ.
    x = (torch.arange(-90.0, 90.0) * 0.0521).reshape(2, 3, 5, 6)
    for program in (tensors, Channels()):
        module = corsac.fx.symbolic_trace(program).eval()
        proto = to_onnx(module, x)
        levels, back = run(proto, x)
        expected = program(x)
        assert torch.equal(levels, expected[0])
        assert levels.min() == quant_min or quant_min < -300
        torch.testing.assert_close(back, expected[1].detach())
        assert ("QuantizeLinear" in kinds(proto)) == (dtype.itemsize == 1)


def test_unsigned_integers_of_16_bits_are_refused():
    module = corsac.fx.symbolic_trace(
        lambda x: torch.ops.corsac.quantize_per_tensor(x, 0.1, 0, 0, 2**16 - 1, torch.uint16)
    )
    with pytest.raises(ExportError, match="no translation of uint16"):
        to_onnx(module.eval(), image(2, 3))


def weights_only(layer: nn.Linear) -> quantized.Linear:
    """The layer with a weight of 8 bits."""
    scales = layer.weight.detach().abs().amax(1) / 127
    zeros = torch.zeros(scales.shape, dtype=torch.int32)
    steps = WeightSteps(scales, zeros, 0, -128, 127, torch.int8)
    return quantized.Linear.from_float(layer, steps)


def test_weights_only():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 128)).eval()
    x = image(3, 256)
    plain = len(to_onnx(model, x).SerializeToString())
    model[0], model[2] = weights_only(model[0]), weights_only(model[2])
    proto = to_onnx(model, x)
    assert kinds(proto) == [
        "DequantizeLinear",
        "Gemm",
        "Relu",
        "DequantizeLinear",
        "Gemm",
        "Identity",
    ]
    assert len(proto.SerializeToString()) < 0.27 * plain
    torch.testing.assert_close(run(proto, x)[0], model(x).detach(), rtol=1e-5, atol=1e-5)


def test_embeddings():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.fc = nn.Embedding(100, 32), nn.Linear(32, 4)

        def forward(self, ids):
            return self.fc(self.words(ids))

    torch.manual_seed(0)
    ids = torch.randint(0, 100, (2, 7))
    model = quantised(Words(), ids, EMBEDDINGS)
    proto = to_onnx(model, ids)
    assert stored(proto)["words.weight"] == onnx.TensorProto.UINT8
    torch.testing.assert_close(run(proto, ids)[0], model(ids).detach(), rtol=1e-5, atol=1e-5)


class Grouped(nn.Module):
    """A linear layer whose weight has a scale for each group of a row."""

    def __init__(self, bits: int, group: int, zero_points: bool, columns: int = 256):
        super().__init__()
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        groups = (torch.randn(24, columns) / 16 + 0.02).reshape(24, -1, group)
        if zero_points:
            scales = (groups.amax(-1) - groups.amin(-1)) / (high - low)
            zeros = torch.round(low - groups.amin(-1) / scales).to(torch.int32)
        else:
            scales, zeros = groups.abs().amax(-1) / high, None
        levels = torch.round(groups / scales[..., None])
        levels = levels if zeros is None else levels + zeros[..., None]
        levels = levels.clamp(low, high).to(torch.int8).reshape(24, columns)
        self.weight = nn.Parameter(pack_int4(levels) if bits == 4 else levels, False)
        self.scales = nn.Parameter(scales)
        self.zeros = None if zeros is None else nn.Parameter(zeros, False)
        self.bias = nn.Parameter(torch.randn(24))
        self.bits, self.bounds, self.group = bits, (low, high, torch.int8), group

    def dequantised(self):
        levels = torch.ops.corsac.unpack_int4(self.weight) if self.bits == 4 else self.weight
        return torch.ops.corsac.dequantize_per_channel_group(
            levels, self.scales, self.zeros, *self.bounds, self.group
        )

    def forward(self, x):
        return F.linear(x, self.dequantised(), self.bias)


@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_weights_in_groups_are_products_of_few_bits(bits, group, zero_points):
    torch.manual_seed(0)
    model, x = Grouped(bits, group, zero_points).eval(), image(2, 3, 256)
    proto = to_onnx(model, x)
    assert kinds(proto) == ["MatMulNBits", "Add", "Identity"]
    (product, *_) = proto.graph.node
    facts = {own.name: own.i for own in product.attribute}
    assert product.domain == "com.microsoft"
    assert facts == {"K": 256, "N": 24, "bits": bits, "block_size": group}
    assert len(product.input) == 3 + zero_points
    data = onnx.numpy_helper.to_array(
        next(own for own in proto.graph.initializer if own.name == product.input[1])
    )
    assert data.shape == (24, 256 // group, group * bits // 8) and data.dtype == np.uint8
    expected = model(x).detach()
    torch.testing.assert_close(run(proto, x)[0], expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(run_openvino(proto, x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [20, 21])
@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize(("bits", "group"), [(4, 16), (8, 16), (4, 256)])
def test_weights_in_other_groups(bits, group, zero_points, opset):
    torch.manual_seed(0)
    model, x = Grouped(bits, group, zero_points).eval(), image(2, 256)
    proto = to_onnx(model, x, opset=opset)
    assert "MatMulNBits" not in kinds(proto)
    assert ("DequantizeLinear" in kinds(proto)) == (opset == 21)
    assert stored(proto)["weight"] in BYTES
    expected = model(x).detach()
    torch.testing.assert_close(run(proto, x)[0], expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(run_openvino(proto, x), expected, rtol=1e-5, atol=1e-5)


def test_what_else_uses_weights_in_groups():
    class Both(Grouped):
        def forward(self, x):
            weight = self.dequantised()
            return F.linear(x, weight), weight.sum(1)

    torch.manual_seed(0)
    model, x = Both(4, 32, True).eval(), image(2, 256)
    proto = to_onnx(model, x)
    assert "MatMulNBits" in kinds(proto) and "ReduceSum" in kinds(proto)
    for got, expected in zip(run(proto, x), model(x), strict=True):
        torch.testing.assert_close(got, expected.detach(), rtol=1e-5, atol=1e-5)


def test_packed_weights_are_an_eighth():
    torch.manual_seed(0)
    model, x = Grouped(4, 128, False, columns=4096).eval(), image(1, 4096)
    plain = 24 * 4096 * 4
    assert len(to_onnx(model, x).SerializeToString()) < plain / 8 * 1.1


def test_resnet_18():
    models = pytest.importorskip("torchvision").models
    torch.manual_seed(0)
    plain, x = as_if_trained(models.resnet18()), image(1, 3, 64, 64)
    model = quantised(plain, x, STATIC)
    proto = to_onnx(model, x)
    found = kinds(proto)
    assert found.count("Conv") == 20 and found.count("Gemm") == 1
    sizes = [len(own.SerializeToString()) for own in (proto, to_onnx(plain, x))]
    assert sizes[0] < 0.26 * sizes[1]
    # Sums that lie in the middle of two levels are rounded to either, 30 times in a row.
    for optimised in (False, True):
        apart = steps_apart(run(proto, x, optimised=optimised)[0], model, x)
        assert apart.mean() < 1 and apart.max() <= 4.001
