"""corsac's engine as a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from corsac._engine.dynamo_graph import Piece
from corsac._native.options import Settings, checked_options
from corsac.backends._contract import Declined
from corsac.backends._pieces import piece_for
from corsac.fx import GraphModule


def engine(
    module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile the graph natively; PyTorch runs operators that the engine does not support, between native parts.

    Results share memory with inputs and with each other where PyTorch's do.

    Args:
        module: the graph.
        example_inputs: inputs to compile for first; programs for others are compiled at their first call.
        options: as for :func:`corsac.compile`: ``{"precision": "bf16"}``.

    Raises:
        Declined: none of the graph can be native, for these inputs.
        ValueError: an unknown option.
    """
    checked_options(options)
    # The engine was chosen explicitly, so it is not measured against PyTorch.
    settings = Settings(**{"inference": "native", **(options or {})})
    piece = piece_for(module, example_inputs, settings)
    return prepared(piece, example_inputs) if isinstance(piece, Piece) else piece


def prepared(piece: Piece, example_inputs: Sequence[Any]) -> Piece:
    """``piece``, compiled for the inputs.

    Raises:
        Declined: PyTorch would run a call with these inputs.
    """
    known = [own.node.hint if isinstance(own, torch.SymInt) else own for own in example_inputs]
    if not any(own is None or isinstance(own, FakeTensor) for own in known):
        reason = piece.prepare(known)
        if reason is not None:
            raise Declined(reason)
    return piece
