"""First calls in fresh processes: without a cache, with an empty one, and with the cache of the process
before.

    python benches/warm_start.py [--only PATTERN] [--threads N] [--repeat N] [--cpu-time]

A first call is capture, compilation and the call, or a whole training step, in a process that has imported
everything and made the model. Processes of the three kinds are started in turn; the minimum and the median
are reported. Results of the first call with the cache are compared bit by bit with those without; gradients
of training steps are compared with eager's.
``--cpu-time`` reports CPU seconds instead of wall-clock time, for one thread on a machine shared with other
programs.

Writes target/bench/warm_start.json: by model, ``none``, ``cold`` and ``warm``, lists of seconds, and ``bytes``,
the size of the cache on disk.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from torch import nn

import corsac
from machine import REPORTS, machine

REPORT = REPORTS / "warm_start.json"
Clock = Callable[[], float]
KINDS = ("none", "cold", "warm")
#: Models of `engine_models.py` and of `training.py`.
INFERENCE = ("resnet50", "vit_b_16")
TRAINING = ("mlp", "gpt", "resnet18", "vit_tiny")


def _digest(tensors: list[torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for own in tensors:
        digest.update(own.detach().contiguous().numpy().data)
    return digest.hexdigest()


def _infer(name: str, clock: Clock) -> tuple[float, str]:
    from engine_models import workload

    chosen = workload(name)
    with torch.inference_mode():
        start = clock()
        result = chosen.result(corsac.compile(chosen.model))
        return clock() - start, _digest([result])


def _train(name: str, folder: str | None, clock: Clock) -> tuple[float, str]:
    from training import MODELS, Trained, checked_gradients, settle

    torch.manual_seed(0)
    model, x, labels = MODELS[name][0]()
    # Imports and start-up at the first use are not counted.
    Trained(nn.Linear(2, 2), corsac.compile).step(torch.randn(3, 2), torch.tensor([0, 1, 0]))
    # Otherwise Dynamo would treat the sizes of the next model as dynamic.
    torch._dynamo.reset()
    if folder is not None:
        os.environ["CORSAC_CACHE_DIR"] = folder
    start = clock()
    trained = Trained(model, corsac.compile)
    trained.step(x, labels)
    seconds = clock() - start
    # The native parts are decided after some steps, and kept then; until then results differ in their last
    # bits.
    checked_gradients(trained, model, x, labels)
    settle(trained, x, labels)
    return seconds, "eager's"


def _first_call(name: str, words: list[str], folder: str | None) -> tuple[float, str]:
    command = [sys.executable, __file__, "--first", name, *words]
    # As for an installed package: bytecode is compiled once.
    left_out = ("PYTHONDONTWRITEBYTECODE", "CORSAC_CACHE_DIR", "CORSAC_CACHE_LIMIT")
    environment = {k: v for k, v in os.environ.items() if k not in left_out}
    if folder is not None:
        environment["CORSAC_CACHE_DIR"] = folder
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    seconds, digest = done.stdout.split()[-2:]
    return float(seconds), digest


def _measure(name: str, words: list[str], repeat: int) -> dict[str, Any]:
    result: dict[str, Any] = {kind: [] for kind in KINDS}
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as parent:
            folder = str(Path(parent, "programs"))
            digests = []
            for kind in KINDS:
                seconds, digest = _first_call(name, words, None if kind == "none" else folder)
                result[kind].append(seconds)
                digests.append(digest)
            same = digests[1:] if name in TRAINING else digests
            assert len(set(same)) == 1, f"{name}: results differ"
            files = Path(folder).iterdir()
            result["bytes"] = sum(-(-own.stat().st_size // 4096) * 4096 for own in files)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="models whose name has this")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeat", type=int, default=5, help="processes of each kind")
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the processor")
    parser.add_argument("--first", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.first is not None:
        torch.set_num_threads(chosen.threads)
        clock = time.process_time if chosen.cpu_time else time.perf_counter
        folder = os.environ.get("CORSAC_CACHE_DIR")
        if chosen.first in TRAINING:
            os.environ.pop("CORSAC_CACHE_DIR", None)
            print(*_train(chosen.first, folder, clock))
        else:
            print(*_infer(chosen.first, clock))
        return
    words = ["--threads", str(chosen.threads), *(["--cpu-time"] if chosen.cpu_time else [])]
    report: dict[str, Any] = {"machine": machine(), "threads": chosen.threads, "models": {}}
    print(f"{report['machine']}, {chosen.threads} threads; ms of a first call: minimum (median)")
    for name in (*INFERENCE, *TRAINING):
        if not re.search(chosen.only, name):
            continue
        result = report["models"][name] = _measure(name, words, chosen.repeat)
        shown = [
            f"{kind} {min(result[kind]) * 1e3:7.0f} ({statistics.median(result[kind]) * 1e3:.0f})"
            for kind in KINDS
        ]
        print(f"  {name:10} {'   '.join(shown)}   {result['bytes']:,} bytes", flush=True)
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
