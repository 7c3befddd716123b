"""Options of recordings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingOptions:
    """Constructs that a recorded program may contain, and values that may differ between its calls.

    Attributes:
        trains: whether the graph is for autograd; gradients are enabled then.
        compiling: whether ``torch.compiler.is_compiling()`` is true in the program: many programs read values only
            if it is not.
        structures: arguments that are guarded by their contents; None if they are guarded by identity, and the program
            may not change state.
        dynamic: dynamic dimensions of tensors in arguments and state, by id of the tensor.
        decides: whether control flow may depend on values.
        counters: places of numbers that may vary: dictionaries with keys, and cells.
        rewritten: tensors whose values differ between calls, by id; None if the program may not write to existing
            tensors, except to buffers in training.
        integers: places of integer arguments that may vary, by their numbers in :attr:`Recorded.integers`.
        casts: whether the casts of autocast become nodes, so that the graph is to run without autocast; otherwise it
            is for the same autocast as the recorded call, in all its parts.
        keep: is called with each existing tensor that the program is about to write to.
        calls_graphs: whether control flow of ``torch.ops.higher_order`` becomes nodes.
    """

    trains: bool = False
    compiling: bool = False
    structures: Sequence[Any] | None = None
    dynamic: Mapping[int, Collection[int]] = field(default_factory=dict)
    decides: bool = False
    counters: Sequence[tuple[Any, Any]] = ()
    rewritten: Collection[int] | None = None
    integers: Mapping[int, int | str] = field(default_factory=dict)
    casts: bool = False
    keep: Callable[[torch.Tensor], None] | None = None
    calls_graphs: bool = False


__all__ = ["RecordingOptions"]
