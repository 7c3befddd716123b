"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from corsac.onnx._builder import Builder, Tensor, integer
from corsac.onnx._table import translates
from corsac.onnx._types import Unsupported


def per_dimension(value: Any, rank: int) -> list[int]:
    """``value`` for each of ``rank`` dimensions."""
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    values = values * rank if len(values) == 1 else values
    if len(values) != rank:
        raise Unsupported(f"{len(values)} numbers for {rank} dimensions")
    return [integer(value) for value in values]


def batched(g: Builder, input: Tensor, rank: int) -> tuple[Tensor, bool]:
    """The input with a batch dimension, and whether it had none."""
    if input.rank == rank + 2:
        return input, False
    return g.reshape(input, (1, *input.shape)), True


def _finish(g: Builder, result: Tensor, single: bool) -> Tensor:
    return g.reshape(result, result.shape[1:]) if single else result


def _conv(rank: int) -> Any:
    def conv(
        g: Builder,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        """A convolution."""
        if input.dtype != weight.dtype:
            raise Unsupported("a product of different dtypes")
        kernel = [integer(size) for size in weight.shape[2:]]
        strides, dilations = per_dimension(stride, rank), per_dimension(dilation, rank)
        pads = _pads(padding, kernel, dilations)
        input, single = batched(g, input, rank)
        shape = (1, *g.out.shape) if single else g.out.shape
        result = g.op(
            "Conv", input, weight, bias, kernel_shape=kernel, strides=strides, pads=pads,
            dilations=dilations, group=groups, shape=shape,
        )  # fmt: skip
        return _finish(g, result, single)

    return conv


def _pads(padding: Any, kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Padding before each dimension, then after each."""
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        before = [t // 2 for t in total]
        return [*before, *(t - b for t, b in zip(total, before, strict=True))]
    if padding == "valid":
        padding = 0
    return per_dimension(padding, len(kernel)) * 2


def _conv_transpose(rank: int) -> Any:
    def conv_transpose(
        g: Builder,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor:
        """A transposed convolution."""
        if input.dtype != weight.dtype:
            raise Unsupported("a product of different dtypes")
        kernel = [integer(size) for size in weight.shape[2:]]
        input, single = batched(g, input, rank)
        shape = (1, *g.out.shape) if single else g.out.shape
        result = g.op(
            "ConvTranspose", input, weight, bias, kernel_shape=kernel,
            strides=per_dimension(stride, rank), pads=per_dimension(padding, rank) * 2,
            dilations=per_dimension(dilation, rank), group=groups,
            output_padding=per_dimension(output_padding, rank), shape=shape,
        )  # fmt: skip
        return _finish(g, result, single)

    return conv_transpose


CONVOLUTIONS = {rank: _conv(rank) for rank in (1, 2, 3)}
TRANSPOSED = {rank: _conv_transpose(rank) for rank in (1, 2, 3)}
for _rank in (1, 2, 3):
    translates(f"conv{_rank}d")(CONVOLUTIONS[_rank])
    translates(f"conv_transpose{_rank}d")(TRANSPOSED[_rank])


@translates("convolution")
def convolution(
    g: Builder,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    """A convolution of any rank, or a transposed one."""
    rank = weight.rank - 2
    if transposed:
        return TRANSPOSED[rank](
            g, input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return CONVOLUTIONS[rank](g, input, weight, bias, stride, padding, dilation, groups)
