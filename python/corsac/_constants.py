"""Tensors of recorded programs that do not depend on inputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from corsac._aten import place_of, places_in, tensors_in
from corsac.fx import Graph, Node


class Constants:
    """Constant folding of tensors that do not depend on inputs, even if made in several steps, such as masks that are
    written part by part.

    Each call would compute the same, so they are computed once, unless that could be observed.
    """

    def __init__(self) -> None:
        #: The nodes that compute them, with their results and the memory of these.
        self._nodes: dict[Node, tuple[Any, set[int]]] = {}
        #: Their tensors by memory, which is kept alive.
        self._places: dict[int, torch.Tensor] = {}
        #: Memory that other nodes write to, or that is written to after it was read.
        self._lost: set[int] = set()
        self._read: set[int] = set()
        #: Memory that is written to after it was made.
        self._written: set[int] = set()

    def note(
        self,
        node: Node,
        written: list[torch.Tensor],
        tensors: list[torch.Tensor],
        weights: set[int],
        result: Any,
    ) -> None:
        """Note a new node.

        Args:
            node: the node.
            written: tensors that it has written to.
            tensors: tensors that it has read.
            weights: memory of those of them that are neither made by the program nor inputs.
            result: its result.
        """
        results = tensors_in(result)
        read_at, results_at = places_in(tensors), places_in(results)
        if len(read_at) != len(tensors) or len(results_at) != len(results):
            # One is not strided.
            return
        read = [place for place in read_at if place not in weights]
        is_constant = all(place in self._places for place in read)
        if not is_constant:
            self._read.update(place for place in read if place in self._places)
            self._lost.update(places_in(written))
            # A view of a constant that depends on an input.
            self._lost.update(place for place in results_at if place in self._places)
            return
        places = {place_of(own): own for own in (*results, *written)}
        self._lost.update(place_of(own) for own in written if place_of(own) in self._read)
        self._written.update(map(place_of, written))
        self._places.update(places)
        self._nodes[node] = result, {*places, *read}

    def nodes(self) -> set[Node]:
        """The nodes whose results are constants."""
        lost = self._spread(self._lost)
        return {node for node, (_, places) in self._nodes.items() if not places & lost}

    def _spread(self, lost: set[int]) -> set[int]:
        """Extend ``lost`` to all memory that shares a node with it: such nodes are computed in every call."""
        while True:
            found = {own for _, places in self._nodes.values() if places & lost for own in places}
            if found <= lost:
                return lost
            lost = lost | found

    def depend_on(self, inputs: Iterable[Node]) -> None:
        """Treat these nodes as inputs after all: values computed from them are not constants."""
        left, seen = list(inputs), set[Node]()
        while left:
            node = left.pop()
            if node in self._nodes:
                self._lost |= self._nodes[node][1]
            left += (own for own in node.users if own not in seen)
            seen.update(node.users)

    def fold(self, graph: Graph, returned: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Replace nodes by attributes with their values, where writes are involved; return the tensors by name."""
        returned_at = set(places_in(returned))
        lost = self._spread(self._lost | returned_at)
        # Constants without writes are left to `fold_constants`.
        kept = {
            node: own
            for node, (own, places) in self._nodes.items()
            if places & self._written and not places & lost
        }
        named: dict[str, torch.Tensor] = {}
        for node, own in kept.items():
            if isinstance(own, torch.Tensor) and any(user not in kept for user in node.users):
                name = f"_constant{len(named)}"
                with torch.inference_mode(False):
                    named[name] = own.clone()
                with graph.inserting_before(node):
                    new = graph.create_node("get_attr", name, (), {})
                node.replace_all_uses_with(new, lambda user: user not in kept)
        for node in reversed(kept):
            if not node.users:
                graph.erase_node(node)
        return named


__all__ = ["Constants"]
