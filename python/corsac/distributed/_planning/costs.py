"""Costs of the nodes of a model as functions of the size of a microbatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from corsac.analysis._machine import Machine
from corsac.distributed._borders import counted
from corsac.distributed._program import Program
from corsac.distributed._values import InputType, bytes_of, values_of
from corsac.fx import Node


@dataclass(frozen=True, slots=True)
class Line:
    """Numbers that grow by an equal step with each item of a batch.

    Attributes:
        base: for no items.
        step: for each item more.
    """

    base: torch.Tensor
    step: torch.Tensor

    @classmethod
    def through(
        cls, sizes: tuple[int, int], first: Sequence[float], second: Sequence[float]
    ) -> Line:
        """From the numbers for two sizes of a batch; of one size if both are equal."""
        one = torch.tensor(first, dtype=torch.float64)
        if sizes[0] == sizes[1]:
            return cls(one, torch.zeros_like(one))
        step = (torch.tensor(second, dtype=torch.float64) - one) / (sizes[1] - sizes[0])
        return cls(one - step * sizes[0], step)

    def at(self, items: float) -> torch.Tensor:
        """The numbers for a batch of ``items``."""
        return self.base + self.step * items


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor that autograd keeps for the backward pass.

    Attributes:
        owner: the node that makes it, or that keeps it besides its result.
        places: the places of the nodes that keep it.
    """

    owner: Node
    places: tuple[int, ...]


@dataclass(slots=True)
class ModelCosts:
    """Costs of each node of a program.

    Attributes:
        program: the model as one graph.
        nodes: its nodes in order.
        values: their values for the first of two sizes of a batch.
        flops, moved: operations, and bytes read and written, of forward passes.
        back_flops, back_moved: the same of backward passes.
        weight_flops: the operations among them for gradients of weights.
        bytes: sizes of the values.
        saved: what autograd keeps, and ``saved_bytes`` its sizes.
    """

    program: Program
    nodes: list[Node]
    values: Mapping[Node, Any]
    flops: Line
    moved: Line
    back_flops: Line
    back_moved: Line
    weight_flops: Line
    bytes: Line
    saved: list[Saved]
    saved_bytes: Line

    @classmethod
    def of(
        cls, program: Program, inputs: Sequence[Sequence[InputType]], sizes: tuple[int, int]
    ) -> ModelCosts:
        """The costs of a program, from inputs of two sizes of a batch.

        Raises:
            PipelineError: a call fails for such inputs.
        """
        first, second = (_Counts(program, own) for own in inputs)

        def line(name: str) -> Line:
            return Line.through(sizes, getattr(first, name), getattr(second, name))

        names = ("flops", "moved", "back_flops", "back_moved", "weight_flops", "bytes")
        return cls(
            program,
            first.nodes,
            first.values,
            **{name: line(name) for name in names},
            saved=first.saved,
            saved_bytes=line("saved_bytes"),
        )

    def seconds(
        self, items: float, machine: Machine, shares: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The times of each node on a rank that has ``shares`` of it: forward, backward, and for gradients of weights."""

        def time(flops: Line, moved: Line) -> torch.Tensor:
            operations, traffic = flops.at(items), moved.at(items)
            return shares * torch.maximum(
                operations / (machine.gflops * 1e9), traffic / (machine.gbytes * 1e9)
            )

        backward = time(self.back_flops, self.back_moved)
        operations = self.back_flops.at(items)
        part = self.weight_flops.at(items) / operations.clamp(min=1.0)
        return time(self.flops, self.moved), backward, backward * part


class _Counts:
    """The costs for inputs of one size."""

    def __init__(self, program: Program, inputs: Sequence[InputType]) -> None:
        self.nodes = list(program.graph.nodes)
        place = {node: at for at, node in enumerate(self.nodes)}
        self._kept: dict[int, list[Node]] = {}
        self._tensors: dict[int, torch.Tensor] = {}
        self._at: Node | None = None
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda own: own):
            self.values = values_of(program.graph, inputs, program.weights, entered=self._enter)
        self.flops: list[float] = []
        self.moved: list[float] = []
        self.back_flops: list[float] = []
        self.back_moved: list[float] = []
        self.weight_flops: list[float] = []
        self.bytes = [float(bytes_of(self.values.get(node))) for node in self.nodes]
        rows = counted(program, self.values)
        for node, (macs, flops, read, written) in zip(self.nodes, rows, strict=True):
            is_call = node.op.startswith("call_")
            self.flops.append(flops if is_call else 0.0)
            self.moved.append(read + written if is_call else 0.0)
            self._add_backward(node, macs, flops, read, written)
        owners: dict[int, Node] = {}
        weights: set[int] = set()
        for node in self.nodes:
            for own in _tensors(self.values.get(node)):
                key = own.untyped_storage()._cdata
                owners.setdefault(key, node)
                if node.op == "get_attr":
                    weights.add(key)
        kept = [(key, users) for key, users in self._kept.items() if key not in weights]
        self.saved = [
            Saved(owners.get(key, users[0]), tuple(sorted({place[own] for own in users})))
            for key, users in kept
        ]
        self.saved_bytes = [float(self._tensors[key].untyped_storage().nbytes()) for key, _ in kept]

    def _enter(self, node: Node) -> None:
        self._at = node

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        key = tensor.untyped_storage()._cdata
        # Held, so that no other one gets the number of its storage.
        self._tensors.setdefault(key, tensor.detach())
        if self._at is not None:
            self._kept.setdefault(key, []).append(self._at)
        return tensor

    def _add_backward(self, node: Node, macs: int, flops: int, read: int, written: int) -> None:
        """A product has one for each of its arguments that has a gradient, which costs as much as it; other calls read
        what they have read and written, and write a gradient for what they have read."""
        total = moved = of_weights = 0.0
        if node.op.startswith("call_") and _has_gradient(self.values.get(node)):
            given = [own for own in node.all_input_nodes if _has_gradient(self.values.get(own))]
            own_weights = [own for own in given if own.op == "get_attr"]
            if macs:
                # A bias costs nothing beside its weight.
                products = [own for own in given if self.values[own].dim() > 1]
                total = float(flops * len(products))
                of_weights = float(flops * sum(own in own_weights for own in products))
                moved = float((read + written) * max(len(products), 1))
            elif written:
                total, moved = float(flops), float(2 * read + written)
                of_weights = float(flops) * len(own_weights) / max(len(given), 1)
        self.back_flops.append(total)
        self.back_moved.append(moved)
        self.weight_flops.append(of_weights)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [own for one in value for own in _tensors(one)]
    return []


def _has_gradient(value: Any) -> bool:
    return any(own.requires_grad for own in _tensors(value))


def resized(types: Sequence[InputType], batch: int, items: int) -> list[InputType]:
    """The types of inputs, of which those with a batch as the first dimension get one of ``items``."""
    return [
        ((items, *shape[1:]) if shape and shape[0] == batch else shape, dtype)
        for shape, dtype in types
    ]


__all__ = ["Line", "ModelCosts", "Saved", "resized"]
