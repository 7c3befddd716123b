"""Equality saturation: the cheapest of all equivalent programs that rules derive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from corsac import _core
from corsac.fx import Graph
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget, current_budget
from corsac.passes._registry import registered
from corsac.passes._report import Report, Site
from corsac.passes._rules import Rule, Rules
from corsac.passes._target import graph_of


class ValueType(NamedTuple):
    """Element type and sizes of a value; None where they are not known."""

    dtype: torch.dtype | None
    shape: tuple[int, ...] | None


class CallTypes(NamedTuple):
    """The types of a call, for a cost function.

    Attributes:
        operands: types of the nodes among its arguments, in order.
        result: type of its result.
    """

    operands: tuple[ValueType, ...]
    result: ValueType


Cost = Mapping[str, float] | Callable[[str, CallTypes], float]


@dataclass(frozen=True, slots=True)
class SaturationReport(Report):
    """Report of :func:`saturate`.

    Attributes:
        iterations: number of iterations over the rules.
        e_nodes: calls in the e-graph at the end.
        classes: e-classes at the end.
        stop: why it ended: ``"saturated"``, ``"iterations"``, ``"nodes"`` or ``"time"``.
        cost_before: cost of the nodes that could be replaced.
        cost_after: cost of their replacements; never more.
        merged: number of merges of two values by each rule.
        left_out: rules that saturation cannot use, with the reason.
    """

    iterations: int = 0
    e_nodes: int = 0
    classes: int = 0
    stop: str = "saturated"
    cost_before: float = 0.0
    cost_after: float = 0.0
    merged: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        head, *lines = Report.__str__(self).splitlines()
        cost = f"cost {self.cost_before:.4g} -> {self.cost_after:.4g}"
        search = (
            f"{self.iterations} iterations, {self.e_nodes} e-nodes in {self.classes} classes, "
            f"ended by {self.stop}"
        )
        return "\n".join([f"{head}; {cost} ({search})", *lines])


def _call_types(operands: tuple[tuple, ...], result: tuple) -> CallTypes:
    return CallTypes(tuple(ValueType(*operand) for operand in operands), ValueType(*result))


@registered
def saturate(
    target: GraphModule | Graph,
    rules: Rules | Iterable[Rule] | str | None = None,
    *,
    cost: Cost | None = None,
    max_nodes: int = 10_000,
    max_seconds: float | None = 10.0,
    iterations: int = 30,
    fast_math: bool = False,
    budget: Budget | None = None,
) -> SaturationReport:
    """Find the cheapest of all equivalent programs that rules derive from this one.

    Rules are not applied one after the other: equal expressions are kept side by side in an e-graph,
    so that the order of rules makes no difference, rules may go both ways (``<=>``), and a step may
    be taken that only pays after the next one. The cheapest program is extracted in the end; if none
    is cheaper, the graph stays as it is. Common subexpressions are computed once.

    The same nodes are left alone as by :func:`rewrite`: those that use random numbers, write, are
    written to, or have side effects; nothing moves across a call that switches a mode.

    Args:
        target: the module or graph to change.
        rules: rules, or their text. By default the laws that :func:`simplify` applies, and
            equalities that only saturation can use; ``docs/rules.md`` has them.
        cost: the cost of a call: a dictionary from operators (``"add"``) or targets
            (``"torch.add"``) to numbers, where others cost 1, or a function ``cost(target, types)``
            of a :class:`CallTypes`. By default an estimate in microseconds from arithmetic and
            bytes if types are known, or else a constant for the operator.
        max_nodes: largest number of calls that rules may add to the e-graph.
        max_seconds: time limit; None for none. Results are reproducible only if the limit is not
            reached.
        iterations: largest number of iterations over the rules.
        fast_math: whether laws may be used that hold up to rounding only; for the default rules.
        budget: largest number of changes; by default that of the block
            (:func:`rewrite_budget`).

    Rules with several values, with a condition in Python or about single uses are left out, and
    the report lists them. Types and shapes are those of ``node.meta["tensor_meta"]``.

    Raises:
        ValueError: a cost is not a number of at least 0.
    """
    if isinstance(rules, str):
        rules = Rules.parse(rules)
    elif rules is not None and not isinstance(rules, Rules):
        rules = Rules(rules)
    graph = graph_of(target)
    before = len(graph.nodes)
    raw, numbers, merged, left_out = _core.saturate(
        graph,
        None if rules is None else rules._compiled(),
        dict(cost) if isinstance(cost, Mapping) else cost,
        _call_types,
        max_nodes=max_nodes,
        max_seconds=max_seconds,
        iterations=iterations,
        fast_math=fast_math,
        budget=current_budget(budget),
    )
    sites = tuple(Site(*site) for site in raw)
    report = SaturationReport(
        "saturate", sites, before, len(graph.nodes), *numbers, dict(merged), dict(left_out)
    )
    if report.changed and isinstance(target, GraphModule):
        target.recompile()
    return report
