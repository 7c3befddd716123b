"""Builds ONNX nodes, constants and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from corsac.analysis import Dim
from corsac.onnx._types import (
    Size,
    Unsupported,
    broadcast,
    common_dtype,
    compute_dim,
    element_type,
    is_static,
)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A value of the ONNX graph.

    Attributes:
        name: its name in the ONNX graph.
        dtype: the type of its elements.
        shape: sizes, symbols included.
        constant: its elements, where they are known: of constants, never of weights.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[Size, ...]
    constant: torch.Tensor | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class Missing:
    """A result of a node without a translation; nodes that use it have none either."""

    reason: str


@dataclass(frozen=True, slots=True)
class Operation:
    """A node of the ONNX graph. Omitted inputs have an empty name."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    domain: str = ""


@dataclass(frozen=True, slots=True)
class GroupedWeight:
    """The integers of a matrix that is dequantised in groups of a row's elements.

    Attributes:
        integers: from 0 to ``levels - 1``, uint8, [rows, columns].
        scales: float32, [rows, groups].
        zero_points: uint8, [rows, groups].
        levels: 16 or 256.
        group_size: number of columns in a group.
    """

    integers: torch.Tensor
    scales: torch.Tensor
    zero_points: torch.Tensor
    levels: int
    group_size: int


