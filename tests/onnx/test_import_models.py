"""ONNX models that are read: names, graphs, sizes and results, against the model and ONNX Runtime."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
import torchvision
import transformers
from torch import nn

import corsac
import onnx
from corsac.analysis import TensorSpec
from corsac.onnx import OPSETS, from_onnx, readable_operators, save, to_onnx
from corsac.onnx._spellings import BITS, COMPARISONS, FLOAT_FUNCTIONS, FUNCTIONS, LOGIC
from onnx import helper, numpy_helper


def called(model: Any, *inputs: torch.Tensor) -> Any:
    with torch.no_grad():
        return model(*inputs)


def close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5, check_stride=False)


def ran(proto: onnx.ModelProto, *inputs: torch.Tensor) -> list[torch.Tensor]:
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [own.name for own in session.get_inputs()]
    feed = dict(zip(names, (x.numpy() for x in inputs), strict=True))
    return [torch.from_numpy(np.asarray(own)) for own in session.run(None, feed)]


def small(
    nodes: list[Any],
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    stored: Any = (),
    opset: int = 20,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(name, *own) for name, own in inputs.items()],
        [helper.make_tensor_value_info(name, *own) for name, own in outputs.items()],
        [numpy_helper.from_array(own, name) for name, own in dict(stored).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def calls(model: corsac.fx.GraphModule) -> list[corsac.fx.Node]:
    return [node for node in model.graph.nodes if node.op == "call_function"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)

    def forward(self, x):
        x = F.gelu(self.norm(self.conv(x)))
        return self.head(x.mean((2, 3))).softmax(-1)


class Recommender(nn.Sequential):
    """The layers of DeepRecommender, narrower."""

    def __init__(self):
        super().__init__(
            nn.Linear(300, 64), nn.SELU(), nn.Linear(64, 32), nn.SELU(), nn.Dropout(0.8), nn.Linear(32, 64),
            nn.SELU(), nn.Linear(64, 300), nn.SELU(),
        )  # fmt: skip


class Tokens(nn.Module):
    """A language model as a function of tokens alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids):
        places = torch.arange(ids.shape[1])[None]
        result = self.model(ids, attention_mask=torch.ones_like(ids), position_ids=places)
        return result[0]


def language_model(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "bert":
        config = transformers.BertConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
            vocab_size=100, max_position_embeddings=128, attn_implementation="eager",
        )  # fmt: skip
        return Tokens(transformers.BertModel(config)).eval()
    config = transformers.GPT2Config(
        n_embd=32, n_layer=2, n_head=4, vocab_size=100, n_positions=128, use_cache=False,
        bos_token_id=0, eos_token_id=0, attn_implementation="eager",
    )  # fmt: skip
    return Tokens(transformers.GPT2LMHeadModel(config)).eval()


# -- models that corsac wrote ----------------------------------------------------------------------


@pytest.mark.parametrize("opset", OPSETS)
def test_every_opset_that_is_written_is_read(opset):
    model, x = Net().eval(), torch.randn(2, 3, 6, 6)
    again = from_onnx(to_onnx(model, x, opset=opset))
    close(called(again, x), called(model, x))


def test_names_are_those_of_the_model():
    model, x = Net().eval(), torch.randn(2, 3, 6, 6)
    again = from_onnx(to_onnx(model, x, output_names=["scores"]))
    assert isinstance(again, corsac.fx.GraphModule) and not again.training
    assert set(again.state_dict()) == set(model.state_dict()) - {"norm.num_batches_tracked"}
    assert {name for name, _ in again.named_buffers()} == {"norm.running_mean", "norm.running_var"}
    assert [node.target for node in again.graph.find_nodes(op="placeholder")] == ["x"]
    result = again.graph.output_node().args[0]
    assert result.name == "scores"
    assert again.graph.find_nodes(op="placeholder")[0].meta["declared_input"] == {
        "dtype": torch.float32, "shape": (2, 3, 6, 6), "sizes": (2, 3, 6, 6),
    }  # fmt: skip
    again.load_state_dict({name: own * 2 for name, own in again.state_dict().items()})


