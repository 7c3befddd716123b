"""Generated code that is compiled on first use."""

from __future__ import annotations

import json
import weakref
from base64 import b32encode
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from torch.fx import traceback as _torch_traceback
from torch.fx.experimental import _config as _experimental_config

from ._generated_source import _forward_from_src
from .graph import PythonCode

if TYPE_CHECKING:
    from .graph import Graph


class _PendingForward:
    """A descriptor in place of ``forward`` on a class, which compiles the code on first access.

    Compiling takes Python ten times longer than generating the source takes here, and many modules made
    between two transforms are never run.
    """

    __slots__ = ("_co_fields", "_code")

    def __init__(self, code: PythonCode, co_fields: dict[str, Any]) -> None:
        self._code = code
        self._co_fields = co_fields

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        owner = type(instance) if owner is None else owner
        try:
            function = _forward_from_src(self._code.src, self._code.globals, self._co_fields)
        except AttributeError as error:
            # An AttributeError would be taken for a missing ``forward``, which would hide the cause.
            raise RuntimeError(f"the generated code cannot be loaded: {error}") from error
        for cls in owner.__mro__:
            if vars(cls).get("forward") is self:
                cls.forward = function  # type: ignore[attr-defined]
                break
        return function.__get__(instance, owner) if instance is not None else function


class _ForwardPutOff:
    """A descriptor in place of ``forward`` on a class until the module's code is generated."""

    __slots__ = ("_module",)

    def __init__(self, module: Any) -> None:
        self._module = weakref.ref(module)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        module = self._module()
        if module is None:
            raise RuntimeError("the module that this forward belongs to is gone")
        module.recompile()
        return getattr(owner if instance is None else instance, "forward")  # noqa: B009


def generate(graph: Graph) -> tuple[PythonCode, dict[str, Any]]:
    """The code of ``graph``, and the fields of its code objects that describe its origin."""
    profiled = bool(getattr(_experimental_config, "enrich_profiler_metadata", False))
    code = graph.python_code(root_module="self", record_func=profiled)
    if any(node.args for node in graph.find_nodes(op="placeholder")):
        _check_signature(code)
    if profiled:
        code, filename = _with_profiling_metadata(graph, code)
        return code, {"co_filename": filename}
    return code, getattr(graph, "_co_fields", None) or {}


def _check_signature(code: PythonCode) -> None:
    """Raise errors of the ``def`` line now rather than when the code is compiled.

    Default values before parameters without one, or without an expression, are errors when the module is
    made. Errors of the body appear when it is compiled.
    """
    for line in code.src.split("\n"):
        if line.startswith("def "):
            exec(compile(f"{line} pass", "<signature>", "exec"), code.globals.copy())
            return


def _metadata_hash(code: str, node_metadata: dict[int, dict[str, Any]]) -> str:
    """A name for ``code`` with its metadata; equal content has an equal name."""
    content = json.dumps({"code": code, "node_metadata": node_metadata})
    # Base 32 pads what 51 characters hold with "Q====".
    return b32encode(sha256(content.encode()).digest())[:51].decode().lower()


def _with_profiling_metadata(graph: Graph, code: PythonCode) -> tuple[PythonCode, str]:
    """Register ``code`` with PyTorch's profiler; the returned code contains a marker at its beginning."""
    nodes = {
        index: {
            "name": node.name,
            "op": node.op,
            "target": str(node.target),
            "stack_trace": node.meta.get("stack_trace"),
        }
        for index, node in enumerate(graph.nodes)
    }
    filename = f"fx_generated__{_metadata_hash(code.src, nodes)}.py"
    _torch_traceback._register_fx_metadata(
        filename,
        {
            "lineno_map": code._lineno_map,
            "prologue_start": code._prologue_start,
            "node_metadata": nodes,
        },
    )
    entered = "torch._C._profiler._RecordFunctionFast('## {} ##')"
    source = code.src.replace(
        entered.format("ENTER_GRAPH_PLACEHOLDER_KEY"), entered.format(filename)
    )
    marked = PythonCode(
        source,
        code.globals,
        _lineno_map=code._lineno_map,
        _prologue_start=code._prologue_start,
    )
    return marked, filename
