"""Modules for control flow of ONNX that depends on elements."""

from corsac._capture.control_flow import If, Loop, Scan

__all__ = ["If", "Loop", "Scan"]