@pytest.mark.parametrize(
    "make",
    [
        torchvision.models.resnet18,
        torchvision.models.mobilenet_v2,
        torchvision.models.mobilenet_v3_small,
    ],
)
def test_networks_of_images(make):
    torch.manual_seed(0)
    model, x = make(num_classes=10).eval(), torch.randn(1, 3, 64, 64)
    again = from_onnx(to_onnx(model, x))
    close(called(again, x), called(model, x))
    lowered = corsac.lower(again, "corsac", x, strict=True)
    torch.testing.assert_close(lowered(x), called(model, x), rtol=1e-3, atol=1e-4)
    assert {node.op for node in again.graph.nodes} == {
        "placeholder", "get_attr", "call_function", "output",
    }  # fmt: skip


def test_layers_of_a_recommender():
    torch.manual_seed(0)
    model, x = Recommender().eval(), torch.randn(4, 300)
    again = from_onnx(to_onnx(model, x))
    assert len(calls(again)) == 8
    close(called(again, x), called(model, x))
    fast = corsac.compile(again)
    close(called(fast, x), called(model, x))
    close(called(fast, x), called(model, x))


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_captured_language_models(kind):
    model, ids = language_model(kind), torch.randint(0, 100, (2, 9))
    again = from_onnx(to_onnx(corsac.capture(model, ids), ids))
    close(called(again, ids), called(model, ids))
    close(corsac.lower(again, "corsac", ids, strict=True)(ids), called(model, ids))


def test_recurrent_state_of_sizes_from_shapes():
    def program(x, y):
        b, n = x.shape[0], x.shape[1]
        z = x.reshape(n, b).repeat(2, 1)
        causal = F.scaled_dot_product_attention(y, y, y, is_causal=True)
        return z, torch.arange(b * 2 + 1), x.new_zeros(b, (n + 1) // 2), causal, b * n

    traced = corsac.fx.symbolic_trace(program).eval()
    proto = to_onnx(traced, (TensorSpec(("b", "n")), TensorSpec((1, 2, "b", 4))))
    again = from_onnx(proto)
    for b, n in ((2, 3), (5, 4), (11, 7)):
        x, y = torch.randn(b, n), torch.randn(1, 2, b, 4)
        *tensors, size = program(x, y)
        *actual, number = called(again, x, y)
        close(list(actual), tensors)
        assert int(number) == size


# -- models of torch.onnx --------------------------------------------------------------------------


def exported(model: nn.Module, x: torch.Tensor, **options: Any) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), file, dynamo=False, input_names=["x"], **options)
    return file.getvalue()


@pytest.mark.parametrize("opset", [13, 17, 20])
def test_networks_of_images_by_torch_onnx(opset):
    torch.manual_seed(0)
    model, x = (
        torchvision.models.mobilenet_v3_small(num_classes=5).eval(),
        torch.randn(2, 3, 64, 64),
    )
    data = exported(model, x, opset_version=opset, dynamic_axes={"x": {0: "batch"}})
    again = from_onnx(data)
    close(called(again, x), called(model, x))
    close(called(again, x[:1]), called(model, x[:1]))


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_language_models_by_torch_onnx(kind):
    model, ids = language_model(kind), torch.randint(0, 100, (2, 9))
    fixed = from_onnx(exported(model, ids, opset_version=17))
    close(called(fixed, ids), called(model, ids))
    # Nothing is left of the arithmetic on shapes.
    names = [str(node.target) for node in fixed.graph.nodes]
    assert not [name for name in names if "sym_size" in name or "full" in name]
    assert not [
        own
        for own in fixed.buffers()
        if own.dtype == torch.int64 and own.dim() == 1 and own.numel() == 4
    ]
    free = from_onnx(exported(model, ids, opset_version=17, dynamic_axes={"x": {0: "b", 1: "t"}}))
    for shape in ((2, 9), (1, 5), (3, 40)):
        ids = torch.randint(0, 100, shape)
        close(called(free, ids), called(model, ids))
    bound = from_onnx(
        exported(model, ids, opset_version=17, dynamic_axes={"x": {0: "b", 1: "t"}}),
        sizes={"b": 3, "t": 40},
    )
    close(called(bound, ids), called(model, ids))
    assert "sym_size" not in " ".join(str(node.target) for node in bound.graph.nodes)
    close(corsac.lower(bound, "corsac", ids, strict=True)(ids), called(model, ids))


