"""Generated source: targets, operators, names and freed values."""

import builtins
import math
import operator
import types

import pytest
import torch
from torch.nn import functional as F

from kit import differential, known_difference, load_source
from kit.observe import attempt

OPERATORS = ["add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "lshift", "rshift", "and_",
             "or_", "xor", "getitem", "matmul", "eq", "ne", "lt", "gt", "le", "ge", "iadd", "iand",
             "ifloordiv", "ilshift", "imod", "imul", "imatmul", "ior", "ipow", "irshift", "isub",
             "itruediv", "ixor", "concat", "contains", "is_", "is_not", "countOf"]  # fmt: skip


def one_call(fx, function, args, kwargs=None):
    """A graph with one call of ``function`` on placeholders x and y."""
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output(graph.call_function(function, args(x, y), kwargs or {}))
    return graph


@pytest.mark.parametrize("name", OPERATORS)
@differential
def test_operator(fx, rec, name):
    function = getattr(operator, name)
    rec("nodes", one_call(fx, function, lambda x, y: (x, y)))
    rec("constants", one_call(fx, function, lambda x, y: (2, -3)))
    rec("containers", one_call(fx, function, lambda x, y: ([x], (y,))))


@pytest.mark.parametrize("name", ["neg", "pos", "invert", "abs", "not_", "truth", "index"])
@differential
def test_unary_operator(fx, rec, name):
    function = getattr(operator, name)
    rec("node", one_call(fx, function, lambda x, y: (x,)))
    rec("constant", one_call(fx, function, lambda x, y: (-2,)))


@known_difference("keywords", "three", reason="an operator with too few or too many arguments")
@differential
def test_operators_with_keywords_or_the_wrong_number_of_arguments(fx, rec):
    rec("keywords", one_call(fx, operator.add, lambda x, y: (x, y), {"k": 1}))
    rec("three", one_call(fx, operator.add, lambda x, y: (x, y, x)))
    rec("one", one_call(fx, operator.add, lambda x, y: (x,)))
    rec("setitem", one_call(fx, operator.setitem, lambda x, y: (x, (slice(None), 1), y)))
    rec("getitem of slices", one_call(fx, operator.getitem, lambda x, y: (x, (slice(y, 2), ...))))
    rec("in-place on a constant", one_call(fx, operator.iadd, lambda x, y: (3, y)))


@known_difference("unicode", reason="a non-ASCII attribute or method name")
@differential
def test_getattr_forms(fx, rec):
    for label, args in {
        "plain": lambda x, y: (x, "shape"),
        "not an identifier": lambda x, y: (x, "a b"),
        "dotted": lambda x, y: (x, "a.b"),
        "keyword": lambda x, y: (x, "class"),
        "empty": lambda x, y: (x, ""),
        "default": lambda x, y: (x, "shape", None),
        "of a constant": lambda x, y: (3, "real"),
        "of text": lambda x, y: ("text", "real"),
        "node name": lambda x, y: (x, y),
        "unicode": lambda x, y: (x, "größe"),
        "digit": lambda x, y: (x, "0"),
        "magic": lambda x, y: (x, "__class__"),
    }.items():
        rec.call(label, lambda args=args: one_call(fx, getattr, args))


@differential
def test_targets_from_everywhere(fx, rec):
    def local(x):
        return x

    targets = [torch.relu, F.relu, torch.Tensor.relu, torch.ops.aten.relu.default,
               torch.ops.aten.relu, torch._C._nn.gelu, len, print, isinstance, math.sqrt,
               torch.nn.functional.softmax, torch.Tensor.add_, torch.Tensor.__add__,
               torch.nn.init.zeros_, torch.fft.fft, torch.linalg.norm, torch.special.erf, local,
               torch._assert, torch.segment_reduce, torch.jit.annotate, types.SimpleNamespace,
               int, dict, torch.Size, torch.device, torch.nn.Linear, torch.utils.checkpoint,
               torch.cat, torch.nn.functional.boolean_dispatch, builtins.abs, operator.itemgetter]  # fmt: skip
    for index, target in enumerate(targets):
        graph = attempt(called_once, fx, target)
        rec(f"create {index}", isinstance(graph, fx.Graph))
        if isinstance(graph, fx.Graph):
            rec.call(f"text {index}", str, graph)
            rec.call(f"code {index}", graph.python_code, "self")


def called_once(fx, target):
    graph = fx.Graph()
    graph.output(graph.call_function(target, (graph.placeholder("x"),)))
    return graph


@differential
def test_lambdas_and_callables_as_targets(fx, rec):
    named = lambda x: x
    rec.call("lambda", lambda: one_call(fx, named, lambda x, y: (x,)).python_code("self"))

    class Callable:
        def __call__(self, x):
            return x

    rec.call("object", lambda: one_call(fx, Callable(), lambda x, y: (x,)).python_code("self"))
    import functools

    partial = functools.partial(torch.add, 1)
    rec.call("partial", lambda: one_call(fx, partial, lambda x, y: (x,)).python_code("self"))


@differential
def test_two_functions_of_the_same_name(fx, rec):
    first = load_source("def f(x):\n    return x + 1\n", fx, "first_module").f
    second = load_source("def f(x):\n    return x + 2\n", fx, "first_module").f
    third = load_source("def f(x):\n    return x + 3\n", fx, "third_module").f
    graph = fx.Graph()
    x = graph.placeholder("x")
    for function in (first, second, third, first):
        x = graph.call_function(function, (x,))
    graph.output(x)
    rec("graph", graph)
    module = fx.GraphModule({}, graph)
    rec.call("result", module, torch.zeros(1))


