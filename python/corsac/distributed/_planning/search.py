"""The search over all meshes for a model."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from corsac._splitting import balanced
from corsac.analysis._machine import Machine, machine
from corsac.distributed._errors import PipelineError
from corsac.distributed._plan import other_sizes
from corsac.distributed._planning.costs import resized
from corsac.distributed._planning.measured import StepSeconds, slower_than
from corsac.distributed._planning.mesh_plans import MeshPlans
from corsac.distributed._planning.meshes import Mesh, MeshCosts, Refusal, meshes_of
from corsac.distributed._planning.network import Network
from corsac.distributed._planning.planner import Planner
from corsac.distributed._planning.schedules import schedule_name
from corsac.distributed._program import Program, positional, program_of
from corsac.distributed._values import InputType, input_types, quiet, values_for

#: Tensors of the size of each parameter that an optimizer keeps, if there is one.
STATES = {"none": 0} | balanced.STATES


def plan_mesh(
    model: Any,
    example_inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    ranks: int | Sequence[int],
    bandwidth: float | None = None,
    latency: float = 10e-6,
    network: Network | None = None,
    memory: int | None = None,
    machine: Machine | None = None,
    measured: StepSeconds | None = None,
    microbatches: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    schedules: Sequence[str] = ("1f1b",),
    optimizer: str = "adam",
    sequence_parallel: bool = False,
    captured_with: Any = None,
    dynamic_shapes: Mapping[str | int, Collection[int]] | None = None,
) -> MeshPlans:
    """Find the best mesh of ranks for training a model: how many have different stages of a pipeline, how many share a
    stage by tensor parallelism, and how many have copies. Nothing is run, and no process group is needed.

    Each step is simulated action by action with the order of the schedule. Operations take the time of a roofline, or what
    was measured; collectives are those of :func:`plan_parallel`, as rings. The best mesh of each number of ranks is
    checked: all that its ranks send, receive and reduce fits together.

    Args:
        model: a module, whose weights may be on ``meta``. It is captured in the training modes that its modules have.
        example_inputs: the positional arguments of a call with the whole batch of a step: tensors, which may be on
            ``meta``, and plain values. Tensors whose first dimension is that of the first one are split.
        kwargs: its keyword arguments.
        ranks: the number of ranks, or several numbers.
        bandwidth: bytes per second from one rank to another.
        latency: seconds that a message takes besides.
        network: both, in place of ``bandwidth`` and ``latency``, as :func:`measure_network` returns them.
        memory: bytes of each rank; no bound if it is None.
        machine: the speed of a rank; by default that of this machine.
        measured: what passes of a microbatch take on one rank, which then only are shared out as the roofline says.
        microbatches: the numbers of microbatches to try.
        schedules: the schedules to try, as for :func:`pipeline`.
        optimizer: what is kept for each parameter: ``"none"``, ``"sgd"``, ``"momentum"`` or ``"adam"``.
        sequence_parallel: as for :func:`plan_parallel`.
        captured_with: smaller arguments for the capture, in place of two items of ``example_inputs``: also shorter texts,
            where the graph does not depend on their length. Positional ones, or a pair of a tuple and a dictionary.
        dynamic_shapes: as for :func:`plan_pipeline`.

    Raises:
        DistributedError: the model is no graph.
        MatchingError: the ranks of a plan would not do the same, a fault of corsac.
        ValueError: a number is out of range, or a schedule or optimizer is not known.
    """
    counts = [ranks] if isinstance(ranks, int) else list(ranks)
    _check(counts, microbatches, schedules, optimizer, memory)
    network = _network(bandwidth, latency, network)
    args, named = positional(example_inputs), dict(kwargs or {})
    program, captured = _captured(model, args, named, captured_with, dynamic_shapes)
    tensors = program.arguments.tensors(args, named)
    if not tensors or tensors[0].dim() == 0 or not tensors[0].size(0):
        raise PipelineError("the first input has no batch dimension")
    batch = tensors[0].size(0)
    types = input_types(tensors)
    sizes = _sizes(program, types, batch, captured)
    sized = [resized(types, batch, own) for own in sizes]
    inputs = [sized[0], *other_sizes(program, sized[0], dynamic_shapes)]
    speed = machine_of_this() if machine is None else machine
    planner = Planner(
        program,
        inputs,
        sized,
        sizes,
        batch,
        speed,
        network,
        memory,
        STATES[optimizer],
        sequence_parallel=sequence_parallel,
    )
    if measured is not None:
        planner.slower = slower_than(measured, planner.costs, speed)
        planner.overhead, planner.split = measured.action, measured.split
    found: list[MeshCosts] = []
    refused: dict[Mesh, Refusal] = {}
    for count in counts:
        own = []
        for mesh in meshes_of(count):
            try:
                own.append(planner.best(mesh, schedules, sorted(microbatches)))
            except Refusal as reason:
                refused[mesh] = reason
        own.sort(key=lambda one: (one.seconds, one.memory_bytes))
        if own:
            planner.check(own[0])
        found += own
    return MeshPlans(batch, found, refused, speed, network, planner)


#: The speed of this machine.
machine_of_this = machine


def _network(bandwidth: float | None, latency: float, network: Network | None) -> Network:
    if network is not None and bandwidth is None:
        return network
    if network is None and bandwidth is not None:
        return Network(bandwidth, latency)
    raise ValueError("expected either bandwidth or network")


def _check(
    ranks: Sequence[int],
    microbatches: Sequence[int],
    schedules: Sequence[str],
    optimizer: str,
    memory: int | None,
) -> None:
    for name, numbers in (("ranks", ranks), ("microbatches", microbatches)):
        if not numbers or min(numbers) < 1:
            raise ValueError(f"{name}: expected numbers of at least 1, got {list(numbers)}")
    if not schedules:
        raise ValueError("schedules: expected at least one")
    for own in schedules:
        schedule_name(own)
    if optimizer not in STATES:
        known = ", ".join(map(repr, STATES))
        raise ValueError(f"optimizer: expected one of {known}, got {optimizer!r}")
    if memory is not None and memory < 1:
        raise ValueError(f"memory: expected at least 1 byte, got {memory}")


def _sizes(
    program: Program, types: Sequence[InputType], batch: int, captured: int
) -> tuple[int, int]:
    """Two sizes of a batch for which the graph is right; equal ones if it is for one only."""
    if batch > 1:
        with quiet(), contextlib.suppress(PipelineError):
            for own in (2, 3):
                values_for(program, resized(types, batch, own))
            return 2, 3
    return captured, captured


def _captured(
    model: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    captured_with: Any,
    dynamic_shapes: Mapping[str | int, Collection[int]] | None,
) -> tuple[Program, int]:
    """The program, from a call with few items, which are computed, and their number."""
    if captured_with is None:
        batch = _items(args, kwargs)

        def few(own: Any) -> Any:
            is_batched = isinstance(own, torch.Tensor) and own.dim() and own.size(0) == batch
            return own[:2] if is_batched else own

        args, kwargs = tuple(map(few, args)), {name: few(own) for name, own in kwargs.items()}
    else:
        is_pair = isinstance(captured_with, tuple) and len(captured_with) == 2
        if is_pair and isinstance(captured_with[1], dict):
            args, kwargs = positional(captured_with[0]), captured_with[1]
        else:
            args, kwargs = positional(captured_with), {}
    return program_of(model, args, kwargs, dynamic_shapes), _items(args, kwargs)


def _items(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """The size of the batch of a call; 0 if it has none."""
    tensors = (own for own in (*args, *kwargs.values()) if isinstance(own, torch.Tensor))
    return next((own.size(0) for own in tensors if own.dim()), 0)


__all__ = ["plan_mesh"]