# -- sources ---------------------------------------------------------------------------------------


def test_paths_bytes_and_messages(tmp_path):
    model, x = Net().eval(), torch.randn(2, 3, 6, 6)
    proto = to_onnx(model, x)
    save(proto, tmp_path / "net.onnx")
    for source in (
        proto, proto.SerializeToString(), tmp_path / "net.onnx", str(tmp_path / "net.onnx"),
    ):  # fmt: skip
        close(called(corsac.from_onnx(source), x), called(model, x))
    with pytest.raises(TypeError, match=r"is a path, bytes or an onnx\.ModelProto, not int"):
        corsac.from_onnx(3)


def test_weights_beside_the_model(tmp_path):
    model, x = Net().eval(), torch.randn(2, 3, 6, 6)
    path = tmp_path / "net.onnx"
    onnx.save_model(
        to_onnx(model, x), path, save_as_external_data=True, location="net.data", size_threshold=0
    )
    assert (tmp_path / "net.data").is_file()
    close(called(from_onnx(path), x), called(model, x))


def test_a_model_that_was_read_is_transformed_and_written():
    model, x = Net().eval(), torch.randn(2, 3, 6, 6)
    again = from_onnx(to_onnx(model, x))
    for node in again.graph.nodes:
        if node.target is F.gelu:
            node.target = torch.relu
            node.kwargs = {}
    again.recompile()
    assert "torch.relu" in again.code
    proto = to_onnx(again, x)
    assert "Relu" in [node.op_type for node in proto.graph.node]
    close(ran(proto, x)[0], called(again, x))


def test_gradients_reach_the_parameters():
    model, x = Net().eval(), torch.randn(2, 3, 6, 6)
    again = from_onnx(to_onnx(model, x))
    again(x)[:, 0].sum().backward()
    model(x)[:, 0].sum().backward()
    close(again.get_parameter("conv.weight").grad, model.conv.weight.grad)


# -- graphs ----------------------------------------------------------------------------------------


def test_initialisers_that_are_inputs_too_are_no_placeholders():
    proto = small(
        [helper.make_node("Add", ["x", "w"], ["y"])], {"x": (1, [2]), "w": (1, [2])}, {"y": (1, [2])},
        {"w": np.array([1, 2], np.float32)},
    )  # fmt: skip
    model = from_onnx(proto)
    assert [node.target for node in model.graph.find_nodes(op="placeholder")] == ["x"]
    assert called(model, torch.ones(2)).tolist() == [2, 3]


def test_names_that_are_no_identifiers():
    stored = {
        "/a/b.c": np.ones(2, np.float32),
        "onnx::Add_1": np.ones(2, np.float32),
        "class": np.ones(2, np.float32),
    }
    nodes = [
        helper.make_node("Add", ["input.1", "/a/b.c"], ["1"]),
        helper.make_node("Add", ["1", "onnx::Add_1"], ["2"]),
        helper.make_node("Add", ["2", "class"], ["3"]),
    ]
    model = from_onnx(small(nodes, {"input.1": (1, [2])}, {"3": (1, [2])}, stored))
    assert [node.target for node in model.graph.find_nodes(op="placeholder")] == ["input_1"]
    assert set(model.state_dict()) == {"a_b.c", "onnx__Add_1", "_class"}
    assert called(model, torch.zeros(2)).tolist() == [3, 3]


