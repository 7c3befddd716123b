"""Partitioning joint graphs: corsac's partitioner against PyTorch's.

    python benches/partition.py [--blocks N] [--rounds N] [--seconds S] [--only PATTERN]

First the time of each for the joint graph of a transformer, 5,041 nodes with 42 blocks, in turn on copies of
the graph and without the garbage collector, whose time depends on other objects: from the joint graph to both
modules, and ``plan``: the choice of values to save or recompute, without making modules. corsac's modules
generate their code at the first call; PyTorch's do too with an option (``no code``).

Then, for the models of benches/training.py, the bytes that the forward graph saves (parameters and buffers,
which exist anyway, cost nothing), and steps with corsac's compiler and either partitioner, and eager's: the
minimum and the median of steps in turn, in seconds of the processor on one thread, and the peak memory of a
step above that before it, with gradients, by the kernel (VmHWM), with all of it run by PyTorch.

Writes target/bench/partition.json.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import gc
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch.fx._lazy_graph_module import _use_lazy_graph_module

import corsac
from corsac._native.options import PARTITIONS
from corsac._training._partition import plan_partition
from corsac.backends import aot_autograd, min_cut_partition
from in_turn import print_peers, samples_in_turn, summary
from machine import REPORTS, machine
from training import MODELS, Block, Trained

#: glibc, whose ``malloc`` PyTorch uses.
_libc = ctypes.CDLL(None)
REPORT = REPORTS / "partition.json"
PARTITIONERS: dict[str, Callable[..., Any]] = {
    "torch default": default_partition,
    "torch min-cut": min_cut_rematerialization_partition,
    "corsac": min_cut_partition,
    "corsac fewest": partial(min_cut_partition, fewest_bytes=True),
}


def joint_graphs(model: nn.Module, x: torch.Tensor) -> list[tuple[Any, dict[str, Any]]]:
    """The joint graphs of a model, each with the keyword arguments for a partitioner."""
    found = []

    def partition(joint: Any, inputs: Any, **keywords: Any) -> Any:
        found.append((copy.deepcopy(joint), keywords))
        return default_partition(joint, inputs, **keywords)

    def compiler(module: Any, inputs: Any) -> Any:
        del inputs
        return make_boxed_func(module.forward)

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=compiler, partition_fn=partition)
    torch.compile(model.train(), backend=backend)(x)
    return found


def saved_bytes(forward: Any, outputs: int) -> int:
    """Bytes of the tensors that a forward graph saves for backward; parameters and buffers cost nothing."""
    values = [
        node.meta["val"]
        for node in forward.graph.output_node().args[0][outputs:]
        if not node.meta.get("is_static_input")
    ]
    return sum(own.numel() * own.element_size() for own in values if torch.is_tensor(own))


def _times(blocks: int, rounds: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(64, 4) for _ in range(blocks)))
    ((joint, keywords),) = joint_graphs(model, torch.randn(2, 16, 64))
    static = keywords["static_lifetime_input_indices"]
    outputs = keywords["num_fwd_outputs"]
    samples: dict[str, list[float]] = {}
    saved = {}

    def timed(name: str, function: Callable[..., Any]) -> Any:
        own = copy.deepcopy(joint)
        gc.collect()
        gc.disable()
        start = time.perf_counter()
        made = function(own)
        samples.setdefault(name, []).append(time.perf_counter() - start)
        gc.enable()
        return made

    for _ in range(rounds):
        for name, partition in PARTITIONERS.items():
            forward, _ = timed(name, lambda own, by=partition: by(own, None, **keywords))
            saved[name] = saved_bytes(forward, outputs)
        with _use_lazy_graph_module(True):
            least = partial(min_cut_rematerialization_partition, **keywords)
            timed("torch, no code", lambda own, by=least: by(own, None))
        timed(
            "corsac plan", lambda own: plan_partition(own, num_fwd_outputs=outputs, static=static)
        )
    return {"nodes": len(joint.graph.nodes), "saved": saved, **summary(samples)}


def _memory(field: str) -> int:
    """``VmRSS`` or ``VmHWM`` of this process, in bytes."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def _peak(model: nn.Module, step: Callable[[], None]) -> int:
    """The peak memory of a step above that before it, with gradients."""
    # The last step's gradients are freed at the beginning of a step, which would hide its own memory.
    model.zero_grad(set_to_none=True)
    gc.collect()
    # Freed memory that malloc keeps is resident, and would be reused without being counted.
    _libc.malloc_trim(0)
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    step()
    return _memory("VmHWM") - before


def _model(name: str, seconds: float) -> dict[str, Any]:
    torch.manual_seed(0)
    model, x, labels = MODELS[name][0]()
    saved: dict[str, int] = dict.fromkeys(PARTITIONERS, 0)
    for joint, keywords in joint_graphs(model, x):
        for peer, partition in PARTITIONERS.items():
            forward, _ = partition(copy.deepcopy(joint), None, **keywords)
            saved[peer] += saved_bytes(forward, keywords["num_fwd_outputs"])
    torch._dynamo.reset()

    def by(partition: str) -> Callable[[nn.Module], Any]:
        return lambda own: corsac.compile(own, options={"partition": partition})

    peers = {"eager": lambda own: own} | {partition: by(partition) for partition in PARTITIONS}
    trained = {peer: Trained(model, compiled) for peer, compiled in peers.items()}
    steps = {peer: partial(own.step, x, labels) for peer, own in trained.items()}
    for step in steps.values():
        for _ in range(2):
            step()
    samples = samples_in_turn(steps, seconds, clock=time.process_time)
    peaks = {}
    for peer in peers:
        # The native parts, and their memory, differ from one partition to the next.
        options = {"partition": peer, "training": "host"}
        run = peers[peer] if peer == "eager" else partial(corsac.compile, options=options)
        own = Trained(model, run)
        for _ in range(2):
            own.step(x, labels)
        step = partial(own.step, x, labels)
        peaks[peer] = min(_peak(own.model, step) for _ in range(3))
    return {"saved": saved, "peak": peaks, **summary(samples)}


def _by_itself(name: str, seconds: float) -> dict[str, Any]:
    """Run a model in a fresh process, without freed memory that malloc keeps."""
    command = [sys.executable, __file__, "--model", name, "--seconds", str(seconds)]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(64 * 1024)}
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=42, help="of the transformer")
    parser.add_argument("--rounds", type=int, default=5, help="of each partitioner")
    parser.add_argument("--seconds", type=float, default=10.0, help="for the steps of each model")
    parser.add_argument("--only", default="", help="models whose name has this")
    parser.add_argument("--model", help="measure this one and print what was found as JSON")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.model:
        print(json.dumps(_model(chosen.model, chosen.seconds)))
        return
    graph = _times(chosen.blocks, chosen.rounds)
    print(f"{graph['nodes']} nodes:")
    bytes_ = graph["saved"]
    print_peers(
        graph, lambda name: f"saves {bytes_[name]:,} bytes" if name in bytes_ else "", of="corsac"
    )
    report: dict[str, Any] = {"machine": machine(), "graph": graph, "models": {}}
    for name in MODELS:
        if not re.search(chosen.only, name):
            continue
        report["models"][name] = result = _by_itself(name, chosen.seconds)
        saved = ", ".join(f"{peer} {own / 1e6:.2f} MB" for peer, own in result["saved"].items())
        print(f"{name}: saved: {saved}")
        peak = result["peak"]
        print_peers(result, lambda peer, peak=peak: f"peak {peak[peer] / 1e6:.1f} MB")
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
