"""The peers of `benches/engine.py`, made from a workload."""

from __future__ import annotations

import copy
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map

from engine_models import Function, Workload

#: Number of runs of the program `rten`.
RTEN_RUNS = 20


class Unfit(RuntimeError):
    """A peer cannot run this workload; the message is the reason."""


def _eager(workload: Workload) -> Function:
    if workload.precision == "f32":
        return workload.model
    model = copy.deepcopy(workload.model).bfloat16()

    def run(*inputs: torch.Tensor) -> Any:
        result = model(*(x.bfloat16() if x.is_floating_point() else x for x in inputs))
        return tree_map(lambda x: x.float() if x.is_floating_point() else x, result)

    return run


def _fuse(workload: Workload) -> Function:
    from torch.fx.experimental.optimization import fuse

    return fuse(workload.model)


def _optimize_for_inference(workload: Workload) -> Function:
    from torch.fx.experimental.optimization import optimize_for_inference

    return optimize_for_inference(workload.model, tracer=torch.fx.Tracer)


def _inductor(workload: Workload) -> Function:
    torch._dynamo.reset()
    return torch.compile(workload.model)


def _frozen(workload: Workload) -> Function:
    import torch._inductor.config as config

    torch._dynamo.reset()
    compiled = torch.compile(workload.model)

    def run(*inputs: torch.Tensor) -> Any:
        # inductor compiles at the first call, and for each shape.
        with config.patch(freezing=True):
            return compiled(*inputs)

    return run


def _exported(workload: Workload) -> torch.nn.Module:
    """The model as a graph: traced, or exported by torch.export if it cannot be traced."""
    if workload.grows:
        raise Unfit("shapes differ from call to call, and it is exported for one")
    try:
        return torch.fx.symbolic_trace(workload.model)
    except Exception:
        program = torch.export.export(workload.model, workload.inputs, strict=False)
        return program.run_decompositions({}).module(check_guards=False)


def _lowered(backend: str) -> Callable[[Workload], Function]:
    def make(workload: Workload) -> Function:
        import corsac

        return corsac.lower(_exported(workload), backend, workload.inputs, strict=True)

    return make


def _openvino(workload: Workload) -> Function:
    """Convert with OpenVINO's own conversion."""
    import openvino

    if workload.grows:
        raise Unfit("shapes differ from call to call, and it is converted for one")
    converted = openvino.convert_model(workload.model, example_input=workload.inputs)
    shapes = [list(tensor.shape) for tensor in workload.inputs]
    converted.reshape({port: shape for port, shape in zip(converted.inputs, shapes, strict=True)})
    compiled = openvino.Core().compile_model(
        converted,
        "CPU",
        {
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "INFERENCE_PRECISION_HINT": workload.precision,
            "PERFORMANCE_HINT": "LATENCY",
        },
    )
    request = compiled.create_infer_request()

    def run(*inputs: torch.Tensor) -> Any:
        found = request.infer([tensor.numpy() for tensor in inputs], share_inputs=True)
        results = [torch.from_numpy(array) for array in found.values()]
        return results[0] if len(results) == 1 else tuple(results)

    return run


def _corsac(workload: Workload) -> Function:
    import corsac

    # This bench itself finds out which is faster.
    options = {"inference": "native"}
    return corsac.compile(workload.model, precision=workload.precision, options=options)


PEERS: dict[str, Callable[[Workload], Function]] = {
    "eager": _eager,
    "torch_fx_fuse": _fuse,
    "torch_fx_optimize_for_inference": _optimize_for_inference,
    "inductor": _inductor,
    "inductor_freezing": _frozen,
    "onnxruntime": _lowered("onnxruntime"),
    "openvino": _openvino,
    "corsac": _corsac,
}
#: Peers with an option for products in bfloat16.
IN_BFLOAT16 = ("eager", "openvino", "corsac")
#: A separate program, which is started for each run.
RTEN = "rten"


def missing(peer: str) -> str | None:
    """The reason why a peer cannot be used on this machine."""
    if peer.startswith("inductor"):
        return None if shutil.which("g++") else "no C++ compiler"
    if peer in ("onnxruntime", "openvino"):
        return None if importlib.util.find_spec(peer) else "not installed"
    if peer == RTEN:
        return None if shutil.which(RTEN) else "its program is not installed"
    return None


def rten(workload: Workload, threads: int) -> tuple[float, float]:
    """The shortest run in seconds, and the largest error, of an exported ONNX file."""
    from safetensors.torch import save_file

    import corsac.onnx
    import onnx

    model = _exported(workload)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        corsac.onnx.to_onnx(model, workload.inputs, file)
        graph = onnx.load(file, load_external_data=False).graph
        inputs = zip([value.name for value in graph.input], workload.inputs, strict=True)
        with torch.inference_mode():
            results = workload.result(workload.model)
        results = results if isinstance(results, tuple) else (results,)
        outputs = zip([value.name for value in graph.output], results, strict=True)
        given, wanted = Path(folder) / "inputs.safetensors", Path(folder) / "outputs.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in inputs}, given)
        save_file({name: tensor.contiguous() for name, tensor in outputs}, wanted)
        command = [RTEN, "-k", "-n", str(RTEN_RUNS), "-t", str(threads), "-i", str(given)]
        command += ["--check-outputs", str(wanted), str(file)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    shortest = re.search(r"min ([\d.]+)ms", text)
    errors = [float(found) for found in re.findall(r"max diff ([\d.e+-]+)", text)]
    if shortest is None or not errors:
        raise Unfit(f"rten says something else than expected: {text[-300:]}")
    return float(shortest[1]) / 1e3, max(errors)
