"""TensorRT, through ONNX Runtime."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from corsac.lowering._onnxruntime import OnnxRuntime

_PROVIDER = "TensorrtExecutionProvider"


class TensorRT(OnnxRuntime):
    """TensorRT; operators that it does not compile run with ONNX Runtime on CUDA or on the CPU.

    Inputs and outputs are on the CPU.

    Args:
        config: options of ONNX Runtime's TensorRT provider.
        threads: as for ONNX Runtime.
    """

    name = "tensorrt"

    def __init__(self, config: Mapping[str, Any] | None = None, threads: int | None = None) -> None:
        others = ["CUDAExecutionProvider", "CPUExecutionProvider"]
        super().__init__([(_PROVIDER, dict(config or {})), *others], threads)

    def available(self) -> str | None:
        if importlib.util.find_spec("tensorrt") is None:
            return "tensorrt is missing: pip install tensorrt"
        if importlib.util.find_spec("onnxruntime") is None:
            return "onnxruntime is missing: pip install onnxruntime-gpu"
        import onnxruntime

        if _PROVIDER not in onnxruntime.get_available_providers():
            return "ONNX Runtime was built without TensorRT: pip install onnxruntime-gpu"
        return super().available()