def test_a_name_that_is_a_tensor_and_a_prefix():
    stored = {"a": np.ones(2, np.float32), "a.b": np.full(2, 2, np.float32)}
    nodes = [
        helper.make_node("Add", ["x", "a"], ["t"]),
        helper.make_node("Add", ["t", "a.b"], ["y"]),
    ]
    model = from_onnx(small(nodes, {"x": (1, [2])}, {"y": (1, [2])}, stored))
    assert set(model.state_dict()) == {"a", "a_b"}
    assert called(model, torch.zeros(2)).tolist() == [3, 3]


def test_outputs_may_be_inputs_constants_and_repeated():
    proto = small(
        [helper.make_node("Relu", ["x"], ["y"])], {"x": (1, [2])},
        {"y": (1, [2]), "x": (1, [2]), "w": (1, [2])}, {"w": np.ones(2, np.float32)},
    )  # fmt: skip
    y, x, w = called(from_onnx(proto), torch.tensor([-1.0, 1.0]))
    assert (y.tolist(), x.tolist(), w.tolist()) == ([0, 1], [-1, 1], [1, 1])


def test_functions_of_the_model_are_read_in_place():
    function = helper.make_function(
        "own", "scaled", ["a"], ["b"],
        [
            helper.make_node("LeakyRelu", ["a"], ["c"]),
            helper.make_node("Mul", ["c", "c"], ["b"]),
        ],
        [helper.make_opsetid("", 20)], ["alpha"],
    )  # fmt: skip
    reference = function.node[0].attribute.add()
    reference.name, reference.ref_attr_name, reference.type = (
        "alpha",
        "alpha",
        onnx.AttributeProto.FLOAT,
    )
    nodes = [
        helper.make_node("scaled", ["x"], ["h"], domain="own", alpha=0.5),
        helper.make_node("scaled", ["h"], ["y"], domain="own", alpha=0.25),
    ]
    proto = small(nodes, {"x": (1, [3])}, {"y": (1, [3])})
    proto.functions.append(function)
    proto.opset_import.append(helper.make_opsetid("own", 1))
    model = from_onnx(proto)
    assert called(model, torch.tensor([-2.0, 0.0, 3.0])).tolist() == [1, 0, 81]
    assert len(calls(model)) == 4


def branch(value: float, name: str) -> onnx.GraphProto:
    nodes = [
        helper.make_node("Constant", [], [f"{name}_c"], value_float=value),
        helper.make_node("Mul", ["x", f"{name}_c"], [f"{name}_y"]),
    ]
    result = helper.make_tensor_value_info(f"{name}_y", 1, [3])
    return helper.make_graph(nodes, name, [], [result])


def test_branches():
    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch(2, "then"), else_branch=branch(3, "other")
    )
    x = torch.tensor([1.0, -1.0, 4.0])
    free = from_onnx(small([node], {"x": (1, [3]), "c": (9, [])}, {"y": (1, [3])}))
    assert called(free, x, torch.tensor(True)).tolist() == [2, -2, 8]
    assert called(free, x, torch.tensor(False)).tolist() == [3, -3, 12]
    known = from_onnx(small([node], {"x": (1, [3])}, {"y": (1, [3])}, {"c": np.array(True)}))
    assert not known.graph.find_nodes(op="call_module")
    assert called(known, x).tolist() == [2, -2, 8]


