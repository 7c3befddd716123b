"""Quantised models: native, beside float32, PyTorch's int8, and ONNX Runtime and OpenVINO on the same model, in turn,
in one process.

    python benches/quantised.py [WORK …] [--seconds 2] [--threads 1 2] [--no-peers]

corsac's quantised model is written as an ONNX file with QDQ nodes, which ONNX Runtime and OpenVINO run. First, ONNX
Runtime without optimisations has to have the results of the model in PyTorch. Signal-to-noise ratios are against the
float32 model in PyTorch: peers whose products of bytes saturate, on processors without VNNI, have lower ones. Rows where
a peer is faster than corsac are listed at the end.

Writes target/bench/quantised.json: by threads and work, ``steady`` and ``median`` in seconds by peer, ``sqnr`` in dB, and
``unfit``, the reasons why a peer has no figures.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import corsac
import corsac.onnx
import corsac.quantization
from corsac.quantization.ns.metrics import compute_sqnr
from corsac.quantization.quantize_fx import convert_fx, prepare_fx
from engine_models import Workload, workload
from in_turn import print_peers, samples_in_turn, summary
from machine import REPORTS, machine
from onnx_files import on_onnx_runtime, on_openvino

REPORT = REPORTS / "quantised.json"
#: Least agreement of the file with the model in PyTorch, in dB: levels differ by one where a number is half-way.
AGREEMENT = 25.0
#: Seconds of sleep before a call if there are several threads: those of other peers spin for a while.
REST = 2e-3
ON_FILES = {"ONNX Runtime": on_onnx_runtime, "OpenVINO": on_openvino}
Model = Callable[..., Any]


def _native(model: nn.Module) -> Model:
    return corsac.compile(model, options={"inference": "native"})


def _static(own: Workload) -> dict[str, nn.Module]:
    """Post-training quantisation of graphs, by corsac and by PyTorch, of the same calibration data."""
    mapping = corsac.quantization.get_default_qconfig_mapping("onednn")
    prepared = prepare_fx(copy.deepcopy(own.model), mapping, own.inputs)
    prepared(*own.inputs)
    return {"corsac int8": convert_fx(prepared), "PyTorch int8": _torch_static(own)}


def _torch_static(own: Workload) -> nn.Module:
    from torch.ao.quantization import get_default_qconfig_mapping, quantize_fx

    mapping = get_default_qconfig_mapping("x86")
    prepared = quantize_fx.prepare_fx(copy.deepcopy(own.model), mapping, own.inputs)
    prepared(*own.inputs)
    return quantize_fx.convert_fx(prepared)


def _dynamic(own: Workload) -> dict[str, nn.Module]:
    from torch.ao.quantization import quantize_dynamic

    return {
        "corsac int8 by row": corsac.quantize(own.model, dynamic=True, measure=False),
        "PyTorch int8 dynamic": quantize_dynamic(
            copy.deepcopy(own.model), {nn.Linear}, dtype=torch.qint8
        ),
    }


def _weights(own: Workload) -> dict[str, nn.Module]:
    forms = {"int8": "int8", "int4 in 32": "int4:32"}
    return {
        f"corsac {name} weights": corsac.quantize(own.model, weights=form, measure=False)
        for name, form in forms.items()
    }


def _recommender(rows: int) -> Workload:
    own = workload("recommender_b256")
    return Workload(own.model, (own.inputs[0][:rows].clone(),))


WORK: dict[str, tuple[Callable[[], Workload], Callable[[Workload], dict[str, nn.Module]]]] = {
    **{
        f"recommender_b{rows}": (lambda rows=rows: _recommender(rows), _static)
        for rows in (1, 16, 256)
    },
    **{
        f"{name}{'' if batch == 1 else f'_b{batch}'}": (
            lambda name=name, batch=batch: _vision(name, batch),
            _static,
        )
        for name in ("resnet50", "mobilenet_v2", "mobilenet_v3_large")
        for batch in (1, 16)
    },
    "bert_base": (lambda: workload("bert_base"), _dynamic),
    "gpt2_decode": (lambda: workload("gpt2_decode"), _weights),
    "llama_decode": (lambda: workload("llama_decode"), _weights),
    "gpt2_prefill": (lambda: workload("gpt2_prefill"), _weights),
    "llama_prefill": (lambda: workload("llama_prefill"), _weights),
}


def _vision(name: str, batch: int) -> Workload:
    from engine_models import _vision as vision

    torch.manual_seed(0)
    return vision(name, batch)


def _sqnr(found: Any, expected: Any) -> float:
    """Signal-to-quantisation-noise ratio of all results, in dB."""
    found, expected = (
        torch.cat([x.flatten().double() for x in tree_leaves(own)]) for own in (found, expected)
    )
    return compute_sqnr(expected, found).item()


class Measured:
    """A work: its models, the results of the float32 model, and files of corsac's quantised ones."""

    def __init__(self, name: str, folder: Path, *, peers: bool) -> None:
        make, quantise = WORK[name]
        self.own = make()
        #: Reasons why peers have no figures.
        self.unfit: dict[str, str] = {}
        self.files: dict[str, Path] = {}
        with torch.no_grad():
            self.models = {"corsac float32": self.own.model, **quantise(self.own)}
            self.expected = self.own.model(*self.own.inputs)
            for form in [own for own in self.models if own.startswith("corsac int") and peers]:
                try:
                    self.files[form] = self._file(form, folder / f"{name} {form}.onnx")
                except Exception as error:
                    self._is_unfit(f"the file of {form}", error)

    def _is_unfit(self, peer: str, error: Exception) -> None:
        lines = str(error).splitlines() or [""]
        self.unfit[peer] = f"{type(error).__name__}: {lines[0]}"

    def _file(self, form: str, path: Path) -> Path:
        """The file of a quantised model, which has its results."""
        import onnx

        model = self.models[form]
        graph = corsac.capture(model, *self.own.inputs)
        proto = corsac.onnx.to_onnx(graph, self.own.inputs)
        onnx.save(proto, path)
        found = on_onnx_runtime(path, 1, optimised=False)(*self.own.inputs)
        agreement = _sqnr(found, model(*self.own.inputs))
        if not agreement > AGREEMENT:
            raise ValueError(f"its results agree with the model's to {agreement:.1f} dB only")
        return path

    def in_turn(self, seconds: float, threads: int) -> dict[str, Any]:
        """Times of all peers on so many threads, and signal-to-noise ratios of their results."""
        torch.set_num_threads(threads)
        models: dict[str, Model] = {
            peer: _native(model) if peer.startswith("corsac") else model
            for peer, model in self.models.items()
        }
        for form, path in self.files.items():
            for runtime, load in ON_FILES.items():
                peer = form.replace("corsac", runtime)
                try:
                    models[peer] = load(path, threads)
                    models[peer](*self.own.inputs)
                except Exception as error:
                    self._is_unfit(peer, error)
                    models.pop(peer, None)
        inputs, ratios = self.own.inputs, {}
        with torch.no_grad():
            for peer, model in models.items():
                model(*inputs)
                ratios[peer] = _sqnr(model(*inputs), self.expected)
        calls = {peer: (lambda model=model: model(*inputs)) for peer, model in models.items()}
        with torch.inference_mode():
            rest = REST if threads > 1 else 0.0
            result = summary(samples_in_turn(calls, seconds, rest=rest))
        return result | {"sqnr": ratios, "unfit": dict(self.unfit)}


