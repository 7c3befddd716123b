"""Weights of the parts of a program that a rank has: those of a model, or read from a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

import torch

from corsac.distributed._errors import PipelineError
from corsac.distributed._plan import PipelinePlan
from corsac.distributed._program import Program
from corsac.distributed._weights import on_meta, other_shape, read_weights, reader_of


def stage_weights(
    plan: PipelinePlan,
    stages: Sequence[int],
    path: str | os.PathLike[str] | None,
    device: torch.device,
) -> list[dict[str, torch.Tensor]]:
    """The weights of the given stages. Parameters that several stages read are copies, except in the first one.

    Args:
        plan: names the weights.
        stages: their numbers.
        path: a safetensors file, or a folder of them, of which only their bytes are read. If it is None, the weights of the model.
        device: where they are put.

    Raises:
        PipelineError: a weight is on ``meta``, and not in the file.
    """

    def refuse(name: str, reason: str) -> PipelineError:
        number = next(own for own in stages if name in plan.stages[own].weights)
        return PipelineError(
            f"stage {number}, {reader_of(plan.stages[number].graph, name)}: {reason}"
        )

    names = [plan.stages[number].weights for number in stages]
    return part_weights(plan.program, names, path, device, refuse)


def part_weights(
    program: Program,
    parts: Sequence[Iterable[str]],
    path: str | os.PathLike[str] | None,
    device: torch.device,
    refuse: Callable[[str, str], Exception],
) -> list[dict[str, torch.Tensor]]:
    """The weights of parts of a program, of which each has those with the given names. Parameters that several parts
    read are copies, except in the first one.

    Args:
        path, device: as for :func:`stage_weights`.
        refuse: makes the error for a weight, of which it says what is wrong: it is on ``meta``, and not in the file.
    """
    every = dict.fromkeys(name for own in parts for name in own)
    known = {} if path is None else read_weights(program, every, path, refuse)
    made: list[dict[str, torch.Tensor]] = []
    used: set[str] = set()
    for names in parts:
        own: dict[str, torch.Tensor] = {}
        for name in names:
            weight = program.weights[name]
            value = known.get(name, program.tensors[name])
            if value.is_meta:
                raise refuse(name, on_meta(program, name, path))
            if tuple(value.shape) != weight.shape:
                raise refuse(name, other_shape(program, name, value.shape, path))
            is_new = name in used or name in known or value.device != device
            if is_new:
                value = value.detach().to(device, weight.dtype)
                value = value.clone() if name in used else value
            if weight.kind == "parameter" and not isinstance(value, torch.nn.Parameter):
                value = torch.nn.Parameter(value, weight.requires_grad)
            own[name] = value
            used.add(name)
        made.append(own)
    return made


__all__ = ["part_weights", "stage_weights"]