def loop(count: dict[str, Any], inputs: dict[str, Any]) -> onnx.ModelProto:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["c_out"]),
            helper.make_node("Add", ["s", "x"], ["s_out"]),
            helper.make_node("Mul", ["s_out", "s_out"], ["row"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("c", 9, []),
            helper.make_tensor_value_info("s", 1, [2]),
        ],
        [
            helper.make_tensor_value_info("c_out", 9, []), helper.make_tensor_value_info("s_out", 1, [2]),
            helper.make_tensor_value_info("row", 1, [2]),
        ],
    )  # fmt: skip
    node = helper.make_node("Loop", ["n", "", "s0"], ["last", "rows"], body=body)
    inputs = inputs | {"s0": (1, [2]), "x": (1, [2])}
    return small([node], inputs, {"last": (1, [2]), "rows": (1, [None, 2])}, count)


def test_loops():
    s, x = torch.zeros(2), torch.tensor([1.0, 2.0])
    known = from_onnx(loop({"n": np.array(3)}, {}))
    last, rows = called(known, s, x)
    assert last.tolist() == [3, 6] and rows.tolist() == [[1, 4], [4, 16], [9, 36]]
    assert not known.graph.find_nodes(op="call_module")
    free = from_onnx(loop({}, {"n": (7, [])}))
    last, rows = called(free, torch.tensor(3), s, x)
    assert last.tolist() == [3, 6] and rows.tolist() == [[1, 4], [4, 16], [9, 36]]
    last, rows = called(free, torch.tensor(0), s, x)
    assert last.tolist() == [0, 0] and rows.shape == (0, 2)


def test_elements_decide_sizes():
    proto = small(
        [helper.make_node("NonZero", ["x"], ["p"]), helper.make_node("Transpose", ["p"], ["y"])],
        {"x": (1, [2, 3])}, {"y": (7, [None, 2])},
    )  # fmt: skip
    x = torch.tensor([[0.0, 1, 0], [2, 0, 3]])
    assert called(from_onnx(proto), x).tolist() == [[0, 1], [1, 0], [1, 2]]
    proto = small(
        [helper.make_node("Reshape", ["x", "s"], ["y"])],
        {"x": (1, [6]), "s": (7, [2])},
        {"y": (1, [None, None])},
    )
    assert called(from_onnx(proto), torch.arange(6.0), torch.tensor([2, -1])).shape == (2, 3)


def test_old_versions_of_operators():
    nodes = [
        helper.make_node("Unsqueeze", ["x"], ["a"], axes=[0]),
        helper.make_node("ReduceSum", ["a"], ["b"], axes=[1], keepdims=0),
        helper.make_node("Softmax", ["b"], ["y"], axis=0),
    ]
    proto = small(nodes, {"x": (1, [3, 4, 2])}, {"y": (1, [1, 4, 2])}, opset=11)
    x = torch.randn(3, 4, 2)
    expected = x[None].sum(1).reshape(1, -1).softmax(-1).reshape(1, 4, 2)
    close(called(from_onnx(proto), x), expected)


def test_the_operators_that_are_read_are_listed():
    rows = readable_operators()
    assert rows["Softmax"] == [1, 13] and rows["com.microsoft::MatMulNBits"] == [1]
    assert len(rows) > 190
    # Everything that the exporter writes by one name is read.
    shared = FLOAT_FUNCTIONS | FUNCTIONS | COMPARISONS | LOGIC | BITS
    assert set(shared.values()) <= set(rows)


