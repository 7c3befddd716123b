"""Training steps of a pipeline of two processes with one thread each, against one process.

    python benches/distributed.py [--rounds N] [--microbatches N] [--schedules NAME ...]

The model is a transformer whose blocks divide evenly. In turn, the first process makes a step of the whole model on
the microbatches of a batch while the second one waits, both make a step of the whole model on half of them each
without a word to each other (``apart``: what two processes can gain on the machine as it is), and both make the step as
a pipeline, with each schedule. The bubble of GPipe and 1F1B allows 2 m / (m + 1) for m microbatches: 1.78 for eight.

Then the time of each is compared with that which :func:`corsac.distributed.plan_mesh` expects, from what the passes of the
whole model take on both processes at once, and from messages that go back and forth. Figures of a busy machine say
nothing about the plan: look at the spread of ``apart``.

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

from corsac.analysis import Machine
from corsac.distributed import MeshPlans, StepSeconds, parallelize, pipeline, plan_mesh
from corsac.distributed._planning.meshes import Mesh
from machine import REPORTS, machine

REPORT = REPORTS / "distributed.json"
WIDTH, LENGTH, BLOCKS = 384, 64, 8
#: Size of a large message, in bytes: about what stages send.
MESSAGE = 4 * LENGTH * WIDTH * 8
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

    parts = parallelize(model(), x[:1])

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
    messages: list[tuple[float, float]] = []
    for at in range(options.rounds + 1):
        for name, own in samples.items():
            dist.barrier()
            begin = time.perf_counter()
            if name in pipes:
                step(name)
            elif name == "tensor":
                step_of_parts()
            elif name == "apart":
                alone(count // 2)
            elif rank == 0:
                alone(0)
            dist.barrier()
            # The first one sets up connections.
            if at:
                own.append(time.perf_counter() - begin)
        dist.barrier()
        passes.append(pass_seconds(whole, x[:1], target[:1]))
        messages.append(message_seconds(rank))
    if rank == 0:
        write(samples, expected(passes, messages, options), options)
    dist.destroy_process_group()


def pass_seconds(whole: nn.Module, x: torch.Tensor, target: torch.Tensor) -> StepSeconds:
    """What the passes of a microbatch take, once: both processes run them at the same time."""
    whole.zero_grad()
    begin = time.perf_counter()
    value = loss(whole(x), target)
    middle = time.perf_counter()
    value.backward()
    return StepSeconds(x.size(0), middle - begin, time.perf_counter() - middle)


def message_seconds(rank: int) -> tuple[float, float]:
    """What a message of a byte and one of :data:`MESSAGE` bytes take, there and back by half."""
    found = []
    for size in (1, MESSAGE):
        tensor = torch.zeros(size, dtype=torch.uint8)
        dist.barrier()
        begin = time.perf_counter()
        for turn in range(2):
            (dist.send if turn == rank else dist.recv)(tensor, 1 - rank)
        found.append((time.perf_counter() - begin) / 2)
    return found[0], found[1]


def expected(
    passes: list[StepSeconds], messages: list[tuple[float, float]], options: argparse.Namespace
) -> dict[str, float]:
    """The times that the plan expects, from medians of what was measured."""
    latency, large = (statistics.median(own) for own in zip(*messages, strict=True))
    measured = StepSeconds(
        1,
        statistics.median(own.forward for own in passes),
        statistics.median(own.backward for own in passes),
    )
    x = torch.empty(options.microbatches, LENGTH, WIDTH, device="meta")

    def plans(schedule: str) -> MeshPlans:
        return plan_mesh(
            model(),
            x,
            ranks=2,
            bandwidth=MESSAGE / max(large - latency, 1e-9),
            latency=latency,
            machine=Machine(50.0, 12.0),
            measured=measured,
            microbatches=[options.microbatches],
            schedules=[schedule],
            captured_with=x[:1],
        )

    def seconds(found: MeshPlans, mesh: Mesh) -> float:
        return next(own.seconds for own in found.found if own.mesh == mesh)

    all_of = {name: plans(name) for name in options.schedules}
    first = next(iter(all_of.values()), None) or plans("1f1b")
    return {
        "apart": options.microbatches / 2 * (measured.forward + measured.backward),
        **{name: seconds(own, Mesh(2, 1, 1)) for name, own in all_of.items()},
        "tensor": seconds(first, Mesh(1, 2, 1)),
    }


def write(
    samples: dict[str, list[float]], plan: dict[str, float], options: argparse.Namespace
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
    print(
        f"\n{'':20} {'expected':>10} {'measured':>10}   measured as a part of expected (quartiles)"
    )
    for name, wanted in plan.items():
        low, middle, high = statistics.quantiles(samples[name], n=4)
        report["seconds"][name]["expected"] = wanted
        print(
            f"{name:20} {wanted * 1e3:>8.1f}ms {middle * 1e3:>8.1f}ms   {middle / wanted:.2f} "
            f"({low / wanted:.2f} to {high / wanted:.2f})"
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
