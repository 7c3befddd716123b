"""Ranks as threads of one process, for plans of more ranks than there are machines.

PyTorch gives each thread a world of its own. The process group that it has for them (``multi_threaded_pg``) has no sends
and receives, which pipelines need; gloo has, and its groups connect threads as well as processes. ``LocalTensorMode``,
which is newer than PyTorch 2.6 and runs one program with the tensors of all ranks, is not used: each rank has a program of
its own here.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from corsac.distributed._errors import DistributedError
from corsac.distributed._values import summary


def run_as_threads(ranks: int, job: Callable[[int], Any], timeout: float = 120.0) -> list[Any]:
    """Call a function in ``ranks`` threads of this process, each with a process group of gloo of its own, and the number
    of its rank.

    Raises:
        DistributedError: a rank failed, or did not end in ``timeout`` seconds; or this process has a process group.
    """
    if dist.is_initialized():
        raise DistributedError("expected no process group in this process")
    store = dist.HashStore()
    results: list[Any] = [None] * ranks
    errors: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        try:
            dist.init_process_group(
                "gloo",
                store=store,
                rank=rank,
                world_size=ranks,
                timeout=datetime.timedelta(seconds=timeout),
            )
            try:
                results[rank] = job(rank)
                dist.barrier()
            finally:
                dist.destroy_process_group()
        except BaseException as error:
            errors[rank] = error

    with _world_of_threads():
        threads = [
            threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True)
            for rank in range(ranks)
        ]
        for own in threads:
            own.start()
        for own in threads:
            own.join(timeout)
    if errors:
        # The first one, after which the others could not go on.
        rank, error = next(iter(errors.items()))
        raise DistributedError(f"rank {rank}: {summary(error)}") from error
    left = [own.name for own in threads if own.is_alive()]
    if left:
        raise DistributedError(f"{', '.join(left)}: not done after {timeout} seconds")
    return results


@contextmanager
def _world_of_threads() -> Iterator[None]:
    """Give each thread process groups of its own in the block."""
    from torch.testing._internal.distributed import multi_threaded_pg

    multi_threaded_pg._install_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    try:
        yield
    finally:
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
        multi_threaded_pg._uninstall_threaded_pg()


__all__ = ["run_as_threads"]
