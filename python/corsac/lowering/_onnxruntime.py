"""ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from corsac.lowering._onnx_backend import OnnxBackend
from corsac.onnx._builder import Builder, Operation
from corsac.onnx._export import require_onnx
from corsac.onnx._types import ELEMENT_TYPES, name_of

_NOT_IMPLEMENTED = "NOT_IMPLEMENTED"


class OnnxRuntime(OnnxBackend):
    """ONNX Runtime.

    Args:
        providers: its execution providers; the first that can run an operator does.
        threads: number of threads for one operator; PyTorch's by default.
    """

    name = "onnxruntime"
    package = ("onnxruntime", "onnxruntime")

    def __init__(
        self,
        providers: Sequence[Any] = ("CPUExecutionProvider",),
        threads: int | None = None,
    ) -> None:
        super().__init__()
        self._providers = list(providers)
        self._threads = threads
        self._kernels: dict[tuple[Any, ...], str | None] = {}

    def load(self, model: bytes | Path) -> Callable[[dict[str, torch.Tensor]], list[torch.Tensor]]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads or torch.get_num_threads()
        options.log_severity_level = 4
        # Spinning threads would take processor time from PyTorch's.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        given = str(model) if isinstance(model, Path) else model
        session = onnxruntime.InferenceSession(given, options, providers=self._providers)

        def run(feed: dict[str, torch.Tensor]) -> list[torch.Tensor]:
            found = session.run(None, {name: x.numpy() for name, x in feed.items()})
            # The memory of an output may belong to the session or to an input.
            owned = [array if array.flags.owndata else array.copy() for array in found]
            return [torch.from_numpy(array) for array in owned]

        return run

    def refuses(self, builder: Builder) -> str | None:
        if torch.bfloat16 in builder.dtypes.values():
            return "bfloat16 has no NumPy type, by which tensors are given to ONNX Runtime"
        if torch.float16 in builder.dtypes.values() and self._on_cpu():
            return "ONNX Runtime computes float16 in single precision on the CPU"
        for operation in builder.operations:
            dtypes = tuple(builder.dtypes.get(name) for name in operation.inputs)
            results = tuple(builder.dtypes.get(name) for name in operation.outputs)
            key = (operation.kind, dtypes, results)
            if key not in self._kernels:
                self._kernels[key] = self._missing_kernel(builder, operation, dtypes)
            if self._kernels[key] is not None:
                return self._kernels[key]
        return None

    def _on_cpu(self) -> bool:
        return self._providers == ["CPUExecutionProvider"]

    def _missing_kernel(
        self, builder: Builder, operation: Operation, dtypes: tuple[Any, ...]
    ) -> str | None:
        """Reason why no session of this operation alone can be made, or None: kernels depend on dtypes only."""
        import onnxruntime

        helper = require_onnx().helper
        names = [name for name in dict.fromkeys(operation.inputs) if name]
        inputs = [
            helper.make_tensor_value_info(name, ELEMENT_TYPES[builder.dtypes[name]], None)
            for name in names
            if name not in builder.constants
        ]
        constants = [
            helper.make_tensor(
                name, ELEMENT_TYPES[tensor.dtype], tensor.shape, tensor.reshape(-1).tolist()
            )
            for name, tensor in builder.constants.items()
            if name in names and tensor.dtype != torch.bfloat16
        ]
        outputs = [
            helper.make_tensor_value_info(name, ELEMENT_TYPES[builder.dtypes[name]], None)
            for name in operation.outputs
        ]
        node = helper.make_node(
            operation.kind, list(operation.inputs), list(operation.outputs), **operation.attributes
        )
        graph = helper.make_graph([node], "probe", inputs, outputs, constants)
        model = helper.make_model(
            graph, ir_version=9, opset_imports=[helper.make_opsetid("", builder.opset)]
        )
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        try:
            onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=self._providers
            )
        except Exception as error:
            given = ", ".join(name_of(dtype) for dtype in dtypes if dtype is not None)
            if _NOT_IMPLEMENTED in str(error) or "NotImplemented" in type(error).__name__:
                return f"ONNX Runtime has no kernel for {operation.kind} of {given}"
            said = str(error).strip().splitlines()[0][:160]
            return f"ONNX Runtime refuses {operation.kind} of {given}: {said}"
        return None
