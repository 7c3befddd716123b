"""ONNX files on ONNX Runtime and OpenVINO, for benches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch

Run = Callable[..., Any]


def on_onnx_runtime(path: Path, threads: int, *, optimised: bool = True) -> Run:
    """The model on ONNX Runtime, as it is without further options, on so many threads; or operator by operator, on
    floats, as the file says."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [own.name for own in session.get_inputs()]

    def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
        given = dict(zip(names, (own.numpy() for own in inputs), strict=True))
        return [torch.from_numpy(numpy.asarray(own)) for own in session.run(None, given)]

    return run


def on_openvino(path: Path, threads: int) -> Run:
    """The model on OpenVINO, for the shortest time of a call, with sums in float32, on so many threads."""
    import openvino

    options = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = openvino.Core().compile_model(path, "CPU", options).create_infer_request()

    def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
        found = request.infer([own.numpy() for own in inputs], share_inputs=True)
        # The arrays are OpenVINO's, until the next call.
        return [torch.from_numpy(own) for own in found.values()]

    return run


__all__ = ["on_onnx_runtime", "on_openvino"]
