"""LSTM layers of linear layers and operations that are observed."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from corsac.quantization.quantized._output import rounded_to
from corsac.quantization.quantized.functional_modules import FloatFunctional

_GATES = ("input", "forget", "cell", "output")
_States = tuple[Tensor, Tensor]


class LSTMCell(nn.Module):
    """``nn.LSTMCell``, step by step.

    Once it is converted, sigmoids and hyperbolic tangents are rounded to the 256 steps of their range.

    Args:
        input_dim: the size of the input.
        hidden_dim: the size of the states.
        bias: whether there are biases.
        device: of the parameters.
        dtype: of the parameters.
        split_gates: a linear layer for each gate, instead of one for all.

    https://github.com/pytorch/pytorch/blob/main/torch/ao/nn/quantizable/modules/rnn.py
    """

    _FLOAT_MODULE = nn.LSTMCell

    igates: Any
    hgates: Any
    gates: Any

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        split_gates: bool = False,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_dim, hidden_dim, bias
        self.split_gates = split_gates

        def linear(size: int, gates: int) -> nn.Linear:
            return nn.Linear(size, gates * hidden_dim, bias=bias, device=device, dtype=dtype)

        if split_gates:
            self.igates = nn.ModuleDict({gate: linear(input_dim, 1) for gate in _GATES})
            self.hgates = nn.ModuleDict({gate: linear(hidden_dim, 1) for gate in _GATES})
            self.gates = nn.ModuleDict({gate: FloatFunctional() for gate in _GATES})
        else:
            self.igates, self.hgates = linear(input_dim, 4), linear(hidden_dim, 4)
            self.gates = FloatFunctional()
        self.input_gate, self.forget_gate = nn.Sigmoid(), nn.Sigmoid()
        self.cell_gate, self.output_gate = nn.Tanh(), nn.Sigmoid()
        self.fgate_cx, self.igate_cgate = FloatFunctional(), FloatFunctional()
        self.fgate_cx_igate_cgate, self.ogate_cy = FloatFunctional(), FloatFunctional()
        self.initial_hidden_state_qparams: tuple[float, int] = (1.0, 0)
        self.initial_cell_state_qparams: tuple[float, int] = (1.0, 0)

    def _get_name(self) -> str:
        return "QuantizableLSTMCell"

    def forward(self, x: Tensor, hidden: Any = None) -> _States:
        """The states after an input of ``[batch, input_size]``; ``hidden`` are those before, zeros if not given."""
        return self.step(self.of_input(x), self.states(x, hidden))

    def states(self, x: Tensor, hidden: Any) -> _States:
        """``hidden``, or zeros."""
        if hidden is None or hidden[0] is None or hidden[1] is None:
            zeros = x.new_zeros(x.shape[0], self.hidden_size)
            return zeros, zeros
        return hidden

    def of_input(self, x: Tensor) -> list[Tensor]:
        """The share of an input in each gate, or in all together; of one step, or of a sequence."""
        if self.split_gates:
            return [layer(x) for layer in self.igates.values()]
        return [self.igates(x)]

    def step(self, of_input: list[Tensor], states: _States) -> _States:
        """The next states, of the shares that the input has in gates."""
        hx, cx = states
        if self.split_gates:
            layers = zip(of_input, self.hgates.values(), self.gates.values(), strict=True)
            parts = [sums.add(own, layer(hx)) for own, layer, sums in layers]
        else:
            parts = [*self.gates.add(of_input[0], self.hgates(hx)).chunk(4, 1)]
        input_gate = self._sigmoid(self.input_gate(parts[0]))
        forget_gate = self._sigmoid(self.forget_gate(parts[1]))
        cell_gate = self._tanh(self.cell_gate(parts[2]))
        output_gate = self._sigmoid(self.output_gate(parts[3]))
        kept, added = (
            self.fgate_cx.mul(forget_gate, cx),
            self.igate_cgate.mul(input_gate, cell_gate),
        )
        cy = self.fgate_cx_igate_cgate.add(kept, added)
        return self.ogate_cy.mul(output_gate, self._tanh(torch.tanh(cy))), cy

    @property
    def is_converted(self) -> bool:
        """Whether results are rounded."""
        return getattr(self.ogate_cy, "scale", None) is not None

    def _sigmoid(self, value: Tensor) -> Tensor:
        return self._fixed(value, 1 / 256, 0)

    def _tanh(self, value: Tensor) -> Tensor:
        return self._fixed(value, 2 / 256, 128)

    def _fixed(self, value: Tensor, scale: float, zero_point: int) -> Tensor:
        """A value in the steps that PyTorch's kernels give results of a known range."""
        if not self.is_converted:
            return value
        dtype: Any = self.ogate_cy.output_dtype
        limits = torch.iinfo(dtype)
        if limits.bits > 16:
            # The steps of these are finer than those of floats.
            return value
        return rounded_to(value, scale, zero_point + limits.min, limits.min, limits.max, dtype)

    def initialize_hidden(self, batch_size: int, is_quantized: bool = False) -> _States:
        """States of zeros."""
        zeros = torch.zeros((batch_size, self.hidden_size))
        return zeros, zeros

    @classmethod
    def from_params(
        cls,
        wi: Tensor,
        wh: Tensor,
        bi: Tensor | None = None,
        bh: Tensor | None = None,
        split_gates: bool = False,
    ) -> LSTMCell:
        """A cell of weights and biases for inputs and states, which are shared."""
        if (bi is None) != (bh is None):
            raise AssertionError("expected two biases or none")
        cell = cls(wi.shape[1], wh.shape[1], bi is not None, "meta", split_gates=split_gates)
        for layers, weight, bias in ((cell.igates, wi, bi), (cell.hgates, wh, bh)):
            own = [*layers.values()] if split_gates else [layers]
            weights = weight.chunk(len(own))
            biases = [None] * len(own) if bias is None else bias.chunk(len(own))
            for layer, one, other in zip(own, weights, biases, strict=True):
                layer.weight = nn.Parameter(one)
                if other is not None:
                    layer.bias = nn.Parameter(other)
        return cell

    @classmethod
    def from_float(
        cls, other: Any, use_precomputed_fake_quant: bool = False, split_gates: bool = False
    ) -> LSTMCell:
        """The cell of an ``nn.LSTMCell`` with a ``qconfig``, to be observed."""
        if type(other) is not cls._FLOAT_MODULE:
            raise AssertionError(f"expected an LSTMCell, got {type(other).__name__}")
        if not hasattr(other, "qconfig"):
            raise AssertionError("expected an LSTMCell with a qconfig")
        observed = cls.from_params(
            other.weight_ih, other.weight_hh, other.bias_ih, other.bias_hh, split_gates
        )
        observed.train(other.training)
        for module in (observed, observed.igates, observed.hgates):
            module.qconfig = other.qconfig
        if split_gates:
            for module in (*observed.igates.values(), *observed.hgates.values()):
                module.qconfig = other.qconfig
        return observed


