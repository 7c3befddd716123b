"""Models that torch.ao has quantised, read as models of floats with quantise and dequantise operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, overload

import torch
from torch import nn

from corsac._pytorch.quantised_parts import (
    is_converted,
    is_graph,
    is_static,
    place,
)
from corsac.fx.proxy import TraceError
from corsac.quantization._tracer import QuantizationTracer
from corsac.quantization.torch_ao._graphs import Reader
from corsac.quantization.torch_ao._layers import float_layer
from corsac.quantization.torch_ao._states import plain_state
from corsac.quantization.torch_ao._weights import UnreadableError

_M = TypeVar("_M")


@overload
def from_torch_ao(model: nn.Module, *, per_row: bool = False) -> nn.Module: ...
@overload
def from_torch_ao(model: Mapping[str, Any], *, per_row: bool = False) -> dict[str, Any]: ...
def from_torch_ao(model: Any, *, per_row: bool = False) -> Any:
    """A model that ``torch.ao.quantization`` has converted, as a model with plain integers and operators of this
    package, which :func:`corsac.compile` runs natively; or a state dict of such a model.

    Read are the results of ``convert_fx``, ``convert_to_reference_fx``, ``convert`` and ``quantize_dynamic``. ``model``
    is not changed. Values between layers become floats: also results of the model that are of a quantised type.

    - A model with static layers becomes a graph module, in which each rounding is a node. Its programs have to be ones
      that :func:`corsac.fx.symbolic_trace` takes. Scales, zero points and integers of weights are those of ``model``.
      Levels are those of PyTorch's kernels, but for numbers that are between two of them to the precision of
      float32: there, some are the neighbour.
    - Dynamic, reference and embedding layers are replaced, and the rest of the model stays as it is. Recurrent layers
      compute with rounded weights on floats, where PyTorch's kernels round the inputs of their products as well.

    Args:
        model: the model, or a state dict.
        per_row: whether dynamic linear layers round each row in steps of its own, as this package does, which is
            more accurate and faster than one range for the whole input, as PyTorch's kernels have it.

    Returns:
        The model; ``model`` itself if nothing in it is quantised. For a state dict, one with tensors of plain types,
        named as those of the model that is read.

    Raises:
        UnreadableError: a part of the model cannot be read; the message names it.
        TypeError: ``model`` is none.
    """
    if isinstance(model, Mapping):
        return plain_state(model)
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a module or a state dict, got {type(model).__name__}")
    if not is_converted(model):
        return model
    with torch.no_grad():
        return _Models(per_row).read("", model)


class _Models:
    def __init__(self, per_row: bool) -> None:
        self._per_row = per_row
        self._made: dict[int, nn.Module] = {}

    def read(self, path: str, module: Any) -> nn.Module:
        """A module without parts of torch.ao."""
        found = self._made.get(id(module))
        if found is None:
            found = self._made[id(module)] = self._anew(path, module)
        return found

    def _anew(self, path: str, module: Any) -> nn.Module:
        where = place(module)
        if where in ("dynamic", "reference"):
            return float_layer(path, module, self._per_row)
        if not is_converted(module):
            return module
        if is_graph(module):
            return self._graph(path, module)
        if is_static(module):
            return self._traced(path, module)
        return self._with_parts(path, module)

    def _graph(self, path: str, module: Any) -> nn.Module:
        def read(own: str, child: nn.Module) -> nn.Module:
            return self.read(f"{path}.{own}" if path else own, child)

        return Reader(self._per_row, read).module(module)

    def _traced(self, path: str, module: nn.Module) -> nn.Module:
        """A static module by its graph; if it has none, by those of its parts."""
        traced = _Traced(module)
        if traced.reason is None:
            return self._graph(path, traced)
        why = (
            f"{path or 'the model'}: expected a model that symbolic_trace takes, as values between static layers are "
            f"of quantised types, got {type(module).__name__}: {traced.reason}"
        )
        if place(module) or not any(is_static(child) for child in module.children()):
            raise UnreadableError(why)
        try:
            return self._with_parts(path, module)
        except UnreadableError as error:
            raise UnreadableError(f"{why}; and of a part of it: {error}") from error

    def _with_parts(self, path: str, module: nn.Module) -> nn.Module:
        """A copy of a module, with the same parameters, and with parts that were read."""
        made: Any = type(module).__new__(type(module))
        # With the same containers, which calls and users may write to. Only the parts are others.
        vars(made).update(vars(module), _modules=module._modules.copy())
        for name, child in module.named_children():
            made._modules[name] = self.read(f"{path}.{name}" if path else name, child)
        _keep_from_fast_paths(made)
        return made


def _keep_from_fast_paths(module: nn.Module) -> None:
    """Keep a transformer from PyTorch's fused operators and nested tensors, which take float weights."""
    if isinstance(module, nn.TransformerEncoderLayer):
        module.activation_relu_or_gelu = 0
    elif isinstance(module, nn.TransformerEncoder):
        module.enable_nested_tensor = module.use_nested_tensor = False


class _Traced:
    """A module with its graph, or with the reason why it has none."""

    def __init__(self, module: nn.Module) -> None:
        self._module, self.name = module, type(module).__name__
        self.reason: str | None = None
        try:
            self.graph = QuantizationTracer().trace(module)
        except (
            TraceError,
            TypeError,
            RuntimeError,
            ValueError,
            AttributeError,
            NotImplementedError,
        ) as error:
            self.reason = str(error).partition("\n")[0]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
