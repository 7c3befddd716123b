"""Dynamic layers that were read from torch.ao: the input is rounded in the steps of the range of the whole tensor."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from corsac.quantization.quantized import layers, recurrent


def rounded(input: Tensor, input_max: int = 127) -> Tensor:
    """Numbers in steps of their range and 0, from 0 to ``input_max``, as ``quantized::linear_dynamic`` rounds them.

    With 127, which PyTorch calls ``reduce_range``, a number at the end of the range may be rounded up to 128.
    """
    corsac = torch.ops.corsac
    row = input.reshape(1, -1)
    parameters = corsac.choose_qparams_per_token(row, 0, input_max)
    steps = parameters[0], parameters[1], 0, 255, torch.uint8
    levels = corsac.quantize_per_token(row, *steps)
    return corsac.dequantize_per_token(levels, *steps, torch.float32).reshape(input.shape)


def scaled_product(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``linear(rounded(input), weight, bias)`` with the levels as the input of the product, and the scale behind it.

    The levels are less their zero point: with 127 for the end of the range, they are from -127 to 128 always. A product
    of levels whose zero point is known before the call is native.
    """
    corsac = torch.ops.corsac
    scale = corsac.choose_qparams_per_token(input.reshape(1, -1), 0, 127)[0].reshape(())
    steps = 1.0, 127, 0, 255, torch.uint8
    levels = corsac.quantize_per_tensor(input * torch.reciprocal(scale), *steps)
    product = F.linear(corsac.dequantize_per_tensor(levels, *steps), weight) * scale
    return product if bias is None else product + bias


def rounded_rows(input: Tensor) -> Tensor:
    """Numbers in 256 steps of the range of each row."""
    corsac = torch.ops.corsac
    parameters = corsac.choose_qparams_per_token(input, -128, 127)
    steps = parameters[0], parameters[1], -128, 127, torch.int8
    return corsac.dequantize_per_token(
        corsac.quantize_per_token(input, *steps), *steps, torch.float32
    )


class _Dynamic:
    """A layer of :mod:`corsac.quantization.quantized`, the other base class, whose input is rounded if its weight is
    of integers.

    Attributes:
        input_max: the largest level: 127 for ``reduce_range``, or 255.
        per_row: whether each row has steps of its own.
    """

    input_max: int
    per_row: bool

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def _rounded(self, input: Tensor) -> Tensor:
        own: Any = self
        if own.weight_scale is None:
            return input
        return rounded_rows(input) if self.per_row else rounded(input, self.input_max)

    def forward(self, input: Tensor, *args: Any) -> Tensor:
        layer: Any = super()
        result = layer.forward(self._rounded(input.float()), *args)
        return result if input.dtype == torch.float32 else result.to(input.dtype)


class Linear(_Dynamic, layers.Linear):
    """A linear layer with a quantised weight, which quantises its input."""

    def forward(self, input: Tensor, *args: Any) -> Tensor:
        if self.weight_scale is None or self.per_row or self.input_max != 127:
            return super().forward(input, *args)
        result = scaled_product(input.float(), self.dequantised(), self.bias)
        return result if input.dtype == torch.float32 else result.to(input.dtype)


class LinearReLU(Linear):
    """:class:`Linear` and ReLU."""

    def forward(self, input: Tensor, *args: Any) -> Tensor:
        return F.relu(super().forward(input, *args))


class _Convolution(_Dynamic):
    def _rounded(self, input: Tensor) -> Tensor:
        # Rows of images are no rows of the product.
        return rounded(input, self.input_max)


class Conv1d(_Convolution, layers.Conv1d):
    """A convolution with a quantised weight, which quantises its input."""


class Conv2d(_Convolution, layers.Conv2d):
    """A convolution with a quantised weight, which quantises its input."""


class Conv3d(_Convolution, layers.Conv3d):
    """A convolution with a quantised weight, which quantises its input."""


class ConvTranspose1d(_Convolution, layers.ConvTranspose1d):
    """A transposed convolution with a quantised weight, which quantises its input."""


class ConvTranspose2d(_Convolution, layers.ConvTranspose2d):
    """A transposed convolution with a quantised weight, which quantises its input."""


class ConvTranspose3d(_Convolution, layers.ConvTranspose3d):
    """A transposed convolution with a quantised weight, which quantises its input."""


class _Cell:
    """A cell of :mod:`corsac.quantization.quantized.recurrent`, the other base class, which rounds the inputs of its
    products if its weights are of integers."""

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def _rounded(self, value: Tensor) -> Tensor:
        own: Any = self
        return rounded(value) if own.ranges else value

    def _states(self, input: Tensor, hx: Any) -> Any:
        own: Any = self
        return own._state(input) if hx is None else hx


class LSTMCell(_Cell, recurrent.LSTMCell):
    """``nn.LSTMCell`` with quantised weights and rounded inputs."""

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        state = self._state(input)
        hidden, cell = (state, state) if hx is None else hx
        return super().forward(self._rounded(input), (self._rounded(hidden), cell))


class RNNCell(_Cell, recurrent.RNNCell):
    """``nn.RNNCell`` with quantised weights and rounded inputs."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        hidden = self._states(input, hx)
        return super().forward(self._rounded(input), self._rounded(hidden))


class GRUCell(_Cell, recurrent.GRUCell):
    """``nn.GRUCell`` with quantised weights and rounded inputs of products."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        hidden = self._states(input, hx)
        weight_ih, weight_hh, bias_ih, bias_hh = self._weights()
        assert weight_ih is not None and weight_hh is not None
        reset, update, new = F.linear(self._rounded(input), weight_ih, bias_ih).chunk(3, -1)
        own_reset, own_update, own_new = F.linear(self._rounded(hidden), weight_hh, bias_hh).chunk(
            3, -1
        )
        kept = torch.sigmoid(update + own_update)
        candidate = torch.tanh(new + torch.sigmoid(reset + own_reset) * own_new)
        return candidate + kept * (hidden - candidate)
