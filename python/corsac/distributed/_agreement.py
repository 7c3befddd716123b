"""Ranks that compare what they have planned before anything runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist

from corsac.distributed._errors import DistributedError, PipelineError, PlanMismatchError


def digests_of(parts: Mapping[str, Any]) -> dict[str, str]:
    """A hash of each part of a plan, which are values of JSON."""
    return {
        name: hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()
        for name, own in parts.items()
    }


def agree(
    group: Any,
    rank: int,
    digests: Mapping[str, str] | None,
    error: Exception | None,
    kind: type[DistributedError] = PipelineError,
) -> None:
    """Check that all ranks have made the same plan.

    Args:
        group, rank: the process group, and the rank in it.
        digests: a hash of each part of the plan; None if there is none.
        error: why there is none.
        kind: the class of the error if a rank has failed.

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
            f"rank {rank}: another rank ended before the plan was compared: {caught}"
        ) from caught
    failed = [f"rank {number}: {own['error']}" for number, own in enumerate(all_of) if own["error"]]
    if failed:
        if isinstance(error, (TypeError, ValueError)):
            raise error
        raise kind("; ".join(failed)) from error
    for number, other in enumerate(all_of):
        differ = [
            part
            for part, digest in all_of[0]["digests"].items()
            if other["digests"].get(part) != digest
        ]
        if differ:
            raise PlanMismatchError(
                f"rank {number} has another plan than rank 0: {', '.join(differ)}"
            )


__all__ = ["agree", "digests_of"]
