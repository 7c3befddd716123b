"""Layers whose weights are integers."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from corsac.quantization.quantized._steps import WeightSteps


def out_dtype(dtype: torch.dtype) -> dict[str, torch.dtype]:
    """The argument of dequantisation for a type of floats; float32 needs none."""
    return {} if dtype == torch.float32 else {"out_dtype": dtype}


class QuantisedWeight:
    """A layer whose parameter ``weight`` is a buffer of integers, with buffers ``weight_scale`` and
    ``weight_zero_point`` for each channel; it computes as the float layer does with :meth:`dequantised`. Or the buffer
    is of half precision, and has no steps.

    Attributes:
        axis: the dimension of the channels.
        quant_min: the smallest integer.
        quant_max: the largest integer.
        float_dtype: the type of the weight as floats.
    """

    #: The float class, which makes the arguments of the layer.
    _float: ClassVar[type[nn.Module]]
    #: The dimension of the output channels.
    _output_axis: ClassVar[int] = 0

    weight: Tensor
    weight_scale: Tensor | None
    weight_zero_point: Tensor | None
    axis: int
    quant_min: int
    quant_max: int
    float_dtype: torch.dtype

    @classmethod
    def from_float(cls, layer: nn.Module, steps: WeightSteps | None) -> Any:
        """The layer with its weight in these steps, or in half precision; other parameters are shared."""
        made: Any = cls.__new__(cls)
        nn.Module.__init__(made)
        for name, value in vars(layer).items():
            if name not in vars(made) and name != "qconfig":
                setattr(made, name, value)
        made.training = layer.training
        for name, parameter in layer._parameters.items():
            if name != "weight":
                made.register_parameter(name, parameter)
        weight: Any = layer.weight
        made.set_weight(steps, weight)
        return made

    def set_weight(self, steps: WeightSteps | None, weight: Tensor) -> None:
        """Quantise ``weight``, floats, in these steps, or round it to half precision."""
        owner: Any = self
        self.float_dtype = weight.dtype
        if steps is None:
            owner.register_buffer("weight", weight.detach().to(torch.float16))
            owner.register_buffer("weight_scale", None)
            owner.register_buffer("weight_zero_point", None)
            return
        steps = steps.expanded(weight, self._output_axis)
        self.axis, self.quant_min, self.quant_max = steps.axis, steps.quant_min, steps.quant_max
        owner.register_buffer("weight", steps.quantise(weight))
        owner.register_buffer("weight_scale", steps.scales.clone())
        owner.register_buffer("weight_zero_point", steps.zero_points.clone())

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        from corsac.quantization.torch_ao._states import unpack_layer

        unpack_layer(state_dict, prefix, self._output_axis)
        owner: Any = super()
        owner._load_from_state_dict(state_dict, prefix, *rest)

    def dequantised(self) -> Tensor:
        """The weight as floats."""
        if self.weight_scale is None:
            return self.weight.to(self.float_dtype)
        return torch.ops.corsac.dequantize_per_channel(
            self.weight,
            self.weight_scale,
            self.weight_zero_point,
            self.axis,
            self.quant_min,
            self.quant_max,
            self.weight.dtype,
            **out_dtype(self.float_dtype),
        )

    def extra_repr(self) -> str:
        described: Any = self._float.extra_repr
        return f"{described(self)}, weight={str(self.weight.dtype).removeprefix('torch.')}"
