"""The rows of docs/compatibility.md about types, unification and the rewriting of programs."""

from __future__ import annotations

import importlib
import time
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.fx
import torch.fx.experimental.graph_gradual_typechecker as their_checker
import torch.fx.experimental.rewriter as their_rewriter
import torch.fx.experimental.schema_type_annotation as their_annotation
import torch.fx.experimental.unification as their_unification
import torch.fx.experimental.unify_refinements as their_refinements
from torch import nn
from torch.fx.tensor_type import Dyn, TensorType

import corsac.fx
import corsac.fx.experimental.graph_gradual_typechecker as our_checker
import corsac.fx.experimental.rewriter as our_rewriter
import corsac.fx.experimental.schema_type_annotation as our_annotation
import corsac.fx.experimental.unification as our_unification
import corsac.fx.experimental.unify_refinements as our_refinements
from kit import row

PACKAGES = (torch.fx, corsac.fx)
UNIFICATIONS = (their_unification, our_unification)
CHECKERS = ((torch.fx, their_checker), (corsac.fx, our_checker))


def checked(fx: ModuleType, checker: ModuleType, program: Any, *types: Any) -> dict[str, Any]:
    """The types of the nodes of a program with these input types."""
    gm = fx.symbolic_trace(program)
    for node, type_ in zip(gm.graph.find_nodes(op="placeholder"), types, strict=True):
        node.type = type_
    checker.GraphTypeChecker({}, gm).type_check()
    return {node.name: node.type for node in gm.graph.nodes}


@row("`experimental.migrate_gradual_types`")
@row("`experimental.meta_tracer`")
@row("`experimental.symbolic_shapes`")
@pytest.mark.parametrize(
    "name",
    [
        "migrate_gradual_types",
        "meta_tracer",
        "symbolic_shapes",
        "sym_node",
        "recording",
        "validator",
        "dynamic_spec",
    ],
)
def test_modules_that_are_left_to_torch(name: str) -> None:
    assert importlib.util.find_spec(f"torch.fx.experimental.{name}") is not None
    assert importlib.util.find_spec(f"corsac.fx.experimental.{name}") is None


@row("sizes of convolutions and poolings with two strides")
def test_two_strides() -> None:
    conv = nn.Conv2d(3, 4, 3, stride=(2, 1), padding=1)
    sizes = [checker.calculate_out_dimension(32, conv, 1) for _, checker in CHECKERS]
    assert sizes == [16, 32] and conv(torch.zeros(1, 3, 8, 32)).size(3) == 32


@row('`ceil_mode`, `padding="same"`')
def test_ceil_mode_and_padding_by_name() -> None:
    pool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
    shapes = [c.maxpool2d_check(TensorType((1, 3, 8, 9)), pool).dims for _, c in CHECKERS]
    assert shapes == [(1, 3, 3, 4), (1, 3, 4, 4)]
    same = nn.Conv2d(3, 4, 3, padding="same")
    with pytest.raises(TypeError):
        their_checker.calculate_out_dimension(32, same, 0)
    assert our_checker.calculate_out_dimension(32, same, 0) == 32


@row("`AdaptiveAvgPool2d((None, 7))`")
def test_adaptive_pooling_that_keeps_a_size() -> None:
    pool = nn.AdaptiveAvgPool2d((None, 7))
    shapes = [c.adaptiveavgpool2d_check(TensorType((1, 3, 5, 9)), pool).dims for _, c in CHECKERS]
    assert shapes == [(1, 3, 7, 7), (1, 3, 5, 7)]
    assert tuple(pool(torch.zeros(1, 3, 5, 9)).shape) == shapes[1]


@row("`flatten` with negative `start_dim`")
def test_flatten_from_the_end() -> None:
    shapes = [c.flatten_check(TensorType((2, 3, 4, 5)), -3, -1).dims for _, c in CHECKERS]
    expected = tuple(torch.zeros(2, 3, 4, 5).flatten(-3, -1).shape)
    assert shapes[0] != expected and shapes[1] == expected


@row("`transpose` with negative dimensions")
@pytest.mark.parametrize(
    ("program", "shape"),
    [
        (lambda x: torch.transpose(x, -1, -2), (2, 4, 3)),
        (lambda x: torch.reshape(x, (6, 4)), (6, 4)),
        (lambda x: x + 1, (2, 3, 4)),
    ],
)
def test_right_programs(program: Any, shape: tuple[int, ...]) -> None:
    x = TensorType((2, 3, 4))
    with pytest.raises((TypeError, AssertionError)):
        checked(torch.fx, their_checker, program, x)
    types = list(checked(corsac.fx, our_checker, program, x).values())
    assert tuple(types[1].dims) == shape == tuple(program(torch.zeros(2, 3, 4)).shape)


@row("`reshape` of known sizes to another number of elements")
def test_reshape_to_another_number_of_elements() -> None:
    program = lambda x: torch.reshape(x, [6])  # noqa: E731
    checked(torch.fx, their_checker, program, TensorType((2, 6)))
    with pytest.raises(TypeError, match="Cannot reshape"):
        checked(corsac.fx, our_checker, program, TensorType((2, 6)))


