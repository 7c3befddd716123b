"""Captures models as graphs: for all sizes or, where their control flow depends on sizes, for given inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from corsac import fx
from corsac._capture.capture import graph_of
from corsac.cli.failure import Failure, first_line
from corsac.fx._own_copy import own_copy


def graph_module(
    model: torch.nn.Module, inputs: Callable[[], tuple[Any, ...]] | None, *, one_way: bool = False
) -> fx.GraphModule:
    """The graph of a model: for all inputs or, where that is impossible, for ``inputs`` if there are any.
    With ``one_way`` also of models whose control flow depends on values or that change state, with notes on
    stderr."""
    if isinstance(model, fx.GraphModule):
        return own_copy(model)
    try:
        if inputs is None:
            return fx.symbolic_trace(model)
        module = graph_of(model, inputs, strict=not one_way)
    except Failure:
        raise
    except Exception as error:
        reason = first_line(error, 1500)
        if inputs is not None:
            raise Failure(f"the model cannot be captured: {reason}") from error
        raise Failure(
            "the model cannot be captured for all inputs; with --input it is captured for inputs such as "
            f"those: {reason}"
        ) from error
    for own in module.meta.get("decisions", []):
        _note(f"a value decides, and the graph is of the way that this input takes: {own}")
    for own in module.meta.get("effects", []):
        _note(f"the model changes state, which the graph does not: {own}")
    return module


def _note(text: str) -> None:
    print(f"corsac: note: {text}", file=sys.stderr)
