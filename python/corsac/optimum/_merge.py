"""Merges several linear layers into one."""

from __future__ import annotations

import operator
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from corsac import _core
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node
from corsac.fx.passes.shape_prop import TensorMetadata
from corsac.optimum._linear_layers import (
    called_linears,
    parameter_like,
    reorder,
    replaced,
    split_path,
    unfit,
)
from corsac.optimum._transformation import (
    ReversibleTransformation,
    recall,
    remember,
    report_of,
)
from corsac.passes._budget import current_budget
from corsac.passes._derive import OF_VALUE, unique_attribute
from corsac.passes._effects import effects
from corsac.passes._weights import install


@dataclass(frozen=True, slots=True)
class _Merged:
    """Data to undo the merging of one layer.

    Attributes:
        node: the name of its call, which takes its columns of the merged result instead.
        path: its path.
        shell: the layer with meta tensors for weights.
        trained_bias: whether its bias is trained; None if it has none.
        order: the order of submodules of the module that contained it.
        views: the names of calls of ``view`` that became calls of ``reshape``.
        columns: the name of the node that takes its columns, where the call became a copy of them.
    """

    node: str
    path: str
    shell: nn.Linear
    trained_bias: bool | None
    order: list[str]
    views: list[str]
    columns: str | None


#: Equivalents of views that accept any strides.
_RESHAPE_OF: dict[Any, Any] = {
    "view": "reshape",
    torch.Tensor.view: torch.Tensor.reshape,
    torch.ops.aten.view.default: torch.ops.aten.reshape.default,
}
_VIEW_OF = {reshape: view for view, reshape in _RESHAPE_OF.items()}


class MergeLinears(ReversibleTransformation):
    """Merges linear layers with the same input, such as the projections of attention, into one.

    Their results become views of one tensor, side by side in its last dimension. ``view`` of them becomes
    ``reshape``, which copies where the last dimension is joined with others. A result is a contiguous copy of
    its columns instead wherever different strides could be observed: where the module returns it or a view of
    it, where its user reads strides or storage or is unknown, and where it is written to while its storage
    may be shared by a value that may be a view or a copy.

    Skipped: layers that are called twice, read elsewhere, hooked, trained differently or share weights with
    others.

    Undoing splits the weights of the merged layer, with their trained values.
    """

    preserves_computation = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        before = len(graph_module.graph.nodes)
        linears = called_linears(graph_module)
        kinds: dict[object, int] = {}
        kind_of = {
            path: kinds.setdefault(_kind(linear), len(kinds)) for path, linear in linears.items()
        }
        reasons = unfit(graph_module, linears)
        groups, sites = _core.find_linears(
            graph_module.graph, reasons, kind_of, budget=current_budget(None)
        )
        for group in groups:
            self._merge(graph_module, [(node, path, linears[path]) for node, path in group])
        self._report = report_of("merge linears", sites, graph_module, before)
        return graph_module

    def _merge(self, graph_module: GraphModule, group: list[tuple[Node, str, nn.Linear]]) -> None:
        linears = [linear for _, _, linear in group]
        with_bias = [linear.bias is not None for linear in linears]
        if any(with_bias) and not all(with_bias):
            warnings.warn(
                "Not all the linear layers that are merged contain a bias, but some do. By "
                "merging, this is equivalent to adding a bias to the layers missing one.",
                stacklevel=2,
            )
        merged = replaced(linears[0], *_merged_weights(linears))
        parent = group[0][1].rpartition(".")[0]
        name = "-".join([*(path.rpartition(".")[2] for _, path, _ in group), "merged"])
        merged_path = unique_attribute(graph_module, f"{parent}.{name}" if parent else name)
        copied = [_needs_copy(node) for node, _, _ in group]
        views = [
            [] if is_copied else [view.name for view in _reshaped(node)]
            for (node, _, _), is_copied in zip(group, copied, strict=True)
        ]
        orders = [list(split_path(graph_module, path)[0]._modules) for _, path, _ in group]
        owner, own_name = split_path(graph_module, merged_path)
        owner.add_module(own_name, merged)
        for _, path, _ in group:
            owner, own_name = split_path(graph_module, path)
            del owner._modules[own_name]
        members = [
            (call, linear.out_features, is_copied)
            for (call, _, linear), is_copied in zip(group, copied, strict=True)
        ]
        node = _core.merge_linears(graph_module.graph, members, merged_path, operator.getitem)
        records = []
        start = 0
        for at, (call, path, linear) in enumerate(group):
            stop = start + linear.out_features
            columns = call.args[0] if copied[at] else call
            _restride(columns, merged.out_features, start, stop)
            start = stop
            trained_bias = None if linear.bias is None else linear.bias.requires_grad
            name = columns.name if copied[at] else None
            records.append(
                _Merged(call.name, path, _shell(linear), trained_bias, orders[at], views[at], name)
            )
        remember(node, self, records)

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        # From the last one, so that the order of submodules is restored step by step.
        for node in reversed(self.get_transformed_nodes(graph_module)):
            self._unmerge(graph_module, node, recall(node, self))
        return graph_module

    @staticmethod
    def _unmerge(graph_module: GraphModule, merged_node: Node, records: list[_Merged]) -> None:
        merged = graph_module.get_submodule(merged_node.target)
        by_name = {node.name: node for node in graph_module.graph.nodes}
        owner, own_name = split_path(graph_module, merged_node.target)
        del owner._modules[own_name]
        start = 0
        for record in records:
            stop = start + record.shell.out_features
            with torch.no_grad():
                weight = merged.weight[start:stop].detach().clone()
                bias = None if merged.bias is None else merged.bias[start:stop].detach().clone()
            trained = record.trained_bias
            if trained is None and bias is not None:
                # There was no bias: none now, unless training changed it from zero.
                bias, trained = (bias, merged.bias.requires_grad) if bias.any() else (None, False)
            if bias is not None:
                bias = nn.Parameter(bias, trained)
            layer = replaced(record.shell, weight, bias)
            layer.training = merged.training
            install(graph_module, record.path, layer)
            start = stop
            call = by_name.get(record.node)
            columns = by_name.get(record.columns) if record.columns else call
            if columns in merged_node.users and call in (columns, *columns.users):
                call.op, call.target = "call_module", record.path
                call.args = merged_node.args
                _restride(call, record.shell.out_features, 0, record.shell.out_features)
                if columns is not call and not columns.users:
                    graph_module.graph.erase_node(columns)
            for view in (by_name.get(name) for name in record.views):
                if view is not None and view.target in _VIEW_OF:
                    view.target = _VIEW_OF[view.target]
                    if "shape" in view.kwargs:
                        view.kwargs = {"size": view.kwargs["shape"]}
        for record in records:
            reorder(split_path(graph_module, record.path)[0]._modules, record.order)
        graph_module.graph.erase_node(merged_node)