@known_difference(
    "graph", reason="a parameter that hides a global which the code uses (`torch`, `device`, …)"
)
@differential
def test_nodes_named_like_globals(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("torch")
    y = graph.call_function(torch.add, (x, 1), name="inf")
    z = graph.call_function(torch.add, (y, math.inf), name="math_sqrt")
    w = graph.call_function(math.sqrt, (z,), name="device")
    v = graph.call_function(torch.zeros, (w,), {"device": torch.device("cpu")}, name="print")
    graph.output(v)
    rec("graph", graph)


@differential
def test_placeholder_names_that_differ_from_targets(fx, rec):
    graph = fx.Graph()
    x = graph.create_node("placeholder", "x", name="value")
    y = graph.create_node("placeholder", "len")
    z = graph.create_node("placeholder", "*args", name="rest")
    w = graph.create_node("placeholder", "**kwargs")
    graph.output((x, y, z, w))
    rec("graph", graph)


@differential
def test_attribute_paths(fx, rec):
    graph = fx.Graph()
    for path in ("a", "a.b", "0", "layers.0.weight", "x y", "a.class.b", "a..b", "_", "ünï"):
        graph.create_node("get_attr", path)
        graph.create_node("call_module", path, ())
    graph.output(None)
    rec("graph", graph)
    rec("other root", graph.python_code("root"))
    rec("dotted root", graph.python_code("self.inner"))


@differential
def test_methods(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    for name in ("relu", "__add__", "a.b", "x y", "class", "T"):
        graph.call_method(name, (x, 1), {"k": x})
    graph.call_method("relu", (3,))
    graph.call_method("join", ("text", [x]))
    graph.output(None)
    rec("graph", graph)
    rec.call("no self", lambda: method_without_self(fx).python_code("self"))


def method_without_self(fx):
    graph = fx.Graph()
    graph.call_method("relu", ())
    graph.output(None)
    return graph


@differential
def test_freed_values(fx, rec):
    def f(x, y):
        a = x + y
        b = a + x
        c = torch.cat([a, b, a])
        torch.relu(c)
        d = c.sum() + y
        return d, d

    rec("traced", fx.symbolic_trace(f))
    rec("chain", fx.symbolic_trace(lambda x: x.relu().neg().abs()))
    rec("unused", fx.symbolic_trace(lambda x: (x.relu(), x)[1]))


@differential
def test_graphs_without_output(fx, rec):
    graph = fx.Graph()
    rec("empty", graph.python_code("self"))
    x = graph.placeholder("x")
    rec("placeholder", graph.python_code("self"))
    graph.call_function(torch.relu, (x,))
    rec("call", graph.python_code("self"))


@differential
def test_code_after_the_output(fx, rec):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(x)
    graph.call_function(torch.relu, (x,))
    graph.placeholder("late")
    rec("graph", graph)


@differential
def test_names(fx, rec):
    graph = fx.Graph()
    for name in ("a", "a", "a_1", "a_1", "a_2", "A", "aB", "ABC", "fooBar", "x1", "x_01", "x_1_2",
                 "1a", "", "_", "__", "a__b", "a-b c", "für", "if", "None", "list", "list_1",
                 "self", "nan", "NoneType", "pytree", "forward", "x_", "x__1", "a.b.c", "a_" * 20,
                 "__init__", "torch", "True", "print", "print_2", "10", "_10", "x_99999999999999999999"):  # fmt: skip
        graph.placeholder(name)
    rec("placeholders", [(n.name, n.target) for n in graph.nodes])
    other = fx.Graph()
    for target in ("relu", "relu_", "__add__", "ReLU", "isNan", "a.b", "size", "T", "_x"):
        other.create_node("call_method", target, (1,))
        other.create_node("call_module", f"{target}.0", ())
        other.create_node("get_attr", f"{target}.weight")
    rec("others", [(n.name, n.target) for n in other.nodes])


@differential
def test_name_suffixes_count_on(fx, rec):
    graph = fx.Graph()
    given = ["relu_3", "relu", "relu", "relu_3", "relu_2", "relu_10", "relu", "relu_3_1", "relu_3"]
    rec("names", [graph.create_node("call_function", torch.relu, name=n).name for n in given])
    copies = fx.Graph()
    rec("copied", [copies.node_copy(n).name for n in graph.nodes])


@differential
def test_namespace(fx, rec):
    namespace = fx.graph._Namespace()
    things = [object() for _ in range(4)]
    rec("first", [namespace.create_name("x", thing) for thing in things])
    rec("same object", namespace.create_name("other", things[0]))
    rec("no object", [namespace.create_name("x", None) for _ in range(2)])
    rec("builtin", namespace.create_name("len", len))
    rec("not the builtin", namespace.create_name("len", None))
    namespace.associate_name_with_obj("given", "object")
    rec("associated", namespace.create_name("anything", "object"))


@differential
def test_line_numbers(fx, rec):
    graph = fx.symbolic_trace(lambda x: torch.relu(x).neg() + 1).graph
    code = graph.python_code("self")
    rec("lines", code._lineno_map)
    rec("start", code._prologue_start)
