"""The example programs run, with the described results."""

import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kit import needs_subject

pytestmark = needs_subject

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name):
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_runs_and_prints(name, capsys, monkeypatch):
    # As for a script.
    monkeypatch.syspath_prepend(EXAMPLES)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_feature_extraction_agrees_with_torchvision():
    from torchvision.models import resnet18
    from torchvision.models.feature_extraction import create_feature_extractor

    model = resnet18(weights=None).eval()
    wanted = {"layer1": "low", "layer2.0.add": "sum", "avgpool": "pooled"}
    x = torch.randn(1, 3, 64, 64)
    features = load("feature_extraction").extractor(model, wanted)
    with torch.no_grad():
        expected = create_feature_extractor(model, wanted)(x)
        result = features(x)
    assert list(result) == ["low", "sum", "pooled"]
    for key, value in expected.items():
        assert torch.equal(result[key], value)
    assert "fc" not in dict(features.named_children())
    with pytest.raises(ValueError, match="nothing"):
        load("feature_extraction").extractor(model, {"nothing": "nothing"})


def test_decomposition_leaves_no_operator_with_a_rule():
    example = load("decompose")
    traced = example.fx.symbolic_trace(example.Net())
    decomposed = example.decompose(traced)
    targets = {n.target for n in decomposed.graph.nodes if n.op == "call_function"}
    assert not targets & set(example.RULES)
    x = torch.randn(3, 8)
    torch.testing.assert_close(decomposed(x), traced(x))


def test_inverse_of_an_inverse():
    example = load("invert")
    x = torch.linspace(-2, 1, 9)
    again = example.invert(example.invert(example.squash))
    torch.testing.assert_close(again(x), example.squash(x))
    with pytest.raises(example.NotInvertible, match="mul"):
        example.invert(lambda x: x * x)


def test_profiler_measures_every_node():
    example = load("profile_nodes")
    profiler = example.Profiler(example.model())
    x = torch.randn(1, 3, 16, 16)
    profiler.run(x)
    profiler.run(x)
    assert {len(times) for times in profiler.seconds.values()} == {2}
    shapes = {n.name: shape for n, shape in profiler.shapes.items()}
    assert shapes["_0"] == (1, 16, 16, 16) and shapes["_5"] == (1, 10)
    assert profiler.table().count("\n") == len(profiler.graph.nodes)


def test_module_tracer_knows_the_path_of_each_node():
    example = load("module_tracer")
    tracer = example.PathTracer()
    graph = tracer.trace(torch.nn.Sequential(example.Layer(4)))
    paths = {node.name: tracer.path_of[node] for node in graph.nodes}
    assert paths["input_1"] == ""
    assert paths["_0_attention_qkv"] == "0.attention.qkv"
    assert paths["softmax"] == "0.attention"
    assert paths["add"] == paths["add_1"] == "0"


def test_dropout_is_gone():
    example = load("remove_dropout")
    traced = example.fx.symbolic_trace(example.Net())
    cleaned = example.RemoveDropout(traced).transform()
    assert "dropout" not in cleaned.code
    assert "dropout" in traced.code
    x = torch.randn(2, 4)
    assert torch.equal(cleaned(x), cleaned(x))


def test_shapes_are_propagated():
    example = load("shape_propagation")
    network = example.model()
    network(torch.zeros(1, 3, 32, 32))
    traced = example.fx.symbolic_trace(network.eval())
    example.propagate(traced, (5, 3, 32, 32))
    shapes = [n.meta["shape"] for n in traced.graph.nodes if "shape" in n.meta]
    assert shapes[0] == (5, 3, 32, 32) and shapes[1] == (5, 8, 15, 15) and shapes[-1] == (5, 10)


def test_custom_leaves():
    example = load("custom_tracer")
    graph = example.trace(example.Net()).graph
    calls = [n for n in graph.nodes if n.op == "call_module"]
    assert [n.target for n in calls] == ["rotate.0", "rotate.1", "linear"]
    assert [n.target for n in graph.nodes if n.op == "call_function"] == [example.clipped]


