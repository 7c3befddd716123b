"""Recurrent reference modules. ``weight_qparams_dict`` has the parameters of each weight by its name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from corsac.quantization.reference._weights import WithRoundedWeights


class _Recurrent(WithRoundedWeights):
    """A recurrent module of ``torch.nn``, the other base class, with rounded weights."""

    #: Attributes of the module that the constructor takes.
    _arguments: tuple[str, ...]

    def __init__(
        self,
        *args: Any,
        device: Any = None,
        dtype: torch.dtype | None = None,
        weight_qparams_dict: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, device=device, dtype=dtype, **kwargs)
        given = weight_qparams_dict or {}
        names = self._weight_names()
        if weight_qparams_dict is not None and set(given) - {"is_decomposed"} != set(names):
            raise AssertionError(
                f"{self._get_name()}: expected parameters of {', '.join(names)}, got {', '.join(given)}"
            )
        self.is_decomposed = given.get("is_decomposed", False)
        for name in names:
            self._init_qparams(name, given.get(name), device)

    def _weight_names(self) -> list[str]:
        return [name for name, _ in self.named_parameters() if name.startswith("weight")]

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}(Reference)"

    @classmethod
    def from_float(cls, mod: nn.Module, weight_qparams_dict: dict[str, Any]) -> Any:
        """The reference module of a recurrent module; parameters are shared."""
        parameters = dict(mod.named_parameters())
        some = next(iter(parameters.values()))
        made = cls(
            **{name: getattr(mod, name) for name in cls._arguments},
            device=some.device,
            dtype=some.dtype,
            weight_qparams_dict=weight_qparams_dict,
        )
        for name, parameter in parameters.items():
            setattr(made, name, parameter)
        return made


class _Cell(_Recurrent):
    _arguments: tuple[str, ...] = ("input_size", "hidden_size", "bias")

    def get_weight_ih(self) -> Tensor:
        return self._rounded("weight_ih")

    def get_weight_hh(self) -> Tensor:
        return self._rounded("weight_hh")

    def get_quantized_weight_ih(self) -> Tensor:
        return self._quantized("weight_ih")

    def get_quantized_weight_hh(self) -> Tensor:
        return self._quantized("weight_hh")

    def _step(self, function: Any, input: Tensor, hx: Any) -> Any:
        """One step, of a batch, [batch, features], or of one element, [features]."""
        if input.dim() not in (1, 2):
            raise AssertionError(
                f"{self._get_name()}: expected an input of 1 or 2 dimensions, got {input.dim()}"
            )
        alone = input.dim() == 1
        if alone:
            input = input.unsqueeze(0)
        pair = isinstance(self, nn.LSTMCell)
        if hx is None:
            zeros = input.new_zeros(input.size(0), self.hidden_size)
            hx = (zeros, zeros) if pair else zeros
        elif alone:
            hx = tuple(state.unsqueeze(0) for state in hx) if pair else hx.unsqueeze(0)
        weights = self.get_weight_ih(), self.get_weight_hh()
        result = function(input, hx, *weights, self.bias_ih, self.bias_hh)
        if not alone:
            return result
        return tuple(state.squeeze(0) for state in result) if pair else result.squeeze(0)


class RNNCell(_Cell, nn.RNNCell):
    _arguments = ("input_size", "hidden_size", "bias", "nonlinearity")

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        functions = {"tanh": torch.rnn_tanh_cell, "relu": torch.rnn_relu_cell}
        if self.nonlinearity not in functions:
            raise RuntimeError(f"{self._get_name()}: unknown nonlinearity {self.nonlinearity!r}")
        return self._step(functions[self.nonlinearity], input, hx)


class LSTMCell(_Cell, nn.LSTMCell):
    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._step(torch.lstm_cell, input, hx)


class GRUCell(_Cell, nn.GRUCell):
    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(torch.gru_cell, input, hx)


class _Layers(_Recurrent):
    _arguments: tuple[str, ...] = (
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
    )

    @property
    def _flat_weights(self) -> list[Tensor | None]:
        """The parameters that ``forward`` of ``torch.nn`` uses: rounded weights, and biases."""
        return self.get_flat_weights()

    @_flat_weights.setter
    def _flat_weights(self, value: list[Tensor | None]) -> None:
        """Nothing: the parameters are attributes."""

    def get_flat_weights(self) -> list[Tensor | None]:
        return [
            self._rounded(name)
            if name.startswith("weight") and hasattr(self, f"{name}_qscheme")
            else getattr(self, name, None)
            for name in self._flat_weights_names
        ]

    def get_quantized_weight_bias_dict(self) -> dict[str, Tensor | None]:
        """Weights as integers, and biases as they are, by name."""
        return {
            name: self._quantized(name) if name.startswith("weight") else getattr(self, name, None)
            for name in self._flat_weights_names
        }


class LSTM(_Layers, nn.LSTM):
    _arguments = (*_Layers._arguments, "proj_size")


class GRU(_Layers, nn.GRU):
    pass
