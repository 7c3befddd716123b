"""Layers of dynamically quantised models. The names are those of ``torch.ao.nn.quantized.dynamic``.

Weights are integers. Activations of linear layers are quantised when the layer runs, each row by itself; those of recurrent
layers stay floats.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corsac.quantization._dtypes import UNDERLYING, full_range
from corsac.quantization.quantized import layers, recurrent
from corsac.quantization.quantized._observed import float_layer, weight_steps
from corsac.quantization.quantized._steps import WeightSteps

__all__ = ["GRU", "LSTM", "GRUCell", "LSTMCell", "Linear", "LinearReLU", "RNNCell"]


class Linear(layers.Linear):
    """A linear layer with a quantised weight, which quantises each row of its input; or with a weight of float16.

    Attributes:
        input_min: the smallest integer of a row.
        input_max: the largest integer of a row.
        input_dtype: the type of the integers; None for an input that stays as it is.
        real_dtype: the type of inputs and results, that of the float layer.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.quantized.dynamic.Linear.html
    """

    input_min: int
    input_max: int
    input_dtype: torch.dtype | None
    real_dtype: torch.dtype

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: bool = False) -> Any:  # type: ignore[override]
        """The layer of one with a ``qconfig``; its bias is shared.

        Raises:
            ValueError: activations are of a type that is neither of 8 bits nor float16.
        """
        layer = float_layer(mod)
        steps = weight_steps(mod, layer, use_precomputed_fake_quant)
        made = layers.QuantisedWeight.from_float.__func__(cls, layer, steps)  # type: ignore[attr-defined]
        made.training = mod.training
        made.real_dtype = layer.weight.dtype
        made._set_input(getattr(mod, "qconfig", None) or getattr(layer, "qconfig", None), steps)
        return made

    def _set_input(self, qconfig: Any, steps: WeightSteps | None) -> None:
        self.input_dtype, self.input_min, self.input_max = None, 0, 0
        if steps is None or qconfig is None:
            return
        observer = qconfig.activation()
        dtype = getattr(observer, "dtype", torch.float32)
        if dtype == torch.float32:
            return
        plain = UNDERLYING.get(dtype)
        if plain not in (torch.uint8, torch.int8):
            raise ValueError(
                f"{type(self).__name__}: expected activations of a type of 8 bits or float32, got {dtype}"
            )
        low, high = full_range(dtype)
        given = getattr(observer, "quant_min", None), getattr(observer, "quant_max", None)
        self.input_dtype = plain
        self.input_min = low if given[0] is None else int(given[0])
        self.input_max = high if given[1] is None else int(given[1])

    def forward(self, input: Tensor) -> Tensor:
        if self.input_dtype is not None:
            corsac = torch.ops.corsac
            bounds = self.input_min, self.input_max, self.input_dtype
            scales, zero_points = corsac.choose_qparams_per_token(input, *bounds[:2])
            levels = corsac.quantize_per_token(input, scales, zero_points, *bounds)
            input = corsac.dequantize_per_token(
                levels, scales, zero_points, *bounds, self.real_dtype
            )
        weight = self.dequantised()
        if self.real_dtype != torch.float32:
            weight = weight.to(self.real_dtype)
        return F.linear(input, weight, self.bias)


class LinearReLU(Linear):
    """:class:`Linear` and ReLU."""

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(super().forward(input))


class _Recurrent:
    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of one with a ``qconfig``; biases are shared."""
        steps = {}
        for name, weight in mod._parameters.items():
            if name.startswith("weight") and weight is not None:
                observer = mod.qconfig.weight()  # type: ignore[union-attr,operator]
                steps[name] = None
                if observer.dtype != torch.float16:
                    observer.to(weight.device)(weight.detach())
                    steps[name] = WeightSteps.of_observer(
                        observer, f"{type(mod).__name__}.{name}", weight.detach()
                    )
        return recurrent._Recurrent.from_float.__func__(cls, mod, steps)  # type: ignore[attr-defined]


class LSTM(_Recurrent, recurrent.LSTM):
    """``nn.LSTM`` with quantised weights."""


class GRU(_Recurrent, recurrent.GRU):
    """``nn.GRU`` with quantised weights."""


class LSTMCell(_Recurrent, recurrent.LSTMCell):
    """``nn.LSTMCell`` with quantised weights."""


class GRUCell(_Recurrent, recurrent.GRUCell):
    """``nn.GRUCell`` with quantised weights."""


class RNNCell(_Recurrent, recurrent.RNNCell):
    """``nn.RNNCell`` with quantised weights."""
