"""Every operator of a proxy, its reflected form, and the code that it becomes."""

import operator

import pytest
import torch

from kit import differential

BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift",
          "and_", "or_", "xor", "eq", "ne", "lt", "gt", "le", "ge", "getitem"]  # fmt: skip
UNARY = ["pos", "neg", "invert", "abs"]
INPLACE = ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "ilshift",
           "irshift", "iand", "ior", "ixor"]  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
@differential
def test_binary(fx, rec, name):
    function = getattr(operator, name)
    rec("both", fx.symbolic_trace(lambda x, y: function(x, y)))
    rec("constant right", fx.symbolic_trace(lambda x: function(x, 3)))
    rec.call("constant left", fx.symbolic_trace, lambda x: function(3, x))


@pytest.mark.parametrize("name", UNARY)
@differential
def test_unary(fx, rec, name):
    function = getattr(operator, name)
    rec("traced", fx.symbolic_trace(lambda x: function(x)))


@pytest.mark.parametrize("name", INPLACE)
@differential
def test_in_place(fx, rec, name):
    function = getattr(operator, name)
    rec.call("traced", fx.symbolic_trace, lambda x, y: function(x, y))


@differential
def test_operators_that_cannot_be_recorded(fx, rec):
    cases = {
        "contains": lambda x: 1 in x,
        "index": lambda x: [1, 2][x],
        "int": lambda x: int(x),
        "float": lambda x: float(x),
        "complex": lambda x: complex(x),
        "bool": lambda x: bool(x),
        "not": lambda x: not x,
        "and": lambda x: x and 1,
        "if": lambda x: 1 if x else 2,
        "len": lambda x: len(x),
        "round": lambda x: round(x),
        "divmod": lambda x: divmod(x, 2),
        "reversed": lambda x: list(reversed(x)),
        "hash": lambda x: {x: 1} and 3,
        "str": lambda x: str(x)[:0],
        "format": lambda x: f"{x}"[:0],
        "delete item": lambda x: operator.delitem(x, 0),
        "range": lambda x: range(x),
        "with": enters,
        "sum": lambda x: sum(x),
        "list": lambda x: list(x),
        "max": lambda x: max(x, 1),
        "isinstance": lambda x: isinstance(x, torch.Tensor),
        "call": lambda x: x(1, k=2),
        "abs": lambda x: abs(x),
        "chained": lambda x: 0 < x < 3,
        "star": lambda x: torch.cat([*x]),
        "double star": lambda x: dict(**x),
        "keys": lambda x: x.keys(),
        "iter": lambda x: iter(x),
        "next": lambda x: next(x),
        "set attribute": sets_attribute,
    }
    for label, function in cases.items():
        rec.call(label, fx.symbolic_trace, function)


def enters(x):
    with x:
        return x


def sets_attribute(x):
    x.colour = 3
    return x + 1


@differential
def test_operators_in_one_expression(fx, rec):
    def f(x, y):
        return ((x + 1 > y) & (x != y) | ~(x < 0)) ^ (-x >= +y)

    traced = rec("traced", fx.symbolic_trace(f))
    rec.call("result", traced, torch.tensor([1, 2]), torch.tensor([0, 5]))


@differential
def test_reflected_operators_keep_the_order(fx, rec):
    def f(x):
        return 2 - x, 2 / x, 2**x, 7 // x, 7 % x, 1 << x, 64 >> x, 3 & x, 3 | x, 3 ^ x

    traced = rec("traced", fx.symbolic_trace(f))
    rec.call("result", traced, torch.tensor([1, 2, 3]))


@differential
def test_tensor_on_the_left(fx, rec):
    constant = torch.arange(3.0)

    def f(x):
        return constant + x, constant * x, constant - x, constant @ x, constant == x, constant[x]

    rec.call("traced", fx.symbolic_trace, f)


@differential
def test_numbers_from_numpy_on_the_left(fx, rec):
    numpy = pytest.importorskip("numpy")

    def f(x):
        return x * numpy.float64(2.0) + numpy.int64(3)

    rec.call("traced", fx.symbolic_trace, f)


@differential
def test_proxies_around_nodes(fx, rec):
    graph = fx.Graph()
    x = fx.Proxy(graph.placeholder("x"))
    y = x + 1
    z = torch.relu(y).view(-1, y.size(0))
    graph.output((z.T @ x).node)
    rec("graph", graph)
    rec("repr", repr(x))
    rec("tracer", type(x.tracer).__name__)


@differential
def test_two_tracers_do_not_mix(fx, rec):
    first, second = fx.Graph(), fx.Graph()
    x = fx.Proxy(first.placeholder("x"), fx.proxy.GraphAppendingTracer(first))
    y = fx.Proxy(second.placeholder("y"), fx.proxy.GraphAppendingTracer(second))
    rec.call("function", torch.add, x, y)
