"""Code that is generated when it is first asked for."""

from __future__ import annotations

import json
from base64 import b32encode
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from torch.fx import traceback as _torch_traceback
from torch.fx.experimental import _config as _experimental_config

from ._generated_source import _forward_from_src
from .graph import PythonCode

if TYPE_CHECKING:
    from .graph import Graph


class _PendingCode(PythonCode):
    """What :meth:`GraphModule.recompile` returns: generated at the first read of an attribute.

    The graph is let go once the code exists.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph: Graph | None = graph
        self._generated: PythonCode | None = None
        self._co_fields: dict[str, Any] = {}

    def _resolve(self) -> PythonCode:
        generated = self._generated
        if generated is None:
            graph = self._graph
            if graph is None:  # another thread has just finished
                return self._resolve()
            profiled = _profiling_metadata_is_on()
            generated = graph.python_code(root_module="self", record_func=profiled)
            self._co_fields = getattr(graph, "_co_fields", None) or {}
            if profiled:
                generated, filename = _with_profiling_metadata(graph, generated)
                self._co_fields = {"co_filename": filename}
            self._generated = generated
            self._graph = None
        return generated

    def text(self, field: str) -> Any:
        """The value of ``field``.

        For use in properties: Python takes an :class:`AttributeError` raised there for a
        missing property, which would hide what is wrong with the graph.
        """
        try:
            return getattr(self._resolve(), field)
        except AttributeError as error:
            raise RuntimeError(f"code generation failed: {error}") from error

    @property
    def src(self) -> str:
        """The source of the function."""
        return self.text("src")

    @property
    def globals(self) -> dict[str, Any]:
        """The values the source refers to by name."""
        return self.text("globals")

    @property
    def _lineno_map(self) -> dict[int, int | None] | None:
        return self.text("_lineno_map")

    @property
    def _prologue_start(self) -> int:
        return self.text("_prologue_start")

    def function(self) -> Callable[..., Any]:
        """Compile the source."""
        return _forward_from_src(self.src, self.globals, self._co_fields)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _PendingCode):
            other = other._resolve()
        return self._resolve() == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._resolve())


class _PendingForward:
    """Stands on a class in the place of ``forward`` until someone looks at it."""

    __slots__ = ("_code",)

    def __init__(self, code: _PendingCode) -> None:
        self._code = code

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        owner = type(instance) if owner is None else owner
        try:
            function = self._code.function()
        except AttributeError as error:
            raise RuntimeError(f"code generation failed: {error}") from error
        for cls in owner.__mro__:
            if vars(cls).get("forward") is self:
                cls.forward = function  # type: ignore[attr-defined]
                break
        return function.__get__(instance, owner) if instance is not None else function


def _profiling_metadata_is_on() -> bool:
    """Whether torch.fx is asked to register what profilers show beside generated code."""
    return bool(getattr(_experimental_config, "enrich_profiler_metadata", False))


def _metadata_hash(code: str, node_metadata: dict[int, dict[str, Any]]) -> str:
    """A name for ``code`` with its metadata: equal content, equal name."""
    content = json.dumps({"code": code, "node_metadata": node_metadata})
    # Base 32 pads what 51 characters hold with "Q====".
    return b32encode(sha256(content.encode()).digest())[:51].decode().lower()


def _with_profiling_metadata(graph: Graph, code: PythonCode) -> tuple[PythonCode, str]:
    """Register ``code`` with PyTorch's profiler; the returned code marks where it begins."""
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
    return (
        PythonCode(
            source,
            code.globals,
            _lineno_map=code._lineno_map,
            _prologue_start=code._prologue_start,
        ),
        filename,
    )
