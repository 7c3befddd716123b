"""Equality saturation: the cheapest of all programs that rules make of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from corsac import _core
from corsac.fx import Graph
from corsac.fx.graph_module import GraphModule
from corsac.passes._budget import Budget, current_budget
from corsac.passes._report import Report, Site
from corsac.passes._rules import Rule, Rules
from corsac.passes._target import graph_of


class ValueType(NamedTuple):
    """What is known of a value: its element type and its sizes, None where they are not known."""

    dtype: torch.dtype | None
    shape: tuple[int, ...] | None


class CallTypes(NamedTuple):
    """The types in a call whose cost is asked for.

    Attributes:
        operands: those of the nodes among its arguments, in order.
        result: that of its result.
    """

    operands: tuple[ValueType, ...]
    result: ValueType


Cost = Mapping[str, float] | Callable[[str, CallTypes], float]


@dataclass(frozen=True, slots=True)
class SaturationReport(Report):
    """What :func:`saturate` found.

    Attributes:
        iterations: how often the rules were gone over.
        e_nodes: calls in the e-graph at the end.
        classes: classes of equal values at the end.
        stop: why it ended: ``"saturated"``, ``"iterations"``, ``"nodes"`` or ``"time"``.
        cost_before: what the nodes cost that could be exchanged.
        cost_after: what those cost that took their places; never more.
        merged: how often each rule made two values equal.
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
    """Find the cheapest of all programs that rules make of this one.

    Rules are not applied one after the other: what they say is equal is kept side by side in an
    e-graph, so that their order makes no difference, rules may go both ways (``<=>``), and a step
    may be taken that only pays after the next one. The cheapest program is taken in the end; where
    none is cheaper, the graph stays as it is. What is computed twice is computed once.

    The same things are left alone as by :func:`rewrite`: what draws random numbers, writes, is
    written to, or has side effects; nothing moves across a call that switches a mode.

    Args:
        target: what to change.
        rules: rules, or their text. By default the laws that :func:`simplify` applies, and
            equalities that only saturation can use; ``docs/rules.md`` has them.
        cost: what a call costs: a dictionary from operators (``"add"``) or targets
            (``"torch.add"``) to numbers, where others cost 1, or ``cost(target, types)``, asked
            with :class:`CallTypes`. By default an estimate in microseconds from arithmetic and
            bytes, where types are known, and a constant for the operator, where they are not.
        max_nodes: rules may add so many calls to the e-graph.
        max_seconds: so much time may pass; None for any. Only runs that do not end by this always
            give the same.
        iterations: how often the rules are gone over.
        fast_math: whether laws may be used that hold up to rounding only; for the default rules.
        budget: how many changes may be made; by default that of the block
            (:func:`rewrite_budget`).

    Rules with several values, with a condition in Python or about single uses are left out, and
    the report says so. Types and shapes are those of ``node.meta["tensor_meta"]``.

    Raises:
        ValueError: a cost that is no number of at least 0.
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
