"""Dead code and common subexpressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from corsac.fx import Graph
from corsac.fx._effects import clean_children, impure_random, pure_functions
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget
from corsac.passes._registry import registered
from corsac.passes._report import Report
from corsac.passes._target import graph_of, run_pass

_P = ParamSpec("_P")
_R = TypeVar("_R")


@registered
def eliminate_dead_code(target: GraphModule | Graph, *, budget: Budget | None = None) -> Report:
    """Remove nodes without an observable effect.

    A node is removed if its value is unused and it has no other effect. A write stays if its
    destination can be observed: an input, an attribute, the state of a module, or a value that is
    used later, itself or through anything that may share storage with it. Random operators,
    functions registered with :func:`corsac.fx.node.has_side_effect`, and unknown calls stay as well.

    The report lists the nodes removed, and the unused nodes that stay, with the reason.
    """
    report = run_pass("dead code", target, budget=budget, impure_random=impure_random())
    clean_children(graph_of(target))
    return report


@registered
def common_subexpressions(target: GraphModule | Graph, *, budget: Budget | None = None) -> Report:
    """Merge nodes that compute the same value.

    Two nodes become one, the first, if they call the same target with the same arguments, and it
    makes no difference which of the two is used: nothing that they read is written to in between,
    nothing writes to their results, they use no random numbers and have no side effects, and the
    caller does not get both results.

    The report lists the nodes removed, each with its replacement, and the duplicates that stay, with
    the reason.
    """
    return run_pass("common subexpressions", target, budget=budget)


@registered
def remove_no_ops(target: GraphModule | Graph, *, budget: Budget | None = None) -> Report:
    """Remove operators that return their input unchanged.

    These are ``nn.Identity``; ``contiguous`` twice; conversions to the dtype that the input has;
    ``view``, ``reshape``, ``expand``, ``flatten`` and ``nn.Flatten`` to the shape that it has; two
    transpositions, or ``permute`` or ``unsqueeze`` and its inverse; ``clone`` and ``cat`` of one
    tensor where the copy cannot be told from the original; ``x * 1`` and the like where they are
    exact and keep the dtype. Shapes and dtypes are those of ``node.meta["tensor_meta"]``, which have
    to hold for every call.

    The report lists every such node, with its replacement or the reason why it stays.
    """
    return run_pass("no-ops", target, budget=budget, drop=True)


@registered
def canonicalize(target: GraphModule | Graph, *, budget: Budget | None = None) -> Report:
    """Put the nodes in an order that depends only on the computation.

    Programs that differ only in the names of values and in the order of independent nodes have their
    nodes in the same order afterwards; ``graph.canonical_hash()`` is equal for such programs.

    The report lists the nodes that have moved.
    """
    return run_pass("canonical order", target, budget=budget)


def pure(fn: Callable[_P, _R]) -> Callable[_P, _R]:
    """Declare that calls of ``fn`` only compute their result, which depends on the arguments alone.

    Without it, calls of unknown functions are neither removed nor merged. Returns ``fn``, so that it
    serves as a decorator.
    """
    pure_functions.add(fn)
    return fn
