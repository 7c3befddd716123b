"""Graphs for which torch.fx and corsac have to generate the same code.

Each case is called with the package (``torch.fx.graph`` or ``corsac.fx.graph``) and returns a graph.
"""

from __future__ import annotations

import collections
import enum
import math
import operator
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch.fx.tensor_type import Dyn, TensorType

CASES: dict[str, Callable[[Any], Any]] = {}


def case(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    CASES[build.__name__] = build
    return build


class Color(enum.Enum):
    RED = 1
    GREEN = "g"


class Flags(enum.IntFlag):
    A = 1
    B = 2


class Point(NamedTuple):
    x: Any
    y: Any


Pair = collections.namedtuple("Pair", ["first", "second"])


class Holder:
    def __repr__(self) -> str:
        return "Holder(1, x=2)"

    def method(self, x: Any) -> Any:
        return x


def foo(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


def make_foo() -> Callable[..., Any]:
    def foo(x: Any, *args: Any) -> Any:
        return x

    foo.__module__, foo.__qualname__ = __name__, "foo"
    return foo


other_foo = make_foo()

max = make_foo()
max.__name__ = "max"

named_lambda = lambda x: x  # noqa: E731


def call(fx: Any, *arguments: Any, **keywords: Any) -> Any:
    """A graph that calls a function with these arguments."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    arguments = [x if argument is NODE else argument for argument in arguments]
    graph.output(graph.call_function(foo, tuple(arguments), keywords))
    return graph


NODE = object()

LITERALS: list[Any] = [
    None, ..., True, False, 0, -1, 2**63, -(2**200), 10**400,
    0.0, -0.0, 1.0, 1e100, 1e-7, 0.1, float("inf"), float("-inf"), float("nan"),
    1j, 1 + 2j, -1.5 - 0.25j, complex(-0.0, 1), complex(0.0, -0.0), complex(math.inf, 1),
    complex(1, math.nan), complex(1e20, -1e-9),
    "", "a", "it's", 'say "x"', "'\"", "a\nb\t\\", "é日本😀", "\x00\x7f\x80\u2028\ue000", "\ud800",
    b"", b"a'\n\xff",
    torch.float32, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.quint8, torch.uint16,
    torch.device("cpu"), torch.device("cuda", 1), torch.device("meta"), torch.device("mps"),
    torch.strided, torch.sparse_coo, torch.sparse_csr, torch.jagged,
    torch.contiguous_format, torch.channels_last, torch.preserve_format,
    Color.RED, Color.GREEN, Flags.A,
    Point(1, 2.0), Pair("a", None), Point((1,), [2]),
    torch.Size([1, 2]), torch.Size([]),
    (), (1,), (1, 2), [], [1], [[1, [2, (3,)]], ()], {}, {"a": 1, 2: [3.0, (4,)]},
    {"k": {"l": None}}, {(1, 2): "t"},
    slice(None), slice(1, None, 2), slice(-3, 5, None), (slice(None), ..., 0), range(3),
    range(1, 10, 3), range(3, 0, -1),
    torch.ops.aten.add.Tensor, torch.ops.aten.relu.default, torch.zeros(2, 3),
    torch.ones(1, dtype=torch.int8), Holder(), {1, }, frozenset([1]),
    torch.finfo(torch.float32).max, torch.iinfo(torch.int8).min,
]  # fmt: skip


@case
def literals(fx: Any) -> Any:
    graph = fx.Graph()
    x = graph.placeholder("x")
    nodes = [graph.call_function(foo, (x, literal)) for literal in LITERALS]
    nodes += [graph.call_function(foo, (), {"key": literal}) for literal in LITERALS]
    graph.output(nodes)
    return graph


@case
def nested_nodes(fx: Any) -> Any:
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    a = graph.call_function(
        foo, ([x, (y, x), {"k": [x, 1]}], slice(x, None, y)), {"p": Point(x, (y,)), "q": {"z": y}}
    )
    b = graph.call_function(operator.getitem, (a, (slice(None, x), None, ..., y)))
    graph.output({"a": a, "b": [b, (x,)]})
    return graph


OPERATORS = [
    *("eq", "ne", "lt", "gt", "le", "ge", "add", "sub", "mul", "floordiv", "truediv", "mod"),
    *("pow", "lshift", "rshift", "and_", "or_", "xor", "getitem", "matmul"),
    *("iadd", "iand", "ifloordiv", "ilshift", "imod", "imul", "imatmul", "ior", "ipow"),
    *("irshift", "isub", "itruediv", "ixor"),
]


@case
def operators(fx: Any) -> Any:
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    results = []
    for name in OPERATORS:
        results.append(graph.call_function(getattr(operator, name), (x, y)))
        results.append(graph.call_function(getattr(operator, name), (results[-1], 2)))
    for name in ("pos", "neg", "invert"):
        results.append(graph.call_function(getattr(operator, name), (x,)))
    for name in OPERATORS[:20]:
        results.append(graph.call_function(getattr(operator, name), (2.5, y)))
    graph.call_function(operator.setitem, (x, (0, slice(None)), y))
    results.append(graph.call_function(operator.not_, (x,)))
    results.append(graph.call_function(operator.contains, (x, y)))
    results.append(graph.call_function(operator.truth, (x,)))
    results.append(graph.call_function(operator.attrgetter, ("a",)))
    graph.output(tuple(results))
    return graph


FUNCTIONS: list[Callable[..., Any]] = [
    torch.relu, torch.add, F.relu, F.linear, F.max_pool2d, F.scaled_dot_product_attention,
    torch.Tensor.add, torch.Tensor.relu_, torch.Tensor.__add__, torch.Tensor.unflatten,
    torch._C._nn.gelu, torch.ops.aten.add.Tensor, torch.ops.aten.relu, torch.ops.prims.add,
    torch.special.expit, torch.linalg.norm, torch.fft.fft, torch.nn.init.ones_, torch.segment_reduce,
    torch._assert, torch.jit.annotate, torch.nn.functional.has_torch_function, torch.sym_int,
    math.sqrt, math.floor, len, max, min, abs, int, float, getattr, sum, print, isinstance,
    foo, other_foo, collections.OrderedDict, torch.nn.Linear, torch.Size, torch.device,
    torch.ops.higher_order.cond, torch.conv2d, torch.cat, torch.manual_seed, torch.tensor, torch.arange,
]  # fmt: skip


@case
def functions(fx: Any) -> Any:
    graph = fx.Graph()
    x = graph.placeholder("x")
    for function in FUNCTIONS:
        x = graph.call_function(function, (x, 1))
    graph.output(x)
    return graph


@case
def lambdas_and_methods(fx: Any) -> Any:
    graph = fx.Graph()
    x = graph.placeholder("x")
    holder = Holder()
    x = graph.call_function(named_lambda, (x,))
    # Two objects for the same method.
    x = graph.call_function(holder.method, (x,))
    x = graph.call_function(holder.method, (x,))
    graph.output(x)
    return graph


@case
def attributes(fx: Any) -> Any:
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(getattr, (x, "shape"))
    b = graph.call_function(getattr, (x, "shape", None))
    c = graph.call_function(getattr, (a, "with space"))
    d = graph.call_function(getattr, (x, "_private"))
    e = graph.call_function(setattr, (x, "a", 1))
    graph.output((a, b, c, d, e))
    return graph


@case
def targets(fx: Any) -> Any:
    graph = fx.Graph()
    x = graph.placeholder("x")
    names = ["weight", "a.b.c", "layers.0", "0.1.x", "0", "a b.c", "", "a..b"]
    nodes = [graph.create_node("get_attr", name, (), {}) for name in names]
    nodes += [graph.create_node("call_module", name, (x,), {"k": 1}) for name in names]
    nodes += [graph.call_method(name, (x, 1), {"k": x}) for name in names]
    graph.output(nodes)
    return graph


@case
def frees(fx: Any) -> Any:
    graph = fx.Graph()
    x, y, z = (graph.placeholder(name) for name in "xyz")
    a = graph.call_function(torch.add, (x, y))
    graph.call_function(torch.add, (a, a))
    b = graph.call_method("add_", (a, x), {"alpha": z})
    graph.create_node("get_attr", "unused", (), {})
    c = graph.call_function(torch.add, (b, b), {"out": z})
    d = graph.call_function(torch.mul, (c, z))
    graph.output([d, x])
    return graph


@case
def parameters(fx: Any) -> Any:
    graph = fx.Graph()
    graph.placeholder("self")
    x = graph.placeholder("x", type_expr=torch.Tensor)
    y = graph.placeholder("input", default_value=3)
    z = graph.placeholder("z", type_expr=int, default_value=float("inf"))
    device = graph.placeholder("device", default_value=None)
    renamed = graph.create_node("placeholder", "target", (), {}, name="other")
    args, kwargs = graph.placeholder("*args"), graph.placeholder("**kwargs")
    graph.output((x, y, z, device, renamed, args, kwargs))
    return graph


ANNOTATIONS: list[Any] = [
    torch.Tensor, int, str, torch.nn.Parameter, torch.nn.Module, torch.dtype, torch.Size, Color, Holder,
    typing.List[int], list[int], typing.List[torch.Tensor], typing.Optional[torch.Tensor],  # noqa: UP006, UP045
    typing.Union[int, torch.Tensor], int | None, torch.Tensor | None | list[int],  # noqa: UP007
    typing.Tuple[()], tuple[()], tuple[int, ...], typing.Tuple[int, torch.Tensor],  # noqa: UP006
    typing.Dict[str, typing.List[torch.Tensor]], dict[str, list[Holder]], typing.Any, "Forward",  # noqa: UP006
    TensorType((1, 2, Dyn)), type(None), typing.Callable, collections.OrderedDict, set[int],
    typing.Set[int], typing.FrozenSet[str], typing.Sequence[int], collections.abc.Sequence[int],  # noqa: UP006
    typing.List, typing.Literal["a", 1],  # noqa: UP006
]  # fmt: skip


@case
def annotations(fx: Any) -> Any:
    graph = fx.Graph()
    nodes = [
        graph.placeholder(f"x{index}", type_expr=annotation)
        for index, annotation in enumerate(ANNOTATIONS)
    ]
    nodes += [
        graph.call_function(foo, (nodes[0],), type_expr=annotation) for annotation in ANNOTATIONS
    ]
    nodes.append(graph.call_module("layer", (nodes[0],), type_expr=int))
    nodes.append(graph.call_method("relu", (nodes[0],), type_expr=torch.Tensor))
    nodes.append(graph.call_function(operator.add, (nodes[0], 1), type_expr=torch.Tensor))
    nodes.append(graph.call_function(operator.iadd, (nodes[0], 1), type_expr=torch.Tensor))
    nodes.append(graph.get_attr("weight", type_expr=list[int]))
    graph.output(nodes, type_expr=list[torch.Tensor])
    return graph


@case
def clashing_names(fx: Any) -> Any:
    graph = fx.Graph()
    x = graph.placeholder("x")
    name = f"{__name__}_foo".replace(".", "_")
    a = graph.create_node("call_function", torch.relu, (x,), {}, name=name)
    b = graph.create_node("call_function", torch.relu, (x,), {}, name=f"{name}_7")
    c = graph.call_function(foo, (a, b))
    d = graph.call_function(other_foo, (c, Color.RED))
    e = graph.create_node("call_function", torch.relu, (d,), {}, name="Color")
    graph.output((c, d, e))
    return graph


@case
def names_that_people_set(fx: Any) -> Any:
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    a = graph.call_function(torch.relu, (x,))
    a.name = "y"
    b = graph.call_function(torch.relu, (a,))
    b.name = "y"
    c = graph.call_function(torch.relu, (b,))
    c.name = "max"
    d = graph.call_function(torch.relu, (c,))
    d.name = "1 weird.name"
    graph.output((a, b, c, d, y))
    return graph


@case
def no_output(fx: Any) -> Any:
    graph = fx.Graph()
    graph.call_function(torch.relu, (graph.placeholder("x"),))
    return graph


@case
def empty(fx: Any) -> Any:
    return fx.Graph()


@case
def output_only(fx: Any) -> Any:
    graph = fx.Graph()
    graph.output(None)
    return graph


@case
def nodes_after_output(fx: Any) -> Any:
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.relu, (x,))
    graph.output(a)
    graph.call_function(torch.relu, (a,))
    return graph


@case
def wrapped(fx: Any) -> Any:
    graph = fx.Graph()
    x = graph.placeholder("x")
    for function in (foo, math.sqrt, foo, torch.relu, len, operator.add):
        x = graph.call_function(function, (x, 1))
        x.meta["is_wrapped"] = True
    graph.call_function(other_foo, (x,)).meta["is_wrapped"] = False
    graph.output(x)
    return graph


@case
def boxed_arguments(fx: Any) -> Any:
    graph = fx.Graph()
    x, y, z = (graph.placeholder(name) for name in "xyz")
    a = graph.call_function(foo, (1, [x, y], z, [z, y]), {"k": y})
    a.meta["boxed_arg_indices"] = (1, 3)
    b = graph.call_function(foo, ([x, z],))
    b.meta["boxed_arg_indices"] = [0]
    graph.output((a, b))
    return graph


@case
def boxed_function(fx: Any) -> Any:
    def compiled(args: list[Any]) -> Any:
        return args

    compiled._boxed_arg_indices = (0,)  # type: ignore[attr-defined]
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output(graph.call_function(compiled, ([x, y], y)))
    return graph


@case
def boxed_calling(fx: Any) -> Any:
    graph = frees(fx)
    graph.set_codegen(fx._BoxedCodeGen())
    return graph


@case
def boxed_calling_annotated(fx: Any) -> Any:
    graph = parameters(fx)
    for node in list(graph.nodes)[-3:-1]:
        node.replace_all_uses_with(list(graph.nodes)[1])
        graph.erase_node(node)
    graph.set_codegen(fx._BoxedCodeGen())
    return graph


@case
def boxed_calling_without_inputs(fx: Any) -> Any:
    graph = output_only(fx)
    graph.set_codegen(fx._BoxedCodeGen())
    return graph


def with_pytree(fx: Any, names: list[str], args: Any, out: Any, annotated: bool = False) -> Any:
    graph = fx.Graph()
    leaves, in_spec = pytree.tree_flatten(args)
    inputs = [
        graph.placeholder(f"in_{index}", type_expr=torch.Tensor if annotated and index else None)
        for index in range(len(leaves))
    ]
    result = graph.call_function(torch.cat, (inputs,))
    graph.output([result])
    out_spec = None if out is None else pytree.tree_flatten(out)[1]
    graph.set_codegen(fx._PyTreeCodeGen(fx._PyTreeInfo(names, in_spec, out_spec)))
    return graph


@case
def pytree_positional(fx: Any) -> Any:
    return with_pytree(fx, ["a", "b"], [[1, 2], {"k": 3}], {"r": 1})


@case
def pytree_self(fx: Any) -> Any:
    return with_pytree(fx, ["self", "a"], [1, [2]], [1])


@case
def pytree_keywords(fx: Any) -> Any:
    return with_pytree(fx, ["a", "b", "c"], (([1, 2],), {"b": 3, "c": [4]}), {"r": 1})


@case
def pytree_no_structure_out(fx: Any) -> Any:
    return with_pytree(fx, ["a"], [[1, 2]], None)


@case
def pytree_annotated(fx: Any) -> Any:
    return with_pytree(fx, ["a"], [[1, 2, 3]], {"r": 1}, annotated=True)


@case
def pytree_without_info(fx: Any) -> Any:
    graph = frees(fx)
    graph.set_codegen(fx._PyTreeCodeGen(None))
    return graph


@case
def pytree_without_inputs(fx: Any) -> Any:
    graph = fx.Graph()
    graph.output([1])
    in_spec, out_spec = pytree.tree_flatten([])[1], pytree.tree_flatten({"a": 1})[1]
    graph.set_codegen(fx._PyTreeCodeGen(fx._PyTreeInfo(["a"], in_spec, out_spec)))
    return graph


@case
def other_function_name(fx: Any) -> Any:
    graph = frees(fx)
    graph._codegen._func_name = "inner"
    return graph


def list_code_gen(fx: Any) -> type:
    """The example of a code generator in the documentation of torch.fx."""

    class ListCodeGen(fx.CodeGen):  # type: ignore[name-defined, misc]
        def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
            return (
                f"def forward(self, args_list: List[torch.Tensor]){maybe_return_annotation}:\n"
                f"    {', '.join(free_vars)} = args_list"
            )

        def additional_globals(self) -> list[tuple[str, Any]]:
            return [("List", typing.List)]  # noqa: UP006

        def process_inputs(self, *inputs: Any) -> Any:
            assert len(inputs) == 1
            return inputs[0]

    return ListCodeGen


@case
def own_definition(fx: Any) -> Any:
    graph = frees(fx)
    graph.set_codegen(list_code_gen(fx)())
    return graph


@case
def own_output(fx: Any) -> Any:
    class Output(fx.CodeGen):  # type: ignore[name-defined, misc]
        def generate_output(
            self, output_args: Any, *, descs: Any = None, repr_fn: Any = repr
        ) -> str:
            return f"return dict(result={repr_fn(output_args)})"

    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(foo, (x,))
    values = [v for v in LITERALS if not isinstance(v, dict | Point | Pair)]
    graph.output([y, (x, y), slice(x, None), *values])
    graph.set_codegen(Output())
    return graph


@case
def own_old_output(fx: Any) -> Any:
    class Output(fx._PyTreeCodeGen):  # type: ignore[name-defined, misc]
        def generate_output(self, output_args: Any) -> str:
            return f"return [{', '.join(map(str, output_args))}], {output_args!r}"

    graph = names_that_people_set(fx)
    graph.set_codegen(Output(None))
    return graph


@case
def own_bindings(fx: Any) -> Any:
    class Bindings(fx._PyTreeCodeGen):  # type: ignore[name-defined, misc]
        def gen_var_bindings(self, fn_args: Any, free_vars: Any, expanded_def: Any) -> str:
            return "\n    # " + super().gen_var_bindings(fn_args, free_vars, expanded_def).strip()

    graph = pytree_keywords(fx)
    graph.set_codegen(Bindings(graph._codegen.pytree_info))
    return graph


@case
def body_transformer(fx: Any) -> Any:
    graph = wrapped(fx)
    graph.on_generate_code(lambda before: lambda body: ["import pdb\n", *body, "# end\n"])
    graph.on_generate_code(lambda before: lambda body: [line.upper() for line in before(body)])
    return graph


@case
def body_pieces(fx: Any) -> Any:
    graph = boxed_arguments(fx)
    # torch.fx drops every line that contains a marker of a node's beginning.
    graph.on_generate_code(
        lambda before: lambda body: [f"# {piece!r}\n".replace("COUNTER", "COUNT") for piece in body]
    )
    return graph


@case
def body_transformer_with_pytree(fx: Any) -> Any:
    graph = pytree_annotated(fx)
    graph.on_generate_code(lambda before: lambda body: ["breakpoint()\n", *body])
    return graph


@case
def with_metadata(fx: Any) -> Any:
    graph = fx.Graph()
    x = graph.placeholder("x", type_expr=torch.Tensor)
    y = graph.placeholder("y", default_value=1)
    a = graph.call_function(torch.add, (x, y))
    b = graph.call_function(torch.relu, (a,), type_expr=torch.Tensor)
    c = graph.call_function(foo, (b,))
    d = graph.call_function(foo, (c,))
    e = graph.call_function(foo, (d,))
    f = graph.call_function(foo, (e,))
    output = graph.output((f, e))
    trace = 'File "model.py", line 3, in forward\n    return x + 1\n'
    deeper = trace + 'File "other.py", line 9, in helper\n    y = x.relu()\n'
    x.meta["val"] = torch.zeros(2, 3, dtype=torch.float16)
    x.meta["desc"] = "the input"
    a.meta.update(val=torch.zeros(3, 2).t(), stack_trace=trace, custom={"k": 1, "long": "v" * 60})
    b.meta.update(
        example_value=torch.zeros(()), stack_trace=trace, custom={"k": 1, "long": "v" * 60}
    )
    c.meta.update(val=3, stack_trace=deeper, autograd_backward=True, tag="t")
    d.meta.update(val=torch.nn.Parameter(torch.zeros(1)), stack_trace="no frames")
    e.meta.update(recompute=Color.RED, ac_graph_id=3, tag="u", seq_nr=5)
    f.meta.update(recompute=Color.GREEN)
    output.meta["desc"] = ["first: result", "second"]
    return graph
