"""Graphs as ONNX models, written with corsac's own table of operators.

::

    gm = corsac.fx.symbolic_trace(model.eval())
    proto = corsac.onnx.to_onnx(gm, (torch.randn(1, 3, 224, 224),))
    corsac.onnx.save(proto, "model.onnx")

Needs the ``onnx`` package.
"""

from typing import TYPE_CHECKING

from corsac._lazy import lazy_names

if TYPE_CHECKING:
    from corsac.onnx._export import OPSETS, ExportError, save, to_onnx
    from corsac.onnx.translations import operators

__all__ = ["OPSETS", "ExportError", "operators", "save", "to_onnx"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "_export": ("OPSETS", "ExportError", "save", "to_onnx"),
        "translations": ("operators",),
    },
)
