"""Partition of a program into parts for a backend, and the host."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from torch import nn

from corsac import _core
from corsac.fx import Node
from corsac.fx.graph_module import GraphModule
from corsac.lowering._backend import Backend
from corsac.lowering._layout import reads_by_place
from corsac.onnx._translate import holds_tensors
from corsac.passes._writes import Writes

Types = dict[Node, Any]


class Partition:
    """Groups the nodes that a backend supports into parts.

    Attributes:
        reasons: why nodes stay on the host, by node.
        parts: the nodes of each part, in order.
    """

    def __init__(self, module: GraphModule, types: Types, backend: Backend, min_nodes: int) -> None:
        self.module, self.graph, self.types = module, module.graph, types
        self.writes = Writes.of_graph(self.graph, apart=backend.apart)
        self._not_functions = frozenset(self.writes.refused)
        self.reasons: dict[Node, str] = {}
        backend.prepare(module)
        by_place = reads_by_place(self.graph)
        for node in self.graph.nodes:
            reason = by_place.get(node) or self._refusal(node, backend)
            if reason is not None:
                self.reasons[node] = reason
        self.parts = self._grow()
        while self._dissolve(min_nodes):
            self.parts = self._grow()

    def _refusal(self, node: Node, backend: Backend) -> str | None:
        if node.op in ("placeholder", "output"):
            return "it belongs to the program's signature"
        if node in self.writes.refused:
            return self.writes.refused[node]
        for source in node.all_input_nodes:
            type_ = self.types[source]
            inside = source.op not in ("placeholder", "get_attr") and source not in self.reasons
            if isinstance(type_, (tuple, list, dict)) and holds_tensors(type_) and not inside:
                return f"{source.name}, a container, is on the host"
        answer = backend.supports(node, self.types)
        if answer is True:
            return None
        return answer if isinstance(answer, str) else "the backend does not support it"

    def numbers(self) -> Mapping[Node, int]:
        """The number of the part of each node."""
        return _numbers(self.parts)

    def functions(self) -> list[Node]:
        """The nodes that are functions of their inputs, and share no memory with values that are written to."""
        return [node for node in self.graph.nodes if node not in self._not_functions]

    def _grow(self) -> list[list[Node]]:
        """The largest parts of nodes without a reason to stay."""
        self._keep_with_users()
        for node in self.graph.nodes:
            if node not in self.reasons and self.writes.written(node):
                reader = self.writes.read_before(node, self.reasons)
                if reader is not None:
                    # The part would return the value after the write.
                    self.reasons[node] = f"{reader.name}, on the host, reads what was there before"
        for node in list(self.reasons):
            # A node that is kept for another reason and writes is a barrier too.
            self.writes.refuse(node, self.reasons[node])
        for node, reason in self.writes.refused.items():
            self.reasons.setdefault(node, reason)
        self._keep_with_users()
        nodes = list(self.graph.nodes)
        parts = _core.grow_parts(
            self.graph,
            [node not in self.reasons for node in nodes],
            [node in self.writes.barriers for node in nodes],
            # Inputs and outputs of parts are tensors: items are in the part of their container.
            [self._container(node) is not None for node in nodes],
        )
        if self._keep_writes_to_others(_numbers(parts)):
            return self._grow()
        return parts

    def _keep_writes_to_others(self, part_of: Mapping[Node, int]) -> bool:
        """Keep nodes on the host that write to an input of their part; return whether there was one."""
        changed = False
        for node, part in part_of.items():
            written = self.writes.written(node)
            other = next((own for own in written if part_of.get(own) != part), None)
            if other is not None:
                self.reasons[node] = f"it writes to {other.name}, which another part makes"
                changed = True
        return changed

    def _keep_with_users(self) -> None:
        """Keep attributes that the host uses on the host, and items of containers with their container."""
        for node in self.graph.nodes:
            if node.op == "get_attr" and any(user in self.reasons for user in node.users):
                self.reasons.setdefault(node, "the host uses it")
            container = self._container(node)
            if container in self.reasons:
                self.reasons.setdefault(node, f"{container.name}, a container, is on the host")

    def _container(self, node: Node) -> Any:
        """The container of tensors that ``node`` takes an item out of, or None."""
        source = node.args[0] if node.target is operator.getitem else None
        type_ = self.types[source] if isinstance(source, Node) else None
        holds = isinstance(type_, (tuple, list, dict)) and holds_tensors(type_)
        return source if holds else None

    def _dissolve(self, min_nodes: int) -> bool:
        """Leave parts with too few computations on the host; return whether there was one."""
        changed = False
        for part in self.parts:
            count = sum(self._computes(node) for node in part)
            if count < min_nodes:
                reason = f"its part has {count} computations, and min_nodes asks for {min_nodes}"
                reason = reason if count else "its part computes nothing"
                for node in part:
                    self.reasons[node] = reason
                changed = True
        return changed

    def _computes(self, node: Node) -> bool:
        """Whether a node computes tensors, other than as a view."""
        if node.op == "get_attr" or not holds_tensors(self.types[node]):
            return False
        target = node.target
        if node.op == "call_module":
            cls = type(self.module.get_submodule(str(target)))
            target = cls.__name__ if getattr(nn, cls.__name__, None) is cls else ""
        # Dropout is in evaluation.
        return {"view", "dropout"}.isdisjoint(_core.operator_classes(node.op, target))


def _numbers(parts: list[list[Node]]) -> dict[Node, int]:
    return {node: number for number, part in enumerate(parts) for node in part}
