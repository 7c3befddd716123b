"""Partition of a graph of ATen operators into native parts."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from corsac import _core
from corsac._training._expansions import can_expand
from corsac.analysis import TensorSpec
from corsac.fx import Graph, GraphModule, Node

aten = torch.ops.aten

#: Dtypes of native code.
DTYPES = (torch.float32, torch.int64, torch.bool)
#: Operators that return a view of their first argument.
VIEWS = frozenset(
    [
        aten.t.default,
        aten.transpose.int,
        aten.permute.default,
        aten.view.default,
        aten._unsafe_view.default,
        aten.unsqueeze.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.expand.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.detach.default,
        aten.alias.default,
    ]
)
#: Operators with bool operands beside float32.
MASKED = frozenset([aten.native_dropout_backward.default])
#: Metadata of an output node: number of its leading values that the caller gets.
_RESULTS = "results"
#: Reason for calls whose order must be kept.
_BARRIER = "it has an effect besides its result"


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


def mark_results(graph: torch.fx.Graph, count: int) -> None:
    """Mark the first ``count`` outputs of ``graph`` as results for the caller; the others are tensors saved for
    backward, and not visible."""
    graph.output_node().meta[_RESULTS] = count


def why_not_split(graph: Graph) -> str | None:
    """Reason why no part of ``graph`` can be native; None if some may be."""
    if has_symbols(graph):
        return "its sizes are symbols"
    for node in graph.nodes:
        if _writes(node) and not _writes_to_input(node):
            return f"{node.name} writes to what the graph made"
    return None


def _writes(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _writes_to_input(node: Node) -> bool:
    to = node.args[0] if node.args else None
    return node.target is aten.copy_.default and isinstance(to, Node) and to.op == "placeholder"


def _read_by_place(graph: Graph) -> dict[Node, str]:
    """Calls whose results need the memory layout that PyTorch would give them, with the reason."""
    found: dict[Node, str] = {}
    for node in graph.nodes:
        if "as_strided" not in str(node.target):
            continue
        found[node] = "it reads elements by their place in memory"
        # Views share the memory of their base.
        shown = node.args[0]
        while shown.op == "call_function":
            found.setdefault(shown, f"{node.name} reads its elements by their place in memory")
            if not _shows(shown):
                break
            shown = shown.args[0]
    return found


def _returned_views(graph: Graph) -> dict[Node, str]:
    """Views among the results for the caller: they must share memory with their base, with PyTorch's strides.

    AOTAutograd makes most such views itself, except those of operators with several results.
    """
    found: dict[Node, str] = {}
    output = graph.output_node()
    values = output.args[0]
    returned = values if isinstance(values, tuple | list) else [values]
    for shown in returned[: output.meta.get(_RESULTS)]:
        while isinstance(shown, Node) and shown.op == "call_function" and _shows(shown):
            source = shown.args[0]
            if shown.target is operator.getitem and not _shows(source):
                break
            found[shown] = "whoever called gets it, and it is a view"
            shown = source
    return found


def _shows(node: Node) -> bool:
    """Whether the result of ``node`` may share memory with its first argument."""
    if node.target is operator.getitem or node.target in VIEWS:
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(own.alias_info is not None for own in schema.returns)


def _has_effect(node: Node) -> bool:
    """Whether no call may be moved across ``node``."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    return _writes(node) or _uses_random_numbers(node)


def _uses_random_numbers(node: Node) -> bool:
    """Whether ``node`` uses random numbers."""
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    arguments = node.target._schema.arguments
    place = next((at for at, own in enumerate(arguments) if own.name == "dropout_p"), None)
    if place is None:
        return True
    # Attention without dropout uses none.
    given = node.kwargs.get("dropout_p", arguments[place].default_value)
    return (node.args[place] if place < len(node.args) else given) != 0.0


class Parts:
    """The largest parts of ``module``'s graph that the engine supports.

    The graph is changed: views that are read in several places are computed in each of them.

    Attributes:
        parts: the nodes of each part.
        reasons: why other calls are left to PyTorch, by node.
    """

    def __init__(self, module: GraphModule) -> None:
        self.module, self.graph = module, module.graph
        self.reasons = self._reasons()
        self._part_of = self._grown()
        self._drop_idle()
        for node in reversed(list(self.graph.nodes)):
            self._release(node)
        for node in reversed(list(self.graph.nodes)):
            self._absorb(node)
        self._drop_idle()
        by_number: dict[int, list[Node]] = {}
        for node in self.graph.nodes:
            if node in self._part_of:
                by_number.setdefault(self._part_of[node], []).append(node)
        self.parts = list(by_number.values())

    def _reasons(self) -> dict[Node, str]:
        """The calls that cannot be native, with the reason."""
        placeholders = self.graph.find_nodes(op="placeholder")
        specs = tuple(_example_of(value_of(node)) for node in placeholders)
        found: dict[Node, str] = dict(_core.explain_compilation(self.graph, specs, _host_types))
        by_place = _read_by_place(self.graph) | _returned_views(self.graph)
        reasons: dict[Node, str] = {}
        for node in self.graph.nodes:
            if node.op != "call_function":
                continue
            if node in by_place:
                reasons[node] = by_place[node]
                continue
            if node.target is operator.getitem:
                source = node.args[0]
                reason = reasons.get(source, None if source.op == "call_function" else "")
                if reason is not None:
                    reasons[node] = f"{source.name} is run by PyTorch"
                continue
            reason = found.get(node)
            if can_expand(node) and _floats_only(node):
                reason = None
            elif reason is None and not _is_plain(node):
                reason = "its tensors are not of float32, int64 or bool on the CPU"
            if _has_effect(node):
                reason = _BARRIER
            if reason is not None:
                reasons[node] = reason
        return reasons

    def _grown(self) -> dict[Node, int]:
        """The number of each node's part: the largest parts between one call with an effect and the next."""
        nodes = list(self.graph.nodes)
        parts = _core.grow_parts(
            self.graph,
            [node.op == "call_function" and node not in self.reasons for node in nodes],
            list(map(_has_effect, nodes)),
            # Outputs of parts are tensors: items are in the part of their container.
            [node.target is operator.getitem and node not in self.reasons for node in nodes],
        )
        return {node: number for number, part in enumerate(parts) for node in part}

    def _drop_idle(self) -> None:
        """Leave parts that compute nothing to PyTorch."""
        busy = {n for node, n in self._part_of.items() if node.target not in VIEWS}
        for node in [node for node, number in self._part_of.items() if number not in busy]:
            del self._part_of[node]
            self.reasons[node] = "nothing is computed around it"

    def _release(self, view: Node) -> None:
        """Move a view that is also read outside its part out of the part, where it costs nothing."""
        number = self._part_of.get(view)
        if number is None or view.target not in VIEWS:
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
        if view.target not in VIEWS or not _is_plain(view):
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


def _floats_only(node: Node) -> bool:
    known = {torch.float32, torch.bool if node.target in MASKED else torch.float32}
    return _is_plain(node) and all(own.dtype in known for own in _tensors(node))
