"""Turns models into graphs to be analysed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.fx

from corsac._capture.capture import graph_of
from corsac._capture.exported_program import converted
from corsac._models.example_inputs import CONSTANTS
from corsac._models.placed_inputs import is_flat, placed
from corsac.fx import Graph, GraphModule
from corsac.fx._symbolic_trace import symbolic_trace
from corsac.fx.proxy import TraceError


def captured(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> tuple[Any, tuple[Any, ...]]:
    """The graph of a model, and the values of its placeholders: traced for all sizes or, where its control flow depends
    on values, captured for ``args`` and ``kwargs`` as by :func:`corsac.capture`. Programs of :func:`torch.export.export`
    and graph modules of torch.fx are converted; graphs of corsac are returned unchanged.

    Raises:
        TraceError: the model cannot be traced, and there are no tensors to capture it for.
        TypeError: there is no input for a keyword argument.
    """
    kwargs = kwargs or MappingProxyType({})
    if isinstance(target, torch.export.ExportedProgram | torch.fx.GraphModule):
        target = converted(target)
    if isinstance(target, torch.nn.Module) and not isinstance(target, GraphModule):
        target = _graph_of(target, args, kwargs)
    graph = target.graph if isinstance(target, GraphModule) else target
    if isinstance(graph, Graph) and (kwargs or is_flat(graph)):
        args = placed(graph, args, kwargs)
    return target, args


def _graph_of(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> GraphModule:
    given = [*args, *kwargs.values()]
    if given and all(isinstance(own, CONSTANTS) or _has_elements(own) for own in given):
        return graph_of(model, lambda: args, kwargs)
    try:
        return symbolic_trace(model)
    except Exception as error:
        raise TraceError(
            f"{type(model).__name__} cannot be traced for all inputs; give the tensors that it is called with, "
            f"for which it is captured, or a graph of it: {error}"
        ) from error


def _has_elements(own: Any) -> bool:
    return type(own) is torch.Tensor and own.device.type != "meta"
