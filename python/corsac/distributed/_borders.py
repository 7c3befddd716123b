"""Borders at which a program may be cut, and the choice among them."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast

from corsac import _core
from corsac.distributed._errors import PipelineError
from corsac.distributed._program import Program, Weight
from corsac.distributed._values import bytes_of, reads_places, written_bytes
from corsac.fx import Graph, GraphModule, Node
from corsac.fx._module_attributes import _assign_attr
from corsac.fx._own_copy import copied_graph
from corsac.passes._writes import OUTSIDE

#: Cost of moving a byte, in operations: that of a machine of 50 GFLOP/s with 12 GB/s for each thread.
_BYTE = 4
#: Balance, the mean cost of parts by the largest, up to which borders with less traffic are preferred.
_BALANCE = 0.9
#: The same where the best balance is worse: slack of the slowest part.
_SLACK = 1.02
#: Largest number of borders that are compared.
_MOST = 300


@dataclass(slots=True)
class Dependencies:
    """Effects of the nodes of a program that decide where it may be cut.

    Attributes:
        nodes: the nodes in order.
        place: their places.
        borders: the places before which it may be cut.
        written: the nodes whose memory is written to, or that write.
        fixed: nodes that must not be computed twice: random numbers, writes, calls of unknown functions.
        kept: nodes that have an effect besides their values.
    """

    nodes: list[Node]
    place: dict[Node, int]
    borders: list[int]
    written: set[Node]
    fixed: set[Node]
    kept: set[Node]

    @classmethod
    def of(cls, program: Program, values: Mapping[Node, Any]) -> Dependencies:
        """The dependencies of a program with these values."""
        nodes = list(program.graph.nodes)
        place = {node: number for number, node in enumerate(nodes)}
        forbidden = [0] * (len(nodes) + 1)
        groups: dict[int, list[int]] = {}
        sources: dict[Node, frozenset[Node]] = {}
        by_target: dict[str, list[int]] = {}
        written: set[Node] = set()
        fixed: set[Node] = set()
        kept: set[Node] = set()

        def forbid(first: int, last: int) -> None:
            """Forbid the borders after ``first`` up to that before ``last``."""
            for border in range(first + 1, last + 1):
                forbidden[border] = 1

        facts = list(zip(nodes, _core.graph_effects(program.graph), strict=True))
        for node, ((_, aliases, *_), _, _, group) in facts:
            groups.setdefault(group, []).append(place[node])
            sources[node] = (
                frozenset([node])
                if node.op in ("placeholder", "get_attr")
                else frozenset().union(*(sources[own] for own in aliases))
            )
            for own in sources[node]:
                if own.op == "get_attr":
                    uses = [place[user] for user in node.users]
                    by_target.setdefault(str(own.target), []).extend(uses)
        for node, ((mutates, _, random, _, _, state, opaque), barrier, _, _) in facts:
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            at = place[node]
            changed = list(node.all_input_nodes) if opaque else mutates
            if random or state or opaque or barrier or mutates:
                fixed.add(node)
                kept.add(node)
            for own in changed:
                group = facts[place[own]][1][3]
                if group != OUTSIDE:
                    members = groups[group]
                    forbid(members[0], at)
                    written.update(nodes[member] for member in members)
                for source in sources[own]:
                    written.add(source)
                    if source.op == "placeholder":
                        forbid(0, at)
                        written.update(user for user in source.users)
                    elif not opaque:
                        uses = by_target[str(source.target)]
                        forbid(min(uses), max(uses))
        for node in nodes:
            if reads_places(node):
                # Values that are sent become contiguous.
                for own in node.all_input_nodes:
                    forbid(place[own], place[node])
        for first, last in _mode_regions(nodes):
            forbid(first, last)
            fixed.update(own for own in nodes[first : last + 1] if own.op.startswith("call_"))
        for node, value in values.items():
            if isinstance(value, (tuple, list)):
                # Items are taken at once, in the stage of the tuple.
                others = [place[user] for user in node.users if not takes_item(user, node)]
                forbid(place[node], max(others, default=place[node]))
        inputs = [place[node] for node in nodes if node.op == "placeholder"]
        forbid(0, max(inputs, default=0))
        calls = [place[node] for node in nodes if node.op.startswith("call_")]
        borders = [own for own in calls[1:] if not forbidden[own]]
        return cls(nodes, place, borders, written, fixed, kept)


def takes_item(user: Node, node: Node) -> bool:
    """Whether ``user`` takes an item of the tuple ``node``."""
    return user.target is operator.getitem and user.args[0] is node


def _mode_regions(nodes: Sequence[Node]) -> Iterator[tuple[int, int]]:
    """The places of the first and last node of regions in which gradients are switched off or autocast is on."""
    since: int | None = None
    entered: dict[Any, int] = {}
    for at, node in enumerate(nodes):
        if node.target is torch._C._set_grad_enabled:
            if not node.args[0] and since is None:
                since = at
            elif node.args[0] and since is not None:
                yield since, at
                since = None
        elif node.target is _enter_autocast:
            entered[node] = at
        elif node.target is _exit_autocast:
            yield entered.pop(node.args[0]), at
    for start in [*entered.values(), *([] if since is None else [since])]:
        yield start, len(nodes) - 1


def costs_of(program: Program, values: Mapping[Node, Any]) -> list[float]:
    """The cost of each node in operations: arithmetic, and the bytes that it writes."""
    return [
        float(flops + _BYTE * written_bytes(values.get(node)))
        if node.op.startswith("call_")
        else 0.0
        for node, (_, flops, *_) in zip(program.graph.nodes, counted(program, values), strict=True)
    ]


def counted(program: Program, values: Mapping[Node, Any]) -> list[tuple[int, int, int, int]]:
    """Multiplications, floating-point operations, bytes read and bytes written of each node, 0 where they are not
    known."""
    module = with_types(copied_graph(program.graph), program.weights)
    inputs = tuple(
        torch.empty(values[node].shape, dtype=values[node].dtype, device="meta")
        for node in program.graph.find_nodes(op="placeholder")
    )
    with torch.no_grad():
        types = _core.propagate_types(module.graph, inputs, None, fill=False, cost=True)
    return [
        tuple(own if isinstance(own, int) else 0 for own in row)  # type: ignore[misc]
        for row in types.costs()
    ]


def with_types(graph: Graph, weights: Mapping[str, Weight]) -> GraphModule:
    """A graph in a module that has its weights on ``meta``."""
    holder = torch.nn.Module()
    for name, own in weights.items():
        value: torch.Tensor = torch.empty(own.shape, dtype=own.dtype, device="meta")
        if own.kind == "parameter":
            value = torch.nn.Parameter(value, own.requires_grad)
        _assign_attr(value, holder, name)
    return GraphModule(holder, graph)


def cuts(
    program: Program,
    values: Mapping[Node, Any],
    dependencies: Dependencies,
    stages: int,
    memory: int | None = None,
    costs: Sequence[float] | None = None,
) -> list[int]:
    """The borders that make the slowest of ``stages`` parts fastest, and among about equal ones those with the least
    traffic.

    Args:
        memory: the largest number of bytes of weights, with their gradients, of a part.
        costs: of each node; by default those of :func:`costs_of`.

    Raises:
        PipelineError: there are too few borders, or no part is small enough.
    """
    if stages == 1:
        return []
    if costs is None:
        costs = costs_of(program, values)
    start = list(itertools.accumulate(costs, initial=0.0))
    traffic = _traffic(program, values, dependencies)
    borders = _thinned(dependencies.borders, traffic)
    if len(borders) < stages - 1:
        raise PipelineError(
            f"the model has {len(borders)} places at which it may be cut, "
            f"expected at least {stages - 1} for {stages} stages"
        )
    points = [0, *borders, len(costs)]
    sizes = _weight_sizes(program, dependencies, points)

    def fits(left: int, right: int) -> bool:
        return memory is None or sizes(left, right) <= memory

    def best(limit: float | None) -> tuple[float, list[int]] | None:
        """The borders with the fastest slowest part, or with the least traffic if no part may cost more than
        ``limit``."""
        rows: list[list[tuple[float, int] | None]] = [[None] * len(points)]
        rows[0][0] = (0.0, -1)
        for _ in range(stages):
            row: list[tuple[float, int] | None] = [None] * len(points)
            for right in range(1, len(points)):
                # Longer parts cost more.
                for left in reversed(range(right)):
                    cost = start[points[right]] - start[points[left]]
                    known = row[right]
                    if limit is None:
                        if known is not None and cost > known[0]:
                            break
                    elif cost > limit:
                        break
                    before = rows[-1][left]
                    if before is None:
                        continue
                    if limit is None:
                        total = max(before[0], cost)
                    else:
                        total = before[0] + traffic[points[left]]
                    if known is None or total <= known[0]:
                        if not fits(left, right):
                            break
                        row[right] = (total, left)
            rows.append(row)
        last = rows[-1][-1]
        if last is None:
            return None
        found, at = [], len(points) - 1
        for row in reversed(rows[1:]):
            at = row[at][1]  # type: ignore[index]
            found.append(points[at])
        return last[0], sorted(found)[1:]

    slowest = best(None)
    if slowest is None:
        raise PipelineError(
            f"no {stages} stages fit into {memory} bytes each: expected more memory or stages"
        )
    chosen = best(max(slowest[0] * _SLACK, start[-1] / stages / _BALANCE))
    return slowest[1] if chosen is None else chosen[1]


def _thinned(borders: Sequence[int], traffic: Sequence[float]) -> list[int]:
    """At most :data:`_MOST` borders: of neighbours the one with the least traffic."""
    if len(borders) <= _MOST:
        return list(borders)
    edges = [round(number * len(borders) / _MOST) for number in range(_MOST + 1)]
    return [
        min(borders[left:right], key=lambda own: traffic[own])
        for left, right in itertools.pairwise(edges)
    ]


def _traffic(
    program: Program, values: Mapping[Node, Any], dependencies: Dependencies
) -> list[float]:
    """Bytes of values in use before and after each border, and of the gradients of parameters that are."""
    place = dependencies.place
    change = [0.0] * (len(place) + 2)
    spans: dict[str, list[int]] = {}
    for node, own in values.items():
        uses = [place[user] for user in node.users]
        if node.op == "get_attr":
            if program.weights[str(node.target)].requires_grad:
                spans.setdefault(str(node.target), []).extend(uses)
        elif uses and isinstance(own, torch.Tensor):
            change[place[node] + 1] += bytes_of(own)
            change[max(uses) + 1] -= bytes_of(own)
    for name, uses in spans.items():
        change[min(uses, default=0) + 1] += 2 * program.weights[name].bytes
        change[max(uses, default=0) + 1] -= 2 * program.weights[name].bytes
    return list(itertools.accumulate(change))


def _weight_sizes(program: Program, dependencies: Dependencies, points: Sequence[int]) -> Any:
    """A function that returns the bytes of weights and their gradients between two points."""
    uses: list[tuple[int, str]] = sorted(
        (dependencies.place[user], str(node.target))
        for node in program.graph.find_nodes(op="get_attr")
        for user in node.users
    )
    known: dict[tuple[int, int], int] = {}

    def size(left: int, right: int) -> int:
        key = points[left], points[right]
        if key not in known:
            names = {name for at, name in uses if key[0] <= at < key[1]}
            known[key] = sum(
                program.weights[name].bytes * (1 + program.weights[name].requires_grad)
                for name in names
            )
        return known[key]

    return size


__all__ = ["Dependencies", "costs_of", "counted", "cuts", "takes_item", "with_types"]