def test_patterns_are_replaced():
    example = load("replace_pattern")
    model = example.Net()
    traced, places = example.optimize(model)
    assert places == 4
    assert traced.code.count("silu(") == 2 and traced.code.count("addcmul(") == 2
    x = torch.randn(2, 4)
    torch.testing.assert_close(traced(x), model(x))


def columns(printed, opcode):
    """The names of nodes with this opcode in printed tables, in order."""
    rows = [line.split() for line in printed.splitlines() if line.startswith(opcode)]
    return [row[1] for row in rows]


def test_a_backend_prints_the_graphs_of_a_function_and_of_a_module(capsys):
    example = load("backend_prints_graph")
    example.main()
    printed = capsys.readouterr().out
    assert printed.count("my_compiler() called with graph:") == 2
    assert columns(printed, "placeholder") == ["x", "y", "x"]
    assert columns(printed, "call_function") == ["cos", "sin", "cos", "relu"]
    assert columns(printed, "call_method") == ["add"]
    assert "((add,),)" in printed and "((relu,),)" in printed


def test_a_composed_backend_falls_through(capsys):
    example = load("backend_composed")
    example.main()
    printed = capsys.readouterr().out
    assert printed.count("tensorrt: tensorrt is missing: pip install tensorrt") == 2
    assert printed.count("onnxruntime: autograd records it") == 1
    assert "onnxruntime declined: autograd records it" in printed
    assert "ran: 3 PyTorch" in printed


def test_a_compiler_gets_forward_and_backward_graphs(capsys):
    example = load("backend_aot_autograd")
    example.main()
    printed = capsys.readouterr().out
    assert printed.count("def forward(self, ") == 2
    assert "torch.ops.aten.addmm.default(primals_2" in printed
    assert "tangents_1" in printed
    assert "the gradients are those of PyTorch" in printed


def test_a_branch_on_data_makes_three_graphs(capsys):
    torch._dynamo.reset()
    example = load("backend_graph_breaks")
    example.main()
    calls = [[n.name for n in g.graph.nodes if n.op.startswith("call_")] for g in example.graphs]
    assert len(calls) == 3
    assert calls[0] == ["abs_1", "add", "div", "sum_1", "lt"]
    assert sorted(map(len, calls[1:])) == [1, 2]
    lines = capsys.readouterr().out.splitlines()
    branch = next(line for line in lines if "a branch depends on the values of a tensor" in line)
    source = example.toy_example.__code__
    assert f"{source.co_filename}:{source.co_firstlineno + 2}, in toy_example" in branch


def test_training_with_rounded_weights_wins_accuracy_back():
    torch.manual_seed(0)
    found = load("quantize_digits").compare(epochs=6)
    assert found["float"] > 90
    assert abs(found["int8"] - found["float"]) < 2
    assert found["int3 after training"] + 1 < found["int3 while training"]
    assert found["float"] - found["int4 while training"] < 3


def test_training_with_rounded_weights_needs_fewer_bits_for_text():
    torch.manual_seed(0)
    found = load("quantize_text").compare(steps=120, evaluated=4000)
    assert found["float"] < 4.2
    assert abs(found["int8"] - found["float"]) < 0.05
    assert abs(found["int4 after training"] - found["float"]) < 0.15
    # After so few steps they are nearly the same, and which is faster decides the last bits of each step.
    assert found["int4 after training"] < found["int3 after training"] + 0.01
    assert found["int4 while training"] < found["int4 after training"]


@pytest.mark.parametrize(
    "example, processes",
    [
        ("pipeline_gpt2.py", "2"),
        ("tensor_parallel_gpt2.py", "2"),
        ("data_parallel_gpt2.py", "4"),
    ],
)
def test_a_model_trains_on_several_processes(example, processes):
    """The losses are those of one process, which the example checks."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        processes,
    ]
    done = subprocess.run(
        [*command, str(EXAMPLES / example)],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("step ")]
    assert len(lines) == 4
    for line in lines:
        ours, _, theirs = line.partition("loss ")[2].partition(", on one process ")
        assert abs(float(ours) - float(theirs)) < 1e-4
