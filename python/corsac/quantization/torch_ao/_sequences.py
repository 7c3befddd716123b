"""LSTM and attention of static quantisation of torch.ao, which hold quantised layers, as those of this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from corsac._pytorch.quantised_parts import place
from corsac.quantization._dtypes import UNDERLYING, full_range
from corsac.quantization.quantizable._recurrent import LSTMCell, _LSTMLayer, _States
from corsac.quantization.quantized import QFunctional, static
from corsac.quantization.quantized._output import RoundedOutput, rounded_to
from corsac.quantization.torch_ao._layers import bases, linear_shell
from corsac.quantization.torch_ao._values import Steps
from corsac.quantization.torch_ao._weights import UnreadableError, constant, filled

#: Classes of modules whose results are tuples.
SEQUENCES = ("LSTM", "MultiheadAttention")
#: Scale and zero point that PyTorch's kernels give results of a known range, as unsigned bytes.
_FIXED = {"Sigmoid": (1 / 256, 0), "Tanh": (2 / 256, 128)}


@dataclass
class Sequence:
    """A module whose result is a tuple of values of a quantised type.

    Attributes:
        layer: computes the results as floats in these steps.
        result: the steps of the first result.
        rest: those of the states of an LSTM, or of the weights of attention.
    """

    layer: nn.Module
    result: Steps
    rest: tuple[Steps, ...]


class _Layer(_LSTMLayer):
    """A layer of two directions, whose results are in the steps of the first one, as PyTorch joins them."""

    def forward(self, x: Tensor, hidden: Any) -> tuple[Tensor, _States]:
        result, (h, c) = super().forward(x, hidden)
        cell = self.layer_fw.cell
        h, c = cell.ogate_cy.rounded(h), cell.fgate_cx_igate_cgate.rounded(c)
        return cell.ogate_cy.rounded(result), (h, c)


class LSTM(static.LSTM):
    """An LSTM with last states in the steps of those of the first layer, as PyTorch joins them."""

    def forward(self, x: Tensor, hidden: Any = None) -> tuple[Tensor, _States]:
        result, (h, c) = super().forward(x, hidden)
        cell = self.layers[0].layer_fw.cell
        return result, (cell.ogate_cy.rounded(h), cell.fgate_cx_igate_cgate.rounded(c))


def sequence(path: str, module: Any, dtype: torch.dtype) -> Sequence:
    """An LSTM or attention as a module of this package.

    Args:
        path: the path of the module, for errors.
        module: the module of torch.ao.
        dtype: the quantised type of its inputs, and so of its results.

    Raises:
        UnreadableError: a part of it has no counterpart.
    """
    read = _lstm if "LSTM" in bases(module) else _attention
    return read(path, module, dtype)


def _lstm(path: str, module: Any, dtype: torch.dtype) -> Sequence:
    first = module.layers[0].layer_fw.cell
    made = LSTM(
        module.input_size,
        module.hidden_size,
        module.num_layers,
        module.bias,
        module.batch_first,
        0.0,
        module.bidirectional,
        "meta",
    )
    for number, layer in enumerate(module.layers):
        where = f"{path}.layers.{number}"
        forwards = _cell(f"{where}.layer_fw.cell", layer.layer_fw.cell, dtype)
        if module.bidirectional:
            backwards = _cell(f"{where}.layer_bw.cell", layer.layer_bw.cell, dtype)
            made.layers[number] = _Layer(forwards, backwards)
        else:
            made.layers[number] = _LSTMLayer(forwards, None)
    last = module.layers[-1].layer_fw.cell
    states = _steps(first.ogate_cy, dtype), _steps(first.fgate_cx_igate_cgate, dtype)
    return Sequence(made.eval(), _steps(last.ogate_cy, dtype), states)


def _cell(path: str, module: Any, dtype: torch.dtype) -> LSTMCell:
    split = isinstance(module.igates, nn.ModuleDict)
    made = LSTMCell(module.input_size, module.hidden_size, module.bias, "meta", split_gates=split)
    _take_parts(made, path, module, dtype)
    return made


def _attention(path: str, module: Any, dtype: torch.dtype) -> Sequence:
    if module.batch_first:
        raise UnreadableError(
            f"{path}: expected attention without batch_first, with which PyTorch's mixes heads and positions"
        )
    made = static.MultiheadAttention(
        module.embed_dim,
        module.num_heads,
        module.dropout,
        module.linear_Q.bias() is not None,
        False,
        module.add_zero_attn,
        module.kdim,
        module.vdim,
        device="meta",
    )
    _take_parts(made, path, module, dtype)
    for name, layer in (("bias_k", module.linear_K), ("bias_v", module.linear_V)):
        bias = getattr(module, name)
        if bias is not None:
            # They are joined with keys and values, in the steps of these.
            own = bias.dequantize().detach()
            setattr(made, name, constant(rounded_to(own, *_steps(layer, dtype).arguments)))
    weights = _steps(module.quant_attn_output_weights, dtype)
    return Sequence(made.eval(), _steps(module.out_proj, dtype), (weights,))


def _steps(module: Any, dtype: torch.dtype) -> Steps:
    return Steps(float(module.scale), int(module.zero_point), dtype)


def _take_parts(made: nn.Module, path: str, module: nn.Module, dtype: torch.dtype) -> None:
    """Replace the modules in ``made`` by those that are in ``module`` under the same names."""
    for name, child in made.named_children():
        own = getattr(module, name)
        if isinstance(child, nn.ModuleDict):
            _take_parts(child, f"{path}.{name}", own, dtype)
        else:
            made._modules[name] = _part(f"{path}.{name}", own, dtype)


def _part(path: str, module: Any, dtype: torch.dtype) -> nn.Module:
    names = bases(module)
    if "Linear" in names and place(module) == "static":
        weight = module.weight()
        return _rounded(
            filled(static.Linear, linear_shell(weight), weight, module.bias()), module, dtype
        )
    if "QFunctional" in names:
        return _rounded(QFunctional(), module, dtype)
    if "Quantize" in names:
        return static.Quantize(float(module.scale), int(module.zero_point), module.dtype)
    if "DeQuantize" in names:
        return static.DeQuantize()
    for name, (scale, zero_point) in _FIXED.items():
        if name not in names:
            continue
        zero_point += full_range(dtype)[0]
        own = (
            getattr(module, "output_scale", scale),
            getattr(module, "output_zero_point", zero_point),
        )
        if own != (scale, zero_point):
            raise UnreadableError(
                f"{path}: expected results with scale {scale} and zero point {zero_point}, got {own}"
            )
        return getattr(nn, name)()
    raise UnreadableError(
        f"{path}: expected a quantised module that can be read, got {type(module).__module__}.{type(module).__name__}"
    )


def _rounded(made: Any, module: Any, dtype: torch.dtype) -> RoundedOutput:
    """A module with results in the steps of another's."""
    steps = _steps(module, dtype)
    made.scale, made.zero_point = steps.scale, steps.zero_point
    made.output_min, made.output_max = full_range(dtype)
    made.output_dtype = UNDERLYING[dtype]
    return made.eval()
