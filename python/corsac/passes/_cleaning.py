"""Dead code and common subexpressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from corsac import _core
from corsac.fx import Graph
from corsac.fx._effects import clean_children, impure_random, pure_functions
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget, current_budget
from corsac.passes._report import Report
from corsac.passes._target import RawSites, graph_of, run
from corsac.passes._weights import drop_unused

_P = ParamSpec("_P")
_R = TypeVar("_R")


def eliminate_dead_code(target: GraphModule | Graph, *, budget: Budget | None = None) -> Report:
    """Remove what nobody can observe.

    A node goes if nobody uses its value and it does nothing else. A write stays while what it
    writes to can be observed: an input, an attribute, the state of a module, or a value that is
    used later, itself or through anything that may share storage with it. Random operators, what
    was registered with :func:`corsac.fx.node.has_side_effect`, and calls of which nothing is known
    stay as well.

    The report lists nodes removed, and nodes that nobody uses and that stay, with the reason.
    """

    def transform(graph: Graph) -> RawSites:
        return _core.eliminate_dead_code(
            graph, impure_random=impure_random(), budget=current_budget(budget)
        )

    report = run("dead code", target, transform)
    clean_children(graph_of(target))
    return report


def common_subexpressions(target: GraphModule | Graph, *, budget: Budget | None = None) -> Report:
    """Compute once what is computed twice.

    Two nodes become one, the first, if they call the same thing with the same arguments, and it
    makes no difference which of the two is used: nothing that they read is written to in between,
    nothing writes to their results, they draw no random numbers and have no side effects, and the
    caller does not get both results.

    The report lists nodes removed, each with the one that took its place, and nodes that say the
    same as an earlier one and stay, with the reason.
    """

    def transform(graph: Graph) -> RawSites:
        return _core.common_subexpressions(graph, budget=current_budget(budget))

    return run("common subexpressions", target, transform)


def remove_no_ops(target: GraphModule | Graph, *, budget: Budget | None = None) -> Report:
    """Remove what computes what is there already.

    These are ``nn.Identity``; ``contiguous`` twice; conversions to the dtype that the input has;
    ``view``, ``reshape``, ``expand``, ``flatten`` and ``nn.Flatten`` to the shape that it has; two
    transpositions, or ``permute`` or ``unsqueeze`` and what undoes it; ``clone`` and ``cat`` of one
    tensor where nothing tells the copy from the original; ``x * 1`` and the like where they are
    exact and keep the dtype. Shapes and dtypes are those of ``node.meta["tensor_meta"]``, which have
    to hold for every call.

    The report lists every such node, with what takes its place or why it stays.
    """

    def transform(graph: Graph) -> RawSites:
        return _core.remove_no_ops(graph, budget=current_budget(budget))

    report = run("no-ops", target, transform)
    if isinstance(target, GraphModule):
        drop_unused(target, [site.target for site in report.applied])
    return report


def canonicalize(target: GraphModule | Graph, *, budget: Budget | None = None) -> Report:
    """Put the nodes in an order that depends on nothing but what the program computes.

    Programs that are the same but for the names of values and the order of independent nodes have
    their nodes in the same order afterwards; ``graph.canonical_hash()`` says whether two are.

    The report lists the nodes that have moved.
    """

    def transform(graph: Graph) -> RawSites:
        return _core.canonicalize(graph, budget=current_budget(budget))

    return run("canonical order", target, transform)


def pure(fn: Callable[_P, _R]) -> Callable[_P, _R]:
    """Declare that calls of ``fn`` do nothing besides computing their result, which depends on
    nothing but the arguments.

    Functions that corsac does not know are kept and not shared otherwise. Returns ``fn``, so that
    it serves as a decorator.
    """
    pure_functions.add(fn)
    return fn
