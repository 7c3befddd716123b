"""Model files with control flow that depends on elements, compared with PyTorch and with the models themselves."""

import operator
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import corsac
import onnx
from corsac.cli import main
from onnx import TensorProto, helper


class Branches(nn.Module):
    """A linear layer, or twice the input, as the sum of the input decides."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda x: self.layer(x).relu(), lambda x: x * 2, (x,))
        return y + 1


class Doubling(nn.Module):
    """Doubles the input until the sum of absolute values exceeds 100, and counts."""

    def forward(self, x):
        count = torch.zeros((), dtype=torch.int64)
        return while_loop(lambda n, x: x.abs().sum() < 100, lambda n, x: (n + 1, x * 2), (count, x))


class Recurrence(nn.Module):
    """A recurrent layer as a scan."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 3), nn.Linear(4, 3)

    def forward(self, xs):
        def step(state, x):
            new = torch.tanh(self.inner(state) + self.outer(x))
            return new, new * 2

        return scan(step, torch.zeros(2, 3), xs)


def exported(model, *inputs):
    return torch.export.export(model.eval(), inputs)


def loaded(model, path, *inputs):
    corsac.save(model, path, inputs)
    return corsac.load(path, framework="numpy")


def assert_equal(found, expected):
    found = found if isinstance(found, (tuple, list)) else (found,)
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other.detach().numpy(), rtol=1e-5, atol=1e-6)
        assert own.dtype == other.detach().numpy().dtype


@pytest.mark.parametrize("sign", [1, -1])
def test_branches_of_exported_programs_run_natively(tmp_path, sign):
    model, x = Branches(), torch.rand(2, 4)
    native = loaded(exported(model, x), tmp_path / "m.safetensors", x)
    assert_equal(native((sign * x).numpy()), model(sign * x))


def test_loops_of_exported_programs_run_natively(tmp_path):
    model, x = Doubling(), torch.rand(3)
    native = loaded(exported(model, x), tmp_path / "m.safetensors", x)
    for scale in (1.0, 10.0, 1000.0):
        assert_equal(native((scale * x).numpy()), Doubling()(scale * x))


def test_scans_of_exported_programs_run_natively(tmp_path):
    model, xs = Recurrence(), torch.rand(5, 2, 4)
    native = loaded(exported(model, xs), tmp_path / "m.safetensors", xs)
    assert_equal(native(xs.numpy()), model(xs))


def test_loaded_modules_of_pytorch_have_the_graphs(tmp_path):
    model, x = Branches(), torch.rand(2, 4)
    corsac.save(exported(model, x), tmp_path / "m.safetensors", (x,))
    module = corsac.load(tmp_path / "m.safetensors")
    with torch.no_grad():
        for own in (x, -x):
            torch.testing.assert_close(module(own), model(own))


class Nested(nn.Module):
    """A branch in a branch."""

    def forward(self, x):
        def inner(x):
            return torch.cond(x.sum() > 5, torch.neg, torch.exp, (x,))

        return torch.cond(x.sum() > 0, inner, lambda x: x * 3, (x,))


def test_branches_inside_of_each_other_run_natively_in_pytorch_and_pickled(tmp_path):
    model, path = Nested(), tmp_path / "m.safetensors"
    native = loaded(exported(model, torch.ones(3)), path, torch.ones(3))
    copied, module = pickle.loads(pickle.dumps(native)), corsac.load(path)
    for factor in (1.0, 2.0, -1.0):
        x = factor * torch.ones(3)
        for own in (native, copied):
            assert_equal(own(x.numpy()), model(x))
        for _ in range(2):
            torch.testing.assert_close(module(x), model(x))


