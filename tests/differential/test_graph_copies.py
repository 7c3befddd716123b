"""Copying nodes and graphs."""

import copy
import operator
import pickle

import pytest
import torch
from torch import nn

from kit import differential, known_difference


def sample(fx):
    """A graph with nested arguments, metadata and a type."""
    graph = fx.Graph(tracer_cls=fx.Tracer)
    x = graph.placeholder("x", torch.Tensor)
    y = graph.call_function(torch.cat, ([x, x],), {"dim": 0})
    z = graph.call_method("view", (y, -1), {"k": {"deep": [y, (x, 1)]}})
    z.meta["note"] = ["kept"]
    z.colour = "green"
    graph.output({"z": z, "y": [y]}, type_expr=dict)
    return graph


@differential
def test_graph_copy(fx, rec):
    source = sample(fx)
    target = fx.Graph()
    values = {}
    result = target.graph_copy(source, values)
    rec("result", result)
    rec("values", [(k.name, v.name, k is v) for k, v in values.items()])
    rec("target before output", target)
    target.output(result)
    rec("target", target)
    rec("source", source)
    rec("meta", [dict(n.meta) for n in target.nodes])


@differential
def test_graph_copy_with_the_output_node(fx, rec):
    source = sample(fx)
    target = fx.Graph()
    rec("result", target.graph_copy(source, {}, return_output_node=True))
    nothing = fx.Graph()
    nothing.placeholder("x")
    rec("no output", fx.Graph().graph_copy(nothing, {}))


@differential
def test_graph_copy_into_the_middle(fx, rec):
    source = sample(fx)
    target = fx.Graph()
    x = target.placeholder("x")
    relu = target.call_function(torch.relu, (x,))
    target.output(relu)
    given = next(iter(source.nodes))
    with target.inserting_before(relu):
        result = target.graph_copy(source, {given: x})
    rec("result", result)
    rec("target", target)


@differential
def test_graph_copy_with_a_missing_value(fx, rec):
    source = fx.Graph()
    x = source.placeholder("x")
    y = source.call_function(torch.neg, (x,))
    z = source.call_function(torch.abs, (y,))
    y.prepend(z)
    source.output(z)
    rec.call("out of order", fx.Graph().graph_copy, source, {})


@differential
def test_node_copy(fx, rec):
    source = sample(fx)
    target = fx.Graph()
    values = {}
    for node in source.nodes:
        values[node] = target.node_copy(node, lambda n: values[n])
    rec("target", target)
    first = next(iter(source.nodes))
    rec("same names again", target.node_copy(first).name)
    meta = values[next(n for n in source.nodes if n.name == "view")].meta
    original = next(n for n in source.nodes if n.name == "view").meta
    rec("meta", (meta, meta is original, meta["note"] is original["note"]))


@differential
def test_node_copy_with_a_plain_value(fx, rec):
    source = sample(fx)
    target = fx.Graph()
    cat = next(n for n in source.nodes if n.name == "cat")
    rec("constant", target.node_copy(cat, lambda n: 7).args)


@differential
def test_deepcopy(fx, rec):
    source = sample(fx)
    copied = copy.deepcopy(source)
    rec("copied", copied)
    rec("meta", [dict(n.meta) for n in copied.nodes])
    rec("types", [n.type is None for n in copied.nodes])
    rec("tracer class", copied._tracer_cls)
    rec("owner", copied.owning_module)
    shared = [a is b for a, b in zip(source.nodes, copied.nodes, strict=True)]
    rec("shared", shared)
    next(iter(copied.nodes)).name = "other"
    rec("source", source)


@differential
def test_deepcopy_of_an_empty_graph_and_of_one_without_output(fx, rec):
    rec("empty", copy.deepcopy(fx.Graph()))
    graph = fx.Graph()
    graph.placeholder("x")
    rec("no output", copy.deepcopy(graph))


@differential
def test_deepcopy_inside_a_larger_copy(fx, rec):
    graph = sample(fx)
    both = copy.deepcopy({"graph": graph, "again": graph})
    rec("same", both["graph"] is both["again"])


@differential
def test_names_after_a_copy(fx, rec):
    copied = copy.deepcopy(sample(fx))
    with copied.inserting_before(copied.output_node()):
        node = copied.call_function(torch.cat, ([],))
    rec("name", node.name)


@differential
def test_deepcopy_of_a_large_graph(fx, rec):
    graph = fx.Graph()
    node = graph.placeholder("x")
    for _ in range(3000):
        node = graph.call_function(operator.neg, (node,))
    graph.output(node)
    copied = copy.deepcopy(graph)
    rec("length", len(copied.nodes))
    rec("last", copied.output_node().args)


@differential
def test_copy_keeps_the_code_generator(fx, rec):
    def f(x):
        return x["a"] + 1

    traced = fx.symbolic_trace(f, concrete_args={"x": {"a": fx.PH}})
    copied = copy.deepcopy(traced.graph)
    rec("codegen", type(copied._codegen).__name__)
    rec("code", copied.python_code("self").src)


