"""Graphs and modules of torch.fx converted to corsac.fx, and back."""

import types

import pytest
import torch
import torch.fx
from torch import nn

import corsac.fx as fx
from corsac.fx.experimental.proxy_tensor import make_fx


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("offset", torch.ones(3), persistent=False)

    def forward(self, x, factor: float = 2.0):
        y = self.block(x)[:, 1:]
        return {"y": y * factor, "sum": [y.sum(dim=-1, keepdim=True), self.offset * self.scale]}


def tables(graph):
    """The properties of all nodes of a graph."""
    return [
        (n.op, n.name, str(n.target), str(n.args), str(n.kwargs), n.type, dict(n.meta))
        for n in graph.nodes
    ]


def check(theirs, *inputs):
    """Convert ``theirs`` and back; compare code, nodes and results; return the corsac one."""
    ours = fx.from_torch(theirs)
    assert type(ours).__mro__[1] is fx.GraphModule
    assert tables(ours.graph) == tables(theirs.graph)
    assert ours.code == theirs.code
    ours.graph.lint()
    back = fx.to_torch(ours)
    assert isinstance(back, torch.fx.GraphModule)
    assert back.code == theirs.code
    assert tables(back.graph) == tables(theirs.graph)
    assert str(back.graph) == str(theirs.graph) == str(ours.graph)
    assert list(ours.state_dict()) == list(theirs.state_dict()) == list(back.state_dict())
    expected = theirs(*inputs)
    for module in (ours, back):
        torch.testing.assert_close(module(*inputs), expected, rtol=0, atol=0)
    return ours


def test_traced_modules():
    theirs = torch.fx.symbolic_trace(Net())
    theirs.eval()
    theirs.color = "red"
    theirs.meta["stage"] = 1
    node = next(iter(theirs.graph.nodes))
    node.meta["note"] = [1]
    node.color = "blue"
    ours = check(theirs, torch.randn(2, 3))
    assert (
        ours.block[0] is theirs.block.get_submodule("0") if hasattr(ours.block, "__len__") else True
    )
    assert ours.get_submodule("block.0") is theirs.get_submodule("block.0")
    assert ours.scale is theirs.scale
    assert (ours.color, ours.meta, ours.training) == ("red", {"stage": 1}, False)
    first = next(iter(ours.graph.nodes))
    assert first.color == "blue"
    assert first.meta["note"] is node.meta["note"]
    first.meta["mine"] = 1
    assert "mine" not in node.meta
    assert first.type is None and fx.to_torch(ours).color == "red"


def test_graphs_alone():
    theirs = torch.fx.symbolic_trace(Net()).graph
    ours = fx.from_torch(theirs)
    assert isinstance(ours, fx.Graph)
    assert str(ours) == str(theirs)
    assert ours.owning_module is None
    assert ours._tracer_cls is fx.Tracer
    assert fx.to_torch(ours)._tracer_cls is torch.fx.Tracer
    assert ours._co_fields == theirs._co_fields


def test_what_is_converted_already_is_returned():
    gm = fx.symbolic_trace(Net())
    assert fx.from_torch(gm) is gm
    assert fx.from_torch(gm.graph) is gm.graph
    theirs = torch.fx.symbolic_trace(Net())
    assert fx.to_torch(theirs) is theirs
    with pytest.raises(TypeError, match="from_torch takes a Graph, a GraphModule or an Exported"):
        fx.from_torch(nn.ReLU())
    with pytest.raises(TypeError, match="to_torch takes"):
        fx.to_torch(3)


def test_names_that_were_set_by_hand():
    theirs = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    relu = next(n for n in theirs.graph.nodes if n.target is torch.relu)
    relu.name = "relu_7"
    theirs.recompile()
    check(theirs, torch.ones(2))


def test_structured_arguments():
    def f(tree, *, scale):
        return {"out": tree["a"] * scale + tree["b"][0]}

    theirs = torch.fx.symbolic_trace(
        f, concrete_args={"tree": {"a": torch.fx.PH, "b": [torch.fx.PH]}}
    )
    check(theirs, {"a": torch.ones(2), "b": [torch.ones(2)]}, torch.ones(2))