def test_archives_are_converted_and_run(tmp_path):
    for name, model, x in (
        ("branches", Branches(), torch.rand(2, 4)),
        ("loop", Doubling(), torch.rand(3)),
        ("scan", Recurrence(), torch.rand(5, 2, 4)),
    ):
        archive, path = str(tmp_path / f"{name}.pt2"), str(tmp_path / f"{name}.safetensors")
        torch.export.save(exported(model, x), archive)
        assert_equal(
            [own.detach().numpy() for own in _tensors(corsac.from_pt2(archive)(x))],
            _tensors(model(x)),
        )
        assert main(["convert", archive, path]) == 0
        assert_equal(corsac.load(path, framework="numpy")(x.numpy()), model(x))


def _tensors(own):
    return own if isinstance(own, tuple) else (own,)


# -- ONNX ------------------------------------------------------------------------------------------


def value(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def onnx_model(nodes, inputs, outputs, initialisers=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initialisers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def reference(model, *arrays):
    from onnx.reference import ReferenceEvaluator

    names = [own.name for own in model.graph.input]
    return ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))


def in_pytorch(model, *arrays):
    """Results of PyTorch, which the ONNX backend suite checks: the reference evaluator lacks some forms."""
    results = corsac.from_onnx(model)(*map(torch.from_numpy, arrays))
    return [own.numpy() for own in results]


def converted(model, tmp_path, *arguments):
    source, path = tmp_path / "m.onnx", tmp_path / "m.safetensors"
    onnx.save(model, source)
    assert main(["convert", str(source), str(path), *arguments]) == 0
    return corsac.load(path, framework="numpy")


def branches_model():
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2, 2], [1.0, 2.0, 3.0, 4.0])
    then = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y1"])],
        "then",
        [],
        [value("y1", [1, 2])],
        [weight],
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y2"])], "else", [], [value("y2", [1, 2])]
    )
    nodes = [
        helper.make_node("If", ["c"], ["z"], then_branch=then, else_branch=other),
        helper.make_node("Relu", ["z"], ["r"]),
    ]
    inputs = [value("c", [], TensorProto.BOOL), value("x", [1, 2])]
    return onnx_model(nodes, inputs, [value("r", [1, 2]), value("z", [1, 2])])


def test_if_of_onnx_runs_natively(tmp_path):
    model = branches_model()
    native = converted(model, tmp_path)
    x = np.array([[1.0, -2.0]], np.float32)
    for truth in (True, False):
        found = native(np.array(truth), x)
        for own, other in zip(found, reference(model, np.array(truth), x), strict=True):
            np.testing.assert_allclose(own, other)


def loop_model(count, rows):
    """A loop that adds its number and doubles, as long as the sum is below 100."""
    nodes = [
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["v", "f"], ["a"]),
        helper.make_node("Add", ["a", "a"], ["next"]),
    ]
    outputs = [value("go", [], TensorProto.BOOL), value("next", [2])]
    if rows:
        nodes += [
            helper.make_node("Identity", ["c"], ["go"]),
            helper.make_node("Neg", ["next"], ["row"]),
        ]
        outputs.append(value("row", [2]))
    else:
        nodes += [
            helper.make_node("ReduceSum", ["next"], ["sum"], keepdims=0),
            helper.make_node("Less", ["sum", "most"], ["go"]),
        ]
    body = helper.make_graph(
        nodes,
        "body",
        [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("v", [2])],
        outputs,
    )
    initialisers = [helper.make_tensor("most", TensorProto.FLOAT, [], [100.0])]
    inputs = [value("x", [2])]
    if count is None:
        inputs.insert(0, value("n", [], TensorProto.INT64))
    else:
        initialisers.append(helper.make_tensor("n", TensorProto.INT64, [], [count]))
    names = ["y", "rows"] if rows else ["y"]
    loop = helper.make_node("Loop", ["n", "", "x"], names, body=body)
    shapes = [value("y", [2]), value("rows", [None, 2])][: len(names)]
    return onnx_model([loop], inputs, shapes, initialisers)


def test_loops_of_onnx_run_natively(tmp_path):
    model = loop_model(None, rows=False)
    native, gm = converted(model, tmp_path), corsac.from_onnx(model)
    x = np.array([1.0, 2.0], np.float32)
    for count in (0, 1, 3, 1000):
        # The reference of ONNX has no loops without results of each iteration.
        expected = gm(torch.tensor(count), torch.from_numpy(x))
        assert_equal(native(np.array(count), x), expected)