@row("`reshape` of unknown sizes with -1")
def test_reshape_of_unknown_sizes() -> None:
    program = lambda x: torch.reshape(x, [-1, 5])  # noqa: E731
    with pytest.raises(TypeError):
        checked(torch.fx, their_checker, program, TensorType((Dyn, 3)))
    types = checked(corsac.fx, our_checker, program, TensorType((Dyn, 3)))
    assert tuple(types["reshape"].dims) == (Dyn, 5)


def inferred(
    fx: ModuleType, checker: ModuleType, refinements: ModuleType, program: Any, x: Any
) -> dict[str, Any]:
    """The types after unknown sizes have become symbols."""
    gm = fx.symbolic_trace(program)
    gm.graph.find_nodes(op="placeholder")[0].type = x
    checker.GraphTypeChecker({}, gm).type_check()
    refinements.infer_symbolic_types(gm)
    return {node.name: node.type for node in gm.graph.nodes}


@row("`infer_symbolic_types`: sizes after those that are flattened")
def test_sizes_after_flattened_ones() -> None:
    program = lambda x: torch.flatten(x, 1, 2)  # noqa: E731
    x = TensorType((1, 2, 3, 5, Dyn))
    theirs = inferred(torch.fx, their_checker, their_refinements, program, x)
    ours = inferred(corsac.fx, our_checker, our_refinements, program, x)
    assert theirs["flatten"].dims[3] == 5
    assert ours["flatten"].dims[:3] == (1, 6, 5)
    assert ours["flatten"].dims[3] == ours["x"].dims[4] != 5


@row("`infer_symbolic_types` on a convolution of a convolution")
def test_convolutions_of_convolutions() -> None:
    model = nn.Sequential(nn.Conv2d(3, 3, 3, 2), nn.Conv2d(3, 3, 3, 2))
    x = TensorType((1, 3, Dyn, 64))
    with pytest.raises(TypeError):
        inferred(torch.fx, their_checker, their_refinements, model, x)
    types = inferred(corsac.fx, our_checker, our_refinements, model, x)
    height = types["input_1"].dims[2]
    assert types["_1"].dims[2].subs(height, 64) == model(torch.zeros(1, 3, 64, 64)).size(2)


@row("`unify` of many terms")
def test_time_of_unification() -> None:
    def seconds(package: ModuleType, size: int) -> float:
        variables = tuple(package.Var() for _ in range(size))
        times = []
        for _ in range(3):
            start = time.perf_counter()
            assert len(package.unify(variables, tuple(range(size)), {})) == size
            times.append(time.perf_counter() - start)
        return min(times)

    theirs, ours = (seconds(package, 8000) / seconds(package, 500) for package in UNIFICATIONS)
    assert theirs > 2 * ours


def asserting(x):
    assert x.dim() == 1, "one dimension"
    return x + 1


@row("`RewritingTracer` on functions of a module")
def test_rewriting_of_functions() -> None:
    with pytest.raises(AssertionError):
        their_rewriter.RewritingTracer().trace(asserting)
    graph = our_rewriter.RewritingTracer().trace(asserting)
    assert torch._assert in [node.target for node in graph.nodes]
    assert our_rewriter.AST_Rewriter().rewrite(local(3)).__closure__ is not None
    assert their_rewriter.AST_Rewriter().rewrite(local(3)).__closure__ is None


def local(factor: int) -> Any:
    """A function with a closure."""

    def function(x):
        return x * factor

    return function


class Inner(nn.Module):
    def forward(self, x):
        assert x.dim() == 1, "one dimension"
        return x + 1


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x) * 2


@row("`RewritingTracer` on modules in modules")
def test_rewriting_of_modules_in_modules() -> None:
    with pytest.raises(torch.fx.proxy.TraceError):
        their_rewriter.RewritingTracer().trace(Outer())
    graph = our_rewriter.RewritingTracer().trace(Outer())
    assert torch._assert in [node.target for node in graph.nodes]


@row("places in the source of rewritten functions")
def test_places_of_rewritten_functions() -> None:
    function = local(3)
    theirs = their_rewriter.AST_Rewriter().rewrite(function).__code__
    ours = our_rewriter.AST_Rewriter().rewrite(function).__code__
    code = function.__code__
    assert (theirs.co_filename, theirs.co_firstlineno) != (code.co_filename, code.co_firstlineno)
    assert (ours.co_filename, ours.co_firstlineno) == (code.co_filename, code.co_firstlineno)


@row("`AnnotateTypesWithSchema` on nodes with types")
def test_annotated_types_and_metadata() -> None:
    def program(x: torch.Tensor):
        return torch.relu(x)

    kept = []
    for fx, module in ((torch.fx, their_annotation), (corsac.fx, our_annotation)):
        gm = fx.symbolic_trace(program)
        for node in gm.graph.nodes:
            node.meta["mark"] = node.name
        again = module.AnnotateTypesWithSchema(gm).transform()
        (x,) = again.graph.find_nodes(op="placeholder")
        kept.append((x.type, x.meta.get("mark")))
    assert kept[0][0] is None and kept[1] == ("torch.Tensor", "x")
