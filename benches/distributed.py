"""Training steps of a pipeline of two processes with one thread each, against one process.

    python benches/distributed.py [--rounds N] [--microbatches N] [--schedules NAME ...]

The model is a transformer whose blocks divide evenly. In turn, the first process makes a step of the whole model on
the microbatches of a batch while the second one waits, both make a step of the whole model on half of them each
without a word to each other (``apart``: what two processes can gain on the machine as it is), and both make the step as
a pipeline, with each schedule. The bubble of GPipe and 1F1B allows 2 m / (m + 1) for m microbatches: 1.78 for eight.

Then the time of each is compared with that which :func:`corsac.distributed.plan_mesh` expects, from what the passes of the
whole model take on both processes at once (those of ``apart``), and from messages and sums as
:func:`corsac.distributed.measure_network` measures them: least times with least times, and medians with medians.

Each process has a core of its own, and keeps the memory that a step has freed (``MALLOC_TRIM_THRESHOLD_``): what goes back
to the system comes back page by page, which takes a tenth of a step of GPipe.

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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn

from corsac.analysis import Machine
from corsac.distributed import (
    Network,
    StepSeconds,
    measure_network,
    measure_step,
    parallelize,
    pipeline,
    plan_mesh,
)
from corsac.distributed._planning.meshes import Mesh
from machine import REPORTS, machine

REPORT = REPORTS / "distributed.json"
WIDTH, LENGTH, BLOCKS = 384, 64, 8
#: Sizes of messages and sums that are measured, in bytes; the largest one is what stages send.
SIZES = (4, 2**14, 4 * LENGTH * WIDTH)
#: Number of sums that are measured at once, about those of a step.
SUMS = 250
#: Environment of the processes: memory that is freed is kept.
KEEPS_MEMORY = {
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
}
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
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
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

    def alone(first: int) -> StepSeconds:
        """A step on the microbatches from ``first`` on. Returns the means of what the passes took."""
        whole.zero_grad()
        begin, forward = time.perf_counter(), 0.0
        for own, wanted in zip(x[first:].split(1), target[first:].split(1), strict=True):
            start = time.perf_counter()
            value = loss(whole(own), wanted) / count
            forward += time.perf_counter() - start
            value.backward()
        total, number = time.perf_counter() - begin, count - first
        return StepSeconds(1, forward / number, (total - forward) / number)

    pipes = {
        name: pipeline(
            model(), x, stages=SCHEDULES[name], schedule=name, microbatches=count, loss_fn=loss
        )
        for name in options.schedules
    }

    parts = parallelize(model(), x[:1])
    tiny = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    numbers = torch.randn(count, 8)
    actions = pipeline(tiny, numbers, stages=2, schedule="1f1b", microbatches=count, loss_fn=loss)

    def step(name: str) -> None:
        for own in pipes[name].parameters():
            own.grad = None
        pipes[name].step(x, target=target)

    def step_of_parts() -> None:
        """A step by tensor parallelism."""
        parts.zero_grad()
        for own, wanted in zip(x.split(1), target.split(1), strict=True):
            (loss(parts(own), wanted) / count).backward()

    samples: dict[str, list[float]] = {name: [] for name in ("one rank", "apart", *pipes, "tensor")}
    passes: list[StepSeconds] = []
    networks: list[Network] = []
    for at in range(options.rounds + 1):
        both = StepSeconds(1, 0.0, 0.0)
        for name, own in samples.items():
            dist.barrier()
            begin = time.perf_counter()
            if name in pipes:
                step(name)
            elif name == "tensor":
                step_of_parts()
            elif name == "apart":
                both = alone(count // 2)
            elif rank == 0:
                alone(0)
            dist.barrier()
            # The first one sets up connections.
            if at:
                own.append(time.perf_counter() - begin)
        dist.barrier()
        begin = time.perf_counter()
        actions.step(numbers, target=numbers)
        # Both passes of all microbatches, and of one that fills and drains the pipeline.
        action = (time.perf_counter() - begin) / (2 * (count + 1))
        dist.barrier()
        split = measure_step(whole, (x[:1],), lambda own: loss(own, target[:1]), repeats=2).split
        passes.append(replace(both, action=action, split=split))
        networks.append(measure_network(dist.group.WORLD, sizes=SIZES, repeats=SUMS))
    if rank == 0:
        plan = {
            name: expected(passes[1:], networks[1:], options, typical)
            for name, typical in (("least", min), ("median", statistics.median))
        }
        write(samples, plan, options)
    dist.destroy_process_group()


def expected(
    passes: Sequence[StepSeconds],
    networks: Sequence[Network],
    options: argparse.Namespace,
    typical: Callable[[Iterable[float]], float],
) -> dict[str, float]:
    """The times that the plan expects from measured ones, of which ``typical`` takes one."""
    measured = StepSeconds(
        1,
        typical(own.forward for own in passes),
        typical(own.backward for own in passes),
        typical(own.action for own in passes),
        typical(own.split for own in passes),
    )
    network = Network(
        1 / typical(1 / own.bandwidth for own in networks),
        typical(own.latency for own in networks),
        tuple(
            (hops[0][0], typical(seconds for _, seconds in hops))
            for hops in zip(*(own.hops for own in networks), strict=True)
        ),
    )
    x = torch.empty(options.microbatches, LENGTH, WIDTH, device="meta")

    def seconds(schedule: str, mesh: Mesh) -> float:
        found = plan_mesh(
            model(),
            x,
            ranks=2,
            network=network,
            machine=Machine(50.0, 12.0),
            measured=measured,
            microbatches=[options.microbatches],
            schedules=[schedule],
            captured_with=x[:1],
        )
        return next(own.seconds for own in found.found if own.mesh == mesh)

    pipes = {name: seconds(name, Mesh(2, 1, 1)) for name in options.schedules}
    return {**pipes, "tensor": seconds("1f1b", Mesh(1, 2, 1))}


def write(
    samples: dict[str, list[float]],
    plan: dict[str, dict[str, float]],
    options: argparse.Namespace,
) -> None:
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
    print(f"\n{'':20} {'expected':>10} {'measured':>10}   ratio   ratio of medians, quartiles")
    for name, least in plan["least"].items():
        own, typical = samples[name], plan["median"][name]
        low, middle, high = (at / typical for at in statistics.quantiles(own, n=4))
        report["seconds"][name]["expected"] = {"steady": least, "median": typical}
        print(
            f"{name:20} {least * 1e3:>8.1f}ms {min(own) * 1e3:>8.1f}ms   {min(own) / least:>5.2f}   "
            f"{middle:.2f} ({low:.2f} to {high:.2f})"
        )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--schedules", nargs="*", default=list(SCHEDULES), choices=SCHEDULES)
    options = parser.parse_args()
    os.environ.update({"OMP_NUM_THREADS": "1"} | KEEPS_MEMORY)
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        torch.multiprocessing.spawn(process, (store, options), nprocs=2)


if __name__ == "__main__":
    main()
