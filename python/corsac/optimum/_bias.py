"""Turns biases into columns of weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from corsac import _core
from corsac.fx.graph_module import GraphModule
from corsac.optimum._linear_layers import (
    called_linears,
    replaced,
    unfit,
)
from corsac.optimum._transformation import (
    ReversibleTransformation,
    recall,
    remember,
    report_of,
)
from corsac.passes._budget import current_budget
from corsac.passes._weights import install


@dataclass(frozen=True, slots=True)
class _Fused:
    """Data to undo the fusion of one layer: its path, and whether its bias was trained and its shape."""

    path: str
    trained_bias: bool
    bias_shape: tuple[int, ...]


class FuseBiasInLinear(ReversibleTransformation):
    """Makes the bias of linear layers the last column of their weights, and appends a column of ones to their
    inputs.

    Skipped: layers that are called twice, read elsewhere, hooked or share weights with others, and those
    where only one of weight and bias is trained.

    Undoing splits the bias from the weights, with their trained values.
    """

    preserves_computation = True

    def transform(self, graph_module: GraphModule) -> GraphModule:
        before = len(graph_module.graph.nodes)
        linears = called_linears(graph_module)
        reasons = unfit(graph_module, linears)
        for path, linear in linears.items():
            if linear.bias is None:
                reasons[path] = f"{path} has no bias"
            elif linear.bias.requires_grad != linear.weight.requires_grad:
                reasons[path] = f"of weight and bias of {path}, one is trained"
            elif linear.bias.dtype != linear.weight.dtype:
                reasons[path] = f"weight and bias of {path} have different dtypes"
        calls, sites = _core.find_linears(graph_module.graph, reasons, budget=current_budget(None))
        for ((node, path),) in calls:
            linear = linears[path]
            with torch.no_grad():
                weight = torch.cat([linear.weight, linear.bias[:, None]], dim=1)
            install(graph_module, path, replaced(linear, weight, None))
            _core.pad_input_of_linear(graph_module.graph, node, F.pad)
            record = _Fused(path, linear.bias.requires_grad, tuple(linear.bias.shape))
            remember(node, self, record)
        self._report = report_of("fuse bias in linear", sites, graph_module, before)
        return graph_module

    def reverse(self, graph_module: GraphModule) -> GraphModule:
        for node in self.get_transformed_nodes(graph_module):
            record = recall(node, self)
            fused = graph_module.get_submodule(record.path)
            with torch.no_grad():
                weight = fused.weight[:, :-1].detach().clone(memory_format=torch.contiguous_format)
                bias = fused.weight[:, -1].detach().clone(memory_format=torch.contiguous_format)
            bias = nn.Parameter(bias, record.trained_bias)
            install(graph_module, record.path, replaced(fused, weight, bias))
            pad = node.args[0]
            node.args = pad.args[:1]
            graph_module.graph.erase_node(pad)
        return graph_module
