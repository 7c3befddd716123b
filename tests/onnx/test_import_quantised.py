"""Quantised ONNX models that are read: one form inside, weights of integers, results of ONNX Runtime."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
import torchvision
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from torch import nn

import corsac
import onnx
from corsac.onnx import OnnxImportError, from_onnx, save, to_onnx
from corsac.quantization import QConfigMapping, default_dynamic_qconfig, get_default_qconfig_mapping
from corsac.quantization.quantize_fx import convert_fx, prepare_fx
from kit.int8_products import pytorch_saturates
from onnx import TensorProto, helper, numpy_helper

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*reduce_range"),
    pytest.mark.filterwarnings("ignore:.*np.issubdtype"),
]

BYTES = (torch.int8, torch.uint8)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.wide, self.head = nn.Linear(16, 20), nn.Linear(20, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = x + torch.relu(self.second(x))
        return self.head(self.wide(x.mean((2, 3))))


class Words(nn.Module):
    """Products of rows with matrices that are initialisers."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(50, 32), nn.LayerNorm(32)
        self.up, self.down = (
            nn.Parameter(torch.randn(32, 64) / 6),
            nn.Parameter(torch.randn(64, 32) / 8),
        )
        self.bias = nn.Parameter(torch.randn(64))

    def forward(self, ids):
        x = self.norm(self.embed(ids))
        return F.gelu(x @ self.up + self.bias) @ self.down


def model_and_input(kind: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    if kind == "images":
        return Images().eval(), torch.randn(2, 3, 16, 16)
    return Words().eval(), torch.randint(0, 50, (2, 7))


def ran(model: Any, *inputs: torch.Tensor, optimised: bool = False) -> torch.Tensor:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    session = onnxruntime.InferenceSession(source, options)
    feed = dict(
        zip((own.name for own in session.get_inputs()), (x.numpy() for x in inputs), strict=True)
    )
    return torch.from_numpy(np.asarray(session.run(None, feed)[0]))


def called(model: Any, *inputs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(*inputs)


def natively(model: corsac.fx.GraphModule, *inputs: torch.Tensor) -> torch.Tensor:
    """The result of the engine, which runs the whole graph."""
    with torch.no_grad():
        return corsac.lower(model, "corsac", inputs, strict=True)(*inputs)


def state(model: nn.Module) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    return {name: (own.dtype, tuple(own.shape)) for name, own in model.state_dict().items()}


def targets(model: corsac.fx.GraphModule) -> list[str]:
    return [getattr(node.target, "__name__", str(node.target)) for node in model.graph.nodes]


# -- files of corsac -------------------------------------------------------------------------------


def quantised(model: nn.Module, x: torch.Tensor, mapping: QConfigMapping) -> corsac.fx.GraphModule:
    prepared = prepare_fx(model.eval(), mapping, (x,))
    called(prepared, x)
    return convert_fx(prepared)


def test_static_models_keep_their_levels():
    model, x = model_and_input("images")
    made = quantised(model, x, get_default_qconfig_mapping("x86"))
    again = from_onnx(to_onnx(made, x))
    assert torch.equal(called(again, x), called(made, x))
    assert torch.equal(natively(again, x), natively(made, x))
    kinds = state(again)
    assert kinds["first.weight"] == (torch.int8, (16, 3, 3, 3))
    assert kinds["head.weight"] == (torch.int8, (10, 20))
    assert kinds["first.weight_scale"] == (torch.float32, (16,))
    floats = sum(own.numel() for own in again.state_dict().values() if own.dtype == torch.float32)
    assert floats < 200  # scales and biases
    # Ranges of 7 bits are one operator, not one that is cut off by another.
    assert "clamp" not in targets(again)
    assert any(node.args[4:5] == (127,) for node in again.graph.nodes if "quantize" in node.name)


def test_a_graph_that_was_read_is_written_alike():
    model, x = model_and_input("images")
    proto = to_onnx(quantised(model, x, get_default_qconfig_mapping("x86")), x)
    again = to_onnx(from_onnx(proto), x)
    assert [own.op_type for own in again.graph.node] == [own.op_type for own in proto.graph.node]
    assert torch.equal(ran(again, x), ran(proto, x))


def test_dynamic_models_compute_the_same():
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).eval(),
        torch.randn(4, 32),
    )
    made = quantised(model, x, QConfigMapping().set_global(default_dynamic_qconfig))
    again = from_onnx(to_onnx(made, x))
    assert torch.equal(called(again, x), called(made, x))
    assert state(again)["0.0.weight"] == (torch.int8, (64, 32))