class _LSTMSingleLayer(nn.Module):
    """A layer of one direction."""

    cell: Any

    def __init__(self, cell: LSTMCell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, hidden: Any = None) -> tuple[Tensor, _States]:
        results = []
        if getattr(self.cell, "is_converted", False):
            # Each number is rounded by itself, so that the shares of all inputs are one product.
            shares = [share.unbind(0) for share in self.cell.of_input(x)]
            hidden = self.cell.states(x[0], hidden)
            for parts in zip(*shares, strict=True):
                hidden = self.cell.step([*parts], hidden)
                results.append(hidden[0])
        else:
            for step in x.unbind(0):
                hidden = self.cell(step, hidden)
                results.append(hidden[0])
        return torch.stack(results, 0), hidden


class _LSTMLayer(nn.Module):
    """A layer of one direction or two."""

    def __init__(self, forwards: LSTMCell, backwards: LSTMCell | None) -> None:
        super().__init__()
        self.bidirectional = backwards is not None
        self.layer_fw = _LSTMSingleLayer(forwards)
        if backwards is not None:
            self.layer_bw = _LSTMSingleLayer(backwards)

    def forward(self, x: Tensor, hidden: Any) -> tuple[Tensor, _States]:
        """The results of ``[length, batch, directions * hidden_size]``, and the last states, those of two directions
        in a first dimension.
        """
        if not self.bidirectional:
            return self.layer_fw(x, hidden)
        (forwards, backwards) = zip(*(state.unbind(0) for state in hidden), strict=True)
        result, (hx, cx) = self.layer_fw(x, forwards)
        reverse, (hx_reverse, cx_reverse) = self.layer_bw(x.flip(0), backwards)
        states = torch.stack([hx, hx_reverse], 0), torch.stack([cx, cx_reverse], 0)
        return torch.cat([result, reverse.flip(0)], -1), states


