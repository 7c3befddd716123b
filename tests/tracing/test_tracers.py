"""Overridden methods of tracers are called as in torch.fx; inputs are made in the same way."""

from __future__ import annotations

import functools
import operator

import pytest
import torch
import torch.nn as nn
from recording import assert_same, node_list, record
from test_modules import Block, Net

import corsac.fx


def leaf_blocks(fx, log):
    class Leaves(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            log.append(module_qualified_name)
            return isinstance(m, Block) or super().is_leaf_module(m, module_qualified_name)

    return Leaves


def prefixed_paths(fx, log):
    class Paths(fx.Tracer):
        def path_of_module(self, mod):
            return "P." + super().path_of_module(mod)

    return Paths


def logged_calls(fx, log):
    class Calls(fx.Tracer):
        def call_module(self, m, forward, args, kwargs):
            result = super().call_module(m, forward, args, kwargs)
            log.append((type(m).__name__, self.scope.module_path, list(self.module_stack)))
            return result

    return Calls


def own_calls(fx, log):
    class Calls(fx.Tracer):
        def call_module(self, m, forward, args, kwargs):
            name = self.path_of_module(m)
            if not self.is_leaf_module(m, name):
                return forward(*args, **kwargs)
            return self.create_proxy("call_module", name, args, kwargs)

    return Calls


def logged_proxies(fx, log):
    class Proxies(fx.Tracer):
        def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, *_):
            proxy = super().create_proxy(kind, target, args, kwargs, name, type_expr)
            log.append((kind, proxy.node.name, self.scope.module_path))
            return proxy

    return Proxies


def logged_nodes(fx, log):
    class Nodes(fx.Tracer):
        def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
            node = super().create_node(kind, target, args, kwargs, name, type_expr)
            log.append((kind, node.name, str(args), str(kwargs), self.scope.module_path))
            return node

    return Nodes


def logged_arguments(fx, log):
    class Arguments(fx.Tracer):
        def create_arg(self, a):
            log.append(type(a).__name__)
            return super().create_arg(a)

    return Arguments


def logged_attributes(fx, log):
    class Attributes(fx.Tracer):
        def getattr(self, attr, attr_val, parameter_proxy_cache):
            log.append((attr, type(attr_val).__name__, sorted(parameter_proxy_cache)))
            return super().getattr(attr, attr_val, parameter_proxy_cache)

    return Attributes


def by_hand(fx, log):
    class Scoped(fx.Tracer):
        def __init__(self):
            super().__init__()
            self.scope = fx.proxy.Scope("", None)
            self.seen = {}

        def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
            node = super().create_node(kind, target, args, kwargs, name, type_expr)
            self.seen[node.name] = (self.scope.module_path, len(self.module_stack))
            log.append(self.seen[node.name])
            return node

    return Scoped


TRACERS = [
    leaf_blocks,
    prefixed_paths,
    logged_calls,
    own_calls,
    logged_proxies,
    logged_nodes,
    logged_arguments,
    logged_attributes,
    by_hand,
]


@pytest.mark.parametrize("make", TRACERS)
def test_overridden_methods(make):
    def program(fx):
        log: list = []
        return record(fx, Net(), tracer=make(fx, log)), log

    assert_same(program)


def test_a_method_replaced_on_the_instance_is_called():
    def program(fx):
        tracer = fx.Tracer()
        tracer.is_leaf_module = lambda m, name: isinstance(m, Block)
        return node_list(tracer.trace(Net()))

    # nn.Linear is then called, and computes with proxies.
    assert_same(program)


def test_own_proxy_classes():
    def program(fx):
        log = []

        class Subtracting(fx.Proxy):
            def __init__(self, node, tracer):
                super().__init__(node, tracer)
                self.extra = node.name

            def __add__(self, other):
                return self.tracer.create_proxy("call_function", operator.sub, (self, other), {})

        class Own(fx.Tracer):
            def proxy(self, node):
                return Subtracting(node, self)

        def f(x):
            y = x + 1
            log.append((type(y).__name__, y.extra, isinstance(y, fx.Proxy), sorted(vars(y))[:1]))
            return torch.relu(y) * 2, y.attr.other, 3 + y, y.foo(y)

        return record(fx, f, tracer=Own), log

    assert_same(program)


def test_a_tracer_may_know_truth_items_and_keys():
    def program(fx):
        class Knowing(fx.Tracer):
            def to_bool(self, obj):
                return True

            def iter(self, obj):
                return iter([obj[0], obj[1]])

            def keys(self, obj):
                return ["a", "b"]

        def f(x):
            if x > 1:
                x = x + 1
            return list(x), dict(**x)

        return record(fx, f, tracer=Knowing)

    assert_same(program)


def test_the_traced_method_can_be_another_one():
    class Net(nn.Module):
        def forward(self, x):
            return x

        def other(self, x, y=1):
            return x + y

    def program(fx, root):
        class Other(fx.Tracer):
            traced_func_name = "other"

        return record(fx, root, tracer=Other)

    assert_same(functools.partial(program, root=Net()))
    assert_same(functools.partial(program, root=nn.ReLU()))


