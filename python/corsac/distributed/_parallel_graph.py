"""The graph that each rank runs: calls on parts of tensors, and collectives between them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from corsac import _core
from corsac.distributed import collectives
from corsac.distributed._node_plan import NodePlan, Placement
from corsac.distributed._parallel_plan import ParallelPlan
from corsac.fx import Graph, Node
from corsac.fx.node import map_arg


def parallel_graph(plan: ParallelPlan, group: str) -> Graph:
    """The graph of a rank of the process group with the given name. It is the same on all ranks."""
    return _Writer(plan, group).written()


def uses_random_numbers(graph: Graph) -> bool:
    """Whether the graph of a rank needs a seed, as :func:`collectives.draw_seed` gives it, for each call."""
    return any(node.target is collectives.begin_random for node in graph.nodes)


class _Writer:
    def __init__(self, plan: ParallelPlan, group: str) -> None:
        self.plan, self.group = plan, group
        self.graph = Graph()
        #: What each value lies as, and its node.
        self.made: dict[Node, tuple[list[Placement], Node]] = {}
        self.changed: dict[tuple[Node, str], Node] = {}
        self.gradients = _with_gradients(plan)
        self.attributes: dict[str, Node] = {}

    def written(self) -> Graph:
        graph = self.plan.program.graph
        effects = _core.graph_effects(graph)
        for node, ((_, _, draws, *_), is_barrier, *_) in zip(graph.nodes, effects, strict=True):
            if is_barrier:
                # What is made without gradients, or in autocast, is not for the calls outside.
                self.changed.clear()
            self._write(node, self.plan.nodes[node], draws and node.op.startswith("call_"))
        self.graph.lint()
        return self.graph

    def _write(self, node: Node, planned: NodePlan, draws: bool) -> None:
        if node.op == "get_attr":
            # One node for one weight, so that its gradient is summed once.
            name = str(node.target)
            if name not in self.attributes:
                self.attributes[name] = node
                self.made[node] = planned.output, self._copied(node, lambda own: own)
            self.made[node] = self.made[self.attributes[name]]
            return

        def own(value: Node) -> Node:
            wanted = planned.inputs.get(self._first(value))
            return self._as(value, wanted, planned.split)

        if planned.form == "lookup":
            made = self._lookup(node, own)
        elif planned.form == "classes":
            made = self._classes(node, own)
        elif planned.form == "sizes" and (read := self._size_of_whole(node)) is not None:
            made = read
        else:
            if draws:
                parts = any(isinstance(placed, tuple) for placed in planned.output)
                before = self.graph.call_function(collectives.begin_random, (self.group, parts))
            made = self._copied(node, own)
            if draws:
                self.graph.call_function(collectives.end_random, (before,))
            for place, path in planned.sizes:
                self._divide(made, place, path)
            if planned.form == "mean":
                made = self.graph.call_function(operator.truediv, (made, self.plan.ranks))
        _take_place(made, node)
        self.made[node] = planned.output, made
        if planned.replicated:
            whole = self._changed(node, planned.output[0], None)
            self.made[node] = [None], whole

    def _first(self, value: Node) -> Node:
        """The node that stands for a value: the first one of a weight."""
        return self.attributes[str(value.target)] if value.op == "get_attr" else value

    def _copied(self, node: Node, own: Callable[[Node], Node]) -> Node:
        made = self.graph.create_node(
            node.op,
            node.target,
            map_arg(node.args, own),
            map_arg(node.kwargs, own),
            node.name,
            node.type,
        )
        made.meta.update(node.meta)
        return made

    def _as(self, value: Node, wanted: Sequence[Placement] | None, split: bool) -> Node:
        """The node of a value as it is wanted."""
        value = self._first(value)
        placed, made = self.made[value]
        if wanted is None or not placed:
            return made
        if len(placed) > 1:
            return made
        (have,), want = placed, wanted[0]
        has_summands = self.plan.nodes[value].has_summands
        sums = split and want is None and value in self.gradients and not has_summands
        if sums and isinstance(have, tuple) and self.plan.sequence_parallel:
            return self._once(value, made, collectives.gather_for_parts, have[0], tuple(have[1]))
        if have != want:
            made = self._changed(value, have, want)
        return self._once(value, made, collectives.copy) if sums else made

    def _once(self, value: Node, made: Node, function: Callable[..., Any], *args: Any) -> Node:
        """A call of a collective, the same for all users of a value that nothing writes to."""
        key = made, f"{function.__name__} {args}"
        if key not in self.changed or value in self.plan.written:
            called = self.graph.call_function(function, (made, *args, self.group))
            _take_place(called, value)
            self.changed[key] = called
        return self.changed[key]

    def _changed(self, value: Node, have: Placement, want: Placement) -> Node:
        """A value in another placement."""
        _, made = self.made[value]
        if have == "sum" and isinstance(want, tuple) and self.plan.sequence_parallel:
            return self._once(value, made, collectives.reduce_scatter, want[0], tuple(want[1]))
        if isinstance(have, tuple):
            made = self._once(value, made, collectives.gather, have[0], tuple(have[1]))
        elif have == "sum":
            made = self._once(value, made, collectives.reduce)
        if isinstance(want, tuple):
            made = self._once(value, made, collectives.scatter, want[0], tuple(want[1]))
        elif want == "sum":
            made = self._once(value, made, collectives.first)
        return made

    def _divide(self, node: Node, place: int | str, path: Sequence[int]) -> None:
        """Make a size among the arguments that of a part."""
        args, kwargs = list(node.args), dict(node.kwargs)
        holder: Any = args if isinstance(place, int) else kwargs
        holder[place] = self._divided(node, holder[place], path)
        node.args, node.kwargs = tuple(args), kwargs

    def _divided(self, node: Node, own: Any, path: Sequence[int]) -> Any:
        if path:
            if isinstance(own, slice):
                parts = [own.start, own.stop, own.step]
                parts[path[0]] = self._divided(node, parts[path[0]], path[1:])
                return slice(*parts)
            items = list(own)
            items[path[0]] = self._divided(node, items[path[0]], path[1:])
            return type(own)(items) if isinstance(own, list) else tuple(items)
        ranks = self.plan.ranks
        if isinstance(own, Node):
            with self.graph.inserting_before(node):
                return self.graph.call_function(collectives.part_of, (own, ranks))
        if own is None or own == -1:
            return own
        return -(-own // ranks) if own < 0 else own // ranks

    def _size_of_whole(self, node: Node) -> Node | None:
        """A size that is read from a value of which this rank has a part; None if it is none."""
        if not node.args or not isinstance(node.args[0], Node):
            return None
        placed, made = self.made[node.args[0]]
        if len(placed) != 1 or not isinstance(placed[0], tuple):
            return None
        dim = placed[0][0]
        read = self._copied(node, lambda value: self.made[value][1])
        asked = (*node.args[1:2], *node.kwargs.values())
        return self.graph.call_function(whole_size, (read, made, dim, self.plan.ranks, *asked))

    def _arguments(self, node: Node) -> dict[str, Any]:
        """The arguments of a call by the names of the operator's parameters."""
        found = _core.named_arguments_of(node.op, node.target, node.args, node.kwargs)
        return {} if found is None else found

    def _pieces(self, node: Node, value: Node) -> tuple[int, ...]:
        """The pieces of the dimension of which a call uses a part."""
        (placed,) = self.plan.nodes[node].inputs[self._first(value)]
        assert isinstance(placed, tuple), "a sharded argument"
        return tuple(placed[1])

    def _lookup(self, node: Node, own: Callable[[Node], Node]) -> Node:
        given = self._arguments(node)
        pieces = self._pieces(node, given["weight"])
        padding = given.get("padding_idx")
        if padding is not None and padding < 0:
            # Only the function counts from the end; the operator has none then.
            counts = node.target is torch.nn.functional.embedding
            padding = padding + sum(pieces) if counts else None
        return self.graph.call_function(
            collectives.sharded_embedding,
            (own(given["input"]), own(given["weight"]), pieces, self.group, padding),
        )

    def _classes(self, node: Node, own: Callable[[Node], Node]) -> Node:
        given = self._arguments(node)
        return self.graph.call_function(
            collectives.sharded_cross_entropy,
            (
                own(given["input"]),
                own(given["target"]),
                self._pieces(node, given["input"]),
                self.group,
                given.get("ignore_index", -100),
                given.get("reduction", "mean"),
            ),
        )


def _take_place(made: Node, node: Node) -> None:
    """Give a node the source line of another one."""
    if node.source is not None:
        made.stack_trace = str(node.source)


def whole_size(read: Any, tensor: Any, dim: int, ranks: int, asked: int | None = None) -> Any:
    """A size, or all sizes, of a tensor of which this rank has a part: ``read`` is that of the part."""
    if isinstance(read, int):
        rank = tensor.dim()
        if asked is None:
            return read * ranks
        return read * ranks if asked % rank == dim else read
    sizes = list(read)
    sizes[dim] *= ranks
    return type(read)(sizes)


def _with_gradients(plan: ParallelPlan) -> set[Node]:
    """The values that a gradient may reach."""
    found: set[Node] = set()
    if not plan.training:
        return found
    for node in plan.program.graph.nodes:
        if node.op == "get_attr":
            weight = plan.program.weights.get(str(node.target))
            # Those that are frozen now may be trained later.
            if weight is not None and weight.dtype.is_floating_point:
                found.add(node)
        elif node.op == "placeholder":
            # A caller may want its gradient.
            found.add(node)
        elif any(own in found for own in node.all_input_nodes):
            found.add(node)
    return found


__all__ = ["parallel_graph", "uses_random_numbers", "whole_size"]
