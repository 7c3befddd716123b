"""Errors of plans and pipelines."""

from __future__ import annotations


class PipelineError(RuntimeError):
    """A model cannot be cut into a pipeline, or a pipeline failed: the message names rank, stage, node and source line,
    as far as they are known."""


class PlanMismatchError(PipelineError):
    """The ranks have different plans."""


__all__ = ["PipelineError", "PlanMismatchError"]