def test_code_generators_of_the_user():
    class Listed(torch.fx.CodeGen):
        def gen_fn_def(self, free_vars, maybe_return_annotation, **options):
            names = ", ".join(v.split(" ")[0] for v in free_vars)
            return f"def forward(self, values: list):\n    {names}, = values"

        def process_inputs(self, values):
            return tuple(values)

    theirs = torch.fx.symbolic_trace(lambda x, y: x + y)
    theirs.graph.set_codegen(Listed())
    theirs.recompile()
    ours = check(theirs, [torch.ones(1), torch.ones(1)])
    assert fx.Interpreter(ours).run([torch.ones(1), torch.ones(1)]) == torch.tensor([2.0])
    assert type(fx.to_torch(ours).graph._codegen) is Listed


def test_transformed_code():
    theirs = torch.fx.symbolic_trace(lambda x: torch.relu(x))
    theirs.graph.on_generate_code(
        lambda current: lambda body: [line.replace("relu(", "sigmoid(") for line in body]
    )
    theirs.recompile()
    ours = check(theirs, torch.ones(2))
    assert "sigmoid" in ours.code


def test_exported_programs():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x, extra):
            y = torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))
            return {"out": self.linear(y) + extra["b"]}

    inputs = (torch.randn(3), {"b": torch.ones(3)})
    program = torch.export.export(Branching(), inputs)
    flat = fx.from_torch(program)
    assert flat.code == program.graph_module.code
    assert flat.graph.output_node().op == "output"
    module = program.module()
    ours = fx.from_torch(module)
    assert ours.code == module.code
    assert torch.equal(ours(*inputs)["out"], module(*inputs)["out"])
    assert [n.meta.keys() for n in ours.graph.nodes] == [n.meta.keys() for n in module.graph.nodes]
    with pytest.raises(NotImplementedError):
        ours.train()
    assert isinstance(ours.train, types.MethodType) and ours.train.__self__ is ours


def test_make_fx():
    gm = make_fx(lambda x: torch.nn.functional.silu(x) + 1, tracing_mode="fake")(torch.ones(3))
    assert isinstance(gm, fx.GraphModule)
    assert [n.target for n in gm.graph.nodes if n.op == "call_function"] == [
        torch.ops.aten.silu.default,
        torch.ops.aten.add.Tensor,
    ]
    assert tuple(gm.graph.output_node().args[0].meta["val"].shape) == (3,)
    x = torch.randn(3)
    assert torch.equal(gm(x), torch.nn.functional.silu(x) + 1)


def test_graphs_of_torch_compile():
    seen = []

    def backend(gm, example_inputs):
        ours = fx.from_torch(gm)
        seen.append(ours)
        assert tables(ours.graph) == tables(gm.graph)
        return ours.forward

    net = Net()
    x = torch.randn(2, 3)
    torch._dynamo.reset()
    compiled = torch.compile(net, backend=backend)
    torch.testing.assert_close(compiled(x), net(x), rtol=0, atol=0)
    assert len(seen) == 1
    torch._dynamo.reset()


def test_converted_graphs_can_be_edited():
    theirs = torch.fx.symbolic_trace(lambda x: torch.relu(torch.relu(x)) + torch.neg(x))
    back = fx.to_torch(fx.from_torch(theirs))
    for gm in (theirs, back, fx.from_torch(theirs)):
        graph = gm.graph
        (relu, second) = graph.find_nodes(op="call_function", target=torch.relu)
        with graph.inserting_after(second):
            third = graph.call_function(torch.relu, (relu,))
            named = graph.create_node("call_function", torch.neg, (relu,), name="neg_7")
        assert (third.name, named.name) == ("relu_2", "neg_7")
        assert graph.create_node("call_function", torch.neg, (relu,)).name == "neg_8"
        second.replace_all_uses_with(third)
        graph.erase_node(second)
        graph.lint()
        assert len(graph.nodes) == 8
        assert [n.name for n in graph.find_nodes(op="call_function", target=torch.relu)] == [
            "relu",
            "relu_2",
        ]
    assert str(back.graph) == str(theirs.graph)
