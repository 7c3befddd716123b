"""Running models: corsac's engine and its peers, on the same inputs.

    python benches/engine.py [--only PATTERN] [--peers NAMES] [--threads N] [--seconds S]

Outputs are compared with eager first. Then calls are made in turn, one of each peer, so that a slow
spell of the machine hits all; the minimum and the median are given. A cold start is what the first
call takes in a fresh process, with everything imported and the model made: capture or export,
compilation, and the call. A peer that is not installed is said to be missing.

Writes target/bench/engine.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from corsac.cli.batch_norm import randomize
from machine import machine

REPORT = Path("target/bench/engine.json")

Run = Callable[[], torch.Tensor]


def _vision(name: str, batch: int = 1) -> tuple[torch.nn.Module, torch.Tensor]:
    import torchvision

    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None)
    if name.startswith("vit"):
        torch.nn.init.normal_(model.heads.head.weight, std=0.02)
    image = torch.randn(batch, 3, 224, 224)
    # Weights cannot be downloaded: batch norms get statistics that do something.
    randomize(model.eval(), [image])
    return model, image


def _recommender() -> tuple[torch.nn.Module, torch.Tensor]:
    """The autoencoder of DeepRecommender, as the FX paper measures it."""
    torch.manual_seed(0)
    sizes = [17_768, 512, 512, 1024, 512, 512, 17_768]
    layers: list[torch.nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.SELU()]
    return torch.nn.Sequential(*layers).eval(), torch.randn(256, sizes[0])


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]] = {
    "resnet50": lambda: _vision("resnet50"),
    "resnet50 batch 16": lambda: _vision("resnet50", 16),
    "mobilenet_v3_large": lambda: _vision("mobilenet_v3_large"),
    "efficientnet_b0": lambda: _vision("efficientnet_b0"),
    "densenet121": lambda: _vision("densenet121"),
    "vit_b_16": lambda: _vision("vit_b_16"),
    "convnext_tiny": lambda: _vision("convnext_tiny"),
    "recommender batch 256": _recommender,
}


def _eager(model: torch.nn.Module, x: torch.Tensor) -> Run:
    return lambda: model(x)


def _fuse(model: torch.nn.Module, x: torch.Tensor) -> Run:
    from torch.fx.experimental.optimization import fuse

    fused = fuse(model)
    return lambda: fused(x)


def _inductor(model: torch.nn.Module, x: torch.Tensor) -> Run:
    compiled = torch.compile(model)
    return lambda: compiled(x)


def _lowered(backend: str) -> Callable[[torch.nn.Module, torch.Tensor], Run]:
    def make(model: torch.nn.Module, x: torch.Tensor) -> Run:
        import corsac

        lowered = corsac.lower(model, backend, x, strict=True)
        return lambda: lowered(x)

    return make


def _corsac(model: torch.nn.Module, x: torch.Tensor) -> Run:
    import corsac

    compiled = corsac.compile(model, fullgraph=True)
    return lambda: compiled(x)


PEERS: dict[str, Callable[[torch.nn.Module, torch.Tensor], Run]] = {
    "eager": _eager,
    "torch_fx_fuse": _fuse,
    "inductor": _inductor,
    "onnxruntime": _lowered("onnxruntime"),
    "openvino": _lowered("openvino"),
    "corsac": _corsac,
}


def _missing(peer: str) -> str | None:
    if peer == "inductor":
        return None if shutil.which("g++") else "no C++ compiler"
    if peer in ("onnxruntime", "openvino"):
        return None if importlib.util.find_spec(peer) else "not installed"
    return None


def _cold(peer: str, model: str, threads: int) -> float | None:
    command = [sys.executable, __file__, "--cold", peer, model, "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


def _cold_start(peer: str, name: str) -> None:
    model, x = MODELS[name]()
    # Imports are not counted.
    import corsac
    import corsac.lowering  # noqa: F401

    with torch.inference_mode():
        start = time.perf_counter()
        PEERS[peer](model, x)()
        print(time.perf_counter() - start)


def _measure(name: str, peers: list[str], seconds: float, threads: int) -> dict[str, Any]:
    model, x = MODELS[name]()
    runs: dict[str, Run] = {}
    result: dict[str, Any] = {"cold": {}, "steady": {}, "max_abs_err": {}}
    with torch.inference_mode():
        expected = model(x)
        for peer in peers:
            try:
                run = PEERS[peer](model, x)
                error = (run() - expected).abs().max().item()
            except Exception as failed:
                print(f"  {peer}: {type(failed).__name__}: {str(failed)[:200]}")
                continue
            runs[peer] = run
            result["max_abs_err"][peer] = error
            limit = 1e-3 * max(1.0, expected.abs().max().item())
            assert error <= limit, f"{peer} is wrong by {error}"
        samples: dict[str, list[float]] = {peer: [] for peer in runs}
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(next(iter(samples.values()))) < 5:
            for peer, run in runs.items():
                start = time.perf_counter()
                run()
                samples[peer].append(time.perf_counter() - start)
    for peer, times in samples.items():
        result["steady"][peer] = {"min": min(times), "median": statistics.median(times)}
        result["cold"][peer] = _cold(peer, name, threads)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="PATTERN", help="models to run")
    parser.add_argument("--peers", default=",".join(PEERS), help="which peers, with commas")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=10.0, help="for each model")
    parser.add_argument("--cold", nargs=2, metavar=("PEER", "MODEL"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")
    if arguments.cold:
        _cold_start(*arguments.cold)
        return
    peers = []
    for peer in arguments.peers.split(","):
        reason = _missing(peer)
        if reason is None:
            peers.append(peer)
        else:
            print(f"{peer} is missing: {reason}")
    report: dict[str, Any] = {"machine": machine(), "threads": arguments.threads}
    print(f"{report['machine']}, {arguments.threads} threads; ms: minimum, median; cold start in s")
    for name in MODELS:
        if not re.search(arguments.only, name):
            continue
        print(name, flush=True)
        result = _measure(name, peers, arguments.seconds, arguments.threads)
        report[f"{name}/f32"] = result
        for peer, times in result["steady"].items():
            cold = result["cold"][peer]
            print(
                f"  {peer:14} {times['min'] * 1e3:8.2f} {times['median'] * 1e3:8.2f}"
                f"   cold {'-' if cold is None else f'{cold:.2f}'}"
                f"   error {result['max_abs_err'][peer]:.1e}",
                flush=True,
            )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