def _sharing(node: Node) -> list[Node]:
    """``node``, then all nodes whose values may share storage with its value."""
    found, seen = [node], {node}
    for member in found:
        for user in member.users:
            if user not in seen and not seen.isdisjoint(effects(user).aliases):
                seen.add(user)
                found.append(user)
    return found


def _needs_copy(node: Node) -> bool:
    """Whether different strides of the value of ``node`` could be observed."""
    sharing = _sharing(node)
    is_written = False
    for user in dict.fromkeys(user for member in sharing for user in member.users):
        known = effects(user)
        if user.op == "output" or known.opaque or _reads_strides(user):
            return True
        if _is_view(user) and _reads_bytes(user):
            return True
        is_written = is_written or any(member in sharing for member in known.mutates)
    if not is_written:
        return False
    # Writes reach a view and not a copy; these return one or the other, depending on strides.
    all_effects = zip(node.graph.nodes, _core.graph_effects(node.graph), strict=True)
    by_layout = {own for own, (_, _, decides, _) in all_effects if decides}
    return any(
        (member in by_layout or _is_view(member)) and not effects(member).mutates
        for member in sharing[1:]
    )


def _reads_strides(node: Node) -> bool:
    """Whether the result of a call, or of the method that is read, depends on strides or storage."""
    op, target = node.op, node.target
    if target is getattr:
        op, target = "call_method", str(node.args[1])
    elif op == "call_module":
        return False
    return not {"strides", "places"}.isdisjoint(_core.operator_classes(op, target))


def _is_view(node: Node) -> bool:
    """Whether the node calls ``view``."""
    return node.op in ("call_function", "call_method") and node.target in _RESHAPE_OF


def _reads_bytes(view: Node) -> bool:
    """Whether a ``view`` has a dtype argument, which reinterprets the bytes."""
    return any(isinstance(a, torch.dtype) for a in _given(view))


def _reshaped(node: Node) -> list[Node]:
    """Replace calls of ``view`` by ``reshape`` for values that share storage with the value of ``node``;
    return them."""
    views = [member for member in _sharing(node)[1:] if _is_view(member)]
    for view in views:
        view.target = _RESHAPE_OF[view.target]
        if "size" in view.kwargs:
            view.kwargs = {"shape": view.kwargs["size"]}
    return views


def _given(node: Node) -> tuple[Any, ...]:
    return (*node.args, *node.kwargs.values())


def _restride(node: Node, width: int, start: int, stop: int) -> None:
    """Update the metadata of ``node`` for the columns from ``start`` to ``stop`` of a contiguous tensor with
    ``width`` columns."""
    for key in OF_VALUE:
        known = node.meta.get(key)
        shape = getattr(known, "shape", None)
        if not shape or shape[-1] != stop - start:
            continue
        if isinstance(known, torch.Tensor):
            columns = known.new_empty((*shape[:-1], width))[..., start:stop]
            with torch.no_grad():
                columns.copy_(known)
            node.meta[key] = columns.requires_grad_(known.requires_grad)
        elif isinstance(known, TensorMetadata):
            strides = [1]
            for size in (width, *reversed(shape[1:-1])):
                strides.insert(0, strides[0] * size)
            whole = width == stop - start
            node.meta[key] = known._replace(
                stride=tuple(strides[-len(shape) :]),
                memory_format=torch.contiguous_format if whole else None,
            )


def _kind(linear: nn.Linear) -> tuple[object, ...]:
    """Properties that layers to be merged must share."""
    weight = linear.weight
    return (
        linear.in_features,
        weight.dtype,
        weight.device,
        weight.requires_grad,
        linear.training,
        linear.bias is not None and linear.bias.requires_grad != weight.requires_grad,
    )


def _merged_weights(linears: list[nn.Linear]) -> tuple[torch.Tensor, nn.Parameter | None]:
    with torch.no_grad():
        weight = torch.cat([linear.weight for linear in linears])
        biases = [linear.bias for linear in linears if linear.bias is not None]
        if not biases:
            return weight, None
        parts = [
            linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias
            for linear in linears
        ]
        return weight, parameter_like(biases[0], torch.cat(parts))


def _shell(linear: nn.Linear) -> nn.Linear:
    """The layer with meta tensors for weights."""
    weight = torch.empty(linear.weight.shape, dtype=linear.weight.dtype, device="meta")
    return replaced(linear, weight, None)