def _lost(result: dict[str, Any]) -> list[str]:
    """The peers that are faster than corsac's model of the same form, as text."""
    times = result["steady"]
    lost = []
    for own in [peer for peer in times if peer.startswith("corsac int")]:
        form = own.removeprefix("corsac ").split()[0]
        for peer, seconds in times.items():
            if not peer.startswith("corsac") and form in peer and seconds < times[own]:
                lost.append(f"{peer} {seconds * 1e3:.2f} ms, {own} {times[own] * 1e3:.2f} ms")
    return lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", nargs="*", default=list(WORK), help=", ".join(WORK))
    parser.add_argument("--seconds", type=float, default=2.0, help="for each")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="each of these numbers")
    parser.add_argument("--no-peers", action="store_true", help="without ONNX Runtime and OpenVINO")
    options = parser.parse_args()
    unknown = sorted({*options.work} - {*WORK})
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}: it is one of {', '.join(WORK)}")
    warnings.simplefilter("ignore")
    report: dict[str, Any] = {"machine": machine()}
    print(f"{report['machine']}; ms: minimum, median; ratios of minima")
    lost = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.work:
            measured = Measured(name, Path(folder), peers=not options.no_peers)
            for threads in options.threads:
                result = measured.in_turn(options.seconds, threads)
                report.setdefault(f"{threads} threads", {})[name] = result
                print(f"{name}, {threads} thread(s)", flush=True)
                said = {peer: f"{ratio:.1f} dB" for peer, ratio in result["sqnr"].items()}
                print_peers(result, said.__getitem__, of="corsac float32")
                for peer, reason in result["unfit"].items():
                    print(f"  no figures for {peer}: {reason}")
                lost += [f"{name}, {threads} thread(s): {own}" for own in _lost(result)]
    for row in lost:
        print(f"slower than a peer: {row}")
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1))
    print(f"written to {REPORT}")


if __name__ == "__main__":
    main()
