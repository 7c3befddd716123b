"""Recurrent layers of padded sequences, in place of packed ones.

The number of rows of a packed sequence (``torch.nn.utils.rnn``) depends on values. Graphs contain the padded sequences
instead, whose sizes are those of the tensor that was packed. The functions take the arguments of PyTorch's functions for
packed sequences, except for the first two: sequences, [time, batch, features], and their lengths in descending order.
The result is zero where a sequence has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def lstm(input: Tensor, lengths: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """Return the outputs, the last state and the last cell memory of ``torch.lstm`` for padded sequences."""
    return _padded(torch.lstm, input, lengths, *rest)


def gru(input: Tensor, lengths: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """Return the outputs and the last state of ``torch.gru`` for padded sequences."""
    return _padded(torch.gru, input, lengths, *rest)


def rnn_tanh(input: Tensor, lengths: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """Return the outputs and the last state of ``torch.rnn_tanh`` for padded sequences."""
    return _padded(torch.rnn_tanh, input, lengths, *rest)


def rnn_relu(input: Tensor, lengths: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """Return the outputs and the last state of ``torch.rnn_relu`` for padded sequences."""
    return _padded(torch.rnn_relu, input, lengths, *rest)


def until_longest(padded: Tensor, lengths: Tensor) -> Tensor:
    """Return a copy of the first time steps: as many as the longest sequence has."""
    return padded[: int(lengths.amax())].clone()


def _padded(
    layer: Callable[..., tuple[Tensor, ...]], input: Tensor, lengths: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    data, sizes = torch._VF._pack_padded_sequence(input, lengths, False)
    out, *state = layer(data, sizes, *rest)
    padded, _ = torch._VF._pad_packed_sequence(out, sizes, False, 0.0, input.size(0))
    return (padded, *state)


__all__ = ["gru", "lstm", "rnn_relu", "rnn_tanh", "until_longest"]
