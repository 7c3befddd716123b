"""Changing a graph: arguments, uses, order, and the accounting of users."""

import operator

import torch

from kit import differential, known_difference


def chain(fx):
    """x -> a -> b -> c, with b used twice by c, and its nodes by name."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y")
    a = graph.call_function(torch.relu, (x,), name="a")
    b = graph.call_function(torch.add, (a, y), {"alpha": 2}, name="b")
    c = graph.call_function(torch.cat, ([b, a, b],), {"dim": 0}, name="c")
    graph.output((c, {"b": b}))
    return graph, {n.name: n for n in graph.nodes}


def users(graph):
    return [(n.name, [u.name for u in n.users], n.all_input_nodes) for n in graph.nodes]


@known_difference("users type", reason="The type of `Node.users`")
@differential
def test_users_and_inputs(fx, rec):
    graph, nodes = chain(fx)
    rec("users", users(graph))
    rec("users type", type(nodes["a"].users).__name__)
    rec("values", list(nodes["a"].users.values()))


@differential
def test_assigning_args(fx, rec):
    graph, nodes = chain(fx)
    nodes["c"].args = ((nodes["a"], nodes["y"], 3),)
    rec("after args", users(graph))
    nodes["b"].kwargs = {"alpha": nodes["x"], "out": [nodes["a"], {"k": nodes["y"]}]}
    rec("after kwargs", users(graph))
    nodes["b"].args = ()
    rec("graph", graph)


@known_difference("none", "number", reason="Arguments that are no tuple or dict")
@differential
def test_what_args_become(fx, rec):
    graph, nodes = chain(fx)
    node = nodes["c"]
    node.args = ([1, [2, {"k": [nodes["a"]]}]], {"d": (1, [2])}, slice(nodes["a"], None))
    rec("types", [type(a).__name__ for a in node.args])
    rec("inner", type(node.args[0][1]).__name__)
    rec("deep", type(node.args[0][1][1]).__name__)
    rec("kwargs", type(node.kwargs).__name__)
    rec("args", node.args)
    rec.call("list append", node.args[0].append, 3)
    rec.call("dict set", operator.setitem, node.args[1], "k", 3)
    rec.call("kwargs set", operator.setitem, node.kwargs, "k", 3)
    rec.call("tuple set", operator.setitem, node.args, 0, 3)
    rec("slice", node.args[2])
    rec("graph", graph)
    rec.call("list", setattr, node, "args", [nodes["a"]])
    rec.call("none", setattr, node, "kwargs", None)
    rec.call("number", setattr, node, "args", 3)


@differential
def test_update_arg(fx, rec):
    graph, nodes = chain(fx)
    nodes["b"].update_arg(0, nodes["x"])
    nodes["b"].update_arg(-1, 7)
    rec("after", graph)
    rec.call("out of range", nodes["b"].update_arg, 5, 1)
    nodes["b"].update_kwarg("alpha", nodes["y"])
    nodes["b"].update_kwarg("out", None)
    rec("kwargs", graph)


@known_difference("order", reason="`Node.insert_arg`")
@known_difference("types", reason="`Node.insert_arg`")
@differential
def test_insert_arg(fx, rec):
    graph, nodes = chain(fx)
    nodes["b"].insert_arg(0, nodes["x"])
    nodes["b"].insert_arg(3, [nodes["y"], nodes["x"]])
    nodes["b"].insert_arg(1, 5)
    rec("text", str(graph))
    rec("order", users(graph))
    rec("sorted", [(n, sorted(u), sorted(i)) for n, u, i in users(graph)])
    rec.call("negative", nodes["b"].insert_arg, -1, 0)
    rec.call("too far", nodes["b"].insert_arg, 9, 0)
    rec("types", [type(a).__name__ for a in nodes["b"].args])


@differential
def test_replace_all_uses_with(fx, rec):
    graph, nodes = chain(fx)
    rec("changed", nodes["b"].replace_all_uses_with(nodes["a"]))
    rec("graph", graph)
    rec("none left", nodes["b"].replace_all_uses_with(nodes["a"]))


@differential
def test_replace_all_uses_with_a_condition(fx, rec):
    graph, nodes = chain(fx)
    asked = []

    def only_output(user):
        asked.append(user.name)
        return user.op == "output"

    rec("changed", nodes["b"].replace_all_uses_with(nodes["x"], only_output))
    rec("asked", asked)
    rec("graph", graph)
    rec("nothing", nodes["a"].replace_all_uses_with(nodes["x"], delete_user_cb=lambda u: False))


@differential
def test_replace_uses_with_a_user(fx, rec):
    graph, nodes = chain(fx)
    with graph.inserting_after(nodes["a"]):
        new = graph.call_function(torch.neg, (nodes["a"],))
    nodes["a"].replace_all_uses_with(new, lambda user: user is not new)
    rec("graph", graph)
    other, others = chain(fx)
    others["a"].replace_all_uses_with(others["b"])
    rec("cyclic", [(n.name, n.args) for n in other.nodes])
    rec.call("lint", other.lint)


@differential
def test_replace_all_uses_with_itself(fx, rec):
    graph, nodes = chain(fx)
    rec("changed", nodes["a"].replace_all_uses_with(nodes["a"]))
    rec("graph", graph)


@differential
def test_propagating_meta(fx, rec):
    graph, nodes = chain(fx)
    nodes["b"].meta["k"] = 1
    nodes["b"].replace_all_uses_with(nodes["a"], propagate_meta=True)
    rec("meta", dict(nodes["a"].meta))
    nodes["x"].meta["k"] = 2
    rec.call("again", nodes["a"].replace_all_uses_with, nodes["x"], propagate_meta=True)


@differential
def test_replace_input_with(fx, rec):
    graph, nodes = chain(fx)
    nodes["c"].replace_input_with(nodes["b"], nodes["x"])
    nodes["b"].replace_input_with(nodes["c"], nodes["x"])
    rec("graph", graph)


@differential
def test_user_order_after_edits(fx, rec):
    graph, nodes = chain(fx)
    nodes["c"].args = ([nodes["y"]],)
    nodes["c"].args = ([nodes["a"], nodes["y"]],)
    rec("re-added", users(graph))
    nodes["b"].args = (nodes["y"], nodes["a"])
    rec("swapped", users(graph))
    nodes["x"].replace_all_uses_with(nodes["y"])
    rec("replaced", users(graph))


@differential
def test_moving_nodes(fx, rec):
    graph, nodes = chain(fx)
    with graph.inserting_before(nodes["output"]):
        d = graph.call_function(torch.neg, (nodes["x"],), name="d")
        e = graph.call_function(torch.abs, (nodes["x"],), name="e")
    nodes["a"].append(d)
    rec("appended", [n.name for n in graph.nodes])
    nodes["a"].prepend(e)
    rec("prepended", [n.name for n in graph.nodes])
    nodes["c"].prepend(e)
    nodes["c"].prepend(d)
    rec("moved", [n.name for n in graph.nodes])
    rec("length", len(graph.nodes))
    rec("graph", graph)


@differential
def test_moving_next_to_itself(fx, rec):
    graph, nodes = chain(fx)
    rec.call("append itself", nodes["a"].append, nodes["a"])
    rec.call("prepend itself", nodes["a"].prepend, nodes["a"])
    nodes["a"].append(nodes["b"])
    nodes["b"].prepend(nodes["a"])
    rec("order", [n.name for n in graph.nodes])


@differential
def test_moving_a_node_of_another_graph(fx, rec):
    graph, nodes = chain(fx)
    _, others = chain(fx)
    rec.call("append", nodes["a"].append, others["a"])
    rec.call("prepend", nodes["a"].prepend, others["a"])
    rec("order", [n.name for n in graph.nodes])


@differential
def test_neighbours(fx, rec):
    graph, nodes = chain(fx)
    rec("next", nodes["a"].next)
    rec("previous", nodes["a"].prev)
    rec("identity", nodes["a"].next is nodes["b"])
    rec("beyond", (nodes["output"].next.op, nodes["x"].prev.op))
    rec("same root", nodes["output"].next is nodes["x"].prev)


@differential
def test_order_comparisons(fx, rec):
    graph, nodes = chain(fx)
    a, b = nodes["a"], nodes["b"]
    rec("less", (a < b, b < a, a <= a, a >= b, b > a, a < a))
    rec("sorted", sorted([nodes["c"], b, nodes["x"], a]))
    rec("largest", max(nodes.values()))
    c = nodes["c"]
    a.prepend(c)
    rec("after moving", (c < a, b < c))
    for _ in range(50):
        with graph.inserting_before(b):
            graph.call_function(torch.neg, (a,))
    rec("still sorted", sorted(graph.nodes) == list(graph.nodes))


@differential
def test_equality_and_hashing(fx, rec):
    _, nodes = chain(fx)
    a, b = nodes["a"], nodes["b"]
    rec("equal", (a == a, a == b, a != b, a == "a", a == 1))
    rec("in sets", (len({a, b, a}), a in {a: 1}, b in {a: 1}))


@differential
def test_changing_name_target_op_and_type(fx, rec):
    graph, nodes = chain(fx)
    nodes["a"].name = "renamed"
    nodes["a"].target = torch.sigmoid
    nodes["a"].type = torch.Tensor
    nodes["b"].op = "call_method"
    nodes["b"].target = "add"
    rec("graph", graph)
    nodes["c"]._rename("fresh")
    nodes["x"]._rename("fresh")
    nodes["y"]._rename("y")
    rec("renamed", graph)


@differential
def test_metadata_and_attributes(fx, rec):
    graph, nodes = chain(fx)
    node = nodes["a"]
    rec("empty", node.meta)
    node.meta["val"] = [1, 2]
    node.meta["deep"] = {"k": node}
    node.colour = "red"
    rec("colour", [getattr(n, "colour", None) for n in graph.nodes])
    rec("kept", next(n for n in graph.nodes if n.name == "a").colour)
    rec("meta is the same", node.meta is node.meta)
    node.meta = {"new": 1}
    rec("replaced", node.meta)
    del node.colour
    rec.call("deleted", getattr, node, "colour")
    rec("stack trace", node.stack_trace)
    node.stack_trace = "File x"
    rec("meta", node.meta)


@differential
def test_renaming_does_not_touch_references(fx, rec):
    graph, nodes = chain(fx)
    nodes["a"].name = "zzz"
    rec("text", str(graph))
    rec("args", nodes["b"].args)


@differential
def test_erasing_in_reverse(fx, rec):
    graph, nodes = chain(fx)
    for name in ("output", "c", "b", "a"):
        graph.erase_node(nodes[name])
    rec("graph", graph)
    rec("users", users(graph))
    graph.output(nodes["x"])
    rec("rebuilt", graph)


@differential
def test_clearing(fx, rec):
    graph, nodes = chain(fx)
    graph._clear_nodes()
    rec("graph", graph)
    rec("length", len(graph.nodes))
