"""Meshes of ranks, and what a training step on them costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from corsac.analysis._cost import short
from corsac.distributed._errors import DistributedError


@dataclass(frozen=True, slots=True, order=True)
class Mesh:
    """Ranks in three dimensions.

    Attributes:
        pipeline: the number of ranks that have different stages.
        tensor: the number of ranks that share a stage, of which each has a part of the weights.
        data: the number of copies of the model, of which each has a part of the batch.
    """

    pipeline: int
    tensor: int
    data: int

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.pipeline * self.tensor * self.data

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the device mesh, of which the last dimension has ranks beside each other."""
        return self.pipeline, self.data, self.tensor

    def rank(self, pipeline: int, tensor: int, data: int) -> int:
        """The rank at a place in the mesh."""
        return (pipeline * self.data + data) * self.tensor + tensor

    def __str__(self) -> str:
        return f"{self.pipeline} × {self.tensor} × {self.data}"


#: The names of the dimensions of :attr:`Mesh.shape`.
DIMENSIONS = ("pipeline", "data", "tensor")


def meshes_of(ranks: int) -> Iterator[Mesh]:
    """All meshes of a number of ranks."""
    divisors = [own for own in range(1, ranks + 1) if ranks % own == 0]
    for pipeline in divisors:
        for tensor in divisors:
            if ranks % (pipeline * tensor) == 0:
                yield Mesh(pipeline, tensor, ranks // (pipeline * tensor))


@dataclass(frozen=True, slots=True)
class MeshCosts:
    """A training step on a mesh, as it is expected.

    Attributes:
        mesh: the mesh.
        schedule: of its pipeline.
        stages: the number of stages.
        microbatches: their number in each copy of the model.
        items: the size of a microbatch, on average.
        seconds: the time of a step, without the optimizer.
        bubble: the share of the step in which ranks do not compute, on average.
        exposed: seconds of it after the last backward pass, for the sum of gradients.
        sent_bytes: what a rank sends in a step, at most.
        memory_bytes: what a rank needs, at most: weights, gradients, states of the optimizer, activations of the
            microbatches in flight, and the largest call.
    """

    mesh: Mesh
    schedule: str
    stages: int
    microbatches: int
    items: float
    seconds: float
    bubble: float
    exposed: float
    sent_bytes: float
    memory_bytes: float


class Refusal(DistributedError):
    """A mesh cannot be used.

    Attributes:
        text: the reason.
        memory_bytes: what a rank would need at least, if that is it; 0 else.
    """

    def __init__(self, text: str, memory_bytes: float = 0.0) -> None:
        self.text, self.memory_bytes = text, memory_bytes
        needed = f": {short(round(memory_bytes))}B" if memory_bytes else ""
        super().__init__(text + needed)


__all__ = ["DIMENSIONS", "Mesh", "MeshCosts", "Refusal", "meshes_of"]
