"""Names that the command line needs before it imports PyTorch."""

from __future__ import annotations

#: Schedules of pipelines, as :func:`corsac.distributed.pipeline` takes them.
SCHEDULES = (
    "gpipe",
    "1f1b",
    "interleaved1f1b",
    "looped_bfs",
    "interleaved_zero_bubble",
    "zbv_zero_bubble",
)

__all__ = ["SCHEDULES"]
