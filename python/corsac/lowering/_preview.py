"""Previews of a lowering: the place of each node, with reasons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from corsac.onnx._types import TensorType, name_of


@dataclass(frozen=True, slots=True)
class Placement:
    """The place where one node runs.

    Attributes:
        node: its name.
        op: its opcode.
        target: its target.
        part: the number of its part; None on the host.
        reason: why it is on the host; None in a part.
        source: its source line, ``file:line``, if known.
    """

    node: str
    op: str
    target: str
    part: int | None
    reason: str | None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes that run on the backend in one call.

    Attributes:
        name: the submodule that it becomes.
        nodes: the names of its nodes.
        inputs: its inputs, as text: ``x: float32[1, 3]``.
        outputs: its outputs, likewise.
        input_bytes: size of the inputs in bytes; None if sizes are symbols.
        output_bytes: size of the outputs in bytes, likewise.
    """

    name: str
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    input_bytes: int | None
    output_bytes: int | None


@dataclass(frozen=True, slots=True)
class Preview:
    """The placement of a program's nodes.

    Attributes:
        backend: the name of the backend.
        placements: the calls of the program, in order.
        parts: the parts that run on the backend.
    """

    backend: str
    placements: tuple[Placement, ...]
    parts: tuple[Part, ...]

    @property
    def transfers(self) -> int:
        """Number of inputs and outputs of all parts."""
        return sum(len(part.inputs) + len(part.outputs) for part in self.parts)

    @property
    def host(self) -> tuple[Placement, ...]:
        """Calls that stay on the host."""
        return tuple(row for row in self.placements if row.part is None)

    def to_dict(self) -> dict[str, Any]:
        """The preview as plain data."""
        return asdict(self) | {"transfers": self.transfers}

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        width = max((len(row.node) for row in self.placements), default=4)
        targets = max((min(len(row.target), 48) for row in self.placements), default=4)
        yield f"{'node':{width}}  {'target':{targets}}  where"
        for row in self.placements:
            where = f"part {row.part}" if row.part is not None else f"host: {row.reason}"
            yield f"{row.node:{width}}  {row.target:{targets}}  {where}"
        yield ""
        for part in self.parts:
            size = f"{_bytes(part.input_bytes)} in, {_bytes(part.output_bytes)} out"
            yield f"{part.name}: {len(part.nodes)} nodes, {size}"
            yield f"    {', '.join(part.inputs) or 'nothing'} -> {', '.join(part.outputs)}"
        yield self.summary()

    def summary(self) -> str:
        """One line: numbers of lowered calls, parts and transfers."""
        lowered = sum(row.part is not None for row in self.placements)
        return (
            f"{lowered} of {len(self.placements)} calls on {self.backend} in {len(self.parts)} "
            f"part{'' if len(self.parts) == 1 else 's'}, {self.transfers} transfers"
        )


def shown(type_: Any) -> str:
    """A type as text, such as ``float32[1, 3]``."""
    if isinstance(type_, TensorType):
        return f"{name_of(type_.dtype)}[{', '.join(map(str, type_.shape))}]"
    if isinstance(type_, (tuple, list)):
        return f"({', '.join(shown(item) for item in type_)})"
    return str(type_)


def size_bytes(type_: Any) -> int | None:
    """Size of a value's tensors in bytes; None if a size is a symbol."""
    if isinstance(type_, TensorType):
        numel = math.prod(type_.shape)
        return numel * type_.dtype.itemsize if isinstance(numel, int) else None
    if isinstance(type_, (tuple, list)):
        return total(size_bytes(item) for item in type_)
    return 0


def total(sizes: Iterable[int | None]) -> int | None:
    """The sum; None if one of the sizes is unknown."""
    known = list(sizes)
    return None if None in known else sum(known)


def _bytes(size: int | None) -> str:
    if size is None:
        return "unknown bytes"
    for unit in ("bytes", "KiB", "MiB"):
        if size < 10240:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"
