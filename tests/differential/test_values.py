"""Immutable collections, mapping over arguments, and the metadata of the running trace."""

import collections
import copy
import operator
import pickle
import re
import weakref

import torch
from torch.utils import _pytree as pytree

from kit import differential, known_difference

Pair = collections.namedtuple("Pair", "a b")


@differential
def test_immutable_list(fx, rec):
    kind = fx.immutable_collections.immutable_list
    value = kind([1, 2, 3])
    for name in ("append", "extend", "insert", "remove", "pop", "clear", "reverse", "sort"):
        rec.call(name, getattr(value, name), 1)
    for name in ("setitem", "delitem", "iadd", "imul"):
        rec.call(
            name, getattr(operator, name), *([value, 0, 1] if name == "setitem" else [value, 0])
        )
    rec("value", value)
    rec("repr", repr(value))
    rec("reads", (value[0], value[1:], value + [4], len(value), value.index(2), value == [1, 2, 3]))
    rec("hash", hash(value) == hash(kind([1, 2, 3])))
    rec.call("unhashable", lambda: hash(kind([[1]])))
    rec("pickle", pickle.loads(pickle.dumps(value)))
    rec("copies", (copy.copy(value), copy.deepcopy(value)))
    rec("tree", pytree.tree_map(lambda v: v + 1, value))
    rec("isinstance", isinstance(value, list))


@differential
def test_immutable_dict(fx, rec):
    kind = fx.immutable_collections.immutable_dict
    value = kind({"a": 1, "b": [2]})
    rec.call("set", operator.setitem, value, "a", 2)
    rec.call("delete", operator.delitem, value, "a")
    rec.call("ior", operator.ior, value, {"c": 1})
    for name, args in {
        "clear": (),
        "pop": ("a",),
        "popitem": (),
        "setdefault": ("z", 1),
        "update": ({"a": 2},),
    }.items():
        rec.call(name, getattr(value, name), *args)
    rec("value", value)
    rec("repr", repr(value))
    rec("reads", (value["a"], value.get("z"), value | {"c": 3}, list(value), "a" in value))
    rec("hash", hash(kind(a=1)) == hash(kind(a=1)))
    rec("pickle", pickle.loads(pickle.dumps(value)))
    rec("copies", (copy.copy(value), copy.deepcopy(value)))
    rec("tree", pytree.tree_map(lambda v: v * 2, value))


