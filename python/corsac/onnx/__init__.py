"""Graphs as ONNX models, written and read with corsac's own tables of operators.

::

    gm = corsac.fx.symbolic_trace(model.eval())
    proto = corsac.onnx.to_onnx(gm, (torch.randn(1, 3, 224, 224),))
    corsac.onnx.save(proto, "model.onnx")
    again = corsac.from_onnx("model.onnx")

Needs the ``onnx`` package.
"""

from typing import TYPE_CHECKING

from corsac._lazy import lazy_names

if TYPE_CHECKING:
    from corsac.onnx._export import OPSETS, ExportError, save, to_onnx
    from corsac.onnx._import import from_onnx
    from corsac.onnx._model_reader import OnnxImportError
    from corsac.onnx._registry import readable_operators
    from corsac.onnx.translations import operators

__all__ = [
    "OPSETS",
    "ExportError",
    "OnnxImportError",
    "from_onnx",
    "operators",
    "readable_operators",
    "save",
    "to_onnx",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "_export": ("OPSETS", "ExportError", "save", "to_onnx"),
        "_import": ("from_onnx",),
        "_model_reader": ("OnnxImportError",),
        "_registry": ("readable_operators",),
        "translations": ("operators",),
    },
)
