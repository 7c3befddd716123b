"""Models in float32, bfloat16 and float16: native and by PyTorch, in turn, in one process.

python benches/number_types.py [MODEL …] [--float16] [--rounds 7]

Results are compared with PyTorch's in the same type first. One thread; the times are minima and medians.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch.utils import _pytree as pytree

import corsac
from engine_models import MODELS, Workload, workload

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
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 0.2, torch.float16: 0.02}


def _in(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if value.is_floating_point() else value


def _difference(found: Any, expected: Any) -> float:
    def of(one: torch.Tensor, other: torch.Tensor) -> float:
        largest = max(other.float().abs().max().item(), 1e-9)
        return (one.float() - other.float()).abs().max().item() / largest

    pairs = zip(*map(pytree.tree_leaves, (found, expected)), strict=True)
    return max(of(one, other) for one, other in pairs if isinstance(one, torch.Tensor))


def _calls(own: Workload, dtype: torch.dtype) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The native call and PyTorch's, on models of their own."""
    inputs = [_in(value, dtype) for value in own.inputs]
    eager = copy.deepcopy(own.model).to(dtype)
    native = corsac.compile(copy.deepcopy(eager), options={"inference": "native"})
    return (lambda: native(*inputs)), (lambda: eager(*inputs))


def _measured(name: str, dtypes: list[torch.dtype], rounds: int) -> list[tuple[str, float, float]]:
    """Minimum and median of each call, in milliseconds."""
    own = workload(name)
    calls = {dtype: _calls(own, dtype) for dtype in dtypes}
    times: dict[str, list[float]] = {}
    with torch.inference_mode():
        for dtype, (native, eager) in calls.items():
            native(), native()
            difference = _difference(native(), eager())
            if difference > TOLERANCES[dtype]:
                raise SystemExit(f"{name} in {dtype} differs by {difference:.3g}")
        for _ in range(rounds):
            for dtype, pair in calls.items():
                for place, call in zip(("corsac", "PyTorch"), pair, strict=True):
                    start = time.perf_counter()
                    for _ in range(own.repeat):
                        call()
                    elapsed = (time.perf_counter() - start) / own.repeat
                    times.setdefault(f"{place} {str(dtype)[6:]}", []).append(elapsed * 1e3)
    return [(key, min(row), statistics.median(row)) for key, row in times.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=DEFAULT, help=", ".join(MODELS))
    parser.add_argument("--float16", action="store_true", help="also float16")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dtypes = [torch.float32, torch.bfloat16] + [torch.float16] * options.float16
    print("ms, minimum (median); ratios of minima")
    for name in options.models:
        rows = _measured(name, dtypes, options.rounds)
        least = {key: own for key, own, _ in rows}
        cells = [f"{key} {own:.3f} ({middle:.3f})" for key, own, middle in rows]
        for dtype in dtypes[1:]:
            kind = str(dtype)[6:]
            to_wide = least[f"corsac {kind}"] / least["corsac float32"]
            to_eager = least[f"corsac {kind}"] / least[f"PyTorch {kind}"]
            cells.append(f"{kind}: {to_wide:.2f} of float32, {to_eager:.2f} of PyTorch")
        print(f"{name}: {'; '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
