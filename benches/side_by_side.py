"""Times two ways of doing one thing, alternately, and reports ratios.

A bench is prepared and checked first: the results of both engines must be equal, or nothing is timed. Then
samples are taken in turn (peer, ours, peer, ours, ...), so that a slow spell of the machine affects both. As
in :mod:`timeit`, garbage is collected before a sample and not during it.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PEER = "torch_fx"
OURS = "corsac"


@dataclass
class Work:
    """One engine's side of a bench: ``timed(before())`` is a sample.

    ``before`` makes the input of a sample and is not timed. ``shows`` turns the result of ``timed`` into a
    value that must be equal for both engines.
    """

    timed: Callable[[Any], Any]
    before: Callable[[], Any] = lambda: None
    shows: Callable[[Any], Any] = lambda result: result


@dataclass
class Bench:
    """A named comparison. ``at_least`` is the required ratio, ``aim`` the desired one."""

    name: str
    nodes: int
    peer: Work
    ours: Work
    at_least: float
    aim: float
    # Calls in one sample, for calls too short to be timed alone.
    calls: int = 1
    # Maximum number of samples, for benches that take minutes.
    most_rounds: int = 200


@dataclass
class Outcome:
    """Seconds per call of both engines, or bytes if memory was measured."""

    bench: str
    nodes: int
    at_least: float
    aim: float
    peer: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    unit: str = "s"

    @property
    def ratio(self) -> float:
        return statistics.median(self.peer) / statistics.median(self.ours)

    @property
    def ratio_of_minima(self) -> float:
        return min(self.peer) / min(self.ours)

    @property
    def met(self) -> str:
        if self.ratio >= self.aim:
            return "aim"
        return "yes" if self.ratio >= self.at_least else "NO"


class Difference(Exception):
    """The results of the two engines differ, so that times have no meaning."""


def first_difference(peer: Any, ours: Any) -> str:
    """The first difference between two results, in a few lines."""
    if isinstance(peer, str) and isinstance(ours, str):
        for number, (left, right) in enumerate(
            zip(peer.splitlines(), ours.splitlines(), strict=False), start=1
        ):
            if left != right:
                return f"line {number}:\n    torch.fx: {left[:200]}\n    corsac:   {right[:200]}"
        return f"{len(peer.splitlines())} lines against {len(ours.splitlines())}"
    return f"\n    torch.fx: {str(peer)[:200]}\n    corsac:   {str(ours)[:200]}"


def sample(work: Work, calls: int) -> float:
    """Seconds for one call, from one timing of ``calls`` of them."""
    given = work.before()
    gc.collect()
    gc.disable()
    try:
        if calls == 1:
            start = time.perf_counter()
            result = work.timed(given)
            seconds = time.perf_counter() - start
        else:
            timed = work.timed
            start = time.perf_counter()
            for _ in range(calls):
                result = timed(given)
            seconds = time.perf_counter() - start
    finally:
        gc.enable()
    del result
    return seconds / calls


def run(bench: Bench, seconds: float, least_rounds: int) -> Outcome:
    """Check that both engines agree, then sample for about ``seconds``."""
    peer = bench.peer.shows(bench.peer.timed(bench.peer.before()))
    ours = bench.ours.shows(bench.ours.timed(bench.ours.before()))
    if peer != ours:
        raise Difference(f"results differ: {first_difference(peer, ours)}")
    del peer, ours
    outcome = Outcome(bench.name, bench.nodes, bench.at_least, bench.aim)
    gc.collect()
    gc.freeze()  # the prepared objects need not be examined before each sample
    start = time.perf_counter()
    least_rounds = min(least_rounds, bench.most_rounds)
    while len(outcome.ours) < least_rounds or (
        time.perf_counter() - start < seconds and len(outcome.ours) < bench.most_rounds
    ):
        outcome.peer.append(sample(bench.peer, bench.calls))
        outcome.ours.append(sample(bench.ours, bench.calls))
    gc.unfreeze()
    return outcome


def with_unit(value: float, unit: str) -> str:
    """A number with its unit: ``0.0123`` as ``12.3 ms``; bytes unchanged."""
    if unit != "s":
        return f"{value:.0f} {unit}"
    for factor, name in ((1, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns")):
        if value * factor >= 1:
            return f"{value * factor:.3g} {name}"
    return f"{value * 1e9:.2f} ns"


def spread(samples: list[float]) -> str:
    """Half the distance between the quartiles, in per cent of the median."""
    if len(samples) < 3:
        return "-"
    low, _, high = statistics.quantiles(samples, n=4)
    return f"±{50 * (high - low) / statistics.median(samples):.0f}%"


HEADINGS = (
    "bench", "nodes", "torch.fx", "spread", "corsac", "spread",
    "ratio", "of min", "at least", "aim", "met", "rounds",
)  # fmt: skip
WIDTHS = (28, 7, 9, 6, 9, 6, 8, 8, 8, 6, 4, 6)


def line(cells: tuple[str, ...]) -> str:
    first, *rest = (f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))
    return "  ".join([cells[0].ljust(WIDTHS[0]), *rest]) if first else ""


def heading() -> str:
    return line(HEADINGS) + "\n" + line(tuple("-" * width for width in WIDTHS))


def row(outcome: Outcome) -> str:
    return line(
        (
            outcome.bench,
            str(outcome.nodes),
            with_unit(statistics.median(outcome.peer), outcome.unit),
            spread(outcome.peer),
            with_unit(statistics.median(outcome.ours), outcome.unit),
            spread(outcome.ours),
            f"{outcome.ratio:.2f}" if outcome.ratio < 10 else f"{outcome.ratio:.1f}",
            f"{outcome.ratio_of_minima:.2f}"
            if outcome.ratio_of_minima < 10
            else f"{outcome.ratio_of_minima:.1f}",
            f"{outcome.at_least:g}",
            f"{outcome.aim:g}",
            outcome.met,
            str(len(outcome.ours)),
        )
    )


def write_json(outcomes: list[Outcome], path: Path) -> None:
    """``{"<bench>": {"torch_fx": s, "corsac": s, "ratio": r, "n": nodes}}``, medians."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        outcome.bench: {
            PEER: statistics.median(outcome.peer),
            OURS: statistics.median(outcome.ours),
            "ratio": outcome.ratio,
            "n": outcome.nodes,
        }
        for outcome in outcomes
    }
    path.write_text(json.dumps(content, indent=2) + "\n")


def progress(text: str) -> None:
    """Show the current step on a terminal; the row replaces it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