@differential
def test_pickling_a_graph(fx, rec):
    graph = fx.symbolic_trace(nn.Sequential(nn.Linear(1, 1), nn.ReLU())).graph
    graph.owning_module = None
    restored = rec.call("restored", lambda: pickle.loads(pickle.dumps(graph)))
    if restored is not None:
        with restored.inserting_before(restored.output_node()):
            restored.call_function(torch.relu, (next(iter(restored.nodes)),))
        rec("edited", restored)


@known_difference("copied", "shares nodes", reason="Copies of graphs")
@differential
def test_shallow_copy(fx, rec):
    graph = sample(fx)
    copied = copy.copy(graph)
    rec("copied", copied)
    rec("attributes", copied._tracer_cls)
    rec("shares nodes", next(iter(copied.nodes)) is next(iter(graph.nodes)))


def attributes(nodes):
    return [vars(node).get("colour") for node in nodes]


def coloured(fx):
    """A graph of a module whose nodes have attributes and metadata, some of which are nodes."""
    graph = sample(fx)
    graph._tracer_cls = None
    nodes = list(graph.nodes)
    for place, node in enumerate(nodes):
        node.colour, node.shape = place, (place, 2)
        node.meta["before"] = nodes[place - 1] if place else None
        node.partner = nodes[-1 - place]
    return graph


@known_difference("deep", "deep, module", reason="Attributes of nodes in deep copies")
@differential
def test_what_was_attached_to_nodes_in_copies(fx, rec):
    graph = coloured(fx)
    rec("deep", attributes(copy.deepcopy(graph).nodes))
    rec("shallow", attributes(copy.copy(graph).nodes))
    target = fx.Graph()
    target.graph_copy(graph, {})
    rec("graph_copy", attributes(target.nodes))
    rec("node_copy", attributes([fx.Graph().node_copy(next(iter(graph.nodes)))]))
    module = fx.GraphModule(nn.Module(), graph)
    rec("deep, module", attributes(copy.deepcopy(module).graph.nodes))
    rec("shallow, module", attributes(copy.copy(module).graph.nodes))
    rec("module of a graph", attributes(fx.GraphModule(nn.Module(), graph).graph.nodes))
    rec("rebuilt", attributes(fx.Transformer(module).transform().graph.nodes))


@differential
def test_pickling_nodes_that_speak_of_nodes(fx, rec):
    graph = coloured(fx)
    restored = pickle.loads(pickle.dumps(graph))
    nodes = list(restored.nodes)
    rec("restored", restored)
    rec("attributes", [(node.colour, node.shape) for node in nodes])
    rec("partners", [node.partner is nodes[-1 - i] for i, node in enumerate(nodes)])
    rec("metadata", [node.meta["before"] is node.prev for node in nodes[1:]])


@differential
def test_pickling_nodes_and_their_graph(fx, rec):
    graph = coloured(fx)
    nodes = list(graph.nodes)
    for first in (True, False):
        pair = (graph, nodes) if first else (nodes, graph)
        pair = pickle.loads(pickle.dumps(pair))
        restored, again = pair if first else pair[::-1]
        same = [a is b for a, b in zip(restored.nodes, again, strict=True)]
        rec(f"graph first {first}", (same, attributes(again)))


@differential
def test_deepcopy_of_a_module_that_names_nodes(fx, rec):
    module = fx.GraphModule(nn.Module(), coloured(fx))
    module.meta["nodes"] = list(module.graph.nodes)[1:3]
    copied = copy.deepcopy(module)
    rec("names", [node.name for node in copied.meta["nodes"]])
    rec("graphs", [node.graph is copied.graph for node in copied.meta["nodes"]])
    rec("others", [node in list(module.graph.nodes) for node in copied.meta["nodes"]])
    rec("attributes", attributes(copied.meta["nodes"]))


@known_difference("in the graph", "same", reason="Copies of nodes")
@differential
def test_copies_of_a_node(fx, rec):
    graph = coloured(fx)
    node = list(graph.nodes)[1]
    deep = copy.deepcopy(node)
    rec("deep", (deep.name, deep.args, deep.colour, deep.graph is graph))
    rec("in the graph", deep in list(deep.graph.nodes))
    shallow = copy.copy(node)
    rec("shallow", (shallow.name, shallow.colour, shallow.graph is graph))
    rec("same", shallow is node)


def test_many_nodes_are_pickled_in_linear_time():
    import corsac.fx

    graph = corsac.fx.Graph()
    node = graph.placeholder("x")
    for _ in range(20_000):
        node = graph.call_function(operator.neg, (node,))
    nodes = list(graph.nodes)
    again = pickle.loads(pickle.dumps(nodes))
    assert again == list(again[0].graph.nodes)


def test_an_erased_node_is_not_copied():
    import corsac.fx

    graph = corsac.fx.Graph()
    node = graph.placeholder("x")
    graph.erase_node(node)
    with pytest.raises(TypeError, match="x was erased"):
        copy.deepcopy(node)
