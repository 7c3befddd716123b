"""Copies graphs and graph modules, so that they can be changed without affecting the original."""

from __future__ import annotations

import copy

from corsac.fx.graph import Graph
from corsac.fx.graph_module import GraphModule


def copied_graph(graph: Graph) -> Graph:
    """A graph with the same nodes, names and metadata.

    Its inputs and results are those of its nodes: structured arguments in the code generator of ``graph`` are
    not copied.
    """
    copied = Graph()
    copied.output(copied.graph_copy(graph, {}))
    return copied


def own_copy(module: GraphModule) -> GraphModule:
    """A graph module with a graph and code generation of its own.

    Parameters, buffers and submodules are shared with ``module``; the name of its class and the training mode
    are the same.
    """
    graph = copied_graph(module.graph)
    graph.set_codegen(copy.copy(module.graph._codegen))
    return GraphModule(module, graph, class_name=type(module).__name__)
