"""Partition of a graph of ATen operators into native parts."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from corsac import _core
from corsac._training._expansions import can_expand
from corsac.analysis import TensorSpec
from corsac.fx import Graph, GraphModule, Node

#: Dtypes of native code.
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool)
_NOT_PLAIN = "its tensors are not of float32, bfloat16, float16, int64, int32 or bool on the CPU"
#: Convolutions are parts by themselves: which way is faster depends on their sizes, and what is around them is not to
#: be decided by that.
_ALONE = "it is a part by itself"
#: Size of a tensor, in bytes, that is worth freeing as early as possible.
_LARGE = 1 << 20
#: Metadata of an output node: number of its leading values that the caller gets.
_RESULTS = "results"


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """The type of a tensor, for shape inference."""
    return TensorSpec(tuple(tensor.shape), tensor.dtype)


def value_of(node: Node) -> Any:
    """The value of ``node`` as found by AOTAutograd: a fake tensor, or a structure of them."""
    return node.meta.get("val")


def has_symbols(graph: Any) -> bool:
    """Whether ``graph`` has symbolic integers among its inputs."""
    inputs = graph.find_nodes(op="placeholder")
    return any(isinstance(value_of(node), torch.SymInt) for node in inputs)


def is_view(node: Node | torch.fx.Node) -> bool:
    """Whether ``node`` only returns a view of its first argument."""
    return _core.is_view(f"torch.ops.{node.target}")


def mark_results(graph: torch.fx.Graph, count: int) -> None:
    """Mark the first ``count`` outputs of ``graph`` as results for the caller; the others are tensors saved for
    backward, and not visible."""
    graph.output_node().meta[_RESULTS] = count


def why_not_split(graph: Graph) -> str | None:
    """Reason why no part of ``graph`` can be native; None if some may be."""
    if has_symbols(graph):
        return "its sizes are symbols"
    return _core.why_not_split(graph)


class Parts:
    """The largest parts of ``module``'s graph that the engine supports.

    The graph is changed: views that are read in several places are computed in each of them.

    Attributes:
        parts: the nodes of each part.
        reasons: why other calls are left to PyTorch, by node.
    """

    def __init__(self, module: GraphModule) -> None:
        self.graph = module.graph
        results = self.graph.output_node().meta.get(_RESULTS)
        self._refusals = self._refused_by_engine()
        refusals = dict(self._refusals)
        for node in self.graph.nodes:
            if node.target is torch.ops.aten.convolution.default:
                refusals.setdefault(node, _ALONE)
        grown, reasons = _core.training_parts(
            self.graph, list(map(refusals.get, self.graph.nodes)), results
        )
        named = dict(zip(self.graph.nodes, reasons, strict=True))
        grown += [[node] for node, reason in named.items() if reason == _ALONE]
        self.reasons = {
            node: reason for node, reason in named.items() if reason not in (None, _ALONE)
        }
        self._part_of = {node: number for number, part in enumerate(grown) for node in part}
        for node in reversed(list(self.graph.nodes)):
            self._release(node)
        for node in reversed(list(self.graph.nodes)):
            self._absorb(node)
        by_number: dict[int, list[Node]] = {}
        for node in self.graph.nodes:
            if node in self._part_of:
                by_number.setdefault(self._part_of[node], []).append(node)
        self.parts = [own for part in by_number.values() for own in _independent(part)]

    def _refused_by_engine(self) -> dict[Node, str]:
        """The calls that the engine does not support, with the reason."""
        placeholders = self.graph.find_nodes(op="placeholder")
        specs = tuple(_example_of(value_of(node)) for node in placeholders)
        found: dict[Node, str] = _core.explain_compilation(self.graph, specs, _host_types)
        for node in self.graph.nodes:
            if node.op != "call_function":
                continue
            if can_expand(node) and _is_real(node):
                found.pop(node, None)
            elif not _is_plain(node):
                found.setdefault(node, _NOT_PLAIN)
        return found

    def _release(self, view: Node) -> None:
        """Move a view that is also read outside its part out of the part, where it costs nothing."""
        number = self._part_of.get(view)
        if number is None or not is_view(view):
            return
        others = [user for user in view.users if self._part_of.get(user) != number]
        base = view.args[0]
        inside = self._part_of.get(base) == number
        if not others or (inside and value_of(base).numel() > value_of(view).numel()):
            return
        copy = self._copied(view)
        for user in others:
            user.replace_input_with(view, copy)
        if not view.users:
            del self._part_of[view]
            self.graph.erase_node(view)

    def _absorb(self, view: Node) -> None:
        """Copy a view into the parts that read it, so that their inputs are contiguous."""
        if not is_view(view) or view in self._refusals:
            return
        base, own = view.args[0], self._part_of.get(view)
        if own is not None or (
            value_of(view).is_contiguous() and not value_of(base).is_contiguous()
        ):
            return
        readers: dict[int, list[Node]] = {}
        for user in view.users:
            if user in self._part_of:
                readers.setdefault(self._part_of[user], []).append(user)
        for number, users in readers.items():
            copy = self._copied(view)
            self._part_of[copy] = number
            for user in users:
                user.replace_input_with(view, copy)
        if not view.users:
            self.graph.erase_node(view)

    def _copied(self, node: Node) -> Node:
        with self.graph.inserting_after(node):
            return self.graph.node_copy(node)


def _independent(part: list[Node]) -> list[list[Node]]:
    """The pieces of a part that share no value: those of large tensors, which run once their inputs are there and then
    free them, and all others together."""
    piece = {node: [node] for node in part}
    for node in part:
        for source in node.all_input_nodes:
            if source in piece and piece[source] is not piece[node]:
                less, more = sorted((piece[source], piece[node]), key=len)
                more += less
                piece.update(dict.fromkeys(less, more))
    place = {node: at for at, node in enumerate(part)}
    found: list[list[Node]] = []
    together: list[Node] = []
    for own in {id(own): own for own in piece.values()}.values():
        if any(map(_is_large, own)):
            found.append(sorted(own, key=place.__getitem__))
        else:
            together += own
    return [*found, sorted(together, key=place.__getitem__)] if together else found


def _is_large(node: Node) -> bool:
    tensors = (own for own in tree_leaves(value_of(node)) if isinstance(own, torch.Tensor))
    return any(own.numel() * own.itemsize >= _LARGE for own in tensors)


def _example_of(value: Any) -> Any:
    """An input for shape inference; strides of non-contiguous ones are kept, since views of saved tensors need them."""
    if not isinstance(value, torch.Tensor):
        return value
    return spec_of(value) if value.is_contiguous() else _unfilled(value)


def _host_types(node: Node, known: Any) -> tuple[Any]:
    """Result types of a call without a shape rule."""
    del known
    return (tree_map_only(torch.Tensor, _unfilled, value_of(node)),)


def _unfilled(tensor: torch.Tensor) -> torch.Tensor:
    # Its elements are never touched, so it takes no physical memory.
    return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype)


def _tensors(node: Node) -> list[torch.Tensor]:
    """The tensors that ``node`` reads and returns."""
    values = [value_of(node), *(value_of(source) for source in node.all_input_nodes)]
    return [own for own in tree_leaves(values) if isinstance(own, torch.Tensor)]


def _is_plain(node: Node) -> bool:
    return all(
        own.dtype in DTYPES
        and own.device.type == "cpu"
        and own.layout is torch.strided
        and all(type(size) is int for size in own.shape)
        for own in _tensors(node)
    )


def _is_real(node: Node) -> bool:
    """Whether its values are floating-point numbers, or masks."""
    dtypes = (own.dtype for own in _tensors(node))
    return _is_plain(node) and all(own.is_floating_point or own is torch.bool for own in dtypes)
