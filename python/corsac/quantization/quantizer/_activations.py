"""Observers and fake quantisers of activations of whole tensors."""

from __future__ import annotations

from typing import Any

from corsac.quantization.fake_quantize import FakeQuantize, FusedMovingAvgObsFakeQuantize
from corsac.quantization.observer import (
    HistogramObserver,
    MovingAverageMinMaxObserver,
    PlaceholderObserver,
)


def activation_constructor(is_qat: bool, is_dynamic: bool, eps: float) -> Any:
    """The constructor of the observer, or fake quantiser, of activations.

    Args:
        is_qat: whether the model is trained with fake quantisers.
        is_dynamic: whether activations are quantised with parameters of each batch.
        eps: the smallest scale.
    """
    if is_qat and is_dynamic:
        moving = MovingAverageMinMaxObserver.with_args(averaging_constant=1)
        return FakeQuantize.with_args(eps=eps, observer=moving)
    if is_qat:
        return FusedMovingAvgObsFakeQuantize.with_args(eps=eps)
    if is_dynamic:
        return PlaceholderObserver.with_args(eps=eps)
    return HistogramObserver.with_args(eps=eps)
