"""Drop-in for :mod:`torch.fx`: capture, graphs, transforms and Python code generation.

Change ``import torch.fx as fx`` to ``import corsac.fx as fx``::

    import corsac.fx as fx

    traced = fx.symbolic_trace(model)  # nn.Module or function -> GraphModule
    print(traced.graph)                # the graph, node by node
    print(traced.code)                 # the same as Python source
    traced(x)                          # runs like the model

Needs torch.
"""

from corsac._lazy import torch_is_missing as _torch_is_missing

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise _torch_is_missing(__name__, error) from error

import importlib as _importlib
import pkgutil as _pkgutil
from types import ModuleType as _ModuleType

from corsac.fx import immutable_collections
from corsac.fx._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap
from corsac.fx.convert import from_torch, to_torch
from corsac.fx.graph import CodeGen, Graph
from corsac.fx.graph_module import GraphModule
from corsac.fx.interpreter import Interpreter, Transformer
from corsac.fx.node import Node, has_side_effect, map_arg
from corsac.fx.proxy import Proxy
from corsac.fx.subgraph_rewriter import replace_pattern

__all__ = [  # noqa: RUF022 (in the order of torch.fx, ours at the end)
    "symbolic_trace",
    "Tracer",
    "wrap",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Transformer",
    "Node",
    "Proxy",
    "replace_pattern",
    "has_side_effect",
    "map_arg",
    "PH",
    "ProxyableClassMeta",
    "CodeGen",
    "immutable_collections",
    "from_torch",
    "to_torch",
]


def __getattr__(name: str) -> _ModuleType:
    """Import modules of the package on first use: ``fx.passes``, ``fx.traceback``."""
    if any(module.name == name for module in _pkgutil.iter_modules(__path__)):
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
