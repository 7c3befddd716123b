"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from corsac.onnx import recurrent
from corsac.onnx._emitter import Emitter
from corsac.onnx._registry import reads
from corsac.onnx._types import Unsupported
from corsac.onnx._values import Value


def _layer(kind: str) -> Callable[..., Any]:
    def read(
        g: Emitter,
        input: Value,
        weight: Value,
        recurrence: Value,
        bias: Value | None = None,
        lengths: Value | None = None,
        hidden: Value | None = None,
        cell: Value | None = None,
        peepholes: Value | None = None,
        *,
        activation_alpha: list[float] | None = None,
        activation_beta: list[float] | None = None,
        activations: list[str] | None = None,
        clip: float | None = None,
        direction: str = "forward",
        hidden_size: int | None = None,
        input_forget: int = 0,
        layout: int = 0,
        linear_before_reset: int = 0,
    ) -> Any:
        if direction not in ("forward", "reverse", "bidirectional"):
            raise Unsupported(f"the direction {direction!r}")
        unknown = {own.lower() for own in activations or ()} - set(recurrent._ACTIVATIONS)
        if unknown:
            raise Unsupported(f"the activations {', '.join(sorted(unknown))}")
        results = g.call(
            recurrent.recurrent, kind, input, weight, recurrence, bias, lengths, hidden, cell, peepholes, direction,
            activations, activation_alpha, activation_beta, clip, bool(linear_before_reset), bool(input_forget),
            bool(layout),
        )  # fmt: skip
        return results

    return read


for _kind in ("RNN", "GRU", "LSTM"):
    reads(_kind, since=7)(_layer(_kind))
