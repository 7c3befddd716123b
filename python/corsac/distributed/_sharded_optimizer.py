"""Optimizers of which each rank has a part: gradients of that part, and the state for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from corsac.distributed._announcements import compare_in_turn
from corsac.distributed._buckets import Bucket
from corsac.distributed._data_parallel import DataParallel
from corsac.distributed._errors import ParallelError
from corsac.distributed._parallel import Parallel
from corsac.distributed._rank_module import squares_of


class ShardedOptimizer:
    """Trains a :class:`DataParallel` with ``scatter=True``: each rank has the gradients and the state of a part of each
    bucket, and sends what it has trained to the others (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training
    Trillion Parameter Models", the second stage). All ranks make it, and call :meth:`step` and :meth:`clip_grad_norm_`.

    Args:
        module: the model.
        kind: the class of the optimizer, which has to treat all elements of a parameter alike, as SGD and AdamW do.
        options: its arguments besides the parameters.

    Attributes:
        optimizer: that of this rank, for schedules of the learning rate. Its parameters are pieces of the module's.

    Raises:
        ParallelError: gradients of the module are not scattered.
    """

    def __init__(
        self, module: DataParallel, kind: Callable[..., torch.optim.Optimizer], **options: Any
    ) -> None:
        if not module.scattered:
            raise ParallelError(
                "gradients of this module are not scattered: expected data_parallel with scatter=True"
            )
        self._module, self._means = module, module._means
        self._ranks = dist.get_world_size(module.group)
        self._parts: list[torch.Tensor] = []
        #: The pieces of parameters in each part, with their names and where they begin.
        self._pieces: list[list[tuple[str, int, int, torch.nn.Parameter]]] = []
        for bucket in module.buckets:
            device = module.get_parameter(bucket.names[0]).device
            part = torch.zeros(bucket.part_length(self._ranks), dtype=bucket.dtype, device=device)
            pieces = bucket.own_pieces(module.rank, self._ranks)
            self._parts.append(part)
            self._pieces.append(
                [
                    (name, start, at, torch.nn.Parameter(part.narrow(0, at, length)))
                    for name, start, at, length in pieces
                ]
            )
        # A rank of few elements may have none.
        own = [piece for pieces in self._pieces for *_, piece in pieces]
        self.optimizer = kind(own or [torch.nn.Parameter(torch.zeros(0))], **options)
        self._means.optimized = True

    def step(self) -> None:
        """Train this rank's part with the gradients of the backward passes before, and take the parts of the others.

        Raises:
            ParallelError: a rank failed, or a parameter has a gradient that is not scattered.
        """
        has = "without" if self._means.parts is None else "with"
        self._module.announced.compare(f"a step of the optimizer {has} gradients")
        if self._means.parts is None:
            return
        with self._module._watched(), torch.no_grad():
            for name, own in self._module.named_parameters():
                if own.grad is not None:
                    raise ParallelError(
                        f"{name} has a gradient that is not scattered: of a call in no_sync without one outside after it, or "
                        "of a use outside of the module's calls"
                    )
            for pieces in self._pieces:
                for name, start, _, piece in pieces:
                    whole = self._module.get_parameter(name)
                    piece.copy_(whole.reshape(-1).narrow(0, start, piece.numel()))
            self._give_gradients()
            self.optimizer.step()
            for bucket, part in zip(self._module.buckets, self._parts, strict=True):
                self._take(bucket, part)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of the backward passes before, also of calls in ``no_sync``. Gradients are None afterwards,
        whatever ``set_to_none`` is."""
        del set_to_none
        self._means.parts = None
        self.optimizer.zero_grad()
        for own in self._module.parameters():
            own.grad = None

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """Scale the gradients so that their norm, over the parts of all ranks, is at most ``max_norm``.

        Returns:
            The norm before.

        Raises:
            ParallelError: a rank failed.
        """
        module = self._module.module
        of = [module, self._module] if isinstance(module, Parallel) else [self._module]
        compare_in_turn((own.announced, "the norm of gradients") for own in of)
        self._give_gradients()
        cut = module.plan.shards if isinstance(module, Parallel) else {}
        own = ((name, piece) for pieces in self._pieces for name, _, _, piece in pieces)
        parts, whole = squares_of(own, cut)
        with self._module._watched():
            if isinstance(module, Parallel):
                dist.all_reduce(parts, group=module.group)
            total = parts + whole
            dist.all_reduce(total, group=self._module.group)
        norm = total.sqrt()
        torch.nn.utils.clip_grads_with_norm_(
            [piece for pieces in self._pieces for *_, piece in pieces], max_norm, norm
        )
        return norm

    def state_dict(self) -> dict[str, Any]:
        """The state of this rank."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of this rank, from as many ranks with the same buckets."""
        self.optimizer.load_state_dict(dict(state))

    def _give_gradients(self) -> None:
        """Let the pieces have their parts of the means as gradients, which share memory with them."""
        found = self._means.parts or [None] * len(self._pieces)
        for pieces, part in zip(self._pieces, found, strict=True):
            for _, _, at, piece in pieces:
                piece.grad = None if part is None else part.narrow(0, at, piece.numel())

    def _take(self, bucket: Bucket, part: torch.Tensor) -> None:
        """Take the parts of all ranks of the parameters of a bucket."""
        whole = part.new_empty(self._ranks * part.numel())
        dist.all_gather_into_tensor(whole, part, group=self._module.group)
        for name, shape, before, length in bucket.places():
            self._module.get_parameter(name).copy_(whole.narrow(0, before, length).view(shape))


__all__ = ["ShardedOptimizer"]
