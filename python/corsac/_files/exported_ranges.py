"""The ranges of sizes of programs of ``torch.export``."""

from __future__ import annotations

import torch

from corsac._engine.native_graph import CompileError
from corsac._files.dynamic_shapes import NO_LIMIT, DynamicShapes


def take_ranges(program: torch.export.ExportedProgram, shapes: DynamicShapes) -> None:
    """Give ``shapes`` the ranges of a program where none are declared; those that are declared have to be in them.

    Raises:
        CompileError: a size is fixed in the program, or has a smaller range.
    """
    ranges = {str(symbol): own for symbol, own in program.range_constraints.items()}
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    inputs = [values[name] for name in program.graph_signature.user_inputs if name in values]
    for name, sizes, own in zip(shapes.names, shapes.sizes, inputs, strict=True):
        for dim, size in sizes.items():
            where = f"input {name}, dimension {dim}"
            exported = own.shape[dim]
            if isinstance(exported, int):
                raise CompileError(f"{where}: torch.export has fixed it to {exported}")
            range_ = ranges.get(str(exported))
            if range_ is None or (size.factor, size.offset) != (1, 0):
                # What follows from other sizes is checked where these are.
                continue
            lower, upper = int(range_.lower), int(range_.upper) if range_.upper < NO_LIMIT else None
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


__all__ = ["take_ranges"]
