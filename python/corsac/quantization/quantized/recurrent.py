"""Recurrent layers and cells whose weights are integers."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from corsac.quantization.quantized._steps import WeightSteps
from corsac.quantization.quantized._weight import out_dtype


class _Recurrent:
    """A recurrent layer whose weights are buffers of integers, each with ``NAME_scale`` and ``NAME_zero_point`` for
    each row, or of half precision; it computes as the float layer does with the weights as floats.
    """

    _float: ClassVar[type[nn.Module]]
    #: The smallest and largest integer of each quantised weight.
    ranges: dict[str, tuple[int, int]]
    #: The type of the weights as floats.
    float_dtype: torch.dtype

    @classmethod
    def from_float(cls, layer: nn.Module, steps: dict[str, WeightSteps | None]) -> Any:
        """The layer with these of its weights in steps, or in half precision; other parameters are shared."""
        made: Any = cls.__new__(cls)
        nn.Module.__init__(made)
        for name, value in vars(layer).items():
            if name not in vars(made) and name not in ("qconfig", "_flat_weights"):
                object.__setattr__(made, name, value)
        made.training = layer.training
        made.ranges = {}
        made.float_dtype = next(iter(layer.parameters())).dtype
        for name, parameter in layer._parameters.items():
            if name not in steps or parameter is None:
                made.register_parameter(name, parameter)
                continue
            own = steps[name]
            if own is None:
                made.register_buffer(name, parameter.detach().to(torch.float16))
                continue
            own = own.expanded(parameter, 0)
            made.ranges[name] = own.quant_min, own.quant_max
            made.register_buffer(name, own.quantise(parameter))
            made.register_buffer(f"{name}_scale", own.scales.clone())
            made.register_buffer(f"{name}_zero_point", own.zero_points.clone())
        return made

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        from corsac.quantization.torch_ao._states import unpack_recurrent

        names = getattr(self, "_flat_weights_names", ["weight_ih", "weight_hh"])
        weights = [name for name in names if name.startswith("weight")]
        unpack_recurrent(state_dict, prefix, weights)
        owner: Any = super()
        owner._load_from_state_dict(state_dict, prefix, *rest)

    def dequantised(self, name: str) -> Tensor:
        """A weight or bias as floats."""
        value: Any = getattr(self, name)
        if name in self.ranges:
            scales, zero_points = (
                getattr(self, f"{name}_scale"),
                getattr(self, f"{name}_zero_point"),
            )
            bounds = self.ranges[name]
            return torch.ops.corsac.dequantize_per_channel(
                value, scales, zero_points, 0, *bounds, value.dtype, **out_dtype(self.float_dtype)
            )
        return value.to(self.float_dtype)

    def extra_repr(self) -> str:
        described: Any = self._float.extra_repr
        return f"{described(self)}, weights={'int8' if self.ranges else 'float16'}"


class _Layer(_Recurrent):
    _flat_weights_names: list[str]

    @property
    def _flat_weights(self) -> list[Tensor]:
        return [self.dequantised(name) for name in self._flat_weights_names]

    @_flat_weights.setter
    def _flat_weights(self, value: list[Tensor]) -> None:
        """Nothing: the weights are buffers, which ``to`` moves."""

    def _weights_have_changed(self) -> bool:
        return False

    def flatten_parameters(self) -> None:
        """Nothing: the weights are no floats."""


class LSTM(_Layer, nn.LSTM):
    """``nn.LSTM`` with quantised weights."""

    _float = nn.LSTM


class GRU(_Layer, nn.GRU):
    """``nn.GRU`` with quantised weights."""

    _float = nn.GRU


class _Cell(_Recurrent):
    def _weights(self) -> list[Tensor | None]:
        own: Any = self
        biases = ("bias_ih", "bias_hh") if own.bias else ()
        weights = [self.dequantised(name) for name in ("weight_ih", "weight_hh", *biases)]
        return [*weights, *[None] * (4 - len(weights))]

    def _state(self, input: Tensor) -> Tensor:
        own: Any = self
        return input.new_zeros(*input.shape[:-1], own.hidden_size)


class LSTMCell(_Cell, nn.LSTMCell):
    """``nn.LSTMCell`` with quantised weights."""

    _float = nn.LSTMCell

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        states = hx if hx is not None else (self._state(input), self._state(input))
        if input.dim() == 2:
            return torch.lstm_cell(input, states, *self._weights())
        hidden, cell = torch.lstm_cell(
            input.unsqueeze(0), [state.unsqueeze(0) for state in states], *self._weights()
        )
        return hidden.squeeze(0), cell.squeeze(0)


class GRUCell(_Cell, nn.GRUCell):
    """``nn.GRUCell`` with quantised weights."""

    _float = nn.GRUCell

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        state = hx if hx is not None else self._state(input)
        if input.dim() == 2:
            return torch.gru_cell(input, state, *self._weights())
        return torch.gru_cell(input.unsqueeze(0), state.unsqueeze(0), *self._weights()).squeeze(0)


class RNNCell(_Cell, nn.RNNCell):
    """``nn.RNNCell`` with quantised weights."""

    _float = nn.RNNCell

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        state = hx if hx is not None else self._state(input)
        function = torch.rnn_tanh_cell if self.nonlinearity == "tanh" else torch.rnn_relu_cell
        if input.dim() == 2:
            return function(input, state, *self._weights())
        return function(input.unsqueeze(0), state.unsqueeze(0), *self._weights()).squeeze(0)
