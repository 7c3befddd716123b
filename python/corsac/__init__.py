"""corsac: torch.fx, written in Rust.

``corsac.fx`` mirrors :mod:`torch.fx` and needs torch; ``import corsac`` alone does not. The other names of this
package are loaded at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corsac import _dynamo
from corsac._core import __version__
from corsac._lazy import lazy_names

if TYPE_CHECKING:
    from corsac import (
        analysis,
        backends,
        bytecode,
        cache,
        config,
        distributed,
        fx,
        generation,
        lowering,
        minifier,
        onnx,
        optimum,
        passes,
        pt2,
        quantization,
    )
    from corsac._capture.capture import capture
    from corsac._capture.markers import allow_in_graph, assume_constant, disable, graph_break
    from corsac._compile.compiled_module import compile
    from corsac._compile.verify import VerifyError
    from corsac._core import CompileError, ModelFileError
    from corsac._drawing.pictures import draw, draw_diff
    from corsac._engine.module import HostWarning
    from corsac._engine.profile import profile
    from corsac._files.model_file import NumpyModel, load
    from corsac._files.saving import save
    from corsac._files.sessions import Session, SessionModel
    from corsac._native.panic import EngineError
    from corsac.analysis import summary
    from corsac.config import build, describe
    from corsac.lowering import lower
    from corsac.minifier import minify
    from corsac.onnx import from_onnx
    from corsac.pt2 import from_pt2
    from corsac.quantization.one_call import quantize

__all__ = [
    "CompileError",
    "EngineError",
    "HostWarning",
    "ModelFileError",
    "NumpyModel",
    "Session",
    "SessionModel",
    "VerifyError",
    "__version__",
    "allow_in_graph",
    "analysis",
    "assume_constant",
    "backends",
    "build",
    "bytecode",
    "cache",
    "capture",
    "compile",
    "config",
    "describe",
    "disable",
    "distributed",
    "draw",
    "draw_diff",
    "from_onnx",
    "from_pt2",
    "fx",
    "generation",
    "graph_break",
    "load",
    "lower",
    "lowering",
    "minifier",
    "minify",
    "onnx",
    "optimum",
    "passes",
    "profile",
    "pt2",
    "quantization",
    "quantize",
    "save",
    "summary",
]

# torch.compile(model, backend="corsac")
_dynamo.register()


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "_capture.capture": ("capture",),
        "_compile.compiled_module": ("compile",),
        "_engine.module": ("HostWarning",),
        "corsac._core": ("CompileError", "ModelFileError"),
        "_drawing.pictures": ("draw", "draw_diff"),
        "_engine.profile": ("profile",),
        "_capture.markers": ("allow_in_graph", "assume_constant", "disable", "graph_break"),
        "_native.panic": ("EngineError",),
        "_files.model_file": ("NumpyModel", "load"),
        "_files.saving": ("save",),
        "_files.sessions": ("Session", "SessionModel"),
        "_compile.verify": ("VerifyError",),
        "analysis": ("summary",),
        "config": ("build", "describe"),
        "lowering": ("lower",),
        "minifier": ("minify",),
        "onnx": ("from_onnx",),
        "pt2": ("from_pt2",),
        "quantization.one_call": ("quantize",),
    },
    modules=(
        "analysis",
        "backends",
        "bytecode",
        "cache",
        "config",
        "distributed",
        "fx",
        "generation",
        "lowering",
        "minifier",
        "onnx",
        "optimum",
        "passes",
        "pt2",
        "quantization",
    ),
)
