"""Making a new module by running a graph on proxies."""

import torch
import torch.fx
from torch import nn

import corsac.fx as fx
import corsac.fx.traceback as fx_traceback
from kit.swapping import swapping


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.ReLU())
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x, offset=1.0):
        return torch.sigmoid(self.body(x) * self.scale).neg() + offset


def test_an_unchanged_transformer_gives_the_same_program():
    gm = fx.symbolic_trace(Net().eval())
    again = fx.Transformer(gm).transform()
    assert again.code == gm.code
    assert again.graph is not gm.graph
    assert again.body is not None and again.scale is gm.scale
    x = torch.randn(2, 3)
    assert torch.equal(again(x), gm(x))


def test_functions_and_methods_can_be_swapped():
    gm = fx.symbolic_trace(lambda x: torch.sigmoid(x).neg())
    x = torch.randn(3)
    swapped = swapping(fx.Transformer)(gm).transform()
    assert torch.equal(swapped(x), torch.neg(x).sigmoid())
    assert [n.name for n in swapped.graph.nodes] == ["x", "neg", "sigmoid", "output"]


def test_modules_can_be_left_out():
    class WithoutDropout(fx.Transformer):
        def call_module(self, target, args, kwargs):
            if isinstance(self.submodules[target], nn.Dropout):
                return args[0]
            return super().call_module(target, args, kwargs)

    gm = fx.symbolic_trace(Net())
    without = WithoutDropout(gm).transform()
    targets = [n.target for n in without.graph.nodes if n.op == "call_module"]
    assert targets == ["body.0", "body.2"]
    gm.eval()
    x = torch.randn(2, 3)
    assert torch.equal(without(x), gm(x))


def test_a_module_under_two_names_is_called_by_the_first():
    shared = nn.ReLU()
    root = nn.Module()
    root.a = shared
    root.b = shared
    graph = fx.Graph()
    graph.output(graph.call_module("b", (graph.placeholder("x"),)))
    gm = fx.GraphModule({"a": shared, "b": shared}, graph)
    gm.a = shared
    assert torch.equal(fx.Transformer(gm).transform()(torch.ones(1)), torch.ones(1))


def test_metadata_and_its_origin_are_passed_on():
    gm = fx.symbolic_trace(lambda x: torch.relu(x))
    relu = next(n for n in gm.graph.nodes if n.target is torch.relu)
    relu.meta["custom"] = {"stage": 1}
    relu.meta["seq_nr"] = 5
    gm.graph.output_node().meta["done"] = True
    again = fx.Transformer(gm).transform()
    copied = next(n for n in again.graph.nodes if n.target is torch.relu)
    assert copied.meta["custom"] == {"stage": 1}
    (source,) = copied.meta["from_node"]
    assert (source.name, source.target, source.pass_name) == (
        "relu",
        str(torch.relu),
        "Interpreter_Transformer",
    )
    assert again.graph.output_node().meta["done"] is True
    assert not fx_traceback.has_preserved_node_meta()


def test_state_is_shared_with_torch():
    with torch.fx.traceback.preserve_node_meta():
        assert fx_traceback.has_preserved_node_meta()
        with fx_traceback.annotate({"tag": 1}):
            assert torch.fx.traceback.get_current_meta()["custom"] == {"tag": 1}
            assert fx_traceback.current_meta is torch.fx.traceback.current_meta
    assert not fx_traceback.should_preserve_node_meta


def test_code_generators_are_kept():
    gm = fx.symbolic_trace(
        lambda tree: tree["a"] + tree["b"], concrete_args={"tree": {"a": fx.PH, "b": fx.PH}}
    )
    tree = {"a": torch.ones(1), "b": torch.ones(1)}
    assert torch.equal(fx.Transformer(gm).transform()(tree), gm(tree))


def test_new_nodes_come_from_where_the_old_ones_came_from():
    class Doubled(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(target, args, kwargs) * 2

    def program(x):
        y = torch.relu(x)
        return y + 1

    gm = fx.symbolic_trace(program)
    sources = {node.name: node.source for node in gm.graph.nodes}
    again = Doubled(gm).transform()
    assert {node.name: node.source for node in again.graph.nodes} == {
        "x": sources["x"],
        "relu": sources["relu"],
        "mul": sources["relu"],
        "add": sources["add"],
        "mul_1": sources["add"],
        "output": sources["output"],
    }
    assert sources["relu"].line + 1 == sources["add"].line

    twice = fx.Transformer(again).transform()
    assert [n.source for n in twice.graph.nodes] == [n.source for n in again.graph.nodes]


def test_modules_keep_their_place_in_the_program():
    gm = fx.symbolic_trace(Net())
    again = fx.Transformer(gm).transform()
    assert [n.source for n in again.graph.nodes] == [n.source for n in gm.graph.nodes]
    assert [n.meta.get("nn_module_stack") for n in again.graph.nodes] == [
        n.meta.get("nn_module_stack") for n in gm.graph.nodes
    ]


def test_fields_that_people_add_are_passed_on():
    gm = fx.symbolic_trace(lambda x: torch.relu(x))
    for node in gm.graph.nodes:
        node.meta["of_mine"] = 1
    torch.fx.proxy._COPY_META_FIELDS.append("of_mine")
    try:
        again = fx.Transformer(gm).transform()
    finally:
        torch.fx.proxy._COPY_META_FIELDS.remove("of_mine")
    assert next(n for n in again.graph.nodes if n.name == "relu").meta["of_mine"] == 1
    again = fx.Transformer(gm).transform()
    assert "of_mine" not in next(n for n in again.graph.nodes if n.name == "relu").meta


def test_the_policy_of_the_tracer_is_asked_where_it_was_changed():
    gm = fx.symbolic_trace(Net().eval())
    asked = []

    class Asking(fx.Transformer):
        def __init__(self, module):
            super().__init__(module)
            self.tracer.is_leaf_module = lambda m, name: asked.append(name) or True

    Asking(gm).transform()
    assert asked == ["body.0", "body.1", "body.2"]
