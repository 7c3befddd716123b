"""Quantised modules of torch.ao as modules of this package, and what is done with their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corsac._pytorch.quantised_parts import place
from corsac.quantization import quantized
from corsac.quantization.quantized import dynamic
from corsac.quantization.quantized._output import same_parts
from corsac.quantization.quantized._steps import WeightSteps
from corsac.quantization.torch_ao import _dynamic
from corsac.quantization.torch_ao._weights import (
    UnreadableError,
    constant,
    filled,
    integers_of,
    packed_steps,
    reference_steps,
    steps_of,
)


@dataclass
class StaticLayer:
    """A module whose result is of a quantised type.

    Attributes:
        layer: computes the result as floats.
        after: a function of that, before it is rounded.
        steps: scale and zero point of the result; None for those of the input.
        adds: whether the module has a second input, which is added.
    """

    layer: nn.Module
    after: Callable[..., Any] | None
    steps: tuple[float, int] | None
    adds: bool = False


def bases(module: nn.Module) -> list[str]:
    """The names of the classes of a module, the nearest first."""
    return [base.__name__ for base in type(module).__mro__]


def linear_shell(weight: Tensor) -> nn.Module:
    """A linear layer of the size of a weight, on the meta device."""
    return nn.Linear(weight.shape[1], weight.shape[0], device="meta")


def _convolution_shell(module: Any, kind: Any) -> nn.Module:
    arguments = {
        name: getattr(module, name)
        for name in ("stride", "padding", "dilation", "groups", "padding_mode")
    }
    if module.transposed:
        arguments["output_padding"] = module.output_padding
    return kind(
        module.in_channels, module.out_channels, module.kernel_size, device="meta", **arguments
    )


_CONVOLUTIONS = tuple(f"Conv{kind}{rank}d" for kind in ("", "Transpose") for rank in (1, 2, 3))


def weighted(module: Any) -> tuple[str, nn.Module] | None:
    """The name of the float class of a linear layer or a convolution of torch.ao, and a float layer like it."""
    names = bases(module)
    if "Linear" in names:
        return "Linear", linear_shell(module.weight())
    for name in _CONVOLUTIONS:
        if name in names:
            return name, _convolution_shell(module, getattr(nn, name))
    return None


def _steps(module: Any) -> tuple[float, int]:
    return float(module.scale), int(module.zero_point)


#: Functions behind the layers of fused modules, by the beginning of the rest of the name.
_AFTER: dict[str, Callable[..., Any]] = {
    "LeakyReLU": F.leaky_relu,
    "ReLU": F.relu,
    "Tanh": torch.tanh,
}


def _after(module: Any, name: str) -> Callable[..., Any] | None:
    for base in bases(module):
        for end, function in _AFTER.items():
            if base.startswith((name[:-2] if name[-1] == "d" else name, "BN")) and end in base:
                return function
    return None


def static_layer(path: str, module: Any) -> StaticLayer:
    """A static module, other than those that convert, as floats and steps.

    Raises:
        UnreadableError: it has no counterpart.
    """
    found = weighted(module)
    if found is not None:
        name, shell = found
        layer = filled(getattr(quantized, name), shell, module.weight(), module.bias())
        adds = any(base.startswith("ConvAdd") for base in bases(module))
        return StaticLayer(layer, _after(module, name), _steps(module), adds)
    names = bases(module)
    for name in _FLOATS:
        if name in names:
            kind = getattr(nn, name)
            made = _without_gradients(same_parts(kind, module))
            for left in ("scale", "zero_point"):
                made._buffers.pop(left, None)
                vars(made).pop(left, None)
            after = F.relu if any(base.startswith("BNReLU") for base in names) else None
            return StaticLayer(made, after, _steps(module))
    if "Sigmoid" in names:
        steps = float(module.output_scale), int(module.output_zero_point)
        return StaticLayer(nn.Sigmoid(), None, steps)
    if "PReLU" in names:
        made = nn.PReLU(module.num_parameters, device="meta")
        made.weight = constant(module.weight.dequantize())
        return StaticLayer(made, None, _steps(module))
    if "ReLU6" in names:
        return StaticLayer(nn.ReLU6(), None, None)
    if "Dropout" in names:
        return StaticLayer(nn.Identity(), None, None)
    raise UnreadableError(
        f"{path}: expected a quantised module that can be read, got {type(module).__module__}.{type(module).__name__}"
    )


#: Modules that compute as the class of torch.nn, with results in steps of their own.
_FLOATS = (
    "BatchNorm2d",
    "BatchNorm3d",
    "LayerNorm",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "Hardswish",
    "ELU",
    "LeakyReLU",
    "Softmax",
)


def _without_gradients(module: nn.Module) -> nn.Module:
    for name, parameter in module._parameters.items():
        module._parameters[name] = constant(parameter)
    return module.eval()


def float_layer(path: str, module: Any, per_row: bool) -> nn.Module:
    """A dynamic, reference or embedding module, whose inputs and results are floats, as a module of this package.

    Raises:
        UnreadableError: it has no counterpart.
    """
    names = bases(module)
    if place(module) == "reference":
        return _reference(path, module, names)
    for name in ("EmbeddingBag", "Embedding"):
        if name in names:
            return _table(name, module)
    if "LSTM" in names or "GRU" in names:
        return _recurrent("LSTM" if "LSTM" in names else "GRU", module)
    for name in ("LSTMCell", "GRUCell", "RNNCell"):
        if name in names:
            return _cell(name, module)
    found = weighted(module)
    if found is None:
        raise UnreadableError(
            f"{path}: expected a quantised module that can be read, got {type(module).__module__}.{type(module).__name__}"
        )
    name, shell = found
    ends_in_relu = "LinearReLU" in names
    kind = getattr(_dynamic, "LinearReLU" if ends_in_relu else name)
    made = filled(kind, shell, module.weight(), module.bias())
    made.per_row = per_row
    # Layers of older files have the whole range; see their forward.
    version = getattr(module, "version", None)
    reduces = name != "Linear" or (version is not None and version >= 4) or ends_in_relu
    made.input_max = 127 if reduces and torch.backends.quantized.engine != "qnnpack" else 255
    return made


def _table(name: str, module: Any) -> nn.Module:
    weight = module.weight()
    if name == "Embedding":
        shell: nn.Module = nn.Embedding(*weight.shape, device="meta")
    else:
        # The operator sums, whatever the mode.
        last = bool(module.include_last_offset)
        shell = nn.EmbeddingBag(*weight.shape, mode="sum", include_last_offset=last, device="meta")
    return filled(getattr(quantized, name), shell, weight, None, packed_steps(weight))


def _with_weights(kind: Any, shell: nn.Module, tensors: dict[str, Tensor]) -> nn.Module:
    """A recurrent layer or cell with these weights, of a quantised type or of half precision, and biases."""
    made = kind.__new__(kind)
    nn.Module.__init__(made)
    for name, value in vars(shell).items():
        if name not in vars(made) and name != "_flat_weights":
            object.__setattr__(made, name, value)
    made.training = False
    made.ranges, made.float_dtype = {}, torch.float32
    for name, value in tensors.items():
        if name.startswith("bias"):
            made.register_parameter(name, constant(value))
        elif not value.is_quantized:
            made.register_buffer(name, value.detach().to(torch.float16))
        else:
            steps = steps_of(value).expanded(value, 0)
            made.ranges[name] = steps.quant_min, steps.quant_max
            made.register_buffer(name, integers_of(value))
            made.register_buffer(f"{name}_scale", steps.scales.clone())
            made.register_buffer(f"{name}_zero_point", steps.zero_points.clone())
    return made


def _recurrent(name: str, module: Any) -> nn.Module:
    shell = getattr(nn, name)(
        module.input_size,
        module.hidden_size,
        module.num_layers,
        module.bias,
        module.batch_first,
        module.dropout,
        module.bidirectional,
        device="meta",
    )
    tensors = {**module.get_weight(), **(module.get_bias() if module.bias else {})}
    return _with_weights(getattr(dynamic, name), shell, tensors)


def _cell(name: str, module: Any) -> nn.Module:
    arguments = {"nonlinearity": module.nonlinearity} if name == "RNNCell" else {}
    shell = getattr(nn, name)(
        module.input_size, module.hidden_size, module.bias, device="meta", **arguments
    )
    tensors = {**module.get_weight(), **(module.get_bias() if module.bias else {})}
    return _with_weights(getattr(_dynamic, name), shell, tensors)


def _reference(path: str, module: Any, names: list[str]) -> nn.Module:
    for name in (
        "LSTM",
        "GRU",
        "LSTMCell",
        "GRUCell",
        "RNNCell",
        "Linear",
        *_CONVOLUTIONS,
        "EmbeddingBag",
        "Embedding",
    ):
        if name not in names:
            continue
        steps = {}
        for own in module._parameters:
            if own.startswith("weight") and hasattr(module, f"{own}_dtype"):
                found = _reference_steps(module, own)
                if found is not None:
                    steps[own] = found
        floats = same_parts(getattr(nn, name), module)
        for own in module._parameters:
            for left in [*floats._buffers, *vars(floats)]:
                if left.startswith(f"{own}_"):
                    delattr(floats, left)
        vars(floats).pop("is_decomposed", None)
        if not steps:
            # Of half precision: reference modules do not round their weights to it.
            return floats
        layer = getattr(quantized, name)
        return layer.from_float(floats, steps.get("weight", steps)).eval()
    raise UnreadableError(
        f"{path}: expected a reference module that can be read, got {type(module).__module__}.{type(module).__name__}"
    )


def _reference_steps(module: Any, name: str) -> WeightSteps | None:
    return reference_steps(
        getattr(module, f"{name}_qscheme"),
        getattr(module, f"{name}_dtype"),
        getattr(module, f"{name}_scale"),
        getattr(module, f"{name}_zero_point"),
        int(getattr(module, f"{name}_axis_int", 0)),
        (getattr(module, f"{name}_quant_min", None), getattr(module, f"{name}_quant_max", None)),
    )