@differential
def test_map_arg(fx, rec):
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    value = ([x, (y, 1)], {"k": x, "deep": {"j": [y]}}, slice(x, None, y), Pair(x, 2), range(3))
    mapped = fx.map_arg(value, lambda n: n.name)
    rec("mapped", mapped)
    rec("types", [type(v).__name__ for v in mapped])
    rec("inner types", [type(mapped[0][1]).__name__, type(mapped[1]["deep"]).__name__])
    seen = []
    fx.map_arg(value, seen.append)
    rec("order", seen)
    rec("plain", fx.map_arg(3, lambda n: n))
    rec("node", fx.map_arg(x, lambda n: [n]))
    rec.call("not callable", fx.map_arg, value, 3)
    rec.call("raises", fx.map_arg, value, lambda n: 1 // 0)


@differential
def test_map_aggregate(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    value = [1, (x, {"a": None, "b": [2.5]}), slice(1, x), Pair("t", ()), {}, []]
    rec("mapped", fx.node.map_aggregate(value, lambda v: ("seen", v)))
    rec("types", [type(v).__name__ for v in fx.node.map_aggregate(value, lambda v: v)])
    order = []
    fx.node.map_aggregate(value, order.append)
    rec("order", order)
    rec("scalar", fx.node.map_aggregate(5, lambda v: v + 1))


@differential
def test_mapping_keeps_named_tuples_and_subclasses(fx, rec):
    class Mine(list):
        pass

    class MineToo(dict):
        pass

    value = (Pair(1, [2]), Mine([1]), MineToo(a=1), torch.Size([1, 2]))
    mapped = fx.node.map_aggregate(value, lambda v: v)
    rec("types", [type(v).__name__ for v in mapped])


@differential
def test_weak_references(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    rec("node", weakref.ref(x)() is x)
    rec("graph", weakref.ref(graph)() is graph)
    table = weakref.WeakKeyDictionary()
    table[x] = 1
    rec("table", table[next(iter(graph.nodes))])


@differential
def test_node_views(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x", torch.Tensor, default_value=3)
    y = graph.call_function(torch.add, (x, 1), {"alpha": 2}, type_expr=torch.Tensor)
    graph.output((y, [x]))
    for node in graph.nodes:
        rec(f"{node.name} repr", (repr(node), str(node), f"{node}"))
        rec(f"{node.name} format", node.format_node())
    names = []
    rec("first", next(iter(graph.nodes)).format_node(["given"], ["given"]))
    rec("graph", (y.graph is graph, y.op, y.name, y.target))
    rec("names", names)
    rec("target", y._pretty_print_target(torch.nn.functional.relu))
    rec("targets", [y._pretty_print_target(t) for t in ("text", len, operator.add, torch.relu)])


@known_difference("not in the list", reason="Nodes made by their class")
@differential
def test_making_nodes_directly(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    node = fx.Node(graph, "mine", "call_function", torch.relu, (x,), {})
    rec("name", (node.name, node.op, node.args, [u.name for u in x.users]))
    rec("not in the list", [n.name for n in graph.nodes])
    rec.call("bad op", fx.Node, graph, "n", "bad", "t", (), {})
    rec.call("bad target", fx.Node, graph, "n", "call_method", 3, (), {})
    x.append(node)
    rec("after", [n.name for n in graph.nodes])


@differential
def test_normalized_arguments(fx, rec):
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    traced = fx.symbolic_trace(module)
    with traced.graph.inserting_before(traced.graph.output_node()):
        x = next(iter(traced.graph.nodes))
        add = traced.graph.call_function(torch.nn.functional.relu, (x,))
    for node in traced.graph.nodes:
        rec(node.name, node.normalized_arguments(module))
    only = add.normalized_arguments(module, normalize_to_only_use_kwargs=True)
    rec("keywords", only)


@differential
def test_preserving_metadata_while_tracing(fx, rec):
    fx_traceback = fx.traceback
    rec("off", fx_traceback.has_preserved_node_meta())
    with fx_traceback.preserve_node_meta():
        rec("on", fx_traceback.has_preserved_node_meta())
        with fx_traceback.annotate({"stage": 1}):
            graph = fx.Tracer().trace(lambda x: torch.relu(x))
        rec("annotated", [n.meta.get("custom") for n in graph.nodes])
        fx_traceback.set_stack_trace(["File a\n", "line b\n"])
        rec("stack", fx_traceback.format_stack())
    rec("after", fx_traceback.has_preserved_node_meta())
    rec("meta", fx_traceback.get_current_meta())


@differential
def test_annotated_functions(fx, rec):
    @fx.traceback.annotate_fn({"part": "inner"})
    def inner(x):
        return x.neg()

    with fx.traceback.preserve_node_meta():
        graph = fx.Tracer().trace(lambda x: inner(x).relu())
    rec("custom", [(n.name, n.meta.get("custom")) for n in graph.nodes])


@differential
def test_current_meta_and_replay(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["a"] = 1
    with fx.traceback.preserve_node_meta(), fx.traceback.set_current_meta(x, "pass"):
        meta = fx.traceback.get_current_meta()
        rec("inside", sorted(meta))
        rec("from", [type(s).__name__ for s in meta.get("from_node", [])])
    with fx.traceback.set_current_replay_node(x):
        rec("replay", fx.traceback.get_current_replay_node())
    rec("no replay", fx.traceback.get_current_replay_node())


@differential
def test_node_sources(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    action = fx.traceback.NodeSourceAction
    source = fx.traceback.NodeSource(x, "pass", action.CREATE)
    rec("name", (source.name, source.target, source.pass_name))
    rec("dict keys", sorted(source.to_dict()))
    rec("text", re.sub(r"graph_id=\d+", "", source.print_readable()))
    rec("provenance", fx.traceback.get_graph_provenance_json(graph))
