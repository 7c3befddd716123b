"""Random well-formed programs over all six opcodes, as values that build a graph anywhere."""

import operator
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn


@dataclass(frozen=True)
class Ref:
    """Refers to the result of the step with this number, modulo the number of steps before."""

    index: int


UNARY = [torch.relu, torch.neg, torch.sigmoid, torch.abs, torch.tanh, operator.neg, operator.pos]
BINARY = [torch.add, torch.sub, torch.mul, torch.maximum, operator.add, operator.sub, operator.mul]
COMPARISONS = [operator.gt, operator.le, operator.ne]
METHODS = ["relu", "sin", "clone", "abs", "contiguous"]
MODULES = ["linear", "nested.relu", "nested.0"]
ATTRIBUTES = ["weight", "nested.offset"]
NAMES = ["x", "y", "value", "relu", "add", "class", "input", "Camel", "a1", "_hidden"]


@dataclass(frozen=True)
class Step:
    """One node: its opcode, its target and its arguments, with references in place of nodes."""

    op: str
    target: Any
    args: tuple = ()
    kwargs: tuple = ()
    name: str | None = None


class Holder(nn.Module):
    """The attributes and modules used by the programs; every value has shape (3,)."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        self.weight = nn.Parameter(torch.randn(3, generator=generator))
        self.linear = nn.Linear(3, 3)
        self.nested = nn.Sequential(nn.Hardtanh())
        self.nested.relu = nn.ReLU()
        self.nested.register_buffer("offset", torch.arange(3.0))
        with torch.no_grad():
            self.linear.weight.copy_(torch.randn(3, 3, generator=generator))
            self.linear.bias.zero_()


refs = st.integers(0, 1000).map(Ref)
floats = st.sampled_from([0.0, -0.0, 1.0, -2.5, 0.1, 1e-3, 7])


NOTHING = st.just(())


def _step(op: str, target: Any, args: Any, kwargs: Any = NOTHING) -> Any:
    names = st.one_of(st.none(), st.sampled_from(NAMES))
    return st.builds(Step, st.just(op), target, args, kwargs, names)


steps = st.one_of(
    _step("call_function", st.sampled_from(UNARY), st.tuples(refs)),
    _step("call_function", st.sampled_from(BINARY), st.tuples(refs, refs)),
    _step("call_function", st.just(torch.add), st.tuples(refs, refs), st.just((("alpha", 2),))),
    _step("call_function", st.just(torch.clamp), st.tuples(refs), floats.map(lambda v: (("min", v),))),
    _step("call_function", st.just(operator.mul), st.tuples(refs, floats)),
    _step("call_function", st.just(operator.add), st.tuples(floats, refs)),
    _step("call_function", st.just(torch.where), st.tuples(refs.map(lambda r: ("cmp", r)), refs, refs)),
    _step("call_function", st.just(torch.sum), st.tuples(st.lists(refs, min_size=1, max_size=4).map(tuple)), st.just((("dim", 0),))),
    _step("call_function", st.just(torch.einsum), st.tuples(st.just("i,i->i"), refs, refs)),
    _step("call_method", st.sampled_from(METHODS), st.tuples(refs)),
    _step("call_method", st.just("add"), st.tuples(refs, refs)),
    _step("call_method", st.just("view"), st.tuples(refs, st.just(-1))),
    _step("call_module", st.sampled_from(MODULES), st.tuples(refs)),
    _step("get_attr", st.sampled_from(ATTRIBUTES), st.just(())),
)  # fmt: skip

results = st.recursive(
    refs,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner),
        st.tuples(inner, st.none()),
        st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=2),
    ),
    max_leaves=5,
)


@dataclass(frozen=True)
class GraphProgram:
    """Placeholders, steps and a result."""

    placeholders: int
    steps: tuple
    result: Any

    def build(self, fx: Any) -> Any:
        """The graph that the program describes."""
        graph = fx.Graph()
        nodes = [graph.placeholder(f"input_{i}") for i in range(self.placeholders)]

        def resolve(value: Any) -> Any:
            if isinstance(value, Ref):
                return nodes[value.index % len(nodes)]
            if isinstance(value, tuple) and value[:1] == ("cmp",):
                return graph.call_function(operator.gt, (resolve(value[1]), 0))
            if isinstance(value, tuple | list):
                return type(value)(resolve(v) for v in value)
            if isinstance(value, dict):
                return {k: resolve(v) for k, v in value.items()}
            return value

        for step in self.steps:
            args = tuple(resolve(a) for a in step.args)
            if step.target is torch.sum:  # called with several values
                args = (graph.call_function(torch.stack, (list(args[0]),)),)
            kwargs = {k: resolve(v) for k, v in step.kwargs}
            nodes.append(graph.create_node(step.op, step.target, args, kwargs, step.name))
        graph.output(resolve(self.result))
        return graph

    def inputs(self) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(11)
        return [torch.randn(3, generator=generator) for _ in range(self.placeholders)]


programs = st.builds(
    GraphProgram, st.integers(1, 3), st.lists(steps, max_size=14).map(tuple), results
)
