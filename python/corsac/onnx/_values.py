"""Values of an ONNX graph while it is read: tensors, constants, sizes and sequences."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from corsac.fx import Node
from corsac.onnx._types import Unsupported

if TYPE_CHECKING:
    from corsac.onnx._emitter import Emitter

# Integer constants up to this length are shapes, axes and the like.
_SHORT = 1024


class Size:
    """A number that is known when the graph runs.

    Attributes:
        node: the node that computes it.
        samples: the number for each set of sample sizes; None if it depends on elements of tensors.
    """

    __slots__ = ("emitter", "node", "samples")

    def __init__(self, emitter: Emitter, node: Node, samples: tuple[Any, ...] | None) -> None:
        self.emitter, self.node, self.samples = emitter, node, samples

    def _combined(self, function: Callable[..., Any], *operands: Any) -> Size:
        return self.emitter.number(function, *operands)

    def _decided(self, function: Callable[[Any, Any], bool], other: Any) -> bool:
        """A comparison that has the same result for all sizes."""
        others = other.samples if isinstance(other, Size) else None
        if self.samples is None or (isinstance(other, Size) and others is None):
            raise Unsupported("a decision that depends on the elements of a tensor")
        pairs = zip(self.samples, others or (other,) * len(self.samples), strict=True)
        found = {bool(function(own, theirs)) for own, theirs in pairs}
        if len(found) != 1:
            raise Unsupported("a decision that depends on a size")
        return found.pop()

    def __add__(self, other: Any) -> Any:
        return self if _is(other, 0) else self._combined(operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return self if _is(other, 0) else self._combined(operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return self if _is(other, 0) else self._combined(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._combined(operator.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return self if _is(other, 1) else self._combined(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return self if _is(other, 1) else self._combined(operator.mul, other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._combined(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._combined(operator.truediv, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self if _is(other, 1) else self._combined(operator.floordiv, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._combined(operator.floordiv, other, self)

    def __mod__(self, other: Any) -> Any:
        return self._combined(operator.mod, self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._combined(operator.mod, other, self)

    def __neg__(self) -> Any:
        return self._combined(operator.neg, self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Size) and other.node is self.node:
            return True
        return self._decided(operator.eq, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        return self._decided(operator.lt, other)

    def __le__(self, other: Any) -> bool:
        return self._decided(operator.le, other)

    def __gt__(self, other: Any) -> bool:
        return self._decided(operator.gt, other)

    def __ge__(self, other: Any) -> bool:
        return self._decided(operator.ge, other)

    def __bool__(self) -> bool:
        return self._decided(operator.ne, 0)

    __hash__ = object.__hash__


def _is(value: Any, number: int) -> bool:
    return isinstance(value, int) and value == number


class Value:
    """A tensor of the graph.

    Attributes:
        name: its name in the ONNX graph.
        samples: tensors of the meta device with its type, one for each set of sample sizes.
        constant: its elements, if they are known.
        elements: integers and sizes, for a short tensor of these.
        is_literal: whether it is a constant of the program and not a weight.
        role: ``parameter`` or ``buffer``, for weights.
        facts: facts that readers of later operators use.
        make: makes the node when there is a first use of it, for values that later operators may do without.
    """

    __slots__ = (
        "_node", "constant", "elements", "facts", "is_literal", "make", "name", "role", "samples",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        samples: tuple[torch.Tensor, ...],
        node: Node | None = None,
        constant: torch.Tensor | None = None,
        elements: np.ndarray | None = None,
        is_literal: bool = False,
        role: str = "parameter",
    ) -> None:
        self.name, self.samples, self._node = name, samples, node
        self.constant, self.is_literal, self.role = constant, is_literal, role
        self.facts: dict[str, Any] = {}
        self.make: Callable[[], Value] | None = None
        short = constant is not None and is_whole(constant.dtype) and constant.numel() <= _SHORT
        if elements is None and constant is not None and short:
            elements = np.array(constant.tolist(), dtype=object).reshape(tuple(constant.shape))
        self.elements = elements

    @property
    def dtype(self) -> torch.dtype:
        return self.samples[0].dtype

    @property
    def rank(self) -> int:
        return self.samples[0].dim()

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Sizes; None for those that are not fixed."""
        first, *others = (tuple(own.shape) for own in self.samples)
        return tuple(
            size if all(other[at] == size for other in others) else None
            for at, size in enumerate(first)
        )

    @property
    def numel(self) -> int | None:
        """The number of elements, if it is fixed."""
        counts = {own.numel() for own in self.samples}
        return counts.pop() if None not in self.shape else None

    @property
    def is_dynamic(self) -> bool:
        """Whether it is a short tensor with sizes that are known when the graph runs."""
        return self.constant is None and self.elements is not None

    @property
    def number(self) -> Any:
        """The element of a constant with one; None for others."""
        if self.constant is None or self.constant.numel() != 1:
            return None
        return self.constant.item()


class Sequence(list):
    """A sequence of tensors whose length is known."""


def is_whole(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and not dtype.is_complex