def test_loops_with_a_known_number_of_iterations_return_rows(tmp_path):
    model = loop_model(70, rows=True)
    native = converted(model, tmp_path)
    x = np.array([1e-20, 2e-20], np.float32)
    for own, other in zip(native(x), in_pytorch(model, x), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5)


def test_loops_whose_number_of_rows_depends_on_elements_are_refused(tmp_path):
    model = loop_model(None, rows=True)
    gm = corsac.from_onnx(model)
    given = torch.tensor(3), torch.rand(2)
    with pytest.raises(corsac.CompileError, match=r"number of iterations"):
        corsac.save(gm, tmp_path / "m.safetensors", given)


@pytest.mark.parametrize("backwards", [0, 1])
def test_scans_of_onnx_run_natively(tmp_path, backwards):
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "x"], ["next"]),
            helper.make_node("Mul", ["next", "next"], ["row"]),
        ],
        "body",
        [value("s", [2]), value("x", [2])],
        [value("next", [2]), value("row", [2])],
    )
    node = helper.make_node(
        "Scan",
        ["s", "xs"],
        ["last", "rows"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_input_directions=[backwards],
        scan_output_axes=[1],
        scan_output_directions=[backwards],
    )
    model = onnx_model(
        [node],
        [value("s", [2]), value("xs", [2, 70])],
        [value("last", [2]), value("rows", [2, 70])],
    )
    native = converted(model, tmp_path)
    generator = np.random.default_rng(0)
    given = [generator.random(size, np.float32) for size in ((2,), (2, 70))]
    for own, other in zip(native(*given), in_pytorch(model, *given), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5)


def test_onnx_models_with_control_flow_run_on_the_command_line(tmp_path, capsys):
    onnx.save(branches_model(), tmp_path / "m.onnx")
    np.save(tmp_path / "c.npy", np.array(False))
    np.save(tmp_path / "x.npy", np.array([[1.0, -2.0]], np.float32))
    command = ["run", str(tmp_path / "m.onnx"), "--input", str(tmp_path / "c.npy"), "--input",
               str(tmp_path / "x.npy"), "--output", str(tmp_path / "r.npy")]  # fmt: skip
    assert main([*command, "--output", str(tmp_path / "z.npy")]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), [[-1.0, 2.0]])


def test_branches_of_other_sizes_are_refused_with_the_node(tmp_path):
    root = nn.Module()
    root.first, root.same = map(corsac.fx.symbolic_trace, (_First(), _Same()))
    graph = corsac.fx.Graph()
    c, x = map(graph.placeholder, ("c", "x"))
    branches = map(graph.get_attr, ("first", "same"))
    chosen = graph.call_function(torch.ops.higher_order.cond, (c, *branches, (x,)))
    graph.output(graph.call_function(operator.getitem, (chosen, 0)))
    gm = corsac.fx.GraphModule(root, graph)
    with pytest.raises((corsac.CompileError, ValueError), match=r"cond.*equal types"):
        corsac.save(gm.eval(), tmp_path / "m.safetensors", (torch.tensor(True), torch.rand(3)))


class _First(nn.Module):
    def forward(self, x):
        return (x[:1] * 2,)


class _Same(nn.Module):
    def forward(self, x):
        return (x * 2,)


def test_control_flow_is_nested(tmp_path):
    class Nested(nn.Module):
        def forward(self, x):
            def inner(x):
                return torch.cond(x.sum() > 5, torch.neg, torch.exp, (x,))

            return torch.cond(x.sum() > 0, inner, lambda x: x * 3, (x,))

    model, x = Nested(), torch.ones(3)
    native = loaded(exported(model, x), tmp_path / "m.safetensors", x)
    for scale in (1.0, 2.0, -1.0):
        assert_equal(native((scale * x).numpy()), model(scale * x))
