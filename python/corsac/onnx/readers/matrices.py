"""Products of matrices."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from corsac.onnx._emitter import Emitter
from corsac.onnx._registry import MICROSOFT, reads
from corsac.onnx._types import Unsupported
from corsac.onnx._values import Value, is_whole
from corsac.onnx.readers.elementwise import like


def transposed(g: Emitter, weight: Value) -> Value | None:
    """A matrix whose transpose is ``weight``, if there is one already or its levels are known."""
    from corsac.onnx.readers.quantisation import weight_of_product

    return weight.facts.get("transposed") or weight_of_product(g, weight)


@reads("MatMul")
def matmul(g: Emitter, a: Value, b: Value) -> Value:
    if is_whole(a.dtype):
        wide = g.call(torch.matmul, like(g, a, torch.int64), like(g, b, torch.int64))
        return like(g, wide, a.dtype)
    weight = transposed(g, b)
    if weight is not None and a.rank >= 1:
        return g.call(F.linear, a, weight)
    return g.call(torch.matmul, a, b)


@reads("FusedMatMul", domain=MICROSOFT)
def fused_matmul(
    g: Emitter, a: Value, b: Value, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
    transBatchA: int = 0, transBatchB: int = 0,
) -> Value:  # fmt: skip
    if transBatchA or transBatchB:
        raise Unsupported("matrices whose batch dimensions are not the first ones")
    a = g.call(torch.transpose, a, -1, -2) if transA else a
    b = g.call(torch.transpose, b, -1, -2) if transB else b
    result = g.call(torch.matmul, a, b)
    return result if alpha == 1 else g.call(torch.mul, result, alpha)


@reads("Gemm", since=7)
def gemm(
    g: Emitter,
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    if transA:
        a = g.call(torch.t, a)
    plain = not is_whole(a.dtype) and alpha == 1 and beta == 1
    if plain and (c is None or (c.rank == 1 and c.shape[0] is not None)):
        weight = b if transB else transposed(g, b) or g.kept(torch.t, b)
        if c is None or c.shape[0] == weight.shape[0]:
            return g.call(F.linear, a, weight, *([] if c is None else [c]))
    dtype = a.dtype if c is None else c.dtype
    if is_whole(a.dtype):
        a, b = like(g, a, torch.float64), like(g, b, torch.float64)
    product = g.call(torch.matmul, a, g.call(torch.t, b) if transB else b)
    result = product if alpha == 1 else g.call(torch.mul, product, alpha)
    if c is not None:
        scaled = c if beta == 1 else g.call(torch.mul, c, beta)
        result = g.call(torch.add, result, scaled)
    return like(g, result, dtype)


@reads("Einsum", since=12)
def einsum(g: Emitter, *inputs: Value, equation: str) -> Value:
    return g.call(torch.einsum, equation.replace(" ", ""), *inputs)


@reads("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(
    g: Emitter,
    input: Value,
    weight: Value,
    scales: Value,
    zero_points: Value | None = None,
    groups: Value | None = None,
    bias: Value | None = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int,
    accuracy_level: int = 0,
    **ignored: Any,
) -> Value:
    from corsac.onnx.readers.quantisation import weight_of_blocks

    matrix = weight_of_blocks(g, weight, scales, zero_points, groups, K, N, bits, block_size)
    result = g.call(F.linear, input, like(g, matrix, input.dtype))
    return result if bias is None else g.call(torch.add, result, bias)
