"""Graphs as ONNX models, written by corsac's own table of operators.

::

    gm = corsac.fx.symbolic_trace(model.eval())
    proto = corsac.onnx.to_onnx(gm, (torch.randn(1, 3, 224, 224),))
    corsac.onnx.save(proto, "model.onnx")

Needs the ``onnx`` package.
"""

from corsac.onnx._export import OPSETS, ExportError, save, to_onnx
from corsac.onnx._table import table as operators

__all__ = ["OPSETS", "ExportError", "operators", "save", "to_onnx"]
