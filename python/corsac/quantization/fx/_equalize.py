"""Equalisation of inputs and weights: channels of an input are scaled to the ranges of the weights that they meet.

An input channel with a small range, next to one with a large one, has few steps of a common scale. Input channel ``c``
is multiplied by ``sqrt(range of weight column c / range of input channel c)``, and the weight column divided by it.
The names are those of ``torch.ao.quantization.fx._equalize``.
"""

from __future__ import annotations

import warnings
from collections import namedtuple
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corsac.quantization import _dtypes
from corsac.quantization._kinds import is_a
from corsac.quantization._qparams import check_min_max_valid
from corsac.quantization.observer import PerChannelMinMaxObserver, _with_args
from corsac.quantization.qconfig_mapping import QConfigMapping

__all__ = [
    "EqualizationQConfig",
    "default_equalization_qconfig",
    "get_default_equalization_qconfig_mapping",
    "get_equalization_qconfig_dict",
    "get_layer_sqnr_dict",
    "input_equalization_observer",
    "weight_equalization_observer",
]

_PER_CHANNEL = {
    torch.per_tensor_affine: torch.per_channel_affine,
    torch.per_tensor_symmetric: torch.per_channel_symmetric,
}


class _ColumnObserver(nn.Module):
    """An observer of the ranges of columns; the scale of each is set when a model is converted."""

    def __init__(self, dtype: torch.dtype, qscheme: torch.qscheme) -> None:
        super().__init__()
        self.dtype, self.qscheme = dtype, qscheme
        self.equalization_scale = torch.tensor(1)

    with_args = classmethod(_with_args)

    def _columns(self) -> PerChannelMinMaxObserver:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Record the ranges of the columns of ``x``, of 2 to 5 dimensions; ``x`` is returned."""
        if not 2 <= x.ndim <= 5:
            raise ValueError(
                f"{type(self).__name__}: expected 2 to 5 dimensions, as linear layers and convolutions take, "
                f"got {x.ndim}"
            )
        return self._columns()(x)


class _InputEqualizationObserver(_ColumnObserver):
    """The ranges of the channels of an input, of which dimension 1 is the channels.

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """

    def __init__(
        self,
        dtype: torch.dtype = _dtypes.quint8,
        qscheme: torch.qscheme = torch.per_tensor_affine,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if qscheme not in _PER_CHANNEL:
            raise TypeError(
                f"{type(self).__name__}: expected a qscheme per tensor for inputs, got {qscheme}"
            )
        super().__init__(dtype, qscheme)
        self.input_obs = PerChannelMinMaxObserver(
            ch_axis=1,
            dtype=dtype,
            qscheme=_PER_CHANNEL[qscheme],
            quant_min=quant_min,
            quant_max=quant_max,
            factory_kwargs=factory_kwargs,
        )
        self.equalization_shape: list[int] = []

    def _columns(self) -> PerChannelMinMaxObserver:
        return self.input_obs

    def forward(self, x_orig: Tensor) -> Tensor:
        seen = super().forward(x_orig)
        self.equalization_shape = [1] * x_orig.ndim
        axis = self.input_obs.ch_axis
        self.equalization_shape[axis] = x_orig.size(axis)
        return seen

    def get_input_minmax(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest value of each channel."""
        return self.input_obs.min_val, self.input_obs.max_val

    def set_equalization_scale(self, equalization_scale: Tensor) -> None:
        """Set the factors of channels, in a shape that broadcasts to the input."""
        if not is_identity(equalization_scale):
            self.equalization_scale = equalization_scale.reshape(self.equalization_shape)

    def calculate_scaled_minmax(self) -> tuple[Tensor | None, Tensor | None]:
        """The smallest and the largest value of the input that is multiplied by the factors."""
        if is_identity(self.equalization_scale):
            warnings.warn(
                f"{type(self).__name__}: there are no factors yet, the observer behind it keeps its range",
                stacklevel=2,
            )
            return None, None
        factors = self.equalization_scale.flatten()
        low, high = (bound * factors for bound in self.get_input_minmax())
        return low.min(), high.max()


