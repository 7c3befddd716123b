"""OpenVINO."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from corsac.lowering._backend import LoweringError
from corsac.lowering._onnx_backend import OnnxBackend
from corsac.onnx._builder import Builder

#: Bound of int64 inputs: OpenVINO's CPU device computes integers in 32 bits, and a few sums of these still fit.
_LARGEST = 2**30
#: Integers of these types saturate instead of wrapping around.
_CLAMPED = {torch.uint8, torch.int8, torch.int16}
_WRAPPING = {"Add", "Sub", "Neg", "Abs", "Div", "Cast"}
_GROWING = {"Mul", "Pow", "ReduceProd", "ReduceSum", "CumSum", "MatMul", "Einsum"}


class OpenVino(OnnxBackend):
    """OpenVINO.

    Args:
        device: the device.
        config: properties of the compiled model, besides those that make it compute in float32.
    """

    name = "openvino"
    package = ("openvino", "openvino")

    def __init__(self, device: str = "CPU", config: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._device, self._config = device, dict(config or {})

    def refuses(self, builder: Builder) -> str | None:
        dtypes = set(builder.dtypes.values())
        if torch.float64 in dtypes:
            return "OpenVINO computes float64 in single precision"
        if dtypes & {torch.bfloat16, torch.float16}:
            return "OpenVINO computes half precision with other roundings"
        sliced = {o.outputs[0] for o in builder.operations if o.kind == "Slice"}
        for operation in builder.operations:
            (first, *_) = operation.outputs
            if operation.kind == "GatherElements" and operation.inputs[0] in sliced:
                # It swaps the two operators, and then the shapes do not fit.
                return "OpenVINO cannot gather from what is larger than the index"
            if operation.kind == "Mod" and builder.dtypes[first].is_floating_point:
                return "OpenVINO computes remainders of floats from rounded quotients"
            narrow = builder.dtypes[first] in _CLAMPED
            if narrow and operation.kind in _WRAPPING | _GROWING:
                return f"OpenVINO does not wrap {builder.dtypes[first]} around in {operation.kind}"
            if operation.kind in _GROWING and builder.dtypes[first] == torch.int64:
                if first in _sizes(builder):
                    continue
                return f"OpenVINO computes int64 in 32 bits, which {operation.kind} may exceed"
        return None

    def load(self, model: bytes | Path) -> Callable[[dict[str, torch.Tensor]], list[torch.Tensor]]:
        import openvino

        config = {
            "INFERENCE_PRECISION_HINT": "f32",
            "EXECUTION_MODE_HINT": "ACCURACY",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        } | self._config
        core = openvino.Core()
        read = (str(model),) if isinstance(model, Path) else (model, b"")
        compiled = core.compile_model(core.read_model(*read), self._device, config)

        # Unused inputs have been removed from the compiled model.
        names = {name for port in compiled.inputs for name in port.names}

        def run(feed: dict[str, torch.Tensor]) -> list[torch.Tensor]:
            for name, x in feed.items():
                if x.dtype == torch.int64 and x.numel() and int(x.abs().max()) >= _LARGEST:
                    raise LoweringError(
                        f"{name} has integers from 2**30, and OpenVINO computes in 32 bits"
                    )
            # A request of its own for each call: threads do not share buffers.
            request = compiled.create_infer_request()
            given = {name: x.numpy() for name, x in feed.items() if name in names}
            found = request.infer(given, share_inputs=False)
            return [torch.tensor(found[port]) for port in compiled.outputs]

        return run


def _sizes(builder: Builder) -> set[str]:
    """The names of values that are computed from shapes and constants alone."""
    found = {name for name, tensor in builder.constants.items() if tensor.dtype == torch.int64}
    for operation in builder.operations:
        known = operation.kind == "Shape" or all(name in found for name in operation.inputs)
        if known and all(builder.dtypes[name] == torch.int64 for name in operation.outputs):
            found.update(operation.outputs)
    return found
