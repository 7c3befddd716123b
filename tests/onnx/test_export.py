"""ONNX models exported by corsac: their contents, and equal results."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corsac
import onnx
from corsac import fx
from corsac.analysis import TensorSpec
from corsac.onnx import OPSETS, ExportError, _export, operators, save, to_onnx
from corsac.onnx._table import translates


def run(proto: onnx.ModelProto, *inputs: torch.Tensor) -> list[torch.Tensor]:
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [x.name for x in session.get_inputs()]
    feed = dict(zip(names, (x.numpy() for x in inputs), strict=True))
    return [torch.from_numpy(np.asarray(x)) for x in session.run(None, feed)]


def close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=2e-5, atol=2e-6, check_stride=False)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)

    def forward(self, x):
        x = F.gelu(self.norm(self.conv(x)))
        return self.head(x.mean((2, 3))).softmax(-1)


@pytest.mark.parametrize("opset", OPSETS)
def test_every_opset_is_written(opset):
    model, x = Net().eval(), torch.randn(2, 3, 6, 6)
    proto = to_onnx(model, x, opset=opset)
    assert proto.opset_import[0].version == opset and proto.producer_name == "corsac"
    close(run(proto, x)[0], model(x).detach())


def test_other_opsets_are_refused():
    with pytest.raises(ValueError, match="opset 9 cannot be written: 18 to 21 can"):
        to_onnx(Net().eval(), torch.randn(2, 3, 6, 6), opset=9)


def test_names_are_those_of_the_program():
    proto = to_onnx(Net().eval(), torch.randn(2, 3, 6, 6))
    assert [x.name for x in proto.graph.input] == ["x"]
    weights = {x.name for x in proto.graph.initializer}
    assert {"conv.weight", "norm.running_mean", "head.bias"} <= weights
    given = to_onnx(
        Net().eval(), torch.randn(2, 3, 6, 6), input_names=["image"], output_names=["scores"]
    )
    assert given.graph.input[0].name == "image" and given.graph.output[0].name == "scores"


def test_sizes_may_be_symbols():
    model = Net().eval()
    proto = to_onnx(model, torch.randn(2, 3, 6, 6), dynamic={"x": {0: "batch", 2: "h", 3: "w"}})
    shape = proto.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in shape] == ["batch", 3, "h", "w"]
    assert proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    for size in ((1, 6, 6), (5, 9, 7)):
        x = torch.randn(size[0], 3, *size[1:])
        close(run(proto, x)[0], model(x).detach())
    with pytest.raises(ValueError, match="there is no input 'y'; inputs are x"):
        to_onnx(model, torch.randn(2, 3, 6, 6), dynamic={"y": {0: "batch"}})


def test_sizes_are_computed_from_shapes():
    def program(x, y):
        b, n = x.shape[0], x.shape[1]
        z = x.reshape(n, b).repeat(2, 1)
        causal = F.scaled_dot_product_attention(y, y, y, is_causal=True)
        return z, torch.arange(b * 2 + 1), x.new_zeros(b, (n + 1) // 2), causal, b * n

    model = fx.symbolic_trace(program).eval()
    proto = to_onnx(model, (TensorSpec(("b", "n")), TensorSpec((1, 2, "b", 4))))
    for b, n in ((2, 3), (5, 4)):
        x, y = torch.randn(b, n), torch.randn(1, 2, b, 4)
        *tensors, size = program(x, y)
        *actual, number = run(proto, x, y)
        close(actual, tensors)
        assert number.item() == size


def test_shared_weights_are_stored_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(50, 8), nn.Linear(8, 50, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.embed(ids))

    model, ids = Tied().eval(), torch.tensor([[1, 2, 3]])
    proto = to_onnx(model, ids)
    large = [x.name for x in proto.graph.initializer if list(x.dims) == [50, 8]]
    assert large == ["embed.weight"]
    close(run(proto, ids)[0], model(ids).detach())


def test_inputs_weights_and_repeated_values_may_be_outputs():
    class Through(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            y = x.relu()
            return x, y, y, self.weight + 0, {"again": x}

    x = torch.randn(2)
    close(run(to_onnx(Through().eval(), x), x), [x, x.relu(), x.relu(), torch.ones(2), x])


def test_unused_operations_and_weights_are_left_out():
    def program(x):
        x.exp()
        return x + 1

    proto = to_onnx(fx.symbolic_trace(program).eval(), torch.randn(2))
    assert [node.op_type for node in proto.graph.node] == ["Add", "Identity"]


def test_flags_are_those_of_the_example():
    model = fx.symbolic_trace(lambda x, k=3: x * k)
    x = torch.randn(2)
    close(run(to_onnx(model.eval(), (x, 5)), x)[0], x * 5)
    close(run(to_onnx(model.eval(), x), x)[0], x * 3)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            lambda x: torch.linalg.matrix_exp(x),
            r"linalg_matrix_exp .*test_export.py:\d+: no transl",
        ),
        (lambda x: x.add_(1), "it writes to x, which is not the program's own"),
        (lambda x: x + torch.rand_like(x), "it uses random numbers"),
        (lambda x: x.int() // x.int(), "an integer divisor that may be zero"),
        (lambda x: x[x > 0], "the type of its value is not known"),
        (lambda x: F.dropout(x, 0.5, True), "it uses random numbers"),
        (lambda x: F.max_pool2d(x[None], 2, return_indices=True)[1], "indices of pooling"),
        (lambda x: x.to(torch.complex64), "no translation of complex64"),
        (lambda x: torch.linalg.norm(x, 2), "the norm of a matrix"),
    ],
)
def test_what_is_not_exact_is_refused(program, message):
    with pytest.raises(ExportError, match=message):
        to_onnx(fx.symbolic_trace(program).eval(), torch.randn(4, 4))


def test_large_models_keep_their_weights_in_a_file_beside(tmp_path, monkeypatch):
    monkeypatch.setattr(_export, "LARGE", 1000)
    model, x = nn.Linear(40, 30).eval(), torch.randn(2, 40)
    save(to_onnx(model, x), tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx.data").stat().st_size >= 40 * 30 * 4
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    close(torch.from_numpy(session.run(None, {"input": x.numpy()})[0]), model(x).detach())


def test_graphs_of_torch_export_are_written():
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

        def forward(self, x):
            return self.layer(x)

    model, x = Wrapped().eval(), torch.randn(2, 5, 16)
    graph = torch.export.export(model, (x,)).run_decompositions({}).module()
    gm = corsac.fx.from_torch(graph)
    lowered = corsac.lower(_evaluated(gm), "onnxruntime", x)
    assert len(lowered.meta["lowering"].parts) == 1
    close(lowered(x), model(x).detach())


def _evaluated(gm: fx.GraphModule) -> fx.GraphModule:
    gm.training = False
    return gm


@pytest.mark.parametrize(
    "programs",
    [
        [
            lambda x: x.softmax(1),
            lambda x: F.softmax(x, 1),
            lambda x: torch.special.softmax(input=x, dim=1),
            lambda x: torch.ops.aten.softmax.int(x, 1),
        ],
        [lambda x: x.clip(0, 1), lambda x: torch.clamp(x, min=0, max=1)],
        [lambda x: 2 - x, lambda x: torch.rsub(x, 2), lambda x: operator.sub(2, x)],
        [
            lambda x: torch.batch_norm(x, None, None, x[0], x[1], False, 0.1, 1e-5, True),
            lambda x: F.batch_norm(x, x[0], x[1]),
        ],
    ],
)
def test_spellings_of_one_operator_are_written_alike(programs):
    x = torch.rand(4, 4)
    written = [to_onnx(fx.symbolic_trace(program).eval(), x).graph.node for program in programs]
    kinds = [[node.op_type for node in nodes] for nodes in written]
    assert kinds == kinds[:1] * len(kinds)


def test_translations_are_for_operators_with_a_row():
    with pytest.raises(KeyError, match="no operator no_such_operator"):
        translates("no_such_operator")(lambda g, input: input)
    with pytest.raises(AssertionError, match="another name"):
        translates("multiply")(lambda g, input, other: input)


def test_the_table_lists_what_is_translated():
    rows = operators()
    assert rows["relu"] == "Not below zero." and rows["nn.Conv2d"].startswith("A convolution")
    assert len(rows) > 300
    assert all(rows.values())