class LSTM(nn.Module):
    """``nn.LSTM``, step by step, of cells whose layers and operations are observed.

    Args:
        input_size: the size of the input.
        hidden_size: the size of the states.
        num_layers: the number of layers.
        bias: whether there are biases.
        batch_first: whether the first dimension of inputs and results is the batch.
        dropout: is not applied.
        bidirectional: whether there are layers for the other direction.
        device: of the parameters.
        dtype: of the parameters.
        split_gates: a linear layer for each gate, instead of one for all.

    https://github.com/pytorch/pytorch/blob/main/torch/ao/nn/quantizable/modules/rnn.py
    """

    _FLOAT_MODULE = nn.LSTM

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        split_gates: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(f"dropout: expected a number from 0 to 1, got {dropout}")
        if dropout > 0:
            warnings.warn(
                "dropout between the layers of a quantizable LSTM is not applied", stacklevel=2
            )
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional = bidirectional
        directions = 2 if bidirectional else 1
        self.training = False

        def cell(number: int) -> LSTMCell:
            size = input_size if number == 0 else directions * hidden_size
            return LSTMCell(size, hidden_size, bias, device, dtype, split_gates=split_gates)

        self.layers = nn.ModuleList(
            _LSTMLayer(cell(number), cell(number) if bidirectional else None)
            for number in range(num_layers)
        )

    def _get_name(self) -> str:
        return "QuantizableLSTM"

    def forward(self, x: Tensor, hidden: Any = None) -> tuple[Tensor, _States]:
        """As ``nn.LSTM``; ``hidden`` may be a pair of states for each layer as well."""
        if not isinstance(x, Tensor) or x.dim() != 3:
            got = f"{x.dim()} dimensions" if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"{self._get_name()}: expected a tensor of 3 dimensions, got {got}")
        if self.batch_first:
            x = x.transpose(0, 1)
        directions, batch = (2 if self.bidirectional else 1), x.size(1)
        if hidden is None:
            zeros = x.new_zeros(directions, batch, self.hidden_size)
            hidden = [(zeros, zeros)] * self.num_layers
        elif isinstance(hidden[0], Tensor):
            shape = self.num_layers, directions, batch, self.hidden_size
            hidden = [*zip(*(state.reshape(shape).unbind(0) for state in hidden), strict=True)]
        hx, cx = [], []
        for layer, states in zip(self.layers, hidden, strict=True):
            if not self.bidirectional:
                states = [state.reshape(batch, self.hidden_size) for state in states]
            x, (h, c) = layer(x, states)
            hx.append(h)
            cx.append(c)
        shape = self.num_layers * directions, batch, self.hidden_size
        last = torch.stack(hx).reshape(shape), torch.stack(cx).reshape(shape)
        return (x.transpose(0, 1) if self.batch_first else x), last

    @classmethod
    def from_float(cls, other: Any, qconfig: Any = None, split_gates: bool = False) -> Any:
        """The observed layer of an ``nn.LSTM``, for calibration or, if that is in training mode, for training.

        Args:
            other: the layer; its weights are shared.
            qconfig: its configuration, if it has none of its own.
            split_gates: a linear layer for each gate.

        Raises:
            ValueError: the layer has projections (``proj_size``).
        """
        from corsac.quantization.quantize import prepare, prepare_qat

        observed = cls.to_observe(other, qconfig, split_gates)
        observed.train(other.training)
        return (prepare_qat if other.training else prepare)(observed, inplace=True)

    @classmethod
    def to_observe(cls, other: Any, qconfig: Any = None, split_gates: bool = False) -> Any:
        """:meth:`from_float` without observers."""
        if not isinstance(other, cls._FLOAT_MODULE):
            raise AssertionError(f"expected an LSTM, got {type(other).__name__}")
        if not hasattr(other, "qconfig") and not qconfig:
            raise AssertionError("expected an LSTM with a qconfig, or a qconfig")
        if other.proj_size:
            raise ValueError(
                f"expected an LSTM without projections, got one with proj_size {other.proj_size}"
            )
        observed = cls(
            other.input_size,
            other.hidden_size,
            other.num_layers,
            other.bias,
            other.batch_first,
            other.dropout,
            other.bidirectional,
            "meta",
            split_gates=split_gates,
        )
        observed.qconfig = getattr(other, "qconfig", qconfig)

        def cell(suffix: str) -> LSTMCell:
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            parts = [getattr(other, f"{name}_{suffix}", None) for name in names]
            return LSTMCell.from_params(*parts, split_gates=split_gates)  # type: ignore[arg-type]

        for number in range(other.num_layers):
            backwards = cell(f"l{number}_reverse") if other.bidirectional else None
            observed.layers[number] = _LSTMLayer(cell(f"l{number}"), backwards)
            observed.layers[number].qconfig = observed.qconfig
        return observed

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        raise NotImplementedError(
            "a quantizable LSTM is made of a float one by from_float; corsac.quantization.quantized.static.LSTM is made "
            "of an observed one"
        )
