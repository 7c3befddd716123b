"""ONNX models that are damaged, hostile or not known: each error names what is wrong."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest
import torch

import onnx
from corsac.onnx import OnnxImportError, _import, from_onnx
from onnx import TensorProto, helper, numpy_helper


def model_of(*nodes: Any, stored: Any = (), opset: int = 20, inputs: Any = None) -> onnx.ModelProto:
    given = inputs or {"x": (1, [2, 3])}
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info(name, *own) for name, own in given.items()],
        [helper.make_tensor_value_info("y", 1, None)],
        list(stored),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def refused(model: Any, message: str) -> None:
    with pytest.raises(OnnxImportError, match=message):
        from_onnx(model)


def test_unknown_operators():
    node = helper.make_node("Softmx", ["x"], ["y"], "last")
    refused(
        model_of(node),
        r"node 'last' \(Softmx\): the operator Softmx of ai.onnx 20 is not known; did you mean Softmax\?",
    )
    node = helper.make_node("Fancy", ["x"], ["y"], domain="com.example")
    refused(
        model_of(node),
        r"node 'y' \(Fancy of com.example\): the model has no version of .*com.example",
    )
    model = model_of(node)
    model.opset_import.append(helper.make_opsetid("com.example", 3))
    refused(
        model,
        r"node 'y' \(Fancy of com.example\): the operator Fancy of com.example 3 is not known",
    )


def test_sequences_need_a_length_that_fits():
    info = helper.make_tensor_sequence_value_info("x", 1, ["n"])
    node = helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0)
    graph = helper.make_graph(
        [node], "joined", [info], [helper.make_tensor_value_info("y", 1, None)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    refused(model, "input 'x': it is a sequence: give its length in lengths")
    with pytest.raises(OnnxImportError, match="lengths: z is no sequence"):
        from_onnx(model, lengths={"z": 1})
    with pytest.raises(OnnxImportError, match="a sequence of length 1000000"):
        from_onnx(model, lengths={"x": 10**6})
    parts = [torch.ones(2), torch.zeros(3)]
    assert from_onnx(model, lengths={"x": 2})(parts).tolist() == [1, 1, 0, 0, 0]


def test_a_sequence_in_place_of_a_tensor_is_refused():
    nodes = [
        helper.make_node("SequenceConstruct", ["x"], ["s"]),
        helper.make_node("SoftmaxCrossEntropyLoss", ["s", "s"], ["y"]),
    ]
    refused(model_of(*nodes), "a sequence where a tensor is expected")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ngram_indexes": [0, 2**40]}, "out of range"),
        ({"ngram_counts": [0, 3]}, "n-grams of length 1 at 0 to 3 of the pool"),
        ({"pool_int64s": [1, 1]}, "the same n-gram twice"),
        ({"mode": "IDF", "weights": [1.0]}, "1 weights for 2 n-grams"),
        ({"mode": "ALL"}, "the mode 'ALL'"),
    ],
)
def test_n_grams_that_contradict_each_other(changed, message):
    attributes = {
        "mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0,
        "ngram_counts": [0], "ngram_indexes": [1, 0], "pool_int64s": [4, 5],
    }  # fmt: skip
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **attributes)
    assert from_onnx(model_of(node, inputs={"x": (7, [3])}))(torch.tensor([4, 4, 5])).tolist() == [
        1,
        2,
    ]
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **attributes | changed)
    refused(model_of(node, inputs={"x": (7, [3])}), message)


def test_operators_without_a_translation():
    node = helper.make_node("ImageDecoder", ["x"], ["y"], "picture")
    model = model_of(node, inputs={"x": (2, [100])})
    refused(
        model,
        r"node 'picture' \(ImageDecoder\): the operator ImageDecoder of ai.onnx 20 has no translation",
    )


def test_random_numbers():
    node = helper.make_node("RandomNormalLike", ["x"], ["y"], "noise")
    refused(model_of(node), r"node 'noise' \(RandomNormalLike\): it uses random numbers")


def test_attributes():
    node = helper.make_node("LeakyRelu", ["x"], ["y"], "act", slope=0.5)
    refused(
        model_of(node), r"node 'act' \(LeakyRelu\): there is no attribute 'slope': it has alpha"
    )
    node = helper.make_node("Concat", ["x", "x"], ["y"], "join")
    refused(model_of(node), r"node 'join' \(Concat\): its inputs or attributes do not fit .*axis")
    node = helper.make_node("Transpose", ["x"], ["y"], "turn", perm=[0, 5])
    refused(model_of(node), r"node 'turn' \(Transpose\): ")
    node = helper.make_node("Transpose", ["x"], ["y"], "turn", perm=1)
    refused(model_of(node), r"node 'turn' \(Transpose\): ")


def test_missing_values():
    node = helper.make_node("Add", ["x", "weight"], ["y"], "sum")
    refused(
        model_of(node), r"node 'sum' \(Add\): there is no value 'weight': it is neither an input"
    )
    refused(model_of(helper.make_node("Relu", ["x"], ["z"])), "output 'y': there is no value 'y'")
    node = helper.make_node("Add", ["x"], ["y"], "sum")
    refused(model_of(node), r"node 'sum' \(Add\): its inputs or attributes do not fit")
    first = helper.make_node("Relu", ["later"], ["y"], "first")
    second = helper.make_node("Relu", ["x"], ["later"])
    refused(model_of(first, second), r"node 'first' \(Relu\): there is no value 'later'")


def test_shapes_and_types_that_do_not_fit():
    stored = [numpy_helper.from_array(np.ones((4, 2), np.float32), "w")]
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    refused(
        model_of(node, stored=stored), r"node 'product' \(MatMul\): .* must have same reduction dim"
    )
    stored = [
        numpy_helper.from_array(np.float32(1), "s"), numpy_helper.from_array(np.int8(1), "z"),
    ]  # fmt: skip
    node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], "levels")
    model = model_of(node, stored=stored, inputs={"x": (2, [3])})
    refused(model, r"node 'levels' \(DequantizeLinear\): a zero point of int8 for levels of uint8")
    model = model_of(helper.make_node("Relu", ["x"], ["y"]), inputs={"x": (8, [2])})
    refused(model, "input 'x': tensors of element type string")


def tensor(**fields: Any) -> TensorProto:
    made = TensorProto()
    made.name, made.data_type = "w", 1
    made.dims.extend(fields.pop("dims"))
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(made, name).extend(value)
        else:
            setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (tensor(dims=[2, 3], raw_data=b"1234"), r"4 bytes for a tensor of shape \[2, 3\], expected 24"),
        (tensor(dims=[2, 3], float_data=[1.0]), r"1 elements for a tensor of shape \[2, 3\], expected 6"),
        (tensor(dims=[2**40, 2**20]), r"0 elements for a tensor of shape \[1099511627776, 1048576\]"),
        (tensor(dims=[2, -3], raw_data=b""), r"a tensor of shape \[2, -3\]"),
        (tensor(dims=[2], raw_data=b"12345678", data_type=8), "tensors of element type string"),
        (tensor(dims=[2], raw_data=b"12345678", data_type=99), "tensors of element type 99"),
    ],
)  # fmt: skip
def test_damaged_initialisers(stored, message):
    node = helper.make_node("Add", ["x", "w"], ["y"], "sum")
    refused(
        model_of(node, stored=[stored]), rf"node 'sum' \(Add\): the initialiser 'w' has {message}"
    )


def beside(location: str, length: int = 24, offset: int = 0) -> onnx.ModelProto:
    stored = tensor(dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        entry = stored.external_data.add()
        entry.key, entry.value = key, str(value)
    return model_of(helper.make_node("Add", ["x", "w"], ["y"], "sum"), stored=[stored])


def test_files_beside_the_model_are_in_its_folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(100))
    (folder / "data").write_bytes(bytes(100))
    os.symlink(tmp_path / "secret", folder / "link")
    path = folder / "m.onnx"

    def stored(model: onnx.ModelProto, message: str) -> None:
        path.write_bytes(model.SerializeToString())
        refused(path, message)

    outside = "which is not in the model's folder"
    stored(beside("../secret"), outside)
    stored(beside(str(tmp_path / "secret")), outside)
    stored(beside("link"), outside)
    stored(beside(""), outside)
    stored(beside("sub/../../secret"), outside)
    stored(beside("missing"), "there is no such file")
    stored(beside("data", length=2**40), "expected 24 bytes")
    stored(beside("data", offset=90), "24 bytes from 90 on of 'data', which has 100")
    stored(beside("data", offset=-1), "24 bytes from -1 on of 'data'")
    path.write_bytes(beside("data").SerializeToString())
    assert from_onnx(path).get_parameter("w").shape == (2, 3)
    refused(beside("data"), "elements in the file 'data': give the path of the model")


def test_what_is_no_model(tmp_path):
    refused(b"no model at all", "this is no ONNX model")
    refused(b"", "this is no ONNX model: it has no graph or no operator set")
    path = tmp_path / "text.onnx"
    path.write_text("hello")
    refused(path, r"text.onnx: this is no ONNX model")
    with pytest.raises(FileNotFoundError):
        from_onnx(tmp_path / "missing.onnx")


def test_large_constants_are_not_made_while_the_model_is_read():
    stored = [numpy_helper.from_array(np.array([2**20, 2**20], np.int64), "shape")]
    node = helper.make_node("ConstantOfShape", ["shape"], ["y"])
    model = from_onnx(model_of(node, stored=stored))
    assert [n.args[0] for n in model.graph.nodes if n.op == "call_function"] == [[2**20, 2**20]]
    stored = [numpy_helper.from_array(np.array([2, -1], np.int64), "shape")]
    refused(
        model_of(node, stored=stored), r"node 'y' \(ConstantOfShape\): a tensor of shape \[2, -1\]"
    )


def function(name: str, *calls: str) -> onnx.FunctionProto:
    nodes, last = [], "a"
    for at, call in enumerate(calls):
        domain = "" if call == "Relu" else "own"
        nodes.append(helper.make_node(call, [last], [f"t{at}"], domain=domain))
        last = f"t{at}"
    versions = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], [last], nodes, versions)


def with_functions(*functions: onnx.FunctionProto) -> onnx.ModelProto:
    model = model_of(helper.make_node("f0", ["x"], ["y"], domain="own"))
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.extend(functions)
    return model


def test_functions_without_an_end(monkeypatch):
    monkeypatch.setattr(_import, "_MOST_OPERATORS", 5000)
    refused(with_functions(function("f0", "f0")), "functions that call each other 64 deep")
    # Ten calls of ten calls of ...
    many = [function(f"f{at}", *[f"f{at + 1}"] * 10) for at in range(12)]
    began = time.monotonic()
    refused(with_functions(*many, function("f12", "Relu")), "more than 5000 operators")
    assert time.monotonic() - began < 30


def test_circles_of_values_are_missing_values():
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    refused(model_of(*nodes, helper.make_node("Relu", ["b"], ["y"])), "there is no value 'b'")


def test_changed_bytes_are_an_error_or_another_model():
    stored = [numpy_helper.from_array(np.ones((3, 4), np.float32), "weight")]
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["h"], "product"),
        helper.make_node("Softmax", ["h"], ["y"], "last", axis=1),
    ]
    model = model_of(*nodes, stored=stored, inputs={"x": (1, ["batch", 3])})
    data = model.SerializeToString()
    random = np.random.default_rng(0)
    read = refused = 0
    for _ in range(600):
        changed = bytearray(data)
        for place in random.integers(0, len(data), random.integers(1, 4)):
            changed[place] = random.integers(0, 256)
        try:
            from_onnx(bytes(changed))
            read += 1
        except OnnxImportError:
            refused += 1
    assert read > 50 and refused > 50


def test_sequences_and_sparse_tensors_as_inputs():
    model = model_of(helper.make_node("SequenceLength", ["x"], ["y"]))
    model.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", 1, [2]))
    refused(model, "input 'x': it is a sequence: give its length in lengths")
    model = model_of(helper.make_node("Relu", ["x"], ["y"]))
    model.graph.input[0].type.tensor_type.ClearField("shape")
    refused(model, "input 'x': its rank is not known")
