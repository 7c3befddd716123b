"""A backend that tries two compilers, with the graph itself as the fallback.

``corsac.backends.fallback([...])`` does the same and records why each of them declined.

    python examples/backend_composed.py
"""

from collections.abc import Callable

import torch
from torch import nn

import corsac
import corsac.fx as fx
from corsac.backends import explain, fallback, lookup_backend


def my_compiler(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., object]:
    try:
        trt_compiled = lookup_backend("tensorrt")(gm, example_inputs)
        if trt_compiled is not None:
            return trt_compiled
    except Exception as error:
        print("tensorrt:", error)
    # The first backend failed: try the next one.
    try:
        ort_compiled = lookup_backend("onnxruntime")(gm, example_inputs)
        if ort_compiled is not None:
            return ort_compiled
    except Exception as error:
        print("onnxruntime:", error)
    return gm.forward


def main() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    x = torch.randn(3, 8)
    optimized = corsac.compile(model, backend=my_compiler)
    with torch.no_grad():
        torch.testing.assert_close(optimized(x), model(x))
    # Autograd records this call, which neither of the two supports.
    torch.testing.assert_close(optimized(x), model(x))
    print(explain(model, backend=fallback(["tensorrt", "onnxruntime", "eager"]))(x))


if __name__ == "__main__":
    main()
