"""Rotary embeddings whose frequencies depend on the length of the text."""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


def longest_without_change(config: Any) -> int | None:
    """The number of tokens up to which the frequencies stay as they are; None if they always do, or if the model has no
    more positions anyway."""
    parameters = getattr(config, "rope_parameters", None) or {}
    several = [own for own in (parameters, *parameters.values()) if isinstance(own, dict)]
    found = [
        int(own["original_max_position_embeddings"])
        for own in several
        if own.get("rope_type") == "longrope" and "original_max_position_embeddings" in own
    ]
    return min(found, default=None)


@contextlib.contextmanager
def without_change(model: nn.Module) -> Iterator[None]:
    """Take the frequencies of short texts in the block, whatever the positions are."""
    changed: list[tuple[nn.Module, torch.Tensor]] = []
    try:
        for own in model.modules():
            kind = getattr(own, "rope_type", None)
            if isinstance(kind, str) and (kind == "longrope" or "dynamic" in kind):
                changed.append((own, own.inv_freq))
                own.inv_freq = own.original_inv_freq
                # Without what computes new frequencies.
                own.forward = types.MethodType(inspect.unwrap(type(own).forward), own)
        yield
    finally:
        for own, frequencies in changed:
            own.inv_freq = frequencies
            del own.forward


__all__ = ["longest_without_change", "without_change"]
