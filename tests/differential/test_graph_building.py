"""Building a graph by hand: every opcode, insertion points, names, and errors."""

import operator

import pytest
import torch

from kit import differential, known_difference


def linear_relu(fx):
    """A small graph with each opcode, and its nodes by name."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    w = graph.get_attr("layer.weight")
    add = graph.call_function(operator.add, (x, w))
    module = graph.call_module("layer", (add,), {"scale": 2})
    relu = graph.call_method("relu", (module,))
    graph.output(relu)
    return graph, {n.name: n for n in graph.nodes}


@differential
def test_every_opcode(fx, rec):
    graph, _ = linear_relu(fx)
    rec("graph", graph)


@known_difference("output", reason="`Graph.output_node` of an empty graph")
@differential
def test_empty_graph(fx, rec):
    graph = fx.Graph()
    rec("graph", graph)
    rec("length", len(graph.nodes))
    rec("owner", graph.owning_module)
    rec.call("output", graph.output_node)
    rec("truth", bool(graph.nodes))


@differential
def test_create_node(fx, rec):
    graph = fx.Graph()
    x = graph.create_node("placeholder", "x", type_expr=int)
    y = graph.create_node("call_function", torch.add, (x, 1), {"alpha": 2}, name="total")
    z = graph.create_node("call_method", "view", args=(y, -1), name="total")
    graph.create_node("output", "output", (z,))
    rec("graph", graph)


@known_difference("root", reason="The opcode `root`")
@differential
def test_create_node_refuses(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    rec.call("unknown op", graph.create_node, "call_nothing", "x")
    rec.call("list of args", graph.create_node, "call_function", torch.add, [x, x])
    rec.call("list of kwargs", graph.create_node, "call_function", torch.add, (), [1])
    rec.call("string function", graph.create_node, "call_function", "add")
    rec.call("function as method", graph.create_node, "call_method", torch.add)
    rec.call("number as target", graph.create_node, "call_module", 3)
    rec.call("none as target", graph.create_node, "get_attr", None)
    rec("length", len(graph.nodes))
    rec.call("root", graph.create_node, "root", "")


@differential
def test_placeholders_with_types_and_defaults(fx, rec):
    graph = fx.Graph()
    a = graph.placeholder("a")
    b = graph.placeholder("b", type_expr=torch.Tensor)
    c = graph.placeholder("c", default_value=3)
    d = graph.placeholder("d", type_expr=int, default_value=None)
    e = graph.placeholder("*rest")
    f = graph.placeholder("**named")
    graph.output((a, b, c, d, e, f))
    rec("graph", graph)


@differential
def test_type_expressions_on_every_kind(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x", torch.Tensor)
    w = graph.get_attr("w", type_expr=torch.nn.Parameter)
    f = graph.call_function(torch.add, (x, w), type_expr=torch.Tensor)
    m = graph.call_method("size", (f,), type_expr=torch.Size)
    c = graph.call_module("child", (m,), type_expr=list[int])
    graph.output(c, type_expr=list[int])
    rec("graph", graph)


@differential
def test_named_function_calls(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.add, (x, x), name="mine")
    z = graph.call_function(torch.add, (y, x), name="mine")
    graph.output(graph.call_function(torch.add, (z, x), name="class"))
    rec("graph", graph)


@differential
def test_inserting_before_and_after(fx, rec):
    graph, nodes = linear_relu(fx)
    with graph.inserting_before(nodes["relu"]):
        a = graph.call_function(torch.neg, (nodes["layer"],))
        graph.call_function(torch.abs, (a,))
    with graph.inserting_after(nodes["add"]):
        graph.call_function(torch.sin, (nodes["add"],))
        graph.call_function(torch.cos, (nodes["add"],))
    with graph.inserting_before():
        graph.placeholder("first")
    with graph.inserting_after():
        graph.placeholder("very_first")
    rec("graph", graph)


@differential
def test_insertion_points_nest_and_are_restored(fx, rec):
    graph, nodes = linear_relu(fx)
    with graph.inserting_before(nodes["add"]):
        graph.get_attr("one")
        with graph.inserting_before(nodes["relu"]):
            graph.get_attr("two")
        graph.get_attr("three")
    graph.get_attr("last")
    rec("graph", graph)


@differential
def test_insertion_point_without_with(fx, rec):
    graph, nodes = linear_relu(fx)
    graph.inserting_before(nodes["relu"])
    graph.get_attr("one")
    graph.get_attr("two")
    graph.inserting_after(nodes["x"])
    graph.get_attr("three")
    rec("graph", graph)


@differential
def test_insertion_point_is_restored_after_an_error(fx, rec):
    graph, nodes = linear_relu(fx)
    with pytest.raises(KeyError), graph.inserting_before(nodes["x"]):
        raise KeyError("stop")
    graph.get_attr("last")
    rec("graph", graph)


@differential
def test_insertion_point_of_another_graph(fx, rec):
    graph, _ = linear_relu(fx)
    _, others = linear_relu(fx)
    rec.call("before", graph.inserting_before, others["x"])
    rec.call("after", graph.inserting_after, others["x"])
    rec("graph", graph)


@differential
def test_nodes_can_be_inserted_while_iterating(fx, rec):
    graph, _ = linear_relu(fx)
    seen = []
    for node in graph.nodes:
        seen.append(node.name)
        if node.op == "call_function" and node.target is operator.add:
            with graph.inserting_after(node):
                graph.call_function(torch.neg, (node,))
    rec("seen", seen)
    rec("graph", graph)


@differential
def test_nodes_can_be_erased_while_iterating(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    for _ in range(4):
        graph.call_function(torch.neg, (x,))
    graph.output(x)
    seen = []
    for node in graph.nodes:
        seen.append(node.name)
        if node.op == "call_function":
            graph.erase_node(node)
    rec("seen", seen)
    rec("graph", graph)


@differential
def test_iterating_backwards_and_erasing(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.neg, (x,))
    graph.call_function(torch.abs, (y,))
    graph.output(x)
    for node in reversed(graph.nodes):
        if node.op == "call_function":
            graph.erase_node(node)
    rec("graph", graph)


@differential
def test_the_node_list(fx, rec):
    graph, nodes = linear_relu(fx)
    rec("list", list(graph.nodes))
    rec("length", len(graph.nodes))
    rec("contains", nodes["add"] in graph.nodes)
    rec("twice", [list(graph.nodes) == list(graph.nodes), graph.nodes is graph.nodes])
    rec.call("index", lambda: graph.nodes[0])
    iterator = iter(graph.nodes)
    rec("first", next(iterator))
    rec("rest", list(iterator))
    rec("identity", all(a is b for a, b in zip(graph.nodes, graph.nodes, strict=True)))


@differential
def test_erasing(fx, rec):
    graph, nodes = linear_relu(fx)
    rec.call("has users", graph.erase_node, nodes["add"])
    other, _ = linear_relu(fx)
    dangling = graph.call_function(torch.neg, (nodes["add"],))
    rec.call("wrong graph", other.erase_node, dangling)
    rec.call("erased", graph.erase_node, dangling)
    rec("graph", graph)
    rec("args", (dangling.args, dangling.kwargs, dangling.name, dangling.op))
    rec.warns("again", graph.erase_node, dangling)
    rec("after", graph)


@differential
def test_an_erased_name_is_not_used_again(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.neg, (x,))
    graph.erase_node(y)
    graph.output(graph.call_function(torch.neg, (x,)))
    rec("graph", graph)


@differential
def test_output_node(fx, rec):
    graph, _ = linear_relu(fx)
    rec("node", graph.output_node())
    graph.get_attr("after")
    rec.call("not last", graph.output_node)


@differential
def test_find_nodes(fx, rec):
    graph, nodes = linear_relu(fx)
    with graph.inserting_before(nodes["add"]):
        early = graph.call_function(operator.add, (nodes["x"], 1))
    nodes["relu"].prepend(graph.call_method("relu", (early,)))
    rec("functions", graph.find_nodes(op="call_function", target=operator.add))
    unsorted = graph.find_nodes(op="call_function", target=operator.add, sort=False)
    rec("unsorted", sorted(unsorted))
    rec("none", graph.find_nodes(op="call_function", target=torch.neg))
    rec("methods", graph.find_nodes(op="call_method"))
    rec("methods by name", graph.find_nodes(op="call_method", target="relu"))
    rec("modules", graph.find_nodes(op="call_module", target="layer"))
    rec("attributes", graph.find_nodes(op="get_attr"))
    rec("placeholders", graph.find_nodes(op="placeholder"))
    rec("placeholder by name", graph.find_nodes(op="placeholder", target="x"))
    rec("output", graph.find_nodes(op="output"))
    rec("unknown", graph.find_nodes(op="unknown"))
    rec.call("no target", graph.find_nodes, op="call_function")
    rec.call("positional", graph.find_nodes, "call_function")


@differential
def test_find_nodes_follows_changes_of_target_and_op(fx, rec):
    graph, nodes = linear_relu(fx)
    nodes["add"].target = torch.mul
    rec("old", graph.find_nodes(op="call_function", target=operator.add))
    rec("new", graph.find_nodes(op="call_function", target=torch.mul))
    nodes["relu"].op = "call_module"
    nodes["relu"].target = "layer"
    rec("modules", graph.find_nodes(op="call_module"))
    rec("methods", graph.find_nodes(op="call_method"))
    graph.erase_node(graph.call_function(torch.mul, (nodes["x"], 1)))
    rec("after erasing", graph.find_nodes(op="call_function", target=torch.mul))


@differential
def test_graph_attributes(fx, rec):
    graph, _ = linear_relu(fx)
    graph.colour = "blue"
    rec("colour", graph.colour)
    rec("tracer class", fx.Graph(tracer_cls=fx.Tracer)._tracer_cls)
    rec("extras", fx.Graph(tracer_extras={"a": 1})._tracer_extras)


@differential
def test_call_module_and_get_attr_warn_without_the_attribute(fx, rec):
    module = fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    with module.graph.inserting_before(module.graph.output_node()):
        rec.warns("attribute", module.graph.get_attr, "missing")
        rec.warns("present", module.graph.get_attr, "0.weight")
        rec.warns("module", module.graph.call_module, "nothing", ())
        rec.warns("present module", module.graph.call_module, "0", ())


@differential
def test_size_stride_and_offset_nodes(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.ones(2, 3)
    size = graph.create_size_node(x, 1)
    stride = graph.create_stride_node(x, 0)
    offset = graph.create_storage_offset_node(x)
    graph.output((size, stride, offset))
    rec("graph", graph)
    rec("values", [n.meta.get("val") for n in (size, stride, offset)])
    rec.call("integers", graph.materialize_symints, [1, True, 3])
    rec.call("one integer", graph.materialize_symint, 4)
    rec.call("wrong", graph.materialize_symints, ["a"])
