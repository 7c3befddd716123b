"""Turns models into graphs to be analysed."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from corsac._capture import graph_of
from corsac.fx import GraphModule
from corsac.fx._symbolic_trace import symbolic_trace
from corsac.fx.proxy import TraceError


def captured(target: Any, inputs: tuple[Any, ...]) -> Any:
    """The graph of a model: traced for all sizes or, where its control flow depends on values, captured for
    ``inputs`` as by :func:`corsac.capture`. Graphs are returned unchanged.

    Raises:
        TraceError: the model cannot be traced, and there are no tensors to capture it for.
    """
    is_model = isinstance(target, torch.nn.Module)
    if not is_model or isinstance(target, GraphModule | torch.fx.GraphModule):
        return target
    if inputs and all(type(own) is torch.Tensor and own.device.type != "meta" for own in inputs):
        return graph_of(target, lambda: inputs)
    try:
        return symbolic_trace(target)
    except Exception as error:
        raise TraceError(
            f"{type(target).__name__} cannot be traced for all inputs; give the tensors that it is called with, "
            f"for which it is captured, or a graph of it: {error}"
        ) from error
