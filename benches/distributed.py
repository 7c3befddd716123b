"""Training steps of a pipeline of two processes with one thread each, against one process.

    python benches/distributed.py [--rounds N] [--microbatches N] [--schedules NAME ...]

The model is a transformer whose blocks divide evenly. In turn, the first process makes a step of the whole model on
the microbatches of a batch while the second one waits, both make a step of the whole model on half of them each
without a word to each other (``apart``: what two processes can gain on the machine as it is), and both make the step as
a pipeline, with each schedule. The bubble of GPipe and 1F1B allows 2 m / (m + 1) for m microbatches: 1.78 for eight.

Writes target/bench/distributed.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn

from corsac.distributed import pipeline
from machine import REPORTS, machine

REPORT = REPORTS / "distributed.json"
WIDTH, LENGTH, BLOCKS = 384, 64, 8
#: Stages of each schedule.
SCHEDULES = {"gpipe": 2, "1f1b": 2, "interleaved1f1b": 4, "zbv_zero_bubble": 4}


def model() -> nn.Module:
    """Blocks of a transformer."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(
            nn.TransformerEncoderLayer(WIDTH, 6, 4 * WIDTH, dropout=0.0, batch_first=True)
            for _ in range(BLOCKS)
        )
    ).train()


def loss(result: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The squared error."""
    return nn.functional.mse_loss(result, target)


def process(rank: int, store: str, options: argparse.Namespace) -> None:
    """What a process does: measures, and on the first rank, writes the report."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(minutes=5),
    )
    count = options.microbatches
    whole = model()
    x = torch.randn(count, LENGTH, WIDTH)
    target = torch.randn(count, LENGTH, WIDTH)

    def alone(first: int) -> None:
        """A step on the microbatches from ``first`` on."""
        whole.zero_grad()
        for own, wanted in zip(x[first:].split(1), target[first:].split(1), strict=True):
            (loss(whole(own), wanted) / count).backward()

    pipes = {
        name: pipeline(
            model(), x, stages=SCHEDULES[name], schedule=name, microbatches=count, loss_fn=loss
        )
        for name in options.schedules
    }

    def step(name: str) -> None:
        for own in pipes[name].parameters():
            own.grad = None
        pipes[name].step(x, target=target)

    samples: dict[str, list[float]] = {name: [] for name in ("one rank", "apart", *pipes)}
    for at in range(options.rounds + 1):
        for name, own in samples.items():
            dist.barrier()
            begin = time.perf_counter()
            if name in pipes:
                step(name)
            elif name == "apart":
                alone(count // 2)
            elif rank == 0:
                alone(0)
            dist.barrier()
            # The first one sets up connections.
            if at:
                own.append(time.perf_counter() - begin)
    if rank == 0:
        write(samples, options)
    dist.destroy_process_group()


def write(samples: dict[str, list[float]], options: argparse.Namespace) -> None:
    """Print and write the ratios."""
    base = samples["one rank"]
    report: dict[str, Any] = {
        "machine": machine(),
        "load": os.getloadavg()[0],
        "microbatches": options.microbatches,
        "rounds": options.rounds,
        "allowed": 2 * options.microbatches / (options.microbatches + 1),
        "seconds": {
            name: {"steady": min(own), "median": statistics.median(own)}
            for name, own in samples.items()
        },
    }
    print(f"{'':20} {'minimum':>10} {'median':>10}   times one rank (minimum, median)")
    for name, own in samples.items():
        ratios = min(base) / min(own), statistics.median(base) / statistics.median(own)
        report["seconds"][name]["ratios"] = ratios
        print(
            f"{name:20} {min(own) * 1e3:>8.1f}ms {statistics.median(own) * 1e3:>8.1f}ms   "
            f"{ratios[0]:.2f} {ratios[1]:.2f}"
        )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--schedules", nargs="*", default=list(SCHEDULES), choices=SCHEDULES)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        torch.multiprocessing.spawn(process, (store, options), nprocs=2)


if __name__ == "__main__":
    main()
