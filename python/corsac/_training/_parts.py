"""Which calls of a graph of ATen operators go into which native part."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from corsac import _core
from corsac._training._expansions import can_expand
from corsac.analysis import TensorSpec
from corsac.fx import Graph, GraphModule, Node

aten = torch.ops.aten

#: What native code works on.
DTYPES = (torch.float32, torch.int64, torch.bool)
#: Calls that show their first argument in another way.
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
#: Calls that take truth values beside float32.
MASKED = frozenset([aten.native_dropout_backward.default])
#: Of an output node: how many of its values whoever called gets.
_RESULTS = "results"
#: What the order of programs is kept for.
_BARRIER = "it has an effect besides its result"


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """The type of a tensor, as the rules take it."""
    return TensorSpec(tuple(tensor.shape), tensor.dtype)


def value_of(node: Node) -> Any:
    """What AOTAutograd found ``node`` to give: a fake tensor, or something that holds some."""
    return node.meta.get("val")


def has_symbols(graph: Any) -> bool:
    """Whether numbers that differ from call to call are among the inputs of ``graph``."""
    inputs = graph.find_nodes(op="placeholder")
    return any(isinstance(value_of(node), torch.SymInt) for node in inputs)


def mark_results(graph: torch.fx.Graph, count: int) -> None:
    """Say that the first ``count`` of what ``graph`` returns goes to whoever called; what is behind is saved for the
    way back, and nobody sees it."""
    graph.output_node().meta[_RESULTS] = count


def why_not_split(graph: Graph) -> str | None:
    """Why no part of ``graph`` can be native: None if some may."""
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
    """Calls whose results have to lie in the memory that PyTorch would put them in, and why."""
    found: dict[Node, str] = {}
    for node in graph.nodes:
        if "as_strided" not in str(node.target):
            continue
        found[node] = "it reads elements by their place in memory"
        # Views lie where the tensor does that they are of.
        shown = node.args[0]
        while shown.op == "call_function":
            found.setdefault(shown, f"{node.name} reads its elements by their place in memory")
            if not _shows(shown):
                break
            shown = shown.args[0]
    return found


def _returned_views(graph: Graph) -> dict[Node, str]:
    """Views that whoever called gets: they share memory with what they are of, and lie as PyTorch has it.

    AOTAutograd makes most such views itself, but for those of operators that give several.
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
    """Whether what ``node`` gives may lie where its first argument does."""
    if node.target is operator.getitem or node.target in VIEWS:
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(own.alias_info is not None for own in schema.returns)


def _has_effect(node: Node) -> bool:
    """Whether nothing may be moved from before ``node`` to behind it, or back."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    return _writes(node) or _draws(node)


def _draws(node: Node) -> bool:
    """Whether ``node`` draws random numbers."""
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    arguments = node.target._schema.arguments
    place = next((at for at, own in enumerate(arguments) if own.name == "dropout_p"), None)
    if place is None:
        return True
    # Attention without dropout draws none.
    given = node.kwargs.get("dropout_p", arguments[place].default_value)
    return (node.args[place] if place < len(node.args) else given) != 0.0


class Parts:
    """The largest parts of ``module``'s graph that the engine knows.

    The graph is changed: views that are read in several places are computed in each of them.

    Attributes:
        parts: the nodes of each.
        reasons: why the other calls are left to PyTorch.
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
        """Why calls cannot be native."""
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
        """The largest parts between one call with an effect and the next: their numbers, by node."""
        nodes = list(self.graph.nodes)
        may = [node.op == "call_function" and node not in self.reasons for node in nodes]
        # Each call with an effect begins a section.
        sections = list(itertools.accumulate(map(_has_effect, nodes)))
        found = _core.propose_parts(self.graph, may, sections, items=False, writes=False)
        part_of = {node: number for number, (_, part, _) in enumerate(found) for node in part}
        for node in nodes:
            # Parts give tensors: items are in the part of what they are taken out of.
            if node.target is operator.getitem and node not in self.reasons:
                part_of[node] = part_of[node.args[0]]
        return part_of

    def _drop_idle(self) -> None:
        """Leave parts that compute nothing to PyTorch."""
        busy = {n for node, n in self._part_of.items() if node.target not in VIEWS}
        for node in [node for node, number in self._part_of.items() if number not in busy]:
            del self._part_of[node]
            self.reasons[node] = "nothing is computed around it"

    def _release(self, view: Node) -> None:
        """Let a view that others than its part read be made outside, where it costs nothing."""
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
        """Let parts that read a view make it themselves, so that they read what lies in rows."""
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
    """What the rules take for an input. What was saved lies as it was made, and views of it rely on that."""
    if not isinstance(value, torch.Tensor):
        return value
    return spec_of(value) if value.is_contiguous() else _unfilled(value)


def _host_types(node: Node, known: Any) -> tuple[Any]:
    """What a call without a rule gives."""
    del known
    return (tree_map_only(torch.Tensor, _unfilled, value_of(node)),)


def _unfilled(tensor: torch.Tensor) -> torch.Tensor:
    # Its elements are never touched, so that it takes no memory.
    return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype)


def _tensors(node: Node) -> list[torch.Tensor]:
    """What ``node`` reads and gives."""
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
