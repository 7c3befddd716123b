"""Weights of the stages of a rank: those of a model, or read from a file."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

import torch

from corsac._files.safetensors import read_safetensors
from corsac.distributed._errors import PipelineError
from corsac.distributed._plan import PipelinePlan
from corsac.distributed._values import described


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
        path: a safetensors file, of which only their bytes are read. If it is None, the weights of the model.
        device: where they are put.

    Raises:
        PipelineError: a weight is on ``meta``, and not in the file.
    """
    known = {} if path is None else _read(plan, stages, path)
    made: list[dict[str, torch.Tensor]] = []
    used: set[str] = set()
    for number in stages:
        own: dict[str, torch.Tensor] = {}
        for name in plan.stages[number].weights:
            weight = plan.program.weights[name]
            value = known.get(name, plan.program.tensors[name])
            if value.is_meta:
                place = "no file of weights was given" if path is None else f"{path} lacks it"
                raise PipelineError(
                    f"stage {number}, {_reader(plan, number, name)}: the {weight.kind} {name} is on "
                    f"meta, and {place}"
                )
            if tuple(value.shape) != weight.shape:
                raise PipelineError(
                    f"stage {number}, {_reader(plan, number, name)}: expected {name} of shape "
                    f"{list(weight.shape)}, got {list(value.shape)} in {path}"
                )
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


def _read(
    plan: PipelinePlan, stages: Sequence[int], path: str | os.PathLike[str]
) -> dict[str, torch.Tensor]:
    """The weights of stages that are in a file, under one of their names."""
    names = dict.fromkeys(name for number in stages for name in plan.stages[number].weights)
    #: The names in the file.
    chosen: dict[str, str] = {}

    def choose(held: Collection[str]) -> Collection[str]:
        for name in names:
            weight = plan.program.weights[name]
            own = next((other for other in (name, *weight.aliases) if other in held), None)
            if own is not None:
                chosen[name] = own
            elif weight.kind == "parameter" and not plan.program.tensors[name].is_meta:
                number = next(own for own in stages if name in plan.stages[own].weights)
                raise PipelineError(
                    f"stage {number}, {_reader(plan, number, name)}: {path} has no tensor {name}"
                )
        return chosen.values()

    found = read_safetensors(path, choose)
    return {name: found[own] for name, own in chosen.items()}


def _reader(plan: PipelinePlan, number: int, name: str) -> str:
    """The first node of a stage that reads a weight, as text."""
    for node in plan.stages[number].graph.find_nodes(op="get_attr"):
        if node.target == name:
            return described(next(iter(node.users), node))
    return f"weight {name}"


__all__ = ["stage_weights"]
