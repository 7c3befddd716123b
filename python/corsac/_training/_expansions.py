"""Expansions of operators of backward graphs into operators of the engine.

Formulas are those of ``tools/autograd/derivatives.yaml`` and of ``torch/_decomp/decompositions.py``
in PyTorch. Values and gradients are of one floating-point type, and masks bool; callers leave other types to PyTorch.
Operands of several floating-point types become float32, and results are converted to their types.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from corsac import _core
from corsac.fx import Graph, Node, Proxy
from corsac.fx.node import map_arg

aten = torch.ops.aten
#: A function of a graph and the arguments of a call that returns the node of its result, or a list of nodes
#: if the call has several results.
Expansion = Callable[..., Any]

#: Expansions by the names of operators in the operator table.
_EXPANSIONS: dict[str | None, Expansion] = {}


def _expands(operator: str) -> Callable[[Expansion], Expansion]:
    def register(expansion: Expansion) -> Expansion:
        _EXPANSIONS[_core.operator_named(operator)] = expansion
        return expansion

    return register


@_expands("threshold_backward")
def _threshold(graph: Graph, grad: Node, x: Node, threshold: float) -> Node:
    # NaN is not below anything: its gradient passes, as in PyTorch.
    below = graph.call_function(torch.le, (x, threshold))
    return graph.call_function(torch.where, (below, 0.0, grad))


@_expands("sigmoid_backward")
def _sigmoid(graph: Graph, grad: Node, result: Node) -> Node:
    rest = graph.call_function(torch.rsub, (result, 1.0))
    return _product(graph, grad, result, rest)


@_expands("tanh_backward")
def _tanh(graph: Graph, grad: Node, result: Node) -> Node:
    square = graph.call_function(torch.mul, (result, result))
    rest = graph.call_function(torch.rsub, (square, 1.0))
    return _product(graph, grad, rest)


@_expands("silu_backward")
def _silu(graph: Graph, grad: Node, x: Node) -> Node:
    gate = graph.call_function(torch.sigmoid, (x,))
    rest = graph.call_function(torch.rsub, (gate, 1.0))
    slope = graph.call_function(torch.add, (_product(graph, x, rest), 1.0))
    return _product(graph, grad, gate, slope)


@_expands("gelu_backward")
def _gelu(graph: Graph, grad: Node, x: Node, *, approximate: str = "none") -> Node:
    if approximate == "tanh":
        return _gelu_of_tanh(graph, grad, x)
    scaled = graph.call_function(torch.mul, (x, math.sqrt(0.5)))
    erf = graph.call_function(torch.erf, (scaled,))
    area = graph.call_function(torch.add, (graph.call_function(torch.mul, (erf, 0.5)), 0.5))
    square = graph.call_function(torch.mul, (x, x))
    density = graph.call_function(torch.exp, (graph.call_function(torch.mul, (square, -0.5)),))
    density = graph.call_function(torch.mul, (density, 1 / math.sqrt(2 * math.pi)))
    slope = graph.call_function(torch.add, (area, _product(graph, x, density)))
    return _product(graph, grad, slope)


def _gelu_of_tanh(graph: Graph, grad: Node, x: Node) -> Node:
    beta, kappa = math.sqrt(2 / math.pi), 0.044715
    square = graph.call_function(torch.mul, (x, x))
    # beta * (x + kappa x^3), and its derivative.
    cubic = graph.call_function(torch.mul, (square, beta * kappa))
    inner = _product(graph, graph.call_function(torch.add, (cubic, beta)), x)
    inner_slope = graph.call_function(torch.mul, (square, 3 * beta * kappa))
    inner_slope = graph.call_function(torch.add, (inner_slope, beta))
    tanh = graph.call_function(torch.tanh, (inner,))
    left = graph.call_function(torch.mul, (graph.call_function(torch.add, (tanh, 1.0)), 0.5))
    rest = graph.call_function(torch.rsub, (_product(graph, tanh, tanh), 1.0))
    right = graph.call_function(torch.mul, (_product(graph, x, rest, inner_slope), 0.5))
    return _product(graph, grad, graph.call_function(torch.add, (left, right)))


@_expands("leaky_relu_backward")
def _leaky_relu(graph: Graph, grad: Node, x: Node, slope: float, is_result: bool) -> Node:
    # With a positive slope, which PyTorch requires for in-place calls, the result has the sign of the operand.
    del is_result
    positive = graph.call_function(torch.gt, (x, 0))
    scaled = graph.call_function(torch.mul, (grad, slope))
    return graph.call_function(torch.where, (positive, grad, scaled))


@_expands("hardtanh_backward")
def _hardtanh(graph: Graph, grad: Node, x: Node, low: float, high: float) -> Node:
    below = graph.call_function(torch.le, (x, low))
    above = graph.call_function(torch.ge, (x, high))
    outside = graph.call_function(torch.logical_or, (below, above))
    return graph.call_function(torch.where, (outside, 0.0, grad))


@_expands("_softmax_backward_data")
def _softmax(graph: Graph, grad: Node, result: Node, dim: int, dtype: Any) -> Node:
    del dtype
    weighted = _product(graph, grad, result)
    total = graph.call_function(torch.sum, (weighted, dim, True))
    return graph.call_function(torch.sub, (weighted, _product(graph, result, total)))


@_expands("_log_softmax_backward_data")
def _log_softmax(graph: Graph, grad: Node, result: Node, dim: int, dtype: Any) -> Node:
    del dtype
    total = graph.call_function(torch.sum, (grad, dim, True))
    softmax = graph.call_function(torch.exp, (result,))
    return graph.call_function(torch.sub, (grad, _product(graph, softmax, total)))


@_expands("native_dropout_backward")
def _dropout(graph: Graph, grad: Node, mask: Node, scale: float) -> Node:
    return _product(graph, grad, graph.call_function(torch.where, (mask, scale, 0.0)))


@_expands("_safe_softmax")
def _safe_softmax(graph: Graph, x: Node, dim: int, dtype: Any = None) -> Node:
    """The softmax, with zeros for rows that are all minus infinity."""
    del dtype
    masked = graph.call_function(torch.eq, (x, -math.inf))
    masked = graph.call_function(torch.all, (masked, dim, True))
    softmax = graph.call_function(torch.softmax, (x, dim))
    return graph.call_function(torch.where, (masked, 0.0, softmax))


@_expands("native_layer_norm")
def _layer_norm(
    graph: Graph,
    x: Node,
    normalized_shape: Sequence[int],
    weight: Node | None,
    bias: Node | None,
    eps: float,
) -> list[Node | None]:
    """The layer norm, the mean and the reciprocal standard deviation, which the gradient needs."""
    rank = len(x.meta["val"].shape)
    inner = list(range(rank - len(normalized_shape), rank))
    norm = graph.call_function(F.layer_norm, (x, list(normalized_shape), weight, bias, eps))
    mean = graph.call_function(torch.mean, (x, inner, True))
    centred = graph.call_function(torch.sub, (x, mean))
    variance = graph.call_function(torch.mean, (_product(graph, centred, centred), inner, True))
    rstd = graph.call_function(torch.rsqrt, (graph.call_function(torch.add, (variance, eps)),))
    return [norm, mean, rstd]


@_expands("native_layer_norm_backward")
def _layer_norm_gradients(
    graph: Graph,
    grad: Node,
    x: Node,
    normalized_shape: Sequence[int],
    mean: Node,
    rstd: Node,
    weight: Node | None,
    bias: Node | None,
    output_mask: Sequence[bool],
) -> list[Node | None]:
    """Gradients of the operand, the weight and the bias, as far as ``output_mask`` asks for them."""
    del bias
    rank = len(x.meta["val"].shape)
    inner = list(range(rank - len(normalized_shape), rank))
    outer = list(range(rank - len(normalized_shape)))

    def total(of: Node) -> Node:
        return graph.call_function(torch.sum, (of, outer)) if outer else of

    centred = graph.call_function(torch.sub, (x, mean))
    unit = _product(graph, centred, rstd)
    results: list[Node | None] = [None, None, None]
    if output_mask[0]:
        weighted = grad if weight is None else _product(graph, grad, weight)
        along = graph.call_function(torch.mean, (weighted, inner, True))
        slope = graph.call_function(torch.mean, (_product(graph, weighted, unit), inner, True))
        rest = graph.call_function(torch.sub, (weighted, along))
        rest = graph.call_function(torch.sub, (rest, _product(graph, unit, slope)))
        results[0] = _product(graph, rest, rstd)
    if output_mask[1]:
        results[1] = total(_product(graph, grad, unit))
    if output_mask[2]:
        results[2] = total(grad)
    return results


@_expands("_native_batch_norm_legit_functional")
def _batch_norm(
    graph: Graph,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    running_mean: Node | None,
    running_var: Node | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Node | None]:
    """The batch norm by statistics of the batch, their mean and reciprocal standard deviation, and the running
    statistics after it."""
    del training
    sizes = x.meta["val"].shape
    mean = _by_channels(graph, torch.mean, x, sizes)
    # Computed twice, which takes less time than writing and reading it.
    centred = graph.call_function(torch.sub, (x, mean))
    variance = _by_channels(graph, torch.mean, _product(graph, centred, centred), sizes)
    centred = graph.call_function(torch.sub, (x, mean))
    rstd = graph.call_function(torch.rsqrt, (graph.call_function(torch.add, (variance, eps)),))
    factor = rstd if weight is None else _product(graph, rstd, _by_channel(graph, weight, sizes))
    result = _product(graph, centred, factor)
    if bias is not None:
        result = graph.call_function(torch.add, (result, _by_channel(graph, bias, sizes)))
    mean, variance, rstd = (_flat(graph, own, sizes) for own in (mean, variance, rstd))
    results: list[Node | None] = [result, mean, rstd]
    if running_mean is None or running_var is None:
        return results

    def moved(kept: Node, own: Node, part: float) -> Node:
        old = graph.call_function(torch.mul, (kept, 1.0 - momentum))
        return graph.call_function(torch.add, (graph.call_function(torch.mul, (own, part)), old))

    count = sizes.numel() // sizes[1]
    # The variance of the batch divides by the number of elements, the running one by one less.
    running_var = moved(running_var, variance, momentum * count / (count - 1))
    return [*results, moved(running_mean, mean, momentum), running_var]


@_expands("_native_batch_norm_legit")
def _batch_norm_without_statistics(
    graph: Graph,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Node | None]:
    return _batch_norm(graph, x, weight, bias, None, None, training, momentum, eps)


@_expands("native_batch_norm_backward")
def _batch_norm_gradients(
    graph: Graph,
    grad: Node,
    x: Node,
    weight: Node | None,
    running_mean: Node | None,
    running_var: Node | None,
    mean: Node | None,
    rstd: Node | None,
    training: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> list[Node | None]:
    """Gradients of the operand, the weight and the bias, as far as ``output_mask`` asks for them."""
    sizes = x.meta["val"].shape
    if not training:
        mean = running_mean
        rstd = graph.call_function(
            torch.rsqrt, (graph.call_function(torch.add, (running_var, eps)),)
        )
    mean, rstd = (_by_channel(graph, own, sizes) for own in (mean, rstd))
    centred = graph.call_function(torch.sub, (x, mean))
    results: list[Node | None] = [None, None, None]
    if training or output_mask[1]:
        slope = _by_channels(graph, torch.sum, _product(graph, grad, centred), sizes)
        slope = _product(graph, slope, rstd)
        results[1] = _flat(graph, slope, sizes)
    if training or output_mask[2]:
        total = _by_channels(graph, torch.sum, grad, sizes)
        results[2] = _flat(graph, total, sizes)
    if output_mask[0]:
        factor = (
            rstd if weight is None else _product(graph, rstd, _by_channel(graph, weight, sizes))
        )
        if training:
            count = sizes.numel() // sizes[1]
            centred = graph.call_function(torch.sub, (x, mean))
            part = graph.call_function(torch.mul, (_product(graph, slope, rstd), 1.0 / count))
            along = graph.call_function(torch.mul, (total, 1.0 / count))
            grad = graph.call_function(torch.sub, (grad, along))
            grad = graph.call_function(torch.sub, (grad, _product(graph, centred, part)))
        results[0] = _product(graph, grad, factor)
    return results


def _by_channels(graph: Graph, reduce: Any, x: Node, sizes: Sequence[int]) -> Node:
    """The sum or mean over all dimensions but that of channels, which stay with size 1."""
    others = [dim for dim in range(len(sizes)) if dim != 1]
    return graph.call_function(reduce, (x, others, True))


def _by_channel(graph: Graph, x: Node, sizes: Sequence[int]) -> Node:
    shape = [1, sizes[1]] + [1] * (len(sizes) - 2)
    return graph.call_function(torch.reshape, (x, shape))


def _flat(graph: Graph, x: Node, sizes: Sequence[int]) -> Node:
    return graph.call_function(torch.reshape, (x, [sizes[1]]))


@_expands("select_backward")
def _select(graph: Graph, grad: Node, sizes: Sequence[int], dim: int, index: int) -> Node:
    dim %= len(sizes)
    index %= sizes[dim]
    row = graph.call_function(torch.unsqueeze, (grad, dim))
    return _padded(graph, row, len(sizes), dim, index, sizes[dim] - index - 1)


@_expands("slice_backward")
def _slice(
    graph: Graph, grad: Node, sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Node:
    rank, size = len(sizes), sizes[dim % len(sizes)]
    dim %= rank
    start, end, _ = slice(start, end).indices(size)
    if step == 1:
        return _padded(graph, grad, rank, dim, start, size - max(start, end))
    # Put ``step - 1`` zeros after each row, and drop those beyond the end.
    count = len(range(start, end, step))
    spread = graph.call_function(torch.unsqueeze, (grad, dim + 1))
    spread = _padded(graph, spread, rank + 1, dim + 1, 0, step - 1)
    within = min(count * step, size - start)
    spread = graph.call_function(
        torch.reshape, (spread, [*sizes[:dim], count * step, *sizes[dim + 1 :]])
    )
    if within < count * step:
        spread = graph.call_function(torch.narrow, (spread, dim, 0, within))
    return _padded(graph, spread, rank, dim, start, size - start - within)


def _padded(graph: Graph, x: Node, rank: int, dim: int, before: int, after: int) -> Node:
    widths = [0, 0] * (rank - 1 - dim) + [before, after]
    return graph.call_function(F.pad, (x, widths))


def _product(graph: Graph, first: Node, *others: Node) -> Node:
    for other in others:
        first = graph.call_function(torch.mul, (first, other))
    return first


def _calls_of(name: str, graph: Graph, *args: Any, **kwargs: Any) -> Any:
    """The calls that an operator of quantisation makes itself: the node of its result, or a list of nodes."""
    from corsac.quantization import _operators

    args, kwargs = map_arg((args, kwargs), Proxy)
    found = getattr(_operators, name)(*args, **kwargs)
    return [own.node for own in found] if isinstance(found, tuple) else found.node


for _name in ("fake_quantize", "moving_average_qparams"):
    _expands(f"corsac.{_name}")(functools.partial(_calls_of, _name))


@functools.cache
def _expansion_of(target: Any) -> Expansion | None:
    # Overloads that write, to results that are given or to running statistics, have none.
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return None
    return _EXPANSIONS.get(_core.operator_of("call_function", target)[0])


def can_expand(node: Node) -> bool:
    """Whether ``node``, with static sizes, can be expanded if its tensors are numbers of at most 32 bits, or masks."""
    expansion = _expansion_of(node.target)
    if expansion is None:
        return False
    if expansion is _leaky_relu:
        return node.args[2] >= 0
    if expansion in _OF_BATCH and not _has_batch(node, _OF_BATCH[expansion]):
        return False
    if expansion is _batch_norm_gradients and not node.args[1].meta["val"].numel():
        return False
    gives_several = isinstance(node.meta.get("val"), tuple | list)
    # Several results can be replaced only if each user takes an item.
    return not gives_several or all(user.target is operator.getitem for user in node.users)


#: Batch norms, with the number of the argument that says whether they use statistics of the batch.
_OF_BATCH = {_batch_norm: 5, _batch_norm_without_statistics: 3}


def _has_batch(node: Node, training: int) -> bool:
    """Whether a batch norm uses statistics of a batch that has several elements for each channel."""
    sizes = node.args[0].meta["val"].shape
    return bool(node.args[training]) and sizes.numel() > sizes[1]


def _expanded(graph: Graph, node: Node, expansion: Expansion) -> Any:
    """The result of an expansion, or a list of them."""
    floats = [own for own in node.all_input_nodes if _dtype(own).is_floating_point]
    results = [own for own in tree_leaves(node.meta["val"]) if isinstance(own, torch.Tensor)]
    dtypes = {*map(_dtype, floats), *(own.dtype for own in results if own.is_floating_point())}
    if dtypes <= {torch.float32}:
        return expansion(graph, *node.args, **node.kwargs)

    def converted(own: Node, dtype: torch.dtype) -> Node:
        made = graph.call_method("to", (own, dtype))
        made.meta["val"] = own.meta["val"].to(dtype)
        return made

    single = {own: converted(own, torch.float32) for own in floats}
    args, kwargs = map_arg((node.args, node.kwargs), lambda own: single.get(own, own))
    made = expansion(graph, *args, **kwargs)
    if not isinstance(made, list):
        return graph.call_method("to", (made, _dtype(node)))
    for item in node.users:
        result = made[item.args[1]]
        made[item.args[1]] = graph.call_method("to", (result, _dtype(item)))
    return made


def _dtype(node: Node) -> torch.dtype:
    return node.meta["val"].dtype


def _replace(node: Node, by: Node) -> None:
    # Expansions of users need its type.
    by.meta.setdefault("val", node.meta["val"])
    node.replace_all_uses_with(by)


def expand(graph: Graph) -> None:
    """Expand the calls of ``graph`` for which there is an expansion.

    Views become reshapes: in native code operands are contiguous, whatever their strides in PyTorch.
    """
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in (aten.view.default, aten._unsafe_view.default):
            node.target = torch.reshape
        if not can_expand(node):
            continue
        with graph.inserting_before(node):
            expansion = _expansion_of(node.target)
            assert expansion is not None
            made = _expanded(graph, node, expansion)
        if isinstance(made, list):
            for item in list(node.users):
                _replace(item, made[item.args[1]])
                graph.erase_node(item)
        else:
            _replace(node, made)
        graph.erase_node(node)
    graph.eliminate_dead_code()
