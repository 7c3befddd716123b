"""Layers whose weights are integers, in the places of float ones in quantised models.

A layer holds ``weight`` as a buffer of 8-bit integers, with buffers ``weight_scale`` and ``weight_zero_point`` for each
channel, and its ``bias`` as floats.
"""

from __future__ import annotations

from corsac.quantization.quantized.functional_modules import (
    FloatFunctional,
    FXFloatFunctional,
    QFunctional,
)
from corsac.quantization.quantized.layers import (
    Bilinear,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Embedding,
    EmbeddingBag,
    Linear,
)
from corsac.quantization.quantized.recurrent import GRU, LSTM, GRUCell, LSTMCell, RNNCell

__all__ = [
    "GRU",
    "LSTM",
    "Bilinear",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Embedding",
    "EmbeddingBag",
    "FXFloatFunctional",
    "FloatFunctional",
    "GRUCell",
    "LSTMCell",
    "Linear",
    "QFunctional",
    "RNNCell",
]
