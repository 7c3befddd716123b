"""Lowering: the parts of a program that a backend supports run on that backend.

::

    lowered = corsac.lower(model.eval(), "onnxruntime", (torch.randn(1, 3, 224, 224),))
    lowered(x)
    print(corsac.lowering.preview(model, "openvino", (x,)))

See docs/lowering.md.
"""

from typing import TYPE_CHECKING

from corsac._lazy import lazy_names

if TYPE_CHECKING:
    from corsac.lowering._backend import Backend, LoweringError, backends
    from corsac.lowering._lower import lower, preview
    from corsac.lowering._part import LoweredPart
    from corsac.lowering._preview import Part, Placement, Preview
    from corsac.onnx._types import TensorType

__all__ = [
    "Backend",
    "LoweredPart",
    "LoweringError",
    "Part",
    "Placement",
    "Preview",
    "TensorType",
    "backends",
    "lower",
    "preview",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "_backend": ("Backend", "LoweringError", "backends"),
        "_lower": ("lower", "preview"),
        "_part": ("LoweredPart",),
        "_preview": ("Part", "Placement", "Preview", "TensorType"),
    },
)
