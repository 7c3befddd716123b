"""Counts of short sequences of numbers (n-grams)."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def gram_weights(
    input: torch.Tensor,
    grams: Sequence[torch.Tensor],
    columns: Sequence[torch.Tensor],
    width: int,
    most_skipped: int,
    weights: torch.Tensor | None,
    counted: bool,
) -> torch.Tensor:
    """How often each n-gram is in each row.

    Args:
        input: integers, ``[C]`` or ``[N, C]``.
        grams: n-grams of each length, ``[number, length]``.
        columns: the columns of the result for them, ``[number]``.
        width: the number of columns.
        most_skipped: the most elements that are skipped between the elements of an n-gram, the same number each time.
        weights: a factor for each column.
        counted: whether an n-gram counts each time it is found, and not once.

    Returns:
        float32 of shape ``[width]`` or ``[N, width]``.
    """
    rows = input.reshape(-1, input.shape[-1]) if input.dim() else input.reshape(1, 1)
    result = torch.zeros(rows.shape[0], width, device=input.device)
    for own, places in zip(grams, columns, strict=True):
        length = own.shape[1]
        for step in range(1, 2 if length == 1 else most_skipped + 2):
            reach = (length - 1) * step + 1
            for start in range(rows.shape[1] - reach + 1):
                window = rows[:, start : start + reach : step]
                found = (window.unsqueeze(1) == own).all(-1)
                result.index_add_(1, places, found.to(result.dtype))
    if not counted:
        result = (result > 0).to(result.dtype)
    if weights is not None:
        result = result * weights
    return result if input.dim() == 2 else result[0]
