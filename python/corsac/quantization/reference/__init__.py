"""Modules of reference graphs: real activations, and weights that are quantised and dequantised when they are used.

The names are those of ``torch.ao.nn.quantized.reference``.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from corsac.quantization.reference._recurrent import GRU, LSTM, GRUCell, LSTMCell, RNNCell
from corsac.quantization.reference._weights import ReferenceQuantizedModule

__all__ = [
    "GRU",
    "LSTM",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Embedding",
    "EmbeddingBag",
    "GRUCell",
    "LSTMCell",
    "Linear",
    "RNNCell",
]


class _Layer(ReferenceQuantizedModule):
    """A layer of ``torch.nn``, the other base class, with a rounded weight."""

    _IS_REFERENCE = True
    #: Attributes of the layer that the constructor takes, in its order.
    _arguments: tuple[str, ...]

    def __init__(
        self,
        *args: Any,
        weight_qparams: dict[str, Any] | None = None,
        device: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, device=device, **kwargs)
        self._init_weight_qparams(weight_qparams, device)

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}(Reference)"

    @classmethod
    def from_float(cls, mod: nn.Module, weight_qparams: dict[str, Any]) -> Any:
        """The reference module of a layer, with copies of its parameters."""
        arguments = {name: getattr(mod, name) for name in cls._arguments}
        if "bias" in arguments:
            arguments["bias"] = mod.bias is not None
        made = cls(
            **arguments,
            device=mod.weight.device,
            dtype=mod.weight.dtype,
            weight_qparams=weight_qparams,
        )
        for name in ("weight", "bias"):
            if isinstance(getattr(mod, name, None), Tensor):
                setattr(made, name, nn.Parameter(getattr(mod, name).detach()))
        return made


class Linear(_Layer, nn.Linear):
    _arguments = ("in_features", "out_features", "bias")

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.get_weight(), self.bias)


class _Conv(_Layer):
    _arguments = (
        "in_channels",
        "out_channels",
        "kernel_size",
        "stride",
        "padding",
        "dilation",
        "groups",
        "bias",
        "padding_mode",
    )

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, self.get_weight(), self.bias)


class Conv1d(_Conv, nn.Conv1d):
    pass


class Conv2d(_Conv, nn.Conv2d):
    pass


class Conv3d(_Conv, nn.Conv3d):
    pass


class _ConvTranspose(_Layer):
    _arguments = (*_Conv._arguments, "output_padding")

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        dimensions = len(self.kernel_size)
        padding = self._output_padding(
            x,
            output_size,
            self.stride,
            self.padding,
            self.kernel_size,
            dimensions,
            self.dilation,
        )
        convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dimensions - 1]
        return convolve(
            x,
            self.get_weight(),
            self.bias,
            self.stride,
            self.padding,
            padding,
            self.groups,
            self.dilation,
        )


class ConvTranspose1d(_ConvTranspose, nn.ConvTranspose1d):
    pass


class ConvTranspose2d(_ConvTranspose, nn.ConvTranspose2d):
    pass


class ConvTranspose3d(_ConvTranspose, nn.ConvTranspose3d):
    pass


class Embedding(_Layer, nn.Embedding):
    _arguments = (
        "num_embeddings",
        "embedding_dim",
        "padding_idx",
        "max_norm",
        "norm_type",
        "scale_grad_by_freq",
        "sparse",
    )

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input,
            self.get_weight(),
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )


class EmbeddingBag(_Layer, nn.EmbeddingBag):
    _arguments = (
        "num_embeddings",
        "embedding_dim",
        "max_norm",
        "norm_type",
        "scale_grad_by_freq",
        "mode",
        "sparse",
        "include_last_offset",
        "padding_idx",
    )

    def _get_name(self) -> str:
        return "QuantizedEmbedding(Reference)"

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        return F.embedding_bag(
            input,
            self.get_weight(),
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )
