"""Recurrent layers and attention made of layers and operations that are observed. The names are those of
``torch.ao.nn.quantizable``.

``from_float`` takes a float layer with a ``qconfig`` and returns the observed one;
:func:`corsac.quantization.convert` and ``convert_fx`` make the layers of :mod:`corsac.quantization.quantized.static` of
those.
"""

from __future__ import annotations

from corsac.quantization.quantizable._attention import MultiheadAttention
from corsac.quantization.quantizable._recurrent import LSTM, LSTMCell

__all__ = ["LSTM", "LSTMCell", "MultiheadAttention"]
