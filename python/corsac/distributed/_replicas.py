"""Replicas of the stages of a rank: gradients that are averaged while the last microbatch goes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from corsac.distributed._buckets import FIRST_BYTES, Bucket, in_buckets
from corsac.distributed._program import Weight
from corsac.distributed._rank_module import RankModule
from corsac.distributed._weights import start_equal
from corsac.passes._writes import written_sources


class Replicas:
    """The ranks that have the same stages, for other batches.

    Args:
        group: their process group.
        modules: the modules of the stages of this rank, by number.
        weights: the types of the weights.
        apart: names of parameters whose gradients are averaged by :meth:`mean`.
        microbatches: number of gradients that a parameter gets in a step.
        bucket_bytes: the size from which a bucket takes no more gradients.

    Attributes:
        buckets: the gradients that one collective averages, in the order of the collectives; names begin with the number
            of the stage.
    """

    def __init__(
        self,
        group: Any,
        modules: Mapping[int, RankModule],
        weights: Mapping[str, Weight],
        apart: Sequence[str],
        microbatches: int,
        bucket_bytes: int,
    ) -> None:
        self.group, self._microbatches = group, microbatches
        self._parameters: dict[str, torch.nn.Parameter] = {}
        types: dict[str, Weight] = {}
        # Gradients are ready in the reverse order of their use.
        for number, module in sorted(modules.items(), reverse=True):
            for name, own in reversed(list(module.named_parameters())):
                if own.requires_grad and name not in apart:
                    self._parameters[f"{number}.{name}"] = own
                    # It may be cut among ranks.
                    types[f"{number}.{name}"] = replace(weights[name], shape=tuple(own.shape))
        self.buckets = in_buckets(list(types), types, bucket_bytes, FIRST_BYTES)
        self._bucket_of = {
            name: at for at, bucket in enumerate(self.buckets) for name in bucket.names
        }
        #: Gradients that are to come, by parameter, and parameters with such ones, by bucket.
        self._missing: dict[str, int] = {}
        self._open: list[int] = []
        #: Buckets that are being averaged.
        self._started: list[tuple[torch.Tensor, Any]] = []
        for name, own in self._parameters.items():
            own.register_post_accumulate_grad_hook(lambda _, name=name: self._counted(name))
        self._weights = [own for module in modules.values() for own in _tensors(module)]
        self._written = [own for module in modules.values() for own in _written(module)]

    def start_equal(self) -> None:
        """Give all replicas the parameters and buffers of the first one."""
        start_equal(self.group, self._weights)

    def begin(self) -> None:
        """Begin a step: as in DistributedDataParallel, with the buffers of the first replica."""
        start_equal(self.group, self._written)
        self._missing = dict.fromkeys(self._parameters, self._microbatches)
        self._open = [len(bucket.names) for bucket in self.buckets]
        self._started = []

    def _counted(self, name: str) -> None:
        """Count a gradient, and start the collectives of the buckets that are full, in their order."""
        if name not in self._missing:
            return
        self._missing[name] -= 1
        if self._missing[name] == 0:
            self._open[self._bucket_of[name]] -= 1
            while len(self._started) < len(self._open) and not self._open[len(self._started)]:
                self._start(self.buckets[len(self._started)])

    def _start(self, bucket: Bucket) -> None:
        flat = []
        for name, length in zip(bucket.names, bucket.lengths, strict=True):
            own = self._parameters[name]
            is_unused = own.grad is None
            flat.append(own.new_zeros(length) if is_unused else own.grad.reshape(-1))
        joined = torch.cat(flat).detach().mul_(1 / dist.get_world_size(self.group))
        self._started.append((joined, dist.all_reduce(joined, group=self.group, async_op=True)))

    def finish(self) -> None:
        """End a step: start what is left, which hooks have not seen, and put means in the place of gradients."""
        self._missing = {}
        for bucket in self.buckets[len(self._started) :]:
            self._start(bucket)
        for bucket, (joined, work) in zip(self.buckets, self._started, strict=True):
            work.wait()
            for name, part in zip(bucket.names, joined.split(bucket.lengths), strict=True):
                own = self._parameters[name]
                if own.grad is not None:
                    own.grad.copy_(part.view(own.shape))

    def mean(self, tensor: torch.Tensor) -> torch.Tensor:
        """The mean of a tensor over the replicas."""
        share = tensor / dist.get_world_size(self.group)
        dist.all_reduce(share, group=self.group)
        return share


def _tensors(module: RankModule) -> list[torch.Tensor]:
    return [own.detach() for own in (*module.parameters(), *module.buffers())]


def _written(module: RankModule) -> list[torch.Tensor]:
    """The buffers that a stage writes to."""
    names = {str(node.target) for node in written_sources(module.graph) if node.op == "get_attr"}
    return [own.detach() for name, own in module.named_buffers() if name in names]


__all__ = ["Replicas"]
