"""Proxies under Python's and PyTorch's protocols: attributes, calls, iteration, truth."""

import copy
import enum
import pickle
from collections import namedtuple
from dataclasses import dataclass

import torch
from torch import nn

from kit import differential, known_difference

Pair = namedtuple("Pair", "left right")


class Colour(enum.Enum):
    RED = 1


@dataclass
class Options:
    scale: int
    shift: object


@differential
def test_attributes_become_nodes_only_when_used(fx, rec):
    def f(x):
        unused = x.never_used
        shape = x.shape
        method = x.relu
        return shape[0], method(), x.T, x.dtype, x.real.imag

    traced = rec("traced", fx.symbolic_trace(f))
    rec("names", [n.name for n in traced.graph.nodes])


@differential
def test_method_calls_with_keywords(fx, rec):
    rec("traced", fx.symbolic_trace(lambda x: x.sum(dim=(0, 1), keepdim=True).to(torch.int8)))


@differential
def test_calling_a_proxy(fx, rec):
    rec("traced", fx.symbolic_trace(lambda f, x: f(x, key=f)))


@differential
def test_unpacking(fx, rec):
    def f(x):
        a, b = x
        c, d, e = a.split(2)
        return a + b + c + d + e

    rec("traced", fx.symbolic_trace(f))


@differential
def test_iterating(fx, rec):
    def loop(x):
        for _ in x:
            pass

    def starred(x):
        first, *rest = x
        return first

    rec.call("loop", fx.symbolic_trace, loop)
    rec.call("starred", fx.symbolic_trace, starred)
    rec.call("comprehension", fx.symbolic_trace, lambda x: [v for v in x])
    rec.call("zip", fx.symbolic_trace, lambda x: list(zip(x, [1, 2], strict=False)))


@differential
def test_a_tracer_may_iterate_and_decide(fx, rec):
    class Deciding(fx.Tracer):
        def to_bool(self, obj):
            return True

        def iter(self, obj):
            return iter([obj[0], obj[1]])

        def keys(self, obj):
            return ["left", "right"]

    def f(x, y):
        total = 0
        for value in x:
            if value > 0:
                total = total + value
        return torch.stack([*x]), dict(**y), total

    rec.call("graph", Deciding().trace, f)


@differential
def test_trace_asserts(fx, rec):
    class Asserting(fx.Tracer):
        trace_asserts = True

    def f(x):
        assert x.sum() > 0
        assert x.size(0) == 2, "message"
        return x

    def g(x):
        if x.sum() > 0:
            return x
        return -x

    rec.call("asserts", Asserting().trace, f)
    rec.call("branch", Asserting().trace, g)
    rec.call("off", fx.Tracer().trace, f)


@differential
def test_torch_assert_is_recorded(fx, rec):
    def f(x):
        torch._assert(x.sum() > 0, "must be positive")
        return x

    traced = rec("traced", fx.symbolic_trace(f))
    rec.call("fails", traced, -torch.ones(1))
    traced.graph.eliminate_dead_code()
    rec("after", traced.graph)


@known_difference("plain", "slices", reason="Item assignment on a proxy")
@differential
def test_item_assignment(fx, rec):
    def plain(x):
        x[0] = 1
        return x

    def slices(x, y):
        x[:, 1:2] = y
        return x

    rec.call("plain", fx.symbolic_trace, plain)
    rec.call("slices", fx.symbolic_trace, slices)


@differential
def test_representations(fx, rec):
    seen = []

    def f(x):
        seen.extend([repr(x), str(x + 1), repr(x.shape), str(x.view), f"{x}"])
        return x

    fx.symbolic_trace(f)
    rec("seen", seen)


@differential
def test_proxy_attributes(fx, rec):
    def f(x):
        y = x + 1
        seen.append((y.node.name, y.node.op, type(y.tracer).__name__))
        seen.append(type(y.shape).__name__)
        seen.append((y.shape.attr, y.shape.root.node.name))
        return y

    seen = []
    rec("traced", fx.symbolic_trace(f))
    rec("seen", seen)


