"""Models as graphs: for all sizes, or where they decide by sizes, for given inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import corsac
from corsac import fx
from corsac.cli.failure import Failure, first_line


def graph_module(
    model: torch.nn.Module, inputs: Callable[[], tuple[Any, ...]] | None
) -> fx.GraphModule:
    """The model as a graph, whatever its inputs are, or else what it does with ``inputs``, if there are any."""
    try:
        return fx.symbolic_trace(model)
    except Exception as error:
        if inputs is None:
            raise Failure(
                f"the model cannot be captured for all inputs: {first_line(error, 1500)}; with --input it is "
                "captured for inputs such as those"
            ) from error
    try:
        return corsac.capture(model, inputs())
    except Exception as error:
        raise Failure(f"the model cannot be captured: {first_line(error, 1500)}") from error
