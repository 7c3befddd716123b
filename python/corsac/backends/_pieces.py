"""Compiled forms of graphs that Dynamo captures, for training or inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from corsac._engine.dynamo_graph import Piece, records
from corsac._native.options import Settings


def piece_for(module: Any, example_inputs: Sequence[Any], settings: Settings) -> Any:
    """The compiled form of a graph that Dynamo captured, for training or inference; Dynamo captures again if that
    changes."""
    if not _wants_gradients(module, example_inputs) and not _transforms(module.graph):
        return Piece(module, settings.precision, settings.inference)
    # Not at the top: AOTAutograd is imported only when it is needed.
    from corsac._training import train

    return train(
        module,
        example_inputs,
        precision=settings.precision,
        placement=settings.training,
        partition=settings.partition,
    )


def _wants_gradients(module: Any, example_inputs: Sequence[Any]) -> bool:
    """Whether autograd records a part of a graph with these inputs."""
    if not torch.is_grad_enabled():
        return False
    tensors = [own for own in example_inputs if isinstance(own, torch.Tensor)]
    tensors += [*module.parameters(), *module.buffers()]
    return any(own.requires_grad for own in tensors) and records(module.graph)


def _transforms(graph: Any) -> bool:
    """Whether transforms of ``torch.func`` are among the calls of ``graph``.

    Between them tensors have hidden dimensions; AOTAutograd makes graphs without transforms.
    """
    return any(
        "_functorch" in (getattr(node.target, "__module__", None) or "")
        for node in graph.nodes
        if node.op == "call_function"
    )
