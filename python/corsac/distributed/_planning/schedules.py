"""The orders in which the ranks of a pipeline compute, send and receive."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

from torch.distributed.pipelining._utils import generate_stage_to_rank_mapping
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class

#: Schedules in which the stages of a rank make a V: the first and the last one are on the same rank.
V_SCHEDULES = ("ZBVZeroBubble", "DualPipeV")
#: Kinds of actions that compute: forward, backward, and backward for inputs and for weights apart.
COMPUTES = ("F", "B", "I", "W")
#: Kinds of actions that send a value, or receive one.
SENDS, RECEIVES = ("SEND_F", "SEND_B"), ("RECV_F", "RECV_B")


class Action(NamedTuple):
    """What a rank does next: one of :data:`COMPUTES`, :data:`SENDS` and :data:`RECEIVES`. ``SEND_F`` sends the results of
    its stage, ``RECV_F`` receives the inputs of its stage; ``SEND_B`` and ``RECV_B`` are for their gradients."""

    kind: str
    stage: int
    microbatch: int


def schedule_name(schedule: str) -> str:
    """The name that PyTorch has for a schedule.

    Raises:
        ValueError: there is no such schedule.
    """
    plain = schedule.lower().replace("_", "").replace("-", "")
    return get_schedule_class(plain).__name__.removeprefix("Schedule")


def takes_several_stages(schedule: str) -> bool:
    """Whether a rank has several stages in the schedule of this name."""
    return issubclass(get_schedule_class(schedule), PipelineScheduleMulti)


def ranks_of_stages(schedule: str, ranks: int, stages: int) -> dict[int, int]:
    """The rank of each stage."""
    style = "v" if schedule in V_SCHEDULES else "loop"
    return generate_stage_to_rank_mapping(ranks, stages, style)


def orders_of(schedule: str, ranks: int, stages: int, microbatches: int) -> list[list[Action]]:
    """What each rank of a pipeline does in a training step, in order.

    Args:
        schedule: PyTorch's name of the schedule, as of :func:`schedule_name`.
        ranks: the number of ranks.
        stages: the number of stages, a multiple of it.
        microbatches: the number of microbatches.

    Raises:
        ValueError: the schedule does not allow these numbers.
    """
    if microbatches < 1:
        raise ValueError(f"expected at least 1 microbatch, got {microbatches}")
    if takes_several_stages(schedule):
        if stages % ranks:
            raise ValueError(f"{schedule}: expected a multiple of {ranks} stages, got {stages}")
        return _pytorchs(schedule, ranks, stages, microbatches)
    if stages != ranks:
        raise ValueError(f"{schedule}: expected {ranks} stages, one for each rank, got {stages}")
    if schedule == "1F1B" and microbatches < stages:
        raise ValueError(
            f"1F1B needs at least as many microbatches as stages, {stages}, got {microbatches}"
        )
    return [
        _with_neighbours(_single(schedule, rank, ranks, microbatches), stages)
        for rank in range(ranks)
    ]


def _single(schedule: str, rank: int, ranks: int, microbatches: int) -> list[Action]:
    """The computations of a rank with one stage.

    Raises:
        ValueError: there is no order for the schedule.
    """
    forward = [Action("F", rank, own) for own in range(microbatches)]
    backward = [Action("B", rank, own) for own in range(microbatches)]
    if schedule == "GPipe":
        return forward + backward
    if schedule != "1F1B":
        raise ValueError(f"there is no order of actions for the schedule {schedule}")
    warmup = min(ranks - 1 - rank, microbatches)
    steady = [own for pair in zip(forward[warmup:], backward, strict=False) for own in pair]
    return forward[:warmup] + steady + backward[microbatches - warmup :]


def _with_neighbours(computes: list[Action], stages: int) -> list[Action]:
    """The actions of a rank with what it receives before each and sends after it."""
    found: list[Action] = []
    for own in computes:
        kind, stage, microbatch = own
        before, after = (stage > 0, stage < stages - 1)
        if kind == "B":
            before, after = after, before
        if before:
            found.append(Action(f"RECV_{kind}", stage, microbatch))
        found.append(own)
        if after:
            found.append(Action(f"SEND_{kind}", stage, microbatch))
    return found


def _pytorchs(schedule: str, ranks: int, stages: int, microbatches: int) -> list[list[Action]]:
    """The actions that a schedule of PyTorch runs."""
    rank_of = ranks_of_stages(schedule, ranks, stages)
    # Stages of one rank are enough: schedules have the order of all ranks.
    own = [
        SimpleNamespace(
            num_stages=stages,
            group_size=ranks,
            group_rank=0,
            stage_index=number,
            is_first=number == 0,
            is_last=number == stages - 1,
            submod=None,
        )
        for number, rank in rank_of.items()
        if rank == 0
    ]
    try:
        made: Any = get_schedule_class(schedule)(
            own,
            n_microbatches=microbatches,
            loss_fn=lambda *_: None,
        )
    except AssertionError as error:
        raise ValueError(f"{schedule}: {error}") from error
    found = []
    for rank in range(ranks):
        actions = made.pipeline_order_with_comms[rank]
        flat = [part for one in actions for part in (getattr(one, "sub_actions", None) or (one,))]
        named = ((str(one.computation_type.value), one) for one in flat)
        found.append(
            [
                Action(kind, one.stage_index, one.microbatch_index)
                for kind, one in named
                if kind in COMPUTES + SENDS + RECEIVES
            ]
        )
    return found


__all__ = [
    "COMPUTES",
    "RECEIVES",
    "SENDS",
    "V_SCHEDULES",
    "Action",
    "orders_of",
    "ranks_of_stages",
    "schedule_name",
    "takes_several_stages",
]