@pytest.mark.parametrize("opset", [20, 21])
def test_weights_in_groups_stay_packed(opset):
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval(),
        torch.randn(4, 64),
    )
    made = corsac.quantize(model, x, weights="int4:32")
    proto = to_onnx(made, x, opset=opset)
    assert [own.op_type for own in proto.graph.node].count("MatMulNBits") == 2
    again = from_onnx(proto)
    packed = [own for own in again.state_dict().values() if own.dtype == torch.uint8]
    assert [tuple(own.shape) for own in packed] == [(64, 32), (64, 32)]
    assert sum("unpack_int4" in own for own in targets(again)) == 2
    torch.testing.assert_close(called(again, x), called(made, x), rtol=0, atol=0)
    torch.testing.assert_close(natively(again, x), called(made, x))


def test_weights_of_8_bits_alone():
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval(),
        torch.randn(4, 64),
    )
    made = corsac.quantize(model, x, weights="int8")
    again = from_onnx(to_onnx(made, x))
    assert sum(own.dtype == torch.int8 for own in again.state_dict().values()) == 2
    torch.testing.assert_close(called(again, x), called(made, x), rtol=0, atol=0)


# -- files of ONNX Runtime's quantiser -------------------------------------------------------------


class Batches(CalibrationDataReader):
    def __init__(self, name: str, x: torch.Tensor) -> None:
        self.rest = iter([{name: x.numpy()}])

    def get_next(self):
        return next(self.rest, None)


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def written(folder: Path, kind: str) -> tuple[Path, torch.Tensor, str]:
    model, x = model_and_input(kind)
    path = folder / f"{kind}.onnx"
    proto = to_onnx(model, x)
    save(proto, path)
    return path, x, proto.graph.input[0].name


@pytest.mark.parametrize("kind", ["images", "words"])
@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(
    ("activations", "weights"),
    [
        (QuantType.QUInt8, QuantType.QInt8),
        (QuantType.QInt8, QuantType.QInt8),
        (QuantType.QUInt8, QuantType.QUInt8),
    ],
)
def test_static_files_of_onnx_runtime(tmp_path, kind, form, per_channel, activations, weights):
    path, x, name = written(tmp_path, kind)
    made = tmp_path / "quantised.onnx"
    quantize_static(
        path, made, Batches(name, x), quant_format=form, per_channel=per_channel,
        activation_type=activations, weight_type=weights,
    )  # fmt: skip
    model = from_onnx(made)
    expected = ran(made, x)
    # Sums are in another order than in ONNX Runtime: a level may be the next one.
    step = expected.abs().max() / 100
    if form is QuantFormat.QDQ or not pytorch_saturates():
        assert (called(model, x) - expected).abs().max() <= step
        assert (called(model, x) != expected).float().mean() < 0.02
    torch.testing.assert_close(natively(model, x), called(model, x), rtol=0, atol=float(step))
    matrices = [own for own in model.state_dict().values() if own.dim() >= 2]
    assert matrices and all(own.dtype in BYTES for own in matrices)


