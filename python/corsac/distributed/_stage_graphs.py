"""Graphs of stages, which pass all values that later stages need to their neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from corsac.distributed._borders import Dependencies, takes_item
from corsac.distributed._errors import PipelineError
from corsac.distributed._program import Program
from corsac.distributed._values import bytes_of, described, written_bytes
from corsac.fx import Graph, Node

#: Bytes that a stage may write to recompute a value, for each byte that would be sent otherwise: memory is about this
#: much faster than a connection.
_FASTER = 10
#: Functions of the size of a tensor in one dimension.
_SIZES = (torch.ops.aten.sym_size.int,)
#: Place of a size: the name of a value, and the dimension.
SizePlace = tuple[str, int]


def sent(value: torch.Tensor) -> torch.Tensor:
    """A value as stages return it: contiguous, and a tensor that is no view and that autograd has not saved, since
    schedules detach it in place."""
    return value.clone(memory_format=torch.contiguous_format)


def gradients_off() -> bool:
    """Switch gradients off; return whether they were on."""
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    return before


@dataclass(slots=True)
class StageGraph:
    """A part of a program.

    Attributes:
        graph: the graph.
        inputs: the values that it takes, by their names in the program.
        outputs: those that it returns.
        weights: the names of the weights that it reads.
        sizes: sizes that are read from other values than in the program, with these, or are constants.
        recomputed: the values of earlier stages that it computes again.
    """

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...]
    sizes: dict[SizePlace, SizePlace | int] = field(default_factory=dict)
    recomputed: tuple[str, ...] = ()


def stage_graphs(
    program: Program,
    borders: Sequence[int],
    dependencies: Dependencies,
    values: Sequence[Mapping[Node, Any]],
) -> list[StageGraph]:
    """Cut a program at ``borders``.

    Args:
        program: the program.
        borders: places before which it is cut.
        dependencies: of the program.
        values: the values of all nodes, for one or more sets of sizes: sizes that are equal in all may stand for each
            other.

    Raises:
        PipelineError: a value that is no tensor would have to be sent.
    """
    return _Cut(program, borders, dependencies, values).graphs()


class _Cut:
    """A program that is being cut."""

    def __init__(
        self,
        program: Program,
        borders: Sequence[int],
        dependencies: Dependencies,
        values: Sequence[Mapping[Node, Any]],
    ) -> None:
        self._program, self._dependencies = program, dependencies
        self._values, self._all = values[0], values
        self._count = len(borders) + 1
        self._by_name = {node.name: node for node in dependencies.nodes}
        self._stage: dict[Node, int] = {}
        stage = 0
        cuts = set(borders)
        for at, node in enumerate(dependencies.nodes):
            stage += at in cuts
            if node.op == "placeholder":
                self._stage[node] = 0
            elif node.op.startswith("call_"):
                own = stage
                if node.args and isinstance(node.args[0], Node) and takes_item(node, node.args[0]):
                    held = self._values[node.args[0]]
                    if isinstance(held, (tuple, list)):
                        own = self._stage[node.args[0]]
                self._stage[node] = own
        self._live = self._needed()

    def _needed(self) -> set[Node]:
        """The nodes that results or effects depend on."""
        left = [*self._dependencies.kept, self._program.graph.output_node()]
        found = set(left)
        while left:
            more = [own for own in left.pop().all_input_nodes if own not in found]
            found.update(more)
            left += more
        return found

    def graphs(self) -> list[StageGraph]:
        """The graphs of all stages."""
        results = self._program.results()
        for own in results:
            if not isinstance(self._values.get(own), torch.Tensor):
                raise PipelineError(f"the model returns {described(own)}, which is no tensor")
        outputs: list[Node] = results
        made: list[StageGraph] = []
        for stage in reversed(range(self._count)):
            part = _Stage(self, stage, outputs)
            made.append(part.graph())
            outputs = part.inputs
        return made[::-1]

    def own(self, stage: int) -> list[Node]:
        """The live calls of a stage."""
        return [
            node
            for node in self._dependencies.nodes
            if self._stage.get(node) == stage and node in self._live and node.op != "placeholder"
        ]

    def before(self, node: Node, stage: int) -> bool:
        """Whether a node is computed before a stage."""
        return node.op != "get_attr" and self._stage[node] < stage

    def bytes(self, node: Node) -> int:
        """Size of a value."""
        return bytes_of(self._values[node])

    def is_tensor(self, node: Node) -> bool:
        """Whether the value of a node is a tensor."""
        return isinstance(self._values[node], torch.Tensor)

    def may_recompute(self, node: Node) -> bool:
        """Whether a value may be computed a second time: it needs no gradient, and is a function of values that do not
        change."""
        if node in self._dependencies.fixed or node in self._dependencies.written:
            return False
        if node.op == "get_attr":
            return self._program.weights[str(node.target)].kind != "parameter"
        value = self._values[node]
        held = value if isinstance(value, (tuple, list)) else (value,)
        return not any(isinstance(own, torch.Tensor) and own.requires_grad for own in held)

    def size_of(self, node: Node) -> tuple[Node, int] | None:
        """The tensor and the dimension of which a node is the size."""
        is_size = node.op == "call_method" and node.target == "size"
        if not (is_size or node.target in _SIZES) or len(node.args) != 2:
            return None
        tensor, dim = node.args
        if not (isinstance(tensor, Node) and type(dim) is int):
            return None
        return tensor, dim % self._values[tensor].dim()

    def equal_size(
        self, place: tuple[Node, int], among: Iterable[Node]
    ) -> tuple[Node, int] | int | None:
        """A dimension of one of the tensors ``among`` that has always had the size of another, or its size if that has
        always been the same."""
        tensor, dim = place
        wanted = [values[tensor].shape[dim] for values in self._all]
        if len(wanted) > 1 and len(set(wanted)) == 1:
            return int(wanted[0])
        for own in among:
            if own is tensor:
                return place
            if not self.is_tensor(own):
                continue
            for number in range(self._values[own].dim()):
                if [values[own].shape[number] for values in self._all] == wanted:
                    return own, number
        return None


class _Stage:
    """A stage that is being made: decides which values it takes from the one before."""

    def __init__(self, cut: _Cut, stage: int, outputs: list[Node]) -> None:
        self._cut, self._stage, self._outputs = cut, stage, outputs
        self._own = cut.own(stage)
        #: The values that it takes.
        self.inputs: list[Node] = []
        self._sizes: dict[Node, tuple[Node, int] | int] = {}
        self._recomputed: set[Node] = set()
        if stage == 0:
            self.inputs = cut._program.graph.find_nodes(op="placeholder")
            return
        self._take([own for own in outputs if cut.before(own, stage)])
        used = [own for node in self._own for own in node.all_input_nodes if cut.before(own, stage)]
        used = list(dict.fromkeys(used))
        # What has to be sent in any case comes first: it has sizes, too.
        self._take([own for own in used if cut.is_tensor(own) and not cut.may_recompute(own)])
        for node in used:
            if node in self.inputs or node in self._recomputed:
                continue
            leaves, written = self._leaves(node)
            moved = sum(map(cut.bytes, leaves)) + written / _FASTER
            if not cut.is_tensor(node) or moved < cut.bytes(node):
                self._recompute(node, leaves)
            else:
                self._take([node])
        order = cut._dependencies.place
        self.inputs.sort(key=order.__getitem__)

    def _take(self, nodes: Iterable[Node]) -> None:
        self.inputs += [own for own in dict.fromkeys(nodes) if own not in self.inputs]

    def _recompute(self, node: Node, leaves: Iterable[Node]) -> None:
        self._take(leaves)
        waiting = [node]
        while waiting:
            own = waiting.pop()
            if own in self._recomputed or own in self.inputs or own.op == "get_attr":
                continue
            self._recomputed.add(own)
            size = self._cut.size_of(own)
            if size is not None:
                found = self._cut.equal_size(size, self.inputs)
                assert found is not None
                self._sizes[own] = found
            else:
                waiting += own.all_input_nodes

    def _leaves(self, node: Node) -> tuple[list[Node], int]:
        """The values that the stage has to take so that it can compute a node, and the bytes that it writes then."""
        cut, leaves, written = self._cut, [], 0
        waiting, met = [node], {node}
        while waiting:
            own = waiting.pop()
            if own in self.inputs or own in self._recomputed:
                continue
            size = cut.size_of(own)
            if size is not None:
                if cut.equal_size(size, [*self.inputs, *leaves]) is None:
                    leaves.append(self._smallest(size))
                continue
            if own.op == "placeholder" or (own is not node and not cut.may_recompute(own)):
                if not cut.is_tensor(own):
                    raise PipelineError(
                        f"stage {self._stage} needs {described(own)}, which is no tensor and "
                        "depends on more than sizes"
                    )
                leaves.append(own)
                continue
            if own is node and not cut.may_recompute(own):
                raise PipelineError(
                    f"stage {self._stage} needs {described(own)}, which is no tensor and cannot "
                    "be computed again"
                )
            written += written_bytes(cut._values[own])
            more = [source for source in own.all_input_nodes if source not in met]
            met.update(more)
            waiting += more
        return list(dict.fromkeys(leaves)), written

    def _smallest(self, size: tuple[Node, int]) -> Node:
        """The smallest value before the stage that has a size."""
        cut = self._cut
        nodes = [
            own
            for own in cut._dependencies.nodes
            if own.op not in ("get_attr", "output")
            and cut.before(own, self._stage)
            and cut.is_tensor(own)
            and own not in cut._dependencies.written
        ]
        nodes.sort(key=cut.bytes)
        found = cut.equal_size(size, nodes)
        return found[0] if isinstance(found, tuple) else size[0]

    def graph(self) -> StageGraph:
        """The graph, complete."""
        graph, made = Graph(), dict[Node, Any]()
        for node in self.inputs:
            made[node] = graph.placeholder(node.name)
        names: dict[str, None] = {}
        #: Whether gradients were on before the region without them that the graph is in.
        mode: list[Node] = []

        def switch(enabled: bool) -> Node:
            """Switch gradients as the program did, but on again only if they were before."""
            if not enabled and not mode:
                mode.append(graph.call_function(gradients_off))
                return mode[0]
            return graph.call_function(
                torch._C._set_grad_enabled, (mode.pop() if enabled and mode else enabled,)
            )

        def get(node: Node) -> Any:
            """A node in the new graph, or a size that is a constant."""
            if node in made:
                return made[node]
            if node.op == "get_attr":
                names.setdefault(str(node.target))
                made[node] = graph.node_copy(node, get)
            elif node.target is torch._C._set_grad_enabled:
                made[node] = switch(node.args[0])
            elif isinstance(size := self._sizes.get(node), tuple):
                made[node] = graph.call_method("size", (get(size[0]), size[1]))
            elif size is not None:
                made[node] = size
            else:
                for own in node.all_input_nodes:
                    get(own)
                made[node] = graph.node_copy(node, get)
            return made[node]

        order = self._cut._dependencies.place
        # At the begin, where no mode is switched.
        for node in sorted(self._recomputed, key=order.__getitem__):
            get(node)
        for node in self._own:
            get(node)
        results = [get(own) for own in self._outputs]
        graph.output(tuple(graph.call_function(sent, (own,)) for own in results))
        sizes: dict[SizePlace, SizePlace | int] = {}
        for node, own in self._sizes.items():
            tensor, dim = self._cut.size_of(node)  # type: ignore[misc]
            sizes[tensor.name, dim] = own if isinstance(own, int) else (own[0].name, own[1])
        return StageGraph(
            graph,
            tuple(own.name for own in self.inputs),
            tuple(own.name for own in self._outputs),
            tuple(names),
            sizes,
            tuple(own.name for own in self._recomputed),
        )


__all__ = ["SizePlace", "StageGraph", "sent", "stage_graphs"]
