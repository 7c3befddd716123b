"""Writes to values that can be treated as new values, and nodes that cannot be moved."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

import torch
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast

from corsac import _core
from corsac.fx import Graph, Node

#: The storage group of values from outside the program: inputs and attributes.
OUTSIDE = 0


#: Functions with contiguous results, whatever the strides of their inputs.
_ROW_BY_ROW = frozenset(
    [
        torch.nn.functional.linear,
        torch._C._nn.linear,
        torch.nn.functional.embedding,
        torch.ops.aten.embedding.default,
        torch.ops.aten.linear.default,
        torch.ops.aten.mm.default,
        torch.ops.aten.addmm.default,
    ]
)


@dataclass(frozen=True, slots=True)
class _Facts:
    place: int
    node: Node
    mutates: list[Node]
    aliases: list[Node]
    random: bool
    writes_state: bool
    opaque: bool
    barrier: bool
    by_layout: bool
    group: int


def _is_quiet(node: Node) -> bool:
    """Whether literal arguments keep an operator that may use random numbers from using any."""
    operator = node.target
    if not isinstance(operator, torch._ops.OpOverload) or operator.namespace != "aten":
        return False
    if operator._opname == "dropout":
        (p, train) = (_argument(node, 1, "p", 0.5), _argument(node, 2, "train", True))
        return train is False or (not isinstance(p, Node) and p == 0)
    if operator._opname == "scaled_dot_product_attention":
        p = _argument(node, 4, "dropout_p", 0.0)
        return not isinstance(p, Node) and p == 0
    return False


def _argument(node: Node, place: int, name: str, default: object) -> object:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def _sources(
    node: Node, aliases: list[Node], known: dict[Node, frozenset[Node]]
) -> frozenset[Node]:
    if node.op in ("placeholder", "get_attr"):
        return frozenset([node])
    return frozenset().union(*(known[own] for own in aliases))


def written_sources(graph: Graph) -> set[Node]:
    """The placeholders and attributes that the program of ``graph`` may write to."""
    return _memory_sources(graph)[1]


def shared_sources(graph: Graph) -> dict[Node, frozenset[Node]]:
    """The placeholders and attributes with which each value may share memory."""
    return _memory_sources(graph)[0]


def _memory_sources(graph: Graph) -> tuple[dict[Node, frozenset[Node]], set[Node]]:
    sources: dict[Node, frozenset[Node]] = {}
    written: set[Node] = set()
    for node, (does, *_) in zip(graph.nodes, _core.graph_effects(graph), strict=True):
        mutates, aliases, *_, opaque = does
        sources[node] = _sources(node, aliases, sources)
        written.update(*(sources[own] for own in (node.all_input_nodes if opaque else mutates)))
    return sources, written


def written_placeholders(graph: Graph) -> list[int]:
    """The indices of the placeholders that the program of ``graph`` may write to."""
    written = written_sources(graph)
    placeholders = graph.find_nodes(op="placeholder")
    return [number for number, node in enumerate(placeholders) if node in written]


@dataclass(slots=True)
class Writes:
    """The nodes of a graph that cannot be moved, with the reasons.

    Attributes:
        refused: nodes that cannot be computed elsewhere as functions of their inputs, with the reason.
        barriers: those of them that nodes before and after must not cross.
    """

    refused: dict[Node, str] = field(default_factory=dict)
    barriers: set[Node] = field(default_factory=set)
    _facts: dict[Node, _Facts] = field(default_factory=dict)
    _groups: dict[int, list[_Facts]] = field(default_factory=dict)
    _last_use: dict[Node, int] = field(default_factory=dict)
    _laid_out: set[Node] = field(default_factory=set)
    #: Whether inputs share no memory with attributes.
    _apart: bool = False
    #: Inputs and attributes that each value may be, or share memory with.
    _sources: dict[Node, frozenset[Node]] = field(default_factory=dict)

    @classmethod
    def of_graph(cls, graph: Graph, *, apart: bool = False) -> Writes:
        """Analyse ``graph``; ``apart``: its inputs share no memory with attributes."""
        writes = cls(_apart=apart)
        nodes = list(graph.nodes)
        for place, (node, found) in enumerate(
            zip(nodes, _core.graph_effects(graph), strict=True)
        ):  # fmt: skip
            (mutates, aliases, random, _, _, state, opaque), barrier, by_layout, group = found
            random = random and not _is_quiet(node)
            facts = _Facts(
                place, node, mutates, aliases, random, state, opaque, barrier, by_layout, group
            )
            writes._facts[node] = facts
            writes._sources[node] = _sources(node, aliases, writes._sources)
            writes._groups.setdefault(group, []).append(facts)
        for node, facts in writes._facts.items():
            uses = [writes._facts[user].place for user in node.users]
            writes._last_use[node] = max(uses, default=facts.place)
        #: Calls that entered autocast and have not been exited yet.
        switched: set[Node] = set()
        for node, facts in writes._facts.items():
            reason = writes._reason(facts)
            if node.target is _enter_autocast:
                switched.add(node)
            elif node.target is _exit_autocast:
                switched.discard(node.args[0])
            elif switched and node.op.startswith("call_"):
                reason = reason or "it runs where autocast is switched"
            if reason is not None:
                writes.refuse(node, reason)
        return writes

    def _reason(self, facts: _Facts) -> str | None:
        node = facts.node
        if node.op in ("placeholder", "output", "get_attr"):
            return None
        if facts.opaque:
            return "nothing is known of what it calls"
        if facts.random:
            return "it uses random numbers"
        if facts.writes_state:
            return "it writes to buffers of a module"
        if facts.barrier:
            return "it switches a mode"
        if not facts.mutates:
            return None
        for written in facts.mutates:
            group = self._facts[written].group
            if group == OUTSIDE:
                return f"it writes to {written.name}, which is not the program's own"
            other = self._read_later(facts, group)
            if other is not None:
                return f"it writes to {written.name}, and {other.name} shows it, too"
        if len(facts.mutates) != 1 or facts.mutates[0] not in facts.aliases:
            return f"it writes to {facts.mutates[0].name} and gives something else"
        return None

    def _read_later(self, facts: _Facts, group: int) -> Node | None:
        """A value made before a write that shares storage with the destination and is used after the
        write, or by it."""
        others = set(facts.node.all_input_nodes).difference(facts.mutates)
        for member in self._groups.get(group, ()):
            if member.place >= facts.place:
                break
            if self._last_use[member.node] > facts.place or member.node in others:
                return member.node
        return None

    def read_before(self, node: Node, readers: Container[Node]) -> Node | None:
        """The first of ``readers`` before ``node`` that reads a value that ``node`` writes to, or one that
        shares storage with it."""
        facts = self._facts[node]
        for written in facts.mutates:
            for member in self._groups.get(self._facts[written].group, ()):
                for user in member.node.users:
                    if user in readers and self._facts[user].place < facts.place:
                        return user
        return None

    def written(self, node: Node) -> list[Node]:
        """The values that ``node`` writes to."""
        return self._facts[node].mutates

    def refuse(self, node: Node, reason: str) -> None:
        """Keep ``node`` where it is, and if it writes, also the views made before of its destination."""
        if node in self.refused and (node in self.barriers or not self._is_barrier(node)):
            return
        self.refused.setdefault(node, reason)
        if not self._is_barrier(node):
            return
        self.barriers.add(node)
        facts = self._facts[node]
        groups = {self._facts[written].group for written in facts.mutates}
        if facts.opaque:
            groups |= {OUTSIDE} | {self._facts[n].group for n in node.all_input_nodes}
        for group in groups:
            # The caller may read inputs and attributes after the program, too.
            if group != OUTSIDE and self._read_later(facts, group) is None:
                continue
            for member in self._groups.get(group, ()):
                if self._is_apart(member.node, facts):
                    continue
                if member.place <= facts.place and member.aliases and member.node is not node:
                    self.refuse(
                        member.node, f"it may share storage with what {node.name} writes to"
                    )
                    if member.by_layout:
                        self._refuse_layout(member.node, node)
            if group == OUTSIDE and not facts.opaque:
                for member in self._groups[group]:
                    if member.node.op == "get_attr" and not self._is_apart(member.node, facts):
                        self.refused.setdefault(
                            member.node, f"{node.name} may write to it"
                        )  # fmt: skip

    def _is_apart(self, shown: Node, writer: _Facts) -> bool:
        """Whether ``shown`` comes from attributes only and the values written to from inputs only, or
        the other way round."""
        if not self._apart or writer.opaque:
            return False
        kinds = {own.op for own in self._sources[shown]}
        written = {own.op for node in writer.mutates for own in self._sources[node]}
        return bool(kinds and written) and kinds.isdisjoint(written)

    def _refuse_layout(self, shown: Node, writer: Node) -> None:
        """Keep the values whose strides decide whether ``shown`` is a view that shows a write: values
        computed elsewhere are contiguous."""
        reason = f"how it lies in memory decides what {writer.name} writes to"
        waiting = list(shown.all_input_nodes)
        while waiting:
            source = waiting.pop()
            is_laid_out = source.op == "call_function" and source.target in _ROW_BY_ROW
            if source in self._laid_out or is_laid_out or not source.op.startswith("call_"):
                continue
            self._laid_out.add(source)
            self.refused.setdefault(source, reason)
            waiting += source.all_input_nodes

    def _is_barrier(self, node: Node) -> bool:
        facts = self._facts[node]
        return bool(
            facts.mutates
            or facts.random
            or facts.writes_state
            or facts.opaque
            or facts.barrier
        )  # fmt: skip
