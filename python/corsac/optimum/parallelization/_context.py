"""What a parallel model runs in, and how it is cut."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist


@dataclass
class ParallelExecutionCtx:
    """The process group of a parallel model.

    Attributes:
        tp_group: the ranks that have parts of each weight.
        current_device: where this rank's parts lie.
    """

    tp_group: Any
    current_device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def size(self) -> int:
        """The number of ranks."""
        return dist.get_world_size(self.tp_group)

    @property
    def rank(self) -> int:
        """The rank of this process in the group."""
        return dist.get_rank(self.tp_group)

    @property
    def name(self) -> str:
        """The name of the group, as collectives take it."""
        return self.tp_group.group_name


@dataclass
class Config:
    """How a model is cut.

    Attributes:
        replicate, shard, uneven: as for :func:`corsac.distributed.plan_parallel`.
        enable_sequence_parallel: its ``sequence_parallel``.
    """

    replicate: Collection[str] = ()
    shard: Mapping[str, int] = field(default_factory=dict)
    uneven: str = "error"
    enable_sequence_parallel: bool = False


__all__ = ["Config", "ParallelExecutionCtx"]
