"""Types of the values of a graph, without running it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from corsac import _core
from corsac._messages.table import table
from corsac._models.example_inputs import gathered
from corsac.analysis._meta_run import MetaRun
from corsac.analysis._subject import captured
from corsac.fx import Graph
from corsac.passes._target import graph_of


@dataclass(frozen=True, slots=True)
class Row:
    """Type of the value of one node.

    Attributes:
        name: the node.
        op: its opcode.
        target: its target, as text.
        value: ``TensorMetadata`` for tensors, with :class:`Dim` where a size depends on symbols and None for
            unknown strides; numbers and containers as they are.
        text: the value as text: ``float32[2, 3]``.
    """

    name: str
    op: str
    target: str
    value: Any
    text: str


@dataclass(frozen=True, slots=True)
class Site:
    """A node to be looked at.

    Attributes:
        node: its name.
        target: its target.
        reason: the reason.
    """

    node: str
    target: str
    reason: str


class Propagation:
    """Result of :func:`propagate`.

    Attributes:
        rows: the type of each node's value, in order.
        fallbacks: nodes without a rule, which were run on meta tensors.
        unknown: nodes whose type could not be found.
    """

    def __init__(self, graph: Graph, types: _core.Types, run: MetaRun | None) -> None:
        self._graph, self._types = graph, types
        self.fallbacks = tuple(Site(*site) for site in types.fallbacks())
        failures = run.failures if run else {}
        self.unknown = tuple(
            Site(node, target, failures.get(node, reason))
            for node, target, reason in types.unknown()
        )
        self._rows: tuple[Row, ...] | None = None

    @property
    def rows(self) -> tuple[Row, ...]:
        if self._rows is None:
            values, texts = self._types.values(), self._types.shown()
            self._rows = tuple(
                Row(node.name, node.op, node._pretty_print_target(node.target), value, text)
                for node, value, text in zip(self._graph.nodes, values, texts, strict=True)
            )
        return self._rows

    def __str__(self) -> str:
        cells = [("name", "op", "target", "value")]
        cells += [(row.name, row.op, row.target, row.text) for row in self.rows]
        lines = table(cells, left=range(4))
        lines.append(
            f"{len(self.rows)} nodes, {len(self.fallbacks)} without a rule, "
            f"{len(self.unknown)} unknown"
        )
        return "\n".join(lines)


def propagate(
    target: torch.nn.Module | torch.export.ExportedProgram | Graph,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    fallback: bool = True,
) -> Propagation:
    """Find the types of all values of a graph without running it.

    Metadata is written to the nodes as :class:`torch.fx.passes.shape_prop.ShapeProp` does:
    ``meta["tensor_meta"]`` and ``meta["type"]``. Strides are ``None`` where they are not known.

    Args:
        target: the graph, the module that runs it, or a model, which is traced, or captured for ``inputs``. Programs
            of :func:`torch.export.export` and graph modules of torch.fx are converted.
        inputs: values for the placeholders: tensors (their elements are not read), meta tensors,
            :class:`TensorSpec` with sizes that may be symbols, numbers, containers. A single tuple or list
            holds all of them.
        kwargs: keyword inputs.
        fallback: whether nodes without a rule are called with meta tensors.

    Raises:
        ShapeInferenceError: a call would fail when run; the message names the node, its expected and given
            arguments, and its place in the user's program.
    """
    found, inputs = captured(target, gathered(inputs), kwargs)
    graph = graph_of(found)
    run = MetaRun(graph.owning_module) if fallback else None
    types = _core.propagate_types(graph, inputs, run)
    if isinstance(target, torch.fx.GraphModule):
        _write_back(graph, target)
    return Propagation(graph, types, run)


def _write_back(graph: Graph, module: torch.fx.GraphModule) -> None:
    """Copy the metadata of a graph to the module of torch.fx that it was converted from."""
    own = {node.name: node.meta for node in graph.nodes}
    for node in module.graph.nodes:
        meta = own.get(node.name, {})
        node.meta.update((key, meta[key]) for key in ("tensor_meta", "type") if key in meta)