@differential
def test_arguments_of_every_kind(fx, rec):
    def f(x):
        a = x.pick(Colour.RED, ..., None, slice(x, None, 2), torch.float16)
        b = x.pick([x, (x, [x])], {"k": x, 1: {"j": (x,)}}, range(1, 5, 2), b"bytes")
        c = x.pick(torch.device("cpu"), torch.channels_last, torch.strided, torch.Size([1, 2]))
        d = x.pick(torch.ops.aten.add.Tensor, 1 + 2j, "text\n'\"")
        return a, b, c, d

    rec.call("traced", fx.symbolic_trace, f)
    for label, value in {
        "enum": Colour.RED,
        "ellipsis": ...,
        "range": range(3),
        "size": torch.Size([1]),
        "bytes": b"b",
        "layout": torch.strided,
        "overload": torch.ops.aten.add.Tensor,
        "packet": torch.ops.aten.add,
        "generator": torch.Generator(),
        "function": len,
        "type": int,
    }.items():
        rec.call(label, fx.symbolic_trace, picks(value))


def picks(value):
    return lambda x: x.pick(value, k=[value])


@differential
def test_named_tuples_and_dataclasses_as_arguments(fx, rec):
    def f(x):
        return torch.add(x, 1), x.pick(Pair(x, 1)), x.pick(Options(2, x))

    rec.call("traced", fx.symbolic_trace, f)
    rec.call("returned", fx.symbolic_trace, lambda x: Pair(x, x + 1))
    rec.call("fields", fx.symbolic_trace, lambda x: Pair(x, 2).left + 1)


@differential
def test_objects_with_their_own_way_of_becoming_arguments(fx, rec):
    class Special:
        def __fx_create_arg__(self, tracer):
            return tracer.create_arg(("special", 3))

    rec.call("traced", fx.symbolic_trace, lambda x: x.pick(Special()))


@differential
def test_torch_function_dispatch(fx, rec):
    def f(x):
        a = torch.Tensor.add(x, 1) if False else torch.add(x, 1)
        b = torch.nn.functional.linear(a, x)
        c = torch.ops.aten.relu(b)
        d = torch.ops.aten.add.Tensor(c, a)
        return torch.einsum("ij->j", d), torch.stack([a, b], dim=0), torch.where(a > 0, a, b)

    rec.call("traced", fx.symbolic_trace, f)


@differential
def test_functions_of_tensors_inside_containers(fx, rec):
    def f(x, y):
        return torch.cat((x, y), dim=1), torch.meshgrid([x, y], indexing="ij"), torch.block_diag(x)

    rec.call("traced", fx.symbolic_trace, f)


@differential
def test_copying_a_proxy(fx, rec):
    graph = fx.Graph()
    proxy = fx.Proxy(graph.placeholder("x"))
    rec("copy", copy.copy(proxy).node is proxy.node)
    rec.call("state", lambda: sorted(proxy.__getstate__()))
    rec.call("deep", lambda: type(copy.deepcopy(proxy)).__name__)


@differential
def test_parameter_proxy(fx, rec):
    tracer = fx.Tracer()
    tracer.graph = fx.Graph(tracer_cls=fx.Tracer)
    node = tracer.graph.get_attr("weight")
    weight = nn.Parameter(torch.ones(2, 3))
    proxy = fx.proxy.ParameterProxy(tracer, node, "weight", weight)
    rec("repr", repr(proxy))
    rec("shape", (proxy.shape, proxy.size(), proxy.dim(), proxy.ndim, proxy.numel()))
    rec("elements", proxy.nelement())
    rec.call("wrong", fx.proxy.ParameterProxy, tracer, node, "weight", torch.ones(2))


@differential
def test_errors_are_trace_errors(fx, rec):
    rec("base", issubclass(fx.proxy.TraceError, ValueError))
    try:
        fx.symbolic_trace(lambda x: 1 if x else 2)
    except fx.proxy.TraceError as error:
        rec("caught", type(error).__name__)


@differential
def test_pickling_the_trace_error(fx, rec):
    error = fx.proxy.TraceError("message")
    rec("again", str(pickle.loads(pickle.dumps(error))))


@differential
def test_scopes(fx, rec):
    scope = fx.proxy.Scope("path", nn.Linear)
    with fx.proxy.ScopeContextManager(scope, fx.proxy.Scope("path.child", nn.ReLU)) as inner:
        rec("inside", (inner.module_path, inner.module_type))
    rec("restored", (scope.module_path, scope.module_type))