@pytest.mark.parametrize(
    ("node", "shape", "stored"),
    [
        (helper.make_node("TopK", ["x", "k"], ["y", "places"], axis=-1), [3, 8], {"k": np.array([4])}),
        (
            helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=4),
            [3, 2, 5],
            {"w": np.full((1, 16, 5), 0.1, np.float32), "r": np.full((1, 16, 4), 0.2, np.float32)},
        ),
        (
            helper.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest"),
            [1, 2, 5, 5],
            {"s": np.array([1, 1, 2, 1.5], np.float32)},
        ),
        (
            helper.make_node(
                "AveragePool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1,
                pads=[0, 0, 1, 1],
            ),
            [1, 2, 6, 6],
            {},
        ),
        (helper.make_node("Pad", ["x", "p"], ["y"], mode="wrap"), [2, 5], {"p": np.array([0, 2, 0, 3])}),
    ],
)  # fmt: skip
def test_functions_that_torch_lacks_run_natively(tmp_path, node, shape, stored):
    torch.manual_seed(0)
    proto = small([node], {"x": (1, shape)}, {"y": (1, None)}, stored)
    model, x = from_onnx(proto), torch.randn(*shape)
    close(called(model, x), ran(proto, x)[0])
    corsac.save(model, tmp_path / "model.safetensors", x)
    close(corsac.load(tmp_path / "model.safetensors", framework="torch")(x), ran(proto, x)[0])


def test_free_sizes_have_names():
    dims = ["batch size", "batch_size", "", 3, "n"]
    info = onnx.helper.make_tensor_value_info("x", 1, dims)
    info.type.tensor_type.shape.dim[2].ClearField("value")
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    output = onnx.helper.make_tensor_value_info("y", 1, None)
    graph = onnx.helper.make_graph([node], "small", [info], [output])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)])
    (x,) = from_onnx(proto, sizes={"n": 7}).graph.find_nodes(op="placeholder")
    assert x.meta["declared_input"]["shape"] == (None, None, None, 3, 7)
    assert x.meta["declared_input"]["sizes"] == ("batch_size", "batch_size_", "x_2", 3, 7)


def test_sizes_have_to_be_symbols_of_the_model():
    proto = to_onnx(Net().eval(), torch.randn(2, 3, 6, 6), dynamic={"x": {0: "batch"}})
    with pytest.raises(ValueError, match="sizes: no input has a dimension bach"):
        from_onnx(proto, sizes={"bach": 1})
    model = from_onnx(proto, sizes={"batch": 4})
    assert model.graph.find_nodes(op="placeholder")[0].meta["declared_input"]["shape"] == (
        4,
        3,
        6,
        6,
    )


def test_results_on_sizes_have_the_type_of_the_sizes():
    proto = small(
        [
            helper.make_node("Shape", ["x"], ["sizes"]),
            helper.make_node("Where", ["first", "sizes", "rest"], ["chosen"]),
            helper.make_node("Gather", ["sizes", "zero"], ["size"]),
            helper.make_node("Cast", ["size"], ["limit"], to=onnx.TensorProto.INT32),
            helper.make_node("Range", ["start", "limit", "step"], ["places"]),
        ],
        {"x": (1, ["a", "b"])},
        {"chosen": (7, [2]), "places": (6, [None])},
        {
            "first": np.array([True, False]), "rest": np.array([-1, -1]), "zero": np.array(0),
            "start": np.array(0, np.int32), "step": np.array(1, np.int32),
        },
    )  # fmt: skip
    x = torch.zeros(3, 4)
    close(list(from_onnx(proto)(x)), ran(proto, x))


@pytest.mark.parametrize("rank", [None, 1])
def test_values_of_loops_may_grow(rank):
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_on"], ["again"]),
            helper.make_node("Shape", ["rows"], ["sizes"]),
            helper.make_node("Cast", ["sizes"], ["numbers"], to=1),
            helper.make_node("Concat", ["rows", "numbers"], ["more"], axis=0),
        ],
        "body",
        [
            helper.make_tensor_value_info("at", 7, []),
            helper.make_tensor_value_info("go_on", 9, []),
            helper.make_tensor_value_info("rows", 1, None),
        ],
        [
            helper.make_tensor_value_info("again", 9, []),
            helper.make_tensor_value_info("more", 1, None),
        ],
    )
    proto = small(
        [helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)],
        {"count": (7, []), "x": (1, [1])},
        {"y": (1, None if rank is None else [None] * rank)},
    )
    model, x = from_onnx(proto), torch.zeros(1)
    for count in (0, 1, 3):
        close(model(torch.tensor(count), x), ran(proto, torch.tensor(count), x)[0])


