"""Modules of statically quantised models. The names are those of ``torch.ao.nn.quantized``.

Values between modules are floats in the steps of the module before; layers hold their weights as integers. ``from_float``
takes an observed module, or one for training, of :func:`corsac.quantization.prepare`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from corsac.quantization._dtypes import UNDERLYING, full_range, quint8
from corsac.quantization.quantized import layers
from corsac.quantization.quantized._observed import float_layer, weight_steps
from corsac.quantization.quantized._output import RoundedOutput, same_parts
from corsac.quantization.quantized.sequence import LSTM, MultiheadAttention

__all__ = [
    "ELU",
    "LSTM",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "DeQuantize",
    "Dropout",
    "Embedding",
    "EmbeddingBag",
    "GroupNorm",
    "Hardswish",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "MultiheadAttention",
    "PReLU",
    "Quantize",
    "ReLU6",
]


class Quantize(RoundedOutput, nn.Module):
    """The place where a value is rounded to the steps of a quantised type.

    Args:
        scale: the step.
        zero_point: the integer that is zero.
        dtype: the quantised type.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.quantized.Quantize.html
    """

    def __init__(self, scale: float, zero_point: int, dtype: torch.dtype = quint8) -> None:
        super().__init__()
        if UNDERLYING.get(dtype, torch.float32).is_floating_point:
            raise ValueError(f"Quantize: expected a type of integers, got {dtype}")
        self.scale, self.zero_point = float(scale), int(zero_point)
        self.output_min, self.output_max = full_range(dtype)
        self.output_dtype = UNDERLYING[dtype]

    def forward(self, X: Tensor) -> Tensor:
        return self.rounded(X)

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: bool = False) -> Quantize:
        """The place of an observed :class:`corsac.quantization.QuantStub`."""
        made = same_parts(cls, mod)
        made.set_output(getattr(mod, "activation_post_process", None))
        return made

    def extra_repr(self) -> str:
        return f"{self._described_output()}, dtype={self.output_dtype}".lstrip(", ")


class DeQuantize(nn.Module):
    """The place where a value is no longer of a quantised type: values are floats already.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.quantized.DeQuantize.html
    """

    def forward(self, Xq: Tensor) -> Tensor:
        return Xq

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: bool = False) -> DeQuantize:
        return same_parts(cls, mod)


class _Layer(RoundedOutput):
    """A layer of :mod:`corsac.quantization.quantized`, the other base class, with rounded results."""

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of an observed one; its bias is shared."""
        layer = float_layer(mod)
        steps = weight_steps(mod, layer, use_precomputed_fake_quant)
        made = layers.QuantisedWeight.from_float.__func__(cls, layer, steps)  # type: ignore[attr-defined]
        made.training = mod.training
        made.set_output(getattr(mod, "activation_post_process", None))
        made._take(mod)
        return made

    def _take(self, mod: nn.Module) -> None:
        """Keep what the results of the layer go through."""

    def _after(self, value: Tensor) -> Tensor:
        """The result of the layer, before it is rounded."""
        return value

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        layer: Any = super()
        return self.rounded(self._after(layer.forward(*args, **kwargs)))

    def extra_repr(self) -> str:
        layer: Any = super()
        return f"{layer.extra_repr()}{self._described_output()}"


class Linear(_Layer, layers.Linear):
    """A linear layer with a quantised weight and rounded results.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.quantized.Linear.html
    """


class Conv1d(_Layer, layers.Conv1d):
    """A convolution with a quantised weight and rounded results."""


class Conv2d(_Layer, layers.Conv2d):
    """A convolution with a quantised weight and rounded results.

    https://docs.pytorch.org/docs/stable/generated/torch.ao.nn.quantized.Conv2d.html
    """


class Conv3d(_Layer, layers.Conv3d):
    """A convolution with a quantised weight and rounded results."""


class ConvTranspose1d(_Layer, layers.ConvTranspose1d):
    """A transposed convolution with a quantised weight and rounded results."""


class ConvTranspose2d(_Layer, layers.ConvTranspose2d):
    """A transposed convolution with a quantised weight and rounded results."""


class ConvTranspose3d(_Layer, layers.ConvTranspose3d):
    """A transposed convolution with a quantised weight and rounded results."""


class _Table:
    """Embeddings with a quantised table, and results that are not rounded again."""

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: bool = False) -> Any:
        """The embeddings of a module with a ``qconfig``, or ``weight_fake_quant``."""
        layer = float_layer(mod)
        if getattr(layer, "max_norm", None) is not None:
            raise ValueError(
                f"{type(layer).__name__}: expected max_norm None, which changes the table, got {layer.max_norm}"
            )
        steps = weight_steps(mod, layer, use_precomputed_fake_quant)
        made = layers.QuantisedWeight.from_float.__func__(cls, layer, steps)  # type: ignore[attr-defined]
        made.training = mod.training
        return made


class Embedding(_Table, layers.Embedding):
    """Embeddings with a quantised table."""


class EmbeddingBag(_Table, layers.EmbeddingBag):
    """Sums, means or maxima of embeddings with a quantised table."""


class RoundedModule(RoundedOutput):
    """A module of ``torch.nn``, the other base class, with rounded results."""

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    def forward(self, *args: Any) -> Tensor:
        module: Any = super()
        return self.rounded(module.forward(*args))

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: bool = False) -> Any:
        """The module of an observed one; its parameters are shared."""
        made = same_parts(cls, mod)
        made.set_output(getattr(mod, "activation_post_process", None))
        return made

    def extra_repr(self) -> str:
        module: Any = super()
        return f"{module.extra_repr()}{self._described_output()}".lstrip(", ")


class BatchNorm2d(RoundedModule, nn.BatchNorm2d):
    """A batch norm with rounded results."""


class BatchNorm3d(RoundedModule, nn.BatchNorm3d):
    """A batch norm with rounded results."""


class LayerNorm(RoundedModule, nn.LayerNorm):
    """A layer norm with rounded results."""


class GroupNorm(RoundedModule, nn.GroupNorm):
    """A group norm with rounded results."""


class InstanceNorm1d(RoundedModule, nn.InstanceNorm1d):
    """An instance norm with rounded results."""


class InstanceNorm2d(RoundedModule, nn.InstanceNorm2d):
    """An instance norm with rounded results."""


class InstanceNorm3d(RoundedModule, nn.InstanceNorm3d):
    """An instance norm with rounded results."""


class ELU(RoundedModule, nn.ELU):
    """An ELU with rounded results."""


class Hardswish(RoundedModule, nn.Hardswish):
    """A hard swish with rounded results."""


class LeakyReLU(RoundedModule, nn.LeakyReLU):
    """A leaky ReLU with rounded results."""


class PReLU(RoundedModule, nn.PReLU):
    """A PReLU with rounded results."""


class _Same:
    """A module with results in the steps of its input."""

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: bool = False) -> Any:
        return same_parts(cls, mod)  # type: ignore[arg-type]


class ReLU6(_Same, nn.ReLU6):
    """``nn.ReLU6``, with results in the steps of its input."""


class Dropout(_Same, nn.Dropout):
    """The dropout of a quantised model: the identity."""

    def forward(self, input: Tensor) -> Tensor:
        return input
