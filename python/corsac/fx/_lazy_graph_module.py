"""The lazy graph module of torch.fx.

Every :class:`GraphModule` here generates its code on first use. The interface of torch.fx for lazy modules is
kept, so that programs which use it work unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ._generated_code import _ForwardPutOff, _PendingForward
from .graph_module import GraphModule, PythonCode

_use_lazy_graph_module_flag = False
_force_skip_lazy_graph_module_flag = False


@contextmanager
def _force_skip_lazy_graph_module() -> Iterator[None]:
    """Within the context, :func:`_use_lazy_graph_module` has no effect."""
    global _force_skip_lazy_graph_module_flag
    prior = _force_skip_lazy_graph_module_flag
    _force_skip_lazy_graph_module_flag = True
    try:
        yield
    finally:
        _force_skip_lazy_graph_module_flag = prior


@contextmanager
def _use_lazy_graph_module(should_use: bool) -> Iterator[None]:
    """Within the context, new graph modules are of the class :class:`_LazyGraphModule`."""
    global _use_lazy_graph_module_flag
    prior = _use_lazy_graph_module_flag
    _use_lazy_graph_module_flag = should_use and not _force_skip_lazy_graph_module_flag
    try:
        yield
    finally:
        _use_lazy_graph_module_flag = prior


def _get_graph_module_cls() -> type[GraphModule]:
    """The class for new graph modules."""
    return _LazyGraphModule if _use_lazy_graph_module_flag else GraphModule


def _make_graph_module(
    *args: Any, graph_module_cls: type[GraphModule] | None = None, **kwargs: Any
) -> GraphModule:
    """Construct a graph module of ``graph_module_cls`` or of the current class."""
    cls = _get_graph_module_cls() if graph_module_cls is None else graph_module_cls
    return cls(*args, **kwargs)


def _unwrap_lazy_graph_module(gm: GraphModule) -> GraphModule:
    """``gm`` as a plain graph module."""
    return GraphModule(gm, gm.graph) if isinstance(gm, _LazyGraphModule) else gm


class _LazyGraphModule(GraphModule):
    """A :class:`GraphModule` that reports whether its code is still to be generated."""

    @classmethod
    def from_graphmodule(cls, gm: GraphModule) -> GraphModule:
        """``gm`` itself if it is of this class, else a new one with the same graph."""
        return gm if isinstance(gm, _LazyGraphModule) else _LazyGraphModule(gm, gm.graph)

    @staticmethod
    def force_recompile(gm: GraphModule) -> None:
        """Generate the code of ``gm`` now."""
        if isinstance(gm, _LazyGraphModule):
            gm.real_recompile()

    @property
    def code(self) -> str:
        """The Python source generated from ``graph``; reading it also compiles it."""
        source = super().code
        self.real_recompile()
        return source

    def real_recompile(self) -> None:
        """Generate the code now, unless it is up to date."""
        _ = self.forward

    @classmethod
    def _needs_recompile(cls) -> bool:
        return isinstance(vars(cls).get("forward"), _PendingForward | _ForwardPutOff)

    def _real_recompile(self) -> PythonCode:
        code = self.recompile()
        self.real_recompile()
        return code
