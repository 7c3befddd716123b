"""Running models: corsac's engine and its peers, on the same inputs.

    python benches/engine.py [--only PATTERN] [--peers NAMES] [--precisions f32,bf16]
                             [--threads N] [--seconds S]

Outputs are compared with eager first. Then calls are made in turn, one of each peer, so that a slow spell of
the machine affects all; the minimum and the median are reported. A cold start is the first call in a fresh
process, with everything imported and the model made: capture or export, compilation, and the call. Peers that
are not installed are reported as missing.

Writes target/bench/engine.json; the keys of a model are

    cold           seconds of a first call, by peer; null where it failed
    steady         seconds of a call, the shortest, by peer
    median         the same, the median
    max_abs_err    of corsac's results against eager's
    errors         the same for all peers
    arena_bytes    buffer size of corsac's program for values
    peak_bytes     peak memory of eager and corsac in a call, results included
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from typing import Any

import torch

from engine_memory import torch_peak_bytes
from engine_models import MODELS, Function, Workload, error_and_scale, workload
from engine_peers import IN_BFLOAT16, PEERS, RTEN, Unfit, missing, rten
from in_turn import samples_in_turn, summary
from machine import REPORTS, machine

REPORT = REPORTS / "engine.json"
#: Allowed difference from eager in float32, for results of magnitude one.
TOLERANCE = {"f32": 1e-3, "bf16": 5e-2}


def _cold(peer: str, model: str, precision: str, threads: int) -> float | None:
    started = [sys.executable, __file__, "--cold", peer, model, precision]
    command = [*started, "--threads", str(threads)]
    # As for an installed package: bytecode is compiled once.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    # As for a program new to this machine: inductor caches what it has compiled.
    with tempfile.TemporaryDirectory() as folder:
        environment["TORCHINDUCTOR_CACHE_DIR"] = folder
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


def _cold_start(peer: str, name: str, precision: str) -> None:
    chosen = workload(name, precision)
    # Imports are not counted.
    import torch._dynamo

    with torch.inference_mode():
        start = time.perf_counter()
        chosen.result(PEERS[peer](chosen))
        print(time.perf_counter() - start)


def _made(
    chosen: Workload, peers: list[str], threads: int, result: dict[str, Any]
) -> dict[str, Function]:
    """Functions that run the model, by peer, with checked results; peers that cannot run it are reported and
    left out."""
    expected = chosen.result(chosen.model)
    runs: dict[str, Function] = {}
    for peer in peers:
        try:
            if peer == RTEN:
                result["steady"][peer], error = rten(chosen, threads)
            else:
                run = PEERS[peer](chosen)
                error, scale = error_and_scale(chosen.result(run), expected)
                limit = TOLERANCE[chosen.precision] * max(1.0, scale)
                assert error <= limit, f"{peer} is wrong by {error}"
                runs[peer] = run
        except Unfit as reason:
            print(f"  {peer}: {reason}")
            continue
        except Exception as failed:
            if peer == "corsac" or isinstance(failed, AssertionError):
                raise
            print(f"  {peer}: {type(failed).__name__}: {str(failed)[:200]}")
            continue
        result["errors"][peer] = error
    return runs


#: Seconds until the previous peer's threads sleep: those of OpenMP and ONNX Runtime spin for some
#: milliseconds after each call, on the cores that the next one needs.
REST = 0.02


def _samples(chosen: Workload, runs: dict[str, Function], seconds: float) -> dict[str, list[float]]:
    calls = {peer: partial(chosen.call, run, chosen.inputs) for peer, run in runs.items()}
    return samples_in_turn(calls, seconds, repeat=chosen.repeat, rest=REST)


def _arena_bytes(compiled: Any) -> int:
    """Buffer size for values of the largest program of a compiled model."""
    return max((program.arena_bytes for program in compiled.native_programs()), default=0)


def _memory(chosen: Workload, runs: dict[str, Function], result: dict[str, Any]) -> None:
    for peer in ("eager", "corsac"):
        if peer in runs:
            run = runs[peer]
            result["peak_bytes"][peer] = torch_peak_bytes(lambda run=run: chosen.result(run))
    if "corsac" in runs:
        result["arena_bytes"] = _arena_bytes(runs["corsac"])
        result["peak_bytes"]["corsac"] += result["arena_bytes"]


def _measure(
    chosen: Workload, name: str, peers: list[str], seconds: float, threads: int, *, cold: bool
) -> dict[str, Any]:
    kinds = ("cold", "steady", "median", "errors", "peak_bytes")
    result: dict[str, Any] = {kind: {} for kind in kinds}
    with torch.inference_mode():
        runs = _made(chosen, peers, threads, result)
        for kind, times in summary(_samples(chosen, runs, seconds)).items():
            result[kind].update(times)
        _memory(chosen, runs, result)
    result["max_abs_err"] = result["errors"].get("corsac")
    if cold:
        for peer in runs:
            result["cold"][peer] = _cold(peer, name, chosen.precision, threads)
    return result


def _print(result: dict[str, Any]) -> None:
    for peer, shortest in result["steady"].items():
        median = result["median"].get(peer)
        cold = result["cold"].get(peer)
        print(
            f"  {peer:32} {shortest * 1e3:9.4f} {'' if median is None else f'{median * 1e3:9.4f}':>9}"
            f"   cold {'-' if cold is None else f'{cold:.2f}'}"
            f"   error {result['errors'][peer]:.1e}",
            flush=True,
        )
    peaks = ", ".join(f"{peer} {peak:,}" for peer, peak in result["peak_bytes"].items())
    print(f"  bytes at the peak of a call: {peaks}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="PATTERN", help="models to run")
    everyone = [*PEERS, RTEN]
    parser.add_argument("--peers", default=",".join(everyone), help="which peers, with commas")
    parser.add_argument("--precisions", default="f32,bf16", help="of products, with commas")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=10.0, help="for each model")
    parser.add_argument("--no-cold", action="store_true", help="leave cold starts out")
    parser.add_argument(
        "--cold", nargs=3, metavar=("PEER", "MODEL", "PRECISION"), help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")
    if arguments.cold:
        _cold_start(*arguments.cold)
        return
    peers = []
    for peer in arguments.peers.split(","):
        reason = missing(peer)
        if reason is None:
            peers.append(peer)
        else:
            print(f"{peer} is missing: {reason}")
    report: dict[str, Any] = {"machine": machine(), "threads": arguments.threads}
    print(f"{report['machine']}, {arguments.threads} threads; ms: minimum, median; cold start in s")
    for name in MODELS:
        if not re.search(arguments.only, name):
            continue
        for precision in arguments.precisions.split(","):
            fit = [peer for peer in peers if precision == "f32" or peer in IN_BFLOAT16]
            print(f"{name}/{precision}", flush=True)
            cold, threads = not arguments.no_cold, arguments.threads
            chosen = workload(name, precision)
            if precision == "bf16" and chosen.grows:
                print("  left out: a token that comes out otherwise makes all after it others")
                continue
            result = _measure(chosen, name, fit, arguments.seconds, threads, cold=cold)
            report[f"{name}/{precision}"] = result
            _print(result)
            # Models of hundreds of megabytes should not accumulate.
            del chosen
            torch._dynamo.reset()
            gc.collect()
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
