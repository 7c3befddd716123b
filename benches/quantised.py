"""Quantised models: native, beside float32 and PyTorch's int8, in turn, in one process.

python benches/quantised.py [WORK …] [--seconds 3] [--threads 1]

Signal-to-noise ratios are against the float32 model in PyTorch. Writes target/bench/quantised.json.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import corsac
import corsac.quantization
from corsac.quantization.ns.metrics import compute_sqnr
from corsac.quantization.quantize_fx import convert_fx, prepare_fx
from engine_models import Workload, workload
from in_turn import print_peers, samples_in_turn, summary
from machine import REPORTS, machine

REPORT = REPORTS / "quantised.json"
Model = Callable[..., Any]


def _native(model: nn.Module) -> Model:
    return corsac.compile(model, options={"inference": "native"})


def _static(own: Workload) -> dict[str, Model]:
    """Post-training quantisation of graphs, by corsac and by PyTorch, of the same calibration data."""
    mapping = corsac.quantization.get_default_qconfig_mapping("onednn")
    prepared = prepare_fx(copy.deepcopy(own.model), mapping, own.inputs)
    prepared(*own.inputs)
    return {"corsac int8": _native(convert_fx(prepared)), "PyTorch int8": _torch_static(own)}


def _torch_static(own: Workload) -> Model:
    from torch.ao.quantization import get_default_qconfig_mapping, quantize_fx

    mapping = get_default_qconfig_mapping("x86")
    prepared = quantize_fx.prepare_fx(copy.deepcopy(own.model), mapping, own.inputs)
    prepared(*own.inputs)
    return quantize_fx.convert_fx(prepared)


def _dynamic(own: Workload) -> dict[str, Model]:
    from torch.ao.quantization import quantize_dynamic

    dynamic = _native(corsac.quantize(own.model, dynamic=True, measure=False))
    peer = quantize_dynamic(copy.deepcopy(own.model), {nn.Linear}, dtype=torch.qint8)
    return {"corsac int8 by row": dynamic, "PyTorch int8 dynamic": peer}


def _weights(own: Workload) -> dict[str, Model]:
    forms = {"int8": "int8", "int4 in 32": "int4:32"}
    return {
        f"corsac {name} weights": _native(corsac.quantize(own.model, weights=form))
        for name, form in forms.items()
    }


def _recommender(rows: int) -> Workload:
    own = workload("recommender_b256")
    return Workload(own.model, (own.inputs[0][:rows].clone(),))


WORK: dict[str, tuple[Callable[[], Workload], Callable[[Workload], dict[str, Model]]]] = {
    "recommender_b1": (lambda: _recommender(1), _static),
    "recommender_b16": (lambda: _recommender(16), _static),
    "recommender_b256": (lambda: _recommender(256), _static),
    "resnet50": (lambda: workload("resnet50"), _static),
    "resnet50_b16": (lambda: workload("resnet50_b16"), _static),
    "mobilenet_v2": (lambda: _vision("mobilenet_v2"), _static),
    "mobilenet_v3_large": (lambda: workload("mobilenet_v3_large"), _static),
    "bert_base": (lambda: workload("bert_base"), _dynamic),
    "gpt2_decode": (lambda: workload("gpt2_decode"), _weights),
    "llama_decode": (lambda: workload("llama_decode"), _weights),
    "gpt2_prefill": (lambda: workload("gpt2_prefill"), _weights),
    "llama_prefill": (lambda: workload("llama_prefill"), _weights),
}


def _vision(name: str) -> Workload:
    from engine_models import _vision as vision

    torch.manual_seed(0)
    return vision(name)


def _sqnr(found: Any, expected: Any) -> float:
    """Signal-to-quantisation-noise ratio of all results, in dB."""
    found, expected = (
        torch.cat([x.flatten().double() for x in tree_leaves(own)]) for own in (found, expected)
    )
    return compute_sqnr(expected, found).item()


def _measure(name: str, seconds: float) -> dict[str, Any]:
    make, quantise = WORK[name]
    own = make()
    with torch.no_grad():
        models = {"corsac float32": _native(own.model), **quantise(own)}
        expected = own.model(*own.inputs)
        ratios = {}
        for peer, model in models.items():
            model(*own.inputs)
            ratios[peer] = _sqnr(model(*own.inputs), expected)
    calls = {peer: (lambda model=model: model(*own.inputs)) for peer, model in models.items()}
    with torch.inference_mode():
        result = summary(samples_in_turn(calls, seconds))
    return result | {"sqnr": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", nargs="*", default=list(WORK), help=", ".join(WORK))
    parser.add_argument("--seconds", type=float, default=3.0, help="for each")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    report: dict[str, Any] = {"machine": machine(), "threads": options.threads}
    print(
        f"{report['machine']}, {options.threads} thread(s); ms: minimum, median; ratios of minima"
    )
    for name in options.work:
        result = report[name] = _measure(name, options.seconds)
        print(name, flush=True)
        said = {peer: f"{ratio:.1f} dB" for peer, ratio in result["sqnr"].items()}
        print_peers(result, said.__getitem__, of="corsac float32")
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1))
    print(f"written to {REPORT}")


if __name__ == "__main__":
    main()
