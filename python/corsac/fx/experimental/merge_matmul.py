"""Merges matrix products, under the names of ``torch.fx.experimental.merge_matmul``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import corsac.analysis
from corsac import _core
from corsac.fx._symbolic_trace import symbolic_trace
from corsac.fx.graph_module import GraphModule
from corsac.fx.node import Node
from corsac.fx.passes.tools_common import legalize_graph  # noqa: F401
from corsac.passes._report import Report, Site

__all__ = ["are_nodes_independent", "may_depend_on", "merge_matmul", "split_result_tensors"]


def split_result_tensors(
    result: torch.Tensor, inputs: list[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Split ``result``, shape ``(n, ...)``, into parts with as many rows as each of ``inputs``."""
    if isinstance(result, torch.fx.Proxy):
        sizes = [0] * len(inputs)
    else:
        sizes = [x.shape[0] for x in inputs]
    return torch.split(result, sizes)


def may_depend_on(a: Node, b: Node, search_depth: int = 6) -> bool:
    """Whether ``a`` depends on ``b``; also True if ``search_depth`` steps are too few to decide."""
    if a == b:
        return True
    if not a.all_input_nodes:
        return False
    if search_depth == 0:
        return True
    return any(may_depend_on(x, b, search_depth - 1) for x in a.all_input_nodes)


def are_nodes_independent(nodes: list[Node]) -> bool:
    """Whether no node of ``nodes`` depends on another one of them."""
    chosen, last = set(nodes), max(nodes)
    # Nodes that depend on one of them, from the first on.
    tainted: set[Node] = set()
    node = min(nodes)
    while True:
        inputs = node.all_input_nodes
        depends = any(x in tainted or x in chosen for x in inputs)
        if depends:
            if node in chosen:
                return False
            tainted.add(node)
        if node is last:
            return True
        node = node.next


def merge_matmul(
    in_mod: torch.nn.Module, *, example_inputs: Sequence[Any] | None = None
) -> GraphModule:
    """Merge products ``x @ w``, ``y @ w``, ... with one right-hand side into one product of all rows.

    The left-hand sides have to agree in all dimensions but the first, and have two or more; the right-hand
    side has two dimensions or one. Shapes come from attributes and ``node.meta["tensor_meta"]`` or
    ``example_inputs``, and must hold for every call; the number of rows may vary. Products of unknown shapes
    stay separate, and so do those where one depends on another, or with a write in between or to a result.

    Args:
        in_mod: the module; traced if it is not a graph module, and not changed.
        example_inputs: inputs for ``in_mod``, from which shapes are found.

    Returns:
        A module with a :class:`corsac.passes.Report` as ``meta["report"]``, with an entry for every product:
        merged, or the reason why not.
    """
    traced = in_mod if isinstance(in_mod, GraphModule) else symbolic_trace(in_mod)
    gm = GraphModule(traced, traced.graph.__deepcopy__({}))
    before = len(gm.graph.nodes)
    if example_inputs is not None:
        corsac.analysis.propagate(gm, tuple(example_inputs))
    sites = _core.run_pass("matrix products", gm.graph, split=split_result_tensors)
    gm.recompile()
    gm.graph.lint()
    gm.meta["report"] = Report(
        "matrix products", tuple(Site(*site) for site in sites), before, len(gm.graph.nodes)
    )
    return gm
