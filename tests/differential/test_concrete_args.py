"""Partial specialisation: ``concrete_args``, ``PH`` and pytrees of inputs."""

import collections

import pytest
import torch
from torch import nn

from kit import differential, known_difference

Point = collections.namedtuple("Point", ["x", "y"])


def branches(a, b):
    return a if b == True else a * 2  # noqa: E712


def sums(x):
    out = 0
    for value in x.values():
        out = out + value
    return out


def nested(x, y, scale):
    return {"sum": x["a"] + x["b"][0], "pair": (y[0] * scale, y[1])}


@pytest.mark.parametrize("value", [False, True, None, 3, 2.5, "text"])
@differential
def test_specialised_values(fx, rec, value):
    traced = rec.call("traced", fx.symbolic_trace, branches, concrete_args={"b": value})
    if traced is not None:
        rec.call("same value", traced, 3, value)
        rec.call("another value", traced, 3, 99)


@differential
def test_specialising_on_a_tensor_warns(fx, rec):
    rec.warns(
        "tensor",
        fx.symbolic_trace,
        lambda x, y: x + y,
        concrete_args={"y": torch.ones(2)},
    )


@differential
def test_a_dictionary_of_placeholders(fx, rec):
    args = {"x": {"a": fx.PH, "b": fx.PH, "c": fx.PH}}
    traced = rec("traced", fx.symbolic_trace(sums, concrete_args=args))
    rec.call("result", traced, {"a": 1, "b": 2, "c": 4})
    rec.call("wrong structure", traced, {"a": 1})
    rec("codegen", type(traced.graph._codegen).__name__)


@differential
def test_nested_inputs_and_outputs(fx, rec):
    args = {"x": {"a": fx.PH, "b": [fx.PH]}, "y": (fx.PH, fx.PH)}
    traced = rec("traced", fx.symbolic_trace(nested, concrete_args=args))
    rec.call("result", traced, {"a": 1, "b": [2]}, (3, 4), 5)
    rec.call("too few", traced, {"a": 1, "b": [2]}, (3, 4))
    rec.call("process inputs", traced.graph.process_inputs, {"a": 1, "b": [2]}, (3, 4), 5)
    rec.call("process outputs", traced.graph.process_outputs, [1, 2, 3])


@differential
def test_concrete_args_inside_a_tree(fx, rec):
    args = {"x": {"a": fx.PH, "b": [7]}, "y": (1.5, fx.PH)}
    traced = rec.call("traced", fx.symbolic_trace, nested, concrete_args=args)
    if traced is not None:
        rec.call("result", traced, {"a": 1, "b": [7]}, (1.5, 4), 2)
        rec.call("wrong constant", traced, {"a": 1, "b": [8]}, (1.5, 4), 2)


@differential
def test_named_tuples(fx, rec):
    def f(p):
        return p.x + p.y

    rec.call("traced", fx.symbolic_trace, f, concrete_args={"p": Point(fx.PH, fx.PH)})


@differential
def test_concrete_args_of_a_module(fx, rec):
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x, flags, flag):
            if flag:
                return self.linear(x) + flags["k"]
            return x

    module = Module()
    rec("flag", fx.symbolic_trace(module, concrete_args={"flag": False}))
    traced = rec(
        "tree", fx.symbolic_trace(module, concrete_args={"flags": {"k": fx.PH}, "flag": True})
    )
    rec.call("result", traced, torch.ones(1, 2), {"k": 2}, True)


@differential
def test_a_tuple_of_concrete_args(fx, rec):
    tracer = fx.Tracer()
    rec.call("tuple", tracer.trace, lambda a, b: a + b, (fx.PH, 3))
    rec.call("wrong length", fx.Tracer().trace, lambda a, b: a + b, (1,))

    class Flat(nn.Module):
        def forward(self, *args):
            return args[0] + args[1]

    rec.call("stars", fx.Tracer().trace, Flat(), (fx.PH, fx.PH))


@differential
def test_placeholders_with_attributes(fx, rec):
    marked = fx._symbolic_trace.PHWithMeta(ph_key="first")
    graph = fx.Tracer().trace(lambda x, y: x["a"] + y, {"x": {"a": marked}})
    rec("graph", graph)
    rec("keys", [(n.name, getattr(n, "ph_key", None)) for n in graph.nodes])


@differential
def test_the_placeholder_object(fx, rec):
    rec("repr", repr(fx.PH))
    rec("kind", isinstance(fx.PH, fx._symbolic_trace.PHBase))
    rec("meta repr", repr(fx._symbolic_trace.PHWithMeta("k")))


@differential
def test_names_that_are_not_parameters_are_ignored(fx, rec):
    rec.call("extra", fx.symbolic_trace, branches, concrete_args={"b": True, "zzz": 1})


@differential
def test_star_parameters_with_concrete_args(fx, rec):
    def f(x, *args, **kwargs):
        return x + args[0]

    rec.call("given", fx.symbolic_trace, f, concrete_args={"x": 3})


@differential
def test_editing_a_graph_with_a_pytree(fx, rec):
    args = {"x": {"a": fx.PH, "b": [fx.PH]}, "y": (fx.PH, fx.PH)}
    traced = fx.symbolic_trace(nested, concrete_args=args)
    for node in traced.graph.nodes:
        if node.op == "call_function":
            node.target = torch.sub
            break
    traced.recompile()
    rec("edited", traced)
    rec.call("interpreted", fx.Interpreter(traced).run, {"a": 1, "b": [2]}, (3, 4), 5)
    rec("transformed", fx.Transformer(traced).transform().code)


@known_difference("traced", reason="Defaults beside a tree of inputs")
@differential
def test_defaults_beside_a_tree(fx, rec):
    def f(x, y=2):
        return x["a"] * y

    rec.call("traced", fx.symbolic_trace, f, concrete_args={"x": {"a": fx.PH}})
