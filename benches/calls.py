"""Overhead of a call: small programs through Dynamo, with corsac, inductor and eager as backends.

    python benches/calls.py [--only PATTERN] [--seconds S] [--peers NAMES] [--cpu-time]

Tensors have a few elements, so that nearly all of a call is overhead: guards, checks of weights, arguments
and results. Results are compared with eager's first. Then samples of a hundred calls are taken in turn; the
minimum and the median per call are reported. ``dynamo`` is ``torch.compile(backend="eager")``: Dynamo's own
overhead with any backend. In training, a call is a forward and a backward pass. One thread.

Writes target/bench/calls.json: by program, ``steady`` and ``median`` in seconds by peer.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

import corsac
from engine_peers import missing
from in_turn import print_peers, samples_in_turn, summary
from machine import REPORTS, machine

REPORT = REPORTS / "calls.json"
REPEAT = 100
PEERS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda own: own,
    "dynamo": partial(torch.compile, backend="eager"),
    "inductor": torch.compile,
    "dynamo + corsac": partial(torch.compile, backend="corsac"),
    "corsac.compile": corsac.compile,
}


class Plus(nn.Module):
    """One operator, no weights."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def _layers(count: int) -> nn.Module:
    return nn.Sequential(*(own for _ in range(count) for own in (nn.Linear(8, 8), nn.ReLU())))


#: Programs by name: the constructor, and a description.
PROGRAMS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "plus": (Plus, "one operator"),
    "layers_2": (partial(_layers, 2), "2 linear layers, 8 wide"),
    "layers_20": (partial(_layers, 20), "20 linear layers, 8 wide"),
}


def _step(run: Callable[..., Any], x: torch.Tensor) -> None:
    run(x).sum().backward()


def _measure(
    make: Callable[[], nn.Module],
    peers: list[str],
    seconds: float,
    clock: Callable[[], float],
    *,
    training: bool,
) -> dict[str, Any]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x = make().train(training), torch.randn(4, 8, requires_grad=training)
    own = {peer: copy.deepcopy(model) for peer in peers}
    runs = {peer: PEERS[peer](own[peer]) for peer in peers}
    with torch.set_grad_enabled(training):
        expected = model(x)
        for peer, run in runs.items():
            for _ in range(3):
                torch.testing.assert_close(run(x), expected, msg=f"{peer} is wrong")
        calls = {peer: partial(_step if training else _call, run, x) for peer, run in runs.items()}
        for call in calls.values():
            call()
        return summary(samples_in_turn(calls, seconds, clock=clock, repeat=REPEAT))


def _call(run: Callable[..., Any], x: torch.Tensor) -> None:
    run(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="programs whose name has this")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each program")
    parser.add_argument("--peers", default=",".join(PEERS), help="which peers, with commas")
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the processor")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    clock = time.process_time if chosen.cpu_time else time.perf_counter
    peers = ["eager"]
    for peer in chosen.peers.split(","):
        reason = missing(peer)
        if reason is not None:
            print(f"{peer} is missing: {reason}")
        elif peer not in peers:
            peers.append(peer)
    report: dict[str, Any] = {"machine": machine(), "programs": {}}
    print(f"{report['machine']}, one thread; µs of a call")
    for name, (make, what) in PROGRAMS.items():
        for training in (False, True):
            full = f"{name}/{'training' if training else 'inference'}"
            if not re.search(chosen.only, full):
                continue
            result = _measure(make, peers, chosen.seconds, clock, training=training)
            report["programs"][full] = result
            print(f"{full} ({what})")
            print_peers(result, unit=(1e6, "µs"))
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