@pytest.mark.parametrize("kind", ["images", "words"])
@pytest.mark.parametrize("weights", [QuantType.QInt8, QuantType.QUInt8])
@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic_files_of_onnx_runtime(tmp_path, kind, weights, per_channel):
    path, x, _ = written(tmp_path, kind)
    made = tmp_path / "quantised.onnx"
    quantize_dynamic(path, made, per_channel=per_channel, weight_type=weights)
    model = from_onnx(made)
    # As PyTorch's, its products saturate on some processors.
    if not pytorch_saturates():
        torch.testing.assert_close(called(model, x), ran(made, x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(natively(model, x), called(model, x), rtol=1e-4, atol=1e-4)
    matrices = [own for own in model.state_dict().values() if own.dim() >= 2]
    assert matrices and all(own.dtype in BYTES for own in matrices)
    # Products of integers became layers on numbers that are rounded.
    names = " ".join(str(node.target) for node in model.graph.nodes)
    assert "choose_qparams_per_token" in names and "float64" not in model.code


def ratio(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Signal to noise, in dB."""
    return float(10 * torch.log10(expected.square().mean() / (actual - expected).square().mean()))


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_a_network_of_images_by_onnx_runtime(tmp_path, form):
    torch.manual_seed(0)
    model, x = torchvision.models.resnet18(num_classes=100).eval(), torch.randn(2, 3, 64, 64)
    save(to_onnx(model, x), tmp_path / "float.onnx")
    made = tmp_path / "quantised.onnx"
    quantize_static(
        tmp_path / "float.onnx", made, Batches("x", x), quant_format=form, per_channel=True
    )
    again = from_onnx(made)
    found, theirs, numbers = called(again, x), ran(made, x), called(model, x)
    # Levels half-way between two fall to either side; neither result is nearer to the float model.
    assert ratio(found, theirs) > 20
    assert ratio(found, numbers) > ratio(theirs, numbers) - 1.5
    assert ratio(natively(again, x), numbers) > ratio(theirs, numbers) - 1.5
    stored = sum(own.numel() * own.element_size() for own in again.state_dict().values())
    assert stored < 0.27 * sum(own.numel() * 4 for own in model.parameters())


# -- operators, one by one -------------------------------------------------------------------------


def model_of(
    nodes: list[Any],
    inputs: dict[str, Any],
    stored: dict[str, Any],
    opset: int = 21,
    result: int = 1,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(name, *own) for name, own in inputs.items()],
        [helper.make_tensor_value_info("y", result, None)],
        [
            own if isinstance(own, TensorProto) else numpy_helper.from_array(own, name)
            for name, own in stored.items()
        ],
    )
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


def of_few_bits(name: str, kind: int, integers: np.ndarray) -> TensorProto:
    return helper.make_tensor(name, kind, integers.shape, integers.reshape(-1).tolist())


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("columns", [64, 80])
def test_products_with_weights_in_blocks(bits, zeros, columns):
    random = np.random.default_rng(0)
    rows, block = 12, 32
    blocks = -(-columns // block)
    stored: dict[str, Any] = {
        "w": random.integers(0, 256, (rows, blocks, block * bits // 8), dtype=np.uint8),
        "s": random.random(rows * blocks, dtype=np.float32) / 8,
    }
    if zeros:
        stored["z"] = random.integers(0, 256, rows * -(-blocks * bits // 8), dtype=np.uint8)
    node = helper.make_node(
        "MatMulNBits", ["x", *stored], ["y"], domain="com.microsoft", K=columns, N=rows, bits=bits,
        block_size=block,
    )  # fmt: skip
    proto = model_of([node], {"x": (1, [3, columns])}, stored)
    model, x = from_onnx(proto), torch.randn(3, columns)
    torch.testing.assert_close(called(model, x), ran(proto, x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(natively(model, x), called(model, x), rtol=1e-4, atol=1e-4)
    kept = state(model)["w"]
    assert kept == (
        (torch.uint8, (rows, blocks * 16)) if bits == 4 else (torch.int8, (rows, blocks * 32))
    )


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize("axis", [0, 1])
def test_blocks_of_integers_of_4_bits(kind, axis):
    random = np.random.default_rng(0)
    low = -8 if kind == TensorProto.INT4 else 0
    weight = random.integers(low, low + 16, (64, 32))
    shape = (2, 32) if axis == 0 else (64, 1)
    scales = random.random(shape, dtype=np.float32)
    zeros = random.integers(low, low + 16, shape)
    stored = {"w": of_few_bits("w", kind, weight), "s": scales, "z": of_few_bits("z", kind, zeros)}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=axis, block_size=32),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    proto = model_of(nodes, {"x": (1, [3, 64])}, stored)
    model, x = from_onnx(proto), torch.randn(3, 64)
    torch.testing.assert_close(called(model, x), ran(proto, x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(natively(model, x), called(model, x), rtol=1e-4, atol=1e-4)
    kept = [own.dtype for own in model.state_dict().values() if own.dim() == 2 and own.numel() > 64]
    assert kept == [torch.uint8]


@pytest.mark.parametrize("kind", [TensorProto.INT2, TensorProto.UINT2])
@pytest.mark.parametrize("is_raw", [False, True])
def test_integers_of_2_bits(kind, is_raw):
    low = -2 if kind == TensorProto.INT2 else 0
    weight = np.random.default_rng(0).integers(low, low + 4, (6, 7))
    tensor = of_few_bits("w", kind, weight)
    if is_raw:
        places = (np.append(weight.reshape(-1), [0, 0]).reshape(-1, 4) & 3) << [0, 2, 4, 6]
        tensor.ClearField("int32_data")
        tensor.raw_data = places.sum(-1).astype(np.uint8).tobytes()
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"]),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    proto = model_of(nodes, {"x": (1, [3, 6])}, {"w": tensor, "s": np.float32(0.5)}, opset=25)
    x = torch.randn(3, 6)
    expected = x @ (torch.from_numpy(weight).float() * 0.5)
    torch.testing.assert_close(called(from_onnx(proto), x), expected)


def test_levels_of_16_bits_and_narrow_types():
    stored = {"s": np.float32(0.01), "z": np.uint16(1000)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    proto = model_of(nodes, {"x": (1, [3, 8])}, stored)
    x = torch.randn(3, 8) * 10
    torch.testing.assert_close(called(from_onnx(proto), x), ran(proto, x))


@pytest.mark.parametrize("zeros", [None, np.uint8(128)])
def test_scales_that_are_computed(zeros):
    stored = {} if zeros is None else {"z": zeros}
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", *stored], ["y"])]
    proto = model_of(nodes, {"x": (1, [3, 8]), "s": (1, [])}, stored, result=TensorProto.UINT8)
    x, s = torch.randn(3, 8), torch.tensor(0.02)
    assert torch.equal(called(from_onnx(proto), x, s), ran(proto, x, s))


def test_the_largest_differences_of_rounding_are_one_level():
    stored = {"s": np.float32(0.1), "z": np.int8(3)}
    proto = model_of(
        [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])], {"x": (1, [2001])}, stored,
        result=TensorProto.INT8,
    )  # fmt: skip
    x = torch.arange(-1000, 1001) / 80
    apart = called(from_onnx(proto), x).int() - ran(proto, x).int()
    # Ties: the reciprocal of the scale is rounded here, the quotient in ONNX.
    assert int(apart.abs().max()) <= 1 and int((apart != 0).sum()) < 20


def test_bias_of_32_bits_becomes_numbers():
    stored = {
        "w": np.ones((4, 3, 1, 1), np.int8), "ws": np.full(4, 0.5, np.float32), "wz": np.zeros(4, np.int8),
        "b": np.array([1, -2, 3, 100000], np.int32), "bs": np.full(4, 0.25, np.float32),
        "bz": np.zeros(4, np.int32),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0),
        helper.make_node("Conv", ["x", "wd", "bd"], ["y"]),
    ]
    proto = model_of(nodes, {"x": (1, [1, 3, 4, 4])}, stored)
    model, x = from_onnx(proto), torch.randn(1, 3, 4, 4)
    assert state(model)["b"] == (torch.float32, (4,))
    assert model.get_parameter("b").tolist() == [0.25, -0.5, 0.75, 25000.0]
    torch.testing.assert_close(called(model, x), ran(proto, x))


@pytest.mark.parametrize(
    ("kind", "numbers"), [("QLinearAdd", torch.add), ("QLinearMul", torch.mul)]
)
def test_arithmetic_on_levels(kind, numbers):
    stored = {
        "as": np.float32(0.05), "az": np.uint8(10), "bs": np.float32(0.02), "bz": np.uint8(30),
        "ys": np.float32(0.1), "yz": np.uint8(5),
    }  # fmt: skip
    node = helper.make_node(
        kind, ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"], domain="com.microsoft"
    )
    proto = model_of([node], {"a": (2, [4, 5]), "b": (2, [5])}, stored, result=TensorProto.UINT8)
    a, b = (torch.randint(0, 256, shape, dtype=torch.uint8) for shape in ((4, 5), (5,)))
    got = called(from_onnx(proto), a, b)
    exact = numbers((a.float() - 10) * 0.05, (b.float() - 30) * 0.02)
    assert torch.equal(got, torch.clamp(torch.round(exact * 10) + 5, 0, 255).to(torch.uint8))
    assert (got.int() - ran(proto, a, b).int()).abs().max() <= 1


def test_products_of_integers_without_scales():
    stored = {"b": np.arange(-6, 6, dtype=np.int8).reshape(3, 4), "az": np.uint8(7)}
    node = helper.make_node("MatMulInteger", ["a", "b", "az"], ["y"])
    proto = model_of([node], {"a": (2, [2, 3])}, stored, result=TensorProto.INT32)
    a = torch.randint(0, 256, (2, 3), dtype=torch.uint8)
    assert torch.equal(called(from_onnx(proto), a), ran(proto, a))


def test_what_cannot_be_read_is_named():
    stored = {
        "w": np.zeros((4, 1, 16), np.uint8), "s": np.ones(4, np.float32),
        "g": np.arange(32, dtype=np.int32),
    }  # fmt: skip
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s", "", "g"], ["y"], "product", domain="com.microsoft", K=32, N=4,
        bits=4, block_size=32,
    )  # fmt: skip
    proto = model_of([node], {"x": (1, [1, 32])}, stored)
    with pytest.raises(
        OnnxImportError, match=r"node 'product' \(MatMulNBits of com.microsoft\): g_idx"
    ):
        from_onnx(proto)
    proto.graph.node[0].input[:] = ["x", "w", "s"]
    proto.graph.node[0].attribute[1].i = 5
    with pytest.raises(OnnxImportError, match=r"a weight of shape \[4, 1, 16\], expected|4 scales"):
        from_onnx(proto)


@pytest.mark.parametrize(
    ("kind", "weight", "zero", "scales"),
    [
        ("MatMulInteger", [4, 4], np.int8(3), [4]),
        ("MatMulInteger", [4, 4], np.int8(3), [4, 1]),
        ("MatMulInteger", [4, 4], None, [1, 4]),
        ("ConvInteger", [4, 4, 1, 1], None, [4]),
        ("ConvInteger", [4, 4, 1, 1], None, [4, 1, 1]),
    ],
)
def test_scales_of_products_along_any_dimension(kind, weight, zero, scales):
    torch.manual_seed(0)
    stored = {
        "w": torch.randint(0, 9, weight, dtype=torch.int8 if zero is not None else torch.uint8).numpy(),
        "ws": torch.rand(scales).numpy(), **({} if zero is None else {"wz": zero}),
    }  # fmt: skip
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node(kind, ["q", "w", "z", *(["wz"] if zero is not None else [])], ["p"]),
        helper.make_node("Cast", ["p"], ["numbers"], to=1),
        helper.make_node("Mul", ["s", "ws"], ["scale"]),
        helper.make_node("Mul", ["numbers", "scale"], ["y"]),
    ]
    shape = [4] * 2 if kind == "MatMulInteger" else [1, 4, 4, 4]
    proto = model_of(nodes, {"x": (1, shape)}, stored)
    x = torch.randn(shape)
    torch.testing.assert_close(called(from_onnx(proto), x), ran(proto, x), rtol=1e-4, atol=1e-4)
