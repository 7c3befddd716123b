"""The ranges of sizes of programs of ``torch.export``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from corsac._engine.native_graph import CompileError
from corsac._files.dynamic_shapes import NO_LIMIT, DynamicShapes
from corsac._files.input_check import InputCheck


def take_ranges(program: torch.export.ExportedProgram, shapes: DynamicShapes) -> None:
    """Give ``shapes`` the ranges of a program where none are declared; those that are declared have to be in them.

    Raises:
        CompileError: a size is fixed in the program, or has a smaller range.
    """
    ranges = {
        str(symbol): (int(own.lower), int(own.upper) if own.upper < NO_LIMIT else None)
        for symbol, own in program.range_constraints.items()
    }
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    inputs = [values[name] for name in program.graph_signature.user_inputs if name in values]
    _take(shapes, [[_written(size) for size in own.shape] for own in inputs], ranges)


def take_checked_ranges(check: InputCheck, shapes: DynamicShapes) -> None:
    """The same of the module that ``check`` is a hook of."""
    tensors = [own for own in check.leaves if own.dtype is not None]
    _take(shapes, [[_written(size) for size in own.shape] for own in tensors], check.ranges)


def _written(size: object) -> int | str:
    return size if isinstance(size, int) else str(size)


def _take(
    shapes: DynamicShapes,
    inputs: Sequence[Sequence[int | str]],
    ranges: Mapping[str, tuple[int, int | None]],
) -> None:
    for name, sizes, own in zip(shapes.names, shapes.sizes, inputs, strict=True):
        for dim, size in sizes.items():
            where = f"input {name}, dimension {dim}"
            exported = own[dim]
            if isinstance(exported, int):
                raise CompileError(f"{where}: torch.export has fixed it to {exported}")
            if exported not in ranges or (size.factor, size.offset) != (1, 0):
                # What follows from other sizes is checked where these are.
                continue
            lower, upper = ranges[exported]
            least, most = shapes.ranges[size.symbol]
            if least is None:
                least = max(lower, 1)
            if most is None:
                most = upper
            if least < lower or (upper is not None and (most is None or most > upper)):
                limits = f"{lower}..{'' if upper is None else upper}"
                raise CompileError(
                    f"{where}: {size.symbol} is declared to be {least}..{'' if most is None else most}, and the "
                    f"exported program takes {limits}"
                )
            shapes.ranges[size.symbol] = (least, most)


__all__ = ["take_checked_ranges", "take_ranges"]
