"""Reshaping and permuting.

Analysis provides the shape of each result, so that every change of shape alone is one reshape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from corsac.onnx._builder import Builder, Tensor, integer
from corsac.onnx._table import translates
from corsac.onnx._types import Unsupported, positive_dim


@translates("reshape", "view", "view_copy", "_unsafe_view", "_reshape_alias", "view_as",
            "reshape_as", "flatten", "ravel", "unflatten", "squeeze", "unsqueeze")  # fmt: skip
def reshape(g: Builder, input: Tensor, *sizes: Any, **named: Any) -> Tensor:
    """The same elements in another shape."""
    if g.out.dtype != input.dtype:
        raise Unsupported("the same bytes as another dtype")
    return g.reshape(input, g.out.shape)


@translates("atleast_1d", "atleast_2d", "atleast_3d")
def at_least(g: Builder, tensors: Sequence[Tensor]) -> Tensor:
    """The same elements in a shape of more dimensions."""
    if len(tensors) != 1 or isinstance(g.out, (tuple, list)):
        raise Unsupported("several tensors")
    return reshape(g, tensors[0])


@translates("permute")
def permute(g: Builder, input: Tensor, dims: Sequence[int]) -> Tensor:
    """The dimensions in another order."""
    return g.permute(input, [positive_dim(integer(dim), input.rank) for dim in dims])


@translates("transpose")
def transpose(g: Builder, input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    order = list(range(input.rank))
    if not order:
        return input
    a, b = positive_dim(dim0, input.rank), positive_dim(dim1, input.rank)
    order[a], order[b] = order[b], order[a]
    return g.permute(input, order)


@translates("t")
def t(g: Builder, input: Tensor) -> Tensor:
    """The transposed matrix."""
    return transpose(g, input, 0, 1) if input.rank == 2 else input


@translates("adjoint")
def adjoint(g: Builder, input: Tensor) -> Tensor:
    """The last two dimensions exchanged."""
    return transpose(g, input, -2, -1)


@translates("movedim", "moveaxis")
def movedim(g: Builder, input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions moved to other places."""
    sources = source if isinstance(source, (tuple, list)) else (source,)
    places = destination if isinstance(destination, (tuple, list)) else (destination,)
    moved = {
        positive_dim(place, input.rank): positive_dim(at, input.rank)
        for at, place in zip(sources, places, strict=True)
    }
    rest = iter(at for at in range(input.rank) if at not in moved.values())
    return g.permute(input, [moved[at] if at in moved else next(rest) for at in range(input.rank)])


@translates("expand", "broadcast_to", "expand_as")
def expand(g: Builder, input: Tensor, **sizes: Any) -> Tensor:
    """The tensor broadcast along dimensions of size one."""
    return g.expand(input, g.out.shape)


