"""Times several peers in turn, so that a slow spell of the machine affects all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

#: Minimum number of samples of each peer.
LEAST = 5


def samples_in_turn(
    peers: Mapping[str, Callable[[], object]],
    seconds: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
    repeat: int = 1,
    rest: float = 0.0,
) -> dict[str, list[float]]:
    """Seconds of a call of each peer, in turn, for ``seconds`` altogether.

    Args:
        peers: the functions to call, by name.
        seconds: total time, if every peer has been called :data:`LEAST` times by then.
        clock: the clock to read before and after.
        repeat: calls in a sample: short ones are below the clock's resolution.
        rest: seconds of sleep before each sample.
    """
    samples: dict[str, list[float]] = {peer: [] for peer in peers}
    end = time.perf_counter() + seconds
    while peers and (
        time.perf_counter() < end or any(len(own) < LEAST for own in samples.values())
    ):
        for peer, call in peers.items():
            if rest:
                time.sleep(rest)
            start = clock()
            for _ in range(repeat):
                call()
            samples[peer].append((clock() - start) / repeat)
    return samples


def summary(samples: Mapping[str, list[float]]) -> dict[str, dict[str, float]]:
    """``steady``, the shortest, and ``median``, in seconds by peer."""
    return {
        "steady": {peer: min(own) for peer, own in samples.items()},
        "median": {peer: statistics.median(own) for peer, own in samples.items()},
    }


def print_peers(
    result: Mapping[str, Mapping[str, Any]],
    said: Callable[[str], str] = lambda peer: "",
    *,
    of: str = "eager",
    unit: tuple[float, str] = (1e3, "ms"),
) -> None:
    """Print a line for each peer of a :func:`summary`: minimum, median, ratio to ``of``, and the text from
    ``said``."""
    factor, name = unit
    width = max(map(len, result["steady"]))
    for peer, shortest in result["steady"].items():
        more = said(peer)
        print(
            f"  {peer:{width}} {shortest * factor:8.2f} {name}, median "
            f"{result['median'][peer] * factor:8.2f}, {shortest / result['steady'][of]:5.2f} of {of}'s"
            f"{', ' if more else ''}{more}",
            flush=True,
        )
