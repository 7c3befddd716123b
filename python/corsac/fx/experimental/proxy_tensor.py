"""Operator-level tracing: ``make_fx``, which returns a corsac graph.

The tracing is PyTorch's (it records each operator that reaches the dispatcher); its graph is converted. All
other names of this module are those of ``torch.fx.experimental.proxy_tensor``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch.fx.experimental import proxy_tensor as _torch_proxy_tensor

from .. import _lazy_graph_module
from ..convert import from_torch
from ..graph_module import GraphModule

__all__ = list(_torch_proxy_tensor.__all__)


def make_fx(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., GraphModule]:
    """Return a function that runs ``f`` on its arguments and returns a graph of its operators.

    The graph contains the ATen operators that ``f`` ran, after decomposition, with their results' shapes and
    dtypes in ``node.meta["val"]``. Control flow is that of this run.

    The arguments after ``f`` are those of ``torch.fx.experimental.proxy_tensor.make_fx``, such as
    ``decomposition_table``, a map from operators to functions that replace them, and ``tracing_mode``:
    ``"real"`` runs on the given tensors, ``"fake"`` on fake tensors, ``"symbolic"`` on fake tensors whose
    sizes are symbols.

    Example::

        gm = make_fx(lambda x: torch.relu(x) + 1)(torch.randn(3))
    """
    trace = _torch_proxy_tensor.make_fx(f, *args, **kwargs)

    @functools.wraps(trace)
    def traced(*inputs: Any) -> GraphModule:
        gm = from_torch(trace(*inputs))
        lazy = _lazy_graph_module._use_lazy_graph_module_flag
        return _lazy_graph_module._LazyGraphModule.from_graphmodule(gm) if lazy else gm

    return traced


make_fx.__signature__ = inspect.signature(_torch_proxy_tensor.make_fx)  # type: ignore[attr-defined]


def __getattr__(name: str) -> Any:
    return getattr(_torch_proxy_tensor, name)
