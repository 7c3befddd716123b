"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from corsac.onnx._builder import Builder, Tensor
from corsac.onnx._table import translates
from corsac.onnx._types import Unsupported, broadcast, is_float
from corsac.onnx.translations.quantisation import grouped_product


def product_shape(a: Tensor, b: Tensor) -> tuple[Any, ...]:
    """The shape of a matrix product."""
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    rows = a.shape[-2:-1] if a.rank > 1 else ()
    columns = b.shape[-1:] if b.rank > 1 else ()
    return (*batch, *rows, *columns)


@translates("matmul", "mm", "bmm", "mv", "dot", "vdot")
def matmul(g: Builder, input: Tensor, other: Tensor) -> Tensor:
    """The matrix product, with the broadcasting of torch."""
    if input.dtype != other.dtype:
        raise Unsupported("a product of different dtypes")
    return g.op("MatMul", input, other, shape=product_shape(input, other))


@translates("linear")
def linear(g: Builder, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``."""
    product = grouped_product(g, input, weight)
    if product is not None:
        result = product
    elif weight.rank == 1:
        result = matmul(g, input, weight)
    elif input.rank == 2 and is_float(input.dtype):
        shape = (input.shape[0], weight.shape[0])
        return g.op("Gemm", input, weight, bias, transB=1, shape=shape)
    else:
        result = matmul(g, input, g.permute(weight, (1, 0)))
    return result if bias is None else g.op("Add", result, bias)


@translates("addmm", "addmv")
def addmm(
    g: Builder, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * input + alpha * mat1 @ mat2``."""
    if mat1.rank == 3 and len(g.out.shape) != 3:
        raise Unsupported("a sum over the batch")
    result = matmul(g, mat1, mat2)
    if alpha != 1:
        result = g.op("Mul", result, g.scalar(alpha, result.dtype))
    if beta == 0:
        return result
    if beta != 1:
        input = g.op("Mul", input, g.scalar(beta, input.dtype))
    return g.op("Add", input, result)


@translates("baddbmm", "addbmm")
def baddbmm(
    g: Builder, input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * input + alpha * batch1 @ batch2``."""
    return addmm(g, input, batch1, batch2, beta=beta, alpha=alpha)


@translates("outer", "ger")
def outer(g: Builder, input: Tensor, other: Tensor) -> Tensor:
    """The outer product of two vectors."""
    a, b = g.together(input, other)
    return g.op("Mul", g.reshape(a, (*a.shape, 1)), g.reshape(b, (1, *b.shape)))


@translates("einsum")
def einsum(g: Builder, equation: Any, operands: Sequence[Tensor]) -> Tensor:
    """Sums of products, as in the equation."""
    if not isinstance(equation, str):
        raise Unsupported("an equation that is no text")
    if len({operand.dtype for operand in operands}) != 1:
        raise Unsupported("a product of different dtypes")
    return g.op("Einsum", *operands, equation=equation.replace(" ", ""), shape=g.out.shape)