@pytest.mark.parametrize("function", [torch.relu_, torch.relu])
def test_mutable_operations_can_be_refused(function):
    def program(fx):
        class Checked(fx.Tracer):
            check_mutable_operations = True

        return record(fx, lambda x: function(x), tracer=Checked)

    assert_same(program)


def test_stack_traces_show_the_user_s_frames():
    class Traced(corsac.fx.Tracer):
        record_stack_traces = True

    trace = [node.stack_trace for node in Traced().trace(Net()).nodes]
    assert trace[0] is None
    assert "return self.seq(self.lin(x)" in trace[1]
    assert "x = self.a(x) + self.b(x)" in trace[1]
    assert "corsac/fx" not in trace[1]


def test_asserts_can_be_recorded():
    class Asserting(corsac.fx.Tracer):
        trace_asserts = True

    # Compiled here, since pytest replaces the assert statements of a test module.
    namespace: dict = {}
    exec(
        "def f(x):\n"
        "    assert x.shape[0] == 2\n"
        "    assert (x > 0).all(), 'message'\n"
        "    return x\n"
        "def branch(x):\n"
        "    if x > 0:\n"
        "        raise AssertionError\n"
        "    return x\n",
        namespace,
    )
    graph = Asserting().trace(namespace["f"])
    calls = [node for node in graph.nodes if node.target is torch.fx.proxy.assert_fn]
    assert [str(call.args) for call in calls] == ["(eq,)", "(all_1,)"]
    with pytest.raises(corsac.fx.proxy.TraceError):
        corsac.fx.Tracer().trace(namespace["f"])


# ---- inputs ----


def defaults(a, b=2, *args, c, d=4, e: int = 5, **kwargs):
    return a + b, args, c, d + e, kwargs


class Varying(nn.Module):
    def forward(self, x, *args, y: torch.Tensor = None, **kwargs) -> torch.Tensor:
        return x, args, y, kwargs


class WithoutSelf(nn.Module):
    def forward(*args):
        return args[1]


def annotated(x: torch.Tensor, y: int = 3) -> torch.Tensor:
    return x + y


def decorate(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        return f(*args, **kwargs) + 1

    return wrapper


@decorate
def decorated(x, y=2):
    return x * y


ROOTS = {
    "defaults": lambda: defaults,
    "star arguments": Varying,
    "no self": WithoutSelf,
    "annotations": lambda: annotated,
    "decorated": lambda: decorated,
    "builtin": lambda: torch.relu,
    "partial": lambda: functools.partial(annotated, 1),
}


@pytest.mark.parametrize("name", ROOTS)
def test_inputs(name):
    assert_same(lambda fx: record(fx, ROOTS[name]()))


class Flat(nn.Module):
    def forward(self, *args):
        return args[0] + args[1]


@pytest.mark.filterwarnings("ignore:Was not able to add assertion")
@pytest.mark.parametrize(
    ("root", "concrete_args"),
    [
        (lambda a, b: a if b == True else a * 2, lambda PH: {"b": False}),  # noqa: E712
        (lambda a, b=None: a if b is None else a * 2, lambda PH: {"b": None}),
        (lambda a, b: a + b, lambda PH: (PH, 3)),
        (lambda a, b: a + b, lambda PH: (1,)),
        (lambda a, b: a.x(1), lambda PH: {"b": object()}),
        (Flat(), lambda PH: (PH, PH)),
        (Flat(), lambda PH: (corsac.fx._symbolic_trace.PHWithMeta("key"), PH)),
    ],
)
def test_fixed_inputs(root, concrete_args):
    assert_same(lambda fx: record(fx, root, concrete_args(fx.PH)))


def test_fixed_structure_of_inputs():
    def f(x, y):
        out = 0
        for value in x.values():
            out += value
        return {"o": out, "l": [y[0], y[1]]}

    def program(fx):
        PH = fx.PH
        tracer = fx.Tracer()
        graph = tracer.trace(f, {"x": {"a": PH, "b": PH, "c": 3}, "y": (PH, PH)})
        return node_list(graph), str(graph._codegen.pytree_info)

    assert_same(program)
    traced = corsac.fx.symbolic_trace(f, {"x": {"a": corsac.fx.PH, "b": corsac.fx.PH}})
    assert traced({"a": 1, "b": 2}, (3, 4)) == {"o": 3, "l": [3, 4]}


def test_constructors_of_proxyable_classes_are_recorded():
    def program(fx):
        class Pair(metaclass=fx.ProxyableClassMeta):
            def __init__(self, a, b):
                self.a, self.b = a, b

        constant = Pair(1, 2)
        return record(fx, lambda x, y: (x.add(Pair(y, y)), x.foo(constant), Pair(1, 2).a))

    assert_same(program)


def test_proxyable_classes_of_torch_fx_are_recorded():
    class Pair(metaclass=torch.fx.ProxyableClassMeta):
        def __init__(self, a, b):
            self.a, self.b = a, b

    graph = corsac.fx.Tracer().trace(lambda x: Pair(x, 1))
    assert [node.target for node in graph.nodes][1] is Pair
