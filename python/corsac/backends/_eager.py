"""Backends that compile nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from corsac.fx import GraphModule
from corsac.fx.convert import from_torch


def eager(module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Let PyTorch run the graph as it is."""
    del example_inputs
    return module.forward


def debug(module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Print the graph as a table, with the types of the inputs; then do as :func:`eager`."""
    shown = ", ".join(_type_of(own) for own in example_inputs)
    print(f"graph of {len(module.graph.nodes)} nodes for ({shown})")
    from_torch(module).graph.print_tabular()
    return module.forward


def _type_of(value: Any) -> str:
    if not hasattr(value, "dtype"):
        return repr(value)
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
