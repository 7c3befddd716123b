"""Rounding of the results of layers to the steps of a quantised type."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from corsac.quantization import _operators  # noqa: F401  registers torch.ops.corsac
from corsac.quantization._dtypes import UNDERLYING


def rounded_to(
    value: Tensor, scale: float, zero_point: int, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    """``value``, quantised and dequantised: a float in whole steps."""
    bounds = scale, zero_point, low, high, dtype
    corsac = torch.ops.corsac
    return corsac.dequantize_per_tensor(corsac.quantize_per_tensor(value, *bounds), *bounds)


class RoundedOutput:
    """A module with results that are quantised and dequantised: floats that are ``(q - zero_point) * scale``.

    ``scale`` and ``zero_point`` are entries of its state dict, as those of PyTorch's quantised modules are.

    Attributes:
        scale: the step; None where results are not rounded.
        zero_point: the integer that is zero.
        output_min: the smallest integer.
        output_max: the largest integer.
        output_dtype: the type of the integers.
    """

    scale: float | None
    zero_point: int
    output_min: int
    output_max: int
    output_dtype: torch.dtype

    def set_output(self, observer: Any) -> None:
        """Take the steps of what an observer, or a fake quantiser, has seen; none of one that observes no range.

        Raises:
            ValueError: parameters are per channel, or change with each call, or the type is none of integers.
        """
        name = type(self).__name__
        self.scale, self.zero_point, self.output_min, self.output_max = None, 0, 0, 0
        self.output_dtype = torch.float32
        if isinstance(observer, nn.Identity) or getattr(observer, "dtype", None) == torch.float32:
            return
        if observer is None:
            raise ValueError(f"{name}: expected a module with an observer, which prepare adds")
        if getattr(observer, "is_dynamic", False):
            raise ValueError(
                f"{name}: expected an observer of static quantisation, got {type(observer).__name__} with is_dynamic"
            )
        dtype = UNDERLYING.get(observer.dtype)
        if dtype is None or dtype.is_floating_point:
            raise ValueError(
                f"{name}: expected results of a type of integers, got {observer.dtype}"
            )
        scales, zero_points = observer.calculate_qparams()
        if scales.numel() != 1:
            raise ValueError(f"{name}: expected one scale of results, got {scales.numel()}")
        self.scale, self.zero_point = float(scales), int(zero_points)
        self.output_min, self.output_max = int(observer.quant_min), int(observer.quant_max)
        inner = getattr(observer, "activation_post_process", observer)
        if getattr(inner, "reduce_range", False):
            # The range was halved for the sake of the scale. Values beyond it are kept, as PyTorch's kernels do.
            self.output_min, self.output_max = 2 * self.output_min, 2 * self.output_max + 1
        self.output_dtype = dtype

    def rounded(self, value: Tensor) -> Tensor:
        """A result in the steps."""
        if self.scale is None:
            return value
        return rounded_to(
            value,
            self.scale,
            self.zero_point,
            self.output_min,
            self.output_max,
            self.output_dtype,
        )

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        owner: Any = super()
        owner._save_to_state_dict(destination, prefix, keep_vars)
        if self.scale is not None:
            destination[prefix + "scale"] = torch.tensor(self.scale)
            destination[prefix + "zero_point"] = torch.tensor(self.zero_point)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        if self.scale is not None:
            _, _, missing, *_ = rest
            for name, kind in (("scale", float), ("zero_point", int)):
                if prefix + name in state_dict:
                    setattr(self, name, kind(state_dict.pop(prefix + name)))
                else:
                    missing.append(prefix + name)
        owner: Any = super()
        owner._load_from_state_dict(state_dict, prefix, *rest)

    def _described_output(self) -> str:
        return "" if self.scale is None else f", scale={self.scale}, zero_point={self.zero_point}"


def same_parts(kind: type[nn.Module], mod: nn.Module, *without: str) -> Any:
    """A module of class ``kind`` with the attributes, parameters, buffers and modules of another, which are shared.

    Args:
        kind: the class.
        mod: the module.
        without: names of modules that are left out.
    """
    made: Any = kind.__new__(kind)
    nn.Module.__init__(made)
    for name, value in vars(mod).items():
        if name not in vars(made) and name != "qconfig":
            object.__setattr__(made, name, value)
    made.training = mod.training
    for name, value in mod._parameters.items():
        made.register_parameter(name, value)
    for name, value in mod._buffers.items():
        made.register_buffer(name, value, name not in mod._non_persistent_buffers_set)
    left_out = ("activation_post_process", "weight_fake_quant", *without)
    for name, value in mod._modules.items():
        if name not in left_out:
            made.add_module(name, value)
    return made