def test_products_of_matrices_of_integers_have_their_type():
    node = helper.make_node("Gemm", ["a", "b"], ["y"])
    proto = small([node], {"a": (6, [2, 3]), "b": (6, [3, 2])}, {"y": (6, [2, 2])})
    a, b = torch.randint(-9, 9, (2, 3)).int(), torch.randint(-9, 9, (3, 2)).int()
    y = from_onnx(proto)(a, b)
    assert y.dtype == torch.int32 and torch.equal(y, a @ b)


@pytest.mark.parametrize("name", ["transBatchA", "transBatchB"])
def test_batches_behind_matrices_are_refused(name):
    node = helper.make_node("FusedMatMul", ["a", "a"], ["y"], domain="com.microsoft", **{name: 1})
    proto = small([node], {"a": (1, [2, 2, 2])}, {"y": (1, [2, 2, 2])})
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(ValueError, match=r"node 'y' \(FusedMatMul .*: matrices whose batch"):
        from_onnx(proto)


def test_old_clips_of_half_precision():
    node = helper.make_node("Clip", ["x"], ["y"], min=0.0)
    proto = small([node], {"x": (10, [3])}, {"y": (10, [3])}, opset=10)
    x = torch.tensor([-1.0, 0.5, 60000.0], dtype=torch.float16)
    assert torch.equal(from_onnx(proto)(x), x.clamp(min=0))


@pytest.mark.parametrize(("sizes", "scales"), [([1, 1, 1, 3], None), (None, [1.0, 1.0, 0.25, 0.5])])
def test_dimensions_that_become_one_long(sizes, scales):
    given = {"n": np.array(sizes)} if scales is None else {"n": np.array(scales, np.float32)}
    node = helper.make_node(
        "Resize", ["x", "", "", "n"] if scales is None else ["x", "", "n"], ["y"], mode="linear",
        coordinate_transformation_mode="pytorch_half_pixel",
    )  # fmt: skip
    proto = small([node], {"x": (1, [1, 1, 4, 6])}, {"y": (1, None)}, given)
    x = torch.randn(1, 1, 4, 6)
    close(from_onnx(proto)(x), ran(proto, x)[0])


@pytest.mark.parametrize(
    ("nodes", "stored"),
    [
        ([("Neg", "sizes", {}), ("Div", "n0 two", {})], {"two": [2, 3]}),
        ([("Neg", "sizes", {}), ("Mod", "n0 two", {"fmod": 1})], {"two": [2, 3]}),
        ([("Neg", "sizes", {}), ("Mod", "n0 two", {})], {"two": [2, 3]}),
        ([("Unsqueeze", "sizes zero", {}), ("ReduceProd", "n0 zero", {})], {"zero": [0]}),
        ([("ReduceProd", "sizes none", {"noop_with_empty_axes": 1})], {"none": []}),
        ([("Gather", "sizes zero", {}), ("Gather", "table n0", {})], {"zero": [0], "table": [9, 8, 7, 6]}),
        ([("Reshape", "sizes shape", {})], {"shape": [0, 1]}),
    ],
)  # fmt: skip
def test_arithmetic_on_sizes(nodes, stored):
    made = [helper.make_node("Shape", ["x"], ["sizes"])]
    for at, (kind, inputs, attributes) in enumerate(nodes):
        result = "y" if at == len(nodes) - 1 else f"n{at}"
        made.append(helper.make_node(kind, inputs.split(), [result], **attributes))
    arrays = {name: np.array(own, np.int64) for name, own in stored.items()}
    proto = small(made, {"x": (1, ["a", "b"])}, {"y": (7, None)}, arrays)
    model = from_onnx(proto)
    for shape in ((3, 4), (2, 9)):
        x = torch.zeros(shape)
        close(model(x), ran(proto, x)[0])
