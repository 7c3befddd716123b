"""One matrix product for several, under the names of ``torch.fx.experimental.merge_matmul``."""

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
    """Whether ``a`` depends on ``b``; True where more than ``search_depth`` steps would be needed
    to be sure."""
    if a == b:
        return True
    if not a.all_input_nodes:
        return False
    if search_depth == 0:
        return True
    return any(may_depend_on(x, b, search_depth - 1) for x in a.all_input_nodes)


def are_nodes_independent(nodes: list[Node]) -> bool:
    """Whether none of ``nodes`` depends on another one of them."""
    chosen, last = set(nodes), max(nodes)
    # What depends on one of them, from the first on.
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
    """A module in which products ``x @ w``, ``y @ w``, ... with one right-hand side are one product
    of the rows of all of them.

    The left-hand sides have to agree in all dimensions but the first, of two or more, and the
    right-hand side to have two dimensions or one, as attributes and ``node.meta["tensor_meta"]`` say
    or ``example_inputs`` show, which has to hold for every call; how many rows there are may vary.
    Where shapes are not known, products stay apart, and so they do where one depends on another,
    something is written to in between, or to a result.

    Args:
        in_mod: traced if it is no graph module; not changed.
        example_inputs: what ``in_mod`` could be called with, so that shapes are known.

    Returns:
        A module with a :class:`corsac.passes.Report` as ``meta["report"]``, which says of every product
        whether it was merged, and if not, why.
    """
    traced = in_mod if isinstance(in_mod, GraphModule) else symbolic_trace(in_mod)
    gm = GraphModule(traced, traced.graph.__deepcopy__({}))
    before = len(gm.graph.nodes)
    if example_inputs is not None:
        corsac.analysis.propagate(gm, tuple(example_inputs))
    sites = _core.merge_products(gm.graph, split_result_tensors)
    gm.recompile()
    gm.graph.lint()
    gm.meta["report"] = Report(
        "matrix products", tuple(Site(*site) for site in sites), before, len(gm.graph.nodes)
    )
    return gm
