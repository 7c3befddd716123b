"""Errors of plans, pipelines and models on several ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class DistributedError(RuntimeError):
    """A model cannot be cut for several ranks, or a rank failed: the message names rank, stage, node and source line, as
    far as they are known."""


class PipelineError(DistributedError):
    """A model cannot be cut into a pipeline, or a pipeline failed."""


class ParallelError(DistributedError):
    """The weights of a model cannot be cut among ranks, or a call failed."""


class PlanMismatchError(PipelineError, ParallelError):
    """The ranks have different plans."""


@contextlib.contextmanager
def as_parallel_errors() -> Iterator[None]:
    """Raise errors of the capture and of sizes, which pipelines have too, as :class:`ParallelError`."""
    try:
        yield
    except ParallelError:
        raise
    except PipelineError as error:
        raise ParallelError(str(error)) from error


__all__ = [
    "DistributedError",
    "ParallelError",
    "PipelineError",
    "PlanMismatchError",
    "as_parallel_errors",
]
