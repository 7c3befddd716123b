"""Peak memory of a call, without weights and inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def torch_peak_bytes(call: Callable[[], Any]) -> int:
    """The most bytes that PyTorch's allocator had allocated at once in a call."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as run:
        result = call()
    del result
    events = [
        (event.start_ns(), event.nbytes())
        for event in run.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    held = peak = 0
    for _, size in sorted(events, key=lambda event: event[0]):
        held += size
        peak = max(peak, held)
    return peak
