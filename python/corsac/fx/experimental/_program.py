"""The graph of a model that is to be optimised."""

from __future__ import annotations

import copy

from torch import nn

from corsac.fx._module_attributes import get_submodule
from corsac.fx._symbolic_trace import Tracer
from corsac.fx.graph import Graph
from corsac.fx.graph_module import GraphModule


def program_of(model: nn.Module, tracer: Tracer) -> tuple[nn.Module, Graph]:
    """A graph of ``model``, and the module with its attributes and submodules.

    A graph module that calls nothing but leaves of ``tracer`` is not traced: a copy of its graph keeps the
    source locations and metadata of nodes, which tracing would lose.
    """
    if isinstance(model, GraphModule) and not _overrides_forward(model):
        calls = model.graph.find_nodes(op="call_module")
        called = {node.target: get_submodule(model, node.target) for node in calls}
        if all(tracer.is_leaf_module(module, name) for name, module in called.items()):
            return model, copy.deepcopy(model.graph)
    graph = tracer.trace(model)
    return tracer.root, graph


def _overrides_forward(model: GraphModule) -> bool:
    """Whether calling ``model`` runs something other than its graph: its class, which each graph module has
    to itself, derives from one with a ``forward``."""
    bases = type(model).__mro__[1:]
    written = next(base for base in bases if "forward" in base.__dict__)
    return "forward" in model.__dict__ or not written.__module__.startswith(("corsac.", "torch."))
