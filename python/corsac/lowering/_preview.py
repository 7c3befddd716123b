"""What goes where, and why."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from corsac.onnx._types import TensorType, name_of


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one node runs.

    Attributes:
        node: its name.
        op: its opcode.
        target: what it calls.
        part: the number of the part that it is in; None on the host.
        reason: why it is on the host; None in a part.
        source: the line of the program that made it, where that is known.
    """

    node: str
    op: str
    target: str
    part: int | None
    reason: str | None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """What runs on the backend at once.

    Attributes:
        name: the submodule that it becomes.
        nodes: the names of its nodes.
        inputs: the values that go in, as text: ``x: float32[1, 3]``.
        outputs: the values that come out.
        input_bytes: bytes that go in; None where sizes are symbols.
        output_bytes: bytes that come out.
    """

    name: str
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    input_bytes: int | None
    output_bytes: int | None


@dataclass(frozen=True, slots=True)
class Preview:
    """Where each node of a program goes.

    Attributes:
        backend: the backend's name.
        placements: the calls of the program, in order.
        parts: what runs on the backend.
    """

    backend: str
    placements: tuple[Placement, ...]
    parts: tuple[Part, ...]

    @property
    def transfers(self) -> int:
        """How many values go into parts and come out of them."""
        return sum(len(part.inputs) + len(part.outputs) for part in self.parts)

    @property
    def host(self) -> tuple[Placement, ...]:
        """Calls that stay on the host."""
        return tuple(row for row in self.placements if row.part is None)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
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
        """One line: how much is lowered."""
        lowered = sum(row.part is not None for row in self.placements)
        return (
            f"{lowered} of {len(self.placements)} calls on {self.backend} in {len(self.parts)} "
            f"part{'' if len(self.parts) == 1 else 's'}, {self.transfers} transfers"
        )


def shown(type_: Any) -> str:
    """``float32[1, 3]``."""
    if isinstance(type_, TensorType):
        return f"{name_of(type_.dtype)}[{', '.join(map(str, type_.shape))}]"
    if isinstance(type_, (tuple, list)):
        return f"({', '.join(shown(item) for item in type_)})"
    return str(type_)


def size_bytes(type_: Any) -> int | None:
    """What a value takes."""
    if isinstance(type_, TensorType):
        numel = math.prod(type_.shape)
        return numel * type_.dtype.itemsize if isinstance(numel, int) else None
    if isinstance(type_, (tuple, list)):
        return total(size_bytes(item) for item in type_)
    return 0


def total(sizes: Iterable[int | None]) -> int | None:
    """The sum; None where one is not known."""
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
