"""Ranks that compare what they have planned before anything runs."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from corsac.distributed._errors import (
    DistributedError,
    ParallelError,
    PipelineError,
    PlanMismatchError,
)
from corsac.distributed._values import data_of, described
from corsac.fx import Graph

#: Least number of values of a large tensor in :func:`digest_of_samples`.
_SAMPLED = 256


def digests_of(parts: Mapping[str, Any]) -> dict[str, str]:
    """A hash of each part of a plan, which are values of JSON."""
    return {
        name: hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()
        for name, own in parts.items()
    }


def digest_of_values(tensors: Iterable[torch.Tensor]) -> str:
    """A hash of the values of tensors."""
    found = hashlib.sha256()
    for own in tensors:
        found.update(data_of(own))
    return found.hexdigest()


def digest_of_samples(tensors: Mapping[str, torch.Tensor]) -> str:
    """A hash of some values of each of the tensors by name that are not on ``meta``: those of other models differ."""
    held = (own.detach() for _, own in sorted(tensors.items()) if not own.is_meta)
    return digest_of_values(own.reshape(-1)[:: max(own.numel() // _SAMPLED, 1)] for own in held)


def group_of(mesh: Any, timeout: float, kind: type[DistributedError] = ParallelError) -> Any:
    """The process group of a mesh of one dimension, or one of all ranks if there is none.

    Args:
        mesh: a :class:`~torch.distributed.device_mesh.DeviceMesh`, a process group, or None.
        timeout: in seconds, of a new group.
        kind: the class of errors.

    Raises:
        DistributedError: there are no process groups, or the mesh has several dimensions.
    """
    if not dist.is_initialized():
        raise kind("there is no process group: call torch.distributed.init_process_group")
    if mesh is None:
        return dist.new_group(timeout=datetime.timedelta(seconds=timeout))
    if isinstance(mesh, dist.ProcessGroup):
        return mesh
    if mesh.ndim != 1:
        names = mesh.mesh_dim_names or tuple(range(mesh.ndim))
        raise kind(f"expected a mesh of one dimension, got one of {list(names)}")
    return mesh.get_group()


def agree(
    group: Any,
    digests: Mapping[str, str] | None,
    error: Exception | None,
    kind: type[DistributedError] = PipelineError,
    graph: Graph | None = None,
) -> None:
    """Check that all ranks have made the same plan.

    Args:
        group: the process group.
        digests: a hash of each part of the plan; None if there is none.
        error: why there is none.
        kind: the class of the error if a rank has failed.
        graph: the part ``"graph"`` of the plan, of which the first node that differs is named.

    Raises:
        DistributedError: a rank has failed.
        PlanMismatchError: the plans differ.
    """
    own = {
        "error": None if error is None else f"{type(error).__name__}: {error}",
        "digests": dict(digests or {}),
    }
    all_of: list[Any] = [None] * dist.get_world_size(group)
    try:
        dist.all_gather_object(all_of, own, group=group)
    except Exception as caught:
        raise error or kind(
            f"rank {dist.get_rank()}: another rank ended before the plan was compared: {caught}"
        ) from caught
    ranks = [dist.get_global_rank(group, own) for own in range(len(all_of))]
    failed = [
        f"rank {rank}: {own['error']}"
        for rank, own in zip(ranks, all_of, strict=True)
        if own["error"]
    ]
    if failed:
        if isinstance(error, (TypeError, ValueError)):
            raise error
        raise kind("; ".join(failed)) from error
    for rank, other in zip(ranks, all_of, strict=True):
        differ = [
            part
            for part, digest in all_of[0]["digests"].items()
            if other["digests"].get(part) != digest
        ]
        if differ:
            text = f"rank {rank} has another plan than rank {ranks[0]}: {', '.join(differ)}"
            if "graph" in differ:
                text += _difference(group, graph, ranks, ranks.index(rank))
            raise PlanMismatchError(text)


def _difference(group: Any, graph: Graph | None, ranks: Sequence[int], at: int) -> str:
    """The first nodes in which the graphs of the first rank and of that with the index ``at`` differ, as text."""
    own = [
        f"{described(node)}: {node.target} of {node.args}, {node.kwargs}"
        for node in ([] if graph is None else graph.nodes)
    ]
    all_of: list[Any] = [None] * len(ranks)
    dist.all_gather_object(all_of, own, group=group)
    for first, other in itertools.zip_longest(all_of[0], all_of[at], fillvalue="no node"):
        if first != other:
            return f"; rank {ranks[0]} has {first}, rank {ranks[at]} has {other}"
    return ""


def agree_all(
    groups: Iterable[Any],
    digests: Mapping[str, str] | None,
    error: Exception | None,
    kind: type[DistributedError] = PipelineError,
    graph: Graph | None = None,
) -> None:
    """:func:`agree` with the ranks of each group, so that those of all learn of the failure of one."""
    for own in groups:
        try:
            agree(own, digests, error, kind, graph)
        except Exception as caught:
            error = caught
    if error is not None:
        raise error


__all__ = ["agree", "agree_all", "digest_of_samples", "digest_of_values", "digests_of", "group_of"]