@translates("broadcast_tensors")
def broadcast_tensors(g: Builder, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """All tensors broadcast to their common shape."""
    return tuple(g.expand(x, out.shape) for x, out in zip(tensors, g.out, strict=True))


@translates("tile")
def tile(g: Builder, input: Tensor, dims: Sequence[Any]) -> Tensor:
    """The tensor tiled along its dimensions."""
    return repeat(g, input, dims)


@translates("repeat")
def repeat(g: Builder, input: Tensor, repeats: Sequence[Any]) -> Tensor:
    """The tensor tiled along its dimensions."""
    sizes = tuple(repeats)
    sizes = (1,) * (input.rank - len(sizes)) + sizes
    input = g.reshape(input, (1,) * (len(sizes) - input.rank) + input.shape)
    return g.op("Tile", input, g.ints(sizes), shape=g.out.shape)


@translates("repeat_interleave")
def repeat_interleave(
    g: Builder, input: Tensor, repeats: Any, dim: int | None = None, *, output_size: Any = None
) -> Tensor:
    """Each element repeated."""
    count = integer(repeats)
    if dim is None:
        input, dim = g.op("Reshape", input, g.ints([-1]), shape=(_numel(input),)), 0
    axis = positive_dim(dim, input.rank)
    before, behind = input.shape[: axis + 1], input.shape[axis + 1 :]
    apart = g.reshape(input, (*before, 1, *behind))
    return g.reshape(g.expand(apart, (*before, count, *behind)), g.out.shape)


def _numel(input: Tensor) -> Any:
    numel: Any = 1
    for size in input.shape:
        numel = numel * size
    return numel


@translates("contiguous", "clone", "detach", "alias", "lift_fresh", "lift_fresh_copy", "positive",
            "pos", "requires_grad_", "cpu", "resolve_conj", "resolve_neg", "detach_copy", "Identity")  # fmt: skip
def same(g: Builder, input: Tensor, *options: Any, **named: Any) -> Tensor:
    """The tensor itself."""
    return input


@translates("flip")
def flip(g: Builder, input: Tensor, dims: Sequence[int]) -> Tensor:
    """The tensor reversed along dimensions."""
    for dim in dims:
        axis = positive_dim(integer(dim), input.rank)
        input = g.slice(input, axis, -1, -(2**62), -1, length=input.shape[axis])
    return input


@translates("roll")
def roll(g: Builder, input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """The tensor rotated along dimensions."""
    shape = input.shape
    if dims is None or dims == () or dims == []:
        input, dims = g.op("Reshape", input, g.ints([-1]), shape=(_numel(input),)), 0
    all_shifts = shifts if isinstance(shifts, (tuple, list)) else (shifts,)
    all_dims = dims if isinstance(dims, (tuple, list)) else (dims,)
    for shift, dim in zip(all_shifts, all_dims, strict=True):
        axis = positive_dim(dim, input.rank)
        size, shift = input.shape[axis], integer(shift)
        if isinstance(size, int) and size:
            shift %= size
        if shift == 0:
            continue
        if not isinstance(size, int):
            raise Unsupported("rolling a size that is not known")
        last = g.slice(input, axis, size - shift, size)
        first = g.slice(input, axis, 0, size - shift)
        input = g.op("Concat", last, first, axis=axis, shape=input.shape)
    return g.reshape(input, shape)


def _triangle(upper: int) -> Any:
    def triangle(g: Builder, input: Tensor, diagonal: int = 0) -> Tensor:
        """Zeros above or below a diagonal."""
        if input.dtype == torch.bool:
            numbers = g.cast(input, torch.int64)
            return g.cast(triangle(g, numbers, diagonal), torch.bool)
        k = g.scalar(integer(diagonal), torch.int64)
        return g.op("Trilu", input, k, upper=upper, shape=input.shape)

    return triangle


translates("triu")(_triangle(1))
translates("tril")(_triangle(0))


# -- channels and pixels ---------------------------------------------------------------------------


@translates("pixel_shuffle")
def pixel_shuffle(g: Builder, input: Tensor, upscale_factor: int) -> Tensor:
    """Channels rearranged into pixels."""
    *batch, channels, height, width = input.shape
    r = upscale_factor
    apart = g.reshape(input, (*batch, channels // (r * r), r, r, height, width))
    n = len(batch)
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    return g.reshape(g.permute(apart, order), g.out.shape)


@translates("pixel_unshuffle")
def pixel_unshuffle(g: Builder, input: Tensor, downscale_factor: int) -> Tensor:
    """Pixels rearranged into channels."""
    *batch, channels, height, width = input.shape
    r = downscale_factor
    apart = g.reshape(input, (*batch, channels, height // r, r, width // r, r))
    n = len(batch)
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    return g.reshape(g.permute(apart, order), g.out.shape)


@translates("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(g: Builder, input: Tensor, groups: int) -> Tensor:
    """Channels of the groups interleaved."""
    batch, channels, *rest = input.shape
    apart = g.reshape(input, (batch, groups, channels // groups, *rest))
    order = [0, 2, 1, *range(3, 3 + len(rest))]
    return g.reshape(g.permute(apart, order), input.shape)
