"""Recording of operators, methods, functions and arguments, compared with torch.fx."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import math
from math import sqrt

import pytest
import torch
import torch.nn.functional as F
from recording import assert_same, node_list, record

import corsac.fx

Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Box:
    value: object
    size: int = 2


class Colour(enum.Enum):
    RED = 1


class MakesItself:
    def __fx_create_arg__(self, tracer):
        return tracer.create_node("call_function", MakesItself, (), {})


@torch.fx.wrap
def registered_with_torch(x, y=1):
    return x * y


corsac.fx.wrap("len")


@corsac.fx.wrap
def registered_with_corsac(x, y=1):
    return x * y


def plus_one(x):
    return x + 1


def unpack(x):
    a, b, c = x
    (d, e), g = a, b
    return a, b, c, d, e, g


def unpack_many(x):
    namespace: dict = {}
    names = ", ".join(f"a{i}" for i in range(300))
    exec(f"def f(x):\n  {names} = x\n  return a299", namespace)
    return namespace["f"](x)


def in_place(x, y):
    x += y
    x *= 2
    x -= 1
    x /= 3
    x @= y
    return x


def no_grad(x):
    with torch.no_grad():
        return x + 1


FUNCTIONS = {
    "arithmetic": lambda x, y: (
        x + y - 1,
        2 * x,
        x / 2,
        3 / x,
        x // 2,
        2 // x,
        x % 2,
        2 % x,
        x @ y,
    ),
    "powers": lambda x: (x**2, 2**x, pow(x, 2), pow(x, 2, 3)),
    "bits": lambda x, y: (x << 1, 1 << x, x >> 1, 1 >> x, x & y, 1 & x, x | y, x ^ y, ~x),
    "signs": lambda x: (-x, +x, abs(x)),
    "comparisons": lambda x, y: (x == y, x != y, x < 1, x > 1, x <= 1, x >= 1, 1 < x),  # noqa: SIM300
    "indices": lambda x, y: (x[0], x[1:, None, ..., ::2], x[y], x["key"]),
    "in place": in_place,
    "methods": lambda x: (x.relu().view(-1, 2), x.size(0), x.a.b(1, k=2), x(3), x.keys()),
    "attributes": lambda x: (x.T, x.shape[0], x.a.b.c, x.values + 1),
    "torch functions": lambda x, y: (
        torch.add(x, y, alpha=2),
        torch.cat([x, y], dim=1),
        torch.stack((x, y)),
        torch.sum(x, dtype=torch.float32),
        torch.where(x > 0, x, y),
        torch.einsum("ij,jk->ik", x, y),
        torch.max(x, dim=1).values,
        torch.split(x, 2)[0],
        torch.zeros_like(x, device=torch.device("cpu"), memory_format=torch.preserve_format),
    ),
    "functional": lambda x: (
        F.relu(x),
        F.softmax(x, dim=-1),
        F.pad(x, (1, 2)),
        F.max_pool2d(x, 2),
        F.interpolate(x, scale_factor=2.0),
        F.scaled_dot_product_attention(x, x, x),
        F.layer_norm(x, (2,)),
        F.conv2d(x, x),
        F.gelu(x),
        F.dropout(x, 0.5, True),
        F.batch_norm(x, x, x),
        F.embedding(x, x),
    ),
    "operators of aten": lambda x: (torch.ops.aten.add.Tensor(x, 1), torch.ops.aten.relu(x)),
    "constants": lambda x: (torch.ones(2) + x, x + torch.ones(2), torch.add(torch.ones(2), x)),
    "unpacking": unpack,
    "unpacking into 300 names": unpack_many,
    "wrapped functions": lambda x: (
        registered_with_torch(x, y=2),
        registered_with_corsac([x], {"a": x}),
        registered_with_torch(3),
        len(x) + len([1, 2]),
        sqrt(x),
        math.sqrt(x),
        math.floor(2.5),
    ),
    "containers": lambda x: x.foo([x, (x,)], {"a": x, 1: 2, "n": {"b": [x]}}, slice(x, None, 2)),
    "literals": lambda x: x.foo(None, ..., 1.5, True, "s", 2j, 10**30, range(3), inf=math.inf),
    "torch values": lambda x: x.foo(
        torch.float32, torch.device("cuda:1"), torch.strided, torch.channels_last, torch.Size([1])
    ),
    "objects": lambda x: x.foo(Colour.RED, Box(x), MakesItself()),
    "named tuple": lambda x: (x.foo(Pair(x, 1)), Pair(x, 2)),
    "keys of dictionaries": lambda x: x.foo({(1, 2): x, None: x, True: 1, 1.5: 2}),
    "nothing": lambda x: None,
    "formatting": lambda x: x.foo(f"{x}"),
    "without gradients": no_grad,
    # Refused:
    "a set": lambda x: x.foo({1, 2}),
    "bytes": lambda x: x.foo(b"abc"),
    "an object": lambda x: x.foo(object()),
    "a class": lambda x: x.foo(int),
    "a proxy as key": lambda x: x.foo({x: 1}),
    "a proxy in a key": lambda x: x.foo({(1, x): x}),
    "int": lambda x: int(x),
    "float": lambda x: float(x),
    "range": lambda x: range(x),
    "index of a list": lambda x: [1, 2][x],
    "power with a modulus, reflected": lambda x: pow(2, x, 3),
    "divmod": lambda x: divmod(x, 2),
    "round": lambda x: round(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_record_what_torch_fx_records(name):
    assert_same(lambda fx: record(fx, FUNCTIONS[name]))


def test_autowrapped_functions():
    def program(fx):
        return record(fx, lambda x: plus_one(x), autowrap_functions=(plus_one,))

    assert_same(program)


def test_deleting_an_item_is_refused():
    def delete(x):
        del x[0]

    assert_same(lambda fx: record(fx, delete))


def test_assigning_an_item_is_recorded():
    def assign(x, i):
        x[i, 0] = 1
        return x

    nodes = node_list(corsac.fx.Tracer().trace(assign))
    assert [n[:4] for n in nodes][2] == ("call_function", "setitem", "setitem", "(x, (i, 0), 1)")
    graph = corsac.fx.symbolic_trace(lambda x: assign(x, 0)).graph
    assert [n.op for n in graph.nodes] == ["placeholder", "call_function", "output"]


def test_proxies_of_a_graph_append_to_it():
    def program(fx):
        graph = fx.Graph()
        x = fx.Proxy(graph.placeholder("x"))
        y = torch.relu(x) + 1
        y.foo.bar(x)
        w = y.shape[0] + torch.ones(2).size(0)
        graph.output(w.node)
        facts = (repr(x), repr(x.foo), hash(x) == hash(x), x.node is x.node, callable(x))
        return node_list(graph), facts, x.tracer.scope.module_path, dict(x.tracer.module_stack)

    assert_same(program)


def test_attributes_can_be_set_on_proxies():
    def program(fx):
        graph = fx.Graph()
        x = fx.Proxy(graph.placeholder("x"))
        attribute = x.other
        x.mine, attribute.mine = 3, 4
        return x.mine, attribute.mine, attribute.attr, attribute.root is x

    assert_same(program)


def test_create_proxy_takes_names_types_and_factories():
    def program(fx):
        tracer = fx.Tracer()
        tracer.graph = fx.Graph()
        x = tracer.create_proxy("placeholder", "x", (), {})
        tracer.create_proxy("call_function", torch.relu, (x,), {}, name="hello", type_expr=int)
        made = tracer.create_proxy(
            "call_method", "relu", (x,), {}, proxy_factory_fn=lambda node: ("made", node.name)
        )
        return node_list(tracer.graph), made

    assert_same(program)


def test_proxies_are_instances_of_torch_fx_classes():
    seen = []

    def f(x):
        seen.append(isinstance(x, torch.fx.Proxy))
        seen.append(isinstance(x.a, torch.fx.proxy.Attribute))
        seen.append(isinstance(x, torch.Tensor))
        return x

    corsac.fx.Tracer().trace(f)
    assert seen == [True, True, False]


def test_a_copied_proxy_stands_for_the_same_node():
    x = corsac.fx.Proxy(corsac.fx.Graph().placeholder("x"))
    x.mine = [1]
    assert copy.copy(x).node is x.node
    deep = copy.deepcopy(x)
    assert deep.node.name == "x" and deep.node is not x.node
    assert deep.mine == [1] and deep.mine is not x.mine


def test_values_of_two_graphs_do_not_mix():
    x = corsac.fx.Proxy(corsac.fx.Graph().placeholder("x"))
    y = corsac.fx.Proxy(corsac.fx.Graph().placeholder("y"))
    with pytest.raises(RuntimeError, match="value y belongs to another graph"):
        _ = x + y
    assert len(x.node.graph.nodes) == 1


def test_deep_arguments_are_refused():
    nested: list = []
    for _ in range(10_000):
        nested = [nested]
    with pytest.raises(RecursionError):
        corsac.fx.Tracer().trace(lambda x: x.foo(nested))
