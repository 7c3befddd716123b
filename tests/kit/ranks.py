"""Processes of a process group that run jobs, started once for many."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import multiprocessing.connection
import os
import time
import traceback
from pathlib import Path
from typing import Any, Self

#: Seconds that a job may take.
LIMIT = 240.0


def _main(rank: int, size: int, store: str, connection: Any, seconds: float) -> None:
    """Run jobs until the connection closes."""
    import datetime

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=seconds),
    )
    while True:
        try:
            job = connection.recv()
        except EOFError:
            break
        if job is None:
            break
        module, name, args = job
        try:
            function = getattr(importlib.import_module(module), name)
            connection.send((True, function(rank, *args)))
        except BaseException as error:
            connection.send((False, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
    os._exit(0)


class Ranks:
    """``size`` processes with a gloo process group.

    Args:
        size: their number.
        folder: where the store of the group lies.
        seconds: timeout of the default process group.
    """

    def __init__(self, size: int, folder: Path, seconds: float = 120.0) -> None:
        context = multiprocessing.get_context("spawn")
        os.environ["OMP_NUM_THREADS"] = "1"
        self._connections, self._processes = [], []
        for rank in range(size):
            here, there = context.Pipe()
            process = context.Process(
                target=_main, args=(rank, size, str(folder / "store"), there, seconds), daemon=True
            )
            process.start()
            there.close()
            self._connections.append(here)
            self._processes.append(process)

    def start(self, job: Any, *args: Any) -> None:
        """Let each process call a function of a module with its rank and ``args``."""
        for connection in self._connections:
            connection.send((job.__module__, job.__name__, args))

    def results(self, limit: float = LIMIT, others: float = 60.0) -> list[tuple[bool, Any]]:
        """What each process returned, or raised as text, with whether it returned; ``others`` is the time in seconds that
        is left once one has failed."""
        found: dict[int, tuple[bool, Any]] = {}
        until = time.monotonic() + limit
        while len(found) < len(self._connections):
            waiting = [own for at, own in enumerate(self._connections) if at not in found]
            left = until - time.monotonic()
            ready = multiprocessing.connection.wait(waiting, max(left, 0.0))
            if not ready:
                # Their next answers would be those of this job.
                for process in self._processes:
                    process.kill()
                raise TimeoutError(f"a process has not ended; others: {found}")
            for connection in ready:
                rank = self._connections.index(connection)
                try:
                    found[rank] = connection.recv()
                except EOFError:
                    found[rank] = False, "the process ended"
                if not found[rank][0]:
                    until = min(until, time.monotonic() + others)
        return [found[rank] for rank in range(len(found))]

    def run(self, job: Any, *args: Any) -> list[Any]:
        """What each process returned.

        Raises:
            AssertionError: one raised an exception.
        """
        self.start(job, *args)
        results = self.results()
        failed = [
            f"rank {rank}: {own}" for rank, (is_done, own) in enumerate(results) if not is_done
        ]
        assert not failed, "\n".join(failed)
        return [own for _, own in results]

    def close(self) -> None:
        """End the processes."""
        for connection, process in zip(self._connections, self._processes, strict=True):
            with contextlib.suppress(OSError):
                connection.send(None)
            connection.close()
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["Ranks"]
