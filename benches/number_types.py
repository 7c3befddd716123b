"""Models in float32, float64, bfloat16, float16 and autocast to bfloat16: native and by PyTorch, in turn, in one process.

python benches/number_types.py [MODEL …] [--dtypes float64,bfloat16,float16,autocast] [--seconds 3]

Results are compared with PyTorch's in the same type first. One thread. Writes target/bench/number_types.json.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

import corsac
from engine_models import MODELS, Workload, error_and_scale, workload
from in_turn import print_peers, samples_in_turn, summary
from machine import REPORTS, machine

REPORT = REPORTS / "number_types.json"
DEFAULT = [
    "gpt2_decode",
    "llama_decode",
    "gpt2_prefill",
    "llama_prefill",
    "bert_base",
    "vit_b_16",
    "swin_t",
    "resnet50",
    "convnext_tiny",
    "densenet121",
    "efficientnet_b0",
    "mobilenet_v3_large",
    "recommender_b256",
    "elementwise_200",
    "tiny",
]
#: What results may differ by, as a part of the largest element.
TOLERANCES = {"float32": 1e-4, "float64": 1e-11, "bfloat16": 0.2, "float16": 0.02, "autocast": 0.2}
#: Models that compute their norms in float32, whatever their type.
NORMS_IN_FLOAT32 = {"llama_decode", "llama_prefill"}


def _calls(own: Workload, form: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The native call and PyTorch's, on models of their own."""
    if form == "autocast":
        return tuple(map(_in_autocast, _calls(own, "float32")))
    dtype = getattr(torch, form)
    inputs = [value.to(dtype) if value.is_floating_point() else value for value in own.inputs]
    eager = copy.deepcopy(own.model).to(dtype)
    native = corsac.compile(copy.deepcopy(eager), options={"inference": "native"})
    return (lambda: native(*inputs)), (lambda: eager(*inputs))


def _in_autocast(call: Callable[[], Any]) -> Callable[[], Any]:
    def cast() -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return call()

    return cast


def _measure(name: str, dtypes: Sequence[str], seconds: float) -> dict[str, Any]:
    own = workload(name)
    calls = {dtype: _calls(own, dtype) for dtype in dtypes}
    peers: dict[str, Callable[[], Any]] = {}
    with torch.inference_mode():
        for dtype, (native, eager) in calls.items():
            native(), native()
            error, scale = error_and_scale(native(), eager())
            tolerance = TOLERANCES[dtype]
            if name in NORMS_IN_FLOAT32:
                tolerance = max(tolerance, TOLERANCES["float32"])
            assert error <= tolerance * scale, f"{name} in {dtype} is wrong by {error:.3g}"
            peers |= {f"corsac {dtype}": native, f"PyTorch {dtype}": eager}
        return summary(samples_in_turn(peers, seconds, repeat=own.repeat))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=DEFAULT, help=", ".join(MODELS))
    parser.add_argument("--dtypes", default="bfloat16", help="beside float32, with commas")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each model")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dtypes = ["float32", *options.dtypes.split(",")]
    report: dict[str, Any] = {"machine": machine()}
    print(f"{report['machine']}, one thread; ms: minimum, median; ratios of minima")
    for name in options.models:
        print(name, flush=True)
        report[name] = _measure(name, dtypes, options.seconds)
        steady = report[name]["steady"]

        def said(peer: str, steady: dict[str, float] = steady) -> str:
            place, _, dtype = peer.partition(" ")
            ratio = steady[peer] / steady[f"PyTorch {dtype}"]
            return f"{ratio:.2f} of PyTorch {dtype}'s" if place == "corsac" else ""

        print_peers(report[name], said, of="corsac float32")
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
