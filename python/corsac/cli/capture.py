"""Models as graphs: for all sizes, or where they decide by sizes, for given inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from corsac import fx
from corsac._capture import graph_of
from corsac.cli.failure import Failure, first_line


def graph_module(
    model: torch.nn.Module, inputs: Callable[[], tuple[Any, ...]] | None
) -> fx.GraphModule:
    """The model as a graph, whatever its inputs are, or else what it does with ``inputs``, if there are any."""
    try:
        return fx.symbolic_trace(model) if inputs is None else graph_of(model, inputs)
    except Exception as error:
        told = first_line(error, 1500)
        if inputs is not None:
            raise Failure(f"the model cannot be captured: {told}") from error
        raise Failure(
            f"the model cannot be captured for all inputs: {told}; with --input it is captured for "
            "inputs such as those"
        ) from error
