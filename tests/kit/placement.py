"""Records where the graphs of ``torch.compile(backend="corsac")`` ran."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import corsac.backends._pieces
from corsac._engine.dynamo_graph import Piece
from corsac._engine.native_graph import Compiled
from corsac._training import TrainedGraph


@dataclass
class Placed:
    """Calls of operators, by kind of graph: ``"inference"``, ``"forward"`` or ``"backward"``.

    Attributes:
        calls: number of calls.
        native: number of native calls.
    """

    calls: Counter[str] = field(default_factory=Counter)
    native: Counter[str] = field(default_factory=Counter)

    def share(self, kind: str) -> float:
        """The fraction of native calls."""
        return self.native[kind] / self.calls[kind] if self.calls[kind] else 0.0


class Pieces(list[Any]):
    """The functions that run each graph."""

    def placed(self) -> Placed:
        """Where the calls of all graphs run."""
        found = Placed()
        for piece in self:
            if isinstance(piece, TrainedGraph):
                for graph in piece.graphs:
                    found.calls[graph.kind] += graph.calls
                    found.native[graph.kind] += graph.native
            elif isinstance(piece, Piece):
                for module in piece.variants():
                    for program in module._programs.values():
                        _add(found, module, program)
        return found

    def reasons(self) -> Counter[str]:
        """The reasons why PyTorch runs calls, with numbers of graphs."""
        found: Counter[str] = Counter()
        for piece in self:
            if isinstance(piece, TrainedGraph):
                for graph in piece.graphs:
                    found.update(graph.host)
            elif isinstance(piece, Piece):
                for module in piece.variants():
                    for program in module._programs.values():
                        if isinstance(program, str):
                            found[program] += 1
                        elif program.preview is not None:
                            found.update({str(row.reason) for row in program.preview.host})
                    found.update(module._reasons.keys() - found.keys())
        return found


def _add(found: Placed, module: Any, program: Compiled | str) -> None:
    """Count the calls of a graph for inference."""
    calls = sum(node.op.startswith("call_") for node in module._captured.graph.nodes)
    native = calls
    if isinstance(program, str):
        native = 0
    elif program.preview is not None:
        calls = len(program.preview.placements)
        native = calls - len(program.preview.host)
    found.calls["inference"] += calls
    found.native["inference"] += native


@contextlib.contextmanager
def recorded() -> Iterator[Pieces]:
    """Records the functions for graphs that Dynamo passes to the backend ``"corsac"`` in the block."""
    pieces = Pieces()
    own = corsac.backends._pieces.piece_for

    def piece_for(*args: Any) -> Any:
        pieces.append(own(*args))
        return pieces[-1]

    corsac.backends._pieces.piece_for = piece_for
    try:
        yield pieces
    finally:
        corsac.backends._pieces.piece_for = own
