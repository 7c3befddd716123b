"""Ranks that say what they begin, so that none exchanges tensors with one that does something else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from corsac.distributed._errors import DistributedError
from corsac.distributed._failures import Watch
from corsac.distributed._values import described, summary
from corsac.fx import Node


class Announcements:
    """Compares what the ranks of groups begin, before they exchange tensors: a collective takes what comes for its own, or
    waits for ever.

    Args:
        groups: the process groups, in the same order on all ranks.
        watched: watches the exchange.
        kind: the class of errors.
    """

    def __init__(self, groups: Iterable[Any], watched: Watch, kind: type[DistributedError]) -> None:
        self._groups, self._watched, self._kind = list(groups), watched, kind

    def compare(self, what: str, error: Exception | None = None) -> None:
        """Check that all ranks begin the same. All of them raise an error, and can go on.

        Args:
            what: what this rank begins.
            error: why it cannot.

        Raises:
            DistributedError: the ranks begin different things, or one cannot.
            TypeError, ValueError: of this rank.
        """
        for group in self._groups:
            with self._watched(lambda _: f", {what}"):
                said = _exchanged(group, what, error)
            if said and error is None:
                error = self._kind(f"rank {dist.get_rank()}: {_shown(said)}")
        if error is None:
            return
        if isinstance(error, (DistributedError, TypeError, ValueError)):
            raise error
        raise self._kind(f"rank {dist.get_rank()}, {what}: {summary(error)}") from error

    def follow(self, nodes: Sequence[Node], results: Sequence[Any], call: str) -> None:
        """Compare the backward passes through the results of a call, when they begin.

        Args:
            nodes: the nodes of the results.
            results: their values, which are no inputs of the call.
            call: its name.
        """
        #: The number of the backward pass that was compared.
        latest = -1

        def begin(node: Node) -> None:
            nonlocal latest
            number = torch._C._current_graph_task_id()
            if number != latest:
                latest = number
                self.compare(f"the backward pass of {call} from {described(node)}")

        seen: list[Any] = []
        for node, own in zip(nodes, results, strict=True):
            known = own.grad_fn if isinstance(own, torch.Tensor) else None
            if known is not None and known not in seen:
                seen.append(known)
                known.register_prehook(lambda _, node=node: begin(node))


def compare_in_turn(own: Iterable[tuple[Announcements, str]]) -> None:
    """:meth:`Announcements.compare` of each, so that the ranks of all groups learn of an error in one.

    Raises:
        DistributedError: the ranks of a group begin different things.
    """
    error: Exception | None = None
    for announcements, what in own:
        try:
            announcements.compare(what, error)
        except DistributedError as caught:
            error = caught
    if error is not None:
        raise error


def _exchanged(group: Any, what: str, error: Exception | None) -> list[tuple[int, str, str | None]]:
    """What each rank begins, and why it cannot; empty if all begin the same."""
    device = dist.distributed_c10d._get_object_coll_device(group)
    digest = hashlib.blake2b(what.encode(), digest_size=7).digest()
    own = torch.tensor([int.from_bytes(digest, "little"), error is not None], device=device)
    size = dist.get_world_size(group)
    found = own.new_empty(size * 2)
    dist.all_gather_into_tensor(found, own, group=group)
    rows = found.view(size, 2)
    if bool((rows[:, 0] == own[0]).all()) and not bool(rows[:, 1].any()):
        return []
    said: list[Any] = [None] * size
    reason = None if error is None else summary(error)
    dist.all_gather_object(said, (dist.get_rank(), what, reason), group=group)
    return said


def _shown(said: Iterable[tuple[int, str, str | None]]) -> str:
    failed = [f"rank {rank}, {what}: {reason}" for rank, what, reason in said if reason]
    if failed:
        return "another rank failed: " + "; ".join(failed)
    begun = "; ".join(f"rank {rank} begins {what}" for rank, what, _ in said)
    return f"the ranks do not do the same: {begun}"


__all__ = ["Announcements", "compare_in_turn"]
