"""Linear layers, convolutions and embeddings whose weights are integers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corsac.quantization.quantized._weight import QuantisedWeight


class Linear(QuantisedWeight, nn.Linear):
    """``nn.Linear`` with a quantised weight."""

    _float = nn.Linear

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.dequantised(), self.bias)


class Bilinear(QuantisedWeight, nn.Bilinear):
    """``nn.Bilinear`` with a quantised weight."""

    _float = nn.Bilinear

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.dequantised(), self.bias)


class _Convolution(QuantisedWeight):
    def forward(self, input: Tensor) -> Tensor:
        own: Any = self
        return own._conv_forward(input, self.dequantised(), own.bias)


class Conv1d(_Convolution, nn.Conv1d):
    """``nn.Conv1d`` with a quantised weight."""

    _float = nn.Conv1d


class Conv2d(_Convolution, nn.Conv2d):
    """``nn.Conv2d`` with a quantised weight."""

    _float = nn.Conv2d


class Conv3d(_Convolution, nn.Conv3d):
    """``nn.Conv3d`` with a quantised weight."""

    _float = nn.Conv3d


class _ConvolutionTranspose(QuantisedWeight):
    _output_axis = 1
    #: Number of spatial dimensions.
    _spatial = 0

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        own: Any = self
        padding = own._output_padding(
            input,
            output_size,
            own.stride,
            own.padding,
            own.kernel_size,
            self._spatial,
            own.dilation,
        )
        function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self._spatial - 1]
        return function(
            input,
            self.dequantised(),
            own.bias,
            own.stride,
            own.padding,
            padding,
            own.groups,
            own.dilation,
        )


class ConvTranspose1d(_ConvolutionTranspose, nn.ConvTranspose1d):
    """``nn.ConvTranspose1d`` with a quantised weight."""

    _float = nn.ConvTranspose1d
    _spatial = 1


class ConvTranspose2d(_ConvolutionTranspose, nn.ConvTranspose2d):
    """``nn.ConvTranspose2d`` with a quantised weight."""

    _float = nn.ConvTranspose2d
    _spatial = 2


class ConvTranspose3d(_ConvolutionTranspose, nn.ConvTranspose3d):
    """``nn.ConvTranspose3d`` with a quantised weight."""

    _float = nn.ConvTranspose3d
    _spatial = 3


class Embedding(QuantisedWeight, nn.Embedding):
    """``nn.Embedding`` with a quantised table: only the rows that are looked up are dequantised."""

    _float = nn.Embedding

    def forward(self, input: Tensor) -> Tensor:
        # Indexing: the engine looks up embeddings in tables of floats only.
        rows = self.weight[input]
        if self.weight_scale is None or self.weight_zero_point is None:
            return rows.to(torch.float32)
        return torch.ops.corsac.dequantize_per_token(
            rows,
            self.weight_scale[input].unsqueeze(-1),
            self.weight_zero_point[input].unsqueeze(-1),
            self.quant_min,
            self.quant_max,
            self.weight.dtype,
            torch.float32,
        )


class EmbeddingBag(QuantisedWeight, nn.EmbeddingBag):
    """``nn.EmbeddingBag`` with a quantised table."""

    _float = nn.EmbeddingBag

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        return F.embedding_bag(
            input,
            self.dequantised(),
            offsets,
            None,
            2.0,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )
