"""Observers of an exported graph replaced by operators that quantise and dequantise."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from corsac.quantization import _operators  # noqa: F401  registers torch.ops.corsac
from corsac.quantization._conversion import CalibrationError, saw_nothing
from corsac.quantization._dtypes import UNDERLYING
from corsac.quantization._kinds import is_activation_post_process
from corsac.quantization._qparams import PER_CHANNEL
from corsac.quantization.pt2e._constants import Constants
from corsac.quantization.pt2e._nodes import attribute, described
from corsac.quantization.pt2e._observers import device_of

corsac = torch.ops.corsac
_CHOICES = {
    torch.per_tensor_affine: corsac.choose_qparams.tensor,
    torch.per_tensor_symmetric: corsac.choose_qparams_symmetric.tensor,
}
#: Operators that compute parameters from a value.
CHOOSE = frozenset(_CHOICES.values())
#: Operators that dequantise.
DEQUANTISE = frozenset(
    [
        corsac.dequantize_per_tensor.default,
        corsac.dequantize_per_tensor.tensor,
        corsac.dequantize_per_channel.default,
    ]
)


class Conversion:
    """Conversion of the observers of a graph module, which is changed.

    Args:
        model: the graph module, of which modules are those of the prepared model.
        scopes: the module of each node of the graph that was prepared, by name.
    """

    def __init__(self, model: Any, scopes: dict[str, str]) -> None:
        self._model, self._graph, self._scopes = model, model.graph, scopes
        self._device = device_of(model)
        modules = {
            node: attribute(model, node.target)
            for node in self._graph.nodes
            if node.op == "call_module"
        }
        self._observers = {
            node: module for node, module in modules.items() if is_activation_post_process(module)
        }

    def run(self) -> None:
        """Replace them all."""
        self._observe_constants()
        self._require_calibration()
        for node, observer in self._observers.items():
            if hasattr(observer, "convert"):
                observer.convert(self._model, node)
            else:
                self._replace(node, observer)

    def _observe_constants(self) -> None:
        """Show weights to observers that have not seen them: no example inputs are needed for that."""
        blind = {node: one for node, one in self._observers.items() if saw_nothing(one)}
        if not blind:
            return
        constants = Constants(self._model, self._observers)
        for node, observer in blind.items():
            value = constants.value(node.args[0])
            if value is not None:
                with torch.no_grad():
                    observer(value)

    def _require_calibration(self) -> None:
        blind = [node for node, one in self._observers.items() if saw_nothing(one)]
        if blind:
            shown = ", ".join(described(_observed(node)) for node in blind[:8])
            rest = f" and {len(blind) - 8} more" if len(blind) > 8 else ""
            raise CalibrationError(
                f"{len(blind)} of {len(self._observers)} observers have seen no values: those of {shown}{rest}; run "
                "the prepared model on example inputs before it is converted"
            )

    def _replace(self, node: Any, observer: Any) -> None:
        value = node.args[0]
        with self._graph.inserting_before(node):
            result = self._converted(node, observer, value)
        node.replace_all_uses_with(result)
        self._graph.erase_node(node)

    def _converted(self, node: Any, observer: Any, value: Any) -> Any:
        """The replacement of the value that an observer passes on."""
        dtype = observer.dtype
        plain = UNDERLYING.get(dtype)
        if getattr(observer, "is_dynamic", False):
            if plain not in (torch.uint8, torch.int8):
                raise ValueError(
                    f"{described(_observed(node))}: expected a type of 8 bits to quantise at each call, got {dtype}"
                )
            return self._dynamic(observer, value, plain)
        if dtype == torch.float16:
            convert = torch.ops.aten.to.dtype
            half = self._graph.call_function(convert, (value, torch.float16))
            return self._graph.call_function(convert, (half, torch.float32))
        if plain is None:
            return value
        bounds = (observer.quant_min, observer.quant_max, plain)
        scale, zero_point = observer.calculate_qparams()
        if observer.qscheme in PER_CHANNEL:
            scope = self._scopes.get(value.name, "")
            parameters: tuple[Any, ...] = (
                self._buffer(f"{scope}_scale_", scale),
                self._buffer(f"{scope}_zero_point_", zero_point),
                int(observer.ch_axis),
                *bounds,
            )
            pair = (corsac.quantize_per_channel.default, corsac.dequantize_per_channel.default)
        else:
            parameters = (float(scale), int(zero_point), *bounds)
            pair = (corsac.quantize_per_tensor.default, corsac.dequantize_per_tensor.default)
        return self._pair(pair, value, parameters)

    def _dynamic(self, observer: Any, value: Any, plain: torch.dtype) -> Any:
        qscheme = getattr(observer, "qscheme", None) or torch.per_tensor_affine
        eps = float(getattr(observer, "eps", torch.finfo(torch.float32).eps))
        low, high = observer.quant_min, observer.quant_max
        if low is None or high is None:
            limits = torch.iinfo(plain)
            low, high = limits.min, limits.max
        chosen = self._graph.call_function(_CHOICES[qscheme], (value, low, high, eps, plain))
        items = [self._graph.call_function(operator.getitem, (chosen, own)) for own in (0, 1)]
        pair = (corsac.quantize_per_tensor.tensor, corsac.dequantize_per_tensor.tensor)
        return self._pair(pair, value, (*items, low, high, plain))

    def _pair(self, pair: tuple[Any, Any], value: Any, parameters: tuple[Any, ...]) -> Any:
        """A quantised value, dequantised to its type."""
        quantised = self._graph.call_function(pair[0], (value, *parameters))
        own = value.meta.get("val")
        keywords = (
            {"out_dtype": own.dtype}
            if isinstance(own, Tensor) and own.dtype != torch.float32
            else {}
        )
        return self._graph.call_function(pair[1], (quantised, *parameters), keywords)

    def _buffer(self, prefix: str, value: Tensor) -> Any:
        prefix, number = prefix.replace(".", "_"), 0
        while hasattr(self._model, f"{prefix}{number}"):
            number += 1
        name = f"{prefix}{number}"
        own = value.detach().clone()
        self._model.register_buffer(name, own if self._device is None else own.to(self._device))
        return self._graph.get_attr(name)


def _observed(node: Any) -> Any:
    """The value that an observer sees."""
    return node.args[0]