class _WeightEqualizationObserver(_ColumnObserver):
    """The ranges of the columns of a weight, of which dimension 1 is the input channels.

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """

    def __init__(
        self,
        dtype: torch.dtype = _dtypes.qint8,
        qscheme: torch.qscheme = torch.per_tensor_affine,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(dtype, qscheme)
        self.ch_axis = 1
        self.weight_col_obs = PerChannelMinMaxObserver(
            ch_axis=1,
            dtype=dtype,
            qscheme=_PER_CHANNEL.get(qscheme, qscheme),
            quant_min=quant_min,
            quant_max=quant_max,
            factory_kwargs=factory_kwargs,
        )

    def _columns(self) -> PerChannelMinMaxObserver:
        return self.weight_col_obs

    def get_weight_col_minmax(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest value of each column."""
        return self.weight_col_obs.min_val, self.weight_col_obs.max_val

    def set_equalization_scale(self, equalization_scale: Tensor) -> None:
        """Set the divisors of columns."""
        self.equalization_scale = equalization_scale


def is_identity(scale: Tensor) -> bool:
    """Whether factors are the number 1: nothing is equalised."""
    return scale.nelement() == 1 and bool(scale == 1)


def calculate_equalization_scale(input_obs: Any, weight_obs: Any) -> Tensor:
    """The factors of channels, [channels], for the ranges that two observers have seen; 1 where a range is empty.

    Raises:
        ValueError: the input has another number of channels than the weight has columns.
    """
    inputs, weights = input_obs.get_input_minmax(), weight_obs.get_weight_col_minmax()
    if not (check_min_max_valid(*inputs) and check_min_max_valid(*weights)):
        warnings.warn(
            "equalisation: observers have seen no values, the input keeps its scale", stacklevel=2
        )
        return torch.tensor(1)
    if inputs[0].shape != weights[0].shape:
        raise ValueError(
            f"expected inputs with as many channels as the weight has columns, {weights[0].numel()}, "
            f"got {inputs[0].numel()}"
        )
    factors = torch.sqrt((weights[1] - weights[0]) / (inputs[1] - inputs[0]))
    factors[factors == 0] = 1
    return torch.nan_to_num(factors, nan=1, posinf=1, neginf=1)


class EqualizationQConfig(namedtuple("EqualizationQConfig", ["input_activation", "weight"])):
    """Constructors of observers for the inputs and the weights of layers to equalise.

    https://docs.pytorch.org/docs/stable/torch.ao.quantization.html
    """

    __slots__ = ()

    def __new__(
        cls, input_activation: Any = nn.Identity, weight: Any = nn.Identity
    ) -> EqualizationQConfig:
        for constructor in (input_activation, weight):
            if isinstance(constructor, nn.Module):
                raise ValueError(
                    f"{cls.__name__}: expected a constructor of observers, got an instance of "
                    f"{type(constructor).__name__}; arguments are given by with_args"
                )
        return super().__new__(cls, input_activation, weight)


input_equalization_observer = _InputEqualizationObserver.with_args(
    dtype=_dtypes.quint8, qscheme=torch.per_tensor_symmetric
)
weight_equalization_observer = _WeightEqualizationObserver.with_args(
    dtype=_dtypes.qint8, qscheme=torch.per_channel_symmetric
)
default_equalization_qconfig = EqualizationQConfig(
    input_equalization_observer, weight_equalization_observer
)


def get_default_equalization_qconfig_mapping() -> QConfigMapping:
    """The mapping that equalises every layer that can be."""
    return QConfigMapping().set_global(default_equalization_qconfig)  # type: ignore[arg-type]


_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_FUSED = ("LinearReLU", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d")
_FUNCTIONS = (F.linear, F.conv1d, F.conv2d, F.conv3d)


def fused_module_supports_equalization(module: Any) -> bool:
    """Whether a layer with ReLU can be equalised."""
    return type(module).__name__ in _FUSED and is_a(module, "_FusedModule")


def nn_module_supports_equalization(module: Any) -> bool:
    """Whether a layer of ``torch.nn`` can be equalised."""
    return type(module) in _LAYERS


def node_supports_equalization(node: Any, modules: dict[str, Any]) -> bool:
    """Whether a node calls a linear layer or a convolution, as a module or as a function."""
    if node.op == "call_module":
        module = modules[str(node.target)]
        return nn_module_supports_equalization(module) or fused_module_supports_equalization(module)
    return node.op == "call_function" and node.target in _FUNCTIONS


def is_equalization_observer(observer: Any) -> bool:
    """Whether a module records the ranges of columns."""
    return is_a(observer, "_InputEqualizationObserver", "_WeightEqualizationObserver")


def get_layer_sqnr_dict(model_a: nn.Module, model_b: nn.Module, x: Tensor) -> dict[str, float]:
    """The signal-to-noise ratio of each layer of ``model_b`` against ``model_a`` on ``x``, by path, in decibels."""
    from corsac.quantization import ns
    from corsac.quantization.ns._operations import unmatchable_types

    # Models that are equalised multiply their inputs.
    ignored = unmatchable_types()
    ignored["funs_unmatchable"].add(torch.mul)
    loggers = ns.add_loggers(
        "fp32", model_a, "int8", model_b, ns.OutputLogger, unmatchable_types_map=ignored
    )
    for model in loggers:
        model(x)
    found = ns.extract_logger_info(*loggers, ns.OutputLogger, "int8")
    ns.extend_logger_results_with_comparison(found, "fp32", "int8", ns.compute_sqnr, "sqnr")
    last = [layer["node_output"]["int8"][0] for layer in found.values()]
    return {layer["fqn"]: layer["sqnr"][0] for layer in last}


def get_equalization_qconfig_dict(
    layer_sqnr_dict: dict[str, float], num_layers_to_equalize: int
) -> dict[str, Any]:
    """The dictionary of a mapping that equalises the layers with the lowest ratios."""
    worst = sorted(layer_sqnr_dict, key=lambda name: layer_sqnr_dict[name])[:num_layers_to_equalize]
    return {"module_name": [(name, default_equalization_qconfig) for name in worst]}