@dataclass(slots=True)
class Builder:
    """An ONNX graph under construction.

    Attributes:
        opset: the version of the operator set.
        operations: the nodes, in order.
        weights: parameters and buffers by name.
        constants: other known tensors, by name.
        grouped: the weights that are dequantised in groups, by the name of the float matrix.
        unpacked: the bytes of weights of two integers each, by the name of the integers.
        out: type of the value of the node that is being translated, from analysis.
    """

    opset: int
    operations: list[Operation] = field(default_factory=list)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)
    grouped: dict[str, GroupedWeight] = field(default_factory=dict)
    unpacked: dict[str, torch.Tensor] = field(default_factory=dict)
    out: Any = None
    scope: str = "value"
    _names: set[str] = field(default_factory=set)
    _weight_names: dict[tuple[Any, ...], str] = field(default_factory=dict)
    _constant_names: dict[tuple[Any, ...], str] = field(default_factory=dict)
    _size_of: dict[Any, tuple[Tensor, int]] = field(default_factory=dict)
    _sizes: dict[Any, Tensor] = field(default_factory=dict)

    # -- nodes --------------------------------------------------------------------------------

    def op(
        self,
        kind: str,
        *inputs: Tensor | None,
        dtype: torch.dtype | None = None,
        shape: Sequence[Size] | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> Tensor:
        """Append a node and return its first output.

        The default of ``dtype`` is that of the first input, of ``shape`` the broadcast shape of the inputs.
        Attributes that are None are omitted.
        """
        (result,) = self.ops(kind, *inputs, outputs=[(dtype, shape)], domain=domain, **attributes)
        return result

    def ops(
        self,
        kind: str,
        *inputs: Tensor | None,
        outputs: Sequence[tuple[torch.dtype | None, Sequence[Size] | None]],
        domain: str = "",
        **attributes: Any,
    ) -> list[Tensor]:
        """Append a node with several outputs and return them."""
        given = [tensor for tensor in inputs if tensor is not None]
        results = []
        for dtype, shape in outputs:
            dtype = given[0].dtype if dtype is None else dtype
            shape = broadcast(*(t.shape for t in given)) if shape is None else tuple(shape)
            element_type(dtype)
            results.append(self._new(Tensor(self.name(self.scope), dtype, shape)))
        attributes = {key: value for key, value in attributes.items() if value is not None}
        names = [tensor.name if tensor is not None else "" for tensor in inputs]
        while names and not names[-1]:
            names.pop()
        outs = tuple(result.name for result in results)
        self.operations.append(Operation(kind, tuple(names), outs, attributes, domain))
        return results

    def name(self, wanted: str) -> str:
        """A name that is not in use yet."""
        name, number = wanted, 1
        while name in self._names:
            name, number = f"{wanted}_{number}", number + 1
        self._names.add(name)
        return name

    def _new(self, tensor: Tensor) -> Tensor:
        self.dtypes[tensor.name] = tensor.dtype
        for axis, size in enumerate(tensor.shape):
            if isinstance(size, Dim):
                self._size_of.setdefault(size, (tensor, axis))
        return tensor

    def input(self, name: str, dtype: torch.dtype, shape: Sequence[Size]) -> Tensor:
        """Add an input of the graph."""
        element_type(dtype)
        return self._new(Tensor(self.name(name), dtype, tuple(shape)))

    def size_input(self, name: str, size: Dim) -> Tensor:
        """Add an input that is a size: a scalar of int64."""
        tensor = self.input(name, torch.int64, ())
        self._sizes[size] = self.op("Unsqueeze", tensor, self.ints([0]), shape=(1,))
        return tensor

    # -- constants ----------------------------------------------------------------------------

    def weight(self, tensor: torch.Tensor, name: str) -> Tensor:
        """Add a parameter or buffer; the same memory is stored once."""
        element_type(tensor.dtype)
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise Unsupported(f"{name} is not a dense tensor")
        data = 0 if tensor.is_meta else tensor.data_ptr()
        memory = (data or id(tensor), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if memory not in self._weight_names:
            found = self.name(name)
            self._weight_names[memory] = found
            self.weights[found] = tensor.detach()
            self.dtypes[found] = tensor.dtype
        return Tensor(self._weight_names[memory], tensor.dtype, tuple(tensor.shape))

    def elements(self, tensor: Tensor) -> torch.Tensor | None:
        """The elements of a weight or constant; None for other values."""
        if tensor.constant is not None:
            return tensor.constant
        found = self.weights.get(tensor.name)
        return None if found is None or found.is_meta else found

    def known(self, tensor: torch.Tensor, name: str = "constant") -> Tensor:
        """Add a constant."""
        element_type(tensor.dtype)
        tensor = tensor.detach().cpu().contiguous()
        key = (tensor.dtype, tuple(tensor.shape), tensor.view(torch.uint8).numpy().tobytes()) if (
            0 < tensor.numel() <= 64 and tensor.ndim
        ) else (tensor.dtype, tuple(tensor.shape), repr(tensor.tolist())) if (
            tensor.numel() <= 64
        ) else (id(tensor),)  # fmt: skip
        if key not in self._constant_names:
            found = self.name(name)
            self._constant_names[key] = found
            self.constants[found] = tensor
            self.dtypes[found] = tensor.dtype
        return Tensor(self._constant_names[key], tensor.dtype, tuple(tensor.shape), tensor)

    def scalar(self, value: Any, dtype: torch.dtype) -> Tensor:
        """A number as a tensor of rank 0; a tensor is cast."""
        if isinstance(value, Tensor):
            return self.cast(value, dtype)
        if isinstance(value, Dim):
            size = self.op("Squeeze", self.size(value), self.ints([0]), shape=())
            return self.cast(size, dtype)
        if not isinstance(value, (bool, int, float)):
            raise Unsupported(f"{value!r} where a number or tensor is expected")
        try:
            return self.known(torch.tensor(value, dtype=dtype))
        except (RuntimeError, OverflowError) as error:
            raise Unsupported(f"{value} does not fit its dtype") from error

    def ints(self, values: Sequence[Any]) -> Tensor:
        """Integers and sizes as a tensor of rank 1."""
        if all(isinstance(value, int) for value in values):
            return self.known(torch.tensor([int(v) for v in values], dtype=torch.int64))
        parts = [self.size(v) if isinstance(v, Dim) else self.ints([integer(v)]) for v in values]
        if len(parts) == 1:
            return parts[0]
        return self.op("Concat", *parts, axis=0, shape=(len(parts),))

    def size(self, dim: Dim) -> Tensor:
        """A size as a tensor with one element."""
        if dim not in self._sizes:
            self._sizes[dim] = self._find_size(dim)
        return self._sizes[dim]

    def _find_size(self, dim: Dim) -> Tensor:
        if dim in self._size_of:
            tensor, axis = self._size_of[dim]
            return self.op("Shape", tensor, dtype=torch.int64, shape=(1,), start=axis, end=axis + 1)

        def symbol(name: str) -> Tensor:
            if Dim(name) == dim:
                raise Unsupported(f"the size {name} is not that of any tensor at hand")
            return self.size(Dim(name))

        def combine(kind: str, a: Tensor, b: Tensor) -> Tensor:
            kinds = {"add": "Add", "sub": "Sub", "mul": "Mul"}
            if kind in kinds:
                return self.op(kinds[kind], a, b)
            # Round down, since Div rounds towards zero.
            rest = self.op("Mod", a, b)
            return self.op("Div", self.op("Sub", a, rest), b)

        return compute_dim(dim, symbol, combine, lambda value: self.ints([value]))

    # -- common operations --------------------------------------------------------------------

    def cast(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """The same elements in another dtype."""
        if tensor.dtype == dtype:
            return tensor
        if tensor.constant is not None:
            return self.known(tensor.constant.to(dtype))
        return self.op("Cast", tensor, to=element_type(dtype), dtype=dtype, shape=tensor.shape)

    def tensor(self, value: Any, like: torch.dtype | None = None) -> Tensor:
        """``value`` as a tensor: numbers get the dtype ``like``, or torch's default for them."""
        if isinstance(value, Tensor):
            return value if like is None else self.cast(value, like)
        if isinstance(value, (bool, int, float, Dim)):
            return self.scalar(value, like or common_dtype(value))
        raise Unsupported(f"{_shown(value)} where a tensor is expected")

    def together(self, *values: Any) -> list[Tensor]:
        """The operands, cast to the dtype in which torch computes with them."""
        for value in values:
            if not isinstance(value, (Tensor, bool, int, float, Dim)):
                raise Unsupported(f"{_shown(value)} where a tensor is expected")
        dtype = common_dtype(*values)
        return [self.tensor(value, dtype) for value in values]

    def reshape(self, tensor: Tensor, shape: Sequence[Size]) -> Tensor:
        """Reshape ``tensor`` to ``shape``."""
        shape = tuple(shape)
        if shape == tensor.shape:
            return tensor
        dims = [axis for axis, size in enumerate(shape) if isinstance(size, Dim)]
        allow_zero = 1 if 0 in shape else None
        if len(dims) == 1 and not allow_zero:
            wanted = self.ints([-1 if axis == dims[0] else s for axis, s in enumerate(shape)])
        else:
            wanted = self.ints(shape)
        return self.op("Reshape", tensor, wanted, shape=shape, allowzero=allow_zero)

    def expand(self, tensor: Tensor, shape: Sequence[Size]) -> Tensor:
        """Broadcast ``tensor`` to ``shape``."""
        shape = tuple(shape)
        if shape == tensor.shape:
            return tensor
        return self.op("Expand", tensor, self.ints(shape), shape=shape)

    def permute(self, tensor: Tensor, order: Sequence[int]) -> Tensor:
        """Permute the dimensions of ``tensor``."""
        order = list(order)
        if order == list(range(tensor.rank)):
            return tensor
        return self.op("Transpose", tensor, perm=order, shape=[tensor.shape[at] for at in order])

    def slice(
        self,
        tensor: Tensor,
        axis: int,
        start: Size,
        end: Size,
        step: int = 1,
        length: Size | None = None,
    ) -> Tensor:
        """Slice along one axis. ``length`` is the resulting size, required where sizes are symbols."""
        if length is None:
            size = tensor.shape[axis]
            if not is_static((size, start, end)):
                raise Unsupported(f"a slice of {size} elements from {start} to {end}")
            length = len(range(*slice(start, end, step).indices(size)))
        shape = [length if at == axis else s for at, s in enumerate(tensor.shape)]
        numbers = [self.ints([value]) for value in (start, end, axis, step)]
        return self.op("Slice", tensor, *numbers, shape=shape)

    def reduce(
        self, kind: str, tensor: Tensor, axes: Sequence[int], keepdim: bool = True
    ) -> Tensor:
        """Reduce with ``ReduceMean`` or a similar operator."""
        axes = [axis % max(tensor.rank, 1) for axis in axes]
        sizes = enumerate(tensor.shape)
        shape = [1 if at in axes else s for at, s in sizes if keepdim or at not in axes]
        given = self.ints(axes) if axes else None
        noop = None if axes else 1
        return self.op(
            kind, tensor, given, keepdims=int(keepdim), noop_with_empty_axes=noop, shape=shape
        )


def integer(value: Any) -> int:
    """``value``, which must be a known integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unsupported(f"{_shown(value)} where an integer is expected")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, Missing):
        return value.reason
    if isinstance(value, Tensor):
        return "a tensor"
    return f"{value!r}" if isinstance(value, (bool, int, float, str, Dim)) else type(value).__name__
