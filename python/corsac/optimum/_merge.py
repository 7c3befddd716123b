"""One linear layer in the place of several."""

from __future__ import annotations

import operator
import warnings
from dataclasses import dataclass

import torch
from torch import nn

from corsac import _core
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node
from corsac.optimum._linear_layers import (
    called_linears,
    free_path,
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


@dataclass(frozen=True, slots=True)
class _Merged:
    """A layer that was merged.

    Attributes:
        node: the name of its call, which takes its columns now.
        path: where it was.
        shell: the layer with weights that share nothing with those it had.
        trained_bias: whether its bias is trained; None if it has none.
        order: of the submodules of the module that had it.
    """

    node: str
    path: str
    shell: nn.Linear
    trained_bias: bool | None
    order: list[str]


class MergeLinears(ReversibleTransformation):
    """Merges linear layers that are called with one value, such as the projections of attention,
    into one.

    Their results are views of one tensor afterwards, side by side in its last dimension: forms that
    join that dimension with others, as ``view(-1)``, fail. Layers that are called twice, read
    elsewhere, hooked, trained differently or whose weights are also others' stay.

    Undoing takes the weights out of the merged layer, with what training made of them.
    """

    preserves_computation = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        before = len(graph_module.graph.nodes)
        linears = called_linears(graph_module)
        kinds: dict[object, int] = {}
        kind_of = {
            path: kinds.setdefault(_kind(linear), len(kinds)) for path, linear in linears.items()
        }
        groups, sites = _core.find_linears(
            graph_module.graph,
            unfit(graph_module, linears),
            kind_of,
            budget=current_budget(None),
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
        merged_path = free_path(graph_module, f"{parent}.{name}" if parent else name)
        records = [
            _Merged(
                node.name,
                path,
                _shell(linear),
                None if linear.bias is None else linear.bias.requires_grad,
                list(split_path(graph_module, path)[0]._modules),
            )
            for node, path, linear in group
        ]
        owner, own_name = split_path(graph_module, merged_path)
        owner.add_module(own_name, merged)
        for _, path, _ in group:
            owner, own_name = split_path(graph_module, path)
            del owner._modules[own_name]
        node = _core.merge_linears(
            graph_module.graph,
            [node for node, _, _ in group],
            [linear.out_features for linear in linears],
            merged_path,
            operator.getitem,
        )
        remember(node, self, records)

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        # The last one first: the order of submodules is restored step by step.
        for node in reversed(self.get_transformed_nodes(graph_module)):
            self._unmerge(graph_module, node, recall(node, self))
        return graph_module

    @staticmethod
    def _unmerge(graph_module: GraphModule, merged_node: Node, records: list[_Merged]) -> None:
        merged = graph_module.get_submodule(merged_node.target)
        by_name = {user.name: user for user in merged_node.users}
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
                # None before, unless training made something of it.
                bias, trained = (bias, merged.bias.requires_grad) if bias.any() else (None, False)
            if bias is not None:
                bias = nn.Parameter(bias, trained)
            owner, own_name = split_path(graph_module, record.path)
            layer = replaced(record.shell, weight, bias)
            layer.training = merged.training
            owner._modules[own_name] = layer
            start = stop
            call = by_name.get(record.node)
            if call is not None:
                call.op, call.target = "call_module", record.path
                call.args = merged_node.args
        for record in records:
            reorder(split_path(graph_module, record.path)[0]._modules, record.order)
        graph_module.graph.erase_node(merged_node)


def _kind(linear: nn.Linear) -> tuple[object, ...]:
    """What layers that are merged have in common."""
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
    """The layer without its weights, but for their number."""
    weight = torch.empty(linear.weight.shape, dtype=linear.weight.dtype, device="meta")
    return replaced(linear, weight, None)
